"""A log that an ordinary broker reads, of a DLedger log or of one with several paths: planned by reading only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rmqtool.base.errors import UnsupportedError, WrongKindError
from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.entry_walk import EntryWalk, Filling, LeftOut, LeftReason
from rmqtool.scan.crcs import wrong_bodies
from rmqtool.store.dledger_node import committed_index
from rmqtool.store.store import Store

MAX_LISTED = 1000
"""Extents that are listed one by one; all are counted."""

_MORE_OF_A_MESSAGE = 60  # bytes of units and keys


@dataclass(frozen=True)
class Conversion:
    """What is converted: whole files of a plain log first, then the entries of a DLedger log.

    `committed` is the Raft index up to which entries are taken, None for all.
    """

    store: Store
    plain: Sequence[MappedFile]
    entries: Sequence[MappedFile]
    file_size: int
    committed: int | None

    @property
    def start(self) -> int:
        """Physical offset at which the messages of entries begin in the new log."""
        return self.plain[-1].start_offset + self.file_size if self.plain else self.entries[0].start_offset

    @property
    def min_offset(self) -> int:
        """Physical offset at which the new log begins."""
        return self.plain[0].start_offset if self.plain else self.start

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(file.size for file in (*self.plain, *self.entries))

    def walk(self) -> EntryWalk:
        """A pass over the entries."""
        return EntryWalk(self.entries, self.committed, self.start, self.file_size)


@dataclass
class LeftTotal:
    """Sums of what is left out for one reason."""

    extents: int = 0
    size: int = 0
    messages: int = 0


@dataclass
class ConversionPlan:
    """What a conversion takes and leaves; offsets are those of the new log, timestamps epoch ms."""

    conversion: Conversion
    messages: int = 0
    bytes: int = 0
    end: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    missing: int = 0  # committed entries that are nowhere
    wrong_bodies: int = 0  # messages of entries whose body is not what was stored, by its CRC
    filled: list[tuple[int, int]] = field(default_factory=list)  # the first dummy records: physical offsets and sizes
    filled_bytes: int = 0
    left: list[LeftOut] = field(default_factory=list)
    totals: dict[LeftReason, LeftTotal] = field(default_factory=lambda: defaultdict(LeftTotal))

    @property
    def is_lossy(self) -> bool:
        """Whether messages that were committed are not there; those with a wrong body are, as they are."""
        return bool(self.missing) or "damaged" in self.totals

    @property
    def files(self) -> int:
        """Files of the new log."""
        return (self.end - self.conversion.min_offset + self.conversion.file_size - 1) // self.conversion.file_size

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes: log, queues and index."""
        plain = sum(file.size for file in self.conversion.plain)
        return plain + self.bytes + self.filled_bytes + _MORE_OF_A_MESSAGE * self.messages

    def leave(self, extent: LeftOut) -> None:
        """Count what is left out."""
        self.left += [extent] if len(self.left) < MAX_LISTED else []
        total = self.totals[extent.reason]
        total.extents += 1
        total.size += extent.size
        total.messages += extent.messages

    def fill(self, filling: Filling) -> None:
        """Count dummy records."""
        self.filled_bytes += int(filling.sizes.sum())
        room = MAX_LISTED - len(self.filled)
        self.filled += list(zip(filling.offsets[:room].tolist(), filling.sizes[:room].tolist(), strict=True))


def conversion_of(store: Store, *, with_uncommitted: bool) -> Conversion:
    """What is to be converted; raises UnsupportedError for a store that is an ordinary one."""
    committed, log = None, store.commit_log()
    if store.dledger_directory:
        committed = None if with_uncommitted else committed_index(store.dledger_directory)
    elif len(store.commit_log_directories) <= 1:
        raise UnsupportedError("an ordinary store already: there is nothing to convert", file=store.root)
    if not log.files:
        raise UnsupportedError("the log has no file: there is nothing to convert", file=store.root)
    plain = [file for file in log.files if not file.header_size]
    entries = [file for file in log.files if file.header_size]
    of_plain = MappedFiles(tuple(plain)).file_size
    file_size = of_plain or store.conf.size("mappedFileSizeCommitLog") or log.file_size
    _require_whole((*plain, *entries[:1]), file_size)
    return Conversion(store, plain, entries, file_size, committed)


def _require_whole(files: Sequence[MappedFile], file_size: int) -> None:
    """Raise WrongKindError unless files that are copied as they are, and the first with entries, make one log."""
    for before, after in pairwise(files):
        if before.size != file_size:
            raise WrongKindError(f"a log file of {before.size} bytes, others have {file_size}", file=before.path)
        if before.start_offset == after.start_offset:
            raise WrongKindError(f"the same log file is in {before.path.parent}, too", file=after.path)
        if before.end_offset != after.start_offset:
            raise WrongKindError(f"the log file that begins at {before.end_offset} is missing", file=after.path)


def plan_conversion(
    conversion: Conversion, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> ConversionPlan:
    """Read all entries, and say what becomes of them."""
    plan = ConversionPlan(conversion, end=conversion.start)
    walk, start = conversion.walk(), conversion.entries[0].start_offset if conversion.entries else 0
    for piece in walk.pieces(reading):
        if isinstance(piece, LeftOut):
            plan.leave(piece)
            continue
        if isinstance(piece, Filling):
            plan.fill(piece)
            continue
        stamps = piece.run.headers.field("store_timestamp")
        plan.first_timestamp = plan.first_timestamp or int(stamps[0])
        plan.last_timestamp = int(stamps[-1])
        plan.messages += len(piece.run)
        plan.wrong_bodies += int(wrong_bodies(piece.run).sum())
        plan.bytes += int(piece.run.message_sizes.sum())
        plan.end = int(piece.offsets[-1] + piece.run.message_sizes[-1])
        progress(piece.run.physical_offset + piece.run.size - start)
    plan.missing = walk.missing
    return plan
