"""The end of a log that queues and index of a copy do not have yet: their entries, added where they belong.

A broker makes the queue entries of a message before its keys, one message after the other. An index that was copied
before the queues says so up to which message all of them are complete, and only the rest of the log is read. What is
out of the ordinary is left to a rebuild.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.files import InputFile, OpenFiles, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.new_files import new_file, write_all
from rmqtool.base.times import file_time
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatched, Dispatcher, IndexKeys
from rmqtool.formats.file_name import file_name
from rmqtool.formats.index_file import (
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    IndexHeader,
    unit_position,
)
from rmqtool.formats.layout import build
from rmqtool.formats.message import INNER_BATCH
from rmqtool.rebuild.index_builder import link, seconds_between
from rmqtool.rules.versions import INDEX_COUNTS_SLOTS, Releases
from rmqtool.scan.block import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import inert_rows
from rmqtool.scan.reader import scan_files
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.missing import common_file_sizes
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONSUME_QUEUE
from rmqtool.store.unit_files import UnitFiles

_MOST = 1 << 30  # bytes of a tail
_MAX_SECONDS = (1 << 31) - 1


@dataclass(frozen=True)
class Added:
    """What a tail has added: units of queues, and keys of the index."""

    units: int
    keys: int


@dataclass(frozen=True)
class _NewUnits:
    """Units that a queue lacks, from unit `first` on; `queue` is None where it has no file yet."""

    name: QueueName
    queue: Queue | None
    first: int
    units: QueueUnits


class _UnusualError(Exception):
    """Something that a rebuild has to decide."""


def complete_tail(snapshot: Snapshot, releases: Releases, end: int, reading: ReadPolicy) -> Added | None:
    """Add what queues and index lack up to the log's end, in place; None where a rebuild has to, and nothing is added.

    Raises UnreadableError, OSError.
    """
    try:
        return _Tail(snapshot, releases, end, reading).complete()
    except _UnusualError:
        return None


class _Tail:
    def __init__(self, snapshot: Snapshot, releases: Releases, end: int, reading: ReadPolicy) -> None:
        store = snapshot.store
        newest = snapshot.newest_index
        if newest is None or snapshot.database is not None or store.conf.is_on("enableBuildConsumeQueueConcurrently"):
            raise _UnusualError
        self._snapshot, self._reading, self._end = snapshot, reading, end
        self._index, self._geometry = newest
        self._start = self._index.end_physical_offset
        first = snapshot.log.files[0].start_offset if snapshot.log.files else 0
        if not max(first, end - _MOST) <= self._start < end or snapshot.index_files[-1].path != self._index.path:
            raise _UnusualError
        rules = DispatchRules.of(
            releases.newest, store.conf, snapshot.delay_levels, has_light_queues=snapshot.has_light_queues,
            may_be_older=releases.oldest != releases.newest,
        )  # fmt: skip
        self._counts_puts = releases.newest < INDEX_COUNTS_SLOTS
        self._dispatcher = Dispatcher(rules, snapshot.topics.with_batch_queues)
        self._is_batch = frozenset(snapshot.topics.with_batch_queues or ())

    def complete(self) -> Added:
        runs, keys = [], []
        for dispatched in self._dispatched():
            runs.append(dispatched.units)
            keys.append(dispatched.keys)
        new = list(self._new_units(QueueUnits.concatenate(runs))) if runs else []
        new_keys = self._new_keys(keys)
        for each in new:
            self._write(each)
        if len(new_keys):
            self._index_keys(new_keys)
        return Added(sum(len(each.units) for each in new), len(new_keys))

    def _dispatched(self) -> Iterator[Dispatched]:
        at = self._start
        for event in scan_files(self._snapshot.log.files, self._start, self._end, self._reading):
            if isinstance(event, Blank):
                at = event.physical_offset + event.size
                continue
            if not isinstance(event, RecordRun):
                if event.physical_offset >= self._end:
                    break
                raise _UnusualError
            dispatched = self._dispatcher.dispatch(event)
            batched = (event.headers.field("sys_flag") & INNER_BATCH) != 0
            is_odd = batched.any() or len(dispatched.refused_rows) or event.wrong_bodies.any() or inert_rows(event)
            if event.physical_offset != at or is_odd or dispatched.has_optional_keys:
                raise _UnusualError
            units = dispatched.units
            if dispatched.optional_units is not None or (units.message_counts != 1).any():
                raise _UnusualError
            at = event.physical_offset + event.size
            yield dispatched

    def _new_units(self, units: QueueUnits) -> Iterator[_NewUnits]:
        """Those that are not in their queues; all others must be as they are derived."""
        queues = {QueueName(each.topic, each.queue_id): each for each in self._snapshot.queues if each.kind == "simple"}
        for number, of_queue in units.by_queue():
            name = self._dispatcher.queues[number]
            if name.topic in self._is_batch:
                raise _UnusualError
            offsets = of_queue.queue_offsets
            first, stop = int(offsets[0]), int(offsets[-1]) + 1
            if stop - first != len(offsets) or first < 0 or (np.diff(offsets) != 1).any():
                raise _UnusualError
            queue = queues.get(name)
            end = self._checked_end(queue, first, of_queue) if queue and queue.files.files else 0
            if end > stop or end < first:
                raise _UnusualError
            if end < stop:
                yield _NewUnits(name, queue, end, of_queue[end - first :])

    def _checked_end(self, queue: Queue, first: int, derived: QueueUnits) -> int:
        """Where a queue ends; raises where its units are not those that are derived."""
        open_files = OpenFiles(self._reading)
        try:
            units = UnitFiles(queue, open_files)
            end = units.data_end
            count = min(end - first, len(derived))
            stored = units.units(first, max(0, count))
        finally:
            open_files.close()
        same = (stored["physical_offset"] == derived.physical_offsets[: len(stored)]) & (
            stored["message_size"] == derived.message_sizes[: len(stored)]
        )
        if not same.all():
            raise _UnusualError
        return end

    def _write(self, new: _NewUnits) -> None:
        """Write units into the last file of their queue, and into new ones."""
        data, size = new.units.as_consume_queue(), new.units.as_consume_queue().dtype.itemsize
        directory = self._snapshot.store.root / CONSUME_QUEUE / new.name.topic / str(new.name.queue_id)
        files = new.queue.files.files if new.queue else ()
        file_size = files[-1].size if files else common_file_sizes(self._snapshot.queues).get("simple", 0)
        room = file_size // size
        done = 0
        while done < len(data):
            number = new.first + done
            count = min(room - number % room, len(data) - done)
            path = directory / file_name(number // room * file_size)
            with new_file(path, file_size) as descriptor:
                write_all(descriptor, data[done : done + count].tobytes(), number % room * size)
            timestamp = file_time(int(new.units.store_timestamps[done + count - 1]))
            self._like_the_others(path, files, timestamp)
            done += count

    def _like_the_others(self, path: Path, files: Sequence[MappedFile], mtime_ns: int) -> None:
        """Give a file the mode and owner of those beside it, and the time of its last message."""
        status = os.stat(files[-1].path if files else self._index.path)
        os.chmod(path, status.st_mode & 0o7777)
        if os.geteuid() == 0:
            os.chown(path, status.st_uid, status.st_gid)
            for above in (path.parent, path.parent.parent):
                os.chown(above, status.st_uid, status.st_gid)
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def _new_keys(self, runs: Sequence[IndexKeys]) -> IndexKeys:
        """The keys that the index lacks: those of later messages, and of its last one those that are not there."""
        columns = [np.concatenate([getattr(each, name) for each in runs]) for name in vars(runs[0])] if runs else []
        keys = IndexKeys(*columns)
        own = int((keys.physical_offsets == self._start).sum())
        there = _count_at(self._index, self._geometry, self._start, own)
        if there > own or self._index.index_count + len(keys) - there > self._geometry.units:
            raise _UnusualError
        return keys[np.arange(len(keys)) >= there]

    def _index_keys(self, keys: IndexKeys) -> None:
        """Put keys into the newest file, as its broker would (`IndexFile#putKey`)."""
        slots_count, first = self._geometry.slots, self._index.index_count
        with InputFile(self._index.path) as file:
            head = np.frombuffer(file.read(0, HEADER_SIZE), HEADER_DTYPE)[0]
            slots = np.frombuffer(file.read(HEADER_SIZE, slots_count * SLOT_DTYPE.itemsize), SLOT_DTYPE).astype(
                np.int32
            )
            size = file.size
        before = slots.copy()
        units = np.empty(len(keys), UNIT_DTYPE)
        units["key_hash"], units["physical_offset"] = keys.key_hashes, keys.physical_offsets
        seconds = seconds_between(int(head["begin_timestamp"]), keys.store_timestamps)
        units["seconds_since_begin"] = np.clip(seconds, 0, _MAX_SECONDS)
        units["previous"] = previous = link(slots, first, keys.key_hashes)
        fields = {name: int(head[name]) for name in HEADER_DTYPE.names or ()} | {
            "end_timestamp": int(keys.store_timestamps[-1]),
            "end_physical_offset": int(keys.physical_offsets[-1]),
            "hash_slot_count": int(head["hash_slot_count"])
            + (len(keys) if self._counts_puts else int((previous == 0).sum())),
            "index_count": first + len(keys),
        }
        status = os.stat(self._index.path)
        with new_file(self._index.path, size) as descriptor:
            write_all(descriptor, units.tobytes(), unit_position(slots_count, first))
            for slot in np.flatnonzero(slots != before).tolist():
                write_all(descriptor, slots[slot : slot + 1].astype(SLOT_DTYPE).tobytes(), HEADER_SIZE + 4 * slot)
            write_all(descriptor, build(IndexHeader, fields), 0)
        os.utime(self._index.path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _count_at(file: IndexFile, geometry: Geometry, offset: int, most: int) -> int:
    """How many of the last units of an index file are of the message at an offset."""
    first = max(1, file.index_count - most - 1)
    with InputFile(file.path) as opened:
        data = opened.read(unit_position(geometry.slots, first), (file.index_count - first) * UNIT_SIZE)
    return int((np.frombuffer(data, UNIT_DTYPE)["physical_offset"] == offset).sum())
