"""A rebuild as JSON and for people: what changes, what is lost, who is concerned, what to run next."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqtool.base.numbers import Count, Long, byte_size
from rmqtool.findings.finding import counted
from rmqtool.rebuild.conversion import Conversion
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rebuild.queue_placement import MAX_EXTENTS
from rmqtool.show.output import Style, print_lines, show_finding, show_rows
from rmqtool.show.shapes import Recovered, Shape, at, by

if TYPE_CHECKING:
    from rich.console import Console

PlanState = Literal["planned", "nothing", "done"]


def plan_json(plan: RebuildPlan, state: PlanState, transaction: str | None = None) -> dict[str, Any]:
    """The `result` of ``rebuild-cq STORE`` and ``rebuild-index STORE``."""
    return PlannedRebuild.of(plan, _Made(transaction, state))


class _Made(NamedTuple):
    transaction: str | None
    state: PlanState


class Queue(Shape):
    """One consume queue."""

    topic: str = at("name.topic")  # Topic.
    queue_id: Count = at("name.queue_id")  # Queue number.
    # Plain queue of 20-byte units, batch queue of 46-byte units, or queue of rows in RocksDB.
    kind: Literal["simple", "batch", "rocksdb"]
    action: Literal["create", "replace", "keep"]  # What a rebuild does with it.
    units: Count  # Queue offsets from min_offset to before max_offset.
    min_offset: Long  # Lowest queue offset of a message in the log afterwards.
    max_offset: Long  # Queue offset of the next message afterwards.
    added: Count = at("difference.added")  # Units that do not exist yet.
    dropped: Count = at("difference.dropped")  # Existing units without a message in the log.
    changed: Count = at("difference.changed")  # Existing units with other contents.


class IndexFile(Shape):
    """One index file."""

    file: str = at("name")  # Its name below index/.
    action: Literal["create", "replace", "keep", "remove"]  # What a rebuild does with it.


class Skipped(Shape):
    """Bytes of the log that hold no record."""

    physical_offset: Long  # Where they begin in the commit log, bytes.
    size: Count  # How many, bytes.
    # Why: as in a listing of the log; properties: a broker fails to read the properties of the record; body-crc: a
    # damaged body, dropped by --neutralise; neutralised: a dummy record that rmqtool has put there.
    reason: Literal[
        "zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover", "properties",
        "body-crc", "neutralised",
    ]  # fmt: skip


class Moved(Shape):
    """A committed offset that means another message afterwards."""

    group: str = at("committed.group")  # Consumer group.
    topic: str = at("committed.topic")  # Topic.
    queue_id: Long = at("committed.queue_id")  # Queue number.
    committed_offset: Long = at("committed.offset")  # The next queue offset that the group consumes.
    physical_offset_before: Long  # Where the unit at that offset points now, bytes in the commit log.
    physical_offset_after: Long | None  # Where it points afterwards; null when there is no unit.


class Table(Shape):
    """Topics, groups or committed offsets."""

    table: Literal["topics", "groups", "offsets"] = by(lambda pair, _: pair[0].label)  # Its contents.
    # How many topics or groups; of offsets pairs of topic and group.
    entries: Count = by(lambda pair, _: len(pair[0].entries))
    from_: str = by(lambda pair, _: pair[0].source)  # File or database that it comes from, relative to the store.
    to: str = by(lambda pair, _: pair[1])  # File or database of the destination; the same one if unchanged.


class Converted(Shape):
    """What goes to the other world beside the queues."""

    to: Literal["files", "rocksdb"] = at("target")  # Where queues, topics, groups and offsets are converted to.
    # Topics, groups and committed offsets.
    tables: list[Table] = by(lambda found, _: [(table, found.place_of(table)) for table in found.tables])
    # Tables that are missing in the store: a broker begins with empty ones.
    absent: list[Literal["topics", "groups", "offsets"]]
    removed: list[str]  # Files and directories that are moved out of the store, and kept for undo.
    settings: dict[str, str]  # Required settings of broker.conf before the broker starts.


class PlannedRebuild(Shape):
    """What a rebuild changes."""

    # Id of what was written; null when nothing was written to the store.
    transaction: str | None = by(lambda _, made: made.transaction)
    # planned: a dry run; nothing: everything is correct; done: written.
    state: Literal["planned", "nothing", "done", "rolled_back"] = by(lambda _, made: made.state)
    # Units are numbered by their stored queue offsets, or in the order in which a broker appends.
    order: Literal["stored", "broker"] = at("options.order")
    queues: list[Queue]  # Every queue, by topic and number.
    index: list[IndexFile]  # Every index file, in the order in which a broker loads them.
    index_units: Count  # Units of all index files together.
    # The first extents of the log without a record.
    skipped: list[Skipped] = by(lambda plan, _: plan.lost.extents[:MAX_EXTENTS])
    skipped_count: Count = at("lost.count")  # How many such extents there are.
    skipped_bytes: Count = at("lost.size")  # Their sizes together, bytes.
    neutralised: list[Skipped] = at("patches")  # What --neutralise replaces by dummy records.
    consumers_moved: list[Moved]  # Consumer groups whose committed offset means another message afterwards.
    backup_bytes: Count  # Sizes of the replaced files together, which undo needs, bytes.
    conversion: Converted | None = at("conversion", optional=True)  # With --to.


class RebuildResult(PlannedRebuild):
    """What a rebuild changes, or has changed."""

    recovered: list[Recovered]  # Interrupted runs that were completed first.


_MOVE = attrgetter("committed", "physical_offset_before", "physical_offset_after")
_MAX_ROWS = 40
_MAX_EXAMPLES = 3  # findings of one code


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
            left = len(findings) - len(shown)
            print_lines(console, f"and {left} more findings of {code} (all with -v, or with --json)")


def _show_conversion(conversion: Conversion, console: Console) -> None:
    rows = [(table.label, len(table.entries), table.source, conversion.place_of(table)) for table in conversion.tables]
    if rows:
        show_rows(console, "topics, groups and committed offsets", "table, entries>, from, to", rows)
    if conversion.absent:
        print_lines(console, f"not in this store: {', '.join(conversion.absent)}; a broker begins with empty ones")
    when = "the broker needs" if conversion.is_in_place else "before you start the broker, set"
    settings = (f"  {name}={value}" for name, value in conversion.settings.items())
    print_lines(console, f"{when} in broker.conf:", *settings)


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
            (*queue.name, queue.action, queue.units, f"{queue.min_offset}..{queue.max_offset}",
             queue.difference.added, queue.difference.dropped, queue.difference.changed)
            for queue in shown
        ]  # fmt: skip
        show_rows(console, title, "topic, queue>, action, entries>, offsets>, added>, dropped>, changed>", rows)
        if not everything and len(changed) > _MAX_ROWS:
            print_lines(console, f"and {len(changed) - _MAX_ROWS} more (all with -v, or with --json)")
    else:
        print_lines(console, title)


def _show_index(plan: RebuildPlan, console: Console, verb: str) -> None:
    if all(file.action == "keep" for file in plan.index):
        print_lines(console, f"index: {counted(len(plan.index), 'file')} kept, {counted(plan.index_units, 'entry')}")
        return
    names = {action: [file.name for file in plan.index if file.action == action] for action in ("create", "replace")}
    removed = sum(file.action == "remove" for file in plan.index)
    new = len(names["create"]) + len(names["replace"])
    done = "written" if verb == "written" else "to write"
    units = counted(plan.index_units, "entry")
    print_lines(console, f"index: {counted(new, 'file')} {done} with {units}, {removed} to remove")


def _show_lost(plan: RebuildPlan, console: Console) -> None:
    if not plan.lost.count:
        return
    holds = "holds" if plan.lost.count == 1 else "hold"
    title = f"skipped: {counted(plan.lost.count, 'range')} of the log, {byte_size(plan.lost.size)}, {holds} no record"
    show_rows(console, title, "physical offset>, bytes>, reason", plan.lost.listed[:_MAX_ROWS])


def _show_consumers(plan: RebuildPlan, console: Console) -> None:
    if not plan.consumers_moved:
        return
    rows = [
        (each.group, each.topic, each.queue_id, each.offset, before, "none" if after is None else after)
        for each, before, after in map(_MOVE, plan.consumers_moved[:_MAX_ROWS])
    ]
    title = f"{counted(len(plan.consumers_moved), 'committed offset')} will refer to another message"
    show_rows(console, title, "group, topic, queue>, committed>, message at>, becomes>", rows)
