"""What an export would do: as JSON, and as text for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtool.base.byte_size import byte_size
from rmqtool.findings.finding import counted
from rmqtool.show.export_text import show_added_columns, show_line
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.export.options import ExportOptions
    from rmqtool.export.preview import Preview
    from rmqtool.store.splits import Source

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
    todo = (
        "nothing: the output has all of it"
        if is_idle
        else f"{size} of log in {splits}, with {_ENGINES[document['engine']]}"
    )
    show_line(console, "would read", todo)
    for source in document["source"]:
        span = f"offsets {source['physical_offset_first']} to {source['next_physical_offset']}"
        show_line(console, "store", f"{source['store']}, {span}{', a broker runs' if source['live'] else ''}")
        if source["deleted_bytes"]:
            lost = byte_size(source["deleted_bytes"])
            show_line(console, "deleted", f"{lost} of {source['store']}, before they were ever exported", "bold red")
    show_line(console, "output", f"{document['output']}, {_state(document)}")
    columns = document["columns"]
    names = ", ".join(columns) if style.verbosity > 0 else counted(len(columns), "column")
    show_line(console, "files", f"{document['format']}, {document['compression']}: {names}")
    if document["added_columns"]:
        show_added_columns(console, document["added_columns"])
    if document["free_bytes"] is not None:
        show_line(console, "free", byte_size(document["free_bytes"]))
    if not style.quiet:
        note("nothing was written (--dry-run)")


def _state(document: dict[str, Any]) -> str:
    """What the output holds, and what becomes of it."""
    if document["rows_there"] is None:
        return "holds nothing yet"
    end = "would be replaced" if document["mode"] == "overwrite" else "would stay"
    return f"holds {counted(document['rows_there'], 'message')}, which {end}"
