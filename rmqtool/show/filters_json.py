"""Filters as JSON."""

from __future__ import annotations

from typing import Any

from rmqtool.scan.filters import FILTER_NAMES, Filters


def filters_json(filters: Filters) -> dict[str, Any]:
    """The filters that were given, by the names of their options."""
    given = {}
    for name in sorted(FILTER_NAMES):
        only = filters.only([name])
        if only != Filters():
            [value] = [value for value in vars(only).values() if value not in ((), None, 0)] or [0]
            given[name] = list(value) if isinstance(value, tuple) else value
    return given
