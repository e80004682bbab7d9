"""A store for Python programs: what it holds, its messages, and what is wrong with it. Nothing in it is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqtool.base.errors import RmqtoolError, UsageError, failed_reads
from rmqtool.base.files import RateLimit
from rmqtool.base.numbers import EXAMPLES, JOBS, OFFSETS, PERCENT, QUEUE_IDS, RATE, SECONDS, byte_size
from rmqtool.base.paths import path_of
from rmqtool.base.times import parse_time
from rmqtool.base.visible import repeated_options
from rmqtool.findings.finding import counted, first_of
from rmqtool.library.checked import checked
from rmqtool.rules.broker_conf import BrokerConf, read_broker_conf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.tiered import with_tier

if TYPE_CHECKING:  # each command opens its store here, and loads only what it needs
    from rmqtool.clean.plan import CleanPlan
    from rmqtool.library.messages import Found, Messages
    from rmqtool.library.verified import Verified
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import BodyChoice
    from rmqtool.sql.engine import Answer
    from rmqtool.store.queue_units import LoadedQueue, QueueRange, Unit
    from rmqtool.verify.saved_progress import SavedProgress
    from rmqtool.verify.task import Companion, VerifyRequest
    from rmqtool.verify.verification import Verification

_NAMED = 20  # topics that a notebook names

Time = datetime | int | str
"""A moment: a datetime, epoch ms, or what `--from` takes, such as ``"2026-11-21 10:52"`` or ``"-2h"``."""


@checked(limit_rate=RATE)
def open_path(
    path: str | Path,
    *,
    broker_conf: str | Path | BrokerConf | None = None,
    broker_version: str | Version | None = None,
    limit_rate: int | RateLimit | None = None,
    tiered_path: str | Path | None = None,
) -> Store:
    """Open a store, the directory that broker.conf calls storePathRootDir, or the URI of one on another machine.

    `broker_version` is the release whose rules count, by default the newest that fits; `limit_rate` is in bytes per
    second; `tiered_path` is where its tiered storage is, where broker.conf does not say. Raises NotAStoreError,
    UnreadableError, and UsageError for a `broker_conf`, version or rate that cannot be understood, and as all that
    follows for an argument of another type.
    """
    conf = broker_conf or BrokerConf()
    conf = conf if isinstance(conf, BrokerConf) else read_broker_conf(Path(conf))
    conf = with_tier(conf, tiered_path)
    version = parse_version(broker_version) if isinstance(broker_version, str) else broker_version
    limit = RateLimit(limit_rate) if isinstance(limit_rate, int) else limit_rate
    return Store(Snapshot(open_store(path_of(path), conf), version, limit))


@dataclass(frozen=True)
class GroupOffset:
    """What a consumer group has committed of a queue; `lag` is in messages, None where the queue is missing.

    `unreachable` are messages of the log that it does not get, because queue entries are missing; no part of the lag.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    lag: int | None
    unreachable: int = 0


class Queue:
    """One consume queue, as a broker that has loaded it sees it."""

    def __init__(self, loaded: LoadedQueue) -> None:
        self._loaded = loaded
        self.topic = loaded.queue.topic
        self.queue_id = loaded.queue.queue_id

    @property
    def range(self) -> QueueRange:
        """Minimum and maximum offset; the maximum is exclusive."""
        return self._loaded.range

    def __repr__(self) -> str:
        return f"Queue({self.topic!r}, {self.queue_id}, offsets {self.range.min_offset} to {self.range.max_offset})"

    def units(self) -> Iterator[Unit]:
        """Its units from the minimum offset on, read from the disk a few at a time."""
        queue_offset = self.range.min_offset
        while queue_offset < self.range.max_offset:
            start = queue_offset
            for unit in self._loaded.units_from(queue_offset) or ():
                yield unit
                queue_offset = unit.queue_offset + unit.batch_size
            if queue_offset == start:
                return


class Store:
    """A store. Lists are those of the moment when they were first asked for; messages are read when iterated."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Make it with `rmqtool.open`. The `snapshot` is for rmqtool's own commands."""
        self.snapshot = snapshot
        self.path = snapshot.store.root

    def __repr__(self) -> str:
        return f"rmqtool.open({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """The store in a notebook: what is in it at a glance; the log is not read."""
        from rmqtool.library.notebook import facts_table

        try:
            log, running = self.snapshot.log, {None: "not known", True: "yes", False: "no"}
            facts = {
                "broker runs": running[self.snapshot.broker_runs],
                "commit log": f"{byte_size(log.size)} in {counted(len(log.files), 'file')}",
                "topics": f"{len(self.topics)}: {first_of(self.topics, _NAMED)}",
                "queues": len(self.queues),
                "groups": len({each.group for each in self.snapshot.committed.offsets}),
            }
        except RmqtoolError as error:
            facts = {"cannot be read": str(error)}
        return facts_table(repr(self), facts)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics that have queues or are configured, sorted."""
        return tuple(sorted(self.snapshot.topic_names))

    @cached_property
    def queues(self) -> tuple[tuple[str, int], ...]:
        """Topic and queue id of every consume queue."""
        return tuple((queue.topic, queue.queue_id) for queue in self.snapshot.queues)

    @checked()
    def queue(self, topic: str, queue_id: int) -> Queue:
        """One queue; raises UsageError, with the names that there are, where there is no such queue."""
        loaded = self.snapshot.queue(topic, queue_id)
        if loaded is None:
            from rmqtool.scan.filters import Filters
            from rmqtool.store.missing import why_nothing

            raise UsageError(why_nothing(self.snapshot, Filters(topics=(topic,), queue_ids=(queue_id,))))
        return Queue(loaded)

    @cached_property
    def consumer_offsets(self) -> tuple[GroupOffset, ...]:
        """Committed offsets of all groups, with their lag."""
        from rmqtool.clients.queue_view import QueueViews

        views, found = QueueViews.of_snapshot(self.snapshot), []
        for each in self.snapshot.committed.offsets:
            loaded = views.loaded(each.topic, each.queue_id)
            view = views.of(each.topic, each.queue_id)
            lag = loaded.range.max_offset + view.derived - each.offset if loaded else None
            unreachable = view.from_offset(each.offset)[1]
            found.append(GroupOffset(each.group, each.topic, each.queue_id, each.offset, lag, unreachable))
        return tuple(found)

    @checked(queue_id=QUEUE_IDS, from_offset=OFFSETS, to_offset=OFFSETS)
    def messages(
        self,
        *,
        topic: str | Sequence[str] = (),
        exclude_topic: str | Sequence[str] = (),
        queue_id: int | Sequence[int] = (),
        tag: str | Sequence[str] = (),
        key: str | Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        from_offset: int = 0,
        to_offset: int | None = None,
        include: Sequence[str] = (),
        body: BodyChoice = "decompressed",
        on_damage: Literal["raise", "skip"] = "raise",
    ) -> Messages:
        """The messages that pass all filters: stored from `since` to before `until`, at physical offsets in a range.

        A topic is a name, or a pattern with ``*``.

        `include` are ``"prepared"`` and ``"rolled-back"``, messages that no consumer sees. Damage raises RmqtoolError
        with its place when the reading comes to it, or is passed over: bytes that are no record are left out, and
        bodies are as they are. A topic of which there is nothing at all gives a warning with the nearest names. Raises
        UsageError for a time that cannot be understood.
        """
        from rmqtool.library.messages import Messages
        from rmqtool.store.message_reader import make_query
        from rmqtool.store.store import NamedStore

        filters = replace(
            self._filters(topic=topic, exclude_topic=exclude_topic, since=since, until=until),
            queue_ids=(queue_id,) if isinstance(queue_id, int) else tuple(queue_id),
            tags=_several(tag),
            keys=_several(key),
            from_offset=from_offset,
            to_offset=to_offset,
        )
        query = make_query(None, body, filters, include)
        query = replace(query, bytes_per_second=self.snapshot.bytes_per_second)
        named = NamedStore(self.path.name, self.snapshot.store)
        return Messages(named, query, self.snapshot, skips_damage=on_damage == "skip")

    @checked(offset=OFFSETS, limit=OFFSETS)
    def find(
        self,
        *,
        key: str | None = None,
        unique_key: str | None = None,
        message_id: str | None = None,
        offset: int | None = None,
        queue_offset: tuple[str, int, int] | None = None,
        body_contains: str | bytes | None = None,
        topic: str | Sequence[str] = (),
        exclude_topic: str | Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        limit: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Found:
        """Messages by key, id (offset message id or unique key), physical offset, topic with queue and offset, or body.

        Keys and unique keys are looked up in the index, up to `limit` units; for `body_contains` the log is read, up to
        `limit` messages. The other options choose among what these three find; for keys, times are those of the
        index, in whole seconds, both ends included. Nothing found is an empty list, whose `notes` say why. Raises
        UsageError unless one of the six is given, and for a choice that does not go with it.
        """
        from rmqtool.library.messages import Found, lookup_of
        from rmqtool.query.by_place import Notes
        from rmqtool.query.lookup import look_up
        from rmqtool.store.message_reader import INCLUDABLE

        filters = self._filters(topic=topic, exclude_topic=exclude_topic, since=since, until=until)
        contains = body_contains.encode() if isinstance(body_contains, str) else body_contains
        wanted = {"key": key, "unique_key": unique_key, "message_id": message_id, "offset": offset,
                  "queue_offset": queue_offset, "body_contains": contains}  # fmt: skip
        lookup, notes = lookup_of(wanted, filters, limit), Notes()
        rows = [*look_up(self.snapshot, lookup, "none", notes, progress)]
        every = partial(self.messages, include=tuple(INCLUDABLE), on_damage="skip")
        offsets = (int(row["physical_offset"]) for row in rows)
        messages = chain.from_iterable(every(from_offset=offset, to_offset=offset + 1) for offset in offsets)
        return Found(messages, notes)

    @checked(memory=OFFSETS, threads=JOBS)
    def sql(
        self,
        statement: str,
        *,
        columns: Sequence[str] = (),
        include: Sequence[str] = (),
        on_damage: Literal["raise", "skip"] = "raise",
        memory: int = 512 << 20,
        threads: int = 1,
    ) -> Answer:
        """The answer to one statement of SQL that reads the tables of ``rmqtool sql``; rows are read when taken.

        `columns` are more columns of messages, such as ``"body.cents:int as cents"``. `memory` is that of the engine,
        bytes. Raises UsageError for a statement that is wrong or does more than read,
        and UnsupportedError without the package duckdb.
        """
        from rmqtool.sql.engine import Database, Limits
        from rmqtool.sql.tables import Reading, Stores
        from rmqtool.store.message_reader import more_columns

        rate = self.snapshot.bytes_per_second
        query = replace(more_columns(columns), include=tuple(include), bytes_per_second=rate)
        reading = Reading(fails=on_damage == "raise")
        stores = Stores({self.path.name: self.snapshot}, query, reading)
        database = Database(stores, Limits(memory, threads=threads))
        try:
            return database.__enter__().ask(statement, database.close)
        except BaseException:
            database.close()
            raise

    @checked(jobs=JOBS, max_examples=EXAMPLES, time_limit=SECONDS)
    def verify(
        self,
        *,
        jobs: int = 1,
        only: str | Sequence[str] = (),
        skip: str | Sequence[str] = (),
        topic: str | Sequence[str] = (),
        exclude_topic: str | Sequence[str] = (),
        fast: bool = False,
        sample: float | None = None,
        time_limit: float | None = None,
        max_examples: int = 10,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verified:
        """Check every message, queue entry and index entry, as ``rmqtool verify`` does, with so many processes.

        The others are the options of the same names: `sample` is a share of 0 to 1, `time_limit` in seconds. `progress`
        is called with the bytes that are read, and with all there are to read.
        """
        from rmqtool.findings.catalogue import why_no_code
        from rmqtool.findings.report import Selection
        from rmqtool.library.messages import warn_of_unknown
        from rmqtool.scan.filters import TopicChoice
        from rmqtool.verify.task import VerifyRequest

        for code in (*_several(only), *_several(skip)):
            if why := why_no_code(code):
                raise UsageError(why)
        if not (sample is None or 0 < sample <= 1):
            raise UsageError(f"sample is a share above 0 and up to 1, not {sample!r}")
        topics = TopicChoice(_several(topic), _several(exclude_topic)) if topic or exclude_topic else None
        for each in _several(topic):
            warn_of_unknown(self.snapshot, each)
        selection = Selection(_several(only), _several(skip), topics)
        request = VerifyRequest(version=self.snapshot.version, selection=selection, max_examples=max_examples,
                                jobs=jobs, bodies=not fast, rate=self.snapshot.bytes_per_second,
                                time_limit=time_limit, sample=sample)  # fmt: skip
        return self.verified(request, progress)

    def verified(
        self,
        request: VerifyRequest,
        progress: Callable[[int, int], None] | None = None,
        companion: Callable[[], Companion | None] = lambda: None,
    ) -> Verified:
        """A verification by a request, for rmqtool's own commands; what `companion` returns reads the log with it."""
        from rmqtool.library.verified import Verified
        from rmqtool.verify.log_pass import workers_for
        from rmqtool.verify.outcome import outcome_of

        done = 0

        def on_read(size: int) -> None:
            nonlocal done
            done += size
            if progress is not None:
                progress(done, verification.total_bytes)

        jobs, of = request.jobs, self.snapshot
        with failed_reads(), workers_for(self.path, jobs) as pool:  # before there is a progress bar, which has a thread
            verification = self.verification(request, companion=companion())
            on_read(0)
            verification.run(on_read, pool)
        options = repeated_options(of.store.conf.path, of.version, of.bytes_per_second, jobs)
        return Verified(outcome_of(verification), options)

    def verification(
        self, request: VerifyRequest, saved: SavedProgress | None = None, companion: Companion | None = None
    ) -> Verification:
        """A verification before it has run, for rmqtool's own commands; `saved` is the progress of earlier runs."""
        from rmqtool.verify.verification import Verification

        return Verification(self.snapshot.store, request, saved, companion)

    @checked(disk_used_percent=PERCENT)
    def clean_plan(
        self,
        *,
        now: Time | None = None,
        all_runs: bool = False,
        manual: bool = False,
        first_file_in_use: bool = False,
        settings: Mapping[str, str] | None = None,
        disk_used_percent: float | None = None,
        zone: tzinfo | None = None,
    ) -> CleanPlan:
        """What the broker's cleaner deletes with its next run, or with all until one deletes nothing.

        The others take something to be otherwise than it is, as the options of ``rmqtool clean`` do: `settings` of
        broker.conf, how full the disk is, the zone of `deleteWhen`.
        """
        from rmqtool.clean.plan import AsIf, next_deletions

        moment = _epoch_ms(now)
        moment = time.time_ns() // 1_000_000 if moment is None else moment
        used = None if disk_used_percent is None else disk_used_percent / 100
        as_if = AsIf(settings or {}, used, zone, manual, first_file_in_use)
        of = self.snapshot
        return next_deletions(of.store, of.version, moment, as_if, limit=of.reading.rate_limit, all_runs=all_runs)

    @staticmethod
    def _filters(
        *, topic: str | Sequence[str], exclude_topic: str | Sequence[str], since: Time | None, until: Time | None
    ) -> Filters:
        from rmqtool.scan.filters import Filters

        return Filters(topics=_several(topic), excluded_topics=_several(exclude_topic),
                       from_timestamp=_epoch_ms(since), to_timestamp=_epoch_ms(until))  # fmt: skip


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _epoch_ms(moment: Time | None) -> int | None:
    if isinstance(moment, str):
        try:
            return parse_time(moment)
        except ValueError as error:
            raise UsageError(str(error)) from error
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
