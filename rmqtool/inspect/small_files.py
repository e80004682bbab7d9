"""Small files: checkpoint, abort, lock, timer check, the broker's JSON files, and plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.errors import EndingError, RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.base.paths import is_remote
from rmqtool.base.times import rfc3339
from rmqtool.formats import timer_check
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE
from rmqtool.formats.java import decode_text
from rmqtool.inspect.file_kind import require_kind
from rmqtool.inspect.locate import Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.rows import Rows, one_row
from rmqtool.store.config_json import read_config_file
from rmqtool.store.lock import lock_holder

_MAX_TEXT = 1 << 20  # bytes of a text file that are shown
_BACKUP = ".bak"
_GROUP_SEPARATOR = "@"  # ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR


def list_checkpoint(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The fields of `checkpoint`, one row."""
    yield from _integer_rows("checkpoint", location, CHECKPOINT_DTYPE, options)


def list_timer_check(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The fields of `timercheck`, one row."""
    yield from _integer_rows("timercheck", location, timer_check.CHECK_DTYPE, options)


def integer_columns(dtype: np.dtype[np.void]) -> tuple[str, ...]:
    """The columns of a row of `_integer_rows`."""
    names = ["file"]
    for name in dtype.names or ():
        names += [name, f"{name.removesuffix('_timestamp')}_time"] if name.endswith("_timestamp") else [name]
    return tuple(names)


def list_marker(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """`abort` or `lock`: its content, and the broker that runs on the store."""
    for mapped in location.files:
        content = read_all(mapped.path, _MAX_TEXT)
        holder = lock_holder(location.root)
        text = decode_text(content)
        values: dict[str, Any] = {"file": location.relative(mapped.path), "content": text}
        if location.kind == "abort":
            values["process_id"] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        if options.with_hex:
            values["hex"] = content.hex()
        runs = None if is_remote(location.root) else holder is not None and holder.program is None
        values |= {"broker_running": runs, "broker_process_id": holder.pid if holder and runs else None}
        yield one_row(location.kind, values)


def list_text(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The lines of a text file."""
    for mapped in location.files:
        lines = decode_text(read_all(mapped.path, _MAX_TEXT)).splitlines()
        numbered = list(enumerate(lines, 1))
        for line_number, line in reversed(numbered) if options.reverse else numbered:
            yield one_row("text", {"file": location.relative(mapped.path), "line": line_number, "text": line})


def list_config(location: Location, options: ListingOptions) -> Iterator[dict[str, Any]]:
    """The entries of JSON files, table by table; of a file that cannot be read the ``.bak`` is shown too.

    An entry is of a topic when it stands under the topic's name, or under ``TOPIC@GROUP``.
    """
    alone, topics = len(location.files) == 1, options.filters.topic_choice
    for mapped in location.files:
        if alone or not mapped.path.name.endswith(_BACKUP):
            for entry in _config_objects(mapped.path, location):
                if not topics or entry["kind"] != "config_entry" or (_topic_of(entry) or "") in topics:
                    yield entry


def _topic_of(entry: dict[str, Any]) -> str | None:
    return entry["name"].partition(_GROUP_SEPARATOR)[0] if entry["table"] else None


def _config_objects(path: Path, location: Location) -> Iterator[dict[str, Any]]:
    require_kind(path, "config")
    name = location.relative(path)
    try:
        content = read_config_file(path)
    except EndingError:
        raise
    except RmqtoolError as error:
        yield {"kind": "config_problem", "file": name, "message": error.message}
        backup = path.with_name(path.name + _BACKUP)
        if backup.exists() and not path.name.endswith(_BACKUP):
            yield from _config_objects(backup, location)
        return
    for table, value in content.items():
        if isinstance(value, dict) and table != "dataVersion":
            for entry, setting in value.items():
                yield {"kind": "config_entry", "file": name, "table": table, "name": entry, "value": setting}
        else:
            yield {"kind": "config_entry", "file": name, "table": None, "name": table, "value": value}


def _integer_rows(kind: str, location: Location, dtype: np.dtype[np.void], options: ListingOptions) -> Iterator[Rows]:
    """The integers at the start of a file, as one row; fields beyond the end of a short file read as 0, as in Java."""
    for mapped in location.files:
        require_kind(mapped.path, location.kind)
        data = read_all(mapped.path, dtype.itemsize).ljust(dtype.itemsize, b"\0")
        fields = np.frombuffer(data, dtype)[0]
        values: dict[str, Any] = {"file": location.relative(mapped.path)}
        for name in dtype.names or ():
            values[name] = int(fields[name])
            if name.endswith("_timestamp"):
                values[f"{name.removesuffix('_timestamp')}_time"] = rfc3339(values[name] or None)
        yield one_row(kind, {**values, "hex": data.hex()} if options.with_hex else values)
