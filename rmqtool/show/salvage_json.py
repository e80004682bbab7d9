"""A salvage as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.carry_over import Carried
from rmqtool.salvage.left_behind import Left
from rmqtool.salvage.plan import MAX_GAPS, SalvagePlan
from rmqtool.salvage.write_conversion import MovedLog
from rmqtool.show.filters_json import filters_json
from rmqtool.show.output import error_json
from rmqtool.show.salvage_result import Choice, Salvaged
from rmqtool.transaction.selections import OFFSET_MAP


def salvage_json(found: Salvaged, output: Path) -> dict[str, Any]:
    """The `result` of ``salvage SOURCE... --output NEW``."""
    plan = found.plan
    gaps = plan.layout.gaps
    return {
        "state": found.state,
        "output": str(output),
        "sources": [_source(plan, number) for number in range(len(plan.inputs.names))],
        "commit_log": _log(plan, found.moved) if found.choice is None else _chosen_log(plan, found.choice),
        "selection": None if found.choice is None else _choice(plan, found.choice, output),
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
        "dledger": _dledger(plan),
        "not_carried_over": list(found.not_carried),
        "carried_over": carried_json(found.carried, plan.inputs.names),
        **derived_json(found.rebuild),
        "needed_bytes": plan.needed if found.choice is None else found.choice.needed,
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


def _dledger(plan: SalvagePlan) -> dict[str, Any] | None:
    """What the Raft indices say of messages that move."""
    if not plan.layout.is_moved:
        return None
    return {
        "committed_index": plan.inputs.committed,
        "missing_messages": plan.committed_missing,
        "uncommitted_messages": plan.uncommitted,
    }


def _log(plan: SalvagePlan, moved: MovedLog | None) -> dict[str, Any]:
    files, copies, file_size = plan.layout.files, plan.layout.copies, plan.layout.file_size
    end, count = int(copies["physical_offset"][-1] + copies["size"][-1]) if len(copies) else 0, len(files)
    if plan.layout.is_moved and files:
        start = files[0].start_offset
        end = moved.end if moved else start + plan.size + plan.lost
        count = (end - start + file_size - 1) // file_size
    return {
        "file_size": file_size,
        "file_size_known": plan.is_size_known,
        "files": count,
        "min_offset": files[0].start_offset if files else 0,
        "max_offset": end,
        "messages": plan.records,
        "bytes": plan.size,
        "first_store_timestamp": int(copies["first_time"][0]) if len(copies) else None,
        "last_store_timestamp": int(copies["last_time"][-1]) if len(copies) else None,
    }


def _chosen_log(plan: SalvagePlan, choice: Choice) -> dict[str, Any]:
    chosen = choice.chosen
    return {
        "file_size": plan.layout.file_size,
        "file_size_known": plan.is_size_known,
        "files": chosen.files,
        "min_offset": chosen.start_offset,
        "max_offset": chosen.end,
        "messages": chosen.messages,
        "bytes": chosen.size,
        "first_store_timestamp": chosen.first_timestamp,
        "last_store_timestamp": chosen.last_timestamp,
    }


def _choice(plan: SalvagePlan, choice: Choice, output: Path) -> dict[str, Any]:
    chosen, log, selection = choice.chosen, choice.log, choice.selection
    return {
        "filters": filters_json(selection.filters),
        "queue_offsets": selection.queue_offsets,
        "left_out_messages": plan.records - chosen.messages,
        "left_out_bytes": plan.size - chosen.size,
        "not_carried_over": list(choice.not_carried),
        "offset_map_file": str(output / OFFSET_MAP) if log and log.numbering else None,
        "offset_map_rows": log.map_rows if log else 0,
        "offset_map": [
            {
                "topic": row.queue.topic,
                "queue_id": row.queue.queue_id,
                "old_queue_offset": row.old_offset,
                "new_queue_offset": row.new_offset,
                "messages": row.messages,
            }
            for row in (log.renumbered if log else ())
        ],
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
