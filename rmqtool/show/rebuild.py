"""A rebuild as JSON and for people: what changes, what is lost, who is concerned, what to run next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from rich.console import Console

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted
from rmqtool.rebuild.conversion import Conversion
from rmqtool.rebuild.plan import MovedConsumer, QueuePlan, RebuildPlan
from rmqtool.show.output import Columns, Style, show_finding, show_table, table

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


_MAX_ROWS = 40
_MAX_EXAMPLES = 3  # findings of one code
_QUEUE_COLUMNS: Columns = [
    ("topic", "left"),
    ("queue", "right"),
    ("action", "left"),
    ("units", "right"),
    ("offsets", "right"),
    ("added", "right"),
    ("dropped", "right"),
    ("changed", "right"),
]


def show_plan(plan: RebuildPlan, style: Style, *, verb: str) -> None:
    """Show what a plan changes; `verb` says whether it will or has been done."""
    console = style.console()
    if "queues" in plan.options.parts:
        _show_queues(plan, console, verb, everything=style.verbosity > 0)
    if "index" in plan.options.parts:
        _show_index(plan, console, verb)
    if plan.conversion:
        _show_conversion(plan.conversion, console)
    _show_lost(plan, console)
    _show_consumers(plan, console)
    for code, of_code in groupby(plan.findings, key=attrgetter("code")):
        findings = list(of_code)
        everything = style.verbosity > 0
        shown = findings if everything or len(findings) <= _MAX_EXAMPLES + 1 else findings[:_MAX_EXAMPLES]
        for finding in shown:
            where = "" if finding.queue is None else f"{finding.queue}: "
            show_finding(console, replace(finding, message=where + finding.message))
        if len(shown) < len(findings):
            _print(console, f"and {len(findings) - len(shown)} more findings of {code} (all with -v, or with --json)")


def _show_conversion(conversion: Conversion, console: Console) -> None:
    rows = [(table.label, len(table.entries), table.source, conversion.place_of(table)) for table in conversion.tables]
    columns: Columns = [("table", "left"), ("entries", "right"), ("from", "left"), ("to", "left")]
    if rows:
        _show_rows(console, "topics, groups and committed offsets", columns, rows)
    if conversion.absent:
        _print(console, f"not in this store: {', '.join(conversion.absent)}; a broker begins with empty ones")
    when = "the broker needs" if conversion.is_in_place else "before you start the broker, set"
    _print(console, f"{when} in broker.conf:")
    for name, value in conversion.settings.items():
        _print(console, f"  {name}={value}")


def _show_queues(plan: RebuildPlan, console: Console, verb: str, *, everything: bool) -> None:
    changed = plan.changed_queues
    shown = plan.queues if everything else changed[:_MAX_ROWS]
    kept = len(plan.queues) - len(changed)
    counts = {action: sum(queue.action == action for queue in changed) for action in ("create", "replace")}
    title = f"{counted(counts['create'], 'queue')} to create, {counts['replace']} to replace, {kept} kept"
    if not changed:
        without_messages = len(plan.without_messages)
        title = f"all {counted(kept, 'queue')} match the log already" if kept else "no queue to rebuild"
        title += f"; {without_messages} of them without messages in the log" if without_messages else ""
    if verb == "written":
        title = f"{counted(len(plan.queues), 'queue')} written; the store lacks {counts['create']}, "
        title += f"differs in {counts['replace']}, has {kept} as they are here"
    if shown:
        rows = [
            (
                queue.name.topic,
                queue.name.queue_id,
                queue.action,
                queue.units,
                f"{queue.min_offset}..{queue.max_offset}",
                queue.difference.added,
                queue.difference.dropped,
                queue.difference.changed,
            )
            for queue in shown
        ]
        _show_rows(console, title, _QUEUE_COLUMNS, rows)
        if not everything and len(changed) > _MAX_ROWS:
            _print(console, f"and {len(changed) - _MAX_ROWS} more (all with -v, or with --json)")
    else:
        _print(console, title)


def _show_rows(console: Console, title: str, columns: Columns, rows: Sequence[Sequence[object]]) -> None:
    """A table below its title, which may be wider than the table."""
    _print(console, title)
    show_table(console, table("", columns, rows))


def _show_index(plan: RebuildPlan, console: Console, verb: str) -> None:
    if all(file.action == "keep" for file in plan.index):
        _print(console, f"index: {counted(len(plan.index), 'file')} kept, {counted(plan.index_units, 'unit')}")
        return
    names = {action: [file.name for file in plan.index if file.action == action] for action in ("create", "replace")}
    removed = sum(file.action == "remove" for file in plan.index)
    new = len(names["create"]) + len(names["replace"])
    done = "written" if verb == "written" else "to write"
    units = counted(plan.index_units, "unit")
    _print(console, f"index: {counted(new, 'file')} {done} with {units}, {removed} to remove")


def _show_lost(plan: RebuildPlan, console: Console) -> None:
    if not plan.lost.count:
        return
    rows = [(offset, size, reason) for offset, size, reason in plan.lost.listed[:_MAX_ROWS]]
    columns: Columns = [("physical offset", "right"), ("bytes", "right"), ("reason", "left")]
    holds = "holds" if plan.lost.count == 1 else "hold"
    title = f"skipped: {counted(plan.lost.count, 'extent')} of the log, {byte_size(plan.lost.size)}, {holds} no record"
    _show_rows(console, title, columns, rows)


def _show_consumers(plan: RebuildPlan, console: Console) -> None:
    if not plan.consumers_moved:
        return
    rows = [
        (
            moved.committed.group,
            moved.committed.topic,
            moved.committed.queue_id,
            moved.committed.offset,
            moved.physical_offset_before,
            "none" if moved.physical_offset_after is None else moved.physical_offset_after,
        )
        for moved in plan.consumers_moved[:_MAX_ROWS]
    ]
    columns: Columns = [
        ("group", "left"),
        ("topic", "left"),
        ("queue", "right"),
        ("committed", "right"),
        ("message at", "right"),
        ("becomes", "right"),
    ]
    title = f"{counted(len(plan.consumers_moved), 'committed offset')} will mean another message"
    _show_rows(console, title, columns, rows)


def _print(console: Console, text: str) -> None:
    console.print(visible(text), soft_wrap=True, markup=False)
