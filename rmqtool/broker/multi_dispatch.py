"""Multi-dispatch: more queues for one record, light message queues mostly (`ConsumeQueue#multiDispatchLmqQueue`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmqtool.formats.java import decode_text
from rmqtool.rules.system_topics import LMQ_PREFIX

_LMQ_QUEUE_ID = 0  # MixAll.LMQ_QUEUE_ID
_SEPARATOR = ","
_MAX_LONG = (1 << 63) - 1
_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def multi_dispatch_targets(names: bytes, offsets: bytes, queue_id: int, *, lmq: bool) -> Iterator[tuple[str, int, int]]:
    """Topic, queue id and queue offset of each further queue of a record of queue `queue_id`.

    Lists of different lengths give none; a name with the file separator, or one without a number, is left out.
    """
    topics, offset_texts = _split(names), _split(offsets)
    if len(topics) != len(offset_texts):
        return
    for topic, offset_text in zip(topics, offset_texts, strict=True):
        if topic and "/" not in topic and _is_long(offset_text):
            yield topic, _LMQ_QUEUE_ID if lmq and topic.startswith(LMQ_PREFIX) else queue_id, int(offset_text)


def bad_offset(names: bytes, offsets: bytes, *, skips_paths: bool) -> str | None:
    """The first offset that is no number, where `Long#parseLong` ends a dispatch; None where all are.

    With `skips_paths`, as since 5.0.0, those of names with the file separator are not looked at.
    """
    topics, offset_texts = _split(names), _split(offsets)
    if len(topics) != len(offset_texts):
        return None
    for topic, offset_text in zip(topics, offset_texts, strict=True):
        if not _is_long(offset_text) and not (skips_paths and "/" in topic):
            return offset_text
    return None


def _is_long(text: str) -> bool:
    return _LONG.fullmatch(text) is not None and -_MAX_LONG - 1 <= int(text) <= _MAX_LONG


def _split(text: bytes) -> list[str]:
    """As `String#split` does: empty pieces at the end are none."""
    pieces = decode_text(text).split(_SEPARATOR)
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces
