"""A conversion as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.carry_over import Carried
from rmqtool.salvage.conversion import ConversionPlan
from rmqtool.show.salvage_json import carried_json, derived_json

ConvertState = Literal["planned", "done"]


def convert_json(
    plan: ConversionPlan,
    carried: Sequence[Carried],
    left: Sequence[str],
    rebuild: RebuildPlan | None,
    output: Path,
    state: ConvertState,
    older_queues: int = 0,
) -> dict[str, Any]:
    """The `result` of ``convert STORE --output NEW``."""
    conversion = plan.conversion
    return {
        "state": state,
        "output": str(output),
        "layout": "dledger" if conversion.store.dledger_directory else "multi-path",
        "commit_log": {
            "file_size": conversion.file_size,
            "files": plan.files,
            "plain_files": len(conversion.plain),
            "min_offset": conversion.min_offset,
            "max_offset": plan.end,
            "messages_of_entries": plan.messages,
            "bytes_of_entries": plan.bytes,
            "filled_bytes": plan.filled_bytes,
            "first_store_timestamp": plan.first_timestamp,
            "last_store_timestamp": plan.last_timestamp,
        },
        "committed_index": conversion.committed,
        "missing_entries": plan.missing,
        "wrong_bodies": plan.wrong_bodies,
        "queues_before_log": older_queues,
        "left_out": [each._asdict() for each in plan.left],
        "left_out_totals": [
            {"reason": reason, "extents": total.extents, "bytes": total.size, "messages": total.messages}
            for reason, total in sorted(plan.totals.items())
        ],
        "carried_over": carried_json(carried, [str(conversion.store.root)]),
        "not_carried_over": list(left),
        **derived_json(rebuild),
        "needed_bytes": plan.needed,
    }
