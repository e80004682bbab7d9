"""An overview of a store as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from rmqtool.base.numbers import Count, Long
from rmqtool.base.times import CertainMoment, Moment, rfc3339
from rmqtool.inspect.log_statistics import LogStatistics, LogTotals
from rmqtool.inspect.overview import (
    GroupFailures,
    Overview,
    Waiting,
    bytes_per_hour,
    group_failures,
    index_coverage,
    out_of_range,
    waiting,
)
from rmqtool.show.shapes import Shape, at, by
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import QueueRange

ReleaseText = Annotated[str, r"^\d+\.\d+\.\d+$"]
MAX_TIME_BINS = 60
"""Bins of the distribution of store times, at most."""


def overview_json(overview: Overview, statistics: LogStatistics | None = None) -> dict[str, Any]:
    """The `result` of ``inspect STORE``; `statistics` of a scan add the fields that need all records."""
    return InspectResult.of(overview, _Around(overview, statistics))


class _Around(NamedTuple):
    overview: Overview
    statistics: LogStatistics | None


class VersionSign(Shape):
    """What shows a version."""

    sign: str = at("name")  # What was found.
    since: ReleaseText = by(lambda sign, _: str(sign.since))  # The oldest release that writes it.


class BrokerState(Shape):
    """Who writes the store."""

    # Whether a broker holds the store's lock; null for a store on another machine, whose locks cannot be seen.
    running: bool | None = at("snapshot.broker_runs")
    # How the last broker ended; unknown while one runs, or may run on another machine.
    last_exit: Literal["clean", "unclean", "unknown"]
    # Process id of what holds the store's lock, where the system says it.
    pid: Count | None = by(lambda found, _: found.snapshot.holder.pid if found.snapshot.holder else None)
    # How the files lie on disk.
    layout: Literal["default", "multi-path", "rocksdb", "dledger"] = at("snapshot.store.layout")
    # The oldest release that can have written all signs; null without a sign.
    version_at_least: ReleaseText | None = by(lambda found, _: str(found.signs[-1].since) if found.signs else None)
    version_signs: list[VersionSign] = at("signs")  # Traces in the store that show its version, the newest last.


class LogFiles(Shape):
    """The files of a log."""

    files: Count = by(lambda log, _: len(log.files))  # Files of the commit log.
    bytes: Count = at("size")  # Their sizes together, bytes, including space allocated in advance.
    file_size: Count  # The size that most of them have, bytes; 0 without a file.


class PlainLog(LogFiles):
    """The plain log from before DLedger."""

    min_offset: Long = by(lambda log, _: log.files[0].start_offset)  # Where its first file begins, bytes.
    # Where it ends, exclusive, bytes; null when its end cannot be read.
    max_offset: Long | None = by(
        lambda _, around: around.overview.older_range.max_offset if around.overview.older_range else None
    )


def _in_range(name: str) -> Any:
    """A field of the log's range; None where its end cannot be read."""
    return by(lambda _, around: getattr(around.overview.log_range, name, None))


class WholeLog(LogFiles):
    """The commit log."""

    # Physical offset of the first file, bytes; -1 without a file.
    min_offset: Long = by(lambda log, around: around.overview.log_range.min_offset if around.overview.log_range
                          else log.files[0].start_offset)  # fmt: skip
    # Physical offset after the last record, bytes; 0 without a file, null when its end cannot be read.
    max_offset: Long | None = _in_range("max_offset")
    first_store: Moment = _in_range("first_store_timestamp")  # Store timestamp of the first record.
    last_store: Moment = _in_range("last_store_timestamp")  # Store timestamp of the last record.
    # Records in the log; null without --scan.
    messages: Count | None = by(lambda _, around: around.statistics.total.messages if around.statistics else None)
    # Growth on average from the first to the last message; null where they show no time.
    bytes_per_hour: int | None = by(lambda _, around: bytes_per_hour(around.overview))
    # For a broker that was converted to DLedger, the earlier plain log, which it still reads; null otherwise.
    before_dledger: PlainLog | None = by(
        lambda _, around: around.overview.snapshot.older_log if around.overview.snapshot.older_log.files else None
    )


def _of_queue(name: str) -> Any:
    """A number of a queue's records in the log, with a scan."""

    def read(found: tuple[Queue, QueueRange], around: _Around) -> int | None:
        if around.statistics is None:
            return None
        number: int = getattr(around.statistics.queues.get((found[0].topic, found[0].queue_id), LogTotals()), name)
        return number

    return by(read, optional=True)


class StoredQueue(Shape):
    """One consume queue."""

    topic: str = by(lambda found, _: found[0].topic)  # Name of its directory.
    queue_id: Count = by(lambda found, _: found[0].queue_id)  # Number of the queue.
    # Units of one message, or of a batch; rows in RocksDB, without files.
    kind: Literal["simple", "batch", "rocksdb"] = by(lambda found, _: found[0].shown_kind)
    # First queue offset that the broker gives out, by its own rules.
    min_offset: Long = by(lambda found, _: found[1].min_offset)
    max_offset: Long = by(lambda found, _: found[1].max_offset)  # Queue offset after the last unit.
    files: Count = by(lambda found, _: len(found[0].files.files))  # Files of the queue.
    # The size that most of them have, bytes; 0 without a file.
    file_size: Count = by(lambda found, _: found[0].files.file_size)
    messages: Count | None = _of_queue("messages")  # Records of this topic and queue in the log; only with --scan.
    bytes: Count | None = _of_queue("bytes")  # Their whole records, bytes; only with --scan.


class StoredIndex(Shape):
    """One index file, by its header."""

    # Path, relative to the store.
    file: str = by(lambda found, around: around.overview.snapshot.store.relative(found[0].path))
    keys: Long = by(lambda found, _: found[0].keys)  # Index units in the file.
    # Store timestamp of the first message; 0 in a new file.
    begin: CertainMoment = by(lambda found, _: found[0].begin_timestamp)
    # Store timestamp of the last message; 0 in a new file.
    end: CertainMoment = by(lambda found, _: found[0].end_timestamp)
    # Commit log position of the first message, bytes.
    begin_physical_offset: Long = by(lambda found, _: found[0].begin_physical_offset)
    # Commit log position of the last message, bytes.
    end_physical_offset: Long = by(lambda found, _: found[0].end_physical_offset)
    slots_used: Long = by(lambda found, _: found[0].hash_slot_count)  # Hash slots in use, as the header says.
    # Hash slots of the file; null when they are not known.
    slots: Count | None = by(lambda found, _: found[1].slots if found[1] else None)
    # Index units that fit into the file; null if not known.
    capacity: Count | None = by(lambda found, _: found[1].units - 1 if found[1] else None)


def _time(name: str) -> Any:
    """The time of a timestamp; null where it is 0."""
    return by(lambda row, _: rfc3339(row[name] or None))


class StoredCheckpoint(Shape):
    """The file checkpoint."""

    # Store timestamp of the last flushed commit log record, epoch ms; 0 when there was none.
    physic_message_timestamp: Long
    physic_message_time: str | None = _time("physic_message_timestamp")  # The same moment; null for 0.
    # Store timestamp of the last flushed consume queue unit, epoch ms; 0 when there was none.
    logics_message_timestamp: Long
    logics_message_time: str | None = _time("logics_message_timestamp")  # The same moment; null for 0.
    # Store timestamp of the last full index file, epoch ms; 0 when there was none.
    index_message_timestamp: Long
    index_message_time: str | None = _time("index_message_timestamp")  # The same moment; null for 0.
    master_flushed_offset: Long  # Commit log bytes that the master has flushed; 0 before 5.0.0.
    confirm_physical_offset: Long  # Commit log bytes confirmed by the in-sync replicas; 0 before 5.1.1.
    # Commit log position of the last record dispatched before the last flush, bytes; 0 before 5.5.0.
    logics_physical_offset: Long


class Committed(Shape):
    """What a group has committed of one queue."""

    group: str  # Consumer group.
    topic: str  # Topic.
    queue_id: Long  # Number of the queue.
    committed_offset: Long = at("offset")  # The next queue offset that the group consumes.
    # Messages from there to the queue's maximum; negative beyond it, null without the queue.
    lag: Long | None = by(lambda committed, around: around.overview.lag(committed))
    # below: under the queue's minimum, deleted messages were not consumed; beyond: over its maximum; null: within, or
    # no queue.
    out_of_range: Literal["below", "beyond", None] = by(
        lambda committed, around: out_of_range(around.overview, committed)
    )
    # Messages of the log that it has not consumed and does not get, because entries of the queue are missing; not part
    # of the lag.
    unreachable: Long = by(lambda committed, around: around.overview.unreachable(committed))


class Coverage(Shape):
    """Store times of the first and the last message in an index file."""

    begin: Moment = by(lambda pair, _: pair[0])  # First.
    end: Moment = by(lambda pair, _: pair[1])  # Last.


class SizePart(Shape):
    """Messages of sizes from here to twice as many bytes."""

    from_bytes: Count = by(lambda part, _: part[0])  # Smallest size, bytes.
    messages: Count = by(lambda part, _: part[1])  # How many.


class TimePart(Shape):
    """Messages stored from here to the next part."""

    begin: Moment = by(lambda part, _: part[0])  # Beginning.
    messages: Count = by(lambda part, _: part[1])  # How many.


class TopicTotals(Shape):
    """Records of one topic."""

    topic: str = by(lambda item, _: item[0])  # Topic.
    messages: Count = by(lambda item, _: item[1].messages)  # Records.
    bytes: Count = by(lambda item, _: item[1].bytes)  # Their whole records, bytes.


class QueueTotals(Shape):
    """Records of one queue."""

    topic: str = by(lambda item, _: item[0][0])  # Topic.
    queue_id: int = by(lambda item, _: item[0][1])  # Number of the queue.
    messages: Count = by(lambda item, _: item[1].messages)  # Records.
    bytes: Count = by(lambda item, _: item[1].bytes)  # Their whole records, bytes.


class Blanks(Shape):
    """Ends of full files."""

    count: Count = at("messages")  # Blanks.
    bytes: Count  # Their bytes.


class WrongBodies(Shape):
    """Messages whose body does not have the CRC stored with it."""

    count: Count = at("wrong_bodies")  # Such messages.
    # Where the first thousand of them begin in the commit log, bytes.
    physical_offsets: list[int] = at("wrong_body_offsets")


class DamagedExtent(Shape):
    """A damaged range of the commit log."""

    physical_offset: Long  # Where it begins in the commit log, bytes.
    size: Count  # Its length, bytes.
    # zeroed: zero bytes where a record should begin; magic-code: neither a message's magic code nor a blank's;
    # physical-offset: a record with a wrong physical offset; lengths: inconsistent lengths, or a blank with intact
    # records after it; truncated: the file ends inside a record; missing: these bytes are in no file; torn: the log's
    # last record, cut by an unclean stop; leftover: old bytes after the log's last record, in its page.
    reason: Literal["zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover"]


class Damages(Shape):
    """Bytes that are no message."""

    count: Count = at("damaged.messages")  # Damaged extents.
    bytes: Count = at("damaged.bytes")  # Their bytes.
    extents: list[DamagedExtent] = at("damage")  # The first thousand of them.


class Scan(Shape):
    """What reading every record adds."""

    messages: Count = at("total.messages")  # Records.
    bytes: Count = at("total.bytes")  # Their whole records, bytes.
    body_bytes: Count  # Stored bodies together, bytes.
    smallest_message_bytes: Count | None = at("smallest")  # Smallest whole record, bytes; null without a record.
    largest_message_bytes: Count | None = at("largest")  # Largest whole record, bytes; null without a record.
    first_store: Moment = at("first_store_timestamp")  # Least store timestamp of all records.
    last_store: Moment = at("last_store_timestamp")  # Greatest store timestamp of all records.
    sizes: list[SizePart] = by(lambda scan, _: scan.sizes.bins())  # Messages by size, in powers of two.
    # Messages by store time, in parts of the same length, at most 60.
    times: list[TimePart] = by(lambda scan, _: scan.times.bins(MAX_TIME_BINS))
    topics: list[TopicTotals] = by(lambda scan, _: scan.topics.items())  # By topic, in name order.
    queues: list[QueueTotals] = by(lambda scan, _: sorted(scan.queues.items()))  # By topic and queue.
    blanks: Blanks
    wrong_bodies: WrongBodies = by(lambda scan, _: scan)
    damage: Damages = by(lambda scan, _: scan)


class InspectResult(Shape):
    """What the store holds."""

    broker: BrokerState = by(lambda overview, _: overview)
    commit_log: WholeLog = at("snapshot.current_log")
    queues: list[StoredQueue]  # Consume queues, the simple ones first, by topic and number.
    index: list[StoredIndex] = at("snapshot.index_geometries")  # Index files in name order.
    # null without the file.
    checkpoint: StoredCheckpoint | None = by(lambda overview, _: overview.checkpoint or None)
    consumers: list[Committed] = at("snapshot.committed.offsets")  # Committed offsets, by group, topic and queue.
    # Groups with retry or dead letter topics.
    groups: list[GroupFailures] = by(lambda overview, _: group_failures(overview))
    waiting: Waiting = by(lambda overview, _: waiting(overview))  # Delayed, timer and half messages.
    # What index files cover; null without a key.
    index_coverage: Coverage | None = by(lambda overview, _: index_coverage(overview))
    scan: Scan | None = by(lambda _, around: around.statistics, optional=True)  # Only with --scan.
