"""The queues without what leads past the new end of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.repair.change import Change, Resized, TakenOut, name_in_store
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import end_of_batch
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONSUME_QUEUE_EXT, Store
from rmqtool.store.unit_files import UnitFiles, open_units


@dataclass(frozen=True)
class CutQueue:
    """A queue that loses units: it ended before the queue offset `max_before`, and then ends before `max_after`.

    `number` is that of its first unit that goes. One that `begins_again` has no unit left, and had others before these:
    its next message gets queue offset 0.
    """

    queue: Queue
    number: int
    max_before: int
    max_after: int
    begins_again: bool

    @property
    def name(self) -> QueueName:
        """Topic and queue id."""
        return QueueName(self.queue.topic, self.queue.queue_id)

    @property
    def messages(self) -> int:
        """How many messages go."""
        return self.max_before - self.max_after


def cut_queues(snapshot: Snapshot, offset: int) -> Iterator[CutQueue]:
    """The queues with units of messages at an offset or after it."""
    for queue in snapshot.queues:
        with open_units(queue, snapshot.reading) as units:
            end = units.data_end
            number = units.bisect(offset)
            if number >= end:
                continue
            has_more = number > units.start and not _is_filler(units, number - 1)
            if queue.kind == "batch":
                first, last = units.units(number, 1)[0], units.units(end - 1, 1)[0]
                base = int(first["base_queue_offset"])
                after = end_of_batch(units.units(number - 1, 1)[0]) if has_more else 0
                yield CutQueue(queue, number, end_of_batch(last), after, base > 0 and not has_more)
            else:
                yield CutQueue(queue, number, end, number if has_more else 0, number > 0 and not has_more)


def _is_filler(units: UnitFiles, number: int) -> bool:
    unit = units.units(number, 1)
    return units.queue.kind == "simple" and units.queue.database is None and bool(is_pre_blank(unit)[0])


def queue_changes(store: Store, cut: Sequence[CutQueue]) -> Iterator[Change]:
    """The changes of the queues in files; raises UnsupportedError for one behind a link."""
    in_files = [each for each in cut if each.queue.database is None]
    for each in in_files:
        if each.max_after:
            yield from _shorter(store, each)
    yield from _gone(store, [each for each in in_files if not each.max_after])


def _shorter(store: Store, cut: CutQueue) -> Iterator[Change]:
    files, position = cut.queue.files.files, cut.number * cut.queue.unit_size
    where = f"topic {cut.queue.topic}, queue {cut.queue.queue_id}"
    for file in files:
        if file.start_offset < position < file.end_offset:
            yield Resized(
                codes=frozenset(), what=f"{where}: ends before {cut.max_after}", name=required_name(store, file.path),
                path=file.path, kept=position - file.start_offset, new_size=file.size,
            )  # fmt: skip
    gone = tuple(required_name(store, file.path) for file in files if file.start_offset >= position)
    if gone:
        yield TakenOut(codes=frozenset(), what=f"{where}: files after {cut.max_after}", details=gone)


def _gone(store: Store, cut: Sequence[CutQueue]) -> Iterator[Change]:
    """The queues without a message, with their ext units; topics of which no queue is left as a whole."""
    directories = [each.queue.files.files[0].path.parent for each in cut]
    names = (f"{each.queue.topic}/{each.queue.queue_id}" for each in cut)
    directories += [path for name in names if (path := store.root / CONSUME_QUEUE_EXT / name).exists()]
    by_topic: dict[Path, list[Path]] = {}
    for directory in directories:
        by_topic.setdefault(directory.parent, []).append(directory)
    for topic, gone in by_topic.items():
        is_all = {entry.name for entry in list_directory(topic)} <= {path.name for path in gone}
        details = tuple(required_name(store, path) for path in ([topic] if is_all else gone))
        what = f"topic {topic.name}: {counted(len(gone), 'queue')} without a message"
        yield TakenOut(codes=frozenset(), what=what, details=details)


def required_name(store: Store, path: Path) -> str:
    """The name of a file in the store; raises UnsupportedError where no transaction reaches it."""
    name = name_in_store(store, path)
    if name is None:
        raise UnsupportedError(
            "outside the store, in a linked directory or on another disk: nothing is changed there", file=path,
            hint="rmqtool copy creates a store with everything in one place; cut that",
        )  # fmt: skip
    return name
