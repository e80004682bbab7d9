"""A plan of the cleaner as JSON."""

from __future__ import annotations

from typing import Any

from rmqtool.base.times import rfc3339
from rmqtool.broker.cleaner import CleanerRun
from rmqtool.broker.log_deletion import FileDecision
from rmqtool.broker.trigger import Disk
from rmqtool.clean.forecast import Forecast, Outlook
from rmqtool.clean.losses import GroupLoss, Losses, Undelivered
from rmqtool.clean.plan import CleanPlan, QueueRows
from rmqtool.scan.filters import TopicChoice
from rmqtool.store.store import Store


def clean_json(
    plan: CleanPlan, losses: Losses, forecast: Forecast, topics: TopicChoice | None = None
) -> dict[str, Any]:
    """The `result` of ``clean STORE``; its lists of queues, topics and consumers are of `topics`, None: of all."""
    store, chosen = plan.snapshot.store, losses if topics is None else losses.of(topics)
    return {
        **_moment("now", plan.now),
        "broker_version": str(plan.rules.version),
        "time_zone": _zone(plan),
        "settings": [
            {"name": setting.name, "given": setting.given, "effective": setting.effective, "why": setting.why}
            for setting in plan.rules.settings.shown
        ],
        "trigger": _trigger(plan),
        "passes": [_pass(store, run) for run in plan.runs],
        "rocksdb_rows": _rows(store, losses.rows),
        "kept": [_kept(store, decision) for decision in plan.kept],
        "min_offset": plan.min_offset,
        **_moment("oldest_message", losses.oldest_timestamp),
        "messages_deleted": losses.messages_deleted,
        "queues": [
            {
                "topic": old.queue.topic,
                "queue_id": old.queue.queue_id,
                "min_offset": old.range.min_offset,
                "min_offset_after": new.range.min_offset,
                "max_offset": old.range.max_offset,
                "messages_deleted": new.first_alive - old.first_alive,
            }
            for old, new in zip(plan.facts.states, plan.states, strict=True)
            if old.queue.topic in chosen.chosen and (old.range, old.first_alive) != (new.range, new.first_alive)
        ],
        "topics": [
            {
                "topic": topic.topic,
                "messages_deleted": topic.messages_deleted,
                "messages_left": topic.messages_left,
                "emptied": topic.messages_left == 0,
            }
            for topic in chosen.topics
        ],
        "consumers": [_consumer(item) for item in chosen.groups],
        "delayed": [_undelivered(messages) for messages in losses.undelivered],
        "forecast": _forecast(forecast),
    }


def _moment(name: str, timestamp: int | None) -> dict[str, Any]:
    return {f"{name}_timestamp": timestamp, f"{name}_time": rfc3339(timestamp)}


def _zone(plan: CleanPlan) -> str | None:
    return None if plan.rules.zone is None else str(plan.rules.zone)


def _trigger(plan: CleanPlan) -> dict[str, Any]:
    trigger, disks, snapshot = plan.trigger, plan.facts.disks, plan.snapshot
    return {
        "time": trigger.time,
        "space": trigger.space,
        "manual": trigger.manual,
        "forced": trigger.forced,
        "runs": trigger.runs,
        "failure": trigger.failure,
        "writes_refused": trigger.writes_refused,
        "disk_used_percent": _percent(trigger.log_ratio),
        "disks": [_disk(snapshot.store, disk, snapshot.release) for disk in (*disks.log, disks.queues)],
        "next_timestamp": plan.next_start,
        "next_time": rfc3339(plan.next_start),
    }


def _percent(ratio: float | None) -> float | None:
    """A ratio as percent; None where the broker does not know it."""
    return None if ratio is None or ratio < 0 else round(ratio * 100, 6)


def _disk(store: Store, disk: Disk, version: Any) -> dict[str, Any]:
    return {
        "path": store.relative(disk.path),
        "used_percent": _percent(disk.ratio(version)),
        "total_bytes": disk.total,
        "free_bytes": disk.free,
        "usable_bytes": disk.usable,
    }


def _pass(store: Store, run: CleanerRun) -> dict[str, Any]:
    return {
        **_moment("run", run.time),
        "commit_log": [
            {
                "file": store.relative(decision.log_file.file.path),
                "bytes": decision.log_file.file.size,
                "reason": decision.reason,
                **_moment("modified", decision.log_file.mtime),
                **_moment("expires", decision.expires),
            }
            for decision in run.log.deleted
        ],
        "consume_queues": [store.relative(file.path) for _, file in run.queue_files],
        "index": [store.relative(file.path) for file in run.index_files],
        "freed_bytes": run.freed_bytes,
        "min_offset": run.log.min_offset,
    }


def _rows(store: Store, rows: QueueRows | None) -> dict[str, Any] | None:
    if rows is None:
        return None
    return {
        "database": store.relative(rows.database.path),
        "filtered": rows.is_filtered,
        "below_log": rows.now,
        "dropped": list(rows.dropped),
        "below_log_after": rows.left,
    }


def _kept(store: Store, decision: FileDecision) -> dict[str, Any]:
    return {
        "file": store.relative(decision.log_file.file.path),
        "bytes": decision.log_file.file.size,
        "reason": decision.reason,
        **_moment("modified", decision.log_file.mtime),
        **_moment("expires", decision.expires),
    }


def _consumer(item: GroupLoss) -> dict[str, Any]:
    return {
        "group": item.group,
        "topic": item.topic,
        "queue_id": item.queue_id,
        "committed_offset": item.committed_offset,
        "min_offset": item.min_offset,
        "min_offset_after": item.min_offset_after,
        "messages_lost": item.messages_lost,
        "already_lost": item.already_lost,
    }


def _undelivered(messages: Undelivered) -> dict[str, Any]:
    return {
        "kind": messages.kind,
        "topic": messages.topic,
        "queue_id": messages.queue_id,
        "messages_lost": messages.messages_lost,
        "exact": messages.exact,
        **_moment("first_due", messages.first_due),
        **_moment("last_due", messages.last_due),
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    growth = forecast.growth
    return {
        "log_bytes_per_hour": round(growth.log_bytes_per_hour) if growth else None,
        "disk_bytes_per_hour": round(growth.disk_bytes_per_hour) if growth else None,
        **_moment("measured_from", growth.since if growth else None),
        **_moment("measured_to", growth.until if growth else None),
        **_moment("oldest_expires", forecast.oldest_expires),
        **_moment("next_deletion", forecast.next_deletion),
        "reserved_times": [_outlook(outlook) for outlook in forecast.outlooks],
    }


def _outlook(outlook: Outlook) -> dict[str, Any]:
    return {
        "file_reserved_time": outlook.file_reserved_time,
        "most_used_percent": _percent(outlook.most_used_ratio),
        "reached": [{"name": name, **_moment("reached", time)} for name, time in outlook.reached.items()],
    }
