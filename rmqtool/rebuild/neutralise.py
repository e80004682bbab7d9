"""Dummy records in place of bytes that no broker can read, so that a start scans past them.

To a broker a dummy record is a rolled back message: it derives neither unit nor key from it. Its position, size,
magic code and body CRC are right, so every version goes on after it, also when it scans the whole log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.message import BLANK_SIZE
from rmqtool.rebuild.queue_placement import MAX_KEPT, NEUTRALISED, LostExtents
from rmqtool.scan.inert_records import SMALLEST_INERT, filling

if TYPE_CHECKING:
    from rmqtool.store.store import Store
    from rmqtool.transaction.transaction import Transaction

_NOT_IN_A_FILE = "missing"


@dataclass(frozen=True)
class Patch:
    """Bytes of a commit log file that are replaced: from `position` in the file on `size` bytes."""

    file: MappedFile
    position: int
    size: int
    reason: str
    timestamp: int  # store time of a neighbour, epoch ms: a file's first record decides where a recovery begins

    @property
    def physical_offset(self) -> int:
        """Where it begins in the commit log, bytes."""
        return self.file.start_offset + self.position

    @property
    def is_possible(self) -> bool:
        """Whether a record or, at the end of the file, a blank fits in its place."""
        return self.size >= SMALLEST_INERT or (self._ends_file and self.size >= BLANK_SIZE)

    @property
    def _ends_file(self) -> bool:
        return self.position + self.size == self.file.size

    def data(self) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of each record that replaces the damage."""
        for offset, data in filling(self.physical_offset, self.size, self.timestamp, ends_file=self._ends_file):
            yield offset - self.file.start_offset, data


def patches_of(lost: LostExtents, files: Sequence[MappedFile]) -> list[Patch]:
    """The bytes to replace in each file; the torn end of the log is left to the broker, which cuts it."""
    if lost.count > len(lost.extents):
        raise UnsupportedError(
            f"{lost.count} damaged ranges: no more than {MAX_KEPT} are neutralised at once",
            hint="for a log with so much damage, use a copy, a slave or a backup",
        )
    patches = []
    for offset, size, reason, timestamp, is_tail, _ in lost.extents:
        file = file_at(files, offset)
        if file and not is_tail and reason not in (_NOT_IN_A_FILE, NEUTRALISED):
            # Never 0: a broker takes a file for empty whose first record was stored at that time.
            patches.append(Patch(file, offset - file.start_offset, size, reason, max(timestamp, 1)))
    return patches


def patched_bytes(patches: Sequence[Patch]) -> int:
    """Sizes of the files that are replaced for patches."""
    return sum(file.size for file in {patch.file for patch in patches})


def stage_patches(store: Store, patches: Sequence[Patch], transaction: Transaction) -> None:
    """Stage each file with its patches; the transaction keeps the files as they were."""
    by_file: dict[MappedFile, list[Patch]] = defaultdict(list)
    for patch in patches:
        by_file[patch.file].append(patch)
    for file, patches_of_file in by_file.items():
        name = store.relative(file.path)
        staged = transaction.file(name)
        staged.copy(file.path)
        for patch in patches_of_file:
            for position, data in patch.data():
                staged.write(data, position)
        transaction.put(name)
