"""Records of tiers and compacted logs against the commit log, from which a broker has copied them.

No CRC covers the properties of either copy. What a broker made of the message as it was sent is the witness: the entry
of its queue and the units of its index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile, read_at
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatched, Dispatcher
from rmqtool.formats.consume_queue import is_batch_written, lead_to_same
from rmqtool.formats.properties import TAGS
from rmqtool.scan.frames import RecordRun, wrong_property_crcs
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.scan.properties import read_properties
from rmqtool.scan.single_record import record_at, record_in, whole_record_in
from rmqtool.store.compaction import (
    CompactedQueue,
    LogRecords,
    at_place,
    batch_units,
    copies_for,
    digests_of,
    read_records,
)
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import units_at
from rmqtool.store.unit_files import open_units

_MOST_JUDGED = 1 << 10  # of a run, or a file


class Differing(NamedTuple):
    """Rows of records that differ from their copies in the commit log, and not only in the physical offset.

    Of those `here` the record itself is damaged, of those `in_log` that of the commit log, as its witnesses show.
    """

    here: list[int]
    in_log: list[int]
    undecided: list[int]

    def at(self, rows: NDArray[np.intp]) -> Differing:
        """The same, where the records compared are some `rows`."""
        return Differing(*(rows[each].tolist() for each in self))


def differing_copies(
    snapshot: Snapshot, topic: str, queue_id: int, queue_offsets: NDArray[np.int64],
    digests: Callable[[], NDArray[np.uint64]], record: Callable[[int], bytes],
) -> Differing:  # fmt: skip
    """Compare records of a queue with those of the commit log at the same queue offsets, where it has them.

    `digests` are those of the records (`digests_of`), `record` gives the bytes of one.
    """
    found, own, witnesses = Differing([], [], []), None, _Witnesses(snapshot, (topic, queue_id))
    for rows, offsets, copies in _in_log(snapshot, topic, queue_id, queue_offsets):
        own = digests() if own is None else own  # of most runs the commit log has nothing
        is_other = copies != own[rows]
        for row, offset in zip(rows[is_other].tolist(), offsets[is_other].tolist(), strict=True):
            judged = sum(map(len, found)) < _MOST_JUDGED
            is_here = witnesses.is_damaged(offset, record(row)) if judged else None
            (found.undecided if is_here is None else found.here if is_here else found.in_log).append(row)
    return found


def differing_in_run(
    snapshot: Snapshot, topic: str, queue_id: int, run: RecordRun, rows: NDArray[np.intp]
) -> Differing:
    """As `differing_copies`, for some records of a run."""
    starts, sizes = run.positions, run.message_sizes

    def record(at: int) -> bytes:
        start = int(starts[rows[at]])
        return bytes(run.block.view[start : start + int(sizes[rows[at]])])

    offsets = run.headers.field("queue_offset").astype(np.int64)[rows]
    return differing_copies(snapshot, topic, queue_id, offsets, lambda: digests_of(run)[rows], record).at(rows)


def _in_log(
    snapshot: Snapshot, topic: str, queue_id: int, queue_offsets: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]]:
    """The messages at some queue offsets that the commit log still has: their rows, physical offsets and digests.

    Only where the local queue is one of files with units of 20 bytes.
    """
    local = snapshot.queue(topic, queue_id)
    if local is None or local.queue.kind != "simple" or local.queue.database:
        return
    rows = np.flatnonzero((queue_offsets >= local.range.min_offset) & (queue_offsets < local.range.max_offset))
    if not len(rows):
        return
    with open_units(local.queue, snapshot.reading) as units:
        places = units_at(units, queue_offsets[rows])["physical_offset"].astype(np.int64)
    places, firsts = np.unique(places, return_index=True)
    heads = read_heads(snapshot.log.files, places, snapshot.reading)
    for which, run in sound_records(snapshot.log.files, heads, snapshot.reading):
        yield rows[firsts[which]], places[which], digests_of(run)


def _are_of_one_message(first: RecordRun, second: RecordRun) -> bool:
    """Whether two records are the same up to their properties, but for the bytes of the bodies: these have CRCs."""
    return _fixed_parts(first) == _fixed_parts(second)


def _fixed_parts(record: RecordRun) -> list[bytes]:
    """The bytes of a record before its body, and those from there to its properties."""
    begin, body = int(record.positions[0]), int(record.body_positions[0])
    after, end = body + int(record.body_sizes[0]), int(record.properties_positions[0])
    return [bytes(record.block.view[begin:body]), bytes(record.block.view[after:end])]


def _of_crcs(original: RecordRun, copy: RecordRun) -> Iterator[bool]:
    """Which of the two has the right CRCs: True for the original."""
    wrong_bodies = [bool(each.wrong_bodies[0]) for each in (original, copy)]
    if wrong_bodies[0] != wrong_bodies[1]:
        yield wrong_bodies[1]
    are_right = [len(each.property_crcs.rows) > 0 and not [*wrong_property_crcs(each)] for each in (original, copy)]
    if are_right[0] != are_right[1]:
        yield are_right[0]


class _Witnesses:
    """What a broker has made of the messages of a queue: their units, and their keys in the index."""

    def __init__(self, snapshot: Snapshot, name: tuple[str, int]) -> None:
        self._snapshot, self._name = snapshot, name

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(DispatchRules.of_snapshot(self._snapshot), self._snapshot.topics.with_batch_queues)

    def is_damaged(self, physical_offset: int, copy: bytes) -> bool | None:
        """Whether a copy of the record at a physical offset is damaged, or that record is; None if nothing shows it."""
        original = record_at(self._snapshot.log.files, physical_offset)
        moved = record_in(at_place(copy, physical_offset), physical_offset)
        if original is None or moved is None or not _are_of_one_message(original, moved):
            return None
        votes = {*_of_crcs(original, moved), *self._of_units_and_keys(original, moved, physical_offset)}
        return votes.pop() if len(votes) == 1 else None

    def _of_units_and_keys(self, original: RecordRun, copy: RecordRun, physical_offset: int) -> Iterator[bool]:
        """Which of two different records gives what is there: True for the original."""
        first, second = self._dispatcher.dispatch(original), self._dispatcher.dispatch(copy)
        fits = [self._has_unit(each) for each in (first, second)]
        if fits[0] != fits[1]:
            yield fits[0]
        keys = [{*each.keys.hashes_without_tags} for each in (first, second)]
        index = self._snapshot.index
        only = [any(index.has(each, physical_offset) for each in one - other) for one, other in (keys, keys[::-1])]
        if only[0] != only[1]:
            yield only[0]

    def _has_unit(self, dispatched: Dispatched) -> bool:
        """Whether the queue has the first unit that a record gives."""
        loaded, units = self._snapshot.queue(*self._name), dispatched.units
        if loaded is None or not len(units) or self._dispatcher.queues[int(units.queues[0])] != self._name:
            return False
        unit = loaded.unit_at(int(units.queue_offsets[0]))
        fields = [int(each[0]) for each in (units.physical_offsets, units.message_sizes, units.tags_codes)]
        return unit is not None and [unit.physical_offset, unit.message_size, unit.tags_code] == fields


def judged_records(snapshot: Snapshot, queue: CompactedQueue, file: MappedFile, stored: NDArray[np.void]) -> LogRecords:
    """The records of one file of a compacted log, each against the unit of those `stored` that leads to it.

    No CRC covers their fields: a record that differs from its unit is what is damaged, if the commit log agrees with
    the unit, or the messages around. Its unit stays. Others are compared with the commit log.
    """
    records = read_records(queue, file, snapshot.reading)
    units = stored[is_batch_written(stored)]
    rows = np.searchsorted(records.units["physical_offset"], units["physical_offset"])
    leading = np.flatnonzero(rows < len(records.units))
    rows, units = rows[leading], units[leading]
    own = records.units[rows]
    built, contradicted = records.units.copy(), np.zeros(len(records.units), np.bool_)
    is_odd = lead_to_same(own, units) & ((own != units) | records.foreign[rows])
    for at in np.flatnonzero(is_odd)[:_MOST_JUDGED].tolist():
        row = int(rows[at])
        if records.wrong[row] or _is_contradicted(snapshot, queue, file, records, row, units[at]):
            built[row], contradicted[row] = units[at], not records.wrong[row]
    differing = _differing(snapshot, queue, file, records, np.flatnonzero(~(records.wrong | contradicted)))
    contradicted[differing.here] = True
    return replace(records, units=built, wrong=records.wrong | contradicted, contradicted=contradicted,
                   differing=differing.undecided)  # fmt: skip


def _differing(
    snapshot: Snapshot, queue: CompactedQueue, file: MappedFile, records: LogRecords, rows: NDArray[np.intp]
) -> Differing:
    units = records.units[rows]

    def record(at: int) -> bytes:
        return read_at([file], int(units["physical_offset"][at]), int(units["message_size"][at]))

    offsets = units["base_queue_offset"].astype(np.int64)
    digests = records.digests[rows]
    return differing_copies(snapshot, queue.topic, queue.queue_id, offsets, lambda: digests, record).at(rows)


def _is_contradicted(
    snapshot: Snapshot, queue: CompactedQueue, file: MappedFile, records: LogRecords, row: int, unit: np.void
) -> bool:
    """Whether a record is damaged, and not its unit: the copy in the commit log decides; without one the order."""
    offset, own = np.array([unit["base_queue_offset"]], np.int64), records.units[row]
    copied = next(copies_for(snapshot, queue.topic, queue.queue_id, offset, np.array([unit])), None)
    if copied is not None:
        place, data = copied
        copy = whole_record_in(data, place)
        is_same = copy is not None and batch_units(copy, read_properties(copy).column(TAGS.encode()))[0] == unit
        return bool(is_same) and read_at([file], place, len(data)) != data
    others = np.delete(records.units, row)
    before, after = others[row - 1 : row] if row else others[:0], others[row : row + 1]
    fits = {
        name: [bool((before[name] <= each[name]).all() and (after[name] >= each[name]).all()) for each in (unit, own)]
        for name in ("base_queue_offset", "store_timestamp")
    }
    codes = others["tags_code"]
    fits["tags_code"] = [bool((codes == each["tags_code"]).any()) for each in (unit, own)]
    return any(each == [True, False] for each in fits.values()) and [False, True] not in fits.values()
