"""An export, or what it would do, as JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtool.base.numbers import byte_size
from rmqtool.findings.finding import Finding, counted
from rmqtool.scan.block import REASON_MEANINGS
from rmqtool.show.output import Style, note, print_fact, show_finding

if TYPE_CHECKING:
    from rich.console import Console

    from rmqtool.export.options import ExportOptions
    from rmqtool.export.plan import Preview
    from rmqtool.export.run import Exported
    from rmqtool.store.message_reader import BodyProblems
    from rmqtool.store.splits import Source

_MAX_EXAMPLES = 10


def show_export(exported: Exported, output: Path, style: Style) -> None:
    """Print what was exported, what was left out, and what could not be read."""
    console = style.console()
    manifest, totals = exported.manifest, exported.totals
    run = manifest["runs"][-1]
    written = f"{counted(run['files'], 'file')} of {byte_size(run['bytes'])}, from {byte_size(totals.bytes)} of log"
    is_idle = len(manifest["runs"]) > 1 and not run["files"]
    print_fact(console, "exported", "nothing is new" if is_idle else f"{counted(run['rows'], 'message')} in {written}")
    if len(manifest["runs"]) > 1:
        sizes = f"{counted(len(manifest['files']), 'file')} of {byte_size(manifest['bytes'])}"
        messages = counted(manifest["rows"], "message")
        print_fact(console, "in all", f"{messages} in {sizes}, {len(manifest['runs'])} runs")
    if "added_columns" in run:
        _show_added_columns(console, run["added_columns"])
    print_fact(console, "output", str(output))
    for source in manifest["source"] if style.verbosity > 0 or len(manifest["source"]) == 1 else ():
        _show_source(console, source)
    if len(manifest["source"]) > 1:
        print_fact(console, "stores", str(len(manifest["source"])))
    if style.verbosity > 0:
        for queue in manifest["queues"]:
            name, rows = f"{queue['topic']} {queue['queue_id']}", counted(queue["rows"], "row")
            offsets = f"offsets {queue['queue_offset_first']} to {queue['queue_offset_last']}"
            print_fact(console, "queue", f"{name}: {rows}, {offsets}")
    excluded = ", ".join(f"{count} {name}" for name, count in totals.excluded.items() if count)
    if excluded:
        print_fact(console, "left out", f"{excluded}: no consumer sees them (--include)")
    _show_losses(console, exported)


def show_check(comparison: dict[str, Any], findings: Sequence[Finding], style: Style) -> None:
    """Print the result of a comparison with the log."""
    console = style.console()
    log = byte_size(comparison["bytes_read"])
    compared = f"{counted(comparison['rows_compared'], 'row')} of {comparison['rows']} with {log} of log"
    print_fact(console, "compared", compared)
    for sentence in comparison["unproven"]:
        print_fact(console, "unproven", sentence)
    for finding in findings:
        show_finding(console, finding)
    what = "what was compared" if comparison["unproven"] else "the export"
    print_fact(console, "result", counted(len(findings), "difference") if findings else f"{what} matches the log")


def _show_losses(console: Console, exported: Exported) -> None:
    totals = exported.totals
    if totals.skipped_count:
        skipped = f"{counted(totals.skipped_count, 'range')} of {byte_size(totals.skipped_bytes)}"
        print_fact(console, "skipped", f"{skipped}, raw in _damaged/", "bold red")
        for damage in totals.skipped[:_MAX_EXAMPLES]:
            extent = f"{damage.physical_offset} to {damage.physical_offset + damage.size}"
            print_fact(console, "", f"{extent}: {damage.reason}, {REASON_MEANINGS[damage.reason]}", "red")
        if totals.skipped_count > _MAX_EXAMPLES:
            print_fact(console, "", "... all of them are in _manifest.json")
    for problems, text in (
        (totals.wrong_crc, "with a CRC mismatch, exported unchanged"),
        (totals.not_decompressed, "that cannot be decompressed, exported as stored"),
        (totals.not_decoded, "that could not be decoded, null in body_decoded"),
    ):
        if problems.count:
            offsets = ", ".join(map(str, problems.physical_offsets[:_MAX_EXAMPLES]))
            bodies = f"{problems.count} {'body' if problems.count == 1 else 'bodies'}"
            print_fact(console, "wrong", f"{bodies} {text}; physical offsets {offsets}", "bold red")
    _show_unfit(console, totals.unfit)


def _show_unfit(console: Console, unfit: Mapping[str, BodyProblems]) -> None:
    """Print which columns have values that do not fit their types."""
    for name, problems in unfit.items():
        what = "value does not fit its type, and is" if problems.count == 1 else "values do not fit their type, and are"
        text = f"{name}: {problems.count} {what} null; the first at offset {problems.physical_offsets[0]}"
        print_fact(console, "unfit", text, "bold red")


def _show_source(console: Console, source: dict[str, Any]) -> None:
    span = f"offsets {source['physical_offset_first']} to {source['next_physical_offset']}"
    print_fact(console, "store", f"{source['store']}, {span}{', a broker runs' if source['live'] else ''}")


def _show_added_columns(console: Console, names: Sequence[str]) -> None:
    """Print which columns a run adds to a table."""
    print_fact(console, "new columns", f"{', '.join(names)}: null in the rows before")


_ENGINES = {"spark": "Spark", "local": "processes of this machine"}


def preview_as_json(preview: Preview, path: Path, options: ExportOptions, mode: str, engine: str) -> dict[str, Any]:
    """The preview of a run as ``rmqtool export --dry-run --json`` prints it; sizes are bytes of log."""
    plan = preview.plan
    return {
        "output": str(path),
        "mode": mode,
        "rows_there": preview.rows,
        "free_bytes": preview.free,
        "engine": engine,
        "format": options.format,
        "compression": options.codec,
        "columns": list(plan.options.query.columns),
        "added_columns": plan.added_columns,
        "bytes_to_read": plan.size,
        "splits": len(plan.tasks),
        "source": [_source(source, preview) for source in plan.sources],
    }


def _source(source: Source, preview: Preview) -> dict[str, Any]:
    lost = preview.plan.lost.get(source.name)
    return {
        "store": source.name,
        "path": str(source.root),
        "physical_offset_first": source.start,
        "next_physical_offset": max(source.start, source.stop),
        "bytes_to_read": sum(task.split.size for task in preview.plan.tasks if task.split.store == source.name),
        "deleted_bytes": lost.skipped_bytes if lost else 0,
        "live": source.live,
    }


def show_preview(document: dict[str, Any], style: Style) -> None:
    """Print what a run would read, by what means, and what is in the output already."""
    console = style.console()
    size, splits = byte_size(document["bytes_to_read"]), counted(document["splits"], "part")
    is_idle = document["rows_there"] is not None and not document["splits"]
    todo = f"{size} of log in {splits}, with {_ENGINES[document['engine']]}"
    print_fact(console, "would read", "nothing: the output already has everything" if is_idle else todo)
    for source in document["source"]:
        _show_source(console, source)
        if source["deleted_bytes"]:
            lost = byte_size(source["deleted_bytes"])
            print_fact(console, "deleted", f"{lost} of {source['store']}, before they were ever exported", "bold red")
    there = "is empty"
    if document["rows_there"] is not None:
        end = "would be replaced" if document["mode"] == "overwrite" else "would be kept"
        there = f"holds {counted(document['rows_there'], 'message')}, which {end}"
    print_fact(console, "output", f"{document['output']}, {there}")
    columns = document["columns"]
    names = ", ".join(columns) if style.verbosity > 0 else counted(len(columns), "column")
    print_fact(console, "files", f"{document['format']}, {document['compression']}: {names}")
    if document["added_columns"]:
        _show_added_columns(console, document["added_columns"])
    if document["free_bytes"] is not None:
        print_fact(console, "free", byte_size(document["free_bytes"]))
    if not style.quiet:
        note("nothing was written (--dry-run)")
