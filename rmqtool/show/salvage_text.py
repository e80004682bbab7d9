"""A salvage for people: what is saved and from where, what is lost, what was left behind."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rmqtool.base.byte_size import byte_size
from rmqtool.base.visible import visible
from rmqtool.findings.finding import Finding, counted
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.left_behind import MEANINGS
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.show.output import Columns, Style, show_finding, show_table, table
from rmqtool.show.salvage_result import Choice, Salvaged
from rmqtool.transaction.selections import OFFSET_MAP

_MAX_ROWS = 20
_LOST = "rebuild.neutral-units"
_SHOWN = ("warning", "error")


def show_salvage(found: Salvaged, style: Style) -> None:
    """Show a plan, and what a rebuild has made of it; all ranges with -v."""
    console, plan, rebuild = style.console(), found.plan, found.rebuild
    most = None if style.verbosity > 0 else _MAX_ROWS
    _show_saved(plan, console, "saved" if found.choice is None else "found")
    _show_moved(found, console)
    if found.choice:
        _show_choice(plan, found.choice, console, most)
    _show_gaps(plan, console, most, is_filled=found.choice is None)
    _show_left(plan, console, most)
    for each in found.carried:
        if each.problem:
            _print(console, f"left behind: {each.name}: {each.problem}")
    if rebuild:
        show_derived(rebuild, console, most)


def show_derived(rebuild: RebuildPlan, console: Console, most: int | None) -> None:
    """Show the queues and the index of a new store, and what is wrong with them."""
    queues, units = len(rebuild.queues), sum(queue.units for queue in rebuild.queues)
    _print(console, f"{counted(queues, 'consume queue')} with {counted(units, 'unit')}, "
                    f"index of {counted(rebuild.index_units, 'unit')}")  # fmt: skip
    _show_findings(worth_showing(rebuild.findings), console, most)


def _show_choice(plan: SalvagePlan, choice: Choice, console: Console, most: int | None) -> None:
    chosen, log = choice.chosen, choice.log
    if not chosen.messages:
        _print(console, f"chosen: no message; left out: {counted(plan.records, 'message')}")
        return
    what = f"{counted(chosen.messages, 'message')}, {byte_size(chosen.size)}, in {counted(chosen.files, 'log file')}"
    left_out = counted(plan.records - chosen.messages, "message")
    _print(console, f"chosen: {what}, from physical offset {chosen.start_offset} on; left out: {left_out}")
    if choice.not_carried:
        _print(console, f"not carried over, since it names physical offsets: {', '.join(choice.not_carried)}")
    if log and log.map_rows:
        _print(console, f"queue offsets are counted again; the old ones are in {OFFSET_MAP}")
        rows = [(row.queue.topic, row.queue.queue_id, row.old_offset, row.new_offset, row.messages)
                for row in log.renumbered[:most]]  # fmt: skip
        columns: Columns = [("topic", "left"), ("queue", "right"), ("old offset", "right"), ("new offset", "right"),
                            ("messages", "right")]  # fmt: skip
        show_table(console, table("", columns, rows))
        _show_more(console, log.map_rows - len(rows))


def worth_showing(findings: Sequence[Finding]) -> list[Finding]:
    """The findings of a rebuild above information."""
    return [finding for finding in findings if finding.severity in _SHOWN]


def _show_findings(findings: Sequence[Finding], console: Console, most: int | None) -> None:
    lost = [finding for finding in findings if finding.code == _LOST]
    for finding in findings:
        if finding.code != _LOST:
            show_finding(console, finding)
    if lost:
        count = sum(finding.count for finding in lost)
        messages = f"{counted(count, 'message')} of these queues {'is' if count == 1 else 'are'} lost"
        _print(console, f"{messages}; units that do no harm keep the offsets of the others:")
        rows = [(finding.topic or "", finding.queue_id, finding.count) for finding in lost[:most]]
        columns: Columns = [("topic", "left"), ("queue", "right"), ("lost", "right")]
        show_table(console, table("", columns, rows))
        _show_more(console, len(lost) - len(rows))


def _show_saved(plan: SalvagePlan, console: Console, word: str) -> None:
    files = plan.layout.files
    where = "" if plan.layout.is_moved else f", in {counted(len(files), 'log file')}"
    title = f"{word}: {counted(plan.records, 'message')}, {byte_size(plan.size)}{where}"
    rows = [(plan.inputs.names[number], *plan.of_source(number))
            for number in range(len(plan.inputs.names))]  # fmt: skip
    columns: Columns = [("source", "left"), ("messages", "right"), ("bytes", "right")]
    _print(console, title)
    show_table(console, table("", columns, rows))


def _show_moved(found: Salvaged, console: Console) -> None:
    """What becomes of a DLedger log."""
    plan = found.plan
    if not plan.layout.is_moved or plan.is_empty:
        return
    if found.choice is None:
        _print(console, "the headers of DLedger's entries are left out: messages move, and keep their queue offsets")
    if plan.committed_missing:
        missing = counted(plan.committed_missing, "committed message")
        _print(console, f"missing: {missing}, by the Raft indices of the entries")
    if plan.uncommitted:
        behind = f"{counted(plan.uncommitted, 'message')} after the committed index {plan.inputs.committed}"
        _print(console, f"saved with them: {behind}: the leader of the group may have other messages there")
    if found.not_carried:
        _print(console, f"not carried over, since it names physical offsets: {', '.join(found.not_carried)}")


def _show_gaps(plan: SalvagePlan, console: Console, most: int | None, *, is_filled: bool) -> None:
    gaps = plan.layout.gaps
    if not gaps:
        return
    places = counted(len(gaps), "gap")
    _print(
        console,
        f"lost: {byte_size(plan.lost)} of the log in {places}{', which dummy records fill' if is_filled else ''}",
    )
    rows = [(gap.physical_offset, gap.size) for gap in gaps[:most]]
    show_table(console, table("", [("physical offset", "right"), ("bytes", "right")], rows))
    _show_more(console, len(gaps) - len(rows))


def _show_left(plan: SalvagePlan, console: Console, most: int | None) -> None:
    for reason, total in sorted(plan.left.totals.items()):
        messages = f", {counted(total.records, 'message')}" if total.records else ""
        size = f"{byte_size(total.size)} in {counted(total.ranges, 'range')}{messages}"
        _print(console, f"left behind: {size}: {MEANINGS[reason]}")
    rows = [
        (
            plan.inputs.files[left.input].path,
            left.position,
            left.size,
            left.reason,
            left.records,
            "" if left.physical_offset is None else left.physical_offset,
        )
        for left in plan.left.listed[:most]
    ]
    columns: Columns = [
        ("file", "left"),
        ("position", "right"),
        ("bytes", "right"),
        ("reason", "left"),
        ("messages", "right"),
        ("physical offset", "right"),
    ]
    if rows:
        show_table(console, table("", columns, rows))
        _show_more(console, sum(total.ranges for total in plan.left.totals.values()) - len(rows))


def _show_more(console: Console, count: int) -> None:
    if count > 0:
        _print(console, f"and {count} more (with -v, or with --json)")


def _print(console: Console, text: str) -> None:
    console.print(visible(text), soft_wrap=True, markup=False)
