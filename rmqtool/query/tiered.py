"""Messages that only the tier of a store has: below what the local queue holds, as a broker joins the two.

The identity of a message is its topic, queue and queue offset: its physical offset in the tier is another one, so that
no message id leads there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import file_at
from rmqtool.broker.pull import Answer, Subscription
from rmqtool.broker.tiered_reads import NO_UNITS, TieredReads
from rmqtool.clients.queue_view import QueueViews
from rmqtool.formats.java import string_hash
from rmqtool.query.by_place import Elsewhere, Message, Notes, message_at
from rmqtool.rules.versions import Version
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.message_rows import BodyChoice, message_dicts
from rmqtool.scan.reader import scan_files
from rmqtool.store.queue_units import Unit
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import Level, Tier, TieredQueue, Unreadable, is_tier_read, level_of, tier_of, units_at
from rmqtool.store.tiered_index import hashes_of, items_of_hash, written_indexes
from rmqtool.store.unit_files import open_units

PLACE = "tiered"
_OTHER_SIZE = "it has another size than tieredStoreIndexFileMaxHashSlotNum and ...MaxIndexNum of broker.conf give it"


@dataclass(frozen=True)
class TieredView:
    """One queue of the tier, as far as the local queue does not have it: from queue offset `start` to `stop`."""

    queue: TieredQueue
    start: int
    stop: int

    @property
    def elsewhere(self) -> Elsewhere:
        """Where its messages are read."""
        return Elsewhere(PLACE, self.queue.log)

    def unit_at(self, queue_offset: int) -> Unit | None:
        """The unit of a message that only the tier has."""
        return next(self.units(queue_offset, 1), None) if self.start <= queue_offset < self.stop else None

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """At most `count` units from `queue_offset` on."""
        stop = min(self.stop, queue_offset + count)
        with open_units(self.queue.queue) as units:
            for number, row in enumerate(units.units(queue_offset, max(0, stop - queue_offset)).tolist(), queue_offset):
                file, position = units.location_of(number)
                yield Unit(number, row[0], row[1], row[2], file or self.queue.directory, position)


def tier_in_use(snapshot: Snapshot, notes: Notes | None = None) -> Tier | None:
    """The tier from which consumers of a store get what the local queues no longer have."""
    if Tier not in snapshot.kept:
        snapshot.kept[Tier] = tier_of(snapshot.store)
    tier = snapshot.kept[Tier]
    if isinstance(tier, Unreadable) and notes is not None:
        notes.add(f"tiered storage is not read: {tier.why}", lossy=True)
    return tier if isinstance(tier, Tier) and is_tier_read(snapshot.store) else None


def tiered_views(snapshot: Snapshot, tier: Tier) -> Iterator[TieredView]:
    """All queues of the tier with messages that the local queues do not have."""
    for queue in tier.queues:
        view = _view(snapshot, queue)
        if view.start < view.stop:
            yield view


def tiered_view(snapshot: Snapshot, topic: str, queue_id: int, notes: Notes) -> TieredView | None:
    """One queue of the tier; None where it has none, or nothing that the local queue does not have."""
    tier = tier_in_use(snapshot, notes)
    queue = tier.queue(topic, queue_id) if tier else None
    return _view(snapshot, queue) if queue else None


def _view(snapshot: Snapshot, queue: TieredQueue) -> TieredView:
    local = QueueViews.of_snapshot(snapshot).loaded(queue.topic, queue.queue_id)
    stop = min(queue.max_offset, local.range.held.start) if local and local.range.held else queue.max_offset
    return TieredView(queue, queue.min_offset, stop)


def pull_tiered(
    snapshot: Snapshot, view: TieredView, queue_offset: int, most: int, subscription: Subscription, version: Version
) -> Answer | None:
    """The answer of the tier to a pull; None where the local store answers (`TieredMessageStore#getMessageAsync`)."""
    tier, queue = tier_in_use(snapshot), view.queue
    local = QueueViews.of_snapshot(snapshot).loaded(queue.topic, queue.queue_id)
    is_local = bool(local and queue_offset in local.range.held)
    is_forced = level_of(snapshot.store) is Level.FORCE
    if tier is None or not tier.is_known(queue, version) or (is_local and not is_forced):
        return None
    with closing(OpenFiles(snapshot.reading)) as open_files:
        reads = TieredReads.of(tier, queue, version, open_files)
        if queue_offset >= reads.max_offset and not is_forced:
            return None
        answer = reads.pull(queue_offset, most, subscription)
    if answer is None:
        if is_local:
            return None
        answer = Answer("OFFSET_FOUND_NULL", queue_offset, reads.min_offset, reads.max_offset), NO_UNITS
    found, leading = answer
    if local and local.range.min_offset >= 0:
        found.min_offset = min(found.min_offset, local.range.min_offset)
    with open_units(queue.queue, snapshot.reading) as units:
        for number, row in enumerate(leading.tolist(), queue_offset):
            file, position = units.location_of(number)
            found.units.append(Unit(number, row[0], row[1], row[2], file or queue.directory, position))
    return found


def tiered_message(snapshot: Snapshot, view: TieredView, queue_offset: int, body: BodyChoice) -> Message | None:
    """The message at a queue offset that only the tier has."""
    unit = view.unit_at(queue_offset)
    return message_at(snapshot, unit.physical_offset, body, view.elsewhere) if unit else None


def tiered_runs(snapshot: Snapshot, view: TieredView, notes: Notes) -> Iterator[RecordRun]:
    """The records of a queue that only the tier has: those to which units lead, of uploads that were repeated once."""
    for event in scan_files(view.queue.log, reading=snapshot.reading):
        if isinstance(event, Damage):
            notes.add("the tier has damage: messages that were stored there cannot be found", lossy=True)
        if not isinstance(event, RecordRun):
            continue
        numbers = event.headers.field("queue_offset").astype(np.int64)
        rows = np.flatnonzero((numbers >= view.start) & (numbers < view.stop))
        if not len(rows):
            continue
        with open_units(view.queue.queue, snapshot.reading) as units:
            leading = units_at(units, numbers[rows])["physical_offset"]
        rows = rows[leading == event.physical_offsets[rows]]
        if len(rows):
            yield event if len(rows) == len(event) else sound_prefix(event.block, event.positions[rows])


def tiered_dicts(snapshot: Snapshot, view: TieredView, run: RecordRun, body: BodyChoice) -> Iterator[Message]:
    """The records of a run as messages, with where they lie."""
    mapped = file_at(view.queue.log, run.physical_offset)
    name = snapshot.store.relative(mapped.path) if mapped else ""
    for message in message_dicts(run, name, body):
        yield {**message, "message_id": None, "place": PLACE}


def tiered_by_keys(
    snapshot: Snapshot, topics: Sequence[str], key: str, body: BodyChoice, notes: Notes
) -> Iterator[Message]:
    """The messages that the tier's index leads to, and that only the tier has; hashes of all releases are looked up."""
    tier = tier_in_use(snapshot, notes)
    if tier is None:
        return
    ids = {number: topic for topic, number in tier.topic_ids.items()}
    views = {(view.queue.topic, view.queue.queue_id): view for view in tiered_views(snapshot, tier)}
    hashes = {value for topic in topics for value in hashes_of(string_hash(f"{topic}#{key}"))}
    for each in written_indexes(tier):
        if not each.is_readable:
            notes.add(f"{snapshot.store.relative(each.file.path)} is not read: {_OTHER_SIZE}", lossy=True)
    seen = set[tuple[str, int, int]]()
    for item in chain.from_iterable(items_of_hash(tier, value) for value in hashes):
        name = ids.get(int(item["topic_id"]), ""), int(item["queue_id"])
        view = views.get(name)
        message = message_at(snapshot, int(item["physical_offset"]), body, view.elsewhere) if view else None
        if view is None or message is None or not view.start <= message["queue_offset"] < view.stop:
            continue
        place = (*name, message["queue_offset"])
        if place not in seen:
            seen.add(place)
            yield message
