"""What POP consumers took, from the check points and acknowledgements that the broker keeps as messages.

A check point names the messages of one POP, an acknowledgement takes some of them back (`PopReviveService`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import REAL_TOPIC, TAGS
from rmqtool.rules.system_topics import REVIVE_PREFIX
from rmqtool.scan.single_record import message_at
from rmqtool.store.config_json import parse_fastjson

CHECK_POINT = "ck"
ACKNOWLEDGEMENTS = ("ack", "bAck")  # PopAckConstants
_NUMBERS = ("q", "so", "pt", "it", "bm", "n", "ao")  # PopCheckPoint, AckMsg
_LISTS = ("d", "aol")
_MAX_NUMBER = 1 << 62
_MAX_MESSAGES = 1 << 8  # of one POP: PopCheckPoint#num is a byte, its bits an int


class Pop(NamedTuple):
    """What a check point and its acknowledgements have in common."""

    topic: str
    queue_id: int
    group: str
    start_offset: int
    time: int  # epoch ms


@dataclass
class Taken:
    """The queue offsets of one POP, and when those that are left can be seen again, epoch ms."""

    due: int
    offsets: set[int]


def bookkeeping(
    log: Sequence[MappedFile], physical_offsets: Iterable[int], tags: Sequence[str] = (CHECK_POINT, *ACKNOWLEDGEMENTS)
) -> Iterator[tuple[str, bytes]]:
    """Tag and body of those of these messages that are bound for a revive topic and have one of the tags."""
    for offset in physical_offsets:
        message = message_at(log, offset)
        properties = message[0] if message else {}
        if message and properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX) and properties.get(TAGS) in tags:
            yield properties[TAGS], message[1]


def in_flight(bookkeeping: Iterable[tuple[str, bytes]]) -> tuple[dict[Pop, Taken], int]:
    """What is not acknowledged, from the tags and bodies of messages; and how many of these cannot be read."""
    taken: dict[Pop, Taken] = {}
    acknowledged: list[tuple[Pop, set[int]]] = []
    odd = 0
    for tag, body in bookkeeping:
        fields = _decoded(body)
        if fields is None:
            odd += 1
        elif tag == CHECK_POINT:
            pop = _pop_of(fields)
            taken[pop] = Taken(pop.time + fields["it"], _offsets_of(fields))
        elif tag in ACKNOWLEDGEMENTS:
            acknowledged.append((_pop_of(fields), ({*fields["aol"]} if "aol" in fields else {fields.get("ao", -1)})))
    for pop, offsets in acknowledged:
        if pop in taken:
            taken[pop].offsets -= offsets
    return taken, odd


def _decoded(body: bytes) -> dict[str, Any] | None:
    """The fields of a check point or an acknowledgement, None for what is neither."""
    try:
        fields = parse_fastjson(decode_text(body))
    except ValueError:
        return None
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in ("t", "c")):
        return None
    fields = {name: value for name, value in fields.items() if value is not None}
    is_list = all(isinstance(fields.get(name, []), list) for name in _LISTS)
    numbers = [fields.get(name, 0) for name in _NUMBERS]
    numbers += [number for name in _LISTS for number in fields.get(name, [])] if is_list else []
    fits = is_list and all(type(number) is int and abs(number) < _MAX_NUMBER for number in numbers)
    return {**dict.fromkeys(_NUMBERS[:5], 0), **fields} if fits else None


def _pop_of(fields: dict[str, Any]) -> Pop:
    return Pop(fields["t"], fields["q"], fields["c"], fields["so"], fields["pt"])


def _offsets_of(fields: dict[str, Any]) -> set[int]:
    """The queue offsets of a check point without those that its own bits acknowledge (`PopCheckPoint`)."""
    start, bits = fields["so"], fields.get("bm", 0)
    differences = fields.get("d") or range(fields.get("n", 0))
    return {
        start + difference
        for number, difference in zip(range(_MAX_MESSAGES), differences, strict=False)
        if not bits >> number & 1
    }
