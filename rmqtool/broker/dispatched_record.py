"""Single records, read from the log by physical offset and dispatched again, to judge a unit that points to them.

They also show whether index files are those of another log, as after a wrong restore: these prove nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatched, Dispatcher, IndexKeys
from rmqtool.formats.index_file import UNIT_DTYPE, UNIT_SIZE, unit_position
from rmqtool.formats.layout import decode_units
from rmqtool.formats.message import format_host
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import VALUES_MAY_HOLD_SEPARATOR, release_before
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.single_record import (
    Oversized,
    oversized_record_at,
    record_at,
    record_with_wrong_magic_code,
    single_record_at,
)
from rmqtool.store.commit_log import log_start
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.snapshot import Snapshot

_OLDER = release_before(VALUES_MAY_HOLD_SEPARATOR)


class Lookups:
    """Answers about one record at a physical offset; without a None for unreadable they raise UnreadableError."""

    def __init__(self, files: Sequence[MappedFile], dispatcher: Dispatcher) -> None:
        """`files` are those of the commit log; `dispatcher` derives units and keys by the rules of the store."""
        self._files = files
        self._dispatcher = dispatcher
        self._older: Dispatcher | None = None  # by the rules before values could hold the separator
        if dispatcher.rules.may_be_older and not dispatcher.rules.drops_values_with_separator:
            self._older = Dispatcher(replace(dispatcher.rules, version=_OLDER), dispatcher.batch_topics)
        self._last: dict[int, tuple[int, Dispatched | None]] = {}  # by dispatcher: units of a message follow each other
        self._last_wrong: tuple[int, Dispatched | None] = (-1, None)
        self._last_oversized: tuple[int, OversizedRecord | None] = (-1, None)

    def queues_of(self, physical_offset: int) -> dict[QueueName, int] | None:
        """The queues of the record at an offset, its own first, and its queue offset in each; empty without a record.

        Queues to which only an older release dispatches it are included. None where the file cannot be read: a running
        broker deletes files.
        """
        try:
            frames = record_at(self._files, physical_offset)
        except UnreadableError:
            return None
        if frames is None:
            return {}
        dispatched = self._dispatcher.dispatch(frames)
        derived = [units for units in (dispatched.units, dispatched.optional_units) if units is not None]
        return {
            self._dispatcher.queues[queue]: offset
            for units in derived
            for queue, offset in zip(units.queues.tolist(), units.queue_offsets.tolist(), strict=True)
        }

    def queue(self, number: int) -> QueueName:
        """The queue of a number in what was dispatched."""
        return self._dispatcher.queues[number]

    def has_older_tags_code(self, physical_offset: int, tags_code: int) -> bool:
        """Whether an older release may have derived a tags code from the record at an offset."""
        derived = self._by_older(physical_offset)
        return derived is not None and tags_code in derived.units.tags_codes.tolist()

    def is_older_key(self, physical_offset: int, key_hash: int) -> bool:
        """Whether an older release may have put a key of the record at an offset into the index."""
        derived = self._by_older(physical_offset)
        return derived is not None and key_hash in derived.keys.key_hashes.tolist()

    def older_keys(self, records: RecordRun) -> IndexKeys | None:
        """The keys of records that an older release puts into the index; None where it puts all of them."""
        return None if self._older is None else self._older.dispatch(records).keys

    def _by_older(self, physical_offset: int) -> Dispatched | None:
        """What an older release derives from the record at an offset; None where none can be read."""
        if self._older is None:
            return None
        with suppress(UnreadableError):
            return self._derived(self._older, physical_offset)
        return None

    def _derived(self, dispatcher: Dispatcher, physical_offset: int) -> Dispatched | None:
        """What a dispatcher derives from the record at an offset; None where none begins."""
        offset, derived = self._last.get(id(dispatcher), (-1, None))
        if offset != physical_offset:
            frames = record_at(self._files, physical_offset)
            derived = None if frames is None else dispatcher.dispatch(frames)
            self._last[id(dispatcher)] = physical_offset, derived
        return derived

    def hashes_at(self, physical_offset: int) -> set[int] | None:
        """The hashes of the keys of the record at an offset; None when none begins there."""
        derived = self._derived(self._dispatcher, physical_offset)
        return None if derived is None else set(derived.keys.key_hashes.tolist())

    def with_wrong_magic_code(self, physical_offset: int) -> Dispatched | None:
        """What the record at an offset gives that is whole but for its magic code; None where none is."""
        if self._last_wrong[0] != physical_offset:
            found = None
            with suppress(UnreadableError):
                found = record_with_wrong_magic_code(self._files, physical_offset)
            self._last_wrong = physical_offset, None if found is None else self._dispatcher.dispatch(found)
        return self._last_wrong[1]

    def decoded_damage(
        self, physical_offset: int, place: tuple[QueueName, int], size: int, tags_code: int
    ) -> DecodedDamage | None:
        """What clients make of damage that a unit of so many bytes at a place leads to; None where they decode nothing.

        A pull gives as many bytes as the unit says: it is no whole message where the record says another size.
        """
        if found := self.with_wrong_magic_code(physical_offset):
            return DecodedDamage(physical_offset, True, False) if self._leads_to(found, place, size) else None
        with suppress(UnreadableError):
            oversized = self.oversized(physical_offset)
            is_light = place[0].topic.startswith(LMQ_PREFIX)  # a property names it, which may be cut off
            if oversized and oversized.size == size and (is_light or self._leads_to(oversized.decoded, place)):
                loses_tag = tags_code != 0 and tags_code not in oversized.decoded.units.tags_hashes.tolist()
                return DecodedDamage(physical_offset, False, loses_tag)
        return None

    def _leads_to(self, found: Dispatched, place: tuple[QueueName, int], size: int | None = None) -> bool:
        return place in found.places and (size is None or size in found.units.message_sizes.tolist())

    def keys_of_hash(self, physical_offset: int, key_hash: int) -> int:
        """How many keys, other than its tags, with which queries find a record at an offset have a hash."""
        with suppress(UnreadableError):
            derived = self._derived(self._dispatcher, physical_offset)
            if derived is None and (oversized := self.oversized(physical_offset)):
                derived = oversized.decoded
            return 0 if derived is None else derived.keys.hashes_without_tags.count(key_hash)
        return 0

    def oversized(self, physical_offset: int) -> OversizedRecord | None:
        """What a record gives that says a larger size than its lengths; None for others. Raises UnreadableError.

        A query reads as many bytes as the record says, a pull as many as the queue entry says, and clients decode it
        from its first byte on.
        """
        if self._last_oversized[0] != physical_offset:
            found = oversized_record_at(self._files, physical_offset)
            self._last_oversized = physical_offset, found and OversizedRecord.of(self._dispatcher, found)
        return self._last_oversized[1]

    def begins_at(self, physical_offset: int) -> bool | None:
        """Whether a record begins at an offset; None where the file cannot be read."""
        try:
            return single_record_at(self._files, physical_offset) is not None
        except UnreadableError:
            return None

    def store_timestamp_at(self, physical_offset: int) -> int | None:
        """When the record at an offset was stored, epoch ms; None when none can be read there."""
        try:
            record = single_record_at(self._files, physical_offset)
        except UnreadableError:
            return None
        return None if record is None else record.number("store_timestamp")

    def time_and_host_at(self, physical_offset: int) -> tuple[int, str] | None:
        """When the record at an offset was stored, epoch ms, and by which host; None when none begins there."""
        record = single_record_at(self._files, physical_offset)
        return None if record is None else (record.number("store_timestamp"), format_host(record.store_host))


class DecodedDamage(NamedTuple):
    """Damage at a physical offset that clients decode as the message of a queue entry: it may have lost its tag.

    Where it `has_wrong_magic` only older releases do; else only some of its properties are lost.
    """

    physical_offset: int
    has_wrong_magic: bool
    loses_tag: bool


class OversizedRecord(NamedTuple):
    """What clients get of a record that says a larger size than its lengths, and this size.

    `keys` are the hashes of its keys, without tags; `keys_lost` others, of properties that its lengths do not reach.
    """

    decoded: Dispatched
    size: int
    keys: Set[int]
    keys_lost: Set[int]

    @classmethod
    def of(cls, dispatcher: Dispatcher, found: Oversized) -> OversizedRecord:
        """By the rules of a dispatcher."""
        decoded = dispatcher.dispatch(found.record)
        keys = {*decoded.keys.hashes_without_tags}
        whole = {*dispatcher.dispatch(found.whole).keys.hashes_without_tags} if found.whole else set[int]()
        return cls(decoded, found.size, keys, whole - keys)


_TRIED = 32  # units of a file, the first and the last ones among them
_MOST_READ = 1 << 16  # units


def index_of_another_log(snapshot: Snapshot) -> frozenset[Path]:
    """The index files that lead past the end of the log and are of another one; they are looked for once.

    None of their units leads to a message with its key, and either such a unit leads to a message with other keys, or
    the newest message of the file is older than the first one of this log.
    """
    if index_of_another_log not in snapshot.kept:
        snapshot.kept[index_of_another_log] = _of_another_log(snapshot)
    found: frozenset[Path] = snapshot.kept[index_of_another_log]
    return found


def _of_another_log(snapshot: Snapshot) -> frozenset[Path]:
    files = snapshot.log.files
    try:
        log_range = snapshot.log_range
    except UnreadableError:
        return frozenset()  # of a log that cannot be read nothing shows it
    end, first_time = log_range.max_offset, log_range.first_store_timestamp
    beyond = [each for each in snapshot.index_geometries if each[0].keys and each[0].end_physical_offset >= end]
    if not files or first_time is None or not beyond:
        return frozenset()
    rules = DispatchRules.of_snapshot(snapshot)
    lookups = Lookups(files, Dispatcher(rules, snapshot.topics.with_batch_queues))
    start = log_start(files)
    found: set[Path] = set()
    for file, geometry in snapshot.index_geometries:
        if not file.keys or geometry is None:
            continue
        hits, contradictions = _tried(file, geometry, (start, end), lookups)
        is_older = file.end_timestamp < first_time and file.end_physical_offset >= start
        # Without a unit that leads into this log a file is of the log whose index goes on in it.
        goes_on = file.begin_physical_offset >= end and bool(found)
        if not hits and (contradictions or is_older or goes_on):
            found.add(file.path)
        elif hits:
            found.clear()  # what follows goes on from here
    return frozenset(found & {file.path for file, _ in beyond})


def _tried(file: IndexFile, geometry: Geometry, within: tuple[int, int], lookups: Lookups) -> tuple[int, int]:
    """How many tried units lead to a message with their key, and how many to a message with other keys."""
    with InputFile(file.path) as opened:
        data = opened.read(unit_position(geometry.slots, 1), min(file.keys, _MOST_READ) * UNIT_SIZE)
    units = decode_units(UNIT_DTYPE, data[: len(data) // UNIT_SIZE * UNIT_SIZE])
    inside = np.flatnonzero((units["physical_offset"] >= within[0]) & (units["physical_offset"] < within[1]))
    hits = contradictions = 0
    for row in _spread(inside):
        try:
            hashes = lookups.hashes_at(int(units["physical_offset"][row]))
        except UnreadableError:
            return 1, 0  # who knows what is there
        hits += hashes is not None and int(units["key_hash"][row]) in hashes
        contradictions += hashes is not None and int(units["key_hash"][row]) not in hashes
    return hits, contradictions


def _spread(rows: NDArray[np.intp]) -> list[int]:
    """Some of the rows, spread evenly."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, _TRIED).astype(int))].tolist() if len(rows) else []
