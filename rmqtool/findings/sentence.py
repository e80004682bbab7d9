"""Sentences of findings: templates over typed facts, filled in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from string import Formatter
from types import MappingProxyType
from typing import Any

from rmqtool.base.times import rfc3339
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted

Says = str | Mapping[str, str]
"""A template, or one for each value of the fact `problem`, "" for all others."""

_NOUNS = re.compile(r"\+?[a-z][a-z -]+(\|[a-z][a-z -]+)?")
_OPTIONAL = re.compile(r"\[([^][]*\{[^][]*)\]")
_NAMED = 4  # names of a list that are shown where it is shortened


class _Filler(Formatter):
    """Fills a template; beside what Python has, nouns are counted and times are written out.

    ``{count:message}`` is ``1 message`` or ``2 messages``, ``{count:entry|entries}`` has its own plural; a list counts
    its items. An end ``{count:+unit}`` is `` (2 units)``, nothing for one. ``{when!t}`` is the time of epoch ms,
    ``{names!l}`` a list, ``{names!n}`` its first names, ``{value!v}`` a value as it is stored.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """The value as a time, a list, or what is stored."""
        if conversion == "t":
            return rfc3339(value) or value
        if conversion == "l":
            return ", ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, Mapping) else \
                ", ".join(map(str, value))  # fmt: skip
        if conversion == "n":
            more = f" and {len(value) - _NAMED} more" if len(value) > _NAMED else ""
            return f"{', '.join(value[:_NAMED])}{more}"
        if conversion == "v":
            return "not there" if value is None else repr(visible(value)) if isinstance(value, str) else str(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value with its noun."""
        if not _NOUNS.fullmatch(format_spec):
            return str(super().format_field(value, format_spec))
        value = len(value) if isinstance(value, Sized) else value
        one, _, several = format_spec.lstrip("+").partition("|")
        text = f"{value} {one if value == 1 else several}" if several else counted(value, one)
        if format_spec.startswith("+"):
            return "" if value == 1 else f" ({text})"
        return text


_FILLER = _Filler()


def filled(says: Says, facts: Mapping[str, Any], parts: Mapping[str, Says] = MappingProxyType({})) -> str:
    """The sentence of a template; raises KeyError where one of its facts is not given.

    What stands in ``[...]`` is left out where one of its facts is not given, None, empty, or a count of nothing.
    `parts` say what a fact means: a word has a template of its own, and so has each item of a list.
    """
    template = says if isinstance(says, str) else says.get(facts.get("problem", "")) or says[""]
    template = _OPTIONAL.sub(lambda found: found[1] if _is_given(found[1], facts) else "", template)
    words = {name: _part(part, facts[name], facts, parts) for name, part in parts.items() if facts.get(name)}
    return _FILLER.vformat(template, (), {**facts, **words})


def _is_given(template: str, facts: Mapping[str, Any]) -> bool:
    fields = [(name, spec) for _, name, spec, _ in _FILLER.parse(template) if name]
    return all(facts.get(name) not in (None, "", []) and (facts[name] or not _NOUNS.fullmatch(spec or ""))
               for name, spec in fields)  # fmt: skip


def _part(says: Says, value: Any, facts: Mapping[str, Any], parts: Mapping[str, Says]) -> str:
    if isinstance(value, str):
        return filled(says[value] if isinstance(says, Mapping) else says, facts)
    if isinstance(value, Sequence):
        texts = [_part(says, each, facts, parts) for each in value]
        return (" and " if isinstance(value[0], str) else "; ").join(texts)
    return filled(says, value, parts)
