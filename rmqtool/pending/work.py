"""All that waits in a store: counted by kind and receiver, and the messages that are most urgent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.times import MAX_TIMESTAMP
from rmqtool.base.tolerant import ReadErrors
from rmqtool.base.visible import quote
from rmqtool.findings.finding import counted
from rmqtool.pending.messages import (
    KINDS,
    OWED,
    SCHEMA,
    Kind,
    Notes,
    View,
    dead_letters,
    is_true,
    lost_halves,
    pending_halves,
    retries,
)
from rmqtool.pending.timers import Timers, delayed, lost_timers, popped, timed
from rmqtool.rules.broker_conf import known_levels
from rmqtool.scan.filters import TopicChoice
from rmqtool.store.snapshot import HIDDEN_ENTRIES, Snapshot

Reason = tuple[Kind, int | None, str | None, str | None]
_GROUPED = ["kind", "level", "to_topic", "group"]


@dataclass(frozen=True)
class PendingRequest:
    """What is asked for: `now` is epoch ms, `due_before` likewise; empty filters let all through."""

    now: int
    kinds: tuple[Kind, ...] = ()
    topics: TopicChoice = field(default_factory=TopicChoice)
    groups: tuple[str, ...] = ()
    due_before: int | None = None
    limit: int = 0  # messages that are listed

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Which rows pass the filters."""
        passed = pa.array(np.ones(rows.num_rows, dtype=np.bool_))
        for name, values in (("kind", self.kinds), ("group", self.groups)):
            if values:
                passed = pc.and_(passed, pc.is_in(rows.column(name), pa.array(values, pa.string())))
        if self.topics:
            passed = pc.and_(passed, pa.array(self.topics.mask(rows.column("to_topic"))))
        if self.due_before is not None:
            passed = pc.and_(passed, pc.less(rows.column("due_timestamp"), self.due_before).fill_null(False))
        return passed


@dataclass(frozen=True)
class Count:
    """Messages that wait for the same reason: how many, how many of them were due, and when, epoch ms.

    `first_due` and `last_due` are of all, `next_due` of those that are not due yet; None where none has a time.
    """

    messages: int = 0
    overdue: int = 0
    first_due: int | None = None
    next_due: int | None = None
    last_due: int | None = None

    def __add__(self, other: Count) -> Count:
        return Count(
            self.messages + other.messages,
            self.overdue + other.overdue,
            _least(self.first_due, other.first_due),
            _least(self.next_due, other.next_due),
            max((due for due in (self.last_due, other.last_due) if due is not None), default=None),
        )


@dataclass(frozen=True)
class Receiver:
    """For whom messages of one kind wait: a topic as its consumers see it, and a group where it is for one."""

    kind: Kind
    level: int | None
    topic: str | None
    group: str | None
    count: Count


@dataclass(frozen=True)
class ByReason:
    """What waits for one reason: the topics and groups that it is for, and how many messages."""

    kind: Kind
    level: int | None
    topics: list[str]
    groups: list[str]
    count: Count


@dataclass(frozen=True)
class PendingWork:
    """What waits: by receiver, the listed messages (SCHEMA), the most urgent first, and what is not known."""

    request: PendingRequest
    receivers: tuple[Receiver, ...]
    messages: pa.Table
    notes: Notes
    unread: tuple[RmqtoolError, ...]

    def total(self, *kinds: Kind) -> Count:
        """The sum of all messages of some kinds."""
        return sum((each.count for each in self.receivers if each.kind in kinds), Count())

    @property
    def owed(self) -> Count:
        """All that is still to be delivered."""
        return self.total(*OWED)

    @property
    def reasons(self) -> list[ByReason]:
        """What waits by kind and level; what has been due longest comes first."""
        found = []
        for (kind, level), members in groupby(self.receivers, key=lambda each: (each.kind, each.level)):
            of_reason = list(members)
            topics = sorted({each.topic for each in of_reason if each.topic is not None})
            groups = sorted({each.group for each in of_reason if each.group is not None})
            found.append(ByReason(kind, level, topics, groups, sum((each.count for each in of_reason), Count())))
        return sorted(found, key=lambda each: _urgency(each.kind, each.count))

    @property
    def is_whole(self) -> bool:
        """Whether everything could be read."""
        return not self.unread and not self.notes.unread


def pending_work(
    snapshot: Snapshot, errors: ReadErrors, request: PendingRequest, progress: Callable[[int], None]
) -> PendingWork:
    """Look at all that waits; `errors` are those of the snapshot, `progress` is told how many bytes were read."""
    view = View(snapshot, errors, request.now, progress)
    counts: dict[Reason, Count] = {}
    most_urgent = SCHEMA.empty_table()
    if snapshot.holder:
        view.notes.add_uncertain("messages delivered meanwhile", "a broker runs on the store")
    if snapshot.hides_entries:
        view.notes.add_uncertain("newer messages", HIDDEN_ENTRIES)
    for kept in _kept(view, request):
        for reason, count in _counted(kept, request.now):
            counts[reason] = counts.get(reason, Count()) + count
        if request.limit:
            most_urgent = _most_urgent(pa.concat_tables([most_urgent, pa.Table.from_batches([kept])]), request.limit)
    receivers = tuple(Receiver(*reason, count) for reason, count in counts.items())
    ranked = sorted(receivers, key=_rank)
    return PendingWork(request, tuple(ranked), most_urgent, view.notes, tuple(errors.errors))


def waiting_messages(snapshot: Snapshot, errors: ReadErrors, request: PendingRequest) -> Iterator[pa.RecordBatch]:
    """The messages that wait, rows of SCHEMA, however many; `errors` are those of the snapshot."""
    return _kept(View(snapshot, errors, request.now, lambda _: None), request)


def _kept(view: View, request: PendingRequest) -> Iterator[pa.RecordBatch]:
    for rows in _sources(view, request):
        kept = rows.filter(request.mask(rows))
        if kept.num_rows:
            yield kept


def _sources(view: View, request: PendingRequest) -> Iterator[pa.RecordBatch]:
    wanted = request.kinds or KINDS
    timers = Timers(view)
    sources: dict[Kind, Callable[[], Iterator[pa.RecordBatch]]] = {
        "delay": lambda: delayed(view),
        "lost-delay": lambda: delayed(view, are_lost=True),
        "timer": lambda: timed(view, timers),
        "lost-timer": lambda: lost_timers(view, timers),
        "half": lambda: pending_halves(view),
        "lost-half": lambda: lost_halves(view),
        "pop": lambda: popped(view, timers),
        "retry": lambda: retries(view),
        "dead-letter": lambda: dead_letters(view),
    }
    for kind in KINDS:
        if kind in wanted:
            with view.errors.scope():
                yield from sources[kind]()


def _counted(rows: pa.RecordBatch, now: int) -> Iterator[tuple[Reason, Count]]:
    due = rows.column("due_timestamp")
    is_overdue = pc.less(due, now)
    upcoming = pc.if_else(is_overdue.fill_null(False), pa.scalar(None, pa.int64()), due)
    table = pa.Table.from_batches([rows.select([*_GROUPED, "due_timestamp"])])
    table = table.append_column("overdue", pa.array(is_true(is_overdue).astype(np.int64)))
    table = table.append_column("upcoming", upcoming)
    sums = table.group_by(_GROUPED).aggregate(
        [("kind", "count"), ("overdue", "sum"), ("due_timestamp", "min"), ("upcoming", "min"), ("due_timestamp", "max")]
    )
    names = ["kind_count", "overdue_sum", "due_timestamp_min", "upcoming_min", "due_timestamp_max"]
    for row in sums.to_pylist():
        yield tuple(row[name] for name in _GROUPED), Count(*(row[name] for name in names))


def _most_urgent(rows: pa.Table, limit: int) -> pa.Table:
    """The first rows by due time; what has none comes last, dead letters after everything else."""
    ranks = pc.index_in(rows.column("kind"), pa.array(KINDS, pa.string()))
    keyed = rows.append_column("rank", ranks)
    keys = [(name, "ascending") for name in ("due_timestamp", "rank", "topic", "queue_id", "queue_offset")]
    return rows.take(pc.sort_indices(keyed, sort_keys=keys)[:limit]).combine_chunks()


def _urgency(kind: Kind, count: Count) -> tuple[bool, bool, int, int]:
    due = count.first_due
    return kind not in OWED, not count.overdue, MAX_TIMESTAMP if due is None else due, KINDS.index(kind)


def _rank(receiver: Receiver) -> tuple[int, int, int, str, str]:
    order = KINDS.index(receiver.kind), receiver.level or 0, -receiver.count.overdue
    return (*order, receiver.topic or "", receiver.group or "")


def _least(one: int | None, other: int | None) -> int | None:
    return min((due for due in (one, other) if due is not None), default=None)


def next_steps(snapshot: Snapshot, work: PendingWork, listing: str | None = None) -> list[str]:
    """Sentences and commands, in the order in which to follow them; `listing` is the command that lists what waits."""
    return list(_steps(snapshot, work, listing))


def _steps(snapshot: Snapshot, work: PendingWork, listing: str | None) -> Iterator[str]:
    store = quote(str(snapshot.store.root))
    given = f" --broker-version {snapshot.releases.newest}" if snapshot.releases.is_named else ""
    given += f" --broker-conf {quote(snapshot.store.conf.path)}" if snapshot.store.conf.path else ""
    lost = work.total("lost-timer").messages
    if lost:
        yield f"{counted(lost, 'timer message')} would never be delivered: rmqtool verify {store}{given}"
    known = known_levels(snapshot.store.conf)
    of_levels = {each.level: each.count.messages for each in work.reasons if each.kind == "lost-delay" and each.level}
    unset = {level: count for level, count in of_levels.items() if known and level > known.highest}
    if unset:
        yield f"{counted(sum(unset.values()), 'delayed message')} would never be delivered: in broker.conf, " \
              f"messageDelayLevel must have {counted(max(unset), 'level')}"  # fmt: skip
    if lost := sum(of_levels.values()) - sum(unset.values()):
        yield f"{counted(lost, 'delayed message')} would never be delivered: rmqtool verify {store}{given}"
    skipped = work.total("lost-half").messages
    if skipped:
        yield f"{counted(skipped, 'half message')} would never be checked: rmqtool verify {store}{given}"
    if work.unread or work.notes.unread:
        yield f"see what is damaged: rmqtool verify {store}{given}"
    offset = work.messages.column("physical_offset")[0].as_py() if work.messages.num_rows else None
    if offset is not None:
        yield f"see the first of them: rmqtool query {store}{given} --offset {offset} --trace"
    elif work.owed.messages and not work.messages.num_rows:
        yield f"list them: {listing or f'rmqtool pending {store}{given} --list'}"
    if work.total("delay", "timer", "pop").overdue:
        yield "overdue messages are delivered as soon as the broker starts: have their consumers ready"
    if work.total("half").messages:
        yield (
            "the broker asks the producers of half messages when it starts: have them ready, or the messages are "
            "given up"
        )
