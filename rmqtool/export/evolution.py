"""The options of a run that adds to an output: those of the first run; only a table may get more columns.

New columns come last and are null in the rows that are there already. No column is dropped, and no type changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rmqtool.base.errors import UsageError
from rmqtool.export.manifest_options import null_before_of
from rmqtool.export.options import ExportOptions, watermarks
from rmqtool.scan.decoding import DECODED_COLUMNS
from rmqtool.store.message_query import STORE_COLUMN

_BEFORE = {"format": "parquet", "body_format": None, "int64": None, "redact": None, "decoder": None, "table": None}
"""Options of outputs from before there was a choice."""

_MADE = {"body": ("body",), "decoder": DECODED_COLUMNS}
"""Options that matter only to these columns: an output that has none of them yet takes any value."""

_HINT = "give the same options as before, another --output, or --mode overwrite"


def continued(base: dict[str, Any], options: ExportOptions) -> ExportOptions:
    """The options of a run that adds to the output of manifest `base`, with all columns that the output will have.

    Raises UsageError for options that do not fit: an output holds one selection in one form.
    """
    free = {"compression"}
    if options.table and options.table == base.get("table"):
        options = _with_columns_of(base, options)
        names = {column["name"] for column in base["columns"]}
        free |= {"columns", *(name for name, made in _MADE.items() if names.isdisjoint(made))}
    for name, value in {"table": None, **options.as_json()}.items():
        before = base[name] if name in base else _BEFORE[name]
        if name not in free and before != value:
            message = f"this output was exported with other {name.replace('_', ' ')}: {_shown(before)}"
            raise UsageError(message, hint=_HINT)
    return options


def _with_columns_of(base: dict[str, Any], options: ExportOptions) -> ExportOptions:
    """The options with the columns of a table in their order, and after them those that it lacks."""
    columns: list[dict[str, Any]] = base["columns"]
    names = tuple(column["name"] for column in columns)
    given = options.query.schema
    left_out = [name for name in names if name not in given.names]
    if left_out:
        message = f"this table has columns that are left out: {', '.join(left_out)}"
        hint = "a table keeps its columns: name all of them, or give another --output, or --mode overwrite"
        raise UsageError(message, hint=hint)
    for column in columns:
        name, kind = column["name"], str(given.field(column["name"]).type)
        if kind != column["type"]:
            message = f"the column {name} of this table is {column['type']}, not {kind}"
            raise UsageError(message, hint="types of a table never change: give another --output, or --mode overwrite")
    added = tuple(name for name in options.query.columns if name not in names)
    if STORE_COLUMN in added:
        message = f"the column {STORE_COLUMN} cannot be added: the rows of this table would not name their stores"
        raise UsageError(message, hint="export each store by itself, to another --output, or --mode overwrite")
    null_before = {**null_before_of(base), **dict.fromkeys(added, watermarks(base))}
    return replace(options, query=replace(options.query, columns=(*names, *added)), null_before=null_before)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items() if item) or "none"
    if isinstance(value, list):
        return ", ".join(item["name"] if isinstance(item, dict) else str(item) for item in value) or "none"
    return str(value)
