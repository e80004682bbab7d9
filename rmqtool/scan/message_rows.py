"""Messages as rows of the machine interface: the columns of a scan, times beside timestamps, bodies as text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.decoders import Decoded, Decoder, Decoding
from rmqtool.base.times import rfc3339
from rmqtool.formats.message import COMPRESSED
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.bodies import BodyError, decompress, with_plain_bodies
from rmqtool.scan.columns import ColumnRun, column_of, is_wished, needs_plain_body, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.rows import KIND, Rows, make_rows, one_row, times_of
from rmqtool.scan.typed_columns import TypedColumn, typed_column
from rmqtool.scan.windows import constant_strings, is_utf8

if TYPE_CHECKING:
    from rmqtool.scan.redaction import Redaction

BODY_DECODED, DECODE_ERROR = "body_decoded", "body_decode_error"
DECODED_COLUMNS = (BODY_DECODED, DECODE_ERROR)
"""The text of a decoder, null where there is none, and why there is none."""

DETAILS = ("topic", "queue_id", "queue_offset", "physical_offset", "tags", "properties")
"""What a function that decodes is told of a message; its names are those of JSON."""

NOT_DECOMPRESSED = "the body cannot be decompressed"

_TEXT_BYTES = 32 << 20
"""Decoded rows are handed on when their texts reach this, bytes."""


@dataclass
class DecodeFailures:
    """How many bodies could not be decoded, of how many; `first` is the place of the first, and why."""

    bodies: int = 0
    count: int = 0
    first: str | None = None
    given_up: str | None = None
    out_of_step: bool = False

    @property
    def is_lossy(self) -> bool:
        """Whether a text is missing, or may be that of another body."""
        return bool(self.count or self.out_of_step)

    def add(self, reason: str, place: Callable[[], str]) -> None:
        """Count a body that could not be decoded."""
        self.count += 1
        if self.first is None:
            self.first = f"{place()}: {reason}"

    def merge(self, other: DecodeFailures) -> None:
        """Add those of a part of the log after this one."""
        self.bodies += other.bodies
        self.count += other.count
        self.first = self.first or other.first
        self.given_up = self.given_up or other.given_up
        self.out_of_step |= other.out_of_step

    def sentences(self) -> Iterator[str]:
        """What people must know, nothing when all is well."""
        if self.bodies == 1 and self.count:
            yield f"the body could not be decoded: {self.first}"
        elif self.count:
            yield f"{self.count} of {self.bodies} bodies could not be decoded; the first: {self.first}"
        if self.given_up:
            yield f"the decoder was {self.given_up}; no further body was decoded with it"
        if self.out_of_step:
            yield "the decoder wrote more lines than it got bodies: texts may belong to other messages"


class BodyDecoder:
    """A decoder at work on bodies; it ends when the block is left, and `failures` are complete then.

    `body` is which body messages show beside the text; "none" for none. What `redaction` hides of DETAILS is hidden
    from a function too: its texts are shown as they are.
    """

    def __init__(self, decoder: Decoder, redaction: Redaction | None = None, body: str = "decompressed") -> None:
        from rmqtool.base.decoders import open_decoder

        self._body = body
        self._redaction = redaction
        self.failures = DecodeFailures()
        self._decoder = decoder
        self._decoding: Decoding = open_decoder(decoder)

    def __enter__(self) -> BodyDecoder:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._decoding.close(in_peace=error is None)
        self.failures.out_of_step = self._decoding.out_of_step
        self.failures.given_up = self._decoder.health.given_up

    def listing(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a listing, those that are Rows as `rows` gives them."""
        for item in items:
            if isinstance(item, Rows):
                yield from self.rows(item)
            else:
                yield item

    def rows(self, rows: Rows) -> Iterator[Rows]:
        """Rows whose column BODY_DECODED holds bodies, with texts and errors instead, in pieces that fit in memory."""
        if BODY_DECODED not in rows.names:
            yield rows
            return
        batch = rows.batch
        files, offsets = batch.column("file"), batch.column("physical_offset")
        pieces = self.pieces(batch, batch.column(BODY_DECODED), lambda row: f"{files[row]} at offset {offsets[row]}")
        for piece, texts, errors in pieces:
            columns = dict(zip(piece.schema.names, piece.columns, strict=True))
            names = list(columns)
            names.insert(names.index(BODY_DECODED) + 1, DECODE_ERROR)
            columns |= {BODY_DECODED: texts, DECODE_ERROR: errors}
            shown = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
            yield replace(rows, batch=shown)

    def pieces(
        self, batch: pa.RecordBatch, bodies: pa.BinaryArray, place: Callable[[int], str]
    ) -> Iterator[tuple[pa.RecordBatch, pa.StringArray, pa.StringArray]]:
        """The rows of `batch` with the texts and errors of their `bodies`, in pieces whose texts fit in memory.

        A null stands for a body that cannot be decompressed. `place` names the place of a row.
        """
        start, size = 0, 0
        decoded: list[Decoded] = []
        for row, answer in enumerate(self._answers(batch, bodies)):
            self._count(answer, lambda row=row: place(row))  # type: ignore[misc]
            decoded.append(answer)
            size += len(answer.text or "")
            if size >= _TEXT_BYTES or row + 1 == len(bodies):
                texts = pa.array([each.text for each in decoded], pa.string())
                errors = pa.array([each.error for each in decoded], pa.string())
                yield batch.slice(start, len(decoded)), texts, errors
                start, size, decoded = row + 1, 0, []

    def add_to(self, message: dict[str, Any]) -> None:
        """Add the fields to a message as JSON has it, which has a body; that is removed where none is shown."""
        body = _plain_body(message, is_stored=self._body == "stored")
        answer = Decoded(error=NOT_DECOMPRESSED)
        if body is not None:
            details = {name: message[name] for name in DETAILS}
            (answer,) = self._decoding.decode([(body, self._redaction.value(details) if self._redaction else details)])
        self._count(answer, lambda: f"{message['file']} at offset {message['physical_offset']}")
        message[BODY_DECODED] = answer.text
        if answer.error is not None:
            message[DECODE_ERROR] = answer.error
        if self._body == "none":
            for name in ("body", "body_base64", "body_error"):
                message.pop(name, None)

    def _answers(self, batch: pa.RecordBatch, bodies: pa.BinaryArray) -> Iterator[Decoded]:
        details: Iterable[Mapping[str, Any]] = self._details(batch) if self._decoder.wants_details else repeat({})
        payloads = ((body.as_py(), told) for body, told in zip(bodies, details, strict=False) if body.is_valid)
        answers = self._decoding.decode(payloads)
        for body in bodies:
            yield next(answers) if body.is_valid else Decoded(error=NOT_DECOMPRESSED)

    def _details(self, batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
        columns = {name: batch.column(name) for name in DETAILS}
        if self._redaction is not None:
            columns = {name: self._redaction.column(name, column) for name, column in columns.items()}
        for values in zip(*columns.values(), strict=True):
            details = {name: value.as_py() for name, value in zip(DETAILS, values, strict=True)}
            yield {**details, "properties": dict(details["properties"])}

    def _count(self, answer: Decoded, place: Callable[[], str]) -> None:
        self.failures.bodies += 1
        if answer.error is not None:
            self.failures.add(answer.error, place)


def details_read(decoder: Decoder | None) -> tuple[str, ...]:
    """The columns of messages that a decoder needs beside their bodies."""
    return DETAILS if decoder is not None and decoder.wants_details else ()


def _plain_body(message: dict[str, Any], *, is_stored: bool) -> bytes | None:
    """The decompressed body; None for one that cannot be decompressed."""
    text = message["body"]
    body = base64.b64decode(message["body_base64"]) if text is None else text.encode()
    if not is_stored:
        return None if "body_error" in message else body
    try:
        return decompress(body, message["sys_flag"])
    except BodyError:
        return None


BodyChoice = Literal["decompressed", "stored", "none"]

MESSAGE = "message"
BODY_COLUMNS = ("body", "body_base64", "body_error")
MESSAGE_FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_size", "message_id", "unique_key", "keys", "tags",
    "properties", "born_timestamp", "born_time", "store_timestamp", "store_time", "born_host", "store_host", "flag",
    "sys_flag", "reconsume_times", "body_crc", "transaction", "compression", "prepared_transaction_offset", "body_size",
    "magic_code", "body_crc_ok", "file", "topic_base64", "properties_base64",
)  # fmt: skip
"""The fields of a message in the order of JSON; those of BODY_COLUMNS follow where a body is wanted."""

OPTIONAL = frozenset({"topic_base64", "properties_base64", "body_base64", "body_error", DECODE_ERROR, "hex"})
"""Fields that are left out of a message where they are null."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TIMES = {"born_time": "born_timestamp", "store_time": "store_timestamp"}
_RAW = {"topic_base64": ("topic", "stored_topic"), "properties_base64": ("properties", "stored_properties")}


@dataclass(frozen=True)
class MessageShape:
    """Which fields of messages are wanted, and which body.

    `names` may hold ``hex``, the record's bytes, and BODY_DECODED, which is the decompressed body until it is decoded.
    Of the `typed` columns `unfit` has, by name, how many values do not fit their type, and where the first one is.
    """

    names: tuple[str, ...] = MESSAGE_FIELDS + BODY_COLUMNS
    body: BodyChoice = "decompressed"
    typed: tuple[TypedColumn, ...] = ()
    unfit: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls, body: BodyChoice = "decompressed", columns: Sequence[str] = (), *, with_hex: bool = False
    ) -> MessageShape:
        """The fields `columns`, or all of them; `body` is read only where a column shows it."""
        available = MESSAGE_FIELDS + (() if body == "none" else BODY_COLUMNS)
        typed = {name: column for name in columns if (column := typed_column(name)) is not None}
        names = tuple(typed[name].name if name in typed else name
                      for name in columns if name in available or name in typed or is_wished(name))  # fmt: skip
        names = names if columns else available
        wants_body = body != "none" and not set(names).isdisjoint(BODY_COLUMNS)
        chosen = tuple(typed.values())
        return cls((*names, "hex") if with_hex else names, body if wants_body else "none", chosen)

    def for_decoder(self, details: Sequence[str]) -> MessageShape:
        """The same fields, the body for a decoder, and what else is needed with it."""
        hexed = ("hex",) if "hex" in self.names else ()
        names = (name for name in self.names if name != "hex")
        wanted = dict.fromkeys((*names, *details, "physical_offset", "file", BODY_DECODED, *hexed))
        return replace(self, names=tuple(wanted))

    @property
    def needs_plain_bodies(self) -> bool:
        """Whether bodies are decompressed."""
        return (
            self.body == "decompressed"
            or BODY_DECODED in self.names
            or any(needs_plain_body(name) for name in self._wished)
        )

    @property
    def _wished(self) -> tuple[str, ...]:
        """Columns that are there only where they are asked for, and those that columns with types are made of."""
        typed = {each.name for each in self.typed}
        wished = (name for name in self.names if is_wished(name) and name not in typed)
        return (*wished, *(each.source for each in self.typed))

    def wished(self, frames: RecordRun, bodies: pa.BinaryArray | None) -> dict[str, pa.Array]:
        """These columns of a run; values that do not fit their type are counted."""
        run = ColumnRun(frames, bodies, names=self._wished)
        columns = {name: column_of(name).read(run) for name in self._wished}
        made = {}
        for each in self.typed:
            made[each.name], is_unfit = each.cast(columns[each.source])
            if is_unfit.any():
                count, first = self.unfit.get(each.name, (0, int(frames.physical_offsets[is_unfit][0])))
                self.unfit[each.name] = count + int(is_unfit.sum()), first
        return columns | made


def message_rows(frames: RecordRun, file: str, shape: MessageShape) -> Iterator[Rows]:
    """The records of a run as rows, in pieces whose decompressed bodies fit in memory; `file` holds them."""
    pieces: Iterator[tuple[RecordRun, pa.BinaryArray | None]] = iter([(frames, None)])
    if shape.needs_plain_bodies:
        pieces = with_plain_bodies(frames)
    for piece, bodies in pieces:
        yield _rows(piece, bodies, file, shape)


def extent_row(event: Blank | Damage) -> Rows:
    """A blank or a damaged extent as a row."""
    if isinstance(event, Blank):
        return one_row("blank", {"physical_offset": event.physical_offset, "size": event.size}, counted=False)
    values = {"physical_offset": event.physical_offset, "size": event.size, "reason": event.reason}
    return one_row("damage", values, counted=False)


def _rows(frames: RecordRun, bodies: pa.BinaryArray | None, file: str, shape: MessageShape) -> Rows:
    scanned = _scanned(frames, shape)
    derived: dict[str, Any] = {}
    if shape.body != "none":
        stored = scanned["stored_body"]
        derived = _bodies(stored if shape.body == "stored" or bodies is None else bodies, stored, frames, shape.body)
    if BODY_DECODED in shape.names and bodies is not None:
        derived[BODY_DECODED] = _decompressed_only(bodies, scanned["stored_body"], frames)
    for name in _TIMES.keys() & set(shape.names):
        derived[name] = times_of(scanned[_TIMES[name]])
    for name in _RAW.keys() & set(shape.names):
        derived[name] = _undecodable(name, frames, scanned)
    if "file" in shape.names:
        derived["file"] = constant_strings(file, len(frames))
    if "hex" in shape.names:
        derived["hex"] = _hex(frames)
    derived |= shape.wished(frames, bodies)
    columns = {name: derived.get(name, scanned.get(name)) for name in shape.names}
    if not columns:
        columns = {"physical_offset": pa.array(frames.physical_offsets)}
    kept = {name: column for name, column in columns.items() if column is not None}
    return make_rows(MESSAGE, kept, optional=sorted(OPTIONAL))


def _scanned(frames: RecordRun, shape: MessageShape) -> dict[str, pa.Array]:
    """The columns of the scan that the wanted fields are made from."""
    derived = {*BODY_COLUMNS, BODY_DECODED, *_TIMES, *_RAW, "file", "hex"}
    derived |= {each.name for each in shape.typed}
    names = [name for name in shape.names if name not in derived and not is_wished(name)]
    names += [_TIMES[name] for name in shape.names if name in _TIMES]
    names += [_RAW[name][0] for name in shape.names if name in _RAW]
    names += [] if shape.body == "none" and BODY_DECODED not in shape.names else ["stored_body"]
    names = list(dict.fromkeys(names))
    (batch,) = record_batches(frames, names)
    return dict(zip(names, batch.columns, strict=True))


def _undecodable(name: str, frames: RecordRun, scanned: dict[str, pa.Array]) -> pa.StringArray | None:
    """The stored bytes in base64 where decoding replaced something; None where it never did."""
    column, stored = _RAW[name]
    texts = [scanned[column]] if column == "topic" else [scanned[column].keys, scanned[column].items]
    if not any(pc.any(pc.match_substring(text, _REPLACEMENT)).as_py() for text in texts if len(text)):
        return None
    rows = [_REPLACEMENT in str(value) for value in scanned[column].to_pylist()]
    (batch,) = record_batches(frames, [stored])
    values = batch.column(0).to_pylist()
    shown = [in_base64(value) if replaced else None for value, replaced in zip(values, rows, strict=True)]
    return pa.array(shown, pa.string())


def _bodies(bodies: pa.BinaryArray, stored: pa.BinaryArray, frames: RecordRun, choice: BodyChoice) -> dict[str, Any]:
    """`body` as text, null where it is not UTF-8; then `body_base64`. `body_error` says why one is shown as stored."""
    columns: dict[str, Any] = {}
    if is_utf8(bodies):
        columns["body"] = bodies.view(pa.string())
    else:
        texts = [as_text(body) for body in bodies.to_pylist()]
        pairs = zip(texts, bodies, strict=True)
        columns["body"] = pa.array(texts, pa.string())
        columns["body_base64"] = pa.array([None if text is not None else in_base64(raw.as_py()) for text, raw in pairs])
    if choice == "decompressed":
        errors = _errors(bodies, stored, frames)
        if errors is not None:
            columns["body_error"] = errors
    return columns


def _errors(bodies: pa.BinaryArray, stored: pa.BinaryArray, frames: RecordRun) -> pa.StringArray | None:
    """Why compressed bodies are as they were stored; None when all could be decompressed."""
    flags = frames.headers.field("sys_flag")
    compressed = np.flatnonzero(flags & COMPRESSED)
    if not len(compressed):
        return None
    rows = pa.array(compressed)
    same = np.asarray(pc.equal(bodies.take(rows), stored.take(rows)))
    errors: list[str | None] = [None] * len(bodies)
    for row in compressed[same].tolist():
        errors[row] = _why(stored[row].as_py(), int(flags[row]))
    return pa.array(errors, pa.string()) if any(errors) else None


def _decompressed_only(bodies: pa.BinaryArray, stored: pa.BinaryArray, frames: RecordRun) -> pa.BinaryArray:
    """The bodies, null where one could not be decompressed."""
    errors = _errors(bodies, stored, frames)
    return bodies if errors is None else pc.if_else(errors.is_null(), bodies, pa.scalar(None, pa.binary()))


def _why(stored: bytes, sys_flag: int) -> str | None:
    try:
        decompress(stored, sys_flag)
    except BodyError as error:
        return str(error)
    return None


def _hex(frames: RecordRun) -> pa.StringArray:
    """All bytes of each record, in hex."""
    records = frames.block.slices(frames.positions, frames.message_sizes)
    return pa.array([record.hex() for record in records.to_pylist()], pa.string())


def as_text(body: bytes) -> str | None:
    """A body as text; None where it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def in_base64(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def message_dicts(
    frames: RecordRun, file: str, body: BodyChoice = "none", fields: Sequence[str] = MESSAGE_FIELDS
) -> Iterator[dict[str, Any]]:
    """The records of a run, which stand in `file`, as JSON has them: these fields, and the body where one is wanted."""
    names = (*fields, *(() if body == "none" else BODY_COLUMNS))
    # Times of whole columns need tables, which take longer to make than a few times.
    shape = MessageShape(tuple(name for name in names if name not in _TIMES), body)
    for rows in message_rows(frames, file, shape):
        for message in rows.dicts():
            message.update({name: rfc3339(message[source]) for name, source in _TIMES.items() if name in names})
            yield {name: message[name] for name in (KIND, *names) if name in message}
