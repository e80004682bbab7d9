"""Consume queues while a start recovers them: loaded, cut, appended to (`ConsumeQueue#recover`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, OpenFiles, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.load import Loaded
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import decode_units
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import QUEUE_WITHOUT_FILE_IS_RESET
from rmqtool.store.consume_queues import Kind, Queue, QueueTable
from rmqtool.store.queue_units import SimpleQueue, batch_min_offset, end_of_batch
from rmqtool.store.unit_files import HEAD_UNITS, RECOVERED_FILES, UnitFiles, count_leading, open_units

_PIECE_UNITS = 1 << 15


@dataclass(slots=True)
class RecoveredQueue:
    """A queue after its own recovery; never changed, but not frozen, as a `Queue`.

    `files` are kept, `deleted` lie past the end; `written` counts the units in the last kept file. `last_unit` is the
    last written unit as stored, None when the last three files hold none; `highest` is the greatest physical offset in
    the last kept file, -1 without a unit.
    """

    queue: Queue
    files: tuple[MappedFile, ...]
    deleted: tuple[MappedFile, ...]
    written: int
    last_unit: bytes | None
    highest: int

    @property
    def last(self) -> np.void | None:
        """The last written unit by its fields."""
        return None if self.last_unit is None else decode_units(self.queue.format.dtype, self.last_unit)[0]


def recover_queue(queue: Queue, opened: UnitFiles | None = None) -> RecoveredQueue:
    """Find the end of a queue as the broker does, from its third last file on; by its `opened` units, if given."""
    files = queue.files.files
    if not files:
        return RecoveredQueue(queue, (), (), 0, None, -1)
    file_index, last = max(0, len(files) - RECOVERED_FILES), None
    with open_units(queue, opened=opened) as units:
        while True:
            written, end, highest = _written_units(units, files[file_index])
            last = end if end is not None else last
            if written < units.room_of(files[file_index]) or file_index + 1 == len(files):
                return RecoveredQueue(queue, files[: file_index + 1], files[file_index + 1 :], written, last, highest)
            file_index += 1


def _written_units(files: UnitFiles, mapped: MappedFile) -> tuple[int, bytes | None, int]:
    """Count of the units before the first that is not written, the last of them, and their greatest physical offset.

    All are read, not searched as in `UnitFiles.recovered_end`: any of them may point farthest, or not be written.
    """
    head = files.head_of(mapped)
    if head.is_whole:
        return head.written, head.last, max(head.offsets, default=-1)
    written, last, highest, piece = 0, None, -1, HEAD_UNITS
    while True:
        units = files.units_in(mapped, written, piece)
        count = count_leading(files.is_written(units))
        if count:
            last = units[count - 1].tobytes()
            highest = max(highest, int(units["physical_offset"][:count].max()))
        written += count
        if count < piece:
            return written, last, highest
        piece = min(4 * piece, _PIECE_UNITS)


_PRE_BLANK_PHYSICAL_OFFSET = 0


@dataclass(frozen=True)
class _File:
    """A file of the queue: its start offset, and the file on disk, None when the start creates it."""

    base: int
    mapped: MappedFile | None


class SimulatedQueue:
    """One queue while a start changes it; positions are bytes from the queue's beginning."""

    def __init__(
        self, start: RecoveredQueue, rules: RecoveryRules, file_size: int, log_end: int,
        reading: ReadPolicy = UNLIMITED, *, log_start: int = 0,
    ) -> None:  # fmt: skip
        """`start` is the queue after its own recovery; new files get `file_size` bytes.

        The log begins at `log_start`, and is cut at `log_end`.
        """
        self.queue: Queue = start.queue
        self.kind: Kind = start.queue.kind
        self.unit = start.queue.unit_size  # size, bytes
        self.deleted: list[Path] = [mapped.path for mapped in start.deleted]
        self.appended = 0  # units
        self.misplaced = 0  # of these, those that stand at another queue offset than their message has
        self.shift = 0  # how many queue offsets the last one stands before its own
        self.cut = 0  # units that were written and are no more
        self.undone = 0  # of these, those that were appended before
        self.max_physical = max_physical(start.last, self.queue.kind, rules)
        self.max_offset_of_batches = end_of_batch(start.last) if self.kind == "batch" and start.last is not None else 0
        self._first_batch_offset: int | None = None
        self._min_position = 0
        self._rules = rules
        self._remembers_ends = self.kind == "simple" and rules.queues_remember_ends
        self._reading = reading
        self._file_size = file_size
        self._files = [_File(mapped.start_offset, mapped) for mapped in start.files]
        self._wrote = wrote(start)  # bytes in the last file, if there is one
        self._highest = start.highest
        self._log_start, self._log_end = log_start, log_end
        self._first_appended: int | None = None  # position
        self._end_before = self.end
        self._appended_end = 0
        self._pre_blank_end = 0  # position after the filler of a queue that the start creates
        self._appended_batches_end = 0  # queue offset after the last appended unit that points into the log
        self._below_until = 0  # position after the first appended units, if they point before the log's beginning
        self._beyond_from: int | None = None  # position of the first appended unit that points after the log's end

    @property
    def end(self) -> int:
        """Position after the last unit; 0 without a file (`MappedFileQueue#getMaxOffset`)."""
        return self._files[-1].base + self._wrote if self._files else 0

    @property
    def max_offset(self) -> int:
        """The queue's maximum offset."""
        return self.max_offset_of_batches if self.kind == "batch" else self.end // self.unit

    @property
    def is_changed(self) -> bool:
        """Whether units or files are not as the queue's own recovery left them."""
        return bool(self.appended or self.cut or self.deleted or self.end != self._end_before)

    @property
    def revived(self) -> int:
        """How many units on disk follow the appended ones: a cut at the log's end goes through all of a file."""
        return max(0, self.end - self._appended_end) // self.unit if self.appended and self.kind == "simple" else 0

    @property
    def ends_at_file(self) -> bool:
        """Whether the last file holds no unit, although the queue does not begin with it."""
        return bool(self._files) and self._wrote == 0 and self._min_position < self.end

    @property
    def made(self) -> set[str]:
        """Names of the files that the start creates; it may have deleted files of the same names."""
        return {file_name(file.base) for file in self._files if file.mapped is None}

    def append(self, offset: int, size: int, queue_offset: int, batch_size: int = 1) -> None:
        """`putMessagePositionInfo` for one record, which the queue may have already."""
        if offset + (size if self._remembers_ends else 0) <= self.max_physical:
            return
        expected = queue_offset * self.unit
        self._make_room(expected if self.kind == "simple" else self.end)
        if self.kind == "simple" and queue_offset != 0:
            if self._is_made and len(self._files) == 1 and self._wrote == 0:
                self._fill(expected)
            if expected < self.end:
                return
        begins_again = queue_offset == 0 and self.queue.topic.startswith(LMQ_PREFIX)  # `forgets_light_offsets`
        if self.kind == "simple" and expected != self.end and not begins_again:  # "[BUG]logic queue order maybe wrong"
            self.misplaced += 1
            self.shift = (expected - self.end) // self.unit
        if offset >= self._log_end and self._beyond_from is None:
            self._beyond_from = self.end
        self._written(1, offset, size, int(offset < self._log_start))
        if self.kind == "batch":
            self._first_batch_offset = queue_offset if self._first_batch_offset is None else self._first_batch_offset
            self.max_offset_of_batches = queue_offset + batch_size
            if self._beyond_from is None:
                self._appended_batches_end = self.max_offset_of_batches

    def append_all(
        self,
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int32],
        queue_offsets: NDArray[np.int64],
        batches: NDArray[np.int16],
    ) -> None:
        """Append many records in log order; known ones are skipped, and consecutive ones appended, at once."""
        first = int(np.searchsorted(offsets + (sizes if self._remembers_ends else 0), self.max_physical, "right"))
        while first < len(offsets):
            count = self._following(queue_offsets[first:]) if self.kind == "simple" else 0
            if count > 1 and int(offsets[first + count - 1]) < self._log_end:
                last = first + count - 1
                below = count_leading(offsets[first : last + 1] < self._log_start)
                self._written(count, int(offsets[last]), int(sizes[last]), below)
                first += count
                continue
            offset, size, queue_offset = int(offsets[first]), int(sizes[first]), int(queue_offsets[first])
            self.append(offset, size, queue_offset, int(batches[first]))
            first += 1

    def truncate(self, physical_offset: int) -> None:
        """`truncateDirtyLogicFiles`: the end is searched for in the last file, whose first unit is not checked."""
        if self._is_unmoved(physical_offset):
            return
        before = self.end
        self.max_physical = physical_offset - (0 if self._remembers_ends else 1)
        while self._files:
            file = self._files[-1]
            units = self._content(file)
            if len(units) and int(units["physical_offset"][0]) >= physical_offset:
                self._drop_last()
                continue
            kept = self.queue.format.is_written(units) & (units["physical_offset"] < physical_offset)
            kept[:1] = True
            count = count_leading(kept)
            self._wrote = count * self.unit
            if count:
                self.max_physical = max_physical(units[count - 1], self.kind, self._rules)
                if self.kind == "batch":
                    self.max_offset_of_batches = self._end_of_batches(self.end - self.unit, units[count - 1])
            break
        else:
            self.max_offset_of_batches = 0
        if self._first_appended is not None:
            self.undone += max(0, self._appended_end - max(self.end, self._first_appended)) // self.unit
            self._first_appended = min(self._first_appended, self.end)
        self._appended_end = min(self._appended_end, self.end)
        self._below_until = min(self._below_until, self.end)
        self.cut += max(0, (before - self.end) // self.unit)

    def destroy(self) -> None:
        """Delete all files."""
        self.cut += (self.end - self._files[0].base) // self.unit if self._files else 0
        while self._files:
            self._drop_last()
        self.max_offset_of_batches = 0
        self.max_physical = -1

    def min_offset(self, log_min_offset: int) -> int:
        """The queue's minimum offset; `log_min_offset` is the commit log's, -1 without a file."""
        if self.kind == "batch":
            if self._first_batch_offset is not None and self._is_made:
                return self._first_batch_offset
            units = self._first_file_units()
            return batch_min_offset(units["physical_offset"], units.__getitem__, log_min_offset)
        if not self._files:
            reset = self._rules.version >= QUEUE_WITHOUT_FILE_IS_RESET
            return 0 if reset else self._min_position // self.unit
        last, base = self._last_unit_offset(), self._files[0].base
        queue = SimpleQueue(base, self._first_file_units()["physical_offset"], self.end, last, self._min_position)
        return queue.min_offset(log_min_offset, self._rules.version)

    def _first_file_units(self) -> NDArray[np.void]:
        """Units of the first file up to the end."""
        if not self._files:
            return self._no_units(0)
        units = self._content(self._files[0])
        return units[: self._wrote // self.unit] if len(self._files) == 1 else units

    def _last_unit_offset(self) -> int | None:
        """Physical offset of the last unit, None when the last file holds none."""
        if self._wrote < self.unit:
            return None
        return int(self._content(self._files[-1], self._wrote // self.unit - 1, 1)["physical_offset"][0])

    @property
    def _is_made(self) -> bool:
        """Whether the start itself created the queue."""
        return bool(self._files) and self._files[0].mapped is None

    def _make_room(self, expected: int) -> None:
        """`MappedFileQueue#getLastMappedFile(long)`: the last file, or the next when it is full."""
        if not self._files:
            self._files.append(_File(expected - expected % self._file_size, None))
            self._wrote = 0
        elif self._wrote >= self._file_size:
            self._files.append(_File(self._files[-1].base + self._file_size, None))
            self._wrote, self._highest = 0, -1

    def _fill(self, expected: int) -> None:
        """`ConsumeQueue#fillPreBlank`."""
        self._min_position = self._pre_blank_end = expected
        self._wrote = expected % self._file_size

    def _following(self, queue_offsets: NDArray[np.int64]) -> int:
        """How many of the next records have consecutive queue offsets from the queue's end on."""
        if not self._files or self._wrote >= self._file_size:
            return 0
        room = (self._file_size - self._wrote) // self.unit
        head = queue_offsets[:room]
        follow = head == self.end // self.unit + np.arange(len(head))
        return count_leading(follow)

    def _written(self, count: int, offset: int, size: int, below: int) -> None:
        """Take units at the end, the last one of a record at `offset`, the first ones `below` the log's beginning."""
        if self._first_appended is None:
            self._first_appended = self._below_until = self.end
        if self._below_until == self.end:
            self._below_until += below * self.unit
        self._wrote += count * self.unit
        self._appended_end = self.end
        self.appended += count
        self.max_physical = offset + (size if self._remembers_ends else 0)

    def _is_unmoved(self, physical_offset: int) -> bool:
        """Whether a cut would leave the end where it is: then nothing has to be read."""
        if not self._files or not self._wrote or self._beyond_from is not None or self._highest >= physical_offset:
            return False
        if self._first_appended is None:
            return True
        mapped = self._files[-1].mapped  # on disk a unit may follow past the end
        return (
            mapped is None or not self.queue.format.is_written(self._stored(mapped, self._wrote // self.unit, 1)).any()
        )

    def _end_of_batches(self, position: int, unit: np.void) -> int:
        """The queue offset after the last unit, `unit` at `position`; appended ones are not on disk."""
        first = self._appended_end if self._first_appended is None else self._first_appended
        return self._appended_batches_end if first <= position < self._appended_end else end_of_batch(unit)

    def _content(self, file: _File, first: int = 0, count: int | None = None) -> NDArray[np.void]:
        """Units of a file as they stand now; in appended ones the offset only shows whether it is within the log."""
        if count is None:
            ends_here = file.mapped is None and file is self._files[-1]  # nothing follows in a file that is not on disk
            wrote = max(self._wrote, self.unit)  # a cut takes a file's first unit for written
            count = (wrote if ends_here else self._file_size) // self.unit
        units = self._no_units(count)
        if file.mapped is not None:
            stored = self._stored(file.mapped, first, len(units))
            units[: len(stored)] = stored
        self._overlay(units, file.base + first * self.unit)
        return units

    def _stored(self, mapped: MappedFile, first: int, count: int) -> NDArray[np.void]:
        with open_units(self.queue, self._reading) as units:
            return units.units_in(mapped, first, count)

    def _no_units(self, count: int) -> NDArray[np.void]:
        return np.zeros(count, self.queue.format.dtype)

    def _overlay(self, units: NDArray[np.void], base: int) -> None:
        if self._is_made and self._pre_blank_end > base:
            self._set(units, base, base, self._pre_blank_end, _PRE_BLANK_PHYSICAL_OFFSET)
        if self._first_appended is not None:
            self._set(units, base, self._first_appended, self._appended_end, self._log_end - 1)
            self._set(units, base, self._first_appended, self._below_until, 0)
        if self._beyond_from is not None:
            self._set(units, base, self._beyond_from, self._appended_end, self._log_end)

    def _set(self, units: NDArray[np.void], base: int, start: int, stop: int, offset: int) -> None:
        rows = slice(max(0, (start - base) // self.unit), max(0, (stop - base) // self.unit))
        units["physical_offset"][rows] = offset
        units["message_size"][rows] = 1
        if self.kind == "batch":
            units["batch_size"][rows] = 1

    def _drop_last(self) -> None:
        file = self._files.pop()
        if file.mapped is not None:
            self.deleted.append(file.mapped.path)


def wrote(recovered: RecoveredQueue) -> int:
    """Bytes written in the last file; a cut counts from multiples of the file size, not from the file's own base.

    `MappedFileQueue#truncateDirtyFiles`.
    """
    if not recovered.files:
        return 0
    last, written = recovered.files[-1], recovered.written * recovered.queue.unit_size
    return written if written == last.size else (last.start_offset + written) % last.size


def max_physical(last: np.void | None, kind: Kind, rules: RecoveryRules) -> int:
    """The queue's `maxPhysicOffset` after its last unit, -1 without one."""
    if last is None:
        return -1
    ends = kind == "simple" and rules.queues_remember_ends
    return int(last["physical_offset"]) + (int(last["message_size"]) if ends else 0)


QueueKey = tuple[Kind, str, int]
"""Kind, topic and queue id."""

_FAR = 1 << 62  # a physical offset that no log reaches


class KnownQueues:
    """What the recovery of the queues of a table has found, by their index in it; nothing at first."""

    def __init__(self, table: QueueTable) -> None:
        self.table = table
        self.written = np.zeros(len(table), np.int64)
        """Units in the last file of the usual queues, 0 of others."""
        self.highest = np.zeros(len(table), np.int64)
        """Their greatest physical offsets."""
        self.lasts = np.zeros(len(table), f"V{UNIT_SIZE}")
        """Their last units."""
        self.others: dict[int, RecoveredQueue] = {}
        self._cut: dict[Queue, RecoveredQueue] = {}

    def add(self, index: int, found: RecoveredQueue) -> None:
        """Add what became of one queue with all of its files."""
        is_usual = found.queue.kind == "simple" and not found.deleted and found.last_unit and found.highest < _FAR
        if is_usual and wrote(found):
            self.written[index], self.highest[index], self.lasts[index] = found.written, found.highest, found.last_unit
        else:
            self.others[index] = found

    def of(self, loaded: Loaded, reading: ReadPolicy) -> RecoveredQueues:
        """The queues that a start has loaded; those that are not known yet are recovered. Raises UnreadableError."""
        cut: dict[int, RecoveredQueue] = {}
        with closing(OpenFiles(reading)) as open_files:
            for index, queue in loaded.with_fewer_files.items():
                if queue not in self._cut:
                    self._cut[queue] = recover_queue(queue, UnitFiles(queue, open_files))
                cut[index] = self._cut[queue]
            unknown = np.flatnonzero(self.written[: loaded.queue_count] == 0).tolist()
            for index in sorted({*unknown} - self.others.keys() - cut.keys()):
                queue = self.table[index]
                self.add(index, recover_queue(queue, UnitFiles(queue, open_files)))
        return RecoveredQueues(self, loaded.queue_count, cut)

    def recovered(self, index: int) -> RecoveredQueue:
        """One usual queue."""
        queue, written, highest = self.table[index], int(self.written[index]), int(self.highest[index])
        return RecoveredQueue(queue, queue.files.files, (), written, self.lasts[index].tobytes(), highest)


class RecoveredQueues:
    """The queues that a start has loaded, as their own recovery leaves them; of two directories of one the last."""

    def __init__(self, known: KnownQueues, count: int, cut: dict[int, RecoveredQueue]) -> None:
        """`count` are the first of the table, `cut` those with fewer files than are there, by index."""
        self._known = known
        self._table = known.table
        self._usual = known.written > 0
        self._usual[count:] = False
        self._usual[[*cut]] = False
        self._others = {index: each for index, each in known.others.items() if index < count} | cut
        for index in self._table.repeated:
            self._usual[index] = False
            self._others.pop(index, None)
        self._cut = cut

    def get(self, key: QueueKey) -> RecoveredQueue | None:
        """One of them by its key."""
        index = self._table.index_of(*key)
        if index is None:
            return None
        return self._known.recovered(index) if self._usual[index] else self._others.get(index)

    def keys(self) -> Iterator[QueueKey]:
        """The keys of all."""
        return self._keys([*np.flatnonzero(self._usual).tolist(), *self._others])

    def on_disk(self, key: QueueKey) -> Queue | None:
        """One of them with all of its files."""
        index = self._table.index_of(*key)
        return None if index is None or not (self._usual[index] or index in self._others) else self._table[index]

    def with_fewer_files(self) -> Iterator[QueueKey]:
        """Those that have lost files before they were recovered."""
        return self._keys(index for index in self._others if index in self._cut)

    def deleting(self) -> Iterator[QueueKey]:
        """Those of which their own recovery deletes files."""
        return self._keys(index for index, each in self._others.items() if each.deleted)

    def without_unit(self) -> Iterator[QueueKey]:
        """Those that have files, and no unit in the last one."""
        return self._keys(index for index, each in self._others.items() if each.files and not wrote(each))

    def reaching(self, physical_offset: int) -> Iterator[QueueKey]:
        """Those that point to `physical_offset` or after it, or whose last file holds no unit."""
        far = self._usual & (self._known.highest >= min(physical_offset, _FAR))
        others = (index for index, each in self._others.items() if not wrote(each) or each.highest >= physical_offset)
        return self._keys([*np.flatnonzero(far).tolist(), *others])

    def _keys(self, indices: Iterator[int] | list[int]) -> Iterator[QueueKey]:
        return map(self._table.key, sorted(indices))

    @property
    def topics(self) -> set[str]:
        """The topics of all."""
        return {topic for _, topic, _ in self.keys()}

    def max_physical(self, rules: RecoveryRules, but: Collection[QueueKey] = ()) -> int:
        """`getMaxPhyOffsetInConsumeQueue`: the greatest of all `but` some; -1 without one."""
        usual, left_out = self._usual.copy(), {self._table.index_of(*key) for key in but}
        usual[[index for index in left_out if index is not None]] = False
        ends = [max_physical(each.last, each.queue.kind, rules)
                for index, each in self._others.items() if index not in left_out]  # fmt: skip
        lasts = self._known.lasts[usual].view(UNIT_DTYPE)
        ends_of_usual: NDArray[np.int64] = lasts["physical_offset"].astype(np.int64)
        if rules.queues_remember_ends:
            ends_of_usual += lasts["message_size"]
        return max([*ends, int(ends_of_usual.max(initial=-1))])
