"""What a consumer gets from one pull, as each release answers it (`DefaultMessageStore#getMessage`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.compaction import served_queue
from rmqtool.formats.java import string_hash
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import (
    BEYOND_MAX_TO_MAX,
    FILTERED_BYTES_INCLUSIVE,
    FILTERED_IN_BYTES,
    PULL_BY_UNITS,
    ROWS_ONE_BY_ONE,
    Version,
)
from rmqtool.store.commit_log import LogBytes
from rmqtool.store.compaction import CompactedFiles
from rmqtool.store.queue_units import ExtTags, LoadedQueue, QueueRange, Unit
from rmqtool.store.snapshot import Snapshot

Status = Literal[
    "FOUND",
    "NO_MATCHED_MESSAGE",
    "MESSAGE_WAS_REMOVING",
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_TOO_SMALL",
    "NO_MATCHED_LOGIC_QUEUE",
    "NO_MESSAGE_IN_QUEUE",
]
"""Names of `GetMessageStatus` that a store answers."""

PULLED = 32
"""Messages that a push consumer asks for at once (`DefaultMQPushConsumer#pullBatchSize`)."""

_MAX_PULL_BYTES = 128 << 20  # MAX_PULL_MSG_SIZE


@dataclass(frozen=True)
class Subscription:
    """A tag expression such as ``TagA || TagB``; `tags` is empty when every message is wanted."""

    tags: tuple[str, ...] = ()

    @property
    def codes(self) -> frozenset[int]:
        """The hashes that the broker compares."""
        return frozenset(map(string_hash, self.tags))

    def takes_unit(self, tags_code: int | None) -> bool:
        """Whether the broker sends a message with this tags code, None when unknown (`DefaultMessageFilter`)."""
        return not self.tags or tags_code is None or _int32(tags_code) in self.codes

    def takes(self, tags: str | None) -> bool:
        """Whether the client keeps it, which compares the text (`PullAPIWrapper#processPullResult`)."""
        return not self.tags or tags in self.tags


@dataclass(frozen=True)
class Limits:
    """How much one pull gives, by broker.conf; messages further than `memory` bytes from the log's end are on disk."""

    memory: int
    bytes_in_memory: int = 256 << 10
    count_in_memory: int = 32
    bytes_on_disk: int = 64 << 10
    count_on_disk: int = 8
    filtered_bytes: int = 16000
    files: int = 1


def limits_of(conf: BrokerConf) -> Limits:
    """The limits that broker.conf sets; `memory` is the share of this machine's memory that the broker counts on."""
    ratio = conf.size("accessMessageInMemoryMaxRatio") or 40
    return Limits(
        memory=int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * ratio / 100),
        bytes_in_memory=conf.size("maxTransferBytesOnMessageInMemory") or Limits.bytes_in_memory,
        count_in_memory=conf.size("maxTransferCountOnMessageInMemory") or Limits.count_in_memory,
        bytes_on_disk=conf.size("maxTransferBytesOnMessageInDisk") or Limits.bytes_on_disk,
        count_on_disk=conf.size("maxTransferCountOnMessageInDisk") or Limits.count_on_disk,
        filtered_bytes=conf.size("maxFilterMessageSize") or Limits.filtered_bytes,
        files=conf.size("travelCqFileNumWhenGetMessage") or Limits.files,
    )


@dataclass
class Answer:
    """The answer to a pull: the status, the next offset, the queue's range, and the units whose records are sent.

    `passed_over` counts messages that are not sent because no log file is there that holds them.
    """

    status: Status
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    units: list[Unit] = field(default_factory=list)
    passed_over: int = 0


@dataclass(frozen=True)
class Puller:
    """Answers pulls from one queue by the rules of `version`; `queue` and its ext units are None without the queue."""

    queue: LoadedQueue | None
    log: LogBytes
    version: Version
    limits: Limits
    ext: ExtTags | None = None

    def pull(self, queue_offset: int, max_count: int, subscription: Subscription) -> Answer:
        """At most `max_count` messages from `queue_offset` on, as a master answers."""
        if self.queue is None:  # the broker makes one on the fly: findConsumeQueue
            return Answer("NO_MESSAGE_IN_QUEUE", 0)
        queue_range = self.queue.range
        answer = self._outside(queue_range, queue_offset)
        if answer is None:
            answer = _Walk(self.queue, self, queue_offset, max_count, subscription).answer()
        answer.min_offset, answer.max_offset = queue_range.min_offset, queue_range.max_offset
        return answer

    def _outside(self, queue_range: QueueRange, queue_offset: int) -> Answer | None:
        """The answer to an offset outside of the queue's range, else None."""
        if queue_range.max_offset == 0:
            return Answer("NO_MESSAGE_IN_QUEUE", 0)
        if queue_offset < queue_range.min_offset:
            return Answer("OFFSET_TOO_SMALL", queue_range.min_offset)
        if queue_offset == queue_range.max_offset:
            return Answer("OFFSET_OVERFLOW_ONE", queue_offset)
        if queue_offset > queue_range.max_offset:
            begins_anew = self.version < BEYOND_MAX_TO_MAX and queue_range.min_offset == 0
            return Answer("OFFSET_OVERFLOW_BADLY", 0 if begins_anew else queue_range.max_offset)
        return None


class _Walk:
    """The walk over the units of a queue that one pull makes."""

    def __init__(
        self, queue: LoadedQueue, puller: Puller, queue_offset: int, max_count: int, subscription: Subscription
    ) -> None:
        self._queue, self._log, self._limits = queue, puller.log, puller.limits
        self._version, self._ext = puller.version, puller.ext
        self._start, self._max_count, self._subscription = queue_offset, max_count, subscription
        self._skip_until: int | None = None  # after an unreadable record the rest of its log file is skipped
        self._bytes = self._count = 0
        self._answer = Answer("NO_MATCHED_MESSAGE", queue_offset)

    def answer(self) -> Answer:
        """Walk, and return the answer."""
        left = self._limits.files if self._version >= PULL_BY_UNITS else 1
        while left > 0 and not self._bytes and self._answer.next_begin_offset < self._queue.range.max_offset:
            left -= 1
            units = self._queue.units_from(self._answer.next_begin_offset)
            if units is None:
                self._answer.status = "OFFSET_FOUND_NULL"
                self._answer.next_begin_offset = self._queue.next_file(self._answer.next_begin_offset)
                break
            self._skip_until = None
            is_limited = self._queue.queue.database and self._version < ROWS_ONE_BY_ONE
            self._walk_file(islice(units, self._max_count) if is_limited else units)
        return self._answer

    def _walk_file(self, units: Iterator[Unit]) -> None:
        for unit in units:
            if self._answer.next_begin_offset >= self._queue.range.max_offset or self._is_far(unit):
                return
            skipped = self._skip_until is not None and unit.physical_offset < self._skip_until
            # Before 5.0 a unit that is skipped fills no batch.
            if not (skipped and self._version < PULL_BY_UNITS) and self._is_full(unit):
                return
            self._answer.next_begin_offset = unit.queue_offset + unit.batch_size
            if skipped:
                self._answer.passed_over += unit.batch_size
            else:
                self._add_if_wanted(unit)

    def _add_if_wanted(self, unit: Unit) -> None:
        tags_code = self._ext.tags_code(unit.tags_code) if self._ext else unit.tags_code
        if not self._subscription.takes_unit(tags_code):
            if not self._bytes:
                self._answer.status = "NO_MATCHED_MESSAGE"
            return
        if self._log.file_of(unit.physical_offset, unit.message_size) is None:
            if not self._bytes:
                self._answer.status = "MESSAGE_WAS_REMOVING"
            self._answer.passed_over += unit.batch_size
            self._skip_until = self._log.next_file(unit.physical_offset)
            return
        self._answer.units.append(unit)
        self._answer.status = "FOUND"
        self._bytes += unit.message_size
        self._count += unit.batch_size
        self._skip_until = None

    def _is_far(self, unit: Unit) -> bool:
        """Whether a unit lies beyond the units that one pull reads."""
        distance, size = unit.queue_offset - self._start, self._queue.queue.unit_size
        limit = max(self._limits.filtered_bytes, self._max_count * size)
        if self._version >= FILTERED_IN_BYTES:
            return distance * size >= limit if self._version >= FILTERED_BYTES_INCLUSIVE else distance * size > limit
        return distance > limit if self._version >= PULL_BY_UNITS else distance * size >= limit

    def _is_full(self, unit: Unit) -> bool:
        """Whether the answer takes no more (`#isTheBatchFull`); the first message is always taken."""
        if not self._bytes or not self._count:
            return False
        limits = self._limits
        on_disk = self._log.max_offset - unit.physical_offset > limits.memory
        size = self._bytes + unit.message_size
        return (
            self._count + unit.batch_size > self._max_count
            or size > _MAX_PULL_BYTES
            or size > (limits.bytes_on_disk if on_disk else limits.bytes_in_memory)
            or self._count >= (limits.count_on_disk if on_disk else limits.count_in_memory)
        )


def puller_of(snapshot: Snapshot, topic: str, queue_id: int) -> Puller:
    """What pulls from one queue of a store, by the rules and limits of the store's version and configuration."""
    return puller_from(snapshot, snapshot.queue(topic, queue_id))


def puller_from(snapshot: Snapshot, queue: LoadedQueue | None) -> Puller:
    """The same of a queue that is loaded."""
    ext = None if queue is None else ExtTags(snapshot.store, queue.queue)
    return Puller(queue, snapshot.log_bytes, snapshot.release, limits_of(snapshot.store.conf), ext)


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass(frozen=True)
class CompactedPuller(Puller):
    """Answers pulls of a compacted queue (`CompactionStore#getMessage`): from any offset on, and of all tags."""

    files: Sequence[MappedFile] = ()

    def pull(self, queue_offset: int, max_count: int, subscription: Subscription) -> Answer:  # noqa: ARG002
        """At most `max_count` messages from the first at or after `queue_offset`, whatever their tags."""
        return super().pull(queue_offset, max_count, Subscription())

    def _outside(self, queue_range: QueueRange, queue_offset: int) -> Answer | None:
        answer = super()._outside(queue_range, max(queue_offset, queue_range.min_offset))
        if answer is not None and answer.status == "OFFSET_OVERFLOW_BADLY" and queue_range.min_offset == 0:
            answer.next_begin_offset = 0
        return answer


def compacted_puller(snapshot: Snapshot, topic: str, queue_id: int) -> CompactedPuller | None:
    """What pulls from a compacted queue, None where consumers are served from the plain one."""
    queue = served_queue(snapshot.store, topic, queue_id)
    if queue is None:
        return None
    files = queue.log.files
    log = LogBytes(queue.log, files[-1].end_offset if files else 0, snapshot.reading)
    loaded = CompactedFiles(queue) if files else None
    limits = limits_of(snapshot.store.conf)
    return CompactedPuller(loaded, log, snapshot.release, limits, files=files)
