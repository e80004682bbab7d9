"""What a broker's answer to a send says about each of its messages (`SendMessageResponseHeader`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtool.replay import codes
from rmqtool.replay.errors import PeerError, RefusedError
from rmqtool.replay.frames import Response
from rmqtool.replay.journal import Receipt
from rmqtool.replay.outgoing import Ready

_MAX_DIGITS = 19  # of a Java long
_SHUTTING_DOWN_S = 5.0


@dataclass(frozen=True)
class Answered:
    """All messages are stored, each with its receipt."""

    receipts: Sequence[Receipt]


@dataclass(frozen=True)
class Busy:
    """None is stored for now; a broker that says so for longer than `patience`, s, refuses."""

    error: RefusedError
    patience: float = 3600.0


@dataclass(frozen=True)
class Refused:
    """None is stored."""

    error: RefusedError


def read_answer(response: Response, batch: Sequence[Ready]) -> Answered | Busy | Refused:
    """What became of a batch; raises PeerError for an answer that says that it is stored, but not where."""
    first = batch[0]
    if response.code == codes.SUCCESS or response.code in codes.STORED_ALL_THE_SAME:
        return Answered(_receipts(response, first.broker, len(batch)))
    error = codes.refusal(response, f"{first.broker}, topic {first.message.topic}, queue {first.queue_id}")
    if response.code in (codes.SYSTEM_BUSY, codes.FLOW_CONTROL) or "broker busy" in response.remark:
        return Busy(error)
    if response.code == codes.SERVICE_NOT_AVAILABLE:  # a broker that shuts down says so, and one whose disk is full
        return Busy(error, _SHUTTING_DOWN_S)
    return Refused(error)


def _receipts(response: Response, broker: str, count: int) -> list[Receipt]:
    offset = response.fields.get("queueOffset", "")
    if not (offset.isascii() and offset.isdigit() and len(offset) <= _MAX_DIGITS):
        raise PeerError(f"{broker}: its answer to a send has no queue offset")
    ids = response.fields.get("msgId", "").split(",")  # of a batch one for each message; of an inner batch only one
    status = codes.STORED_ALL_THE_SAME.get(response.code)
    return [
        Receipt((ids[number] if len(ids) == count else ids[0]) or None, int(offset) + number, status)
        for number in range(count)
    ]
