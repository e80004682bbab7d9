"""Checks of the index of a tier: segments, files that are still written, and the messages to which items point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.java import string_hash
from rmqtool.formats.properties import KEYS, UNIQUE_KEY, split_keys
from rmqtool.rules.versions import TIER_HASHES_MASKED
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import Tier, TieredQueue
from rmqtool.store.tiered_index import (
    WrittenIndex,
    all_items_of,
    hashes_of,
    is_older_index,
    read_index,
    written_indexes,
)

_CODE = "tiered.index"
_Problem = tuple[Severity | None, dict[str, Any]]
_TRIED = 64  # items that tell by which rule a segment was written
_MOST_KEYS = 1 << 14  # items of a file whose messages are read for their keys: items lead to all parts of a log


def check_tiered_index(snapshot: Snapshot, tier: Tier, report: Report) -> None:
    """Check the segments of the index both ways, and the files that are still written."""
    index, lookup = tier.index, _Items(snapshot, tier)
    segments = index.files["INDEX"].files if index else ()
    there = {segment.start_offset for segment in segments}
    for base in sorted(tier.rows(index, "INDEX").keys() - there) if index else ():
        name = snapshot.store.relative(index.directory / "INDEX") if index else ""
        report.add(_CODE, file=name, details={"problem": "missing", "base": base, "cause": "missing"})
    for segment in segments:
        for severity, facts in _of_segment(lookup, segment):
            report.add(_CODE, severity=severity, file=snapshot.store.relative(segment.path), details=facts)
    for written in written_indexes(tier):
        for severity, facts in _of_written(lookup, written):
            report.add(_CODE, severity=severity, file=snapshot.store.relative(written.file.path), details=facts)


def _of_segment(lookup: _Items, segment: MappedFile) -> Iterator[_Problem]:
    """What is wrong with an index segment; items of messages that have expired lead to nothing, which is right."""
    if is_older_index(segment):
        return
    index = read_index(segment)
    if index is None or index.size != segment.size:
        yield None, {"problem": "size", "size": segment.size, "items": index.counted if index else 0}
        return
    if index.items < index.counted:
        yield "info", {"problem": "fewer", "items": index.items, "counted": index.counted}
    misplaced = done = 0
    for items in all_items_of(segment):
        places = np.searchsorted(index.ends, np.arange(done, done + len(items)), side="right")
        misplaced += int(np.count_nonzero(items["hash"] % index.slots != places))
        done += len(items)
    if misplaced:
        yield None, {"problem": "slot", "items": misplaced}
    yield from lookup.problems(all_items_of(segment))


def _of_written(lookup: _Items, written: WrittenIndex) -> Iterator[_Problem]:
    """What is wrong with a file that is still written."""
    count = written.count() if written.is_readable else None
    if count is None:
        yield None, {"problem": "written", "size": written.file.size, "slots": written.slots, "items": written.room}
    else:
        yield from lookup.problems(written.all_items())


class _Items:
    """Items of the index against the messages of the tier."""

    def __init__(self, snapshot: Snapshot, tier: Tier) -> None:
        self._snapshot = snapshot
        self._queues = {(queue.topic, queue.queue_id): queue for queue in tier.queues}
        self._topics = {number: topic for topic, number in tier.topic_ids.items()}

    def problems(self, every: Iterator[NDArray[np.void]]) -> Iterator[_Problem]:
        """Items that lead to no message of their size, or to one without such a key; the rule of their hashes."""
        lost = foreign = read = 0
        masks = set[bool]()
        for items in every:
            for topic_id, queue_id in np.unique(items[["topic_id", "queue_id"]]).tolist():
                queue = self._queues.get((self._topics.get(topic_id, ""), queue_id))
                own = items[(items["topic_id"] == topic_id) & (items["queue_id"] == queue_id)]
                if queue is None:
                    lost += len(own)
                    continue
                lost += _leading_nowhere(queue, own)
                foreign += _without_key(queue, own[: max(0, _MOST_KEYS - read)])
                read += len(own)
                masks |= set(_rules_of(queue, own[:_TRIED])) if not masks else set()
        if lost and self._topics:
            yield None, {"problem": "item", "items": lost}
        if foreign:
            yield None, {"problem": "key", "items": foreign}
        is_masked = self._snapshot.release >= TIER_HASHES_MASKED
        if masks == {not is_masked}:
            release = str(self._snapshot.release)
            yield None if self._snapshot.version else "info", {"problem": "hash", "release": release}


def _leading_nowhere(queue: TieredQueue, items: NDArray[np.void]) -> int:
    """How many items of a queue lead to no message of their size."""
    offsets, firsts, rows = np.unique(items["physical_offset"].astype(np.int64), return_index=True, return_inverse=True)
    begin = queue.log[0].start_offset if queue.log else MAX_OFFSET
    heads = read_heads(queue.log, offsets)
    is_lost = (offsets >= begin) & ~(heads.is_record & (heads.message_sizes == items["message_size"][firsts]))
    return int(np.count_nonzero(is_lost[rows]))


def _without_key(queue: TieredQueue, items: NDArray[np.void]) -> int:
    """How many items of a queue lead to a message of their size that has no key of their hash."""
    offsets, rows = np.unique(items["physical_offset"].astype(np.int64), return_inverse=True)
    heads, dispatcher = read_heads(queue.log, offsets), Dispatcher(DispatchRules())
    is_found = heads.is_record[rows] & (heads.message_sizes[rows] == items["message_size"])
    without = 0
    for chosen, run in sound_records(queue.log, heads):
        keys, numbers = dispatcher.dispatch(run).keys, np.full(len(offsets), -1, np.int64)
        hashes = keys.key_hashes.astype(np.int64)
        known = np.concatenate([_places(keys.rows, each) for each in (hashes, (1 << 31) - hashes)])
        numbers[chosen] = np.arange(len(run))
        own = np.flatnonzero((numbers[rows] >= 0) & is_found)
        places = _places(numbers[rows][own], items["hash"][own].astype(np.int64))
        without += int(np.count_nonzero(~np.isin(places, known)))
    return without


def _places(rows: NDArray[Any], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number for a row and a hash."""
    places: NDArray[np.int64] = rows.astype(np.int64) << 32 | hashes
    return places


def _rules_of(queue: TieredQueue, items: NDArray[np.void]) -> Iterator[bool]:
    """For items of keys with a negative hash whether it is stored without its sign bit, as since 5.5.1."""
    for item in items:
        record = single_record_at(queue.log, int(item["physical_offset"]))
        properties = record.properties if record else {}
        for key in (properties.get(UNIQUE_KEY, ""), *split_keys(properties.get(KEYS, ""))):
            value = string_hash(f"{queue.topic}#{key}")
            if value < 0 and int(item["hash"]) in hashes_of(value):
                yield int(item["hash"]) != abs(value)
