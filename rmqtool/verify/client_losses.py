"""What clients lose by the damage of a store and its next start, from what the verification has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path

from rmqtool.base.errors import UnreadableError
from rmqtool.broker.destinations import offsets_by_queue
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import DecodedDamage
from rmqtool.broker.dispatched_units import TIMER_QUEUE, QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import PROPERTIES, FieldDamage
from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.clients.delays import DelayRequest, LogEvidence, come_again, delayed_due
from rmqtool.clients.groups import Ranges, may_have_been, moved_groups, ranges_after_start
from rmqtool.clients.keys import IndexAfter
from rmqtool.clients.losses import (
    BesideLog,
    ClientLosses,
    Due,
    Had,
    MovedGroup,
    ServedDamage,
    Unreachable,
    UnreachableQueue,
)
from rmqtool.clients.never_delivered import half_messages_unchecked, lacks_pop_store, pop_lost, pops_in_timer
from rmqtool.clients.queues import QueueEvidence, ServedQueue, served_queues, unreachable_batches, unreachable_queues
from rmqtool.clients.timers import made_timer_queue, timers_due, timers_without_files
from rmqtool.findings.report import Report
from rmqtool.formats import properties as names
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rules.broker_conf import index_switched_off
from rmqtool.rules.file_sizes import log_file_size
from rmqtool.rules.system_topics import SCHEDULE_TOPIC, is_read_by_tag
from rmqtool.rules.versions import MAGIC_CODE_DECODED, parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import record_at
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    OFFSETS,
    CommittedOffset,
    config_database,
    counting_file,
    offsets_in,
    offsets_of_start,
    reads_no_offsets,
)
from rmqtool.store.config_text import damaged_names, whole_tables
from rmqtool.store.consumer_filters import load_filters
from rmqtool.store.index_files import IndexFile, stored_offset
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.transaction.losses import recorded_losses
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_progress import QueueProgress


@dataclass(frozen=True)
class ClientView:
    """What the pass over log, queues and index found out about what clients get.

    `ranges` are the queues as a broker reports them, `led_to` counts units that lead into damage of the log, `beyond`
    those of them that lead past its last file; `has_index` says that the index was read. `decoded` are units, by
    number, that lead to damage which clients decode as a message. Of topics that were `deleted` nobody misses messages.
    """

    snapshot: Snapshot
    total: PartResult
    ranges: Mapping[QueueName, QueueRange]
    led_to: Mapping[QueueName, int]
    beyond: Mapping[QueueName, int]
    has_index: bool
    decoded: Mapping[QueueName, Mapping[int, DecodedDamage]] = field(default_factory=dict)
    deleted: Collection[str] = ()

    def of_start(self, start: StartPrediction) -> ClientView:
        """The same for a predicted start: what is decoded is read where its unit is kept.

        What has a wrong magic code is decoded before 5.1.
        """
        if not self.decoded:
            return self
        checks_magic = parse_version(start.version) >= MAGIC_CODE_DECODED
        served = served_queues(self._ranges_read, start if start.is_up else None, twice=self.snapshot.has_queues_twice)
        states, led_to = dict(self.total.states), Counter(self.led_to)
        read: dict[QueueName, Mapping[int, DecodedDamage]] = {}
        for name, units in self.decoded.items():
            now = served.get(name)
            kept = {
                number: each
                for number, each in units.items()
                if now and now.keeps(number) and not (checks_magic and each.has_wrong_magic)
            }
            if kept:
                states[name] = states.get(name, QueueProgress(name)).with_whole(sorted(kept))
                led_to[name] -= len(kept)
                read[name] = kept
        return replace(self, total=replace(self.total, states=states), led_to=+led_to, decoded=read)

    def losses(self, start: StartPrediction) -> ClientLosses:
        """What clients had and do not get after a predicted start; of a start that fails, as the files stand."""
        served = start if start.is_up else None
        index, keys, in_damage = self.index_after(served), self.total.keys, self._in_damage()
        served_damage, missed_by_tag = self._served_damage(index), self._missed_by_tag(served)
        without_tag = sum(each.missed_by_tag for each in served_damage.values())
        found = index.found_in_damage(keys) if index else 0
        losses = ClientLosses(
            unreachable=Unreachable(sorted(self._unreachable(served), key=_worst_first)),
            missed_by_tag=missed_by_tag[0] + without_tag,
            tags_in_damage=missed_by_tag[1] + without_tag,
            keys_not_found=index.keys_not_found(keys, self._count_keys) if index else 0,
            keys_in_damage=keys.not_whole - found if index else 0,
            keys_found_in_damage=found,
            served_damage=served_damage,
            refuses=start.refuses,
            had=Had(
                {each.name: each.had + in_damage.get(each.name, 0) for each in self._queues},
                sum(keys.counts) + keys.in_damage + len(keys.oversized) if index else 0,
            ),
        )
        losses.beside_log = self.snapshot.kept.get(BesideLog, losses.beside_log)
        self._add_groups(losses, start)
        losses.filters_lost = load_filters(self.snapshot.store, parse_version(start.version)).lost
        return losses

    def add_waiting(
        self,
        losses: ClientLosses,
        start: StartPrediction,
        known_until: Callable[[], int],
        *,
        has_timer_findings: bool,
    ) -> None:
        """Add delayed and timer messages that come at another time after a start right after the newest message.

        Of deliveries from `known_until` on, epoch ms, the offsets of delay levels need not know. With findings about
        the timer, its files may be taken out. Raises RmqtoolError.
        """
        totals = self.total.totals
        has_wrong_times = bool(self.total.report.all_totals().get("consumequeue.tags-code"))
        until = self.total.extents.lacks_until
        undeliverable = offsets_by_queue(totals.undeliverable)
        request = DelayRequest(totals.latest, totals.latest, known_until(), has_wrong_times, until,
                               undeliverable=undeliverable, beyond=self.beyond, led_to=self.led_to)  # fmt: skip
        losses.delayed = self.delayed(start, self.in_log(), request)
        losses.come_again = come_again(self.snapshot, start, self.in_log(), request) if losses.delayed.again else 0
        if isinstance(losses.by_offsets, _WholeQueues):
            losses.by_offsets = replace(losses.by_offsets, request=request)
        asked = self.snapshot, start, totals.latest
        of_timer = undeliverable.get(TIMER_QUEUE, ())
        goes_beyond = any(self.beyond.values())
        due = partial(timers_due, *asked, totals.latest, of_timer, goes_beyond=goes_beyond)
        lacks = any((each.topic, each.queue_id) == TIMER_QUEUE for each in losses.unreachable.queues)
        made = made_timer_queue(self.snapshot, start, self.total.log_end or 0, lacks=lacks)
        losses.timers_with_queue = None if made is None else due(made=made)
        losses.timers = due() if lacks or losses.timers_with_queue is None else losses.timers_with_queue
        if losses.timers or losses.timers_with_queue or has_timer_findings:
            losses.timers_without_files = timers_without_files(*asked, of_timer, made, goes_beyond=goes_beyond)
        if losses.timers.never:
            losses.pops_in_timer = pops_in_timer(self.snapshot, start, totals.latest)
        losses.half_messages_unchecked = half_messages_unchecked(self.snapshot)
        losses.pop_unknown = lacks_pop_store(self.snapshot)
        try:
            losses.pop_lost = pop_lost(self.snapshot) + losses.pops_in_timer
        except UnreadableError:
            losses.pop_unknown = True
            raise

    def in_log(self) -> LogEvidence:
        """The queues of which the log has messages."""
        return {name: state for name, state in self.total.states.items() if state.records}

    def delayed(self, start: StartPrediction, in_log: LogEvidence, request: DelayRequest) -> Due:
        """The delayed messages that come at another time after a start; raises RmqtoolError."""
        due = delayed_due(self.snapshot, start, in_log, request)
        return replace(due, again=0) if self.is_slave else due  # which takes over what its master has delivered

    def _add_groups(self, losses: ClientLosses, start: StartPrediction) -> None:
        """Add the groups that go on elsewhere, since their queue or their committed offset changes."""
        read = offsets_of_start(self.snapshot.store, parse_version(start.version))
        after = self.of_queues(each for each in read if not (self._has_damaged_names and each.is_damaged))
        before = self.of_queues(self._committed())
        changed = ranges_after_start(start, twice=self.snapshot.has_queues_twice)
        whole = _WholeQueues(self, start, before, after, changed)
        losses.groups = whole.groups_after_start()
        losses.groups_begin_again = reads_no_offsets(self.snapshot.store, parse_version(start.version))
        losses.by_offsets = whole

    def _committed(self) -> Sequence[CommittedOffset]:
        """The offsets that the last broker had: of a damaged file its whole entries, and others of its ``.bak``.

        One with damaged names is that of an entry of the ``.bak`` which it may have been, or else of nobody known.
        """
        file, offsets = self.snapshot.committed.file, self.snapshot.committed.offsets
        is_damaged = (file.problem and not file.is_forbidden) or self._has_damaged_names
        if not is_damaged or config_database(self.snapshot.store, CONSUMER_OFFSET):
            return offsets
        whole = {*offsets_in(whole_tables(self._file_of_offsets, self.snapshot.releases))}
        for each in (each for each in offsets if each.is_damaged):
            was = next((other for other in sorted(whole.difference(offsets)) if may_have_been(each, other)), None)
            whole -= {was}
            whole.add(replace(was, offset=each.offset) if was else each)
        return sorted(whole)

    @property
    def _file_of_offsets(self) -> Path:
        store, path = self.snapshot.store, self.snapshot.committed.file.path
        if path is not None:
            return path.with_name(path.name.removesuffix(".bak"))
        return store.root / CONFIG / (counting_file(store, self.snapshot.version) or CONSUMER_OFFSET)

    @cached_property
    def _has_damaged_names(self) -> bool:
        """Whether the file of offsets has names that damage has changed."""
        file = self.snapshot.committed.file
        is_file = file.path is not None and file.path.name.removesuffix(".bak") in OFFSETS
        return is_file and bool(damaged_names(CONSUMER_OFFSET, file.content, file.path))

    def range_had(self, name: QueueName) -> QueueRange | None:
        """The range of a queue that clients had, by its units, and by the log; None where neither knows the queue."""
        known, state = self.ranges.get(name), self.total.states.get(name)
        if state is None or not state.had or self._is_deleted(name):
            return known
        if known and known.max_offset and not state.missing and self._has_batch_rows(state):
            return known  # of its last batch the rows know the first offset only
        had = known
        if known is None or known.max_offset < state.unit_end:
            is_begun = known and known.max_offset and not known.expired  # else its minimum is no message's
            begin = known.min_offset if known and is_begun else state.first_offset
            had = QueueRange(begin, state.unit_end)
        if had and not state.restarts and state.first_offset < had.min_offset and not self._has_batches(state):
            had = replace(had, min_offset=state.first_offset)  # its first files are gone
        return had

    @cached_property
    def has_offsets_only(self) -> bool:
        """Whether no message, or no queue, is left, so that only committed offsets show what else was served."""
        return not self.total.totals.messages or not self.ranges

    @cached_property
    def most_of_queue(self) -> int:
        """How many messages a queue can have had: as many as fit into a log from 0 on, and into a file that is gone."""
        files = [each for each in self.snapshot.log.files if each.size]
        size = max(self.snapshot.log.file_size, log_file_size(self.snapshot.store.conf) or 0)  # the only one may be cut
        end = files[-1].start_offset + size if files and not files[0].start_offset else MAX_OFFSET
        return (end + size) // MIN_MESSAGE_SIZE

    def is_unknown(self, name: QueueName) -> bool:
        """Whether the log has no message of a queue, whose topic was not deleted."""
        return name not in self.total.states and name.topic not in self.deleted

    @cached_property
    def topics_with_loss(self) -> set[str]:
        """Topics with a loss on record: `rmqtool repair` brings offsets past an end to it."""
        topics = {name.topic for name in self.ranges}
        recorded = [each.loss for each in recorded_losses(self.snapshot.store.root)]
        return {topic for topic in topics if any(loss is None or loss.concerns(topic) for loss in recorded)}

    def of_queues(self, offsets: Iterable[CommittedOffset]) -> list[CommittedOffset]:
        """Those of queues that were not deleted."""
        return [each for each in offsets if not self._is_deleted(QueueName(each.topic, each.queue_id))]

    @cached_property
    def ranges_as_they_stand(self) -> Mapping[QueueName, QueueRange]:
        """The queues as a broker reports them that starts: without a log their minima are not moved.

        Rows that stand for files that are gone are not among them.
        """
        snapshot = self.snapshot
        if snapshot.log.files or not snapshot.log_began_by:
            return self._ranges_read
        release = snapshot.release
        queues = {QueueName(each.topic, each.queue_id): each for each in snapshot.queues}
        return {name: queue_range(each, -1, release) for name, each in queues.items() if name in self._ranges_read}

    @cached_property
    def _ranges_read(self) -> Mapping[QueueName, QueueRange]:
        snapshot = self.snapshot
        copies = (each for each in snapshot.queues if each.database and snapshot.store.has_copy_of(each.topic))
        left_out = {(each.topic, each.queue_id) for each in copies}
        return {name: each for name, each in self.ranges.items() if name not in left_out} if left_out else self.ranges

    def index_after(self, start: StartPrediction | None) -> IndexAfter | None:
        """The index after a start, or as it stands; None where it was not read, or brokers write none."""
        if not self.has_index or index_switched_off(self.snapshot.store.conf):
            return None
        log_end, put_from, deleted = self.total.log_end or 0, MAX_OFFSET, set[str]()
        if start is not None:
            log_end = log_end if start.max_offset_after is None else min(start.max_offset_after, log_end)
            put_from = MAX_OFFSET if start.dispatched_from is None else start.dispatched_from
            deleted = {*start.files_deleted}
        relative = self.snapshot.store.relative
        files = self.snapshot.index_files
        kept = tuple(file for file in files if relative(file.path) not in deleted)
        first_deleted = next((file for file in files if file.keys and relative(file.path) in deleted), None)
        version = parse_version(start.version) if start else self.snapshot.release
        held = self._held(kept, first_deleted) if first_deleted else ()
        return replace(IndexAfter(kept, put_from, log_end, *held), takes_any_magic=version < MAGIC_CODE_DECODED)

    def _served_damage(self, index: IndexAfter | None) -> dict[int, ServedDamage]:
        keys = index.found_with_wrong_magic(self.total.keys) if index else Counter[int]()
        entries: dict[int, list[tuple[str, int, int]]] = {offset: [] for offset in keys}
        missed = Counter[int]()
        for name, units in self.decoded.items():
            for number, each in units.items():
                entries.setdefault(each.physical_offset, []).append((*name, number))
                missed[each.physical_offset] += each.loses_tag and is_read_by_tag(name.topic)
        return {offset: ServedDamage(tuple(found), keys[offset], missed[offset]) for offset, found in entries.items()}

    def _held(self, kept: Sequence[IndexFile], deleted: IndexFile) -> tuple[int, int]:
        """Up to which physical offset files that are kept have keys, -1 for none; and how many of the message after it.

        Where the last key ends is known by its unit or their headers.
        """
        last, geometries = next((file for file in reversed(kept) if file.keys), None), self.snapshot.index_geometries
        if last is None:
            return -1, 0
        geometry = dict(geometries)[last]
        is_there = geometry is not None and last.units(geometry) == last.keys
        stored = stored_offset(last.path, geometry, last.keys) if geometry and is_there else None
        ends = [last.end_physical_offset, last.end_physical_offset if stored is None else stored]
        end = max((end for end in ends if end <= deleted.begin_physical_offset), default=min(ends))
        if geometry is None or end != deleted.begin_physical_offset:
            return end, 0
        newest_first = (stored_offset(last.path, geometry, number) for number in range(last.keys, 0, -1))
        return end - 1, sum(1 for _ in takewhile(end.__eq__, newest_first))  # the others are in the deleted one

    def report_keys_lost(self, start: StartPrediction, lost: ClientLosses, report: Report) -> None:
        """Report keys that queries do not find after a start only since it deletes files of the index.

        They are among those `lost` by the start.
        """
        now, after = self.index_after(None), self.index_after(start)
        if now is None or after is None or start.refuses or after.held_end is None:
            return
        if_kept = replace(after, kept=now.kept, held_end=None, held_of_next=0)
        keys = lost.keys_not_found - if_kept.keys_not_found(self.total.keys, self._count_keys)
        report.check("start.keys-lost")
        if keys > 0:
            files = len(now.kept) - len(after.kept)
            details = {"keys": keys, "index_files_deleted": files, "put_again_from": start.dispatched_from,
                       "again": "none" if start.dispatched_from is None else "some"}  # fmt: skip
            report.add("start.keys-lost", count=keys, details=details)

    def report_delay_times(self, losses: ClientLosses, start: StartPrediction, report: Report) -> None:
        """Report delayed messages that come at another time, where it is not their entries that are wrong."""
        due = losses.delayed
        report.check("start.delay-times")
        if not (due.early or due.late or due.again) or self.total.report.all_totals().get("consumequeue.tags-code"):
            return
        rebuilt = losses.by_offsets.delayed() if losses.by_offsets else due
        again = max(0, due.again - rebuilt.again)  # the others have a finding about their offset
        cause = "levels" if rebuilt.early + rebuilt.late == due.early + due.late and not again else "derived"
        details = {"problem": cause, "cause": cause, "version": start.version, "early": due.early, "late": due.late,
                   "again": again}  # fmt: skip
        count = due.early + due.late + again
        if count and (cause == "levels" or not start.refuses):
            report.add("start.delay-times", count=count, topic=SCHEDULE_TOPIC, details=details)

    def _unreachable(self, start: StartPrediction | None) -> Iterator[UnreachableQueue]:
        in_damage = self._in_damage()
        derived = {QueueName(each.topic, each.queue_id) for each in start.queues if each.dispatched} if start else set()
        served = served_queues(self._ranges_read, start, twice=self.snapshot.has_queues_twice)
        is_batch = (lambda _: False) if self._is_in_rows else self._has_batches
        yield from unreachable_queues(self._queues, served, in_damage, is_batch)
        for queue in self.total.states.values():
            if queue.name in derived or not queue.had or not self._has_batch_rows(queue):
                continue  # of derived ones it is not known what consumers had
            if not self._is_deleted(queue.name):
                has_damage = bool(in_damage.get(queue.name))
                yield from self._unreachable_batches(queue, served.get(queue.name), start, has_damage=has_damage)

    def _missed_by_tag(self, start: StartPrediction | None) -> tuple[int, int]:
        """How many messages consumers get, but for those of their tag: by their units, and by damaged tags of theirs.

        Whether the unit of the latter is derived again or not, it fits only one of the tags of record and consumer.
        """
        missed = [(state, state.missed_by_tag) for state in self.total.states.values() if state.missed_by_tag]
        tags = [each for each in self.total.damages if each.field in (names.TAGS, PROPERTIES)]
        served = served_queues(self._ranges_read, start, twice=self.snapshot.has_queues_twice) if missed or tags else {}
        by_unit = by_message = 0
        for state, places in missed:
            now = served.get(state.name, ServedQueue(0, 0))
            kept = (place for place in places if now.keeps(place) and place not in (state.damaged or ()))
            by_unit += sum(map(places.__getitem__, kept))
        for each in tags:
            for name, offset, messages in self._tagged_places_of(each):
                reach = served.get(name)
                if reach and reach.min_offset <= offset < reach.max_offset and is_read_by_tag(name.topic):
                    by_message += messages
        return by_unit + by_message, by_message

    def _tagged_places_of(self, damage: FieldDamage) -> Iterator[tuple[QueueName, int, int]]:
        """The queues of a record that has lost its tags, its queue offsets in them, and how many messages it has."""
        if damage.field == names.TAGS:
            yield from ((*place, 1) for place in self._places_of(damage.physical_offset))
        elif damage.name and damage.queue_offset is not None and damage.proven.tags_code:
            messages = damage.proven.batch_size or 1
            yield damage.name, damage.queue_offset, messages
            for topic, queue_id, offset in damage.proven.light_queues or ():
                yield QueueName(topic, queue_id), offset, messages

    def _places_of(self, physical_offset: int) -> list[tuple[QueueName, int]]:
        """The queues of a record, and its queue offsets in them."""
        frames, snapshot = record_at(self.snapshot.log.files, physical_offset), self.snapshot
        if frames is None:
            return []
        dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)
        return dispatcher.dispatch(frames).places

    def _in_damage(self) -> dict[QueueName, int]:
        """How many messages of each queue the log holds only damage of."""
        states = self.total.states
        return {**self.led_to, **{name: max(self.led_to.get(name, 0), each.lost) for name, each in states.items()}}

    @property
    def _queues(self) -> list[QueueProgress]:
        """The queues of which consumers had messages, but for batches in RocksDB."""
        states = self.total.states
        queues = [state for name, state in states.items() if state.had and not self._is_deleted(name)]
        firsts = {name: self.ranges[name].min_offset if name in self.ranges else 0 for name in self.led_to}
        queues += [QueueProgress(name, first_offset=firsts[name]) for name in firsts.keys() - states.keys()]
        return [each for each in queues if not self._has_batch_rows(each)]

    def _unreachable_batches(
        self, queue: QueueProgress, now: ServedQueue | None, start: StartPrediction | None, *, has_damage: bool
    ) -> Iterator[UnreachableQueue]:
        known, database = self.ranges.get(queue.name), self.snapshot.database
        if known is None or now is None or database is None:
            return
        is_whole = queue.records and queue.right_between(queue.first_offset, queue.next_offset) == queue.records
        if is_whole and not has_damage and now == ServedQueue(known.min_offset, known.max_offset):
            return
        rows = database.units(queue.name, max(known.min_offset, 0), known.max_offset).offsets
        version = parse_version(start.version) if start else self.snapshot.release
        if lost := unreachable_batches(queue, rows, known.max_offset, now, version):
            yield lost

    @property
    def _is_in_rows(self) -> bool:
        """Whether consumers read queues in RocksDB, of which all files may be gone."""
        snapshot = self.snapshot
        if snapshot.database:
            return not snapshot.has_queues_twice
        return snapshot.store.is_of_rocksdb_type and not snapshot.queues

    def _has_batch_rows(self, queue: QueueEvidence) -> bool:
        """Whether it is a batch queue in RocksDB."""
        return self._is_in_rows and self._has_batches(queue)

    def _has_batches(self, queue: QueueEvidence) -> bool:
        """Whether it is a batch queue: by configuration, else since its records take several offsets."""
        known = self.snapshot.topics.with_batch_queues
        return queue.name.topic in known if known is not None else queue.had > queue.records

    @property
    def is_slave(self) -> bool:
        """Whether the store is that of a slave, which lags by design."""
        return self.snapshot.store.conf.is_slave

    def _is_deleted(self, name: QueueName) -> bool:
        """Whether the queue was deleted with its topic."""
        state = self.total.states.get(name)
        is_missing = state is not None and "consumequeue.missing-queue" in (state.missing or ())
        return is_missing and name.topic in self.deleted

    def _count_keys(self, begin: int, start: int, stop: int) -> int:
        """Read the keys of messages from physical offset `start` to before `stop`; a record begins at `begin`."""
        snapshot, count = self.snapshot, 0
        dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)
        for event in scan_files(snapshot.log.files, begin, min(stop, self.total.log_end or 0), snapshot.reading):
            if isinstance(event, RecordRun):
                keys = dispatcher.dispatch(event).keys
                within = (keys.physical_offsets >= start) & (keys.physical_offsets < stop) & keys.are_found
                count += int(within.sum())
        return count


@dataclass(frozen=True)
class _WholeQueues:
    """What offsets take from clients where all queues are as they had them (`losses.ByOffsets`).

    `committed` are the offsets of groups that the last broker had, `after` those that the `start` reads; `changed` are
    the queues that it changes. Ranges are computed for the queues of groups only, when they are asked for.
    """

    view: ClientView
    start: StartPrediction
    committed: Sequence[CommittedOffset]
    after: Sequence[CommittedOffset]
    changed: Mapping[QueueName, QueueRange]
    put_right: Mapping[QueueName, int] = field(default_factory=dict)
    request: DelayRequest | None = None
    are_moved: bool = True  # offsets past the end, by a repair

    def kept(self) -> _WholeQueues:
        """The same for a repair that moves no offsets."""
        return replace(self, are_moved=False)

    def groups(
        self, committed: Iterable[CommittedOffset] | None = None, *, lost: Collection[str] | None = ()
    ) -> list[MovedGroup]:
        """The groups that go on elsewhere."""
        if committed is not None:
            known = {(each.group, each.topic, each.queue_id) for each in self.committed}
            is_unread = reads_no_offsets(self.view.snapshot.store, parse_version(self.start.version))
            after = [] if is_unread else self.view.of_queues(committed)
            found = [each for each in after if (each.group, each.topic, each.queue_id) not in known]
            return replace(self, committed=[*self.committed, *found])._moved(self._rebuilt, after)  # as they had
        topics = {each.topic for each in self.after} if lost is None else {*lost, *self.view.topics_with_loss}
        return self._moved(self._rebuilt, self.after, topics if self.are_moved else ())

    def groups_after_start(self) -> list[MovedGroup]:
        """The groups that go on elsewhere in the queues as the start leaves them."""
        return self._moved(self._now, self.after)

    def _moved(
        self, ranges: Ranges, after: Iterable[CommittedOffset], to_end: Collection[str] = ()
    ) -> list[MovedGroup]:
        version, is_slave = parse_version(self.start.version), self.view.is_slave
        return moved_groups(self.committed, after, self._had, ranges, version, is_slave=is_slave, to_end=to_end)

    def _had(self, name: QueueName) -> QueueRange | None:
        """A queue as clients had it: the log, units, and where they are gone the committed offsets show it."""
        had, now, consumed = self.view.range_had(name), self._now(name), self._consumed.get(name, 0)
        if not consumed or (now and now.max_offset) or not self.view.is_unknown(name):
            return had
        return replace(had or QueueRange(0, 0), max_offset=max(had.max_offset if had else 0, consumed))

    @cached_property
    def _consumed(self) -> Mapping[QueueName, int]:
        """The highest committed offset of each queue, where nothing else shows what was served."""
        found: dict[QueueName, int] = {}
        for each in self.committed if self.view.has_offsets_only else ():
            name = QueueName(each.topic, each.queue_id)
            if each.offset <= self.view.most_of_queue:
                found[name] = max(found.get(name, 0), each.offset)
        return found

    def _now(self, name: QueueName) -> QueueRange | None:
        """A queue after the start."""
        return self.changed.get(name) or self.view.ranges_as_they_stand.get(name)

    def _rebuilt(self, name: QueueName) -> QueueRange | None:
        """A queue once it is derived again: it ends with the log's messages, or where the start ends it."""
        had, state = self._had(name), self.view.total.states.get(name)
        ends = [state.next_offset] if state and state.records else []
        now = self._now(name) if self.start.is_up or not ends else None
        end = max([*ends, now.max_offset if now else 0])
        if had is None or had.min_offset <= had.max_offset <= end:
            return had
        end = min(end + self.put_right.get(name, 0), had.max_offset)
        return replace(had, max_offset=end, min_offset=min(had.min_offset, end))

    def with_whole(self, names: Sequence[tuple[str, int]]) -> _WholeQueues:
        """The same, once messages of some queues are whole again that were not: they may be the last ones."""
        return replace(self, put_right=Counter(map(QueueName._make, names)))

    def _levels_put_right(self) -> Mapping[QueueName, QueueProgress]:
        """Queues of delay levels of which messages are whole again, which may be the first and the last ones.

        What they lack is counted by queue offset then, and no longer by the units that lead into damage.
        """
        found = {}
        for name in self.put_right:
            state, had = self.view.total.states.get(name), self.view.range_had(name)
            if name.topic == SCHEDULE_TOPIC and state and state.records and had and not self.view.beyond.get(name):
                first, end = min(state.first_offset, max(0, had.min_offset)), max(state.next_offset, had.max_offset)
                found[name] = replace(state, first_offset=first, next_offset=end)
        return found

    def delayed(self, by_level: Mapping[int, int] | None = None, *, are_proven: bool = False) -> Due:
        """The delayed messages that come at another time; raises RmqtoolError."""
        if self.request is None:
            return Due()
        put_right = self._levels_put_right()
        in_log = {**self.view.in_log(), **put_right}
        levels = (each for name, each in in_log.items() if name.topic == SCHEDULE_TOPIC)
        ends = ((each.name, (each.first_offset, each.next_offset)) for each in levels)
        whole = [QueueChange("simple", *name, *reach, *reach, 0, 0) for name, reach in ends]
        known = {*in_log, *self.put_right}  # of one with nothing else in the log the units still stand
        whole += [each for each in self.start.queues if QueueName(each.topic, each.queue_id) not in known]
        led_to = {name: count for name, count in self.request.led_to.items() if name not in put_right}
        request = replace(self.request, offsets=by_level, are_proven=are_proven, is_rebuilt=True,
                          put_right=self.put_right, led_to=led_to)  # fmt: skip
        return self.view.delayed(replace(self.start, refusal=None, queues=whole), in_log, request)


def _worst_first(queue: UnreachableQueue) -> tuple[int, str, int]:
    return -queue.messages, queue.topic, queue.queue_id
