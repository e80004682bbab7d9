"""Files that are written into a transaction: only those that a plan names, each read back and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from rmqtool.base.errors import UnwritableError
from rmqtool.base.files import InputFile
from rmqtool.base.times import file_time
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.index_file import file_size
from rmqtool.rebuild.selection import queue_file_name
from rmqtool.rebuild.sinks import FileGrid, Timestamps, Units
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry
from rmqtool.store.store import INDEX
from rmqtool.transaction import StagedFile, Transaction

_PIECE = 4 << 20  # read back at once, bytes


@dataclass(slots=True)
class _Written:
    """The bytes ``start:end`` that were written to a staged file, and their CRC; None after a jump."""

    start: int = 0
    end: int = 0
    crc: int | None = 0

    def add(self, data: bytes | memoryview, position: int) -> None:
        if self.end == 0:
            self.start = self.end = position
        if position != self.end:
            self.crc = None
        self.crc = None if self.crc is None else crc32(data, self.crc)
        self.end = max(self.end, position + len(data))

    def check(self, path: Path) -> None:
        """Compare with the bytes on the disk; raise UnwritableError."""
        if self.crc is None:
            return
        crc = 0
        with InputFile(path) as file:
            for position in range(self.start, self.end, _PIECE):
                crc = crc32(file.read(position, min(_PIECE, self.end - position)), crc)
            sound = crc == self.crc and file.next_data(self.end, file.size) == file.size
        if not sound:
            raise UnwritableError("what was written is not what the disk gives back", file=path)


class StagedQueues:
    """Stages the queue files of one kind that are `wanted`: by queue, where in it they start, bytes."""

    def __init__(
        self, transaction: Transaction, kind: Kind, grid: FileGrid, wanted: Mapping[QueueName, frozenset[int]]
    ) -> None:
        self._transaction = transaction
        self._kind = kind
        self._grid = grid
        self._wanted = wanted
        self._files: dict[QueueName, dict[int, tuple[StagedFile, _Written]]] = {}

    @property
    def names(self) -> list[str]:
        """The files that were staged."""
        return [file.name for of_queue in self._files.values() for file, _ in of_queue.values()]

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Stage units."""
        wanted = self._wanted.get(queue)
        if not wanted:
            return
        data, size = units.view("u1").data, self._grid.unit_size
        for piece in self._grid.pieces(unit_number, len(units)):
            if piece.start in wanted:
                file, written = self._file(queue, piece.start)
                content = data[piece.low * size : piece.high * size]
                file.write(content, piece.position)
                written.add(content, piece.position)
                file.mtime_ns = file_time(int(timestamps[piece.high - 1]))

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Clear the staged units from `unit_number` on."""
        first = self._grid.start_of(unit_number)
        for start, (file, written) in self._files.get(queue, {}).items():
            if start >= first:
                position = (unit_number - self._grid.first_unit(start)) * self._grid.unit_size if start == first else 0
                file.set_size(position)
                file.set_size(self._grid.file_size)
                written.crc = None  # later bytes do not follow the written ones

    def _file(self, queue: QueueName, start: int) -> tuple[StagedFile, _Written]:
        of_queue = self._files.setdefault(queue, {})
        staged = of_queue.get(start)
        if staged is None:
            written = _Written()
            name = queue_file_name(queue, self._kind, start)
            file = self._transaction.file(name, size=self._grid.file_size, check=written.check)
            staged = of_queue[start] = (file, written)
        return staged


class StagedIndex:
    """Stages index files."""

    def __init__(self, transaction: Transaction, geometry: Geometry) -> None:
        self.names: list[str] = []
        self._transaction = transaction
        self._size = file_size(geometry.slots, geometry.units)
        self._file: StagedFile | None = None

    def begin(self, name: str) -> None:
        """Stage a file."""
        self.names.append(f"{INDEX}/{name}")
        self._file = self._transaction.file(self.names[-1], size=self._size)

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes."""
        if self._file:
            self._file.write(data, position)

    def finish(self, timestamp: int) -> None:
        """Complete a file."""
        if self._file:
            self._file.mtime_ns = file_time(timestamp)
