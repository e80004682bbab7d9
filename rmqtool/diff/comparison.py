"""The comparison of two stores, from cheap to dear: files, epochs, the bytes of the log, queues, config files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.diff.configs import ConfigDifference, compare_configs
from rmqtool.diff.epochs import EpochComparison, compare_epochs
from rmqtool.diff.in_order import Alignment, align
from rmqtool.diff.log_bytes import Progress
from rmqtool.diff.log_pass import Counting, compare_logs, count_from
from rmqtool.diff.queues import DifferingQueue, compare_queues
from rmqtool.diff.records import Parting
from rmqtool.diff.side import SIDES, Name, Side
from rmqtool.diff.tails import Tail
from rmqtool.scan.redaction import Redaction
from rmqtool.store.store import rocksdb_configs

Verdict = Literal["same", "unproven", "differs", "a-ahead", "b-ahead", "damaged", "diverged", "no-overlap"]


@dataclass(frozen=True)
class DiffRequest:
    """What is asked for; with `fast` offsets, epochs and a page of each file only.

    `only` is the side whose own messages are listed, `limit` how many of each kind are listed.
    """

    fast: bool = False
    only: Name | None = None
    limit: int = 20


@dataclass(frozen=True)
class StoreComparison:
    """What was found. `parting` is of the common range; `tails` count what only one side has after it.

    With an `alignment` a DLedger log was compared with a plain one: offsets of one are not those of the other.
    """

    a: Side
    b: Side
    request: DiffRequest
    epochs: EpochComparison | None
    parting: Parting
    tails: dict[Name, Tail] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    queues: tuple[DifferingQueue, ...] = ()
    configs: tuple[ConfigDifference, ...] = ()
    alignment: Alignment | None = None

    def redacted(self, redaction: Redaction) -> StoreComparison:
        """The same without what of messages is not to be shown."""
        listed = [redaction.value(message) for message in self.listed]
        return replace(self, parting=self.parting.redacted(redaction), listed=listed)

    @property
    def start(self) -> int:
        """Physical offset at which the common range begins; with an `alignment` in A."""
        return self.alignment.starts.get("a", self.a.start) if self.alignment else max(self.a.start, self.b.start)

    @property
    def end(self) -> int:
        """Physical offset at which the common range ends; not after `start` where there is none."""
        return self.alignment.ends.get("a", self.start) if self.alignment else min(self.a.end, self.b.end)

    @property
    def common_end(self) -> int:
        """Physical offset up to which both hold the same messages, damage aside; with an `alignment` in A."""
        return self.common_end_of("a")

    def common_end_of(self, name: Name) -> int:
        """The same, in one of the logs."""
        if self.alignment:
            return self.alignment.ends.get(name, (self.a if name == "a" else self.b).start)
        return self.parting.diverged.start if self.parting.diverged else max(self.start, self.end)

    @property
    def shares_beginning(self) -> bool:
        """Whether the logs begin as copies of one log: only then are offsets of one those of the other."""
        diverged = self.parting.diverged
        one_is_empty = self.a.is_empty or self.b.is_empty
        if self.alignment:
            return one_is_empty or self.alignment.messages > 0
        return one_is_empty or (self.start < self.end and (diverged is None or diverged.start > self.start))

    @property
    def ahead(self) -> Name | None:
        """The side whose log goes on where the other's ends."""
        if self.alignment:
            names: tuple[Name, ...] = tuple(name for name in SIDES if name in self.tails and self.tails[name].messages)
            return names[0] if len(names) == 1 else None
        return None if self.a.end == self.b.end else "a" if self.a.end > self.b.end else "b"

    @property
    def begin_differs(self) -> bool:
        """Whether one has older messages than the other."""
        return any(self.alignment.before.values()) if self.alignment else self.a.start != self.b.start

    @cached_property
    def log_verdict(self) -> Verdict:
        """The verdict on the commit logs alone."""
        if self.a.is_empty or self.b.is_empty:
            return "same" if self.a.is_empty and self.b.is_empty else "b-ahead" if self.a.is_empty else "a-ahead"
        if self.start >= self.end:
            return "no-overlap"
        if self.parting.diverged:
            return "diverged"
        if self.parting.differences:
            return "damaged"
        return {"a": "a-ahead", "b": "b-ahead"}.get(self.ahead or "", "same")  # type: ignore[return-value]

    @property
    def own_queue_differences(self) -> list[DifferingQueue]:
        """The queues that differ though the logs do not."""
        return [queue for queue in self.queues if not queue.is_explained]

    @property
    def verdict(self) -> Verdict:
        """The verdict on everything; that on the logs counts first."""
        if self.log_verdict != "same":
            return self.log_verdict
        others = self.queues or self.configs or (self.epochs and self.epochs.differ)
        if others or self.begin_differs or self.file_sizes_differ:
            return "differs"
        return "unproven" if self.unread else "same"

    @property
    def file_sizes_differ(self) -> bool:
        """Whether log files of the two have different sizes; those of entries are of another kind."""
        if self.alignment:
            return False
        sizes = {side.snapshot.log.file_size for side in (self.a, self.b) if side.files}
        return len(sizes) > 1

    @property
    def unread(self) -> list[RmqtoolError]:
        """The errors of what could not be read, each once."""
        return list({str(error): error for side in (self.a, self.b) for error in side.unread}.values())

    @cached_property
    def not_compared(self) -> list[str]:
        """What was left out, and why."""
        left: list[str] = []
        if self.request.fast:
            left.append("of the logs only the first page of each file, and no queue or config file: --fast")
        elif not self.shares_beginning:
            left.append("queues: the logs do not share a beginning, so that their offsets are not the same")
        for name, side in (("A", self.a), ("B", self.b)):
            if side.snapshot.leaves_queues_out:
                left.append(f"queues of {name}: they are in RocksDB, which needs the package rocksdict")
            if rocksdb_configs(side.snapshot.store):
                left.append(f"config of {name}: parts of it are in RocksDB")
        return left

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.verdict == "unproven":
            return Exit.LOSSY
        return Exit.OK if self.verdict == "same" else Exit.FINDINGS


def compare(a: Side, b: Side, request: DiffRequest, progress: Progress) -> StoreComparison:
    """Compare two stores; raises RmqtoolError where a log's range or a queue directory cannot be read."""
    epochs = compare_epochs(a, b)
    cuts = epochs.cuts(a, b) if epochs else {}
    if (a.node is None) != (b.node is None):
        alignment, parting = align(a, b, progress)
        epochs = epochs and epochs.with_cuts({side.name: count_from(side, cuts[side.name]).tail
                                              for side in (a, b) if side.name in cuts})  # fmt: skip
        return _completed(_with_tails(StoreComparison(a, b, request, epochs, parting, alignment=alignment)))
    found = compare_logs(a, b, Counting(cuts, request.fast, request.only, request.limit), progress)
    epochs = epochs and epochs.with_cuts(found.cuts)
    begun = StoreComparison(a, b, request, epochs, found.parting, found.tails, found.listed)
    return begun if request.fast else _completed(begun)


def _with_tails(aligned: StoreComparison) -> StoreComparison:
    """The same with what only one has after the common messages, which are elsewhere in the other."""
    if not aligned.shares_beginning:
        return aligned
    request, ends = aligned.request, {name: aligned.common_end_of(name) for name in SIDES}
    tallies = {
        side.name: count_from(side, ends[side.name], request.limit if side.name == request.only else 0)
        for side in (aligned.a, aligned.b)
        if side.end > ends[side.name]
    }
    listed = tallies[request.only].listed if request.only in tallies else []
    return replace(aligned, tails={name: tally.tail for name, tally in tallies.items()}, listed=listed)


def _completed(begun: StoreComparison) -> StoreComparison:
    """With queues and config files."""
    a, b, is_moved = begun.a, begun.b, begun.alignment is not None
    queues: tuple[DifferingQueue, ...] = ()
    if begun.shares_beginning:
        ends = begun.common_end_of("a"), begun.common_end_of("b")
        queues = tuple(compare_queues(a, b, ends, is_moved=is_moved))
    return replace(begun, queues=queues, configs=tuple(compare_configs(a, b, is_moved=is_moved)))
