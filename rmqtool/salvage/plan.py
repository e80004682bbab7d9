"""What a salvage saves: found by reading the sources only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from rmqtool.base.files import UNLIMITED, Progress, RateLimit, ReadPolicy, no_progress
from rmqtool.base.parallel import MAX_PARTS, Job, WorkerPool
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.salvage.carve import BLANK, NO_EXTENTS, Extents, Sources, joined, message_bytes
from rmqtool.salvage.choose import agreed_terms, by_index, classify, fill, fill_by_term
from rmqtool.salvage.inputs import Input, Inputs, log_file_size
from rmqtool.salvage.layout import Layout, LeftBehind, lay_out, lay_out_moved, left_behind


class Carved(NamedTuple):
    """What proves itself in a file, and the positions of its pages that could not be read, bytes."""

    number: int
    extents: Extents
    unread: set[int]


class _Carving(Job[Carved]):
    """Carves every n-th file for a part of n, in another process; with `topics` odd records are marked."""

    def __init__(
        self, files: Sequence[Input], file_size: int, reading: ReadPolicy, topics: frozenset[str] | None
    ) -> None:
        self._files = files
        self._file_size = file_size
        self._reading = reading
        self._topics = topics

    def do(self, part: int) -> Iterator[tuple[int, Carved | None]]:
        """Carve the files of a part; raises UnreadableError."""
        with Sources(self._files, self._file_size, self._reading) as sources:
            for file in self._files[part::MAX_PARTS]:
                extents = sources.carve(file.number, topics=self._topics)
                yield file.size, Carved(file.number, extents, sources.unread(file.number))


def _carve_all(
    reading: ReadPolicy, topics: frozenset[str] | None, jobs: int, sources: Sources, progress: Progress
) -> list[Extents]:
    """What proves itself in each file, by its number; `progress` gets the bytes that are done since the last call.

    What several `jobs` (processes) could not read is added to `sources`.
    """
    jobs = min(jobs, len(sources.files))
    if jobs < 2:
        return [sources.carve(file.number, progress, topics) for file in sources.files]
    if reading.rate_limit:
        reading = replace(reading, rate_limit=RateLimit(max(1, reading.rate_limit.bytes_per_second // jobs)))
    found: dict[int, Extents] = {}
    make = partial(_Carving, sources.files, sources.file_size, reading, topics)
    with WorkerPool[Carved](jobs - 1) as pool:
        pool.begin(make, range(min(len(sources.files), MAX_PARTS)), make())
        for step in pool.steps():
            progress(step.size)
            if step.result is not None:
                found[step.result.number] = step.result.extents
                sources.add_unread(step.result.number, step.result.unread)
    return [found[file.number] for file in sources.files]


MAX_GAPS = 1000
"""Gaps that are listed one by one; all are counted."""

_ROW_SIZE = 60  # units of queue and index for a message, bytes
_GAP_SIZE = 8192  # pages of a dummy record, bytes
_INERT_SIZE = 1 << 20


@dataclass(frozen=True)
class SalvagePlan:
    """The new log, and what is not in it; `is_size_known` is False where the size of its files is the default one."""

    inputs: Inputs
    layout: Layout
    left: LeftBehind
    is_size_known: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self.layout.files

    @property
    def records(self) -> int:
        """Saved messages."""
        return int(self.layout.copies["records"].sum())

    @property
    def size(self) -> int:
        """Bytes of the saved messages."""
        return message_bytes(self.layout.copies)

    @property
    def lost(self) -> int:
        """Bytes of the gaps in the new log."""
        return sum(gap.size for gap in self.layout.gaps)

    @property
    def is_lossy(self) -> bool:
        """Whether something may be lost."""
        return bool(self.layout.gaps) or self.left.is_loss

    @property
    def is_unread(self) -> bool:
        """Whether some of the sources cannot be read."""
        return bool(self.inputs.errors) or "unreadable" in self.left.totals

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes."""
        gaps = sum(_GAP_SIZE * (1 + gap.size // _INERT_SIZE) for gap in self.layout.gaps)
        return self.size + gaps + self.records * _ROW_SIZE

    def of_source(self, source: int) -> tuple[int, int]:
        """Messages and bytes that come from one source."""
        copies = self.layout.copies
        rows = copies[np.isin(copies["input"], [file.number for file in self.inputs.of_source(source)])]
        return int(rows["records"].sum()), message_bytes(rows)

    @property
    def committed_missing(self) -> int:
        """Committed entries of a DLedger log that are nowhere, by the Raft indices of those that are there."""
        return self._by_index[0]

    @property
    def uncommitted(self) -> int:
        """Saved messages of entries after the committed index, which a leader may have replaced."""
        return self._by_index[1]

    @cached_property
    def _by_index(self) -> tuple[int, int]:
        return by_index(self.layout.copies, self.inputs.committed)


def make_plan(
    inputs: Inputs,
    conf: BrokerConf,
    topics: frozenset[str] = frozenset(),
    reading: ReadPolicy = UNLIMITED,
    progress: Progress = no_progress,
    jobs: int = 1,
) -> SalvagePlan:
    """Carve all files, and choose what makes the new log; `progress` gets the bytes that are done in all.

    `jobs` processes carve. `topics` are those that the sources know: where there are several, records of others come
    last.
    """
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done)

    file_size, is_known = log_file_size(inputs, conf)
    with Sources(inputs.files, file_size, reading) as sources:
        known = topics if len(inputs.names) > 1 else None
        found = _carve_all(reading, known, jobs, sources, add)
        taken, refused = _chosen(inputs, found, sources)
        blanks = joined(*(extents[extents["records"] == BLANK] for extents in found))
        if inputs.has_nodes or taken["header_size"].any():
            starts = [file.start_offset for file in inputs.files if file.start_offset is not None]
            layout = lay_out_moved(taken, blanks, file_size, starts)
        else:
            layout = lay_out(taken, blanks, file_size, sources)
        return SalvagePlan(inputs, layout, left_behind(found, refused, layout, sources), is_known)


def _chosen(inputs: Inputs, found: list[Extents], sources: Sources) -> tuple[Extents, Extents]:
    """The records of the new log, and those refused: first what stands in its place in any source, then the rest."""
    files_of = map(inputs.of_source, range(len(inputs.names)))
    classes = [classify(files, [found[file.number] for file in files]) for files in files_of]
    starts = [file.start_offset for file in inputs.files if file.start_offset is not None]
    limit = max(starts, default=0) + sources.file_size  # no name of a file says that the log goes further
    taken, older = fill_by_term(NO_EXTENTS, agreed_terms([each.in_place for each in classes], sources), sources)
    refused = [*(each.stale for each in classes), older]
    for each in classes:
        taken, stale = fill(taken, each.odd, sources)
        refused.append(stale)
    for each in classes:
        taken, stale = fill(taken, each.moved, sources, in_place=False)
        refused.append(stale)
    for each in classes:
        taken, stale = fill(taken, each.recycled, sources, in_place=False, limit=limit)
        refused.append(stale)
    return taken, joined(*refused)
