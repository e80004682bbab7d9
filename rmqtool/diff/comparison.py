"""The comparison of two stores, from cheap to dear: files, epochs, the bytes of the log, queues, config files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.base.visible import quote
from rmqtool.diff.by_message import Alignment, align
from rmqtool.diff.log_pass import DiffRequest, Progress, compare_logs, count_from
from rmqtool.diff.queues import DifferingQueue, compare_queues
from rmqtool.diff.records import SIDES, Name, Parting, Side, Tail
from rmqtool.diff.tiers import DifferingTier, compare_tiers
from rmqtool.formats.checkpoint import TIMER_CHECK_DTYPE, TIMER_CHECK_SIZE
from rmqtool.store.config_json import load_config
from rmqtool.store.config_tables import CONSUMER_OFFSET, DELAYS, GROUPS, TOPICS, entries_in, main_table
from rmqtool.store.dledger_node import Epoch, Epochs, load_epochs
from rmqtool.store.store import CONFIG, rocksdb_configs

TIMER_CHECK = "timercheck"

_WHOLE_FILE = "the file"

Entries = Mapping[str, Any]


@dataclass(frozen=True)
class ConfigDifference:
    """An entry of a config file that differs; None where a side does not have it."""

    file: str
    entry: str
    a: int | str | None
    b: int | str | None


def compare_configs(a: Side, b: Side, *, is_moved: bool = False) -> Iterator[ConfigDifference]:
    """The entries that differ; a file that a side cannot decode is one difference.

    Where the log of B `is_moved` a conversion has left the timers of A out, which begin again there.
    """
    for name in (TOPICS, GROUPS, DELAYS):
        first, second = (load_config(side.snapshot.store.root / CONFIG / name) for side in (a, b))
        if first.problem != second.problem:
            yield ConfigDifference(name, _WHOLE_FILE, first.problem, second.problem)
        yield from _of_entries(name, *(_flat(main_table(name, file.content) or {}) for file in (first, second)))
    offsets = ({f"{each.topic}@{each.group}/{each.queue_id}": each.offset for each in side.snapshot.committed.offsets}
               for side in (a, b))  # fmt: skip
    yield from _of_entries(CONSUMER_OFFSET, *offsets)
    if not is_moved:
        yield from _of_entries(TIMER_CHECK, _timer_offset(a), _timer_offset(b))


def _flat(table: Entries) -> dict[str, Any]:
    """The settings of each entry by ``entry.setting``, a number or other value by the entry's name."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat[name] = "present"
            flat |= {f"{name}.{setting}": found for setting, found in value.items()}
        else:
            flat[name] = value
    return flat


def _of_entries(file: str, a: Entries, b: Entries) -> Iterator[ConfigDifference]:
    for entry in sorted(a.keys() | b.keys()):
        owner = entry.partition(".")[0]
        is_setting_of_one = owner != entry and (owner in a) != (owner in b)
        if a.get(entry) != b.get(entry) and not is_setting_of_one:
            yield ConfigDifference(file, entry, _shown(a.get(entry)), _shown(b.get(entry)))


def _shown(value: object) -> int | str | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _timer_offset(side: Side) -> Entries:
    """The next queue offset that the timers take, from the file `timercheck`; nothing without the file."""
    try:
        data = read_all(side.snapshot.store.root / CONFIG / TIMER_CHECK, TIMER_CHECK_SIZE)
    except RmqtoolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            side.unread.append(error)
        return {}
    if len(data) < TIMER_CHECK_SIZE:
        return {"last_timer_queue_offset": "the file is cut"}
    return {"last_timer_queue_offset": int(np.frombuffer(data, TIMER_CHECK_DTYPE)[0]["last_timer_queue_offset"])}


@dataclass(frozen=True)
class Following:
    """One store as the slave of the other: up to where they agree by their epochs, and what is cut after it.

    `point` is None where no epoch agrees, so that the slave never syncs, and where it `has_no_epochs` at all: then
    nothing is compared, and it goes on at its own end.
    """

    point: int | None
    cut: Tail | None = None
    has_no_epochs: bool = False


@dataclass(frozen=True)
class SideEpochs:
    """The epochs of one store; `stale` begin after the log's end, `missing` is in `topics.json` but has no entry."""

    epochs: Epochs
    stale: tuple[Epoch, ...]
    missing: int | None


@dataclass(frozen=True)
class EpochComparison:
    """The epochs of both, and each as the slave of the other."""

    a: SideEpochs
    b: SideEpochs
    a_follows: Following
    b_follows: Following

    @property
    def differ(self) -> bool:
        """Whether the lists differ, or one cannot be read."""
        return self.a.epochs != self.b.epochs

    def cuts(self, a: Side, b: Side) -> dict[Name, int]:
        """Physical offsets after which each would cut something as the slave of the other."""
        sides: tuple[tuple[Side, Following], ...] = ((a, self.a_follows), (b, self.b_follows))
        return {side.name: each.point for side, each in sides if each.point is not None and each.point < side.end}

    def with_cuts(self, counted: Mapping[Name, Tail]) -> EpochComparison:
        """The same with what would be cut, as it was counted."""
        a, b = replace(self.a_follows, cut=counted.get("a")), replace(self.b_follows, cut=counted.get("b"))
        return replace(self, a_follows=a, b_follows=b)


def compare_epochs(a: Side, b: Side) -> EpochComparison | None:
    """Compare the epochs; None where neither store has any. What would be cut is not counted yet."""
    first, second = _epochs_of(a), _epochs_of(b)
    if not any(side.epochs.entries or side.epochs.problem for side in (first, second)):
        return None
    following = _following(a, first.epochs, b, second.epochs), _following(b, second.epochs, a, first.epochs)
    return EpochComparison(first, second, *following)


def consistent_point(slave: Epochs, slave_end: int, master: Epochs, master_end: int) -> int | None:
    """Up to where both logs agree: by the slave's newest epoch that the master has with the same beginning."""
    slave_ends, master_ends = slave.ends(slave_end), master.ends(master_end)
    for epoch in reversed(slave.entries):
        if epoch in master_ends:
            return min(slave_ends[epoch], master_ends[epoch])
    return None


def _following(slave: Side, slave_epochs: Epochs, master: Side, master_epochs: Epochs) -> Following:
    if not slave_epochs.entries:
        return Following(None, has_no_epochs=True)
    return Following(consistent_point(slave_epochs, slave.end, master_epochs, master.end))


def _epochs_of(side: Side) -> SideEpochs:
    epochs = load_epochs(side.snapshot.store)
    stale = tuple(epoch for epoch in epochs.entries if epoch.start_offset > side.end)
    state = entries_in(side.snapshot.topics.file.content, "dataVersion").get("stateVersion")
    is_missing = epochs.entries and type(state) is int and state > epochs.entries[-1].number
    return SideEpochs(epochs, stale, state if is_missing else None)


Verdict = Literal["same", "unproven", "differs", "a-ahead", "b-ahead", "damaged", "diverged", "no-overlap"]


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
    tiers: tuple[DifferingTier, ...] = ()
    configs: tuple[ConfigDifference, ...] = ()
    alignment: Alignment | None = None

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
        others = self.queues or self.tiers or self.configs or (self.epochs and self.epochs.differ)
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
            left.append("all but the first page of each log file; queues, tiers and config files: --fast")
        elif not self.shares_beginning:
            left.append("queues: the logs have no common beginning, so their offsets differ")
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
    found = compare_logs(a, b, request, cuts, progress)
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
    """With queues, tiers and config files."""
    a, b, is_moved = begun.a, begun.b, begun.alignment is not None
    queues: tuple[DifferingQueue, ...] = ()
    if begun.shares_beginning:
        ends = begun.common_end_of("a"), begun.common_end_of("b")
        queues = tuple(compare_queues(a, b, ends, is_moved=is_moved))
    configs = tuple(compare_configs(a, b, is_moved=is_moved))
    return replace(begun, queues=queues, tiers=tuple(compare_tiers(a, b)), configs=configs)


def next_steps(comparison: StoreComparison) -> list[str]:
    """Sentences and commands, in the order in which to follow them."""
    return list(_steps(comparison))


def _steps(comparison: StoreComparison) -> Iterator[str]:
    match comparison.verdict:
        case "no-overlap":
            what = "message" if comparison.alignment else "offset"
            yield f"the logs have no {what} in common: rebuild one from the other, or compare their messages:"
            yield f"{_diff(comparison)} --by-message"
        case "diverged":
            yield from _parted(comparison)
        case "damaged":
            for name in comparison.parting.damaged or SIDES:
                yield f"see what is damaged: rmqtool verify {_path(_side(comparison, name))}"
            yield from _set_up(comparison) if not comparison.alignment else _save_all(comparison)
        case "a-ahead" | "b-ahead" if comparison.alignment:
            yield from _save_all(comparison)
        case "a-ahead" | "b-ahead":
            yield from _set_up(comparison)
        case "differs":
            yield from _derived(comparison)
        case "unproven":
            yield "make the unreadable parts readable, and compare again"


def _parted(comparison: StoreComparison) -> Iterator[str]:
    """Two logs that were written apart: one of them is given up, after what only it has was saved."""
    if comparison.request.fast:
        yield f"to find where they diverge, leave out --fast: {_diff(comparison)}"
    elif not comparison.shares_beginning:
        yield "they are not copies of one log; to compare their messages, wherever they are stored:"
        yield f"{_diff(comparison)} --by-message"
    else:
        yield from _save_all(comparison)
        if comparison.alignment:
            return
        if comparison.a.node and comparison.b.node:
            yield "then start the nodes: the log of a follower is cut where it diverges from that of its leader"
        else:
            yield "then rebuild one of them from the other; the master is the one whose messages you keep"


def _save_all(comparison: StoreComparison) -> Iterator[str]:
    for name in SIDES:
        yield from _save(comparison, name)


def _save(comparison: StoreComparison, name: Name) -> Iterator[str]:
    """How to save what only one side has, before it is cut."""
    tail = comparison.tails.get(name)
    if tail and tail.messages:
        side = _side(comparison, name)
        yield f"list what only {name.upper()} has: {_diff(comparison)} --only {name}"
        yield f"save it: rmqtool export {_path(side)} --from-offset {tail.start} --output DIR"


def _set_up(comparison: StoreComparison) -> Iterator[str]:
    """Which store follows the other."""
    damaged = comparison.parting.damaged
    if damaged == ("a", "b"):
        yield "both are damaged: neither can be rebuilt from the other in this state"
    elif damaged:
        good, bad = ("B", "A") if damaged == ("a",) else ("A", "B")
        if comparison.parting.both_lost:
            yield f"{good} has dummy records where {bad} is damaged, as a repair or a salvage makes them"
            yield "neither has the original bytes: a third copy may have them"
        else:
            yield f"rebuild {bad} from {good}, whose messages are intact where {bad} is damaged"
        yield from _save(comparison, "a" if bad == "A" else "b")
    elif comparison.a.end != comparison.b.end:
        ahead, behind = ("A", "B") if comparison.a.end > comparison.b.end else ("B", "A")
        if _side(comparison, "b" if behind == "B" else "a").cut_files:
            yield f"set {behind} up again from {ahead}: no broker starts with a log file of a wrong size"
        elif (tail := comparison.tails.get("a" if ahead == "A" else "b")) and tail.is_older:
            yield f"do not make {ahead} a master: a start treats older messages as new; it may follow {behind}"
        else:
            role = "node of the same group as" if comparison.a.node else "slave of"
            yield f"{behind} catches up as a {role} {ahead}, or can be set up again from {ahead}"
        if not comparison.request.fast:
            yield f"before {ahead} is ever cut to follow {behind}:"
            yield from _save(comparison, "a" if ahead == "A" else "b")
    yield from _derived(comparison)


def _derived(comparison: StoreComparison) -> Iterator[str]:
    if comparison.own_queue_differences:
        more = "too" if comparison.parting.damaged else "though the logs do not"
        yield f"queues differ, {more}; to find out which of them is right:"
        yield from (f"rmqtool verify {_path(side)}" for side in (comparison.a, comparison.b))


def _side(comparison: StoreComparison, name: Name) -> Side:
    return comparison.a if name == "a" else comparison.b


def _diff(comparison: StoreComparison) -> str:
    return f"rmqtool diff {_path(comparison.a)} {_path(comparison.b)}"


def _path(side: Side) -> str:
    return quote(str(side.snapshot.store.root))
