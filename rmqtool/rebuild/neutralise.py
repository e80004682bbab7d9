"""Inert records in place of bytes that no broker can read, so that a start scans past them.

To a broker an inert record is a rolled back message: it derives neither unit nor key from it. Its position, size,
magic code and body CRC are right, so every version goes on behind it, also when it scans the whole log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.crc import body_crc
from rmqtool.formats.message import BLANK_SIZE, MIN_MESSAGE_SIZE, build_blank, build_message
from rmqtool.formats.sys_flag import TRANSACTION_ROLLBACK
from rmqtool.rebuild.lost_extents import MAX_KEPT, NEUTRALISED, LostExtents
from rmqtool.scan.inert_records import LOST_TOPIC
from rmqtool.store.store import Store
from rmqtool.transaction import Transaction

_HOST = bytes(8)
_LARGEST = 1 << 20  # a broker takes memory for a whole record, bytes
_SMALLEST = MIN_MESSAGE_SIZE + 1  # with a topic of one byte
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
        return self.size >= _SMALLEST or (self._ends_file and self.size >= BLANK_SIZE)

    @property
    def _ends_file(self) -> bool:
        return self.position + self.size == self.file.size

    def data(self) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of each record that replaces the damage."""
        position, rest = self.position, self.size
        if self._ends_file:
            # A blank alone would hide that something is lost.
            inert = _SMALLEST if rest >= _SMALLEST + BLANK_SIZE else 0
            yield position + inert, build_blank(rest - inert)
            rest = inert
        while rest:
            size = rest if rest <= _LARGEST + _SMALLEST else _LARGEST
            yield position, inert_record(size, self.file.start_offset + position, self.timestamp)
            position, rest = position + size, rest - size


def inert_record(size: int, physical_offset: int, timestamp: int) -> bytes:
    """A record of exactly `size` bytes that nothing is derived from."""
    topic = LOST_TOPIC[: size - MIN_MESSAGE_SIZE]
    body = bytes(size - MIN_MESSAGE_SIZE - len(topic))
    return build_message(
        body_crc=body_crc(body),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=physical_offset,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp=timestamp,
        born_host=_HOST,
        store_timestamp=timestamp,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=topic,
        properties=b"",
    )


def patches_of(lost: LostExtents, files: Sequence[MappedFile]) -> list[Patch]:
    """The bytes to replace in each file; the torn end of the log is left to the broker, which cuts it."""
    if lost.count > len(lost.extents):
        raise UnsupportedError(
            f"{lost.count} damaged extents: no more than {MAX_KEPT} are neutralised at once",
            hint="a log with so much damage is better read from its copy, a slave or a backup",
        )
    patches = []
    for offset, size, reason, timestamp, is_tail in lost.extents:
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
