"""Everything in a part of the commit log, in order, as the objects of the machine interface."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rmqtool.files import Reading
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.mapped_files import MappedFile
from rmqtool.scan.bodies import BodyError, decompress
from rmqtool.scan.columns import record_batches
from rmqtool.scan.events import Blank, Damage
from rmqtool.scan.frames import Frames
from rmqtool.scan.reader import scan_files
from rmqtool.store import relative_to
from rmqtool.times import rfc3339

BodyChoice = Literal["decompressed", "stored", "none"]

_COLUMNS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_size", "message_id", "unique_key", "keys", "tags",
    "properties", "born_timestamp", "store_timestamp", "born_host", "store_host", "flag", "sys_flag",
    "reconsume_times", "body_crc", "transaction", "compression", "prepared_transaction_offset", "body_size",
    "magic_code", "body_crc_ok",
)  # fmt: skip
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FIRST_ROWS = 64  # so that the first messages of a log are there at once
_ROWS = 1024


@dataclass(frozen=True)
class ListingOptions:
    """What to list: physical offsets from `start` to before `stop`, at most `limit` messages, and which body."""

    start: int = 0
    stop: int = MAX_OFFSET
    limit: int | None = None
    body: BodyChoice = "decompressed"
    reading: Reading = field(default_factory=Reading)
    live: bool = False  # a broker writes: what is torn at the log's end is not damage


def list_log(files: Sequence[MappedFile], root: Path, options: ListingOptions) -> Iterator[dict[str, Any]]:
    """Messages, blanks and damage as JSON objects, each with `kind`; file names relative to `root`."""
    objects = _objects(files, root, options)
    if options.limit is None:
        yield from objects
        return
    left = options.limit
    while left > 0 and (found := next(objects, None)) is not None:
        left -= found["kind"] == "message"
        yield found


def _objects(files: Sequence[MappedFile], root: Path, options: ListingOptions) -> Iterator[dict[str, Any]]:
    for event in scan_files(files, options.start, options.stop, options.reading):
        if isinstance(event, Frames):
            file = _file_at(files, event.physical_offset)
            yield from messages_of(event, relative_to(file.path, root), options.body)
        elif not (options.live and isinstance(event, Damage) and event.tail):
            yield _extent(event)


def _file_at(files: Sequence[MappedFile], offset: int) -> MappedFile:
    """The file that holds a physical offset; the last one may have grown since it was listed."""
    return next((mapped for mapped in files if mapped.start_offset <= offset < mapped.end_offset), files[-1])


def _extent(event: Blank | Damage) -> dict[str, Any]:
    extent = {"kind": "blank", "physical_offset": event.physical_offset, "size": event.size}
    return extent if isinstance(event, Blank) else {**extent, "kind": "damage", "reason": event.reason}


def messages_of(frames: Frames, file: str, body: BodyChoice) -> Iterator[dict[str, Any]]:
    """The JSON objects of a run of records that stand in `file`."""
    start, rows = 0, _FIRST_ROWS
    while start < len(frames):
        part = frames[start : start + rows]
        yield from _part_messages(part, file, body)
        start, rows = start + rows, _ROWS


def _part_messages(frames: Frames, file: str, body: BodyChoice) -> Iterator[dict[str, Any]]:
    names = _COLUMNS if body == "none" else (*_COLUMNS, "stored_body")
    row = 0
    for batch in record_batches(frames, names):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            message = dict(zip(names, values, strict=True))
            yield _message(message, frames, row, file, body)
            row += 1


def _message(message: dict[str, Any], frames: Frames, row: int, file: str, body: BodyChoice) -> dict[str, Any]:
    """The object of the contract: times beside timestamps, the bytes of text that is not UTF-8, the body."""
    found: dict[str, Any] = {"kind": "message"}
    stored_body = message.pop("stored_body", None)
    for name, value in message.items():
        found[name] = dict(value) if name == "properties" else value
        if name.endswith("_timestamp"):
            found[f"{name.removesuffix('_timestamp')}_time"] = rfc3339(value)
    found["file"] = file
    found.update(_undecodable(found, frames, row))
    if stored_body is not None:
        found.update(_body(stored_body, found["sys_flag"], body))
    return found


def _undecodable(message: dict[str, Any], frames: Frames, row: int) -> dict[str, str]:
    """The stored bytes of topic and properties where decoding replaced something."""
    found = {}
    if _REPLACEMENT in message["topic"]:
        found["topic_base64"] = _stored_base64(frames[row : row + 1], "stored_topic")
    if any(_REPLACEMENT in text for pair in message["properties"].items() for text in pair):
        found["properties_base64"] = _stored_base64(frames[row : row + 1], "stored_properties")
    return found


def _stored_base64(frame: Frames, column: str) -> str:
    (batch,) = record_batches(frame, [column])
    return _base64(batch.column(0)[0].as_py())


def _body(stored: bytes, sys_flag: int, choice: BodyChoice) -> dict[str, Any]:
    """`body` as text, or null and `body_base64`; `body_error` says why a compressed body is shown as stored."""
    found: dict[str, Any] = {}
    body = stored
    if choice == "decompressed":
        try:
            body = decompress(stored, sys_flag)
        except BodyError as error:
            found["body_error"] = str(error)
    try:
        return {"body": body.decode(), **found}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": _base64(body), **found}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
