"""The messages of a split as record batches, with the columns of exports and Spark."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.decoders import Decoder
from rmqtool.base.errors import RmqtoolError, UnreadableError, UsageError
from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.formats.message import COMPRESSED, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqtool.scan.block import REASON_MEANINGS, Block, Damage
from rmqtool.scan.bodies import stored_bodies
from rmqtool.scan.columns import (
    BODY_TEXT,
    DICTIONARY_STRING,
    MESSAGE_WISHES,
    is_wished,
    message_schema,
    needs_plain_body,
    record_batches,
)
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import JoinedRuns, RecordRun, sound_prefix
from rmqtool.scan.message_rows import (
    BODY_DECODED,
    DECODE_ERROR,
    DECODED_COLUMNS,
    BodyChoice,
    BodyDecoder,
    DecodeFailures,
    details_read,
)
from rmqtool.scan.reader import MANY_RECORDS, USUAL_RECORDS, scan_block, scan_files
from rmqtool.scan.redaction import Redaction
from rmqtool.scan.typed_columns import TypedColumn, typed_column
from rmqtool.scan.windows import constant_strings
from rmqtool.store.other_logs import OwnRecords
from rmqtool.store.splits import Split
from rmqtool.store.store import relative_to

if TYPE_CHECKING:
    from typing_extensions import Self

EXPORT_COLUMNS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_size", "message_id", "unique_key", "keys", "tags",
    "properties", "born_timestamp", "store_timestamp", "born_host", "store_host", "flag", "sys_flag",
    "reconsume_times", "body_crc", "transaction", "compression", "prepared_transaction_offset", "body_size", "body",
)  # fmt: skip
"""The columns of an export, and of a Spark data source, in order; `scan.columns.COLUMNS` says how each is made."""

STORE_COLUMN = "store"
"""The column that names a row's store, when there are several; the last one."""

FILE_COLUMNS = ("file", "file_position")
"""Columns that say where a message stands: its log file, relative to the store, and the position in it, bytes."""

PLACE_COLUMN = "place"
"""The column that says where a message is: ``local``, ``tiered`` or ``compacted``."""

_OF_SPLIT = (STORE_COLUMN, PLACE_COLUMN)  # columns that are the same for all messages of a split

WISHED_COLUMNS = (*MESSAGE_WISHES, *FILE_COLUMNS, PLACE_COLUMN, STORE_COLUMN)
"""Columns that are there only where they are asked for."""

INCLUDABLE = {"prepared": TRANSACTION_PREPARED, "rolled-back": TRANSACTION_ROLLBACK}
"""Transaction types of messages that consumers never see, by the name of the option that includes them."""

_INCLUDED_BY = {"prepared": "prepared", "rollback": "rolled-back"}  # who filters for them wants to see them

TIMESTAMP = pa.timestamp("us", tz="UTC")
_TIMESTAMPS = ("born_timestamp", "store_timestamp")


@dataclass(frozen=True)
class Query:
    """Which messages, and which of their columns; make it with `make_query`. Small, immutable and picklable.

    `include` are names of INCLUDABLE; `bytes_per_second` is how fast each process may read, None without a limit;
    with `epoch_ms` timestamps are numbers as stored, and not Arrow's. `redaction` is made where columns are handed out.
    `decoder` makes DECODED_COLUMNS, and is there where they are read. `typed` are those that have a type.
    """

    columns: tuple[str, ...] = EXPORT_COLUMNS
    body: BodyChoice = "decompressed"
    filters: Filters = field(default_factory=Filters)
    include: tuple[str, ...] = ()
    bytes_per_second: int | None = None
    epoch_ms: bool = False
    redaction: Redaction | None = None
    decoder: Decoder | None = None
    typed: tuple[TypedColumn, ...] = ()

    @cached_property
    def typed_by_name(self) -> dict[str, TypedColumn]:
        """The columns that have a type."""
        return {each.name: each for each in self.typed}

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return pa.schema([self._field(name) for name in self.columns])

    def _field(self, name: str, *, dictionary_encoded: bool = False) -> pa.Field:
        if name in self.typed_by_name:
            return pa.field(name, self.typed_by_name[name].type)
        return _field(name, epoch_ms=self.epoch_ms, dictionary_encoded=dictionary_encoded)

    @cached_property
    def dictionary_schema(self) -> pa.Schema:
        """The Arrow schema of the columns, with dictionaries where there are few distinct strings."""
        return pa.schema([self._field(name, dictionary_encoded=True) for name in self.columns])

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns of a scan that the columns are made from."""
        made_from = dict.fromkeys(FILE_COLUMNS, "physical_offset") | dict.fromkeys(DECODED_COLUMNS, "body")
        if self.body == "stored":
            made_from["body"] = "stored_body"
        made_from |= {each.name: each.source for each in self.typed}
        return tuple(dict.fromkeys(made_from.get(name, name) for name in self.columns if name not in _OF_SPLIT))


def make_query(
    columns: Sequence[str] | None,
    body: BodyChoice,
    filters: Filters,
    include: Sequence[str] = (),
    *,
    with_store: bool = False,
    epoch_ms: bool = False,
    redaction: Redaction | None = None,
    decoder: Decoder | None = None,
) -> Query:
    """A query of `columns` (None, and ``*`` in it: all that fit).

    Raises UsageError for a column that there is not, and for what cannot be included.
    """
    if unknown := sorted({*include} - INCLUDABLE.keys()):
        raise UsageError(f"include has {' and '.join(INCLUDABLE)}, not {unknown[0]!r}")
    usual = EXPORT_COLUMNS if decoder is None else (*EXPORT_COLUMNS, BODY_DECODED)
    typed = _typed(columns or ())
    wanted = [(usual if name == "*" else (name,)) for name in (("*",) if columns is None else columns)]
    names = tuple(dict.fromkeys(typed[name].name if name in typed else name for group in wanted for name in group))
    _check_decoded(names, decoder)
    made = {each.name for each in typed.values()}
    for name in names:
        if name not in DECODED_COLUMNS and name not in made:
            require_column(name)
    if body == "none":
        names = tuple(name for name in names if name != "body")
    if with_store and STORE_COLUMN not in names:
        names += (STORE_COLUMN,)
    if not names:
        raise UsageError("no column is left")
    include = tuple(sorted({*include, *(_INCLUDED_BY[each] for each in filters.transactions if each in _INCLUDED_BY)}))
    chosen = tuple(typed.values())
    return Query(names, body, filters, include, epoch_ms=epoch_ms, redaction=redaction, decoder=decoder, typed=chosen)


def more_columns(columns: Sequence[str]) -> Query:
    """A query of the usual columns and these, each of which has a type: text where none is given.

    Raises UsageError as `make_query` does.
    """
    given = [each if typed_column(each) is not None else f"{each} as {_name_of(each)}" for each in columns]
    return Query(typed=tuple(_typed(given).values()))


def _name_of(column: str) -> str:
    """The last part of a column such as ``body.order.id``."""
    return column.rpartition(".")[2]


def _typed(columns: Sequence[str]) -> dict[str, TypedColumn]:
    """Those of the columns that have a type or a name, by how users write them; raises UsageError for a taken name."""
    typed = {text: column for text in dict.fromkeys(columns) if (column := typed_column(text)) is not None}
    others = {*EXPORT_COLUMNS, *DECODED_COLUMNS, *FILE_COLUMNS, *_OF_SPLIT, BODY_TEXT, *columns}
    for text, column in typed.items():
        if column.name in others:
            raise UsageError(f"{text!r}: another column is named {column.name}", hint="for example: ... as other_name")
        others.add(column.name)
    return typed


def _check_decoded(names: Sequence[str], decoder: Decoder | None) -> None:
    """Raise UsageError for columns of a decoder without one, and for a decoder without a column."""
    decoded = [name for name in names if name in DECODED_COLUMNS]
    if decoded and decoder is None:
        raise UsageError(f"the column {decoded[0]} is what a decoder makes", hint="--decoder COMMAND makes it")
    if decoder is not None and not decoded:
        raise UsageError(
            f"--decoder: --columns leaves out its column: {' and '.join(DECODED_COLUMNS)}",
            hint=f"for example: --columns '*,{DECODED_COLUMNS[1]}'",
        )


def require_column(name: str) -> None:
    """Raise UsageError for a column that there is not."""
    if not (name in (*EXPORT_COLUMNS, *FILE_COLUMNS, *_OF_SPLIT) or is_wished(name)):
        hint = f"columns: {', '.join((*EXPORT_COLUMNS, *WISHED_COLUMNS))}"
        raise UsageError(f"no column is named {name!r}", hint=hint)


def _field(name: str, *, epoch_ms: bool, dictionary_encoded: bool = False) -> pa.Field:
    if name in _OF_SPLIT:
        return pa.field(name, DICTIONARY_STRING if dictionary_encoded else pa.string(), nullable=False)
    if name in _TIMESTAMPS and not epoch_ms:
        return pa.field(name, TIMESTAMP)
    if name in DECODED_COLUMNS:
        return pa.field(name, pa.string())
    if name in FILE_COLUMNS:
        text = DICTIONARY_STRING if dictionary_encoded else pa.string()
        return pa.field(name, text if name == "file" else pa.int64(), nullable=False)
    return message_schema((name,), dictionary_encoded=dictionary_encoded).field(0)


MAX_OFFSETS = 1000
"""Wrong bodies whose physical offsets are kept; all are counted."""

_MAX_MS = ((1 << 63) - 1) // 1000


@dataclass
class BodyProblems:
    """Damaged bodies, or values that do not fit: how many, and the physical offsets of the first MAX_OFFSETS, bytes."""

    count: int = 0
    physical_offsets: list[int] = field(default_factory=list)

    def add(self, offsets: NDArray[np.int64]) -> None:
        """Count the messages at `offsets`."""
        self.count += len(offsets)
        self.physical_offsets.extend(offsets[: MAX_OFFSETS - len(self.physical_offsets)].tolist())

    def merge(self, other: BodyProblems) -> None:
        """Add the problems of another split."""
        self.count += other.count
        self.physical_offsets.extend(other.physical_offsets[: MAX_OFFSETS - len(self.physical_offsets)])


@dataclass(frozen=True)
class LastRecord:
    """Fields that identify a record, should another one stand at its offset later; offset and size in bytes."""

    physical_offset: int
    message_size: int
    store_timestamp: int
    body_crc: int

    @classmethod
    def of(cls, run: RecordRun) -> LastRecord:
        """The last record of a run."""
        last = run[len(run) - 1 :].headers
        return cls(*(int(last.field(each.name)[0]) for each in fields(cls)))


@dataclass
class ReadCounts:
    """What was read of a log; `end` is the end of the last record or blank, bytes, and None when there was none."""

    messages: int = 0
    bytes: int = 0
    excluded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INCLUDABLE, 0))
    wrong_crc: BodyProblems = field(default_factory=BodyProblems)
    not_decompressed: BodyProblems = field(default_factory=BodyProblems)
    not_decoded: BodyProblems = field(default_factory=BodyProblems)
    unfit: dict[str, BodyProblems] = field(default_factory=dict)  # values that do not fit their type, by column
    decode_failures: DecodeFailures = field(default_factory=DecodeFailures)
    end: int | None = None
    last_record: LastRecord | None = None

    def merge(self, other: Self) -> None:
        """Add a part of the log after this one."""
        self.messages += other.messages
        self.bytes += other.bytes
        for name, count in other.excluded.items():
            self.excluded[name] += count
        self.wrong_crc.merge(other.wrong_crc)
        self.not_decompressed.merge(other.not_decompressed)
        self.not_decoded.merge(other.not_decoded)
        for name, problems in other.unfit.items():
            self.unfit.setdefault(name, BodyProblems()).merge(problems)
        self.decode_failures.merge(other.decode_failures)
        self.end = other.end if other.end is not None else self.end
        self.last_record = other.last_record or self.last_record


_FREE: list[Block] = []
"""The memory of the last scan for the next one: a tier has many small splits."""


class SplitReader:
    """One pass over a split; its `counts`, or those that are given, are complete when `events` is at its end.

    Batches hold the columns `extra` too; where they are `dictionary_encoded`, columns of few distinct strings are
    dictionaries, for a writer. Bodies are proven by their CRC where they are read, unless `proves_bodies` is false.
    Small runs of messages share a batch; damage may come before messages in front of it then, unless `in_order`.
    """

    def __init__(
        self,
        split: Split,
        query: Query,
        extra: Sequence[str] = (),
        counts: ReadCounts | None = None,
        *,
        proves_bodies: bool = True,
        dictionary_encoded: bool = False,
        in_order: bool = False,
    ) -> None:
        self._split = split
        self._query = query
        self._dictionary_encoded = dictionary_encoded
        self.schema = query.dictionary_schema if dictionary_encoded else query.schema
        columns = (*query.stored_columns, *details_read(query.decoder), *extra)
        reads_bodies = "stored_body" in columns or any(map(needs_plain_body, columns))
        self._usual_records = USUAL_RECORDS if reads_bodies else MANY_RECORDS
        self._joined = JoinedRuns(self._usual_records)
        self._in_order = in_order
        self._proves_bodies = proves_bodies and reads_bodies
        if any(map(needs_plain_body, columns)):
            columns += ("body",)  # to count those that cannot be decompressed
        needed = (*columns, "physical_offset", "body_crc_ok") if self._proves_bodies or query.decoder else columns
        needed = (*needed, "physical_offset") if query.typed else needed  # to say which values do not fit
        self._columns = tuple(dict.fromkeys(needed)) or ("physical_offset",)  # without a column there are no rows
        self.counts = counts or ReadCounts()

    def events(self) -> Generator[pa.RecordBatch | Damage, None, None]:
        """Batches of the wanted messages, as the scan gives them, and damage.

        Bodies are decoded beside them where the query has a decoder. Raises UnreadableError.
        """
        if self._query.decoder is None:
            yield from self._scanned()
            return
        with BodyDecoder(self._query.decoder, self._query.redaction) as decoder:
            for event in self._scanned():
                if isinstance(event, Damage):
                    yield event
                else:
                    yield from self._decoded(event, decoder)
        self.counts.decode_failures = decoder.failures

    def _scanned(self) -> Iterator[pa.RecordBatch | Damage]:
        split, other, rate = self._split, self._split.other, self._query.bytes_per_second
        reading = ReadPolicy(_rate_limit(rate) if rate else None, drop_page_cache=split.live)
        block = _FREE.pop() if _FREE else scan_block()
        own = OwnRecords(other, split.files, reading) if other else None
        events = scan_files(split.files, split.start, split.stop, reading, self._usual_records, block=block)
        try:
            for event in events:
                if isinstance(event, Damage):
                    if self._in_order:
                        yield from self._joined_batches()
                    if not (split.live and event.tail):
                        yield event
                    continue
                if own is None:
                    self.counts.end = event.physical_offset + event.size
                if isinstance(event, RecordRun):
                    run = own.of(event) if own else event
                    yield from self._batches_with(run) if run else ()
        except UnreadableError:
            yield from self._joined_batches()  # what was read before is not lost with it
            raise
        finally:
            _FREE[:] = [block]
            if own:
                own.close()
        yield from self._joined_batches()

    @property
    def _place_of_split(self) -> str:
        return self._split.other.place if self._split.other else "local"

    def to_messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the query from a batch of `events`."""
        names, redaction = self._query.columns, self._query.redaction
        columns = [self._column(batch, name, kind) for name, kind in zip(names, self.schema, strict=True)]
        if redaction is not None:
            columns = [column if name in self._query.typed_by_name else redaction.column(name, column)
                       for name, column in zip(names, columns, strict=True)]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def messages_of(self, frames: RecordRun) -> Iterator[pa.RecordBatch]:
        """The columns of the query of the records of a run, whether its filters let them through or not."""
        for batch in record_batches(frames, self._columns, dictionary_encoded=self._dictionary_encoded):
            yield self.to_messages(batch)

    def _column(self, batch: pa.RecordBatch, name: str, kind: pa.Field) -> pa.Array:
        if name in _OF_SPLIT:
            value = self._split.store if name == STORE_COLUMN else self._place_of_split
            return constant_strings(value, batch.num_rows, dictionary_encoded=self._dictionary_encoded)
        if name == "message_id" and self._split.other:  # an id leads into the commit log
            return pa.nulls(batch.num_rows, kind.type)
        if name in self._query.typed_by_name:
            return self._typed(batch, self._query.typed_by_name[name])
        if name in DECODED_COLUMNS:
            return batch.column(name)
        if name in FILE_COLUMNS:
            return self._place(np.asarray(batch.column(self._columns.index("physical_offset"))), name, kind.type)
        if name == "body" and self._query.body == "stored":
            name = "stored_body"
        column = batch.column(self._columns.index(name))
        return to_timestamps(column) if kind.type == TIMESTAMP else column

    def _typed(self, batch: pa.RecordBatch, column: TypedColumn) -> pa.Array:
        """The values of a column with a type; those that do not fit it are null and counted, redacted ones are null."""
        texts = batch.column(self._columns.index(column.source))
        values, is_unfit = column.cast(texts)
        if is_unfit.any():
            offsets = np.asarray(batch.column(self._columns.index("physical_offset")))
            self.counts.unfit.setdefault(column.name, BodyProblems()).add(offsets[is_unfit])
        if self._query.redaction is None:
            return values
        shown = self._query.redaction.column(column.source, texts)
        return (
            shown if column.kind == "text" else pc.if_else(pc.equal(shown, texts), values, pa.scalar(None, values.type))
        )

    def _place(self, offsets: NDArray[np.int64], name: str, kind: pa.DataType) -> pa.Array:
        """One of FILE_COLUMNS; of files that overlap the later one holds a record (`store.splits`)."""
        files = self._split.files
        starts = np.array([file.start_offset for file in files])
        numbers = np.searchsorted(starts, offsets, side="right") - 1
        if name == "file_position":
            return pa.array(offsets - starts[numbers])
        names = pa.array([relative_to(file.path, self._split.root) for file in files])
        return pa.DictionaryArray.from_arrays(numbers.astype(np.int32), names).cast(kind)

    def _batches_with(self, run: RecordRun) -> Iterator[pa.RecordBatch]:
        """The batches that are complete with a run: none where it is small and joined with those after it."""
        is_small = self._joined.is_small(run)
        if not (is_small and self._joined.has_room(run)):
            yield from self._joined_batches()
        if is_small:
            self._joined.add(run)
        else:
            yield from self._batches(run)

    def _joined_batches(self) -> Iterator[pa.RecordBatch]:
        joined = self._joined.take()
        if joined is not None:
            yield from self._batches(joined)

    def _batches(self, frames: RecordRun) -> Iterator[pa.RecordBatch]:
        self._count(frames)
        kept = self._query.filters.select(frames)
        kept = None if kept is None else self._visible(kept)
        if kept is None:
            return
        row = 0
        for batch in record_batches(kept, self._columns, dictionary_encoded=self._dictionary_encoded):
            piece = kept[row : row + batch.num_rows]
            row += batch.num_rows
            if not (self._proves_bodies or self._query.decoder):
                yield batch
                continue
            left = self._left_as_stored(batch, piece)
            if self._proves_bodies:
                offsets = piece.physical_offsets
                is_right = np.asarray(batch.column(self._columns.index("body_crc_ok")))
                self.counts.wrong_crc.add(offsets[~is_right])
                self.counts.not_decompressed.add(offsets[left])
            yield batch if self._query.decoder is None else _with_bodies_to_decode(batch, left)

    def _decoded(self, batch: pa.RecordBatch, decoder: BodyDecoder) -> Iterator[pa.RecordBatch]:
        """The batch with DECODED_COLUMNS, in pieces that fit in memory."""
        *columns, bodies = batch.columns
        scanned = pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])
        offsets = np.asarray(batch.column(self._columns.index("physical_offset")))

        def place(row: int) -> str:
            name = self._place(offsets[row : row + 1], "file", pa.string())[0]
            return f"{name} at offset {offsets[row]}"

        row = 0
        for piece, texts, errors in decoder.pieces(scanned, bodies, place):
            failed = np.flatnonzero(np.asarray(errors.is_valid()))
            self.counts.not_decoded.add(offsets[row + failed])
            row += piece.num_rows
            yield piece.append_column(BODY_DECODED, texts).append_column(DECODE_ERROR, errors)

    def _count(self, frames: RecordRun) -> None:
        self.counts.messages += len(frames)
        self.counts.bytes += frames.record_bytes
        if self._split.other is None:
            self.counts.last_record = LastRecord.of(frames)

    def _visible(self, frames: RecordRun) -> RecordRun | None:
        """The records of a transaction type that is wanted; the others are counted."""
        kinds = frames.headers.field("sys_flag") & TRANSACTION_MASK
        kept = np.ones(len(frames), dtype=np.bool_)
        for name, kind in INCLUDABLE.items():
            if name not in self._query.include:
                hidden = kinds == kind
                self.counts.excluded[name] += int(hidden.sum())
                kept &= ~hidden
        if kept.all():
            return frames
        return sound_prefix(frames.block, frames.positions[kept]) if kept.any() else None

    def _left_as_stored(self, batch: pa.RecordBatch, frames: RecordRun) -> list[int]:
        """The rows of compressed bodies that could not be decompressed."""
        compressed = (frames.headers.field("sys_flag") & COMPRESSED) != 0
        if "body" not in self._columns or not compressed.any():
            return []
        bodies = batch.column(self._columns.index("body"))
        same_size = np.asarray(pc.binary_length(bodies)) == frames.body_sizes
        rows = np.flatnonzero(compressed & same_size).tolist()
        return [row for row in rows if stored_bodies(frames[row : row + 1])[0] == bodies[row]]


def _with_bodies_to_decode(batch: pa.RecordBatch, left: list[int]) -> pa.RecordBatch:
    """The batch and at its end the bodies that a decoder gets, null those that were `left` as stored."""
    bodies = batch.column("body")
    if left:
        is_left = np.zeros(len(bodies), dtype=np.bool_)
        is_left[left] = True
        bodies = pc.if_else(pa.array(is_left), pa.scalar(None, pa.binary()), bodies)
    return batch.append_column(BODY_DECODED, bodies)


@cache
def _rate_limit(rate: int) -> RateLimit:
    """One for all splits of this process: each new one would begin with a second's worth of reading."""
    return RateLimit(rate)


def to_timestamps(milliseconds: pa.Array) -> pa.Array:
    """Epoch ms as UTC microseconds; null where 64 bits do not hold them."""
    values = np.asarray(milliseconds)
    fits = (values <= _MAX_MS) & (values >= -_MAX_MS)
    if not fits.all():
        return pa.array(np.where(fits, values, 0) * 1000, pa.int64(), mask=~fits).cast(TIMESTAMP)
    return pa.array(values * 1000).view(TIMESTAMP)


def read_messages(
    split: Split, query: Query, *, fails: bool, way_out: str, counts: ReadCounts | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of a split; damage is passed over, or `fails` with RmqtoolError, which names the `way_out`.

    What is read is added to `counts`.
    """
    reader = SplitReader(split, query, counts=counts, proves_bodies=fails, in_order=fails)
    for event in reader.events():
        if fails and reader.counts.wrong_crc.count:
            offset = reader.counts.wrong_crc.physical_offsets[0]
            raise _damaged(split, offset, "a body with a CRC mismatch", way_out)
        if not isinstance(event, Damage):
            yield reader.to_messages(event)
        elif fails:
            raise _damaged(split, event.physical_offset, REASON_MEANINGS[event.reason], way_out)


def _damaged(split: Split, offset: int, reason: str, way_out: str) -> RmqtoolError:
    message = f"{reason} ({way_out} skips damaged parts)"
    return RmqtoolError(message, file=split.root, offset=offset)
