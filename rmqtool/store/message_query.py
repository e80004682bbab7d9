"""Which messages of a log, and which of their columns: what an export, Spark and Python programs ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from rmqtool.base.decoding import Decoder
from rmqtool.base.errors import UsageError
from rmqtool.formats.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqtool.scan.columns import DICTIONARY_STRING, MESSAGE_WISHES, is_wished, message_schema
from rmqtool.scan.decoding import BODY_DECODED, DECODED_COLUMNS
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.scan.redaction import Redaction

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

WISHED_COLUMNS = (*MESSAGE_WISHES, *FILE_COLUMNS, STORE_COLUMN)
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
    `decoder` makes DECODED_COLUMNS, and is there where they are read.
    """

    columns: tuple[str, ...] = EXPORT_COLUMNS
    body: BodyChoice = "decompressed"
    filters: Filters = field(default_factory=Filters)
    include: tuple[str, ...] = ()
    bytes_per_second: int | None = None
    epoch_ms: bool = False
    redaction: Redaction | None = None
    decoder: Decoder | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return pa.schema([_field(name, epoch_ms=self.epoch_ms) for name in self.columns])

    @cached_property
    def dictionary_schema(self) -> pa.Schema:
        """The Arrow schema of the columns, with dictionaries where there are few distinct strings."""
        fields = [_field(name, epoch_ms=self.epoch_ms, dictionary_encoded=True) for name in self.columns]
        return pa.schema(fields)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns of a scan that the columns are made from."""
        made_from = dict.fromkeys(FILE_COLUMNS, "physical_offset") | dict.fromkeys(DECODED_COLUMNS, "body")
        if self.body == "stored":
            made_from["body"] = "stored_body"
        return tuple(dict.fromkeys(made_from.get(name, name) for name in self.columns if name != STORE_COLUMN))


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
    wanted = [(usual if name == "*" else (name,)) for name in (("*",) if columns is None else columns)]
    names = tuple(dict.fromkeys(name for group in wanted for name in group))
    _check_decoded(names, decoder)
    for name in names:
        if name not in DECODED_COLUMNS:
            require_column(name)
    if body == "none":
        names = tuple(name for name in names if name != "body")
    if with_store and STORE_COLUMN not in names:
        names += (STORE_COLUMN,)
    if not names:
        raise UsageError("no column is left")
    include = tuple(sorted({*include, *(_INCLUDED_BY[each] for each in filters.transactions if each in _INCLUDED_BY)}))
    return Query(names, body, filters, include, epoch_ms=epoch_ms, redaction=redaction, decoder=decoder)


def _check_decoded(names: Sequence[str], decoder: Decoder | None) -> None:
    """Raise UsageError for columns of a decoder without one, and for a decoder without a column."""
    decoded = [name for name in names if name in DECODED_COLUMNS]
    if decoded and decoder is None:
        raise UsageError(f"the column {decoded[0]} is what a decoder makes", hint="--decoder COMMAND makes it")
    if decoder is not None and not decoded:
        raise UsageError(
            f"--decoder: --columns leaves out what it makes: {' and '.join(DECODED_COLUMNS)}",
            hint=f"such as: --columns '*,{DECODED_COLUMNS[1]}'",
        )


def require_column(name: str) -> None:
    """Raise UsageError for a column that there is not."""
    if not (name in (*EXPORT_COLUMNS, *FILE_COLUMNS, STORE_COLUMN) or is_wished(name)):
        hint = f"columns: {', '.join((*EXPORT_COLUMNS, *WISHED_COLUMNS))}"
        raise UsageError(f"no column is named {name!r}", hint=hint)


def _field(name: str, *, epoch_ms: bool, dictionary_encoded: bool = False) -> pa.Field:
    if name == STORE_COLUMN:
        return pa.field(name, DICTIONARY_STRING if dictionary_encoded else pa.string(), nullable=False)
    if name in _TIMESTAMPS and not epoch_ms:
        return pa.field(name, TIMESTAMP)
    if name in DECODED_COLUMNS:
        return pa.field(name, pa.string())
    if name in FILE_COLUMNS:
        text = DICTIONARY_STRING if dictionary_encoded else pa.string()
        return pa.field(name, text if name == "file" else pa.int64(), nullable=False)
    return message_schema((name,), dictionary_encoded=dictionary_encoded).field(0)
