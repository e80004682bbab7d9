"""How far consumer groups have consumed a queue, and since when (`ConsumerOffsetManager`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.base.errors import note_failure
from rmqtool.base.paths import modified_ms
from rmqtool.base.times import with_times
from rmqtool.clients.queue_view import QueueHole, QueueView, QueueViews
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_filled_by_brokers
from rmqtool.store.config_json import backup_of
from rmqtool.store.config_tables import CommittedOffset, offsets_in
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.snapshot import Snapshot

_COPIED_MS = 1000  # a .bak that is so much older than its file was not made with it


@dataclass(frozen=True)
class GroupOffset:
    """A group's offset in a queue; `committed` is None for a retry or dead letter queue that it never consumed.

    `view` is what consumers reach of the queue.
    """

    group: str
    topic: str
    queue_id: int
    committed: int | None
    queue: LoadedQueue | None
    last_consumed_timestamp: int | None = None
    is_hidden: bool = False  # whether the queue may have more in RocksDB than can be read
    view: QueueView = field(default_factory=QueueView)
    is_served: bool = True  # whether the topic's configuration lets consumers read the queue

    @property
    def state(self) -> str:
        """How the offset fits the queue: ok, hole, below-min, beyond-max, no-queue, never-consumed or unread.

        not-served where the topic's configuration keeps consumers from it.
        """
        if self.queue is None:
            return "unread" if self.is_hidden else "no-queue"
        if self.hole:
            return "hole"
        if self.committed is None:
            return "never-consumed"
        if self.committed < self.queue.range.min_offset:
            return "below-min"
        if not self.is_served and self.committed < self.queue.range.max_offset:
            return "not-served"
        if self.committed > self._end:
            return "unread" if self.is_hidden else "beyond-max"
        return "ok"

    @property
    def hole(self) -> QueueHole | None:
        """The first hole of the queue that keeps messages from the group."""
        return self.view.from_offset(self.committed or 0)[0]

    @property
    def unreachable(self) -> int:
        """How many messages of the log the group has not got, and does not get because of holes."""
        return self.view.from_offset(self.committed or 0)[1]

    @property
    def lag(self) -> int | None:
        """Messages that the group gets from its offset on, with those that the next start derives; None: not known."""
        if self.queue is None or self.is_hidden:
            return None
        return self._end - (self.queue.range.min_offset if self.committed is None else self.committed)

    @property
    def _end(self) -> int:
        """The queue's maximum as the log proves it, but at the hole where it ends at one."""
        return self.queue.range.max_offset + self.view.derived if self.queue else 0

    def as_json(self) -> dict[str, Any]:
        """The line of the machine interface."""
        offsets, hole = self.queue.range if self.queue else None, self.hole
        return with_times({
            "kind": "consumer", "group": self.group, "topic": self.topic, "queue_id": self.queue_id,
            "committed_offset": self.committed, "lag": self.lag,
            "min_offset": offsets.min_offset if offsets else None,
            "max_offset": offsets.max_offset if offsets else None,
            "state": self.state, "hole": hole.as_json() if hole else None, "unreachable": self.unreachable,
            "after_next_start": self.view.derived, "last_consumed_timestamp": self.last_consumed_timestamp,
        })  # fmt: skip


def group_offsets(snapshot: Snapshot, group: str) -> Iterator[GroupOffset]:
    """Every offset that a group has committed, and its retry and dead letter queues, by topic and queue."""
    seen, views = set(), QueueViews.of_snapshot(snapshot)
    for item in snapshot.committed.offsets:
        if item.group == group:
            seen.add((item.topic, item.queue_id))
            yield _group_offset(snapshot, item, views)
    missing = [*views.missing()]
    for topic in (RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group):
        ids = {*snapshot.queue_ids(topic), *(name.queue_id for name in missing if name.topic == topic)}
        for queue_id in sorted(ids):
            if (topic, queue_id) not in seen:
                queue, view = views.loaded(topic, queue_id), views.of(topic, queue_id)
                yield GroupOffset(group, topic, queue_id, None, queue, is_hidden=snapshot.hides_entries, view=view)


def groups_of(snapshot: Snapshot) -> list[str]:
    """The groups that have committed an offset."""
    return sorted({item.group for item in snapshot.committed.offsets})


def _group_offset(snapshot: Snapshot, item: CommittedOffset, views: QueueViews) -> GroupOffset:
    queue = views.loaded(item.topic, item.queue_id)
    last = queue.unit_at(item.offset - 1) if queue and 0 < item.offset <= queue.range.max_offset else None
    timestamp = snapshot.log_bytes.store_timestamp(last.physical_offset, last.message_size) if last else -1
    is_hidden = snapshot.leaves_queues_out or snapshot.hides_entries
    consumed = None if timestamp < 0 else timestamp
    view = views.of(item.topic, item.queue_id, item.offset)
    topic = snapshot.topics.by_name.get(item.topic)
    is_served = topic is None or topic.serves(item.queue_id) or is_filled_by_brokers(item.topic)
    return GroupOffset(item.group, item.topic, item.queue_id, item.offset, queue, consumed, is_hidden, view, is_served)


def passed_by(snapshot: Snapshot, topic: str, queue_id: int, queue_offset: int) -> list[dict[str, Any]]:
    """The groups that consume a queue, and whether they have passed an offset, by the two offset files.

    The broker writes its offsets every few seconds and keeps the previous file as ``.bak``: a group that is behind the
    offset there passed it between the two. Before 5.3.4 the ``.bak`` is a copy, made when the new file is written: its
    time shows nothing then.
    """
    file = snapshot.committed.file
    path = file.path
    if path is None:
        return []
    earlier = {(each.group, each.topic, each.queue_id): each.offset for each in offsets_in(file.before)}
    as_of = None if path.is_dir() else _modified(path)  # of a database no file says when
    before_that = None if file.is_backup else _modified(backup_of(path))
    if as_of is None or before_that is None or as_of - before_that < _COPIED_MS:
        before_that = None
    groups = []
    for item in snapshot.committed.offsets:
        if (item.topic, item.queue_id) != (topic, queue_id):
            continue
        before = earlier.get((item.group, topic, queue_id))
        consumed = item.offset > queue_offset
        after = before_that if consumed and before is not None and before <= queue_offset else None
        of_group = {"group": item.group, "committed_offset": item.offset, "consumed": consumed}
        groups.append(with_times({**of_group, "as_of_timestamp": as_of, "passed_after_timestamp": after}))
    return groups


def _modified(path: Path) -> int | None:
    """Modification time, epoch ms."""
    try:
        return modified_ms(path)
    except OSError as error:
        note_failure(path, error)
        return None
