"""Decoded bodies: the fields that a decoder adds to messages, and which bodies it could not decode."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtool.base.decoding import Decoded, Decoder, Decoding
from rmqtool.scan.bodies import BodyError, decompress
from rmqtool.scan.rows import Rows

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
            yield "the decoder wrote more lines than it got bodies: texts may stand beside the wrong messages"


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
