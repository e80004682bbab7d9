"""The consume queues of a store, and how their units are stored (`ConsumeQueue`, `BatchConsumeQueue`, in RocksDB)."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import itemgetter
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import list_directory, names_in
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files, made
from rmqtool.base.paths import DirectoryEntry, Place, entry_place
from rmqtool.base.tolerant import ReadScope
from rmqtool.formats import consume_queue
from rmqtool.formats.file_name import file_name
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store

Kind = Literal["simple", "batch"]

_QUEUE_ID = re.compile(r"\d{1,9}", re.ASCII)


class UnitFormat(NamedTuple):
    """How queues of one kind are stored: their directory in the store, and the broker's test for a written unit."""

    directory: str
    dtype: np.dtype[np.void]
    is_written: Callable[[NDArray[np.void]], NDArray[np.bool_]]


UNIT_FORMATS: dict[Kind, UnitFormat] = {
    "simple": UnitFormat(CONSUME_QUEUE, consume_queue.UNIT_DTYPE, consume_queue.is_written),
    "batch": UnitFormat(BATCH_CONSUME_QUEUE, consume_queue.BATCH_UNIT_DTYPE, consume_queue.is_batch_written),
}


@dataclass(slots=True)
class Queue:
    """One consume queue on disk: in files, or in a `database`, where units are those of a simple queue.

    Never changed, but not frozen: that would take four times as long for each of many queues.
    """

    topic: str
    queue_id: int
    kind: Kind
    files: MappedFiles
    database: QueueDatabase | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.topic, self.queue_id))  # for each of many queues, and again: not that of its files, too

    @property
    def format(self) -> UnitFormat:
        """How its units are stored."""
        return UNIT_FORMATS[self.kind]

    @property
    def unit_size(self) -> int:
        """Size of a unit, bytes."""
        return self.format.dtype.itemsize

    @property
    def shown_kind(self) -> str:
        """The kind, or that it is in RocksDB."""
        return "rocksdb" if self.database else self.kind


def queue_in(database: QueueDatabase, topic: str, queue_id: int) -> Queue:
    """A queue in RocksDB."""
    return Queue(topic, queue_id, "simple", MappedFiles(), database)


def list_queues(store: Store, scope: ReadScope = nullcontext) -> Iterator[Queue]:
    """All queues by topic and queue id; directories whose names are no number are skipped, as the broker does.

    Each directory and each file is read in a `scope` of its own.
    """
    for kind, units in UNIT_FORMATS.items():
        for topic in _directories_in(store.root / units.directory, scope):
            directories = _directories_in(entry_place(topic), scope)
            numbered = [(int(entry.name), entry) for entry in directories if _QUEUE_ID.fullmatch(entry.name)]
            for queue_id, entry in sorted(numbered, key=itemgetter(0)):
                yield Queue(topic.name, queue_id, kind, list_mapped_files(entry_place(entry), scope=scope))


def list_rocksdb_queues(database: QueueDatabase, scope: ReadScope = nullcontext) -> Iterator[Queue]:
    """All queues of a database that have a last unit, by topic and queue id; read in a `scope`."""
    names: list[tuple[str, int]] = []
    with scope():
        names += sorted(database.lasts)
    yield from (queue_in(database, *name) for name in names)


def topics_on_disk(store: Store, database: QueueDatabase | None) -> set[str]:
    """The topics that have a directory, or rows in a database."""
    names = (names_in(store.root / units.directory) for units in UNIT_FORMATS.values())
    return {*chain.from_iterable(names), *(topic for topic, _ in (database.lasts if database else ()))}


def queue_ids_of(store: Store, topic: str, database: QueueDatabase | None) -> list[int]:
    """The queue ids of one topic, whose directory alone is listed."""
    names = chain.from_iterable(names_in(store.root / units.directory / topic) for units in UNIT_FORMATS.values())
    found = {int(name) for name in names if _QUEUE_ID.fullmatch(name)}
    return sorted(found | {queue_id for each, queue_id in (database.lasts if database else ()) if each == topic})


def has_light_queues(store: Store, scope: ReadScope = nullcontext) -> bool:
    """Whether some topic's directory is one of light queues; the directory of all topics is read in a `scope`."""
    entries: list[DirectoryEntry] = []
    with scope():
        entries = list_directory(store.root / CONSUME_QUEUE)
    return any(entry.name.startswith(LMQ_PREFIX) for entry in entries)


def _directories_in(path: Place, scope: ReadScope) -> list[DirectoryEntry]:
    entries: Iterator[DirectoryEntry] = iter(())
    with scope():
        entries = iter(list_directory(path))
    directories: list[DirectoryEntry] = []
    is_done = False
    while not is_done:  # only an entry that cannot be read ends a scope before
        with scope():
            directories.extend(entry for entry in entries if entry.is_dir())
            is_done = True
    return directories


_KINDS: tuple[Kind, ...] = ("simple", "batch")
_IN_ROCKSDB = len(_KINDS)


class QueueTable(Sequence[Queue]):
    """Queues by kind, topic and queue id; each is made again whenever it is asked for.

    Of a queue's files their offsets and sizes are kept. What has other names than a broker gives, or is on another
    machine, is kept as it is.
    """

    def __init__(self, store: Store, queues: Iterable[Queue]) -> None:
        """`queues` are by kind, topic and queue id, those of the one database of the store last."""
        self._prefixes = [*(f"{store.root / UNIT_FORMATS[kind].directory}/" for kind in _KINDS), ""]
        self._database: QueueDatabase | None = None
        self._topics: list[str] = []
        self._topic_ends = [0] * (_IN_ROCKSDB + 1)  # by kind: after the last of its topics
        self._topic_firsts = array("i")  # indices of the first queue of each topic
        self._kinds = array("b")
        self._topic_numbers = array("i")
        self._queue_ids = array("i")
        self._file_ends = array("q", [0])  # after the last file of the queue before
        self._starts = array("q")
        self._sizes = array("q")
        self._others: dict[int, Queue] = {}
        for queue in queues:
            self._add(queue)

    def _add(self, queue: Queue) -> None:
        kind = _KINDS.index(queue.kind) if queue.database is None else _IN_ROCKSDB
        if not self._topics or self._kinds[-1] != kind or self._topics[-1] != queue.topic:
            self._topics.append(queue.topic)
            self._topic_firsts.append(len(self))
            self._topic_ends[kind:] = [len(self._topics)] * (_IN_ROCKSDB + 1 - kind)
        self._database = self._database or queue.database
        self._kinds.append(kind)
        self._topic_numbers.append(len(self._topics) - 1)
        self._queue_ids.append(queue.queue_id)
        directory, is_usual = self._directory(len(self) - 1), not queue.files.strays
        for file in queue.files.files:
            self._starts.append(file.start_offset)
            self._sizes.append(file.size)
            is_usual = is_usual and file == _usual_file(directory, file.start_offset, file.size)
        self._file_ends.append(len(self._starts))
        if not is_usual:
            self._others[len(self) - 1] = queue

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, index: int) -> Queue: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Queue]: ...

    def __getitem__(self, index: int | slice) -> Queue | Sequence[Queue]:
        if isinstance(index, slice):
            return [self._queue(each) for each in range(*index.indices(len(self)))]
        return self._queue(range(len(self))[index])

    def __iter__(self) -> Iterator[Queue]:
        return map(self._queue, range(len(self)))

    def _queue(self, index: int) -> Queue:
        if self._others and index in self._others:
            return self._others[index]
        topic, queue_id, kind = self._topics[self._topic_numbers[index]], self._queue_ids[index], self._kinds[index]
        if kind == _IN_ROCKSDB and self._database:
            return queue_in(self._database, topic, queue_id)
        return Queue(topic, queue_id, _KINDS[kind], MappedFiles(self._files(index)))

    def _files(self, index: int) -> tuple[MappedFile, ...]:
        """The files of a queue, as they are listed where their names are those that a broker gives."""
        first, stop, directory = self._file_ends[index], self._file_ends[index + 1], self._directory(index)
        if stop - first == 1:
            return (_usual_file(directory, self._starts[first], self._sizes[first]),)
        return tuple([_usual_file(directory, self._starts[each], self._sizes[each]) for each in range(first, stop)])

    def _directory(self, index: int) -> str:
        """Where the files of a queue are, unless it is one of the others."""
        topic = self._topics[self._topic_numbers[index]]
        return f"{self._prefixes[self._kinds[index]]}{topic}/{self._queue_ids[index]}/"

    @property
    def filled(self) -> int:
        """How many queues have files, or are in RocksDB."""
        with_files = sum(before < behind for before, behind in pairwise(self._file_ends))
        return with_files + self._kinds.count(_IN_ROCKSDB)

    def count_of(self, kind: Kind) -> int:
        """How many queues of a kind are in files."""
        return self._kinds.count(_KINDS.index(kind))

    def usual_file_size(self, kind: Kind) -> int:
        """The size that most files of a kind have, the larger one of two that are as frequent; 0 without one; bytes."""
        first = 0 if kind == "simple" else self.count_of("simple")
        files = slice(self._file_ends[first], self._file_ends[first + self.count_of(kind)])
        sizes = Counter(size for size in self._sizes[files] if size)
        return max(sizes, key=lambda size: (sizes[size], size), default=0)

    def not_all_of(self, sizes: Mapping[Kind, int]) -> list[int]:
        """The indices of queues that may hold something else than files of the size of their kind, bytes."""
        first_batch = self._file_ends[self.count_of("simple")]
        found = np.frombuffer(self._sizes, np.int64)
        others = [*np.flatnonzero(found[:first_batch] != sizes["simple"]),
                  *(first_batch + np.flatnonzero(found[first_batch:] != sizes["batch"]))]  # fmt: skip
        behind = np.searchsorted(np.frombuffer(self._file_ends, np.int64), others, "right")
        return sorted({*(behind - 1).tolist(), *self._others})

    @property
    def firsts_of_topics(self) -> Sequence[int]:
        """The index of the first queue of each kind and topic."""
        return self._topic_firsts

    def key(self, index: int) -> tuple[Kind, str, int]:
        """Kind, topic and queue id of a queue in files."""
        return _KINDS[self._kinds[index]], self._topics[self._topic_numbers[index]], self._queue_ids[index]

    def index_of(self, kind: Kind, topic: str, queue_id: int) -> int | None:
        """The index of a queue in files, of several directories for one queue id the last; None without it."""
        return max(self._indices(kind, topic, queue_id), default=None)

    @property
    def repeated(self) -> list[int]:
        """The indices of queues in files of which a later directory is another one."""
        return [index for index, each in enumerate(pairwise(zip(self._topic_numbers, self._queue_ids, strict=True)))
                if each[0] == each[1]]  # fmt: skip

    def find(self, kind: Kind, topic: str, queue_id: int) -> Queue | None:
        """The queue that a broker finds by its directory, None where that has no files.

        The directory of a queue has its number as a name, without zeros before it.
        """
        for index in self._indices(kind, topic, queue_id):
            if self._file_ends[index] < self._file_ends[index + 1]:
                queue = self._queue(index)
                if index not in self._others or str(queue.files.files[0].place).split("/")[-2] == str(queue_id):
                    return queue
        return None

    def _indices(self, kind: Kind, topic: str, queue_id: int) -> Iterator[int]:
        """The indices of queues in files with one name."""
        place = _KINDS.index(kind)
        first, stop = self._topic_ends[place - 1] if place else 0, self._topic_ends[place]
        number = bisect_left(self._topics, topic, first, stop)
        if number < stop and self._topics[number] == topic:
            behind = self._topic_firsts[number + 1] if number + 1 < len(self._topics) else len(self)
            index = bisect_left(self._queue_ids, queue_id, self._topic_firsts[number], behind)
            while index < behind and self._queue_ids[index] == queue_id:
                yield index
                index += 1


def _usual_file(directory: str, start_offset: int, size: int) -> MappedFile:
    """A file with the name that a broker gives it."""
    return made((directory + file_name(start_offset), start_offset, size, 0, None))
