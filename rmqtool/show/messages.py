"""Messages for people: a few lines each, nothing cut, safe for the terminal; and the bytes of one unit."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

import click
from construct import Struct

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import json_text, visible
from rmqtool.formats.layout import field_extents, field_meanings
from rmqtool.formats.message import BORN_HOST_V6, INNER_BATCH, MULTI_TAGS, NEED_UNWRAP, STORE_HOST_V6, format_host
from rmqtool.scan.block import REASON_MEANINGS
from rmqtool.scan.columns import BODY_TEXT, JSON_COLUMN, MESSAGE_WISHES, PROPERTY_COLUMN, is_wished
from rmqtool.scan.json_fields import json_field
from rmqtool.scan.message_rows import BODY_COLUMNS, BODY_DECODED, DECODE_ERROR, DECODED_COLUMNS, MESSAGE_FIELDS
from rmqtool.scan.rows import KIND, rows_of
from rmqtool.show.output import Style, terminal_width, write_bytes, write_line
from rmqtool.show.tables import TableWriter
from rmqtool.show.times import TIME, sentence, time_text
from rmqtool.show.wrapping import wrapped

BodyFormat = Literal["text", "hex", "json", "base64"]

_INDENT = "  "
_ROWS = 100  # of a table that are shown together
_SYS_FLAG_NAMES = {
    MULTI_TAGS: "multi-tags",
    BORN_HOST_V6: "born-ipv6",
    STORE_HOST_V6: "store-ipv6",
    NEED_UNWRAP: "need-unwrap",
    INNER_BATCH: "inner-batch",
}


def object_text(item: dict[str, Any], body_format: BodyFormat, *, color: bool, width: int | None = None) -> str:
    """One message, blank or damaged extent of a listing, with a line end.

    On a terminal `width` columns wide lines end between words, but for those of the body, which stays as it is.
    """
    if item["kind"] == "message":
        head = [*_headline(item, color=color, width=width), *_folded(_fields(item), width)]
        body = _body(item, body_format)
        return "\n".join([*head, *_folded(body[:1], width), *body[1:]]) + "\n"
    end = item["physical_offset"] + item["size"]
    extent = f"{item['physical_offset']} to {end}  {byte_size(item['size'])}"
    if item["kind"] == "blank":
        return _styled(f"blank    {extent}, the end of the file", color=color, dim=True) + "\n"
    meaning = f"{item['reason']}, {REASON_MEANINGS[item['reason']]}"
    return _styled(f"damage   {extent}: {meaning}", color=color, fg="red", bold=True) + "\n"


def fields_text(row: dict[str, Any], layout: Struct | None, *, color: bool) -> str:
    """One object, a line for each field; where a layout declares the field, with its meaning."""
    meanings = field_meanings(layout) if layout else {}
    shown = {name: value for name, value in row.items() if name != "kind"}
    width = max(map(len, shown), default=0)
    lines = [_styled(row["kind"].replace("_", " "), color=color, bold=True)]
    for name, stored in shown.items():
        value = sentence(stored) if name.endswith(TIME) and isinstance(stored, str) else stored
        text = visible("-" if value is None else str(value).lower() if isinstance(value, bool) else str(value))
        meaning = _styled(f"  {meanings[name]}", color=color, dim=True) if name in meanings else ""
        lines.append(f"{_INDENT}{name:<{width}}  {text}{meaning}")
    return "\n".join(lines) + "\n"


def chosen_fields(text: str) -> tuple[str, ...]:
    """The names in ``--columns`` of messages that are shown one by one; raises ValueError for one that none has."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = (KIND, *MESSAGE_FIELDS, *BODY_COLUMNS, *DECODED_COLUMNS)
    unknown = [name for name in names if name not in known and not is_wished(name)]
    if unknown or not names:
        there = ", ".join((*known, *MESSAGE_WISHES))
        raise ValueError(f"no such column here: {', '.join(unknown) or repr(text)}; there are: {there}")
    return names


class MessageTable:
    """Messages as rows of chosen fields: JSON objects, or one table."""

    def __init__(self, style: Style, names: Sequence[str]) -> None:
        self._style, self._names = style, names
        self._writer = TableWriter(names, terminal_width())
        self._rows: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        """Show one message, once there are more of them."""
        row = {name: _field(message, name) for name in self._names}
        if self._style.json:
            write_line(self._style, {KIND: message[KIND], **row})
            return
        self._rows.append({name: _cell(value) for name, value in row.items()})
        if len(self._rows) >= _ROWS:
            self.end()

    def end(self) -> None:
        """Show what is left."""
        if self._rows:
            write_bytes(self._writer.lines(rows_of("message", self._rows).batch))
            self._rows = []


def _field(message: dict[str, Any], name: str) -> Any:
    """A field of a message, one of its properties, or one of its JSON body; None without it."""
    if name in message:
        return message[name]
    if name.startswith(PROPERTY_COLUMN):
        return message["properties"].get(name.removeprefix(PROPERTY_COLUMN))
    if name == BODY_TEXT:
        return message.get("body")
    if name.startswith(JSON_COLUMN):
        return json_field((message.get("body") or "").encode(), name.removeprefix(JSON_COLUMN))
    return None


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(value)
    return json_text(value) if isinstance(value, dict) else value


def heading_text(text: str, *, color: bool, bad: bool = False) -> str:
    """A line above a group of entries."""
    return _styled(visible(text), color=color, bold=True, **({"fg": "red"} if bad else {})) + "\n"


def entry_text(name: str, value: Any) -> str:
    """One entry of a JSON file."""
    return f"{_INDENT}{visible(name)}  {visible(json_text(value))}\n"


def _headline(message: dict[str, Any], *, color: bool, width: int | None) -> list[str]:
    """One line, or one for each part where they do not fit into `width` columns."""
    place = visible(f"{message['topic']} queue {message['queue_id']} offset {message['queue_offset']}")
    head = f"message  {message['physical_offset']}"
    rest = f"{byte_size(message['message_size'])}  {time_text(message['store_timestamp'])}"
    styled = _styled(f"{head}  ", color=color, fg="cyan")
    if width is None or len(wrapped(f"{head}  {place}  {rest}", width)) == 1:
        return [f"{styled}{_styled(place, color=color, bold=True)}  {rest}"]
    lines = (_styled(line, color=color, bold=True) for line in _folded([_INDENT + place], width))
    return [styled.rstrip(), *lines, _INDENT + rest]


def _folded(lines: list[str], width: int | None) -> list[str]:
    """Lines of fields ended between words where they do not fit, the later ones of a field indented once more."""
    if width is None:
        return lines
    folded = []
    for text in map(str.lstrip, lines):
        fits = len(wrapped(text, width - len(_INDENT))) == 1
        first, *others = [text] if fits else wrapped(text, width - 2 * len(_INDENT))
        folded += [_INDENT + first, *(2 * _INDENT + other for other in others)]
    return folded


def _fields(message: dict[str, Any]) -> list[str]:
    born = time_text(message["born_timestamp"])
    keys = " ".join(message["keys"]) or "-"
    flags = ", ".join(name for bit, name in _SYS_FLAG_NAMES.items() if message["sys_flag"] & bit)
    sys_flag = f"{message['sys_flag']} ({flags})" if flags else message["sys_flag"]
    lines = [
        f"id {message['message_id'] or '-'}  {message['magic_code']}  in {message['file']}",
        f"unique key {message['unique_key'] or '-'}  keys {keys}  tags {message['tags'] or '-'}",
        f"born {born} at {message['born_host']}  stored at {message['store_host']}",
        f"flag {message['flag']}  sys flag {sys_flag}  reconsumed {message['reconsume_times']}",
    ]
    if message["transaction"] != "none" or message["prepared_transaction_offset"]:
        lines.append(f"transaction {message['transaction']}  prepared at {message['prepared_transaction_offset']}")
    if "dledger_index" in message:
        states = {True: "  committed", False: "  after the committed index of the checkpoint"}
        state = states.get(message["dledger_committed"], "")
        lines.append(f"raft index {message['dledger_index']}  term {message['dledger_term']}{state}")
    properties = "  ".join(f"{name}={value}" for name, value in message["properties"].items())
    lines.append(f"properties {properties or '-'}")
    return [_INDENT + visible(line) for line in lines]


def _body(message: dict[str, Any], body_format: BodyFormat) -> list[str]:
    crc = "ok" if message["body_crc_ok"] else "WRONG"
    compression = "" if message["compression"] == "none" else f"  {message['compression']}"
    line = f"{_INDENT}body {message['body_size']} B{compression}  crc {message['body_crc']} {crc}"
    if "body_error" in message:
        line += f"  shown as stored: {visible(message['body_error'])}"
    if message.get(BODY_DECODED) is not None:
        line += "  decoded"
    elif DECODE_ERROR in message:
        line += f"  not decoded: {visible(message[DECODE_ERROR])}"
    if "body" not in message and message.get(BODY_DECODED) is None:
        return [line]
    return [line, *(2 * _INDENT + shown for shown in _body_lines(message, body_format))]


def _body_lines(message: dict[str, Any], body_format: BodyFormat) -> list[str]:
    text = message.get(BODY_DECODED)
    text = message["body"] if text is None else text
    data = base64.b64decode(message["body_base64"]) if text is None else text.encode()
    if not data:
        return []
    if body_format == "base64":
        return [base64.b64encode(data).decode()]
    if body_format == "json" and text is not None:
        try:
            return [visible(line) for line in json.dumps(json.loads(text), indent=2, ensure_ascii=False).split("\n")]
        except (ValueError, RecursionError):
            pass  # not JSON: shown as text
    if body_format == "hex" or text is None:
        return _lines(data, 0, "", "")
    return [visible(line) for line in text.split("\n")]


def _styled(text: str, *, color: bool, **style: Any) -> str:
    return click.style(text, **style) if color else text


_BYTES = 16  # in one line
_SHOWN = 60  # characters of a value


def hex_fields(layout: Struct | None, data: bytes, indent: str = "  ") -> list[str]:
    """A line for each field: its position in the unit, bytes, name and value; then bytes that belong to no field."""
    lines, end = [], 0
    for name, start, stop, value in field_extents(layout, data) if layout else []:
        shown = format_host(value) if name.endswith("_host") else _value(value)
        lines += _lines(data[start:stop], start, f"{name} {shown}", indent)
        end = stop
    return lines + (_lines(data[end:], end, "" if layout is None else "beyond the last field", indent))


def _lines(data: bytes, position: int, label: str, indent: str) -> list[str]:
    lines = []
    for start in range(0, len(data), _BYTES):
        chunk = data[start : start + _BYTES]
        text = label if start == 0 else ""
        if not label:
            text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in chunk)
        lines.append(f"{indent}{position + start:06x}  {chunk.hex(' '):<{3 * _BYTES - 1}}  {text}".rstrip())
    return lines


def _value(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    text = visible(value.decode("utf-8", "replace"))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
