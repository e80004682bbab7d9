"""What becomes of the rows of queues in RocksDB whose messages are deleted, as a sentence."""

from __future__ import annotations

from rmqtool.clean.plan import CleanPlan
from rmqtool.clean.queue_rows import QueueRows
from rmqtool.findings.finding import counted


def rows_text(plan: CleanPlan, rows: QueueRows) -> str:
    """How many rows lead to deleted messages, which of them the runs take away, and when the others go."""
    database, dropped = plan.snapshot.store.relative(rows.database.path), sum(rows.dropped)
    gone = f"{counted(dropped, 'row')} of {database}/ go with their messages" if dropped else ""
    if not rows.left:
        return gone or f"no row of {database}/ leads to a deleted message"
    left = f"{counted(rows.left, 'row')} of {database}/ {'leads' if rows.left == 1 else 'lead'} to deleted messages"
    left += " then" if plan.deleted else ""
    return f"{gone}, {left}: {_until(plan, rows)}" if gone else f"{left}: {_until(plan, rows)}"


def _until(plan: CleanPlan, rows: QueueRows) -> str:
    if not rows.is_filtered:
        return "brokers before 5.3.4 that write queues twice never drop them"
    settings = plan.rules.settings
    return (
        "a compaction drops them, after log files were deleted in an hour of deleteWhen "
        f"({settings.delete_when!r}) or above {settings.disk_max_used_space_ratio}%, or when RocksDB merges tables"
    )
