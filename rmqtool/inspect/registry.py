"""Every kind of file: how it is listed, which filters it has, and the columns of a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from construct import Struct

from rmqtool.formats.batch_consume_queue import BatchConsumeQueueUnit
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, Checkpoint
from rmqtool.formats.consume_queue import ConsumeQueueUnit
from rmqtool.formats.consume_queue_ext import ConsumeQueueExtUnit
from rmqtool.formats.dledger import DLedgerIndexUnit
from rmqtool.formats.index_file import IndexUnit
from rmqtool.formats.message import MessageUnit
from rmqtool.formats.timer_check import CHECK_DTYPE, TimerCheck
from rmqtool.formats.timer_log import TimerLogUnit
from rmqtool.formats.timer_wheel import TimerSlot
from rmqtool.inspect.commit_log import list_compaction, list_log
from rmqtool.inspect.consume_queues import list_batch_queues, list_queues
from rmqtool.inspect.dledger import RAFT_COLUMNS, list_dledger_index, list_entries
from rmqtool.inspect.ext_units import list_ext
from rmqtool.inspect.index_files import HASHED, HEADER_COLUMNS, count_units, is_hashed, list_index, list_slots
from rmqtool.inspect.locate import Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.rocksdb_rows import list_rocksdb
from rmqtool.inspect.small_files import (
    integer_columns,
    list_checkpoint,
    list_config,
    list_marker,
    list_text,
    list_timer_check,
)
from rmqtool.inspect.timer import list_timer_log, list_wheel
from rmqtool.scan.filters import FILTER_NAMES, Filters
from rmqtool.scan.message_rows import BODY_COLUMNS, MESSAGE_FIELDS, MessageShape
from rmqtool.scan.rows import Rows
from rmqtool.store.paths import Kind

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
    "checkpoint": Listing(list_checkpoint, integer_columns(CHECKPOINT_DTYPE), (), frozenset(), Checkpoint),
    "timercheck": Listing(list_timer_check, integer_columns(CHECK_DTYPE), (), frozenset(), TimerCheck),
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
            left -= _count(item)
        yield item


def count_location(location: Location, options: ListingOptions) -> dict[str, int]:
    """How many rows of each kind `list_location` yields; no more columns are read than the filters need."""
    plain = options.filters == Filters() and not options.by_record and options.limit is None and not options.slots
    if location.kind == "index" and plain:
        return count_units(location, options)
    counts: dict[str, int] = {}
    shape = MessageShape.of("none", ("physical_offset",))
    for item in list_location(location, replace(options, shape=shape)):
        kinds = [item["kind"]] if isinstance(item, dict) else item.batch.column(0)
        for kind, count in Counter(kinds if isinstance(kinds, list) else _counted(kinds)).items():
            counts[kind] = counts.get(kind, 0) + count
    return counts


def _counted(kinds: pa.StringArray) -> dict[str, int]:
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(kinds).to_pylist()}


def _count(item: object) -> int:
    if isinstance(item, Rows):
        return len(item) if item.counted else 0
    return int(item is not None)
