"""An overview of a store as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rmqtool.base.times import rfc3339
from rmqtool.inspect.log_statistics import LogStatistics, LogTotals
from rmqtool.inspect.overview import Overview
from rmqtool.inspect.summary import bytes_per_hour, group_failures, index_coverage, out_of_range, waiting
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.queue_range import QueueRange
from rmqtool.store.store import Store

MAX_TIME_BINS = 60
"""Bins of the distribution of store times, at most."""


def overview_json(overview: Overview, statistics: LogStatistics | None = None) -> dict[str, Any]:
    """The `result` of ``inspect STORE``; `statistics` of a scan add the fields that need all records."""
    result = {
        "broker": _broker(overview),
        "commit_log": _commit_log(overview, statistics),
        "queues": [_queue(queue, offsets, statistics) for queue, offsets in overview.queues],
        "index": [
            _index_file(overview.snapshot.store, file, geometry)
            for file, geometry in overview.snapshot.index_geometries
        ],
        "checkpoint": _with_times(overview.checkpoint) if overview.checkpoint else None,
        "consumers": [
            {
                "group": committed.group,
                "topic": committed.topic,
                "queue_id": committed.queue_id,
                "committed_offset": committed.offset,
                "lag": overview.lag(committed),
                "out_of_range": out_of_range(overview, committed),
                "unreachable": overview.unreachable(committed),
            }
            for committed in overview.snapshot.committed.offsets
        ],
        "groups": [asdict(group) for group in group_failures(overview)],
        "waiting": asdict(waiting(overview)),
        "index_coverage": _coverage(overview),
    }
    if statistics:
        result["scan"] = _scan(statistics)
    return result


def _broker(overview: Overview) -> dict[str, Any]:
    return {
        "running": overview.snapshot.broker_runs,
        "last_exit": overview.last_exit,
        "pid": overview.snapshot.holder.pid if overview.snapshot.holder else None,
        "layout": overview.snapshot.store.layout,
        "version_at_least": str(overview.signs[-1].since) if overview.signs else None,
        "version_signs": [{"sign": sign.name, "since": str(sign.since)} for sign in overview.signs],
    }


def _commit_log(overview: Overview, statistics: LogStatistics | None) -> dict[str, Any]:
    log, log_range = overview.snapshot.current_log, overview.log_range
    first, last = (log_range.first_store_timestamp, log_range.last_store_timestamp) if log_range else (None, None)
    return {
        "files": len(log.files),
        "bytes": log.size,
        "file_size": log.file_size,
        "min_offset": log_range.min_offset if log_range else log.files[0].start_offset,
        "max_offset": log_range.max_offset if log_range else None,
        "first_store_timestamp": first,
        "first_store_time": rfc3339(first),
        "last_store_timestamp": last,
        "last_store_time": rfc3339(last),
        "messages": statistics.total.messages if statistics else None,
        "bytes_per_hour": bytes_per_hour(overview),
        "before_dledger": _older_log(overview),
    }


def _older_log(overview: Overview) -> dict[str, Any] | None:
    older, log_range = overview.snapshot.older_log, overview.older_range
    if not older.files:
        return None
    return {
        "files": len(older.files),
        "bytes": older.size,
        "file_size": older.file_size,
        "min_offset": older.files[0].start_offset,
        "max_offset": log_range.max_offset if log_range else None,
    }


def _coverage(overview: Overview) -> dict[str, Any] | None:
    coverage = index_coverage(overview)
    if coverage is None:
        return None
    first, last = coverage
    return {
        "begin_timestamp": first,
        "begin_time": rfc3339(first),
        "end_timestamp": last,
        "end_time": rfc3339(last),
    }


def _queue(queue: Queue, offsets: QueueRange, statistics: LogStatistics | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "kind": queue.shown_kind,
        "min_offset": offsets.min_offset,
        "max_offset": offsets.max_offset,
        "files": len(queue.files.files),
        "file_size": queue.files.file_size,
    }
    if statistics:
        shown |= _totals(statistics.queues.get((queue.topic, queue.queue_id), LogTotals()))
    return shown


def _index_file(store: Store, file: IndexFile, geometry: Geometry | None) -> dict[str, Any]:
    return {
        "file": store.relative(file.path),
        "keys": file.keys,
        "begin_timestamp": file.begin_timestamp,
        "begin_time": rfc3339(file.begin_timestamp),
        "end_timestamp": file.end_timestamp,
        "end_time": rfc3339(file.end_timestamp),
        "begin_physical_offset": file.begin_physical_offset,
        "end_physical_offset": file.end_physical_offset,
        "slots_used": file.hash_slot_count,
        "slots": geometry.slots if geometry else None,
        "capacity": geometry.units - 1 if geometry else None,
    }


def _with_times(checkpoint: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in checkpoint.items():
        shown[name] = value
        if name.endswith("_timestamp"):
            shown[f"{name.removesuffix('_timestamp')}_time"] = rfc3339(value or None)
    return shown


def _scan(statistics: LogStatistics) -> dict[str, Any]:
    return {
        **_totals(statistics.total),
        "body_bytes": statistics.body_bytes,
        "smallest_message_bytes": statistics.smallest,
        "largest_message_bytes": statistics.largest,
        "first_store_timestamp": statistics.first_store_timestamp,
        "first_store_time": rfc3339(statistics.first_store_timestamp),
        "last_store_timestamp": statistics.last_store_timestamp,
        "last_store_time": rfc3339(statistics.last_store_timestamp),
        "sizes": [{"from_bytes": size, "messages": count} for size, count in statistics.sizes.bins()],
        "times": [
            {"begin_timestamp": begin, "begin_time": rfc3339(begin), "messages": count}
            for begin, count in statistics.times.bins(MAX_TIME_BINS)
        ],
        "topics": [{"topic": topic, **_totals(totals)} for topic, totals in statistics.topics.items()],
        "queues": [
            {"topic": topic, "queue_id": queue_id, **_totals(totals)}
            for (topic, queue_id), totals in sorted(statistics.queues.items())
        ],
        "blanks": {"count": statistics.blanks.messages, "bytes": statistics.blanks.bytes},
        "wrong_bodies": {"count": statistics.wrong_bodies, "physical_offsets": statistics.wrong_body_offsets},
        "damage": {
            "count": statistics.damaged.messages,
            "bytes": statistics.damaged.bytes,
            "extents": [
                {"physical_offset": damage.physical_offset, "size": damage.size, "reason": damage.reason}
                for damage in statistics.damage
            ],
        },
    }


def _totals(totals: LogTotals) -> dict[str, int]:
    return {"messages": totals.messages, "bytes": totals.bytes}
