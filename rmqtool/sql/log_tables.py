"""The tables that are read from commit logs: messages, their keys, and what clients trace.

A split of the log is a part. Of its records those columns are read first that the conditions are about, and the others
only of records for which these are true: no body is decompressed for a row that nobody gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import ReadPolicy
from rmqtool.formats.message_trace import TraceRecord, decode_trace
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import KeyQuery, indexed_offsets, indexed_range
from rmqtool.rules.system_topics import TRACE_PREFIX, TRACE_TOPIC
from rmqtool.scan.block import REASON_MEANINGS, Damage
from rmqtool.scan.columns import BODY_TEXT
from rmqtool.scan.filters import ANY, Filters
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.reader import scan_block, scan_files
from rmqtool.sql.tables import (
    ANYTHING,
    Asked,
    Damaged,
    Expression,
    Part,
    Reading,
    Stores,
    Table,
    implied,
    possible,
    times,
)
from rmqtool.store.message_reader import (
    EXPORT_COLUMNS,
    FILE_COLUMNS,
    PLACE_COLUMN,
    STORE_COLUMN,
    TIMESTAMP,
    BodyProblems,
    Query,
    SplitReader,
    to_timestamps,
)
from rmqtool.store.other_logs import other_sources
from rmqtool.store.splits import SPLIT_SIZE, Place, Source, Split, find_source, split_source
from rmqtool.store.store import NamedStore

MESSAGE_COLUMNS = (
    "physical_offset", *(name for name in EXPORT_COLUMNS if name != "physical_offset"), BODY_TEXT, *FILE_COLUMNS,
    PLACE_COLUMN,
)  # fmt: skip
"""The columns of `messages`: those of an export, the body as text, and the place in a file, and of which log."""

_ROW = "\0row"  # no column has such a name
_PIECES = 16  # that a range of offsets is cut into, to see where a condition may be true
_LEAST_RANGE = 1 << 20  # bytes; a smaller one takes no time to read
_MOST_SPLITS = 1000
_EVERY = 1 << 30  # entries of an index


@dataclass(frozen=True, eq=False)
class _Condition(Filters):
    """A condition of a statement as a filter on records; `reader`, a SplitReader, makes the columns it is about."""

    condition: Expression = None
    reader: Any = None

    def select(self, frames: RecordRun) -> RecordRun | None:
        """The records of a run for which it is true."""
        chosen = super().select(frames)
        if chosen is None or self.reader is None:
            return chosen
        rows, first = [], 0
        for batch in self.reader.messages_of(chosen):
            numbers = pa.array(np.arange(first, first + batch.num_rows))
            table = pa.Table.from_batches([batch]).append_column(_ROW, numbers)
            rows.append(table.filter(self.condition).column(_ROW).to_numpy())
            first += batch.num_rows
        kept = np.sort(np.concatenate(rows))
        if len(kept) == len(chosen):
            return chosen
        return sound_prefix(chosen.block, chosen.positions[kept]) if len(kept) else None


def messages(of: Stores) -> Table:
    """All messages of commit logs that consumers may see, with the columns of an export."""
    schema = _message_schema(of)
    find = partial(_by_key, "unique_key", of, schema, _messages)
    return Table("messages", schema, partial(_parts, of, schema, _messages), of, find)


def other_messages(of: Stores, place: Place) -> Table:
    """The messages that only a tier, or only compacted logs have; their physical offsets are of logs of their own."""
    schema = _message_schema(of)
    return Table(place, schema, partial(_parts, of, schema, _messages, place), of)


def _message_schema(of: Stores) -> pa.Schema:
    typed = tuple(column.name for column in of.query.typed)
    names = (*MESSAGE_COLUMNS, *typed, *((STORE_COLUMN,) if of.with_store else ()))
    return replace(of.query, columns=names).schema


def _messages(split: Split, of: Stores, asked: Asked) -> Iterator[pa.RecordBatch]:
    filters: Filters = of.query.filters
    reader = None
    if asked.condition is not None:
        compared = _with_columns(of.query, asked.compared or ("physical_offset",))
        reader = SplitReader(split, compared, proves_bodies=False)
        filters = _Condition(**vars(filters), condition=asked.condition, reader=reader)
    yield from _read(of, split, replace(_with_columns(of.query, asked.columns), filters=filters), reader)


def _with_columns(query: Query, names: tuple[str, ...]) -> Query:
    """The query of these columns, those with a type among them."""
    return replace(query, columns=names, typed=tuple(each for each in query.typed if each.name in names))


def _read(of: Stores, split: Split, query: Query, compared: SplitReader | None = None) -> Iterator[pa.RecordBatch]:
    """The messages of a split; damage is counted, or raised where it is not passed over.

    Of the columns that a condition is about, which `compared` reads, all values are counted that do not fit their type.
    """
    reader, done = SplitReader(split, query), 0
    counts = reader.counts
    with closing(reader.events()) as events:
        for event in events:
            of.reading.add(counts.bytes - done)
            done = counts.bytes
            if isinstance(event, Damage):
                _add_damage(of.reading, split, event)
            else:
                yield reader.to_messages(event)
    of.reading.add(split.size - done)
    for name, unfit in {**counts.unfit, **(compared.counts.unfit if compared else {})}.items():
        of.reading.add_unfit(name, f"{split.root} at offset {unfit.physical_offsets[0]}", unfit.count)
    bodies: tuple[tuple[Damaged, BodyProblems], ...]
    bodies = ("crc", counts.wrong_crc), ("compressed", counts.not_decompressed)
    for what, problems in bodies:
        if problems.count:
            offset = problems.physical_offsets[0]
            of.reading.add_damage(what, f"{split.root} at offset {offset}", problems.count)
            if of.reading.fails:
                why = "has a CRC mismatch" if what == "crc" else "cannot be decompressed"
                raise RmqtoolError(f"a body {why}", file=split.root, offset=offset)


def _add_damage(reading: Reading, split: Split, damage: Damage) -> None:
    if reading.fails:
        raise RmqtoolError(REASON_MEANINGS[damage.reason], file=split.root, offset=damage.physical_offset)
    reading.add_damage("extent", f"{split.root} at offset {damage.physical_offset}")


_Read: TypeAlias = Callable[[Split, Stores, Asked], Iterator[pa.RecordBatch]]


def _parts(of: Stores, schema: pa.Schema, read: _Read, place: Place = "local") -> list[Part]:
    """The splits of all logs of a place as parts of a table."""
    sources = [*_sources(of, place)]
    size = max(of.split_size or SPLIT_SIZE, sum(source.stop - source.start for source in sources) // _MOST_SPLITS)
    splits = [[*split_source(source, size)] for source in sources]
    return [
        _part(split, schema, read, known)
        for of_one in splits
        for split, known in zip(of_one, _known(of, schema, of_one, place), strict=True)
    ]


def _sources(of: Stores, place: Place) -> Iterator[Source]:
    filters = of.query.filters
    for name, snapshot in of.by_name.items():
        named = NamedStore(name, snapshot.store)
        if place == "local":
            yield find_source(named, filters.start, filters.stop)
        else:
            yield from (each for each in other_sources(named, filters) if each.other and each.other.place == place)


def _by_key(column: str, of: Stores, schema: pa.Schema, read: _Read, condition: Expression) -> list[Part] | None:
    """The records to which an index leads that is trusted, a part for each; None where not only keys are asked for.

    What lies before and after all that it has is read.
    """
    if "index" not in of.trusts or of.redaction is not None or column not in schema.names:
        return None
    keys = implied(column, of.reading.texts, schema, condition)
    if keys is None:
        return None
    of.reading.trusted.add("index")
    parts = []
    for name, snapshot in of.by_name.items():
        source = find_source(NamedStore(name, snapshot.store), of.query.filters.start, of.query.filters.stop)
        notes, topics = Notes(), [*snapshot.topic_names]
        if "topic" in schema.names:
            left = possible([pc.field("topic") == each for each in topics], schema, condition)
            topics = [topics[number] for number in left]
        queries = (KeyQuery(key, topics=topics, limit=_EVERY) for key in keys if topics)
        offsets = {each for query in queries for each in indexed_offsets(snapshot, query, notes)}
        first, last = (min(max(each, source.start), source.stop) for each in indexed_range(snapshot))
        alone = [(offset, offset + 1) for offset in sorted(offsets) if first <= offset < last]
        for start, stop in ((source.start, first), *alone, (max(first, last), source.stop)):
            splits = split_source(replace(source, start=start, stop=stop)) if start < stop else ()
            parts += [_part(split, schema, read, ANYTHING) for split in splits]
    return parts


def _known(of: Stores, schema: pa.Schema, splits: Sequence[Split], place: Place) -> list[Expression]:
    """What is known of the rows of each split of one log beside their offsets."""
    known = [_known_of(split, schema, place) for split in splits]
    if place == "local" and "clock" in of.trusts and "store_timestamp" in schema.names:
        times = [*map(_first_time, splits), None]
        known = [each & _between(*ends) for each, ends in zip(known, pairwise(times), strict=True)]
    return known


def _known_of(split: Split, schema: pa.Schema, place: Place) -> Expression:
    values: dict[str, Any] = {STORE_COLUMN: split.store, PLACE_COLUMN: place}
    if split.other:
        values |= {"topic": split.other.topic, "queue_id": split.other.queue_id}
    known = ANYTHING
    for name in values.keys() & {*schema.names}:
        known &= pc.field(name) == values[name]
    return known


def _first_time(split: Split) -> int | None:
    """When the first record of a split was stored, epoch ms; None without one."""
    reading = ReadPolicy(drop_page_cache=split.live)
    events = scan_files(split.files, split.start, split.stop, reading, 1, block=scan_block())
    first = next((event for event in events if isinstance(event, RecordRun)), None)
    return None if first is None else int(first.headers.field("store_timestamp")[0])


def _between(first: int | None, last: int | None) -> Expression:
    """That rows were stored at these times or between them, epoch ms."""
    known, time = ANYTHING, pc.field("store_timestamp")
    for moment, compare in ((first, pc.greater_equal), (last, pc.less_equal)):
        if moment is not None:
            known &= compare(time, to_timestamps(pa.array([moment]))[0])
    return known


def _part(split: Split, schema: pa.Schema, read: _Read, known: Expression) -> Part:
    guarantee = known & _in_range(split.start, split.stop)
    return Part(guarantee, split.size, partial(read, split), partial(_narrowed_part, split, schema, read, known))


def _narrowed_part(split: Split, schema: pa.Schema, read: _Read, known: Expression, condition: Expression) -> Part:
    start, stop = _narrowed(split.start, split.stop, schema, condition)
    return _part(replace(split, start=start, stop=stop), schema, read, known)


def _in_range(start: int, stop: int) -> Expression:
    offset = pc.field("physical_offset")
    return (offset >= start) & (offset < stop)


def _narrowed(start: int, stop: int, schema: pa.Schema, condition: Expression) -> tuple[int, int]:
    """The part of a range of physical offsets outside of which a condition is true nowhere."""
    while stop - start > _LEAST_RANGE:
        bounds = [start + (stop - start) * piece // _PIECES for piece in range(_PIECES + 1)]
        left = possible([_in_range(*ends) for ends in pairwise(bounds)], schema, condition)
        if not left:
            return start, start
        if len(left) == _PIECES or (start, stop) == (bounds[left[0]], bounds[left[-1] + 1]):
            break
        start, stop = bounds[left[0]], bounds[left[-1] + 1]
    return start, stop


KEYS = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("key", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("store_timestamp", TIMESTAMP),
    ]
)
"""The columns of `keys`, a row for each key of a message; `kind` is ``unique`` or ``key``."""


def keys(of: Stores) -> Table:
    """The keys by which messages are found: the unique key, and each of KEYS."""
    columns = ("physical_offset", "unique_key", "keys", "topic", "store_timestamp")
    return _derived("keys", KEYS, of, _keys_of, _with_columns(of.query, columns))


_RowsOf: TypeAlias = Callable[[Stores, pa.RecordBatch], dict[str, Any]]


def _derived(
    name: str,
    schema: pa.Schema,
    of: Stores,
    rows_of: _RowsOf,
    query: Query,
) -> Table:
    """A table whose rows are made of messages, as the `query` gives them."""
    several = (STORE_COLUMN,) if of.with_store else ()
    schema = pa.schema([*schema, *(pa.field(each, pa.string()) for each in several)])
    query = _with_columns(query, (*query.columns, *several))
    read = partial(_made_rows, schema, rows_of, query)
    return Table(name, schema, partial(_parts, of, schema, read), of, partial(_by_key, "key", of, schema, read))


def _made_rows(
    schema: pa.Schema, rows_of: _RowsOf, query: Query, split: Split, of: Stores, asked: Asked
) -> Iterator[pa.RecordBatch]:
    for batch in _read(of, split, query):
        made = rows_of(of, batch)
        rows = made.pop(_ROW)
        for each in (STORE_COLUMN,) if of.with_store else ():
            made[each] = batch.column(each).take(rows)
        yield from asked.of(pa.RecordBatch.from_arrays([made[each.name] for each in schema], schema=schema))


def _keys_of(_: Stores, batch: pa.RecordBatch) -> dict[str, Any]:
    """The keys of messages: of each message the unique key comes first."""
    unique, lists = batch.column("unique_key"), batch.column("keys")
    with_unique = np.flatnonzero(np.asarray(unique.is_valid()))
    with_keys = np.asarray(pc.list_parent_indices(lists))
    rows = np.concatenate([with_unique, with_keys])
    order = np.argsort(rows, kind="stable")
    kinds = np.repeat(np.array(["unique", "key"]), [len(with_unique), len(with_keys)])
    texts = pa.concat_arrays([unique.drop_null(), lists.flatten()])
    taken = pa.array(rows[order])
    return {
        _ROW: taken,
        "physical_offset": batch.column("physical_offset").take(taken),
        "key": texts.take(pa.array(order)),
        "kind": pa.array(kinds[order], pa.string()),
        "topic": batch.column("topic").take(taken),
        "store_timestamp": batch.column("store_timestamp").take(taken),
    }


TRACE = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("type", pa.string()),
        ("message_id", pa.string()),
        ("timestamp", TIMESTAMP),
        ("group_name", pa.string()),
        ("topic", pa.string()),
        ("request_id", pa.string()),
        ("retry_times", pa.int32()),
        ("cost", pa.int64()),
        ("success", pa.bool_()),
        ("state", pa.string()),
        ("from_check", pa.bool_()),
        ("client_host", pa.string()),
    ]
)
"""The columns of `trace`, a row for each message id of a record in a trace message at `physical_offset`."""

_OF_RECORD = {"group_name": "group"}


def trace(of: Stores) -> Table:
    """What clients said of messages: who sent and who consumed them."""
    plain = replace(of.query, redaction=None)  # bodies are decoded, and their fields redacted
    filters = replace(plain.filters, topics=_trace_topics(of))
    query = replace(_with_columns(plain, ("physical_offset", "body")), filters=filters)
    return _derived("trace", TRACE, of, _traces_of, query)


def _traces_of(of: Stores, batch: pa.RecordBatch) -> dict[str, Any]:
    found: list[tuple[int, TraceRecord, str]] = []
    for row, body in enumerate(batch.column("body").to_pylist()):
        decoded = decode_trace(body)
        if decoded.unreadable:
            place = f"the trace message at offset {batch.column('physical_offset')[row]}"
            of.reading.add_damage("trace", place, decoded.unreadable)
        found += [(row, record, each) for record in decoded.records for each in record.message_ids]
    rows = pa.array([row for row, *_ in found], pa.int64())
    columns = {_ROW: rows, "physical_offset": batch.column("physical_offset").take(rows)}
    columns["message_id"] = pa.array([each for *_, each in found], pa.string())
    for each in TRACE:
        if each.name not in columns:
            values = [getattr(record, _OF_RECORD.get(each.name, each.name)) for _, record, _ in found]
            is_time = each.type == TIMESTAMP
            column = pa.array(values, pa.int64() if is_time else each.type)
            columns[each.name] = times(column) if is_time else column
    if of.redaction is not None:
        for name in ("message_id", "client_host"):
            columns[name] = of.redaction.column(name, columns[name])
    return columns


def _trace_topics(of: Stores) -> tuple[str, ...]:
    """The topics of trace messages: as usual, as configured, and those of a cloud's regions."""
    configured = [snapshot.store.conf.text("msgTraceTopicName") for snapshot in of.by_name.values()]
    return tuple({TRACE_TOPIC, f"{TRACE_PREFIX}{ANY}", *filter(None, configured)})
