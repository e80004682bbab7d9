"""What was read of files last stays in memory, so that those who read the same places one after the other share it."""

from __future__ import annotations

from collections import OrderedDict

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.limits import memory_is_short
from rmqtool.base.paths import Place

BLOCK_SIZE = 1 << 20
"""Bytes that are read at once, from a multiple of it on."""

_KEPT = 12 if memory_is_short() else 40  # blocks


class RecentReads:
    """The blocks that were read last, of any files of one disk; for one thread at a time."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._blocks: OrderedDict[tuple[Place, int], memoryview] = OrderedDict()

    def get(self, path: Place, number: int) -> memoryview | None:
        """A block of a file; None where it is not kept."""
        block = self._blocks.get((path, number))
        if block is not None:
            self._blocks.move_to_end((path, number))
        return block

    def room(self) -> bytearray:
        """A buffer for another block, in place of the one that was not used for the longest time."""
        if len(self._blocks) < self._kept:
            return bytearray(BLOCK_SIZE)
        buffer = self._blocks.popitem(last=False)[1].obj
        return buffer if isinstance(buffer, bytearray) else bytearray(BLOCK_SIZE)

    def keep(self, path: Place, number: int, block: memoryview) -> None:
        """Keep what was read."""
        self._blocks[path, number] = block


class RecentFile(InputFile):
    """A file that is read block by block; what `recent` has of it is not read again."""

    def __init__(self, path: Place, reading: ReadPolicy = UNLIMITED, recent: RecentReads | None = None) -> None:
        super().__init__(path, reading)
        self._recent = recent or RecentReads()

    def read(self, position: int, size: int) -> bytes:
        """As the base."""
        target = memoryview(bytearray(max(0, min(size, self.size - position))))
        return bytes(target[: self.read_into(target, position)])

    def read_into(self, target: memoryview, position: int) -> int:
        """As the base."""
        done = 0
        while done < len(target):
            number, start = divmod(position + done, BLOCK_SIZE)
            part = self._block(number)[start : start + len(target) - done]
            if not part:
                break
            target[done : done + len(part)] = part
            done += len(part)
        return done

    def _block(self, number: int) -> memoryview:
        block = self._recent.get(self.path, number)
        if block is None:
            buffer = memoryview(self._recent.room())
            block = buffer[: super().read_into(buffer, number * BLOCK_SIZE)]
            self._recent.keep(self.path, number, block)
        return block
