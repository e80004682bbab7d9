"""The tables of what stands beside the log: queues and their units, groups, topics, index, files, settings, and others.

Each is made when a statement reads it, by the job that shows the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError, failed_reads
from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.paths import entry_path, is_remote, modified_ms
from rmqtool.base.tolerant import ReadErrors
from rmqtool.clients.queue_view import QueueViews
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.index_file import UNIT_SIZE
from rmqtool.inspect.locate import Location, locate
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_files import list_index
from rmqtool.pending.messages import SCHEMA as WAITING
from rmqtool.pending.work import PendingRequest, waiting_messages
from rmqtool.rules.broker_conf import broker_settings
from rmqtool.rules.system_topics import is_system_topic
from rmqtool.scan.windows import constant_strings
from rmqtool.sql.tables import Asked, Part, Stores, Table, of_store, times, whole_part, with_store
from rmqtool.store.consume_queues import Queue, queue_in
from rmqtool.store.index_files import IndexFile
from rmqtool.store.message_reader import TIMESTAMP, to_timestamps
from rmqtool.store.paths import named_by
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import open_units
from rmqtool.verify.log_pass import workers_for
from rmqtool.verify.outcome import outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification

_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_AT_ONCE = 1 << 14  # rows that are Python objects at the same time


def _rows(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Batches of rows that are tuples; times are epoch ms, or None."""
    source = iter(rows)
    while piece := list(islice(source, _AT_ONCE)):
        columns = zip(*piece, strict=True)
        yield pa.RecordBatch.from_arrays([_column(*each) for each in zip(columns, schema, strict=True)], schema=schema)


def _column(values: Sequence[Any], kind: pa.Field) -> pa.Array:
    if kind.type != TIMESTAMP:
        return pa.array(values, kind.type)
    return times(pa.array(values, _LONG))


UNITS = pa.schema(
    [
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("queue_offset", _LONG),
        ("physical_offset", _LONG),
        ("message_size", _INT),
        ("tags_code", _LONG),
        ("batch_size", _INT),
    ]
)


def _units(of: Stores, store: str) -> Iterator[Part]:
    """A part for each queue, of which topic and queue id are known."""
    for queue in of.by_name[store].queues:
        known = (pc.field("topic") == queue.topic) & (pc.field("queue_id") == queue.queue_id)
        size = sum(file.size for file in queue.files.files)
        read = partial(_units_of, store, queue)
        if queue.database:  # a handle stays in this process
            read = partial(_units_in_rocksdb, store, queue.topic, queue.queue_id)
        yield Part(known, size, read)


def _units_in_rocksdb(store: str, topic: str, queue_id: int, of: Stores, asked: Asked) -> Iterator[pa.RecordBatch]:
    if database := of.by_name[store].database:
        yield from _units_of(store, queue_in(database, topic, queue_id), of, asked)


def _units_of(store: str, queue: Queue, of: Stores, asked: Asked) -> Iterator[pa.RecordBatch]:
    snapshot = of.by_name[store]
    with open_units(queue, snapshot.reading) as opened:
        for numbers, units in opened.written(opened.start, opened.data_end):
            of.reading.add(units.nbytes)
            columns = _of_units(queue, numbers, units)
            if of.redaction is not None:
                columns = {name: of.redaction.column(name, column) for name, column in columns.items()}
            yield from asked.of(pa.RecordBatch.from_arrays([columns[name] for name in UNITS.names], schema=UNITS))


def _of_units(queue: Queue, numbers: NDArray[np.int64], units: NDArray[np.void]) -> dict[str, pa.Array]:
    names = units.dtype.names or ()
    if queue.kind == "simple" and "batch_size" not in names:
        is_unit = ~is_pre_blank(units)
        numbers, units = numbers[is_unit], units[is_unit]
    count = len(units)
    queue_ids = pa.array(np.full(count, queue.queue_id), _INT)
    columns = {"topic": constant_strings(queue.topic, count), "queue_id": queue_ids}
    stored = {name: np.ascontiguousarray(units[name]).astype(np.int64) for name in names}
    stored["queue_offset"] = stored.get("base_queue_offset", numbers)
    stored.setdefault("batch_size", np.ones(count, np.int64))
    return columns | {name: pa.array(stored[name]).cast(UNITS.field(name).type) for name in UNITS.names[2:]}


QUEUES = pa.schema(
    [
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("min_offset", _LONG),
        ("max_offset", _LONG),
        ("messages", _LONG),
        ("kind", _TEXT),
    ]
)


def _queues(_: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    for queue in snapshot.queues:
        loaded = snapshot.queue(queue.topic, queue.queue_id)
        if loaded is not None:
            first, end = loaded.range.min_offset, loaded.range.max_offset
            yield queue.topic, queue.queue_id, first, end, max(0, end - max(first, 0)), queue.kind


GROUPS = pa.schema(
    [
        ("group_name", _TEXT),
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("committed", _LONG),
        ("min_offset", _LONG),
        ("max_offset", _LONG),
        ("lag", _LONG),
    ]
)


def _groups(_: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    views = QueueViews.of_snapshot(snapshot)
    for each in snapshot.committed.offsets:
        loaded = views.loaded(each.topic, each.queue_id)
        ends: tuple[int | None, ...] = (None, None, None)
        if loaded is not None:
            end = loaded.range.max_offset + views.of(each.topic, each.queue_id).derived
            lag = None if snapshot.hides_entries else end - each.offset
            ends = loaded.range.min_offset, loaded.range.max_offset, lag
        yield each.group, each.topic, each.queue_id, each.offset, *ends


TOPICS = pa.schema(
    [
        ("topic", _TEXT),
        ("read_queues", _INT),
        ("write_queues", _INT),
        ("perm", _INT),
        ("attributes", pa.map_(_TEXT, _TEXT)),
        ("is_system", _FLAG),
        ("is_configured", _FLAG),
    ]
)


def _topics(_: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    for name in snapshot.topic_names:
        topic, is_system = snapshot.topics.by_name.get(name), is_system_topic(name)
        if topic is None:
            yield name, None, None, None, None, is_system, False
        else:
            attributes = [*topic.attributes.items()]
            yield name, topic.read_queues, topic.write_queues, topic.perm, attributes, is_system, True


INDEX = pa.schema(
    [
        ("file", _TEXT),
        ("unit", _LONG),
        ("slot", _LONG),
        ("key_hash", _LONG),
        ("physical_offset", _LONG),
        ("store_second", TIMESTAMP),
        ("previous_unit", _LONG),
    ]
)


def _index(of: Stores, store: str) -> Iterator[Part]:
    """A part for each index file, of which the name is known."""
    snapshot = of.by_name[store]
    for file in snapshot.index_files:
        name = snapshot.store.relative(file.path)
        yield Part(pc.field("file") == name, file.size, partial(_index_of, store, file))


def _index_of(store: str, file: IndexFile, of: Stores, asked: Asked) -> Iterator[pa.RecordBatch]:
    snapshot = of.by_name[store]
    options = ListingOptions(conf=snapshot.store.conf, reading=snapshot.reading)
    location = locate(file.path, "index", snapshot.store.conf)
    for rows in list_index(location, options) if isinstance(location, Location) else ():
        if "number" not in rows.names:  # of the header
            continue
        batch = rows.batch
        of.reading.add(UNIT_SIZE * batch.num_rows)
        stored = {name: batch.column(name) for name in batch.schema.names}
        seconds = pc.multiply(stored["seconds_since_begin"].cast(_LONG), 1000)
        stored |= {"unit": stored["number"], "previous_unit": stored["previous"]}
        stored["store_second"] = to_timestamps(pc.add(seconds, file.begin_timestamp))
        if of.redaction is not None:
            stored["key_hash"] = of.redaction.column("key_hash", stored["key_hash"])
        columns = [stored[each.name].cast(each.type) for each in INDEX]
        yield from asked.of(pa.RecordBatch.from_arrays(columns, schema=INDEX))


FILES = pa.schema(
    [
        ("path", _TEXT),
        ("kind", _TEXT),
        ("size", _LONG),
        ("start_offset", _LONG),
        ("end_offset", _LONG),
        ("data_end", _LONG),
        ("modified", TIMESTAMP),
        ("is_sparse", _FLAG),
    ]
)
_WITHOUT_OFFSETS = ("config", "index", "text", "rocksdb")


def _files(of: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    """All files below the store, and those of a log elsewhere."""
    root = snapshot.store.root
    outside = [each for each in snapshot.store.log_directories if not each.is_relative_to(root)]
    waiting = [root, *outside]
    while waiting:
        try:
            entries = list_directory(waiting.pop())
        except RmqtoolError as error:
            of.reading.skip(error)
            continue
        for entry in sorted(entries, key=lambda each: each.name):
            path = entry_path(entry)
            if entry.is_dir():
                waiting.append(path)
            elif entry.is_file():
                try:
                    yield _file(snapshot, path)
                except RmqtoolError as error:
                    of.reading.skip(error)


def _file(snapshot: Snapshot, path: Any) -> tuple[Any, ...]:
    """One file; offsets where its name is one, and where its data ends in it, bytes."""
    named = named_by(path, is_directory=False)
    kind = named.kind if named else None
    with InputFile(path, snapshot.reading) as file:
        size, end = file.size, file.data_end()
        is_sparse = None if is_remote(path) else file.stored_size(0, size, size) < size
    start = None if kind in _WITHOUT_OFFSETS else start_offset_of(path.name)
    shown = snapshot.store.relative(path)
    return shown, kind, size, start, None if start is None else start + size, end, modified_ms(path), is_sparse


_RENAMED = {"due_timestamp": "due", "group": "group_name"}
PENDING = pa.schema(
    [
        (_RENAMED.get(each.name, each.name), TIMESTAMP if each.name.endswith("timestamp") else each.type)
        for each in WAITING
    ]
).insert(2, pa.field("overdue", _FLAG))


def _pending(store: str, of: Stores) -> Iterator[pa.RecordBatch]:
    """What waits, as `rmqtool pending --list` has it."""
    snapshot = of.by_name[store]
    errors, now = ReadErrors(), time.time_ns() // 1_000_000
    for rows in waiting_messages(snapshot.within(errors.scope), errors, PendingRequest(now)):
        columns = dict(zip(WAITING.names, rows.columns, strict=True))
        overdue = pc.less(columns["due_timestamp"], now)
        for name in ("due_timestamp", "store_timestamp"):
            columns[name] = times(columns[name])
        if of.redaction is not None:
            columns = {name: of.redaction.column(name, column) for name, column in columns.items()}
        made = [*columns.values()]
        yield pa.RecordBatch.from_arrays([*made[:2], overdue, *made[2:]], schema=PENDING)
    for error in errors.errors:
        of.reading.skip(error)


FINDINGS = pa.schema(
    [
        ("code", _TEXT),
        ("severity", _TEXT),
        ("message", _TEXT),
        ("effect", _TEXT),
        ("remedy", _TEXT),
        ("fault", _TEXT),
        ("file", _TEXT),
        ("file_offset", _LONG),
        ("topic", _TEXT),
        ("queue_id", _INT),
        ("queue_offset", _LONG),
        ("count", _LONG),
    ]
)


def _findings(of: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    """What a whole verify finds."""
    with failed_reads(), workers_for(snapshot.store.root, 1) as pool:
        verification = Verification(snapshot.store, VerifyRequest(version=snapshot.version))
        verification.run(of.reading.add, pool)
    for each in outcome_of(verification).findings:
        yield (each.code, each.severity, each.message, each.effect, each.remedy, each.fault, each.file, each.offset,
               each.topic, each.queue_id, each.queue_offset, each.count)  # fmt: skip


SETTINGS = pa.schema([("name", _TEXT), ("value", _TEXT), ("source", _TEXT), ("default", _TEXT)])


def _settings(_: Stores, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    """The settings of the release whose rules count, and those of broker.conf that it does not know."""
    known = {name: each.shown_default(snapshot.release) for name, each in broker_settings().items()
             if each.default(snapshot.release) is not None}  # fmt: skip
    given = snapshot.store.conf.settings
    for name in sorted({*known, *given}):
        is_given = name in given
        yield name, given.get(name, known.get(name)), "broker.conf" if is_given else "default", known.get(name)


def store_tables(of: Stores) -> list[Table]:
    """All tables of this module."""
    return [
        _of_parts("units", UNITS, of, _units),
        _of_rows("queues", QUEUES, of, _queues),
        _of_rows("groups", GROUPS, of, _groups),
        _of_rows("topics", TOPICS, of, _topics),
        _of_parts("index", INDEX, of, _index),
        _of_rows("files", FILES, of, _files),
        _of_parts("pending", PENDING, of, lambda _, store: [whole_part(partial(_pending, store))]),
        _of_rows("findings", FINDINGS, of, _findings),
        _of_rows("settings", SETTINGS, of, _settings),
    ]


_MadeRows: TypeAlias = Callable[[Stores, Snapshot], Iterator[tuple[Any, ...]]]


def _of_rows(name: str, schema: pa.Schema, of: Stores, rows: _MadeRows) -> Table:
    """A table of few rows, which are tuples."""
    return _of_parts(name, schema, of, lambda _, store: [whole_part(partial(_rows_of, schema, rows, store))])


def _rows_of(schema: pa.Schema, rows: _MadeRows, store: str, of: Stores) -> Iterator[pa.RecordBatch]:
    return _rows(schema, rows(of, of.by_name[store]))


def _of_parts(name: str, schema: pa.Schema, of: Stores, parts: Callable[[Stores, str], Iterable[Part]]) -> Table:
    """A table whose parts are those of all stores."""
    if not of.with_store:
        return Table(name, schema, lambda: [part for store in of.by_name for part in parts(of, store)], of)

    def every() -> Iterator[Part]:
        for store in of.by_name:
            yield from (of_store(part, store, schema.names[0]) for part in parts(of, store))

    return Table(name, with_store(schema), every, of)
