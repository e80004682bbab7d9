"""Sentences of findings: templates over typed facts, filled in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from rmqtool.base.times import rfc3339
from rmqtool.findings.finding import counted

_NOUNS = re.compile(r"[+&]?[a-z][a-z -]+(\|[a-z][a-z -]+)?")


class _Filler(Formatter):
    """Fills a template; beside what Python has, nouns are counted and times are written out.

    ``{count:message}`` is ``1 message`` or ``2 messages``, ``{count:entry|entries}`` has its own plural. An end
    ``{count:+unit}`` is `` (2 units)``, nothing for one; ``{count:&more unit}`` is `` (and 2 more units)``, nothing for
    none. ``{when!t}`` is the time of epoch ms, ``{names!l}`` a list.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """The value as a time or a list."""
        if conversion == "t":
            return rfc3339(value) or value
        if conversion == "l":
            return ", ".join(map(str, value))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value with its noun."""
        if not _NOUNS.fullmatch(format_spec):
            return str(super().format_field(value, format_spec))
        one, _, several = format_spec.lstrip("+&").partition("|")
        text = f"{value} {one if value == 1 else several}" if several else counted(value, one)
        if format_spec.startswith("+"):
            return "" if value == 1 else f" ({text})"
        if format_spec.startswith("&"):
            return f" (and {text})" if value else ""
        return text


_FILLER = _Filler()


def filled(template: str, facts: Mapping[str, Any]) -> str:
    """The sentence of a template; raises KeyError where one of its facts is not given."""
    return _FILLER.vformat(template, (), facts)
