"""Stores that are replicas: copies of one log, of which an export of all of them has each message several times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations

from rmqtool.base.errors import RmqtoolError
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.record_at import record_at
from rmqtool.store.splits import Source


def replicas(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Pairs of names of sources that have the same record, of the same broker, where both logs are.

    It is looked for at the beginning of the log that begins later.
    """
    by_broker: dict[str, list[Source]] = {}
    for source in sources:
        first = _record(source, source.min_offset)
        if first is not None:
            (message,) = message_dicts(first, "", fields=("store_host",))
            by_broker.setdefault(message["store_host"], []).append(source)
    for same in by_broker.values():
        for a, b in combinations(same, 2):
            at = max(a.min_offset, b.min_offset)
            records = _record(a, at), _record(b, at)
            if None not in records and _content(records[0]) == _content(records[1]):
                yield a.name, b.name


def _record(source: Source, offset: int) -> RecordRun | None:
    with suppress(RmqtoolError):  # which the export meets itself
        return record_at(source.files, offset)
    return None


def _content(record: RecordRun | None) -> bytes:
    return b"" if record is None else bytes(record.block.view)
