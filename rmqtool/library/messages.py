"""Messages of a store that pass filters: one by one, as record batches, as a table."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.findings.finding import counted
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.library.checked import checked
from rmqtool.library.notebook import facts_table, rows_table
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import By, Lookup
from rmqtool.scan.filters import Filters
from rmqtool.store.message_reader import EXPORT_COLUMNS, PLACE_COLUMN, Query, ReadCounts, make_query, read_messages
from rmqtool.store.missing import unknown_topic
from rmqtool.store.other_logs import other_sources
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import Place, find_source, split_source
from rmqtool.store.store import NamedStore

_AT_ONCE = 1000  # messages that are Python objects at the same time
_WAY_OUT = "on_damage='skip'"


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One message; the fields are the columns of an export, times are aware and in UTC.

    `place` is where it lies: of a tiered or compacted one the physical offset is one in a log of its queue.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_size: int
    message_id: str | None
    unique_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    properties: Mapping[str, str]
    born_timestamp: datetime
    store_timestamp: datetime
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    reconsume_times: int
    body_crc: int
    transaction: str
    compression: str | None
    prepared_transaction_offset: int
    body_size: int
    body: bytes | None
    place: Place = "local"

    def __repr__(self) -> str:
        """Where it is and how it is found; of a long body the beginning."""
        shown = {name: getattr(self, name) for name in _SHOWN}
        body = "None" if self.body is None else repr(self.body[:_BODY]) + ("..." if len(self.body) > _BODY else "")
        facts = ", ".join(f"{name}={value!r}" for name, value in shown.items() if value not in (None, ()))
        return f"Message({facts}, store_timestamp={self.store_timestamp.isoformat()!r}, body={body})"

    def _repr_html_(self) -> str:
        """All fields in a notebook."""
        return facts_table("Message", {name: getattr(self, name) for name in _FIELDS})


class Messages:
    """Messages that pass filters, in the order of the log; those that only a tier or compacted logs have come first.

    Each iteration reads the log as it is then.

    Memory is that of a few batches, whatever the size of the log. Damage raises RmqtoolError, or is passed over.
    """

    def __init__(self, store: NamedStore, query: Query, snapshot: Snapshot, *, skips_damage: bool) -> None:
        self._store = store
        self._snapshot = snapshot
        self._query = query
        self._skips_damage = skips_damage

    def __repr__(self) -> str:
        """The filters; nothing is read."""
        given = [f"{each.name}={value!r}" for each in fields(Filters)
                 if (value := getattr(self._query.filters, each.name)) != getattr(Filters(), each.name)]  # fmt: skip
        given += [f"include={tuple(self._query.include)!r}"] if self._query.include else []
        return f"Messages({', '.join([repr(str(self._snapshot.store.root)), *given])})"

    def _repr_html_(self) -> str:
        """The first of them in a notebook, of a first part of the log: a notebook waits for no large log."""
        shown, note, filters = list[Message](), "", self._query.filters
        start = max(filters.from_offset, self._snapshot.log_min_offset)
        end = min(start + _PREVIEW_BYTES, MAX_OFFSET if filters.to_offset is None else filters.to_offset)
        query = replace(self._query, filters=replace(filters, to_offset=end))
        first = Messages(self._store, query, self._snapshot, skips_damage=self._skips_damage)
        try:
            shown += islice(first, _PREVIEW + 1)
        except RmqtoolError as error:
            note = f"reading ended: {error}"
        if len(shown) > _PREVIEW:
            note = f"the first {_PREVIEW} of them"
        elif not note and end < self._snapshot.log_range.max_offset and end != filters.to_offset:
            note = f"{counted(len(shown), 'message')} up to physical offset {end}; count() reads all"
        return _table(repr(self), shown[:_PREVIEW], note or ("" if shown else "no message matches"))

    def __iter__(self) -> Iterator[Message]:
        for batch in self._batches(replace(self._query, columns=(*EXPORT_COLUMNS, PLACE_COLUMN))):
            for start in range(0, batch.num_rows, _AT_ONCE):
                for row in batch.slice(start, _AT_ONCE).to_pylist():
                    row["keys"], row["properties"] = tuple(row["keys"] or ()), dict(row["properties"] or ())
                    yield Message(*(row.get(name) for name in _FIELDS))

    def first(self) -> Message | None:
        """The first one, None where there is none."""
        return next(iter(self), None)

    def count(self) -> int:
        """How many there are; bodies are not read."""
        return sum(batch.num_rows for batch in self.batches(("physical_offset",)))

    @checked()
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The messages as Arrow record batches with these columns, by default those of an export.

        Raises UsageError for a column that there is not.
        """
        query = make_query(columns, self._query.body, self._query.filters, self._query.include)
        return self._batches(query)

    @checked()
    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All of them as an Arrow table, in memory."""
        query = make_query(columns, self._query.body, self._query.filters, self._query.include)
        return pa.Table.from_batches(self._batches(query), schema=query.schema)

    @checked()
    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a `pandas.DataFrame`, in memory; needs pandas."""
        return self.to_arrow(columns).to_pandas()

    @checked()
    def to_polars(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a `polars.DataFrame`, in memory; needs polars."""
        import polars

        return polars.from_arrow(self.to_arrow(columns))

    def _batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        source = find_source(self._store, query.filters.start, query.filters.stop)
        others = other_sources(self._store, query.filters)
        rows, counts = 0, ReadCounts()
        for split in chain.from_iterable(map(split_source, (*others, source))):
            for batch in read_messages(split, query, fails=not self._skips_damage, way_out=_WAY_OUT, counts=counts):
                rows += batch.num_rows
                yield batch
        for name, unfit in counts.unfit.items():
            first = unfit.physical_offsets[0]
            values = counted(unfit.count, "value")
            text = f"{name}: {values} of another type, and null; the first at offset {first}"
            warnings.warn(text, stacklevel=2)
        # The log may have a topic that neither queues nor config name: only after reading is it a slip of the pen.
        for topic in query.filters.topics if not rows else ():
            warn_of_unknown(self._snapshot, topic)


def warn_of_unknown(snapshot: Snapshot, topic: str) -> None:
    """Warn of a topic that there is not, with the nearest names: each time, whatever cell of a notebook runs again."""
    if unknown := unknown_topic(snapshot, topic):
        warnings.warn_explicit(unknown, UserWarning, "rmqtool", 1, "rmqtool", registry={})


_FIELDS = tuple(field.name for field in fields(Message))


_SHOWN = ("topic", "queue_id", "queue_offset", "physical_offset", "unique_key", "keys", "tags")
_BODY = 60  # bytes of a body that are shown
_PREVIEW = 10  # messages that a notebook shows ...
_PREVIEW_BYTES = 64 << 20  # ... of so much of the log


def _table(title: str, messages: Iterable[Message], note: str = "") -> str:
    columns = (*_SHOWN, "store_timestamp", "body")
    rows = ([", ".join(value) if type(value := getattr(each, name)) is tuple else value for name in columns]
            for each in messages)  # fmt: skip
    return rows_table(title, columns, rows, note)


_BY: dict[str, By] = {
    "key": "key",
    "unique_key": "unique-key",
    "message_id": "msg-id",
    "offset": "offset",
    "queue_offset": "queue-offset",
    "body_contains": "scan",
}
_CHOOSING = ("key", "unique_key", "body_contains")


class Found(list[Message]):
    """Messages in the order of the log. `notes` say why there are none, or what there is beside them.

    `may_be_more`: whether damage was met that may hide more of them.
    """

    def __init__(self, messages: Iterable[Message], notes: Notes) -> None:
        super().__init__(messages)
        self.notes = tuple(notes.lines)
        self.may_be_more = notes.lossy

    def _repr_html_(self) -> str:
        """The first of them in a notebook, and the notes."""
        more = [f"{len(self) - _PREVIEW} more"] if len(self) > _PREVIEW else []
        return _table(counted(len(self), "message"), self[:_PREVIEW], "; ".join([*more, *self.notes]))


def lookup_of(wanted: Mapping[str, Any], filters: Filters, limit: int | None) -> Lookup:
    """The question for the one of `wanted` that is not None; raises UsageError for several, and for a wrong choice."""
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        *others, last = _BY
        raise UsageError(f"find one of {', '.join(others)} and {last}")
    [name] = given
    value = wanted[name]
    if name not in _CHOOSING and (filters != Filters() or limit is not None):
        raise UsageError(f"{name} names one message: it cannot be combined with topic, time or limit")
    lookup = Lookup(_BY[name], filters=filters, limit=limit)
    match name:
        case "key":
            return replace(lookup, filters=replace(filters, keys=(value,)))
        case "offset":
            return replace(lookup, number=value)
        case "queue_offset":
            return replace(lookup, queue=(value[0], value[1]), number=value[2])
        case "body_contains":
            return replace(lookup, body_contains=value)
        case _:
            return replace(lookup, text=value.strip())
