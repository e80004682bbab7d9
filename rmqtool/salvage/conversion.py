"""A log that an ordinary broker reads, of a DLedger log or of one with several paths: planned by reading only.

An entry of DLedger is a header of 48 bytes and one message. Without the headers all messages move towards the
beginning; queue offsets, and so what consumers have committed, stay (`DLedgerCommitLog`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnsupportedError, WrongKindError
from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE
from rmqtool.formats.message import BLANK_SIZE
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.scan.events import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.store.dledger_log import committed_index, scan_entries
from rmqtool.store.store import Store

MAX_LEFT = 1000
"""Extents that are left out and listed one by one; all are counted."""

LeftReason = Literal["uncommitted", "stale", "damaged"]
LEFT_MEANINGS: dict[LeftReason, str] = {
    "uncommitted": "behind the committed index of the DLedger checkpoint: another node may have other messages there",
    "stale": "older entries behind newer ones, which were overwritten",
    "damaged": "no entry with a whole message",
}

Offsets = NDArray[np.int64]


class LeftOut(NamedTuple):
    """An extent of the DLedger log that is not taken: physical offset of its first message or byte, and bytes."""

    reason: LeftReason
    physical_offset: int
    size: int
    messages: int = 0


@dataclass
class LeftTotal:
    """Sums of what is left out for one reason."""

    extents: int = 0
    size: int = 0
    messages: int = 0


@dataclass(frozen=True)
class Conversion:
    """What is converted: whole files of a plain log first, then the entries of a DLedger log.

    `committed` is the Raft index up to which entries are taken, None for all. `start` is where the first new message
    stands, a physical offset.
    """

    store: Store
    plain: Sequence[MappedFile]
    entries: Sequence[MappedFile]
    file_size: int
    committed: int | None

    @property
    def start(self) -> int:
        """Where the messages of entries begin in the new log."""
        return self.plain[-1].start_offset + self.file_size if self.plain else self.entries[0].start_offset

    @property
    def min_offset(self) -> int:
        """Where the new log begins."""
        return self.plain[0].start_offset if self.plain else self.start

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(file.size for file in (*self.plain, *self.entries))


@dataclass
class ConversionPlan:
    """What a conversion takes and leaves; offsets are those of the new log, timestamps epoch ms."""

    conversion: Conversion
    messages: int = 0
    bytes: int = 0
    end: int = 0
    files: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    missing: int = 0  # Raft indices between entries that no entry has
    left: list[LeftOut] = field(default_factory=list)
    totals: dict[LeftReason, LeftTotal] = field(default_factory=lambda: defaultdict(LeftTotal))

    @property
    def is_lossy(self) -> bool:
        """Whether messages that were committed are not there."""
        return bool(self.missing) or "damaged" in self.totals

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes: log, queues and index."""
        return sum(file.size for file in self.conversion.plain) + self.bytes + 60 * self.messages


def conversion_of(store: Store, *, with_uncommitted: bool) -> Conversion:
    """What is to be converted; raises UnsupportedError for a store that is an ordinary one."""
    if store.layout == "dledger":
        entries, plain = store.commit_log().files, store.older_log().files
        committed = committed_index(entries[0].path) if entries and not with_uncommitted else None
    elif len(store.commit_log_directories) > 1:
        entries, plain, committed = (), store.commit_log().files, None
    else:
        raise UnsupportedError("an ordinary store already: there is nothing to convert", file=store.root)
    sizes = {file.size for file in (*plain, *entries)}
    if not sizes:
        raise UnsupportedError("the log has no file", file=store.root)
    if len(sizes) > 1:
        raise WrongKindError(f"log files of several sizes: {', '.join(map(str, sorted(sizes)))} bytes", file=store.root)
    for before, after in pairwise(plain):
        if before.end_offset != after.start_offset:
            raise WrongKindError(f"the log file that begins at {before.end_offset} is missing", file=after.path)
    return Conversion(store, plain, entries, sizes.pop(), committed)


def plan_conversion(
    conversion: Conversion, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> ConversionPlan:
    """Read all entries, and say what becomes of them."""
    plan = ConversionPlan(conversion, files=len(conversion.plain), end=conversion.start)
    start = conversion.entries[0].start_offset if conversion.entries else 0
    for found in walk(conversion, plan, reading):
        if isinstance(found, LeftOut):
            plan.left += [found] if len(plan.left) < MAX_LEFT else []
            total = plan.totals[found.reason]
            total.extents, total.size, total.messages = (
                total.extents + 1, total.size + found.size, total.messages + found.messages,
            )  # fmt: skip
            continue
        stamps = found.run.headers.field("store_timestamp")
        plan.first_timestamp = plan.first_timestamp or int(stamps[0])
        plan.last_timestamp = int(stamps[-1])
        plan.messages += len(found.run)
        plan.bytes += int(found.run.message_sizes.sum())
        plan.end = int(found.offsets[-1] + found.run.message_sizes[-1])
        progress(found.run.physical_offset + found.run.size - start)
    if plan.messages:
        plan.files += (plan.end - 1 - conversion.start) // conversion.file_size + 1
    return plan


class Taken(NamedTuple):
    """Messages that are taken, and the physical offset of each in the new log."""

    run: RecordRun
    offsets: Offsets


def walk(
    conversion: Conversion, plan: ConversionPlan | None = None, reading: ReadPolicy = UNLIMITED
) -> Iterator[Taken | LeftOut]:
    """All entries in order; a run is for use before the next step. `plan` gets how many are missing."""
    end, last = conversion.start, -1
    for event in scan_entries(conversion.entries, reading=reading):
        if isinstance(event, Blank):
            continue
        if not isinstance(event, RecordRun):
            yield LeftOut("damaged", event.physical_offset, event.size)
            continue
        headers = event.block.gather(ENTRY_DTYPE, event.positions - ENTRY_HEADER_SIZE)
        indices: Offsets = headers["index"].astype(np.int64)
        before = np.maximum.accumulate(np.concatenate(([last], indices)))[:-1]
        is_stale = indices <= before
        if plan is not None:
            is_first = last < 0
            jumps = (indices - before - 1)[~is_stale][is_first:]
            plan.missing += int(jumps.sum())
        last = max(last, int(indices.max()))
        is_open = np.zeros(len(indices), bool) if conversion.committed is None else indices > conversion.committed
        for rows, reason in _groups(np.where(is_stale, 2, is_open)):
            run = event[rows]
            if reason:
                yield LeftOut(reason, run.physical_offset, run.size, len(run))
                continue
            offsets, end = _placed(run.message_sizes, end, conversion)
            yield Taken(run, offsets)


def _groups(kinds: NDArray[np.int64]) -> Iterator[tuple[slice, LeftReason | None]]:
    """Rows of one kind that follow each other."""
    reasons: tuple[LeftReason | None, ...] = (None, "uncommitted", "stale")
    edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    for start, stop in pairwise(edges):
        yield slice(start, stop), reasons[int(kinds[start])]


def _placed(sizes: NDArray[np.intp], end: int, conversion: Conversion) -> tuple[Offsets, int]:
    """Where messages stand from `end` on, and where they end: room for a blank stays in each file (`CommitLog`)."""
    offsets, done, base = np.empty(len(sizes), np.int64), 0, conversion.start
    while done < len(sizes):
        file_end = base + ((end - base) // conversion.file_size + 1) * conversion.file_size
        sums = np.cumsum(sizes[done:])
        count = int(np.searchsorted(sums, file_end - end - BLANK_SIZE, "right"))
        if not count:
            if sizes[done] + BLANK_SIZE > conversion.file_size:
                raise WrongKindError(f"a message of {sizes[done]} bytes is larger than a log file")
            end = file_end
            continue
        offsets[done : done + count] = end + sums[:count] - sizes[done : done + count]
        end += int(sums[count - 1])
        done += count
    return offsets, end
