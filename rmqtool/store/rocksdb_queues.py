"""The database of consume queues in RocksDB (`RocksDBConsumeQueueStore`): which there are, their ends, their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_rows import QUEUE_UNIT_DTYPE, Row, bound_key, queue_bound, queue_prefix, queue_unit
from rmqtool.store.lock import has_abort
from rmqtool.store.rocksdb import Databases, RocksDb
from rmqtool.store.store import CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, Store, is_rocksdb_directory

_UNITS, _ENDS = "default", "offset"  # column families
_MAX_OFFSET = (1 << 63) - 1
_OFFSET_SIZE = 8
_FEW_QUEUES = 64  # whose ends are read by themselves; for more, those of all queues are read at once
_LENGTH_SIZE = 4  # of a topic's length, with which each key begins
_BEHIND_ALL = b"\xff" * 5  # keys

QueueKey = tuple[str, int]
"""Topic and queue id."""


class LastUnit(NamedTuple):
    """The last unit of a queue by its `max` row, or the first by its `min` row; -1 as the last means an empty queue."""

    queue_offset: int
    physical_offset: int

    def begins_behind(self, queue_offset: int, log_min_offset: int) -> bool:
        """Whether its queue begins after an offset by it, a `min` row, which counts unless it leads below the log."""
        return self.physical_offset >= log_min_offset and self.queue_offset > queue_offset


NO_UNIT = LastUnit(-1, -1)


class BadRow(NamedTuple):
    """A row of another form than the rows of its family have."""

    key: bytes
    why: str


class Rows(NamedTuple):
    """Rows of one queue: their queue offsets, ascending, and their values, `QUEUE_UNIT_DTYPE`."""

    offsets: NDArray[np.int64]
    values: NDArray[np.void]


class QueueDatabase:
    """The consume queues of one database, which is opened when it is first read, and closed with its last user."""

    def __init__(self, path: Path, databases: Databases | None = None) -> None:
        """`path` is the database, one of the `databases` that are opened once."""
        self.path = path
        self._databases = Databases() if databases is None else databases
        self.bad_units: set[bytes] = set()  # keys of rows among the units that are of another form
        self._error: RmqtoolError | None = None
        self._checked: RocksDb | None = None
        self._asked = 0

    @property
    def rows(self) -> RocksDb:
        """The database; raises UnreadableError, or UnsupportedError without its library."""
        if self._error:
            raise self._error
        try:
            database = self._databases.opened(self.path)
            if database is not self._checked:
                database.check_families((_UNITS, _ENDS))
                self._require_tables(database)
                self._checked = database
        except RmqtoolError as error:
            self._error = error  # which each queue meets
            raise
        return database

    def _require_tables(self, database: RocksDb) -> None:
        """Raise UnreadableError where tables are left over since the MANIFEST has lost its end.

        A broker that is killed leaves some over, too, and all rows are there.
        """
        is_killed = has_abort(self.path.parent)
        if database.left_over and not is_killed and (not database.has_tables or database.manifest_is_cut()):
            database.check_tables()

    def close(self) -> None:
        """Close the database, and those that were opened with it; it is opened again when it is read again."""
        self._databases.close()

    @cached_property
    def _offset_rows(self) -> tuple[dict[str, dict[QueueKey, LastUnit]], int | None, list[BadRow]]:
        bounds: dict[str, dict[QueueKey, LastUnit]] = {"max": {}, "min": {}}
        dispatched, bad = None, []
        names: dict[QueueKey, QueueKey] = {}  # one name for both rows of a queue, one topic for all of its queues
        topics: dict[str, str] = {}
        keys, values = self.rows.some_rows(_ENDS, b"", _BEHIND_ALL, _MAX_OFFSET)
        self.rows.check_count(_ENDS, len(keys))
        for key, value in zip(keys, values, strict=True):
            try:
                row = queue_bound(key, value)
            except FormatError as error:
                bad.append(BadRow(key, str(error)))
                continue
            if row.kind == "dispatched-end":
                dispatched = row.fields["dispatched_end"]
            else:
                bound = LastUnit(row.fields["queue_offset"], row.fields["physical_offset"])
                name = topics.setdefault(row.key["topic"], row.key["topic"]), row.key["queue_id"]
                bounds[row.key["bound"]][names.setdefault(name, name)] = bound
        return bounds, dispatched, bad

    @property
    def lasts(self) -> Mapping[QueueKey, LastUnit]:
        """The last unit of each queue that has a `max` row, in the order of the keys."""
        return self._offset_rows[0]["max"]

    def last_of(self, queue: QueueKey) -> LastUnit | None:
        """The last unit of a queue, None without a `max` row; no row of another queue is read for it."""
        return self._bound_of(queue, "max")

    def first_of(self, queue: QueueKey) -> LastUnit | None:
        """The first unit of a queue by its `min` row, None without one; no row of another queue is read for it."""
        return self._bound_of(queue, "min")

    def _bound_of(self, queue: QueueKey, bound: str) -> LastUnit | None:
        self._asked += 1
        if self._asked > _FEW_QUEUES or "_offset_rows" in self.__dict__:
            return self._offset_rows[0][bound].get(queue)
        key = bound_key(queue[0].encode(), queue[1], bound.encode())
        keys, values = self.rows.some_rows(_ENDS, key, key + b"\0", 1)
        with suppress(FormatError):  # verify reports such a row
            for row in map(queue_bound, keys, values):
                if row.kind != "dispatched-end":
                    return LastUnit(row.fields["queue_offset"], row.fields["physical_offset"])
        return None

    def has_topics(self, prefix: str) -> bool:
        """Whether the topic of some queue with an end begins with `prefix`.

        Keys are in the order of the topics' lengths: one or two rows are read of each length.
        """
        start = b""
        while keys := self.rows.some_rows(_ENDS, start, _BEHIND_ALL, 1)[0]:
            begin = keys[0][:_LENGTH_SIZE] + b"\x01" + prefix.encode()
            if self.rows.some_rows(_ENDS, begin, begin + b"\xff", 1)[0]:
                return True
            start = (int.from_bytes(keys[0][:_LENGTH_SIZE], "big") + 1).to_bytes(_LENGTH_SIZE, "big")
        return False

    @property
    def dispatched_end(self) -> int | None:
        """Physical offset after the last record that was dispatched, by CHECKPOINT_TOPIC; None without the row."""
        return self._offset_rows[1]

    def bad_rows(self) -> Iterator[BadRow]:
        """Rows of another form than they must have."""
        yield from self._offset_rows[2]
        for key, row in self._first_rows():
            if isinstance(row, str):
                yield BadRow(key, row)

    def with_rows(self) -> set[QueueKey]:
        """The queues of which there is a row, whether or not they have an end."""
        return {(row.key["topic"], row.key["queue_id"]) for _, row in self._first_rows() if isinstance(row, Row)}

    def _first_rows(self) -> Iterator[tuple[bytes, Row | str]]:
        """The first row of each queue, and each row of no queue with the reason; the others are not read."""
        start = b""
        while True:
            keys, values = self.rows.some_rows(_UNITS, start, _BEHIND_ALL, 1)
            if not keys:
                return
            try:
                row = queue_unit(keys[0], values[0])
                yield keys[0], row
                start = keys[0][:-_OFFSET_SIZE] + b"\xff" * (_OFFSET_SIZE + 1)
            except FormatError as error:
                yield keys[0], str(error)
                start = keys[0] + b"\0"

    def holds(self, queue: QueueKey) -> bool:
        """Whether a queue has an end or a row."""
        return self.last_of(queue) is not None or self._unit_from(queue, 0, _MAX_OFFSET) is not None

    def first_live(self, queue: QueueKey, log_min_offset: int) -> int:
        """The queue offset of the first unit at or after `log_min_offset`; after the last one where there is none.

        Rows of deleted messages stay until a compaction. What a broker takes for the minimum may lie after that unit:
        `queue_units.rows_min_offset`.
        """
        end = (self.last_of(queue) or NO_UNIT).queue_offset + 1
        low, high = 0, end
        first = self._unit_from(queue, low, high)
        if first is None or first[1] >= log_min_offset:  # as in most queues
            return first[0] if first else high
        while low < high:
            middle = (low + high) // 2
            unit = self._unit_from(queue, middle, high)
            if unit is None or unit[1] >= log_min_offset:
                high = middle
            else:
                low = unit[0] + 1
        unit = self._unit_from(queue, low, end)
        return unit[0] if unit else end

    def rows_below(self, queue: QueueKey, log_min_offset: int, *, has_gaps: bool) -> int:
        """Rows of a queue that lead below `log_min_offset`; `has_gaps`: not every queue offset has a row."""
        first = self._unit_from(queue, 0, _MAX_OFFSET)
        if first is None or first[1] >= log_min_offset:
            return 0
        stop = self.first_live(queue, log_min_offset)
        return len(self.units(queue, first[0], stop).offsets) if has_gaps else stop - first[0]

    def physical_offset(self, queue: QueueKey, queue_offset: int) -> int | None:
        """The physical offset in the unit at a queue offset; None without a row."""
        unit = self._unit_from(queue, queue_offset, queue_offset + 1)
        return unit[1] if unit else None

    def _unit_from(self, queue: QueueKey, first: int, stop: int) -> tuple[int, int] | None:
        """The queue offset and physical offset of the first unit from `first` to before `stop`; None without one."""
        rows = self.units(queue, first, stop, most=1)
        return (int(rows.offsets[0]), int(rows.values["physical_offset"][0])) if len(rows.offsets) else None

    def units(self, queue: QueueKey, first: int, stop: int, most: int = _MAX_OFFSET) -> Rows:
        """At most `most` rows of a queue, of queue offsets from `first` to before `stop`; raises UnreadableError.

        Rows of another form are left out and kept in `bad_units`.
        """
        prefix = queue_prefix(queue[0].encode(), queue[1])
        keys, values = self.rows.some_rows(_UNITS, prefix + _offset_key(first), prefix + _offset_key(stop), most)
        key_size, value_size = len(prefix) + _OFFSET_SIZE, QUEUE_UNIT_DTYPE.itemsize
        all_keys, all_values = b"".join(keys), b"".join(values)
        if len(all_keys) != len(keys) * key_size or len(all_values) != len(values) * value_size:
            good = [len(key) == key_size and len(value) == value_size for key, value in zip(keys, values, strict=True)]
            self.bad_units.update(key for key, is_good in zip(keys, good, strict=True) if not is_good)
            all_keys, all_values = b"".join(compress(keys, good)), b"".join(compress(values, good))
        offsets = np.frombuffer(all_keys, np.uint8).reshape(-1, key_size)[:, -_OFFSET_SIZE:]
        return Rows(
            np.ascontiguousarray(offsets).view(">i8").ravel().astype(np.int64),
            np.frombuffer(all_values, QUEUE_UNIT_DTYPE),
        )


def queue_database(store: Store) -> Path | None:
    """The database of the consume queues, None without one."""
    places = (store.root / name for name in (SEPARATE_ROCKSDB_QUEUES, CONSUME_QUEUE))
    return next((path for path in places if is_rocksdb_directory(path)), None)


def _offset_key(queue_offset: int) -> bytes:
    return queue_offset.to_bytes(_OFFSET_SIZE, "big", signed=True)
