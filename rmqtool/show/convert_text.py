"""A conversion for people: what the new log holds, what is not in it, what is beside it."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.base.byte_size import byte_size
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.carry_over import Carried
from rmqtool.salvage.conversion import ConversionPlan
from rmqtool.salvage.entry_walk import LEFT_MEANINGS
from rmqtool.show.output import Columns, Style, show_table, table
from rmqtool.show.salvage_text import show_derived

_MAX_ROWS = 20
_LEFT = "physical offsets of the old log; a broker makes its timers again, and delivers once more what was due"


def show_conversion(
    plan: ConversionPlan,
    carried: Sequence[Carried],
    left: Sequence[str],
    rebuild: RebuildPlan | None,
    style: Style,
    *,
    older_queues: int = 0,
) -> None:
    """Show a plan, and what a rebuild has made of it; all extents with -v.

    `older_queues` are those that prove messages before the log.
    """
    most = None if style.verbosity > 0 else _MAX_ROWS
    console = style.console()
    lines = _lines(plan)
    if older_queues:
        lines.append(_head_line(plan.conversion.min_offset, older_queues))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if plan.left:
        rows = [(each.physical_offset, each.size, each.reason, each.messages) for each in plan.left[:most]]
        columns: Columns = [("physical offset", "right"), ("bytes", "right"), ("reason", "left"), ("messages", "right")]
        show_table(console, table("", columns, rows))
    for each in carried:
        if each.problem:
            console.print(f"left behind: {visible(each.name)}: {visible(each.problem)}", markup=False, soft_wrap=True)
    if left:
        console.print(f"left behind: {', '.join(map(visible, left))}: {_LEFT}", markup=False, soft_wrap=True)
    if rebuild:
        show_derived(rebuild, console, most)


def _lines(plan: ConversionPlan) -> list[str]:
    conversion = plan.conversion
    lines = [f"new log: {counted(plan.files, 'file')} of {byte_size(conversion.file_size)}, "
             f"offsets {conversion.min_offset} to {plan.end}"]  # fmt: skip
    if conversion.plain:
        lines.append(f"as they are: {counted(len(conversion.plain), 'commit log file')}")
    if conversion.entries:
        lines.append(f"from entries: {counted(plan.messages, 'message')}, {byte_size(plan.bytes)}")
        if conversion.committed is None:
            lines.append("all entries are taken, whether committed or not")
    for reason, total in sorted(plan.totals.items()):
        what = f"{counted(total.messages, 'message')}, " if total.messages else ""
        lines.append(f"left out: {what}{byte_size(total.size)}: {LEFT_MEANINGS[reason]}")
    if plan.filled_bytes:
        lines.append(f"filled: {byte_size(plan.filled_bytes)} of dummy records, in the room of lost entries")
    if plan.missing:
        lines.append(f"missing: {counted(plan.missing, 'committed message')}, by the Raft indices of the entries")
    if plan.wrong_bodies:
        wrong = f"{counted(plan.wrong_bodies, 'message')} with a body that is not what was stored"
        lines.append(
            f"damaged: {wrong}, taken as it is; salvage leaves such messages out, or finds them in another node"
        )
    return lines


def _head_line(min_offset: int, queues: int) -> str:
    what = f"{counted(queues, 'queue')} still {'begins' if queues == 1 else 'begin'} with files of messages before that"
    return f"missing: the log begins at {min_offset}, and {what}, which retention takes along: they are lost"
