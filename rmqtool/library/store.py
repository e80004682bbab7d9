"""A store for Python programs: what it holds, its messages, and what is wrong with it. Nothing in it is changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import UsageError
from rmqtool.base.paths import path_of
from rmqtool.base.times import parse_time
from rmqtool.clean.plan import CleanPlan, next_deletions
from rmqtool.library.messages import Message, Messages
from rmqtool.library.verified import Verified, verified
from rmqtool.query.by_key import KeyQuery, by_any_id, by_key
from rmqtool.query.by_place import by_offset, by_queue_offset
from rmqtool.query.notes import Notes
from rmqtool.rules.broker_conf import BrokerConf, read_broker_conf
from rmqtool.rules.versions import parse_version
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.store.message_query import INCLUDABLE, make_query
from rmqtool.store.named_stores import NamedStore
from rmqtool.store.queue_range import QueueRange
from rmqtool.store.queue_units import LoadedQueue, Unit
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.why_nothing import why_nothing

Time = datetime | int | str
"""A moment: a datetime, epoch ms, or what `--from` takes, such as ``"2026-11-21 10:52"`` or ``"-2h"``."""


def open_path(path: str | Path, *, broker_conf: str | Path | None = None, broker_version: str | None = None) -> Store:
    """Open a store, the directory that broker.conf calls storePathRootDir, or the URI of one on another machine.

    `broker_version` is the release whose rules count, by default the newest that fits. Raises NotAStoreError,
    UnreadableError, and UsageError for a `broker_conf` or version that cannot be understood.
    """
    conf = read_broker_conf(Path(broker_conf)) if broker_conf else BrokerConf()
    version = parse_version(broker_version) if broker_version else None
    return Store(Snapshot(open_store(path_of(path), conf), version))


@dataclass(frozen=True)
class GroupOffset:
    """What a consumer group has committed of a queue; `lag` is in messages, None where the queue is missing."""

    group: str
    topic: str
    queue_id: int
    offset: int
    lag: int | None


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
        """Make it with `rmqtool.open`."""
        self._snapshot = snapshot
        self.path = snapshot.store.root

    def __repr__(self) -> str:
        return f"rmqtool.open({str(self.path)!r})"

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics that have queues or are configured, sorted."""
        return tuple(sorted(self._snapshot.topic_names))

    @cached_property
    def queues(self) -> tuple[tuple[str, int], ...]:
        """Topic and queue id of every consume queue."""
        return tuple((queue.topic, queue.queue_id) for queue in self._snapshot.queues)

    def queue(self, topic: str, queue_id: int) -> Queue:
        """One queue; raises UsageError, with the names that there are, where there is no such queue."""
        loaded = self._snapshot.queue(topic, queue_id)
        if loaded is None:
            raise UsageError(why_nothing(self._snapshot, Filters(topics=(topic,), queue_ids=(queue_id,))))
        return Queue(loaded)

    @cached_property
    def consumer_offsets(self) -> tuple[GroupOffset, ...]:
        """Committed offsets of all groups, with their lag."""
        return tuple(self._group_offsets())

    def _group_offsets(self) -> Iterator[GroupOffset]:
        for each in self._snapshot.committed.offsets:
            loaded = self._snapshot.queue(each.topic, each.queue_id)
            lag = loaded.range.max_offset - each.offset if loaded else None
            yield GroupOffset(each.group, each.topic, each.queue_id, each.offset, lag)

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
        bodies are as they are. Raises UsageError for a time that cannot be understood.
        """
        filters = Filters(
            topics=_several(topic),
            excluded_topics=_several(exclude_topic),
            queue_ids=(queue_id,) if isinstance(queue_id, int) else tuple(queue_id),
            tags=_several(tag),
            keys=_several(key),
            from_timestamp=_epoch_ms(since),
            to_timestamp=_epoch_ms(until),
            from_offset=from_offset,
            to_offset=to_offset,
        )
        query = make_query(None, body, filters, include)
        return Messages(NamedStore(self.path.name, self._snapshot.store), query, skips_damage=on_damage == "skip")

    def find(
        self,
        *,
        key: str | None = None,
        message_id: str | None = None,
        offset: int | None = None,
        queue_offset: tuple[str, int, int] | None = None,
        topic: str | Sequence[str] = (),
    ) -> list[Message]:
        """Messages by key, by id (offset message id or unique key), by physical offset, or by topic, queue and offset.

        Keys and unique keys are looked up in the index, in `topic` or in all; nothing found is an empty list. Raises
        UsageError unless one of the four is given.
        """
        if sum(each is not None for each in (key, message_id, offset, queue_offset)) != 1:
            raise UsageError("find one of key, message_id, offset and queue_offset")
        snapshot, notes = self._snapshot, Notes()
        if key is not None:
            found = by_key(snapshot, KeyQuery(key, _several(topic)), "none", notes)
        elif message_id is not None:
            found = by_any_id(snapshot, message_id.strip(), "none", notes)
        elif offset is not None:
            found = by_offset(snapshot, offset, "none", notes)
        else:
            name, queue_id, number = queue_offset or ("", 0, 0)
            found = by_queue_offset(snapshot, (name, queue_id), number, "none", notes)
        return [*chain.from_iterable(self._at(int(each["physical_offset"])) for each in found)]

    def verify(self, *, jobs: int = 1) -> Verified:
        """Check every message, queue entry and index entry, as ``rmqtool verify`` does, with so many processes."""
        return verified(self._snapshot.store, self._snapshot.version, jobs)

    def clean_plan(self, *, now: Time | None = None, all_runs: bool = False) -> CleanPlan:
        """What the broker's cleaner deletes with its next run, or with all until one deletes nothing."""
        moment = _epoch_ms(now)
        moment = time.time_ns() // 1_000_000 if moment is None else moment
        return next_deletions(self._snapshot.store, self._snapshot.version, moment, all_runs=all_runs)

    def _at(self, physical_offset: int) -> Messages:
        return self.messages(
            from_offset=physical_offset, to_offset=physical_offset + 1, include=tuple(INCLUDABLE), on_damage="skip"
        )


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _epoch_ms(moment: Time | None) -> int | None:
    if isinstance(moment, str):
        try:
            return parse_time(moment)
        except ValueError as error:
            raise UsageError(str(error)) from error
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
