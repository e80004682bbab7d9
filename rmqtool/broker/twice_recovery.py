"""What a start does with queues that a broker writes twice, into files and into RocksDB (`CombineConsumeQueueStore`).

The files decide: they give new messages their offsets, and are read. The log is scanned from a file on whose queues in
files have flushed, and a few files before it when rows are behind; what is scanned gets its rows. Then each queue in
RocksDB that ends elsewhere is set to begin and to end where the files end, whatever rows it has. Before the
combined store nothing is set: `DefaultMessageStore#enableRocksdbCQWrite` adds a dispatcher, which gets what the files
need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import Mode, QueueChange
from rmqtool.broker.rocksdb_recovery import RocksDbRecovery
from rmqtool.broker.selected_rows import SETTING, has_rows, selects_rows
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.queue_range import QueueRange

EXTRA_FILES = "combineCQMaxExtraSearchCommitLogFiles"
_DEFAULT_EXTRA_FILES = 3


class LogPart(NamedTuple):
    """What a start scans: the files of the log, and from and to which physical offset."""

    files: Sequence[MappedFile]
    base: int
    end: int


class ExtraFiles:
    """How much farther back a start goes for rows than queues in files need; asked file by file, the newest first."""

    def __init__(self, dispatched_end: int, rules: RecoveryRules, conf: BrokerConf) -> None:
        """`dispatched_end` is the physical offset up to which there are rows."""
        self._end = dispatched_end
        self._keeps_light = keeps_light_queues(rules, conf)
        given = conf.size(EXTRA_FILES)
        self._left = _DEFAULT_EXTRA_FILES if given is None else given

    def ends_at(self, file: MappedFile) -> bool:
        """Whether the search ends at a file that queues in files do not need to go beyond."""
        if file.start_offset <= self._end:
            return True
        if self._keeps_light:
            return False
        self._left -= 1
        return self._left < 0


def keeps_light_queues(rules: RecoveryRules, conf: BrokerConf) -> bool:
    """Whether light queues are in RocksDB alone."""
    return rules.skips_new_database and conf.is_on("combineCQUseRocksdbForLmq")


@dataclass(frozen=True)
class TwiceRecovery:
    """Predicts what a start does with the rows of queues that are in files, too."""

    rows: RocksDbRecovery

    @property
    def is_searched(self) -> bool:
        """Whether a start searches older log files for rows; since 5.5.0 not where there are none yet."""
        rules = self.rows.rules
        return rules.combines_queues and not (rules.skips_new_database and self.rows.dispatched_end <= 0)

    def extra_files(self) -> ExtraFiles | None:
        """The search for rows; None before the combined store, which only looks at files."""
        if not self.is_searched:
            return None
        return ExtraFiles(self.rows.dispatched_end, self.rows.rules, self.rows.snapshot.store.conf)

    def serves(self, change: QueueChange) -> bool:
        """Whether consumers read this queue from RocksDB: light queues that are nowhere else."""
        conf = self.rows.snapshot.store.conf
        return change.topic.startswith(LMQ_PREFIX) and keeps_light_queues(self.rows.rules, conf)

    def changes(
        self, cut: LogPart, mode: Mode, in_files: Mapping[QueueName, QueueRange], max_physical: int
    ) -> Iterator[QueueChange]:
        """The queues in RocksDB that a start changes; `in_files` are those in files after it.

        `cut` is what is scanned, `max_physical` is that of the queues in files before it.
        """
        rules = self.rows.rules
        first = cut.base
        if mode == "normal":
            bound = min(max_physical, self.rows.dispatched_end) if rules.combines_queues else max_physical
            first = max(cut.base, bound + 1) if rules.dispatches_when_clean else MAX_OFFSET
        rows_end = cut.end if rules.combines_queues else MAX_OFFSET
        every = self.rows.changes(cut.files, first, cut.end, cut=rows_end)
        changes = {QueueName(each.topic, each.queue_id): each for each in every if not self._is_left_out(each)}
        if rules.combines_queues:
            for name, ended in in_files.items():
                if self._is_left_out(name):
                    continue
                if change := self._initialised(name, ended, changes.get(name)):
                    changes[name] = change
        yield from (changes[name] for name in sorted(changes))

    def _is_left_out(self, queue: QueueName | QueueChange) -> bool:
        """Whether a broker of 5.5.1 writes no rows of a queue (`broker.selected_rows`), or none so far.

        Without broker.conf a queue without rows may be one that it leaves out; where there are no rows at all, the
        light queues, which may be nowhere else, are taken for such as it writes.
        """
        snapshot, rules = self.rows.snapshot, self.rows.rules
        if snapshot.store.conf.text(SETTING):
            return selects_rows(snapshot.store.conf, rules.version) and not has_rows(snapshot.topics, queue.topic)
        is_known = (queue.topic, queue.queue_id) in self.rows.database.lasts
        is_new = self.rows.dispatched_end <= 0 and queue.topic.startswith(LMQ_PREFIX)
        return rules.writes_some_twice and not (is_known or is_new or snapshot.store.writes_queues_twice)

    def _initialised(self, name: QueueName, in_files: QueueRange, change: QueueChange | None) -> QueueChange | None:
        """A queue that is set to end where the files end, since its rows end elsewhere; None for another.

        It is set to begin there, too (`RocksDBConsumeQueue#initializeWithOffset`): rows before it are not read then.
        """
        now = change or self.rows.unchanged(name)
        end = in_files.max_offset
        if end == now.max_offset or (end <= 0 and now.max_offset <= 0):
            return None
        is_light = name.topic.startswith(LMQ_PREFIX)
        if now.max_offset > 0 and is_light and keeps_light_queues(self.rows.rules, self.rows.snapshot.store.conf):
            return None
        truncated = now.truncated + max(0, now.max_offset - end)
        lost = max(0, end - max(in_files.min_offset, 0))
        return replace(now, min_offset=end, max_offset=end, truncated=truncated, lost=lost)
