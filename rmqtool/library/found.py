"""Messages that were looked up, with what there is to say of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rmqtool.base.errors import UsageError
from rmqtool.library.messages import Message
from rmqtool.query.lookup import By, Lookup
from rmqtool.query.notes import Notes
from rmqtool.scan.filters import Filters

_BY: dict[str, By] = {
    "key": "key",
    "unique_key": "unique-key",
    "message_id": "msg-id",
    "offset": "offset",
    "queue_offset": "queue-offset",
    "body_contains": "scan",
}
_CHOOSING = ("key", "unique_key", "body_contains")


class Found(list[Message]):
    """Messages in the order of the log. `notes` say why there are none, or what there is beside them.

    `may_be_more`: whether damage was met that may hide more of them.
    """

    def __init__(self, messages: Iterable[Message], notes: Notes) -> None:
        super().__init__(messages)
        self.notes = tuple(notes.lines)
        self.may_be_more = notes.lossy


def lookup_of(wanted: Mapping[str, Any], filters: Filters, limit: int | None) -> Lookup:
    """The question for the one of `wanted` that is not None; raises UsageError for several, and for a wrong choice."""
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        *others, last = _BY
        raise UsageError(f"find one of {', '.join(others)} and {last}")
    [name] = given
    value = wanted[name]
    if name not in _CHOOSING and (filters != Filters() or limit is not None):
        raise UsageError(f"{name} names one message: no topic, time or limit goes with it")
    lookup = Lookup(_BY[name], filters=filters, limit=limit)
    match name:
        case "key":
            return replace(lookup, filters=replace(filters, keys=(value,)))
        case "offset":
            return replace(lookup, number=value)
        case "queue_offset":
            return replace(lookup, queue=(value[0], value[1]), number=value[2])
        case "body_contains":
            return replace(lookup, body_contains=value)
        case _:
            return replace(lookup, text=value.strip())
