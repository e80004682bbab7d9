"""The index of a tier: segments, which are compact, and the files that a broker still writes (`IndexStoreFile`).

A file that is written lies in the store. Up to 5.1.4 no broker looks into it (`TieredIndexFile#queryAsync`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import entry_path
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.formats.layout import decode_units, integer_at
from rmqtool.formats.tiered import (
    INDEX_HEADER_DTYPE,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_DTYPE,
    INDEX_MAGIC,
    INDEX_SLOT_DTYPE,
    WRITTEN_ITEM_DTYPE,
    WRITTEN_MAGIC,
    WRITTEN_SLOT_DTYPE,
)
from rmqtool.store.tiered import Tier

DIRECTORY = "tiered_index_file"
"""Below the store: the files that are written (`IndexStoreService.FILE_DIRECTORY_NAME`)."""
_SLOTS, _ITEMS = "tieredStoreIndexFileMaxHashSlotNum", "tieredStoreIndexFileMaxIndexNum"
_DEFAULT_SLOTS, _DEFAULT_ITEMS = 5_000_000, 20_000_000
_MOST_IN_CHAIN = 512  # IndexStoreFile.MAX_QUERY_COUNT
_OLDER_NAMES = ("0000", "1111", "2222")  # up to 5.1.4: written, sealed, compact


def hashes_of(value: int) -> set[int]:
    """What the index has for a Java hash: its absolute value up to 5.5.0, since then without its sign bit.

    `IndexStoreFile#hashCode`: after an upgrade a broker finds half of the older keys no longer.
    """
    return {abs(value), value & 0x7FFFFFFF}


def items_of(segment: MappedFile, value: int) -> NDArray[np.void]:
    """The items of an index segment that have a hash; none of one that is no index (`IndexStoreFile#queryAsync`)."""
    with InputFile(segment.path) as file:
        slots = ((_first_item(file) or 0) - INDEX_HEADER_SIZE) // INDEX_SLOT_DTYPE.itemsize
        if slots <= 0:
            return np.zeros(0, INDEX_ITEM_DTYPE)
        slot = file.read(INDEX_HEADER_SIZE + value % slots * INDEX_SLOT_DTYPE.itemsize, INDEX_SLOT_DTYPE.itemsize)
        position, length = (integer_at(INDEX_SLOT_DTYPE, name, slot) for name in ("position", "length"))
        items = decode_units(INDEX_ITEM_DTYPE, file.read(position, max(0, min(length, segment.size - position))))
    found: NDArray[np.void] = items[items["hash"] == value]
    return found


def _first_item(file: InputFile) -> int | None:
    """Where the items of an index segment begin, after all slots, bytes; None of one that is no index."""
    head = file.read(0, INDEX_HEADER_SIZE + INDEX_SLOT_DTYPE.itemsize)
    if len(head) < INDEX_HEADER_SIZE + INDEX_SLOT_DTYPE.itemsize or not head.startswith(_MAGIC):
        return None
    return integer_at(INDEX_SLOT_DTYPE, "position", head, INDEX_HEADER_SIZE)


@dataclass(frozen=True)
class IndexSegment:
    """The slots of an index segment: how many items end before the end of each, and how many its header counts."""

    slots: int
    ends: NDArray[np.int64]
    counted: int

    @property
    def items(self) -> int:
        """How many items the slots have."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def size(self) -> int:
        """The size of the file, bytes."""
        slots, items = self.slots * INDEX_SLOT_DTYPE.itemsize, self.items * INDEX_ITEM_DTYPE.itemsize
        return INDEX_HEADER_SIZE + slots + items


def is_older_index(segment: MappedFile) -> bool:
    """Whether a release up to 5.1.4 wrote an index segment: it has another number after the items."""
    with InputFile(segment.path) as file:
        return file.read(max(0, segment.size - len(_OLDER)), len(_OLDER)) == _OLDER


_OLDER = (INDEX_MAGIC + 4).to_bytes(4, "big", signed=True)  # TieredIndexFile.INDEX_FILE_BEGIN_MAGIC_CODE, BCC50289


def read_index(segment: MappedFile) -> IndexSegment | None:
    """The slots of an index segment; None where they do not follow each other."""
    with InputFile(segment.path) as file:
        first = _first_item(file)
        if first is None:
            return None
        counted = integer_at(INDEX_HEADER_DTYPE, "items", file.read(0, INDEX_HEADER_SIZE))
        size = min(first, segment.size) - INDEX_HEADER_SIZE
        slots = decode_units(INDEX_SLOT_DTYPE, file.read(INDEX_HEADER_SIZE, max(0, size)))
    counts, rest = np.divmod(slots["length"].astype(np.int64), INDEX_ITEM_DTYPE.itemsize)
    ends = np.cumsum(counts)
    starts = first + (ends - counts) * INDEX_ITEM_DTYPE.itemsize
    is_whole = len(slots) and not rest.any() and (counts >= 0).all()
    if not is_whole or (slots["position"] != starts)[counts > 0].any():
        return None
    return IndexSegment(len(slots), ends, counted)


_PIECE = 1 << 20  # bytes


def all_items_of(segment: MappedFile) -> Iterator[NDArray[np.void]]:
    """All items of an index segment, piece by piece."""
    with InputFile(segment.path) as file:
        first = _first_item(file)
        if first is None:
            return
        size = _PIECE // INDEX_ITEM_DTYPE.itemsize * INDEX_ITEM_DTYPE.itemsize
        for position in range(max(INDEX_HEADER_SIZE, first), segment.size, size):
            yield decode_units(INDEX_ITEM_DTYPE, file.read(position, min(size, segment.size - position)))


_MAGIC = INDEX_MAGIC.to_bytes(4, "big", signed=True)


@dataclass(frozen=True)
class WrittenIndex:
    """A file of the index that is still written: how many slots and items it has room for, by the settings."""

    file: MappedFile
    slots: int
    room: int

    @property
    def is_readable(self) -> bool:
        """Whether it has the size that the settings give it; one that 5.1.4 began has four bytes more."""
        return self.file.size - self._end in (0, len(_OLDER))

    @property
    def _first(self) -> int:
        """Where item 0 is, which is never used, bytes."""
        return INDEX_HEADER_SIZE + self.slots * WRITTEN_SLOT_DTYPE.itemsize

    @property
    def _end(self) -> int:
        return self._first + self.room * WRITTEN_ITEM_DTYPE.itemsize

    def count(self) -> int | None:
        """How many items its header counts; None where that is no header of such a file."""
        with InputFile(self.file.path) as file:
            head = file.read(0, INDEX_HEADER_SIZE)
        magic, count = (integer_at(INDEX_HEADER_DTYPE, name, head) for name in ("magic", "items"))
        is_header = len(head) == INDEX_HEADER_SIZE and magic in (WRITTEN_MAGIC, INDEX_MAGIC)
        return count if is_header and 0 <= count < self.room else None

    def of_hash(self, value: int) -> NDArray[np.void]:
        """The items that have a hash, the newest first (`queryAsyncFromUnsealedFile`)."""
        found, count = [], self.count() or 0
        with InputFile(self.file.path) as file:
            slot = file.read(INDEX_HEADER_SIZE + value % self.slots * WRITTEN_SLOT_DTYPE.itemsize,
                             WRITTEN_SLOT_DTYPE.itemsize)  # fmt: skip
            number = integer_at(WRITTEN_SLOT_DTYPE, "item", slot)
            for _ in range(_MOST_IN_CHAIN):
                if not 0 < number <= count:
                    break
                data = file.read(self._first + number * WRITTEN_ITEM_DTYPE.itemsize, WRITTEN_ITEM_DTYPE.itemsize)
                if integer_at(WRITTEN_ITEM_DTYPE, "hash", data) == value:
                    found.append(data[: INDEX_ITEM_DTYPE.itemsize])
                number = integer_at(WRITTEN_ITEM_DTYPE, "previous", data)
        return decode_units(INDEX_ITEM_DTYPE, b"".join(found))

    def all_items(self) -> Iterator[NDArray[np.void]]:
        """All items that its header counts, piece by piece."""
        size = WRITTEN_ITEM_DTYPE.itemsize
        begin, stop = self._first + size, self._first + ((self.count() or 0) + 1) * size
        with InputFile(self.file.path) as file:
            for position in range(begin, stop, _PIECE // size * size):
                items = decode_units(
                    WRITTEN_ITEM_DTYPE, file.read(position, min(_PIECE // size * size, stop - position))
                )
                compact = np.zeros(len(items), INDEX_ITEM_DTYPE)
                for name in INDEX_ITEM_DTYPE.names or ():
                    compact[name] = items[name]
                yield compact


def written_indexes(tier: Tier) -> list[WrittenIndex]:
    """The files of the index that are still written, the oldest first; none of a release up to 5.1.4."""
    slots, room = (_number_of(tier, *each) for each in ((_SLOTS, _DEFAULT_SLOTS), (_ITEMS, _DEFAULT_ITEMS)))
    found = list[WrittenIndex]()
    with skip_wrong_type():
        for entry in list_directory(tier.store.root / DIRECTORY):
            if entry.name.isdecimal() and entry.name not in _OLDER_NAMES and entry.is_file():
                file = MappedFile(entry_path(entry), 0, entry.stat().st_size)
                found.append(WrittenIndex(file, slots, room))
    return sorted(found, key=lambda each: int(each.file.path.name))


def _number_of(tier: Tier, name: str, default: int) -> int:
    text = tier.setting.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) else default


def items_of_hash(tier: Tier, value: int) -> Iterator[np.void]:
    """The items that a query finds by a hash: those of the newest file first, segments after what is written."""
    written = (each.of_hash(value) for each in reversed(written_indexes(tier)) if each.is_readable)
    segments = tier.index.files["INDEX"].files if tier.index else ()
    return chain.from_iterable(chain(written, (items_of(segment, value) for segment in reversed(segments))))
