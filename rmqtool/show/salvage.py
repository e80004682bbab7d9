"""A salvage or a conversion as JSON and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import visible
from rmqtool.findings.finding import Finding, counted
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.conversion import ConversionPlan, MovedLog
from rmqtool.salvage.entry_walk import LEFT_MEANINGS
from rmqtool.salvage.layout import MEANINGS, Left
from rmqtool.salvage.new_store import Carried
from rmqtool.salvage.plan import MAX_GAPS, SalvagePlan
from rmqtool.salvage.selection import Chosen, SelectedLog, Selection, needed_bytes
from rmqtool.show.filters_json import filters_json
from rmqtool.show.output import Columns, Style, error_json, show_finding, show_table, table
from rmqtool.transaction.losses import OFFSET_MAP

SalvageState = Literal["planned", "done", "nothing"]


@dataclass(frozen=True)
class Choice:
    """What was chosen; `log` is what was written of it, `not_carried` what of the sources no such store can have."""

    selection: Selection
    chosen: Chosen
    not_carried: Sequence[str] = ()
    log: SelectedLog | None = None

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes."""
        return needed_bytes(self.chosen, self.selection)


@dataclass(frozen=True)
class Salvaged:
    """What was planned or done; `rebuild` is what was derived from the new log, None before it is written.

    Of messages that move `not_carried` are the files that hold physical offsets, `moved` is their log once written.
    """

    plan: SalvagePlan
    carried: Sequence[Carried]
    rebuild: RebuildPlan | None = None
    choice: Choice | None = None
    not_carried: Sequence[str] = ()
    moved: MovedLog | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.plan.is_empty or (self.choice is not None and not self.choice.chosen.messages)

    @property
    def state(self) -> SalvageState:
        """What has become of the new store."""
        return "nothing" if self.is_empty else "done" if self.rebuild else "planned"

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.plan.is_unread or any(each.is_unread for each in self.carried):
            return Exit.LOSSY
        is_left = self.is_empty or self.plan.is_lossy or any(each.problem for each in self.carried)
        findings = self.rebuild.findings if self.rebuild else ()
        is_left = is_left or any(finding.severity == "error" for finding in findings)
        return Exit.FINDINGS if is_left else Exit.OK


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
    findings = worth_showing(rebuild.findings)
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
