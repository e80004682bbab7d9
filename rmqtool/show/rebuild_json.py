"""A rebuild as the JSON of the contract."""

from __future__ import annotations

from typing import Any, Literal

from rmqtool.rebuild.changes import MovedConsumer, QueuePlan
from rmqtool.rebuild.conversion import Conversion
from rmqtool.rebuild.plan import RebuildPlan

PlanState = Literal["planned", "nothing", "done"]


def plan_json(plan: RebuildPlan, state: PlanState, transaction: str | None = None) -> dict[str, Any]:
    """The `result` of ``rebuild-cq STORE`` and ``rebuild-index STORE``."""
    return {
        "transaction": transaction,
        "state": state,
        "order": plan.options.order,
        "queues": [_queue(queue) for queue in plan.queues],
        "index": [{"file": file.name, "action": file.action} for file in plan.index],
        "index_units": plan.index_units,
        "skipped": [
            {"physical_offset": offset, "size": size, "reason": reason} for offset, size, reason in plan.lost.listed
        ],
        "skipped_count": plan.lost.count,
        "skipped_bytes": plan.lost.size,
        "neutralised": [
            {"physical_offset": patch.physical_offset, "size": patch.size, "reason": patch.reason}
            for patch in plan.patches
        ],
        "consumers_moved": [_consumer(moved) for moved in plan.consumers_moved],
        "backup_bytes": plan.backup_bytes,
        **({"conversion": _conversion(plan.conversion)} if plan.conversion else {}),
    }


def _conversion(conversion: Conversion) -> dict[str, Any]:
    return {
        "to": conversion.target,
        "tables": [
            {
                "table": table.label,
                "entries": len(table.entries),
                "from": table.source,
                "to": conversion.place_of(table),
            }
            for table in conversion.tables
        ],
        "absent": list(conversion.absent),
        "removed": list(conversion.removed),
        "settings": dict(conversion.settings),
    }


def _queue(queue: QueuePlan) -> dict[str, Any]:
    return {
        "topic": queue.name.topic,
        "queue_id": queue.name.queue_id,
        "kind": queue.kind,
        "action": queue.action,
        "units": queue.units,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "added": queue.difference.added,
        "dropped": queue.difference.dropped,
        "changed": queue.difference.changed,
    }


def _consumer(moved: MovedConsumer) -> dict[str, Any]:
    return {
        "group": moved.committed.group,
        "topic": moved.committed.topic,
        "queue_id": moved.committed.queue_id,
        "committed_offset": moved.committed.offset,
        "physical_offset_before": moved.physical_offset_before,
        "physical_offset_after": moved.physical_offset_after,
    }
