"""What a start of the broker does with a store, step by step (`DefaultMessageStore#load`, `#recover`, `#start`).

Where the log is cut, what is deleted, which queues change. Nothing is written.
``Recovery(snapshot, rules).predict()`` is a start as the store stands, ``predict(unclean=True)`` the same with the file
`abort`, ``predict(checkpoint=NO_CHECKPOINT)`` without a checkpoint.

Whoever scans the log anyway feeds the events of the scan to a `LogWalker` (one for each part, when the log is scanned
in parts, whose walks `join_walks` puts together) and hands the results over as ``LogWalks(rules, walks)``: then the log
is not read again, but for what is derived from it after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.load import (
    LOG_SETTING,
    ROOT_SETTING,
    Loaded,
    load,
    loaded_index_files,
    other_log_opened,
    other_root_opened,
)
from rmqtool.broker.log_walk import Checkpoint, LogEnd, LogWalks, abnormal_start, end_of, normal_start, readable_behind
from rmqtool.broker.prediction import Mode, QueueChange, ScanFrom, StartPrediction, StartRefusal
from rmqtool.broker.queue_dispatch import Dispatching, Queues
from rmqtool.broker.queue_recovery import KnownQueues, RecoveredQueues, SimulatedQueue
from rmqtool.broker.rocksdb_recovery import LogPart, RocksDbRecovery, TwiceRecovery, keeps_light_queues
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.rules.recovery import RecoveryRules, not_modelled
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import ROCKSDB_QUEUES
from rmqtool.store.lock import has_abort
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.snapshot import Snapshot

NO_CHECKPOINT: Checkpoint = dict.fromkeys(CHECKPOINT_DTYPE.names or (), 0)
"""What a broker reads where the file checkpoint is missing."""


@dataclass(frozen=True)
class LogCut:
    """What a recovery scan from one file on does to the commit log."""

    files: tuple[MappedFile, ...]
    first: int
    end: LogEnd
    kept: tuple[MappedFile, ...]
    deleted: tuple[MappedFile, ...]
    max_offset: int
    messages_lost: int
    bytes_cut: int


class Recovery:
    """Predicts starts of one broker version on one store, which is read once for all kinds of start."""

    def __init__(
        self, snapshot: Snapshot, rules: RecoveryRules, walks: LogWalks | None = None, known: KnownQueues | None = None
    ) -> None:
        """`walks` are those that a caller has already made while scanning the log.

        `known` takes the queues of the snapshot as their own recovery leaves them, for predictions of other releases.
        """
        self.snapshot = snapshot
        self.rules = rules
        self._reading = snapshot.reading
        self._walks = walks or LogWalks(rules, reading=snapshot.reading)
        self._known = known or KnownQueues(snapshot.queues)

    def predict(
        self, *, unclean: bool | None = None, checkpoint: Checkpoint | None = None, log_only: bool = False
    ) -> StartPrediction:
        """Predict a start, by default with `abort` and `checkpoint` as they stand in the store.

        With `log_only` the queues are left out: after a crash they need another reading of the log.
        """
        mode = self.mode if unclean is None else ("abnormal" if unclean else "normal")
        outline = StartPrediction(mode, str(self.rules.version), unsure=list(self._unsure()))
        if elsewhere := other_root_opened(self.snapshot.store, self.rules.version):
            return self._in_other_root(outline, elsewhere)
        if refusal := self.loaded.refusal:
            return replace(outline, refusal=refusal, hangs=self.loaded.hangs, setting=refusal.setting)
        if not self.loaded.files:
            return self._without_log(outline)
        cut = self.cut(mode, checkpoint)
        if cut.end.out_of_memory:
            return replace(outline, scan_from=self._scan_from(cut), refusal=StartRefusal("memory", cut.end.refusal))
        if log_only:
            return self._with_cut(outline, cut)
        return self._recovered(outline, cut, self._checkpoint(checkpoint))

    def cut(self, mode: Mode, checkpoint: Checkpoint | None = None) -> LogCut:
        """What the scan of such a start does to the commit log, which must have files."""
        files, known = self.loaded.files, self._checkpoint(checkpoint)
        extra = self.twice.extra_files() if self.twice else None
        if mode == "normal":
            first = normal_start(files, self.max_physical, known, self.rules, extra)
        else:
            end = self.in_rocksdb.dispatched_end if self.in_rocksdb else None
            first = abnormal_start(files, known, self.rules, end, extra)
        return self._cut_behind(first, end_of(files, first, self._walks))

    @cached_property
    def mode(self) -> Mode:
        """Abnormal when the file `abort` exists, else normal."""
        return "abnormal" if has_abort(self.snapshot.store.root) else "normal"

    @cached_property
    def loaded(self) -> Loaded:
        """The files that are loaded before the recovery."""
        return load(self.snapshot, self.rules)

    @cached_property
    def recovered_queues(self) -> RecoveredQueues:
        """The queues after their own recovery."""
        return self._known.of(self.loaded, self._reading)

    @cached_property
    def max_physical(self) -> int:
        """`getMaxPhyOffsetInConsumeQueue` before the log is scanned."""
        if self.in_rocksdb:
            return self.in_rocksdb.dispatched_end
        return self.recovered_queues.max_physical(self.rules)

    @property
    def _makes_database(self) -> bool:
        """Whether the queues of a start are in RocksDB, where the store has none (`RocksDBConsumeQueueStore`)."""
        return self.snapshot.store.is_of_rocksdb_type and self.rules.version >= ROCKSDB_QUEUES and not self.in_rocksdb

    @cached_property
    def in_rocksdb(self) -> RocksDbRecovery | None:
        """The queues in RocksDB, None where they are in files."""
        return None if self.snapshot.has_queues_twice else self._rows

    @cached_property
    def twice(self) -> TwiceRecovery | None:
        """The rows of queues that are in files, too; None for others."""
        return TwiceRecovery(self._rows) if self._rows and self.snapshot.has_queues_twice else None

    @cached_property
    def _rows(self) -> RocksDbRecovery | None:
        database = self.snapshot.database
        return RocksDbRecovery(self.snapshot, database, self.rules) if database else None

    def _checkpoint(self, given: Checkpoint | None) -> Checkpoint:
        return given if given is not None else self.snapshot.checkpoint or NO_CHECKPOINT

    def _queues(self, log_end: int = MAX_OFFSET) -> Queues:
        start = self.loaded.files[0].start_offset if self.loaded.files else 0
        return Queues(self.rules, self.loaded.queue_file_sizes, log_end, self.recovered_queues, self._reading, start)

    def _cut_behind(self, first: int, end: LogEnd) -> LogCut:
        files = self.loaded.files
        kept = tuple(file for file in files if file.start_offset <= end.offset)
        deleted = tuple(file for file in files if file not in kept)
        last = kept[-1]
        # MappedFileQueue#truncateDirtyFiles counts from multiples of the file size, not from the file's own start.
        wrote = last.size if last.end_offset <= end.offset else end.offset % self.loaded.file_size
        ends = ((file, self._walks.of(file).data_end) for file in files[end.file_number :])
        data_end = max([end.offset, *(file.start_offset + written for file, written in ends if written)])
        lost = readable_behind(files, end, self._walks) + sum(
            self._walks.of(file).readable for file in self.loaded.ignored
        )
        return LogCut(files, first, end, kept, deleted, last.start_offset + wrote, lost, data_end - end.offset)

    def _unsure(self) -> Iterator[str]:
        """Reasons why the broker may act otherwise than predicted."""
        for name in not_modelled(self.snapshot.store.conf):
            yield f"broker.conf sets {name}, which is not taken into account here"
        files = self.loaded.files
        if len(files) == 1 and self.rules.log_file_size is None and files[0].size != DEFAULT_LOG_FILE_SIZE:
            yield f"the only commit log file is assumed to have the configured size: {files[0].size} bytes"
        if self.snapshot.leaves_queues_out:
            yield "the consume queues are in RocksDB, which is not read: where the scan begins may differ"

    def _scan_from(self, cut: LogCut) -> ScanFrom:
        mapped = cut.files[cut.first]
        return ScanFrom(self.snapshot.store.relative(mapped.path), mapped.start_offset)

    def _without_log(self, outline: StartPrediction) -> StartPrediction:
        """Without commit log files all queues are deleted, except by a clean start of 4.4.0."""
        queues = self._queues()
        if outline.mode == "abnormal" or self.rules.destroys_queues_without_log:
            for state in queues:
                state.destroy()
        lost = sum(self._walks.of(file).readable for file in self.loaded.ignored)
        elsewhere = other_log_opened(self.snapshot.store, self.rules.version)
        return replace(
            outline,
            max_offset_after=0,
            end="there is no commit log file" if elsewhere is None else f"it opens another directory, {elsewhere!r}",
            setting=None if elsewhere is None else LOG_SETTING,
            messages_lost=lost,
            files_deleted=self._deleted([], queues, outline.mode, self._checkpoint(None)),
            queues=list(self._changes(queues, -1)),
        )

    def _in_other_root(self, outline: StartPrediction, opened: str) -> StartPrediction:
        """A start on a new directory: it leaves the store as it is, and finds at most the log."""
        store, log = self.snapshot.store, self.snapshot.log_range.max_offset
        finds_log = store.conf.text(LOG_SETTING) is not None and other_log_opened(store, self.rules.version) is None
        queues = self._queues()
        for state in () if finds_log and self.rules.dispatches_from_queues else queues:
            state.destroy()
        return replace(
            outline,
            mode="normal",
            max_offset_after=log if finds_log else 0,
            end=f"the broker opens another directory, {opened!r}",
            setting=ROOT_SETTING,
            messages_lost=0 if finds_log else sum(self._walks.of(file).readable for file in self.snapshot.log.files),
            queues=list(self._changes(queues, self.snapshot.log_min_offset)),
        )

    def _recovered(self, outline: StartPrediction, cut: LogCut, checkpoint: Checkpoint) -> StartPrediction:
        queues = self._queues(cut.end.offset)
        if self.in_rocksdb:
            if failure := self.in_rocksdb.refusal(cut.end.offset):
                return replace(outline, scan_from=self._scan_from(cut), refusal=failure)
            first_made = self.in_rocksdb.dispatched_from(outline.mode, cut.files[cut.first].start_offset)
            return replace(
                self._with_cut(outline, cut),
                dispatched_from=first_made if first_made < cut.end.offset else None,
                files_deleted=self._deleted(cut.deleted, queues, outline.mode, checkpoint),
                queues=list(self.in_rocksdb.changes(cut.files, first_made, cut.end.offset)),
            )
        # A database that the start makes says that it has dispatched up to 0, and only what is past that is taken.
        before = max(queues.max_physical, 0 if self._makes_database else -1)
        dispatched_from = self._dispatched_from(cut, outline.mode, before)
        dispatching = self._dispatch(queues, cut, outline.mode, before)
        if dispatching and (stopped := dispatching.failure):
            why, name = f"{stopped} (load exception); with enableMultiDispatch=false it starts", "enableMultiDispatch"
            refusal = StartRefusal("setting", why, setting=name)
            return replace(outline, scan_from=self._scan_from(cut), refusal=refusal, setting=name)
        if (queues.max_physical if self.rules.recounts_before_cut else before) >= cut.end.offset:
            queues.truncate(cut.end.offset)
        end_refusal = queues.min_offset_refusal() if self.rules.reads_last_unit_first else None
        if end_refusal:
            return replace(outline, scan_from=self._scan_from(cut), refusal=end_refusal)
        hangs = None
        if self.rules.dispatches_from_queues:
            dispatched_from = min(dispatched_from, max(queues.max_physical, cut.files[0].start_offset))
            start = max(queues.max_physical, cut.files[0].start_offset, 0)
            hangs = self._dispatching(queues, None).reput(cut.kept, start, cut.max_offset, self.loaded.file_size)
        if dispatching and all(first < dispatched_from for first in dispatching.firsts):
            dispatched_from = min(dispatched_from, *dispatching.firsts, MAX_OFFSET)  # of a copy of earlier files
        return replace(
            self._with_cut(outline, cut),
            dispatched_from=dispatched_from if dispatched_from < cut.end.offset else None,
            files_deleted=self._deleted(cut.deleted, queues, outline.mode, checkpoint),
            queues=[*self._changes(queues, cut.files[0].start_offset), *self._row_changes(queues, cut, outline.mode)],
            refusal=None if hangs is None else StartRefusal("hang", hangs),
            hangs=hangs is not None,
        )

    def _row_changes(self, queues: Queues, cut: LogCut, mode: Mode) -> Iterator[QueueChange]:
        """What happens to the rows of queues that are written twice; `queues` are those in files, after the start."""
        if self.twice:
            log_min_offset = cut.files[0].start_offset
            in_files = {
                QueueName(state.queue.topic, state.queue.queue_id): QueueRange(
                    state.min_offset(log_min_offset), state.max_offset
                )
                for state in queues
                if state.kind == "simple"
            }
            scanned = LogPart(cut.files, cut.files[cut.first].start_offset, cut.end.offset)
            yield from self.twice.changes(scanned, mode, in_files, self.max_physical)

    def _with_cut(self, outline: StartPrediction, cut: LogCut) -> StartPrediction:
        return replace(
            outline,
            scan_from=self._scan_from(cut),
            max_offset_after=min(cut.max_offset, MAX_OFFSET),
            end=cut.end.why,
            commit_log_bytes_cut=cut.bytes_cut,
            messages_lost=cut.messages_lost,
        )

    def _dispatched_from(self, cut: LogCut, mode: Mode, max_physical: int) -> int:
        """Where the first record begins that the scan dispatches; MAX_OFFSET where it dispatches none."""
        scanned_from = cut.files[cut.first].start_offset
        if mode == "abnormal":
            return scanned_from
        return max(scanned_from, max_physical + 1) if self.rules.dispatches_when_clean else MAX_OFFSET

    def _dispatch(self, queues: Queues, cut: LogCut, mode: Mode, max_physical: int) -> Dispatching | None:
        """Dispatch what the scan has found; None where it dispatches nothing."""
        if mode == "abnormal":
            above = None
        elif self.rules.dispatches_when_clean:
            above = max_physical
            walked = (self._walks.of(file) for file in cut.files[cut.first : cut.end.file_number + 1])
            if max_physical >= cut.end.offset and not any(walk.broker_only_records for walk in walked):
                return None
        else:
            return None
        dispatching = self._dispatching(queues, above)
        dispatching.run(cut.files[cut.first : cut.end.file_number + 1], cut.end.offset)
        return dispatching

    def _dispatching(self, queues: Queues, above: int | None) -> Dispatching:
        has_light_queues = any(topic.startswith(LMQ_PREFIX) for topic in queues.topics)
        conf, delays = self.snapshot.store.conf, self.snapshot.delay_levels
        rules = DispatchRules.of(self.rules.version, conf, delays, has_light_queues=has_light_queues)
        if self.twice and keeps_light_queues(self.rules, conf):  # MultiDispatchUtils#checkMultiDispatchQueue
            rules = replace(rules, multi_dispatch=False)
        return Dispatching(queues, rules, self.snapshot.topics, above)

    def _deleted(
        self, log: list[MappedFile] | tuple[MappedFile, ...], queues: Queues, mode: Mode, checkpoint: Checkpoint
    ) -> list[str]:
        root = self.snapshot.store.root
        states = [queues.state(key) for key in [*queues.touched()]]
        made = {
            root / state.queue.format.directory / state.queue.topic / str(state.queue.queue_id) / name
            for state in states
            for name in state.made
        }
        paths = [*self.loaded.deleted, *(path for state in states for path in state.deleted)]
        paths = [path for path in paths if path not in made]
        paths += [file.path for file in log]
        if mode == "abnormal":
            limit = checkpoint["index_message_timestamp"]  # IndexService#load
            loaded = loaded_index_files(self.snapshot, self.rules)
            paths += [file.path for file in loaded if file.end_timestamp > limit]
        return sorted(self.snapshot.store.relative(path) for path in paths)

    def _changes(self, queues: Queues, log_min_offset: int) -> Iterator[QueueChange]:
        """The queues that the start changes."""
        min_before = self.snapshot.log_min_offset
        recovered = self.recovered_queues
        all_move = log_min_offset != min_before
        keys = {*queues.touched(), *(recovered.keys() if all_move else recovered.with_fewer_files())}
        for key in sorted(keys, key=lambda key: (key[1], key[2], key[0])):
            state, queue = queues.state(key), recovered.on_disk(key)
            is_whole = queue is not None and queue.files == state.queue.files
            if is_whole and not state.is_changed and not all_move:
                continue
            before = queue_range(queue, min_before, self.rules.version) if queue else QueueRange(0, 0)
            change = _change(state, before, log_min_offset)
            moves = (before.min_offset, before.max_offset) != (change.min_offset, change.max_offset)
            if change.truncated or change.dispatched or moves:
                yield change


def _change(state: SimulatedQueue, before: QueueRange, log_min_offset: int) -> QueueChange:
    return QueueChange(
        state.kind,
        state.queue.topic,
        state.queue.queue_id,
        before.min_offset,
        before.max_offset,
        state.min_offset(log_min_offset),
        state.max_offset,
        state.cut - state.undone,
        state.appended - state.undone,
        misplaced=max(0, state.misplaced - state.undone),
        shift=state.shift,
        revived=state.revived,
    )
