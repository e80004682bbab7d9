"""Filters as JSON."""

from __future__ import annotations

from typing import Any

from rmqtool.base.numbers import Long
from rmqtool.show.shapes import Shape, at, by


def _given(field: str) -> Any:
    """The values of a filter, where it was given."""
    return by(lambda filters, _: list(getattr(filters, field)) or None, optional=True)


class FiltersGiven(Shape):
    """The filters that were given, by the names of their options."""

    exclude_topic: list[str] = _given("excluded_topics")  # Topics that are left out, or patterns.
    from_: Long = at("from_timestamp", optional=True)  # Stored then or later, epoch ms.
    from_offset: Long = by(
        lambda filters, _: filters.from_offset or None, optional=True
    )  # From this physical offset on.
    key: list[str] = _given("keys")  # Keys and unique keys.
    queue: list[Long] = _given("queue_ids")  # Numbers of queues.
    tag: list[str] = _given("tags")  # Tags.
    to: Long = at("to_timestamp", optional=True)  # Stored before then, epoch ms.
    to_offset: Long = at("to_offset", optional=True)  # Before this physical offset.
    topic: list[str] = _given("topics")  # Topics, or patterns.
    transaction: list[str] = _given("transactions")  # Types of transaction.
