"""The result of an export as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from rmqtool.base.byte_size import byte_size
from rmqtool.findings.finding import Finding, counted
from rmqtool.scan.events import REASON_MEANINGS
from rmqtool.show.output import Style, print_labelled, show_finding

if TYPE_CHECKING:
    from rmqtool.export.run import Exported

_LABEL = 12
_MAX_EXAMPLES = 10


def show_export(exported: Exported, output: Path, style: Style) -> None:
    """Print what was exported, what was left out, and what could not be read."""
    console = style.console()
    manifest, totals = exported.manifest, exported.totals
    run = manifest["runs"][-1]
    written = f"{counted(run['files'], 'file')} of {byte_size(run['bytes'])}, from {byte_size(totals.bytes)} of log"
    is_idle = len(manifest["runs"]) > 1 and not run["files"]
    show_line(console, "exported", "nothing is new" if is_idle else f"{counted(run['rows'], 'message')} in {written}")
    if len(manifest["runs"]) > 1:
        sizes = f"{counted(len(manifest['files']), 'file')} of {byte_size(manifest['bytes'])}"
        show_line(console, "in all", f"{counted(manifest['rows'], 'message')} in {sizes}, {len(manifest['runs'])} runs")
    if "added_columns" in run:
        show_added_columns(console, run["added_columns"])
    show_line(console, "output", str(output))
    for source in manifest["source"] if style.verbosity > 0 or len(manifest["source"]) == 1 else ():
        span = f"offsets {source['physical_offset_first']} to {source['next_physical_offset']}"
        show_line(console, "store", f"{source['store']}, {span}{', a broker runs' if source['live'] else ''}")
    if len(manifest["source"]) > 1:
        show_line(console, "stores", str(len(manifest["source"])))
    if style.verbosity > 0:
        for queue in manifest["queues"]:
            offsets = f"offsets {queue['queue_offset_first']} to {queue['queue_offset_last']}"
            show_line(
                console, "queue", f"{queue['topic']} {queue['queue_id']}: {counted(queue['rows'], 'row')}, {offsets}"
            )
    excluded = ", ".join(f"{count} {name}" for name, count in totals.excluded.items() if count)
    if excluded:
        show_line(console, "left out", f"{excluded}: no consumer sees them (--include)")
    _show_losses(console, exported)


def show_check(comparison: dict[str, Any], findings: Sequence[Finding], style: Style) -> None:
    """Print the result of a comparison with the log."""
    console = style.console()
    log = byte_size(comparison["bytes_read"])
    compared = f"{counted(comparison['rows_compared'], 'row')} of {comparison['rows']} with {log} of log"
    show_line(console, "compared", compared)
    for sentence in comparison["unproven"]:
        show_line(console, "unproven", sentence)
    for finding in findings:
        show_finding(console, finding)
    what = "what was compared" if comparison["unproven"] else "the export"
    show_line(console, "result", counted(len(findings), "difference") if findings else f"{what} is what the log says")


def _show_losses(console: Console, exported: Exported) -> None:
    totals = exported.totals
    if totals.skipped_count:
        size = byte_size(totals.skipped_bytes)
        show_line(
            console, "skipped", f"{counted(totals.skipped_count, 'extent')} of {size}, raw in _damaged/", "bold red"
        )
        for damage in totals.skipped[:_MAX_EXAMPLES]:
            extent = f"{damage.physical_offset} to {damage.physical_offset + damage.size}"
            show_line(console, "", f"{extent}: {damage.reason}, {REASON_MEANINGS[damage.reason]}", "red")
        if totals.skipped_count > _MAX_EXAMPLES:
            show_line(console, "", "... all of them are in _manifest.json")
    for problems, text in (
        (totals.wrong_crc, "with another CRC than stored, exported unchanged"),
        (totals.not_decompressed, "that cannot be decompressed, exported as stored"),
        (totals.not_decoded, "that could not be decoded, null in body_decoded"),
    ):
        if problems.count:
            offsets = ", ".join(map(str, problems.physical_offsets[:_MAX_EXAMPLES]))
            bodies = f"{problems.count} {'body' if problems.count == 1 else 'bodies'}"
            show_line(console, "wrong", f"{bodies} {text}; physical offsets {offsets}", "bold red")


def show_added_columns(console: Console, names: Sequence[str]) -> None:
    """Print which columns a run adds to a table."""
    show_line(console, "new columns", f"{', '.join(names)}: null in the rows before")


def show_line(console: Console, label: str, text: str, style: str = "") -> None:
    """Print a line of a result with its label."""
    print_labelled(console, Text(f"{label:<{_LABEL}} ", style="dim"), text, style)
