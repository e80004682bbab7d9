"""Every kind of file: how it is listed, which filters it has, and the columns of a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.compute as pc
from construct import Struct

from rmqtool.base.errors import EndingError, RmqtoolError, UnreadableError
from rmqtool.base.files import read_all
from rmqtool.base.paths import is_remote
from rmqtool.base.times import rfc3339, with_times
from rmqtool.formats import rocksdb_rows as rows
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, TIMER_CHECK_DTYPE, Checkpoint, TimerCheck
from rmqtool.formats.consume_queue import BatchConsumeQueueUnit, ConsumeQueueExtUnit, ConsumeQueueUnit
from rmqtool.formats.dledger import DLedgerIndexUnit
from rmqtool.formats.index_file import IndexUnit
from rmqtool.formats.java import decode_text
from rmqtool.formats.message import MessageUnit
from rmqtool.formats.rocksdb_rows import config_entry
from rmqtool.formats.timer_wheel import TimerLogUnit, TimerSlot
from rmqtool.inspect.commit_log import RAFT_COLUMNS, list_compaction, list_dledger_index, list_entries, list_log
from rmqtool.inspect.locate import Location, require_kind
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_files import (
    HASHED,
    HEADER_COLUMNS,
    count_units,
    is_hashed,
    list_batch_queues,
    list_ext,
    list_index,
    list_queues,
    list_slots,
    list_timer_log,
    list_wheel,
)
from rmqtool.scan.filters import FILTER_NAMES, Filters
from rmqtool.scan.message_rows import BODY_COLUMNS, MESSAGE_FIELDS, MessageShape
from rmqtool.scan.rows import Rows, one_row
from rmqtool.store.config_json import parse_fastjson, read_config_file
from rmqtool.store.lock import lock_holder
from rmqtool.store.paths import Kind
from rmqtool.store.rocksdb import RocksDb

_QUEUES = {"default": rows.queue_unit, "offset": rows.queue_bound}
_DATABASES: Mapping[str, Mapping[str, rows.Decoder]] = {
    "consumequeue": _QUEUES,
    "consumequeue_rocksdb": _QUEUES,
    "rocksdbstore": {"default": rows.index_entry, "timer": rows.timer_entry, "trans": rows.transaction_entry},
    "kvStore": {"popState": rows.pop_entry},
    "rdb": {"default": config_entry},
}
"""The families of each directory; those of the other ones, in `config/`, hold names with JSON."""
_SECRET = ("users", "acls")
"""Databases of passwords, and of who may do what."""
_OF_USERS = {"userType": ("Super", "Normal"), "userStatus": ("enable", "disable")}
"""What is shown of a user, by the names of codes from 1 on (`UserType`, `UserStatus`)."""
_PASSWORD = b'"password"'
_HIDDEN = "(not shown)"


def list_rocksdb(location: Location, options: ListingOptions) -> Iterator[dict[str, Any]]:
    """The rows of all families, in the order of their keys; of topics only units of their queues are read."""
    file, filters = location.relative(location.path), options.filters
    with RocksDb(location.path) as database:
        families = _families(location.path.name, database.families)
        for family in database.families:
            for prefix in _prefixes(families.get(family), filters):
                try:
                    for key, value in database.rows(family, prefix):
                        row = _row(families.get(family, rows.json_entry), key, value)
                        if _passes(row, filters):
                            yield {"kind": row.pop("kind"), "file": file, "family": family, **row}
                except UnreadableError as error:  # noqa: PERF203
                    yield {"kind": "rocksdb_problem", "file": file, "family": family, "message": error.message}


def _families(name: str, found: tuple[str, ...]) -> Mapping[str, rows.Decoder]:
    """The families of a database by its directory's name; a copy elsewhere shows by them what it is."""
    if name in _SECRET:
        return dict.fromkeys(found, _secret)
    like = next((each for each in _DATABASES.values() if len(each) > 1 and each.keys() <= set(found)), {})
    return _DATABASES.get(name, like)


def _prefixes(decode: rows.Decoder | None, filters: Filters) -> Iterator[bytes]:
    names = filters.topic_choice.names
    if decode is not rows.queue_unit or names is None:
        yield b""
        return
    for topic in names:
        for queue_id in filters.queue_ids or (None,):
            yield rows.queue_prefix(topic.encode(), queue_id)


def _row(decode: rows.Decoder, key: bytes, value: bytes) -> dict[str, Any]:
    """A row as its JSON object; one that cannot be decoded in hex, with the reason.

    A user's row is hidden in a copy under another name, too: a password shows what it is.
    """
    if _PASSWORD in value.lower():
        decode = _secret
    try:
        row = decode(key, value)
        content = row.fields if row.json is None else parse_fastjson(row.json)
    except ValueError as error:
        return {"kind": "bad_row", "key": key.hex(), "value": value.hex(), "message": str(error)}
    return {"kind": "rocksdb_row", "row": row.kind, "key": row.key, "value": content}


def _secret(key: bytes, value: bytes) -> rows.Row:
    """A row of a user or of a user's rights: of a user the type and the status, and never anything else."""
    row = rows.json_entry(key, value)
    try:
        content = parse_fastjson(row.json or "")
    except ValueError:
        content = {}
    shown = {
        field: name
        for field, names in _OF_USERS.items()
        for code, name in enumerate(names, 1)
        if content.get(field) in (code, name, name.upper())
    }
    return rows.Row("secret", row.key, {**shown, "password" if shown else "value": _HIDDEN})


def _passes(row: dict[str, Any], filters: Filters) -> bool:
    """Whether a row is of the topics and queues; one that is of none passes only without a filter."""
    if not filters.topic_choice and not filters.queue_ids:
        return True
    key = row["key"]
    if isinstance(key, str):
        return False
    topic = key.get("topic", key.get("name", "").partition("@")[0])
    return topic in filters.topic_choice and (not filters.queue_ids or key.get("queue_id") in filters.queue_ids)


_MAX_TEXT = 1 << 20  # bytes of a text file that are shown
_BACKUP = ".bak"
_GROUP_SEPARATOR = "@"  # ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR


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
                is_entry = entry["kind"] == "config_entry"
                topic = entry["name"].partition(_GROUP_SEPARATOR)[0] if is_entry and entry["table"] else ""
                if not (topics and is_entry) or topic in topics:
                    yield entry


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


def list_integers(dtype: np.dtype[np.void], location: Location, options: ListingOptions) -> Iterator[Rows]:
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
        yield one_row(location.kind, {**values, "hex": data.hex()} if options.with_hex else values)


Item = TypeVar("Item")
_END: Any = object()

Listed = Rows | dict[str, Any]
"""An item of a listing: many rows, or one object whose shape the broker decides."""

_TOPIC = frozenset({"topic", "exclude_topic"})
_QUEUE_FILTERS = _TOPIC | frozenset({"queue", "tag", "from_offset", "to_offset"})
_KEY = frozenset({"key"})
_TIMES = frozenset({"from", "to"})
_OFFSETS = frozenset({"from_offset", "to_offset"})


@dataclass(frozen=True)
class Listing:
    """How a kind is listed; `columns` are all fields, `table` those that a table shows without ``--columns``.

    `filters` can be decided from the units, `by_record` only from the records that they point to. `layout`
    names the fields of a unit's bytes; `has_messages` when a body may be wanted.
    """

    list: Callable[[Location, ListingOptions], Iterable[Listed]]
    columns: tuple[str, ...]
    table: tuple[str, ...]
    filters: frozenset[str] = frozenset()
    layout: Struct | None = None
    has_messages: bool = False
    by_record: frozenset[str] = frozenset()

    @property
    def is_one_object(self) -> bool:
        """Whether a file of this kind holds a few numbers or lines rather than units."""
        return not self.table


_MESSAGE = (*MESSAGE_FIELDS, *BODY_COLUMNS)
_MESSAGE_TABLE = (
    "physical_offset", "topic", "queue_id", "queue_offset", "message_size", "store_time", "tags", "keys",
)  # fmt: skip
_QUEUE = ("topic", "queue_id", "queue_offset", "physical_offset", "message_size", "tags_code")
_DELIVERY = ("delivery_timestamp", "delivery_time", "ext_offset")
_BATCH = (*_QUEUE, "store_timestamp", "store_time", "batch_size", "compacted_offset", "reserved")
_BATCH_TABLE = (*_QUEUE[:5], "batch_size", "store_time", "kind")
_HOLDER = ("broker_running", "broker_process_id")


def _of_integers(dtype: np.dtype[np.void], layout: Struct) -> Listing:
    columns = with_times(dict.fromkeys(("file", *(dtype.names or ()))))
    return Listing(partial(list_integers, dtype), tuple(columns), (), layout=layout)


LISTINGS: Mapping[Kind, Listing] = {
    "commitlog": Listing(list_log, _MESSAGE, _MESSAGE_TABLE, FILTER_NAMES, MessageUnit, True),
    "compaction": Listing(list_compaction, _MESSAGE, _MESSAGE_TABLE, FILTER_NAMES, MessageUnit, True),
    "dledger": Listing(
        list_entries, (*_MESSAGE, *RAFT_COLUMNS), ("dledger_index", *_MESSAGE_TABLE), FILTER_NAMES, MessageUnit, True
    ),
    "consumequeue": Listing(
        list_queues, (*_QUEUE, *_DELIVERY), (*_QUEUE, "delivery_time", "ext_offset", "kind"), _QUEUE_FILTERS,
        ConsumeQueueUnit, by_record=_TIMES | _KEY,
    ),
    "batchconsumequeue": Listing(
        list_batch_queues, _BATCH, _BATCH_TABLE, _QUEUE_FILTERS | _TIMES, BatchConsumeQueueUnit, by_record=_KEY
    ),
    "compaction-queue": Listing(
        list_batch_queues, _BATCH, _BATCH_TABLE, _QUEUE_FILTERS | _TIMES, BatchConsumeQueueUnit, by_record=_KEY
    ),
    "consumequeue-ext": Listing(
        list_ext,
        ("topic", "queue_id", "ext_offset", "address", "size", "tags_code", "store_timestamp", "store_time",
         "filter_bit_map"),
        ("topic", "queue_id", "ext_offset", "size", "tags_code", "store_time", "filter_bit_map", "kind"),
        _TOPIC | {"queue", "tag"} | _TIMES, ConsumeQueueExtUnit,
    ),
    "index": Listing(
        list_index,
        ("file", "number", "slot", "key_hash", "physical_offset", "seconds_since_begin", "previous",
         *HEADER_COLUMNS, "newest_unit", "chain_length", "chain_ok"),
        ("number", "slot", "key_hash", "physical_offset", "seconds_since_begin", "previous"),
        HASHED | _TIMES | _OFFSETS, IndexUnit, by_record=HASHED | _TOPIC | {"queue"},
    ),
    "timerwheel": Listing(
        list_wheel,
        ("file", "slot", "time", "due_timestamp", "due_time", "first_position", "last_position", "count", "magic",
         "in_place"),
        ("slot", "due_time", "count", "first_position", "last_position", "in_place"), _TIMES, TimerSlot,
    ),
    "timerlog": Listing(
        list_timer_log,
        ("file", "position", "size", "previous_position", "magic", "write_timestamp", "write_time", "delay",
         "due_timestamp", "due_time", "physical_offset", "message_size", "topic_hash", "rolled", "deleted"),
        ("position", "due_time", "physical_offset", "message_size", "previous_position", "magic", "kind"),
        _TIMES | _OFFSETS | _TOPIC, TimerLogUnit, by_record=frozenset({"tag", "key"}),
    ),
    "dledger-index": Listing(
        list_dledger_index, ("file", "number", "position", "size", "index", "term"),
        ("index", "term", "position", "size", "kind"), _OFFSETS, DLedgerIndexUnit, by_record=FILTER_NAMES - _OFFSETS,
    ),
    "checkpoint": _of_integers(CHECKPOINT_DTYPE, Checkpoint),
    "timercheck": _of_integers(TIMER_CHECK_DTYPE, TimerCheck),
    "abort": Listing(list_marker, ("file", "content", "process_id", *_HOLDER), ()),
    "lock": Listing(list_marker, ("file", "content", *_HOLDER), ()),
    "text": Listing(list_text, ("file", "line", "text"), ()),
    "config": Listing(list_config, ("file", "table", "name", "value"), (), _TOPIC),
    "rocksdb": Listing(
        list_rocksdb, ("file", "family", "row", "key", "value", "message"), (), _TOPIC | {"queue"}
    ),
}  # fmt: skip


def split_filters(kind: Kind, filters: Filters) -> tuple[Filters, Filters]:
    """The filters that can be decided from the units of a kind, and those that need their records.

    An index unit has the hash of a topic with a key or tag: a filter on one without the other needs the record.
    """
    listing = LISTINGS[kind]
    by_record = listing.by_record
    if kind == "index" and is_hashed(filters):
        by_record = by_record - HASHED
    return filters.only(listing.filters - by_record), filters.only(by_record)


def list_location(location: Location, options: ListingOptions) -> Iterator[Listed]:
    """Everything at a location that passes the filters, up to the limit."""
    listed = list_slots(location, options) if options.slots else LISTINGS[location.kind].list(location, options)
    return limited(listed, options.limit)


def limited(items: Iterable[Item], limit: int | None) -> Iterator[Item]:
    """Items up to the limit; rows that do not count are yielded as long as the limit is not reached."""
    left, iterator = limit, iter(items)
    while left is None or left > 0:
        item: Any = next(iterator, _END)
        if item is _END:
            return
        if isinstance(item, Rows):
            item = item.slice(0, left) if left is not None and item.counted else item
            if not len(item):
                continue
        if left is not None:
            left -= (len(item) if item.counted else 0) if isinstance(item, Rows) else item is not None
        yield item


def count_location(location: Location, options: ListingOptions) -> dict[str, int]:
    """How many rows of each kind `list_location` yields; no more columns are read than the filters need."""
    plain = options.filters == Filters() and not options.by_record and options.limit is None and not options.slots
    if location.kind == "index" and plain:
        return count_units(location, options)
    counts = Counter[str]()
    shape = MessageShape.of("none", ("physical_offset",))
    for item in list_location(location, replace(options, shape=shape)):
        if isinstance(item, dict):
            counts[item["kind"]] += 1
        else:
            pairs = pc.value_counts(item.batch.column(0)).to_pylist()
            counts.update({pair["values"]: pair["counts"] for pair in pairs})
    return dict(counts)
