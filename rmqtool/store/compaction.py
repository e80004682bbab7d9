"""Compacted queues: the log and the queue of a topic with ``cleanup.policy=COMPACTION`` (`CompactionLog`).

Each file of the log has a file of units with the same name. The log is a copy, of which a compaction leaves the newest
messages of each key: what it holds has the queue offsets of the commit log, but other physical offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files, read_at
from rmqtool.base.paths import entry_path
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, is_batch_written
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE
from rmqtool.formats.properties import KEYS, TAGS
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.frames import RecordRun, crcs_of
from rmqtool.scan.properties import read_properties
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import record_at
from rmqtool.store.config_json import load_config
from rmqtool.store.consume_queues import Queue
from rmqtool.store.paths import COMPACTION, COMPACTION_CHECKPOINT, COMPACTION_LOG, COMPACTION_QUEUE
from rmqtool.store.queue_units import LoadedQueue, QueueFile, QueueRange, Unit
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.store.tiered import are_of
from rmqtool.store.unit_files import count_leading

LOG_FILE_SIZE, QUEUE_FILE_SIZE = "compactionMappedFileSize", "compactionCqMappedFileSize"
DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE = 104_857_600, 10_485_760
WORKING = ("compacting", "replicating")
"""Directories of a queue in which a compaction, or a new slave, writes; a start passes over them."""

DELETED = ".delete"
"""The end of the names of files that a compaction is about to replace."""

END_MARK = np.array([(-1, 0, 0, 0, 0, 0, -1, 0)], BATCH_UNIT_DTYPE).tobytes()
"""The unit after the last one of a file that was filled (`SparseConsumeQueue#putEndPositionInfo`)."""

_PLACE = position_of(PREFIX_DTYPE, "physical_offset")
_FEWEST_QUEUES = 5  # a log file is at least so many times as large as a file of units


@dataclass(frozen=True)
class CompactedQueue:
    """The files of one queue; `log` and `units` have the same names where nothing is wrong."""

    topic: str
    queue_id: int
    log: MappedFiles
    units: MappedFiles
    root: Path

    @property
    def log_directory(self) -> Path:
        """Where the log is."""
        return directory_of(self.root, COMPACTION_LOG, self.topic, self.queue_id)

    @property
    def units_directory(self) -> Path:
        """Where the units are."""
        return directory_of(self.root, COMPACTION_QUEUE, self.topic, self.queue_id)

    @property
    def pairs(self) -> Iterator[tuple[MappedFile, MappedFile | None]]:
        """Each file of the log with that of its units."""
        by_start = {file.start_offset: file for file in self.units.files}
        yield from ((file, by_start.get(file.start_offset)) for file in self.log.files)


def directory_of(root: Path, base: str, topic: str, queue_id: int) -> Path:
    """The directory of a queue in one of the two trees."""
    return root / COMPACTION / base / topic / str(queue_id)


def list_compacted(store: Store) -> tuple[list[CompactedQueue], list[Path]]:
    """The queues of the log's tree by topic and queue id, and directories there whose name is no queue id."""
    queues, strays = list[CompactedQueue](), list[Path]()
    with skip_wrong_type():
        for topic in sorted(list_directory(store.root / COMPACTION / COMPACTION_LOG), key=lambda each: each.name):
            for entry in list_directory(entry_path(topic)) if topic.is_dir() else ():
                if not entry.is_dir():
                    continue
                if entry.name.isascii() and entry.name.isdecimal():
                    queues.append(compacted_queue(store, topic.name, int(entry.name)))
                else:
                    strays.append(entry_path(entry))
    return sorted(queues, key=lambda each: (each.topic, each.queue_id)), strays


def compacted_queue(store: Store, topic: str, queue_id: int) -> CompactedQueue:
    """One queue, whether or not it has a file."""
    log, units = (
        list_mapped_files(directory_of(store.root, base, topic, queue_id), scope=skip_wrong_type)
        for base in (COMPACTION_LOG, COMPACTION_QUEUE)
    )
    return CompactedQueue(topic, queue_id, log, units, store.root)


def is_compaction_on(store: Store) -> bool:
    """Whether a broker reads and writes compacted queues."""
    return store.conf.is_on("enableCompaction", default=True)


def compaction_positions(store: Store) -> dict[tuple[str, int], int]:
    """By topic and queue id the greatest queue offset that a compaction has looked at (`CompactionPositionMgr`)."""
    table = load_config(store.root / COMPACTION / COMPACTION_CHECKPOINT).content.get("queueOffsetMap")
    positions = {}
    for name, offset in table.items() if isinstance(table, dict) else ():
        topic, _, queue_id = str(name).rpartition("_")
        if queue_id.isdecimal() and type(offset) is int:
            positions[topic, int(queue_id)] = offset
    return positions


def file_sizes(store: Store, queues: list[CompactedQueue]) -> tuple[int, int]:
    """The sizes of a file of the log and of one of units, bytes, as configured, or as most of the files have.

    0 where nothing shows it (`CompactionStore`, `#getCompactionLogSize`).
    """
    conf = store.conf
    if conf.decides(QUEUE_FILE_SIZE) or conf.decides(LOG_FILE_SIZE):
        units = (conf.size(QUEUE_FILE_SIZE) or DEFAULT_QUEUE_FILE_SIZE) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
        return _log_file_size(units, conf.size(LOG_FILE_SIZE) or DEFAULT_LOG_FILE_SIZE), units
    log = MappedFiles(tuple(file for queue in queues for file in queue.log.files)).file_size
    units = MappedFiles(tuple(file for queue in queues for file in queue.units.files)).file_size
    if log and not units and log == _log_file_size(_DEFAULT_UNITS, DEFAULT_LOG_FILE_SIZE):
        units = _DEFAULT_UNITS
    return log, units


_DEFAULT_UNITS = DEFAULT_QUEUE_FILE_SIZE // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE


def _log_file_size(units: int, configured: int) -> int:
    """`CompactionStore#getCompactionLogSize`: a multiple of the size of a file of units."""
    count, rest = divmod(configured, units)
    if count < _FEWEST_QUEUES:
        return _FEWEST_QUEUES * units
    return count * units if 0 < rest < units // 2 else (count + 1) * units


@dataclass(frozen=True)
class LogRecords:
    """What one file of a compacted log holds.

    `units` are those that a broker has for its records, `keys` their KEYS. `damages` are where no record is that can
    be decoded, `compressed_wrongly` those of the records whose compressed body is damaged, `foreign` those of another
    topic or queue.
    """

    units: NDArray[np.void]
    keys: pa.StringArray
    body_sizes: NDArray[np.int64]
    damages: tuple[Damage, ...]
    wrong: NDArray[np.bool_]  # with a damaged body, or contradicted
    compressed: NDArray[np.bool_]
    foreign: NDArray[np.bool_]
    digests: NDArray[np.uint64]  # of each record but its place
    is_ended: bool
    end: int
    contradicted: NDArray[np.bool_]  # by their units, which are right, or by what was made of the message
    differing: Sequence[int] = ()  # rows that differ from the commit log, where nothing shows which copy is right

    @property
    def to_mend(self) -> list[tuple[int, int]]:
        """Where damage begins and ends, bytes in the log: also the records that are wrong."""
        wrong = self.units[self.wrong]
        starts, ends = wrong["physical_offset"], wrong["physical_offset"] + wrong["message_size"]
        damages = [(each.physical_offset, each.physical_offset + each.size) for each in self.damages]
        return [*damages, *zip(starts.tolist(), ends.tolist(), strict=True)]

    @cached_property
    def built(self) -> bytes:
        """The units as a broker writes them, with the mark after those of a file that was filled."""
        return self.units.tobytes() + (END_MARK if self.is_ended else b"")


_COMPRESSED = 1  # MessageSysFlag.COMPRESSED_FLAG


def read_records(queue: CompactedQueue, file: MappedFile, reading: ReadPolicy = UNLIMITED) -> LogRecords:
    """The records of one file; raises UnreadableError."""
    units, keys, damages = [np.zeros(0, BATCH_UNIT_DTYPE)], list[pa.Array](), list[Damage]()
    masks: list[NDArray[np.bool_]] = [np.zeros((3, 0), np.bool_)]
    bodies, digests = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    is_ended, end = False, file.start_offset
    for event in scan_files([file], reading=reading):
        if isinstance(event, RecordRun):
            properties = read_properties(event)
            units.append(batch_units(event, properties.column(TAGS.encode())))
            keys.append(properties.column(KEYS.encode()))
            bodies.append(event.body_sizes.astype(np.int64))
            digests.append(digests_of(event))
            is_own = are_of(event, queue.topic, queue.queue_id)
            is_compressed = (event.headers.field("sys_flag") & _COMPRESSED) != 0
            masks.append(np.stack([event.wrong_bodies, is_compressed, ~is_own]))
        elif isinstance(event, Damage):
            damages.append(event)
        else:
            is_ended = True
        end = event.physical_offset + (event.size if isinstance(event, RecordRun | Blank) else 0)
    wrong, compressed, foreign = np.concatenate(masks, axis=1)
    all_keys = pa.concat_arrays(keys) if keys else pa.array([], pa.string())
    return LogRecords(joined(units), all_keys, np.concatenate(bodies), tuple(damages), wrong, compressed,
                      foreign, np.concatenate(digests), is_ended, end, np.zeros(len(wrong), np.bool_))  # fmt: skip


def digests_of(run: RecordRun) -> NDArray[np.uint64]:
    """The CRCs of what is before and after the physical offset in each record: copies of a message have the same."""
    before, after = np.full(len(run), _PLACE, np.intp), run.message_sizes - (_PLACE + 8)
    heads = crcs_of(run.block, run.positions, before).astype(np.uint64)
    return (heads << np.uint64(32)) | crcs_of(run.block, run.positions + _PLACE + 8, after)


def batch_units(run: RecordRun, tags: pa.StringArray) -> NDArray[np.void]:
    """The units of a run of records (`SparseConsumeQueue#putBatchMessagePositionInfo`)."""
    units = np.zeros(len(run), BATCH_UNIT_DTYPE)
    units["physical_offset"], units["message_size"] = run.physical_offsets, run.message_sizes
    encoded = tags.dictionary_encode()
    hashes = np.array([string_hash(tag) for tag in encoded.dictionary.to_pylist()] + [0], np.int64)
    units["tags_code"] = hashes[np.asarray(encoded.indices.fill_null(len(hashes) - 1))]
    units["store_timestamp"] = run.headers.field("store_timestamp")
    units["base_queue_offset"] = run.headers.field("queue_offset")
    units["batch_size"], units["compacted_offset"] = 1, -1
    return units


def joined(units: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Units one after the other, as they are stored: NumPy would give them in the order of bytes of this machine."""
    return np.frombuffer(b"".join(each.tobytes() for each in units), BATCH_UNIT_DTYPE)


def stored_units(file: MappedFile, reading: ReadPolicy = UNLIMITED) -> NDArray[np.void]:
    """All units of a file, written or not."""
    with InputFile(file.path, reading) as opened:
        data = opened.read(0, file.size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE)
    return np.frombuffer(data, BATCH_UNIT_DTYPE)


def whole_copies(
    snapshot: Snapshot, queue: CompactedQueue, units: NDArray[np.void], damages: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """The records of the commit log that belong where `damages` are, each with where it begins in the compacted log.

    `damages` are offsets in that log, where they begin and end; `units` lead there, and say which messages stood there.
    """
    own = units[is_batch_written(units)]
    places = own["physical_offset"]
    for start, stop in damages:
        there = own[(places >= start) & (places < stop)]
        yield from copies_for(snapshot, queue.topic, queue.queue_id, there["base_queue_offset"], there)


def copies_for(
    snapshot: Snapshot, topic: str, queue_id: int, queue_offsets: NDArray[np.int64], units: NDArray[np.void]
) -> Iterator[tuple[int, bytes]]:
    """The whole messages that the commit log has at some queue offsets, each with its place in another log.

    `units` lead to them there, and say how large they are; a message gets its place.
    """
    loaded = snapshot.queue(topic, queue_id)
    for queue_offset, unit in zip(queue_offsets.tolist(), units, strict=True) if loaded else ():
        plain = loaded.unit_at(queue_offset) if loaded and queue_offset < loaded.range.max_offset else None
        record = record_at(snapshot.log.files, plain.physical_offset) if plain else None
        if record is None or plain is None or record.wrong_bodies[0]:
            continue
        fields = [int(record.headers.field(name)[0]) for name in ("message_size", "queue_id", "queue_offset")]
        place = int(unit["physical_offset"])
        if place < 0 or fields != [int(unit["message_size"]), queue_id, queue_offset]:
            continue
        yield place, at_place(read_at(snapshot.log.files, plain.physical_offset, plain.message_size), place)


def at_place(record: bytes, physical_offset: int) -> bytes:
    """The bytes of a record as it has them at a physical offset."""
    return record[:_PLACE] + physical_offset.to_bytes(8, "big") + record[_PLACE + 8 :]


class CompactedFiles(LoadedQueue):
    """The units of a compacted queue that a start keeps, which are found by queue offset though some are missing."""

    def __init__(self, queue: CompactedQueue) -> None:
        super().__init__(Queue(queue.topic, queue.queue_id, "batch", queue.units), QueueRange(-1, 0))
        filled = [file for file in self.files if file.count]
        if filled and filled[0].first and filled[-1].last:
            first, last = filled[0].first, filled[-1].last
            self.range = QueueRange(first.queue_offset, last.queue_offset + 1, last.physical_offset)

    @cached_property
    def files(self) -> list[QueueFile]:
        """All files with their units before the first that is not written (`SparseConsumeQueue#recover`)."""
        stored = ((file, stored_units(file)) for file in self.queue.files.files)
        return [QueueFile(self.queue, file, count_leading(is_batch_written(units))) for file, units in stored]

    def units_from(self, queue_offset: int, count: int | None = None) -> Iterator[Unit] | None:
        """The units from the first at or after `queue_offset` to the end of its file (`#iterateFromOrNext`)."""
        for file in self.files:
            if file.last is not None and file.last.queue_offset >= queue_offset:
                offsets = stored_units(file.mapped)["base_queue_offset"][: file.count]
                return file.units(int(np.searchsorted(offsets, queue_offset)), count)
        return None


def leftovers(store: Store) -> Iterator[Path]:
    """What an interrupted compaction has left in the directories of queues: ``compacting``, ``replicating``."""
    for base in (COMPACTION_LOG, COMPACTION_QUEUE):
        for directory in _queue_directories(store.root / COMPACTION / base):
            yield from (path for name in WORKING if (path := directory / name).is_dir())


def _queue_directories(base: Path) -> Iterator[Path]:
    try:
        topics = [entry_path(entry) for entry in list_directory(base) if entry.is_dir()]
        for topic in topics:
            yield from (entry_path(entry) for entry in list_directory(topic) if entry.is_dir())
    except RmqtoolError:
        return


def replaced_names(queue: CompactedQueue) -> tuple[list[str], list[str]]:
    """The names of files ``.delete`` of log and units: a compaction was about to replace them."""
    return tuple(  # type: ignore[return-value]
        sorted(path.name for stray in files.strays if (path := stray.path).name.endswith(DELETED)
               and start_offset_of(path.name.removesuffix(DELETED)) is not None)
        for files in (queue.log, queue.units)
    )  # fmt: skip
