"""Bodies of trace messages: what clients report of messages, in records of text (`TraceDataEncoder` of the client).

A record is a type and its fields, with 0x01 between them and 0x02 after them. A field that a client does not have is
the text ``null``. Later releases append fields; so may one to come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from .java import decode_text

TraceType = Literal["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"]
"""`TraceType`: a sending, the begin and the end of a consumption, the end of a transaction, a recall."""

CONSUME_RESULTS = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""`ConsumeReturnType`, by context code."""

TRANSACTION_STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
"""`LocalTransactionState`."""

_FIELD_SEPARATOR, _RECORD_SEPARATOR = "\x01", "\x02"  # TraceConstants.CONTENT_SPLITOR, FIELD_SPLITOR
_ID_SEPARATOR = ","  # between the unique keys of a batch, in one SendResult
_NULL = "null"
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
_LONG, _INT = 1 << 63, 1 << 31


@dataclass(frozen=True)
class TraceRecord:
    """One record; None is what its type, or the release that wrote it, does not say.

    `message_ids` are unique keys, or offset message ids of messages without one; several are those of a batch. Times
    are of the client's clock: `timestamp` in epoch ms, `cost` in ms. `request_id` is the same in the SubBefore and the
    SubAfter of one consumption. `state` is a `LocalTransactionState`, `from_check` whether the broker had asked for it.
    """

    type: TraceType
    message_ids: tuple[str, ...]
    timestamp: int | None = None
    group: str | None = None
    topic: str | None = None
    request_id: str | None = None
    retry_times: int | None = None
    cost: int | None = None
    success: bool | None = None
    context_code: int | None = None
    state: str | None = None
    from_check: bool | None = None
    offset_message_id: str | None = None
    client_host: str | None = None


@dataclass(frozen=True)
class TraceBody:
    """The records of a trace message, and how many more there are that cannot be read."""

    records: tuple[TraceRecord, ...]
    unreadable: int = 0


def decode_trace(body: bytes) -> TraceBody:
    """Decode the body of a trace message; a record that is damaged, cut or of an unknown type is counted only."""
    *pieces, rest = decode_text(body).split(_RECORD_SEPARATOR)
    decoded = [_record(piece.split(_FIELD_SEPARATOR)) for piece in pieces]
    records = tuple(record for record in decoded if record is not None)
    return TraceBody(records, len(decoded) - len(records) + bool(rest))


def _record(fields: list[str]) -> TraceRecord | None:
    """The record with these fields; None where they are not those of its type."""
    kind, *texts = fields
    if kind not in get_args(TraceType):
        return None
    names, at_least = _LAYOUTS[cast("TraceType", kind)]
    if kind == "Pub" and len(texts) == _OLD_PUB:
        names = tuple(name for name in names if name != "offset_message_id")
    while len(texts) > at_least and not texts[-1]:  # a client of a cloud ends with a separator
        texts.pop()
    if len(texts) < at_least:
        return None
    try:
        values = {name: _VALUES.get(name, _text)(text) for name, text in zip(names, texts, strict=False) if name}
    except ValueError:
        return None
    ids = values.pop("message_id")
    if ids is None:
        return None
    return TraceRecord(cast("TraceType", kind), tuple(ids.split(_ID_SEPARATOR)), **values)


def _text(text: str) -> str | None:
    return None if text in ("", _NULL) else text


def _number(text: str, limit: int) -> int:
    if not _NUMBER.fullmatch(text) or not -limit <= int(text) < limit:
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _state(text: str) -> str:
    if text not in TRANSACTION_STATES:
        raise ValueError(text)
    return text


def _long(text: str) -> int:
    return _number(text, _LONG)


def _int(text: str) -> int:
    return _number(text, _INT)


_VALUES: Mapping[str, Callable[[str], Any]] = {
    "timestamp": _long, "cost": _int, "retry_times": _int, "context_code": _int, "success": _flag, "from_check": _flag,
    "state": _state,
}  # fmt: skip
_OLD_PUB = 12  # fields after the type, before there was an offset message id
_LAYOUTS: Mapping[TraceType, tuple[tuple[str, ...], int]] = {
    # The fields after the type, "" for what is not kept: region, tags, keys, store host, body length, message type.
    "Pub": (("timestamp", "", "group", "topic", "message_id", "", "", "", "", "cost", "", "offset_message_id",
             "success", "client_host"), 12),
    "SubBefore": (("timestamp", "", "group", "request_id", "message_id", "retry_times"), 6),
    "SubAfter": (("request_id", "message_id", "cost", "success", "", "context_code", "timestamp", "group"), 4),
    "EndTransaction": (("timestamp", "", "group", "topic", "message_id", "", "", "", "", "", "state", "from_check"),
                       12),
    "Recall": (("timestamp", "", "group", "topic", "message_id", "success"), 6),
}  # fmt: skip
"""The fields of each type, as the newest release writes them, and how many of them the oldest wrote."""
