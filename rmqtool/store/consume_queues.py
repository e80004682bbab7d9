"""The consume queues of a store, and how their units are stored (`ConsumeQueue`, `BatchConsumeQueue`, in RocksDB)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFiles, list_mapped_files
from rmqtool.base.paths import DirectoryEntry, Place, entry_place
from rmqtool.base.tolerant import ReadScope
from rmqtool.formats import batch_consume_queue, consume_queue
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

    def decode(self, data: bytes) -> NDArray[np.void]:
        """View `data` as whole units; a partial last unit is left out."""
        return np.frombuffer(data, self.dtype, count=len(data) // self.dtype.itemsize)


UNIT_FORMATS: dict[Kind, UnitFormat] = {
    "simple": UnitFormat(CONSUME_QUEUE, consume_queue.UNIT_DTYPE, consume_queue.is_written),
    "batch": UnitFormat(BATCH_CONSUME_QUEUE, batch_consume_queue.UNIT_DTYPE, batch_consume_queue.is_written),
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


def has_light_queues(store: Store, scope: ReadScope = nullcontext) -> bool:
    """Whether some topic's directory is one of light queues; the directory of all topics is read in a `scope`."""
    entries: list[DirectoryEntry] = []
    with scope():
        entries = list_directory(store.root / CONSUME_QUEUE)
    return any(entry.name.startswith(LMQ_PREFIX) for entry in entries)


def _directories_in(path: Place, scope: ReadScope) -> list[DirectoryEntry]:
    entries: list[DirectoryEntry] = []
    with scope():
        entries = list_directory(path)
    directories = []
    for entry in entries:
        with scope():
            if entry.is_dir():
                directories.append(entry)
    return directories
