"""Checks of compacted queues: their files, units against records both ways, and both against the commit log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile, read_at
from rmqtool.broker.compaction import Obstacle, obstacles
from rmqtool.broker.copied_records import judged_records
from rmqtool.broker.pull import PULLED
from rmqtool.clients.losses import BesideLog
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, is_batch_written
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import MIN_MESSAGE_SIZE, PREFIX_DTYPE
from rmqtool.formats.properties import KEYS
from rmqtool.scan.block import REASON_MEANINGS, Damage
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.scan.properties import read_properties
from rmqtool.scan.single_record import whole_record_in
from rmqtool.store.compaction import (
    CompactedQueue,
    LogRecords,
    compacted_queue,
    compaction_positions,
    file_sizes,
    is_compaction_on,
    leftovers,
    list_compacted,
    replaced_names,
    stored_units,
    whole_copies,
)
from rmqtool.store.consume_queues import Queue
from rmqtool.store.lock import has_abort
from rmqtool.store.paths import COMPACTION, COMPACTION_CHECKPOINT, COMPACTION_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import RECOVERED_FILES, count_leading, written_units

CODES = (
    "store.compacted-log", "compaction.files", "compaction.unit", "compaction.record", "compaction.missing",
    "compaction.position", "compaction.leftover", "compaction.minimum",
)  # fmt: skip
_GONE = "consumers get nothing from the queue (NO_MATCHED_LOGIC_QUEUE)"
_CUT = "the next start cuts them out of the log; nothing dispatches them again"
_AGAIN = "the next start cuts them out of the log, and dispatches them again as far as it reads the commit log again"
_SENT = "consumers get what the compacted log has"
_DELIVERED = "consumers get the damaged body; a compaction keeps it"
_FIELDS_SENT = "consumers get the message with damaged fields"
_PLACE = position_of(PREFIX_DTYPE, "physical_offset")
_MISSING_CODE = "store.compacted-log"


def check_compaction(snapshot: Snapshot, report: Report) -> None:
    """Check compacted queues, where a broker reads them and none changes them now.

    Each queue of a compacted topic that has messages has a log and units. Where the checkpoint names a queue without,
    they are lost; else they are, or the topic was made a compacted one after its messages were written: a broker does
    not compact what is in the log already.
    """
    store = snapshot.store
    if snapshot.holder is not None or not is_compaction_on(store):
        return
    positions = compaction_positions(store)
    _check_missing_logs(snapshot, positions, report)
    if not (store.root / COMPACTION / COMPACTION_LOG).is_dir():
        return
    queues, _ = list_compacted(store)
    file_size, _ = file_sizes(store, queues)
    for code in CODES[1:]:
        report.check(code, len(queues))
    found = [*obstacles(store)]
    in_the_way = {(each.queue.topic, each.queue.queue_id) for each in found if each.queue}
    for obstacle in found:
        report.add("compaction.files", **_files_finding(snapshot, obstacle))
    for queue in queues:
        name, config = (queue.topic, queue.queue_id), snapshot.topics.by_name.get(queue.topic)
        if config is not None and config.is_compacted:
            seen = _check_records(snapshot, queue, file_size, report, has_units=name not in in_the_way)
            _check_position(seen, positions.get(name), report)
            _check_served(snapshot, seen, report, has_units=name not in in_the_way)
        elif snapshot.topics.by_name:
            _report_leftover(snapshot, queue.log_directory, "topic", report)
    for path in leftovers(store):
        _report_leftover(snapshot, path, "working", report)


def _check_served(snapshot: Snapshot, seen: _Seen, report: Report, *, has_units: bool) -> None:
    """Compare with the commit log, and count what consumers do not get of a queue whose units a start takes, or not."""
    if has_units:
        seen.lost.append(_passed_over(seen.led_to))
    if not any(replaced_names(seen.queue)):  # else the log gets some of these files back
        _check_completeness(snapshot, seen, report, has_units=has_units)
    lost = snapshot.kept.setdefault(BesideLog, BesideLog())
    lost.compacted += len(np.unique(np.concatenate([*seen.lost, *seen.left, np.zeros(0, np.int64)])))
    lost.compacted_left += len(np.unique(np.concatenate([*seen.left, np.zeros(0, np.int64)])))


def _passed_over(units: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Queue offsets of units after one whose own is past the queue's end: from there a consumer begins again."""
    offsets = np.concatenate([*units, np.zeros(0, np.int64)])
    beyond = np.flatnonzero(offsets > offsets[-1:])
    return offsets[beyond[0] + 1 :] if len(beyond) else offsets[:0]


def _check_missing_logs(snapshot: Snapshot, positions: dict[tuple[str, int], int], report: Report) -> None:
    doubtful = []
    for topic, queue_id in _queues_with_messages(snapshot):
        report.check(_MISSING_CODE)
        queue = compacted_queue(snapshot.store, topic, queue_id)
        if queue.log.files:
            continue  # whose units can be written again
        if (topic, queue_id) in positions:
            path = snapshot.store.relative(queue.log_directory)
            report.add(_MISSING_CODE, topic=topic, queue_id=queue_id, file=path)
        else:
            doubtful.append(f"{topic} {queue_id}")
    if doubtful:
        text = f"{counted(len(doubtful), 'queue')} of compacted topics ({doubtful[0]}) without a compacted log, which "
        text += "consumers read alone: it is lost, or the topic was made a compacted one later"
        report.doubt("whether compacted logs are lost", text)


def _queues_with_messages(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    topics = {name for name, topic in snapshot.topics.by_name.items() if topic.is_compacted}
    for queue in snapshot.queues if topics else ():
        if queue.topic in topics and (queue.files.files or queue.database):
            yield queue.topic, queue.queue_id


def _files_finding(snapshot: Snapshot, obstacle: Obstacle) -> dict[str, Any]:
    """The facts of an obstacle; names that differ after an interrupted replacement belong to that."""
    facts: dict[str, Any] = {"problem": obstacle.problem}
    queue = obstacle.queue
    given: dict[str, Any] = {"file": snapshot.store.relative(obstacle.path), "details": facts}
    if not obstacle.refuses:
        given["effect"] = _GONE
    if queue is None:
        return given
    given |= {"topic": queue.topic, "queue_id": queue.queue_id}
    facts |= {"log_files": [file.path.name for file in queue.log.files] + replaced_names(queue)[0],
              "unit_files": [file.path.name for file in queue.units.files] + replaced_names(queue)[1]}  # fmt: skip
    if any(replaced_names(queue)) or obstacle.problem == "names":
        is_replaced = any(replaced_names(queue)) or facts["log_files"][-1:] == facts["unit_files"][-1:]
        facts["problem"] = "interrupted" if is_replaced else "names"
    if obstacle.problem == "size":
        facts |= {"size": obstacle.path.stat().st_size, "expected": obstacle.expected}
    return given


def _report_leftover(snapshot: Snapshot, path: Path, problem: str, report: Report) -> None:
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    report.add("compaction.leftover", file=snapshot.store.relative(path), details={"problem": problem, "bytes": size})


@dataclass
class _Seen:
    """What the log of a queue holds: queue offsets and keys of all its records, and of those in its last file."""

    queue: CompactedQueue
    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    keys: list[pa.StringArray] = field(default_factory=list)
    before_last: int = -1  # the greatest queue offset in all files but the last
    is_whole: bool = True
    lost: list[NDArray[np.int64]] = field(default_factory=list)  # queue offsets that consumers do not get
    left: list[NDArray[np.int64]] = field(default_factory=list)  # those of them that a repair does not bring back
    file_size: int = 0  # of the log
    led_to: list[NDArray[np.int64]] = field(default_factory=list)  # queue offsets of all units
    sent: list[int] = field(default_factory=list)  # of units whose records are whole, but for their own place


def _check_records(
    snapshot: Snapshot, queue: CompactedQueue, file_size: int, report: Report, *, has_units: bool
) -> _Seen:
    """Compare each file of the log with that of its units."""
    seen = _Seen(queue, file_size=file_size)
    files = queue.log.files
    for number, (file, unit_file) in enumerate(queue.pairs):
        stored = stored_units(unit_file, snapshot.reading) if unit_file else np.zeros(0, BATCH_UNIT_DTYPE)
        records = judged_records(snapshot, queue, file, stored)
        _FileCheck(snapshot, queue, file, records, report, seen).check(
            unit_file,
            has_units=has_units,
            is_last=number == len(files) - 1,
            is_recovered=number >= len(files) - RECOVERED_FILES,
        )
        offsets = records.units["base_queue_offset"].astype(np.int64)
        _report_differing(snapshot, queue, file, records, report)
        seen.offsets.append(offsets)
        seen.keys.append(records.keys)
        seen.is_whole &= not records.damages
        if number < len(files) - 1 and len(offsets):
            seen.before_last = max(seen.before_last, int(offsets.max()))
    return seen


@dataclass(frozen=True)
class _FileCheck:
    """One file of a compacted log, and what is found of it."""

    snapshot: Snapshot
    queue: CompactedQueue
    file: MappedFile
    records: LogRecords
    report: Report
    seen: _Seen

    def _add(self, code: str, details: dict[str, Any], file: MappedFile, **given: Any) -> None:
        self.report.add(code, details=details, file=self.snapshot.store.relative(file.path), topic=self.queue.topic,
                        queue_id=self.queue.queue_id, **given)  # fmt: skip

    def check(self, unit_file: MappedFile | None, *, has_units: bool, is_last: bool, is_recovered: bool) -> None:
        """Check records, and their units where there is a file of them that a start takes."""
        stored = None if unit_file is None else stored_units(unit_file, self.snapshot.reading)
        units = stored if has_units else None
        if stored is not None:
            self._note_damage(stored[is_batch_written(stored)])
        if units is None:
            self.seen.lost.append(self.records.units["base_queue_offset"].astype(np.int64))
        if has_units and unit_file is None and len(self.records.units):  # a start deletes this file of the log
            count, first = len(self.records.units), int(self.records.units["base_queue_offset"][0])
            cut: dict[str, Any] = {"problem": "cut", "units": count, "records": count, "first": first}
            self._add("compaction.unit", cut, self.file, effect=_CUT, count=count)
        end = self.file.end_offset
        if units is not None and is_last:  # what is after the last unit a start cuts
            written = units[is_batch_written(units)]
            end = int((written["physical_offset"] + written["message_size"]).max(initial=self.file.start_offset))
        for damage in self.records.damages:
            if damage.physical_offset < end and not (damage.tail and units is None):  # where the file is cut
                self._report_damage(damage, units)
        self._report_wrong("body", self.records.wrong & ~self.records.contradicted, _DELIVERED)
        self._report_wrong("fields", self.records.contradicted, _FIELDS_SENT)
        if units is not None and unit_file is not None:
            self._check_units(units, unit_file, is_last=is_last, is_recovered=is_recovered)

    def _report_wrong(self, problem: str, is_wrong: NDArray[np.bool_], effect: str) -> None:
        """Report records that can be decoded, and are damaged."""
        wrong = self.records.units[is_wrong]
        if not len(wrong):
            return
        places = wrong["physical_offset"].astype(np.int64)
        extents = [*zip(places.tolist(), (places + wrong["message_size"]).tolist(), strict=True)]
        facts: dict[str, Any] = {
            "problem": problem,
            "messages": len(wrong),
            "first": int(wrong[0]["base_queue_offset"]),
        }
        facts |= self._cause(self.records.units, extents)
        self._note_wrong(wrong, extents)
        self._add("compaction.record", facts, self.file, severity="warning", effect=effect, count=len(wrong),
                  offset=int(places[0]) - self.file.start_offset)  # fmt: skip

    def _note_damage(self, units: NDArray[np.void]) -> None:
        """Note messages to which `units` lead where no record is any more."""
        offsets = units["base_queue_offset"].astype(np.int64)
        self.seen.led_to.append(offsets)
        damages = [(each.physical_offset, each.physical_offset + each.size) for each in self.records.damages]
        if self.file.size < self.seen.file_size:
            damages.append((self.records.end, self.file.start_offset + self.seen.file_size))
        places = units["physical_offset"]
        inside = np.zeros(len(units), np.bool_)
        for start, stop in damages:
            inside |= (places >= start) & (places < stop)
        if any(each.reason == "physical-offset" for each in self.records.damages):
            sent = [row for row in np.flatnonzero(inside).tolist() if self._is_sent_whole(units[row])]
            inside[sent] = False
            self.seen.sent += offsets[sent].tolist()
        copied = [place for place, _ in whole_copies(self.snapshot, self.queue, units[inside], damages)]
        self.seen.lost.append(offsets[inside])
        self.seen.left.append(offsets[inside & ~np.isin(places, copied)])

    def _note_wrong(self, units: NDArray[np.void], extents: list[tuple[int, int]]) -> None:
        """Note messages that come damaged, and those of them that the commit log does not have whole."""
        copies = whole_copies(self.snapshot, self.queue, units, extents)
        offsets, copied = units["base_queue_offset"].astype(np.int64), [place for place, _ in copies]
        self.seen.lost.append(offsets)
        self.seen.left.append(offsets[~np.isin(units["physical_offset"], copied)])

    def _is_sent_whole(self, unit: np.void) -> bool:
        """Whether a unit leads to a record in which nothing is wrong but its own place, which no client needs."""
        place, size = int(unit["physical_offset"]), int(unit["message_size"])
        data = bytearray(read_at([self.file], place, size))
        if len(data) < MIN_MESSAGE_SIZE:
            return False
        data[_PLACE : _PLACE + 8] = place.to_bytes(8, "big")
        record = whole_record_in(data, place)
        return record is not None and int(record.headers.field("queue_offset")[0]) == unit["base_queue_offset"]

    def _cause(self, units: NDArray[np.void], damages: list[tuple[int, int]]) -> dict[str, Any]:
        """That the commit log has the records that stood where all of the damages are, if it has."""
        copies = [*whole_copies(self.snapshot, self.queue, units, damages)]
        is_whole = sum(map(len, (data for _, data in copies))) == sum(stop - start for start, stop in damages)
        return {"cause": "in-log"} if is_whole else {}

    def _report_damage(self, damage: Damage, units: NDArray[np.void] | None) -> None:
        offsets = self.records.units["physical_offset"]
        dropped = int(np.count_nonzero(offsets > damage.physical_offset))
        facts: dict[str, Any] = {
            "problem": "",
            "why": REASON_MEANINGS[damage.reason],
            "dropped": dropped,
            "bytes": damage.size,
        }
        if units is not None:
            facts |= self._cause(units, [(damage.physical_offset, damage.physical_offset + damage.size)])
        self._add("compaction.record", facts, self.file, offset=damage.physical_offset - self.file.start_offset)

    def _check_units(self, units: NDArray[np.void], file: MappedFile, *, is_last: bool, is_recovered: bool) -> None:
        right = self.records.units
        count, written = len(right), count_leading(is_batch_written(units))
        if not self.records.damages and units[:count].tobytes() == right.tobytes():
            self._check_rest(units[count:], file)
            return
        places = np.searchsorted(right["physical_offset"], units["physical_offset"])
        same = np.zeros(count, np.bool_)
        inside = np.flatnonzero(is_batch_written(units) & (places < count))
        matching = inside[units[inside] == right[places[inside]]]
        if is_recovered:  # the units after the first that is not whole are cut
            matching = matching[matching < written]
        same[places[matching]] = True
        wrong = np.flatnonzero(~same)
        if not len(wrong):
            return
        self.seen.lost.append(right["base_queue_offset"][~self._are_served(units, written, is_recovered=is_recovered)]
                              .astype(np.int64))  # fmt: skip
        first = int(right["base_queue_offset"][wrong[0]])
        facts = {"problem": "wrong", "units": len(wrong), "records": count, "first": first}
        if (
            is_last
            and written == wrong[0]
            and len(wrong) == count - written
            and not units[written:].tobytes().strip(b"\0")
        ):
            is_unclean = has_abort(self.snapshot.store.root)
            self._add("compaction.unit", facts | {"problem": "cut"}, file, effect=_AGAIN if is_unclean else _CUT,
                      severity="warning" if is_unclean else None, count=len(wrong))  # fmt: skip
        else:
            self._add("compaction.unit", facts, file, count=len(wrong))

    def _are_served(self, units: NDArray[np.void], written: int, *, is_recovered: bool) -> NDArray[np.bool_]:
        """Which records a pull finds: a unit leads to it, whatever queue offset, time and tag that has."""
        right = self.records.units
        known = units[:written] if is_recovered else units[is_batch_written(units)]
        places = np.searchsorted(right["physical_offset"], known["physical_offset"])
        inside = np.flatnonzero(places < len(right))
        are_same = ~self._are_passed(known)[inside]
        for name in ("physical_offset", "message_size"):
            are_same &= known[name][inside] == right[name][places[inside]]
        served = np.zeros(len(right), np.bool_)
        served[places[inside[are_same]]] = True
        return served

    def _are_passed(self, units: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which units a pull passes over: after one that leads past the log, those before the next file from there.

        As `CompactionLog#getMessage`, in pulls of a push consumer.
        """
        places, passed = units["physical_offset"].astype(np.int64), np.zeros(len(units), np.bool_)
        sizes, size = units["message_size"].astype(np.int64), self.seen.file_size or self.file.size
        is_held = np.zeros(len(units), np.bool_)
        for file in self.queue.log.files:
            is_held |= (places >= file.start_offset) & (places <= file.start_offset + size - sizes)
        if is_held.all():
            return passed
        next_file, count = 0, 0
        for row, (place, is_read) in enumerate(zip(places.tolist(), is_held.tolist(), strict=True)):
            if count == PULLED:
                next_file = count = 0
            if place < next_file:
                passed[row] = True
            elif is_read:
                next_file, count = 0, count + 1
            else:
                next_file = place - place % size + size
        return passed

    def _check_rest(self, rest: NDArray[np.void], file: MappedFile) -> None:
        """Check that no unit is after those of all records: the mark at most, and zeros."""
        if stale := int(np.count_nonzero(is_batch_written(rest))):
            self._add("compaction.unit", {"problem": "stale", "units": stale}, file, severity="warning", count=stale)


def _report_differing(
    snapshot: Snapshot, queue: CompactedQueue, file: MappedFile, records: LogRecords, report: Report
) -> None:
    """Report records that the commit log has otherwise, where nothing shows which are right."""
    if records.differing:
        first = records.units[min(records.differing)]
        facts = {"problem": "differs", "messages": len(records.differing), "first": int(first["base_queue_offset"]),
                 "cause": "differs"}  # fmt: skip
        report.add("compaction.record", details=facts, severity="warning", effect=_SENT, count=len(records.differing),
                   file=snapshot.store.relative(file.path), topic=queue.topic, queue_id=queue.queue_id,
                   offset=int(first["physical_offset"]) - file.start_offset)  # fmt: skip


def _check_position(seen: _Seen, position: int | None, report: Report) -> None:
    """Compactions read all files but the last one; the position may be that of a message which they dropped."""
    offsets = np.concatenate([*seen.offsets, np.zeros(0, np.int64)])
    newest = int(offsets.max(initial=-1))
    if position is not None and seen.is_whole and len(offsets) and position > newest:
        report.add("compaction.position", file=f"{COMPACTION}/{COMPACTION_CHECKPOINT}", topic=seen.queue.topic,
                   queue_id=seen.queue.queue_id, details={"position": position, "newest": newest})  # fmt: skip


def _check_completeness(snapshot: Snapshot, seen: _Seen, report: Report, *, has_units: bool) -> None:
    """Compare with the messages of the commit log: of each key the newest is in the compacted log.

    A newest one without a body is a tombstone, which a compaction drops. Those before the first that is there may be
    older than the attribute of the topic. Of a queue that a start does not take, `has_units` False, those count to
    which no unit leads: they are not in its log.
    """
    topic, queue_id = seen.queue.topic, seen.queue.queue_id
    plain = next((each for each in snapshot.queues if (each.topic, each.queue_id) == (topic, queue_id)), None)
    loaded = snapshot.queue(topic, queue_id)
    if plain is None or loaded is None:
        return
    held = np.sort(np.concatenate([*seen.offsets, np.zeros(0, np.int64)]))
    minimum = loaded.range.min_offset
    if before := int(np.count_nonzero(held < minimum)):
        facts = {"messages": before, "minimum": minimum, "first": int(held[0])}
        report.add("compaction.minimum", topic=topic, queue_id=queue_id, count=before, details=facts)
    newest = _Newest.of(seen)
    for offsets, keys, body_sizes in _not_held(snapshot, plain, held, minimum, loaded.range.max_offset):
        newest.add(offsets, keys, body_sizes)
    missing = np.array(sorted(newest.lacking), np.int64)
    led_to = np.concatenate([*seen.led_to, np.zeros(0, np.int64)])
    missing = missing if has_units else np.setdiff1d(missing, led_to)
    first_held = int(held[0]) if len(held) else 0
    early = missing[missing < first_held]
    if len(early) and not seen.before_last >= 0:
        text = f"{counted(len(early), 'message')} of {topic} queue {queue_id} before the first of its compacted log, "
        text += "which consumers read alone: they are lost, or the topic was made a compacted one later"
        report.doubt("whether messages of compacted topics are lost", text)
        missing = missing[missing >= first_held]
    if len(missing):
        seen.left.append(np.setdiff1d(missing, led_to))
        seen.lost.append(np.setdiff1d(missing, seen.sent))
        is_unclean = has_abort(snapshot.store.root) and bool(missing[0] > held.max(initial=-1))
        facts = {"messages": len(missing), "first": int(missing[0])}
        report.add("compaction.missing", topic=topic, queue_id=queue_id, queue_offset=int(missing[0]),
                   count=len(missing), details=facts, severity="warning" if is_unclean else None)  # fmt: skip


@dataclass
class _Newest:
    """Which messages that the compacted log lacks are the newest of their keys, as far as they have been added."""

    keys: pa.StringArray
    offsets: NDArray[np.int64]
    others: dict[str, tuple[int, bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: _Seen) -> _Newest:
        """The greatest queue offset of each key of the compacted log."""
        encoded = pa.chunked_array([*seen.keys, pa.array([], pa.string())]).combine_chunks().dictionary_encode()
        greatest = np.full(len(encoded.dictionary) + 1, -1, np.int64)
        indices = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)))
        np.maximum.at(greatest, indices, np.concatenate([*seen.offsets, np.zeros(0, np.int64)]))
        return cls(encoded.dictionary, greatest[:-1])

    def add(self, offsets: NDArray[np.int64], keys: pa.StringArray, body_sizes: NDArray[np.int64]) -> None:
        """Messages that the compacted log lacks, in ascending order."""
        places = np.asarray(pc.index_in(keys, self.keys).fill_null(-1))
        greatest = np.append(self.offsets, -1)[places]
        rows = np.flatnonzero((greatest < offsets) & np.asarray(keys.is_valid()))
        for row, key in zip(rows.tolist(), keys.take(pa.array(rows)).to_pylist(), strict=True):
            if key.strip():
                self.others[key] = int(offsets[row]), bool(body_sizes[row])

    @property
    def lacking(self) -> Iterator[int]:
        """Their queue offsets."""
        return (offset for offset, has_body in self.others.values() if has_body)


def _not_held(
    snapshot: Snapshot, queue: Queue, held: NDArray[np.int64], minimum: int, maximum: int
) -> Iterator[tuple[NDArray[np.int64], pa.StringArray, NDArray[np.int64]]]:
    """Queue offsets, KEYS and body sizes of the messages in the commit log whose queue offsets are not `held`."""
    for numbers, units in written_units(queue, minimum, maximum, snapshot.reading):
        places = np.searchsorted(held, numbers)
        lacks = np.append(held, -1)[places] != numbers
        physical, firsts = np.unique(units["physical_offset"][lacks].astype(np.int64), return_index=True)
        heads = read_heads(snapshot.log.files, physical, snapshot.reading)
        for rows, run in sound_records(snapshot.log.files, heads, snapshot.reading):
            keys = read_properties(run).column(KEYS.encode())
            yield numbers[lacks][firsts][rows], keys, run.body_sizes.astype(np.int64)
