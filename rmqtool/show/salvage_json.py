"""A salvage as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.carry_over import Carried
from rmqtool.salvage.left_behind import Left
from rmqtool.salvage.plan import MAX_GAPS, SalvagePlan
from rmqtool.show.output import error_json

SalvageState = Literal["planned", "done", "nothing"]


def salvage_json(
    plan: SalvagePlan, carried: Sequence[Carried], rebuild: RebuildPlan | None, output: Path, state: SalvageState
) -> dict[str, Any]:
    """The `result` of ``salvage SOURCE... --output NEW``."""
    gaps = plan.layout.gaps
    return {
        "state": state,
        "output": str(output),
        "sources": [_source(plan, number) for number in range(len(plan.inputs.names))],
        "commit_log": _log(plan),
        "gaps": [
            {"physical_offset": gap.physical_offset, "size": gap.size, "store_timestamp": gap.timestamp}
            for gap in gaps[:MAX_GAPS]
        ],
        "gap_count": len(gaps),
        "gap_bytes": plan.lost,
        "left_behind": [_left(plan, left) for left in plan.left.listed],
        "left_behind_totals": [
            {"reason": reason, "ranges": total.ranges, "bytes": total.size, "messages": total.records}
            for reason, total in sorted(plan.left.totals.items())
        ],
        "carried_over": carried_json(carried, plan.inputs.names),
        **derived_json(rebuild),
        "needed_bytes": plan.needed,
        "unread": [error_json(error) for error in plan.inputs.errors],
    }


def carried_json(carried: Sequence[Carried], names: Sequence[str]) -> list[dict[str, Any]]:
    """What is beside a log, from the sources of these names."""
    return [
        {"name": each.name, "source": None if each.source is None else names[each.source], "problem": each.problem}
        for each in carried
    ]


def derived_json(rebuild: RebuildPlan | None) -> dict[str, Any]:
    """The queues and the index of a new store, none before it is made."""
    return {
        "queues": [
            {
                "topic": queue.name.topic,
                "queue_id": queue.name.queue_id,
                "kind": queue.kind,
                "units": queue.units,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
            }
            for queue in (rebuild.queues if rebuild else ())
        ],
        "index": [file.name for file in (rebuild.index if rebuild else ()) if file.action != "remove"],
        "index_units": rebuild.index_units if rebuild else 0,
    }


def _source(plan: SalvagePlan, number: int) -> dict[str, Any]:
    messages, size = plan.of_source(number)
    files = plan.inputs.of_source(number)
    return {"path": plan.inputs.names[number], "files": len(files), "messages": messages, "bytes": size}


def _log(plan: SalvagePlan) -> dict[str, Any]:
    files, copies = plan.layout.files, plan.layout.copies
    end = int(copies["physical_offset"][-1] + copies["size"][-1]) if len(copies) else 0
    return {
        "file_size": plan.layout.file_size,
        "file_size_known": plan.is_size_known,
        "files": len(files),
        "min_offset": files[0].start_offset if files else 0,
        "max_offset": end,
        "messages": plan.records,
        "bytes": plan.size,
        "first_store_timestamp": int(copies["first_time"][0]) if len(copies) else None,
        "last_store_timestamp": int(copies["last_time"][-1]) if len(copies) else None,
    }


def _left(plan: SalvagePlan, left: Left) -> dict[str, Any]:
    file = plan.inputs.files[left.input]
    return {
        "source": plan.inputs.names[file.source],
        "file": str(file.path),
        "position": left.position,
        "size": left.size,
        "reason": left.reason,
        "messages": left.records,
        "physical_offset": left.physical_offset,
    }
