"""Everything that reads bytes of a store, or of a peer, each as a function of these bytes: `TARGETS`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import pyarrow as pa

from rmqtool.base.files import UNLIMITED, InputFile
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.broker.record_parser import parse_at
from rmqtool.formats import (
    checkpoint,
    consume_queue,
    dledger,
    fastjson,
    file_name,
    index_file,
    java,
    message,
    message_trace,
    properties,
    rocksdb_log,
    rocksdb_rows,
    tiered,
    timer_wheel,
)
from rmqtool.formats.layout import decode_units, field_extents, parse
from rmqtool.inspect.locate import Location, detect_kind, locate
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.registry import list_location
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.salvage.carve import Sources
from rmqtool.salvage.inputs import list_inputs
from rmqtool.scan.block import Block
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.json_fields import json_fields
from rmqtool.scan.reader import scan_block, scan_files
from rmqtool.scan.rows import Rows
from rmqtool.store import config_text
from rmqtool.store import timer_wheel as wheel_reader
from rmqtool.store.compaction import CompactedFiles, compaction_positions, list_compacted, read_records, stored_units
from rmqtool.store.config_json import has_odd_bytes, load_config
from rmqtool.store.config_tables import FILE_TABLES, load_topics
from rmqtool.store.consumer_filters import load_filters
from rmqtool.store.index_files import Index, geometry_or_none, read_header
from rmqtool.store.paths import Kind
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.store import Store, open_store
from rmqtool.store.tiered import Tier, tier_of
from rmqtool.store.tiered_index import all_items_of, is_older_index, items_of, read_index
from tests.fuzz import answers, seeds
from tests.fuzz.harness import Target, root, written

FIRST = file_name.file_name(0)
_RELEASES = (Version(4, 9, 7), Version(5, 1, 4), Version(5, 5, 0))
_HALVES = 2


def _of_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(java.decode_text(data))


def _of_row(read: Callable[[bytes, bytes], object]) -> Callable[[bytes], object]:
    """A function of key and value; the first byte says how long the key is."""
    return lambda data: read(data[1 : 1 + data[0]], data[1 + data[0] :]) if data else None


_LAYOUTS = (
    checkpoint.Checkpoint,
    checkpoint.TimerCheck,
    consume_queue.ConsumeQueueExtUnit,
    dledger.DLedgerIndexUnit,
    message.MessageUnit,
    timer_wheel.TimerLogUnit,
)
_PARSERS: tuple[Callable[[bytes], object], ...] = (
    *(partial(parse, layout) for layout in _LAYOUTS),
    *(partial(field_extents, layout) for layout in _LAYOUTS),
    message.parse_message,
    message.stored_record_crc,
    message.record_crc,
    message.format_host,
    _of_text(message.parse_message_id),
    properties.decode_properties,
    _of_text(properties.split_keys),
    _of_text(properties.tags_code),
    message_trace.decode_trace,
    java.decode_text,
    _of_text(java.whole_number),
    _of_text(java.string_hash),
    _of_text(partial(fastjson.parse, second=False)),
    _of_text(partial(fastjson.parse, second=True)),
    _of_text(file_name.start_offset_of),
    _of_text(file_name.is_index_name),
    _of_text(tiered.base_of),
    _of_text(timer_wheel.is_wheel_name),
    consume_queue.leading_offsets,
    lambda data: consume_queue.is_written(decode_units(consume_queue.UNIT_DTYPE, data)),
    lambda data: consume_queue.is_batch_written(decode_units(consume_queue.BATCH_UNIT_DTYPE, data)),
    lambda data: timer_wheel.dues(decode_units(timer_wheel.UNIT_DTYPE, data)),
    lambda data: dledger.is_written(decode_units(dledger.INDEX_DTYPE, data)),
    lambda data: [*consume_queue.decode_ext_units(data)],
    _of_row(lambda topic, key: index_file.key_hash(java.decode_text(topic), java.decode_text(key))),
)
_ROWS: tuple[Callable[[bytes, bytes], object], ...] = (
    rocksdb_rows.queue_unit,
    rocksdb_rows.queue_bound,
    rocksdb_rows.json_entry,
    rocksdb_rows.index_entry,
    rocksdb_rows.timer_entry,
    rocksdb_rows.transaction_entry,
    rocksdb_rows.pop_entry,
    rocksdb_rows.config_entry,
    rocksdb_rows.indexed_message,
    lambda key, value: rocksdb_rows.indexed_hour(key),
)


def _chosen(functions: tuple[Callable[[bytes], object], ...], data: bytes) -> object:
    """The function that the first byte names, with the other bytes."""
    return functions[data[0] % len(functions)](data[1:]) if data else None


def _formats() -> Iterator[bytes]:
    pieces = [
        *seeds.records(8),
        b'{"a":[1,{"b":null}],\'c\':"\\u0041"}',
        b"Pub\x011700000000000\x01region\x02",
        b"00000000000000065536",
    ]
    for number in range(len(_PARSERS)):
        yield from (bytes([number]) + piece for piece in pieces[number % 4 :: 4])


def _row_seeds() -> Iterator[bytes]:
    key = rocksdb_rows.queue_prefix(b"orders", 3) + (7).to_bytes(8, "big")
    rows = [
        (key, bytes(28)),
        rocksdb_rows.dispatched_row(4096),
        (rocksdb_rows.bound_key(b"orders", 0), rocksdb_rows.bound_value(9, 4)),
    ]
    rows += [
        (b"\0\0\x01\x8b\xcf\xe5\x68\0@orders@K@k1@" + bytes(8), bytes(8)),
        rocksdb_rows.config_offset_row("g", "orders", 0, 5),
        rocksdb_rows.config_json_row("topic", "orders", '{"topicName":"orders"}'),
        rocksdb_rows.config_version_row("topic", 1, 2, 3),
    ]
    for number in range(len(_ROWS)):
        yield from (bytes([number, len(key)]) + key + value for key, value in rows)


@cache
def _block() -> Block:
    return scan_block()


def _validated(batch: pa.RecordBatch) -> None:
    batch.validate(full=True)
    batch.to_pylist()


def _scan(data: bytes, header_size: int = 0) -> None:
    """All columns of all records, each decoded and checked by Arrow."""
    path = written(f"commitlog/{FIRST}", data)
    for event in scan_files([MappedFile(path, 0, len(data), header_size)], block=_block()):
        if isinstance(event, RecordRun):
            for batch in record_batches(event, tuple(COLUMNS)):
                _validated(batch)
    with InputFile(path) as file:
        for release in _RELEASES:
            parse_at(file, 0, RecoveryRules(release))


def _log_seeds() -> Iterator[bytes]:
    yield from seeds.records()
    yield seeds.log() + message.build_blank(64) + bytes(56)


def _listed(name: str, kind: Kind, data: bytes, *, slots: bool = False) -> Location:
    """All that `inspect` lists of a file, with the bytes of each unit."""
    location = locate(written(name, data), kind, BrokerConf())
    assert isinstance(location, Location)
    for item in list_location(location, ListingOptions(with_hex=True, slots=slots)):
        if isinstance(item, Rows):
            _validated(item.batch)
    return location


_UNITS: tuple[tuple[str, Kind], ...] = (
    (f"consumequeue/orders/0/{FIRST}", "consumequeue"),
    (f"consumequeue/SCHEDULE_TOPIC_XXXX/2/{FIRST}", "consumequeue"),
    (f"batchconsumequeue/bulk/0/{FIRST}", "batchconsumequeue"),
    (f"consumequeue_ext/orders/0/{FIRST}", "consumequeue-ext"),
    (f"dledger-n0/index/{FIRST}", "dledger-index"),
    ("checkpoint", "checkpoint"),
    ("config/timercheck", "timercheck"),
    ("abort", "abort"),
)


def _units(data: bytes) -> None:
    if data:
        name, kind = _UNITS[data[0] % len(_UNITS)]
        location = _listed(name, kind, data[1:])
        detect_kind(location.path)


def _unit_seeds() -> Iterator[bytes]:
    places = [(seeds.PLAIN, "consumequeue/orders/*/*"), (seeds.PLAIN, "consumequeue/SCHEDULE*/2/*"),
              (seeds.PLAIN, "batchconsumequeue/*/*/*"), (seeds.EXTRAS, "consumequeue_ext/*/*/*"),
              (seeds.DLEDGER, "dledger-n0/index/*"), (seeds.PLAIN, "checkpoint"), (seeds.EXTRAS, "config/timercheck"),
              (seeds.PLAIN, "lock")]  # fmt: skip
    for number, (name, pattern) in enumerate(places):
        yield from (bytes([number]) + data for data in seeds.files(name, pattern))


def _index(data: bytes) -> None:
    name = "index/20261121113632980"
    _listed(name, "index", data)
    _listed(name, "index", data, slots=True)
    path = root() / name
    header = read_header(path)
    geometry_or_none(header)
    index = Index([path])
    index.query("orders", "k1", 64)
    for stored_hash in range(0, 1 << 31, 1 << 28):
        [*index.chain(header, stored_hash)]


def _index_seeds() -> Iterator[bytes]:
    """Whole files, of which the ends are zeros."""
    for data in seeds.files(seeds.PLAIN, "index/*", size=1 << 15):
        yield data.rstrip(b"\0").ljust(min(len(data), _INDEX_SIZE), b"\0")


_INDEX_SIZE = 20240
_CONFIG = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json")


def _config(data: bytes) -> None:
    if not data:
        return
    name = _CONFIG[data[0] % len(_CONFIG)]
    path = written(f"config/{name}", data[1:])
    for release in (None, *_RELEASES):
        file = load_config(path, release)
        config_text.damaged_names(name, file.content, path)
    has_odd_bytes(path)
    text = config_text.text_of(path)
    if text is not None and name in FILE_TABLES:
        table = FILE_TABLES[name].name
        config_text.entries_of(text, table)
        config_text.whole_members(text, table, ("dataVersion",), lambda name, value: isinstance(value, dict))
    _listed(f"config/{name}", "config", data[1:])
    if name == "topics.json":
        load_topics(_store())
    if name == "consumerFilter.json":
        load_filters(_store())


def _store(conf: BrokerConf | None = None) -> Store:
    (root() / "commitlog").mkdir(exist_ok=True)
    return open_store(root(), conf)


def _config_seeds() -> Iterator[bytes]:
    for number, name in enumerate(_CONFIG):
        for store in (seeds.PLAIN, seeds.TIERED, seeds.ROCKSDB):
            yield from (bytes([number]) + data for data in seeds.files(store, f"config/{name}", size=1 << 13))


def _timer(data: bytes) -> None:
    """A wheel and a log, by the first byte; the other one stays as the last run has left it."""
    if not data:
        return
    if data[0] % _HALVES:
        _listed(f"timerlog/{FIRST}", "timerlog", data[1:])
    else:
        _listed("timerwheel", "timerwheel", data[1:])
    wheel = written("timerwheel", data[1:]) if not data[0] % _HALVES else root() / "timerwheel"
    if wheel.is_file():
        used = wheel_reader.used_slots(wheel, UNLIMITED)
        log = list_mapped_files(root() / "timerlog")
        wheel_reader.newest_slot(used)
        wheel_reader.precision_of(lambda: used, log, BrokerConf(), UNLIMITED)


def _timer_seeds() -> Iterator[bytes]:
    yield from (b"\1" + data for data in seeds.files(seeds.EXTRAS, "timerlog/*"))
    slot = struct.Struct(">qqqii")
    yield b"\0" + slot.pack(1_700_000_000, 0, 52, 1, 0) * 4


def _manifest(data: bytes) -> None:
    damage = rocksdb_log.first_damage(data)
    if damage is not None:
        rocksdb_log.goes_on(data, damage)
    rocksdb_log.oldest_log(data)
    [*rocksdb_log.payloads(data)]


def _database_files() -> list[str]:
    return ["MANIFEST-000005", "CURRENT", "000010.sst", "000011.sst", "000004.log", "OPTIONS-000009"]


def _database(data: bytes) -> None:
    """The rows of a database of which one file, by the first byte, is another."""
    names = _database_files()
    if not data:
        return
    for name in names:
        written(f"database/{name}", (seeds.store(seeds.ROCKSDB) / "consumequeue" / name).read_bytes())
    written(f"database/{names[data[0] % len(names)]}", data[1:])
    database = QueueDatabase(root() / "database")
    try:
        _ = database.lasts, database.dispatched_end, database.with_rows()
        [*database.bad_rows()]
        database.units(("orders", 0), 0, 1 << 40)
    finally:
        database.close()
    location = locate(root() / "database", "rocksdb", BrokerConf())
    assert isinstance(location, Location)
    [*list_location(location, ListingOptions())]


def _database_seeds() -> Iterator[bytes]:
    for number, name in enumerate(_database_files()):
        yield bytes([number]) + (seeds.store(seeds.ROCKSDB) / "consumequeue" / name).read_bytes()


_TIER = "tiered/24e289d7_LabCluster/broker-a/rmq_sys_INDEX/0/INDEX/cfcd208400000000000000000000"
_QUEUE_LOG = "tiered/24e289d7_LabCluster/broker-a/history/0/COMMIT_LOG/cfcd208400000000000000000000"
_METADATA = "config/tieredStoreMetadata.json"


def _tiered(data: bytes) -> None:
    """An index segment, or the metadata, by the first byte."""
    if not data:
        return
    if data[0] % _HALVES:
        segment = MappedFile(written(_TIER, data[1:]), 0, len(data) - 1)
        read_index(segment)
        is_older_index(segment)
        items_of(segment, 4711)
        [*all_items_of(segment)]
        return
    written(_METADATA, data[1:])
    segment = MappedFile(written(_QUEUE_LOG, seeds.log(3)), 0, len(seeds.log(3)))
    conf = BrokerConf({"tieredStoreFilePath": str(root() / "tiered"), "brokerName": "broker-a"})
    tier = tier_of(_store(conf))
    assert isinstance(tier, Tier)
    for queue in tier.queues:
        tier.rows(queue, "COMMIT_LOG")
        queue.first_offset_from(segment.start_offset)
    _ = tier.named, tier.topic_ids


def _tiered_seeds() -> Iterator[bytes]:
    yield from (b"\0" + data for data in seeds.files(seeds.TIERED, _METADATA))
    yield from (b"\1" + data for data in seeds.files(seeds.TIERED, _TIER, size=1 << 14))


def _compaction(data: bytes) -> None:
    """A file of a compacted log, one of its units, or the positions, by the first byte."""
    if not data:
        return
    name = ("compactionLog", "compactionCq")[data[0] % 2] if data[0] % 3 else None
    written(f"compaction/{name}/state/0/{FIRST}" if name else "compaction/position-checkpoint", data[1:])
    store = _store()
    compaction_positions(store)
    for queue in list_compacted(store)[0]:
        for log, units in queue.pairs:
            read_records(queue, log)
            if units is not None:
                stored_units(units)
        [*(CompactedFiles(queue).units_from(0) or ())]


def _compaction_seeds() -> Iterator[bytes]:
    yield from (b"\2" + data for data in seeds.files(seeds.COMPACTED, "compaction/compactionLog/*/*/*", size=6000))
    yield from (b"\1" + data for data in seeds.files(seeds.COMPACTED, "compaction/compactionCq/*/*/*"))
    yield from (b"\0" + data for data in seeds.files(seeds.COMPACTED, "compaction/position-checkpoint"))


def _salvage(data: bytes) -> None:
    inputs = list_inputs([], [written("raw.img", data)])
    with Sources(inputs.files, 1 << 16) as sources:
        sources.carve(0)
        sources.carve(0, topics=frozenset({"orders"}))


def _raw_seeds() -> Iterator[bytes]:
    yield from (b"junk" * 3 + record + b"\0" * 9 for record in seeds.records())
    yield from seeds.files(seeds.DLEDGER, "dledger-n0/data/*")
    yield seeds.log()


def _bodies(data: bytes) -> None:
    """What typed columns take of JSON bodies."""
    bodies = pa.array([data, data[:-1]], pa.binary())
    for column in json_fields(bodies, ("a", "order.items.0.sku", "x.y")).values():
        column.validate(full=True)


def _body_seeds() -> Iterator[bytes]:
    yield b'{"a": 1.50, "order": {"items": [{"sku": "x\\u0041"}]}, "x": {"y": [null, true]}}'
    yield b'{"a":"\xc3\xa4","x":{"y":-1e400}} '


TARGETS: Mapping[str, Target] = {
    "formats": Target(partial(_chosen, _PARSERS), _formats, (ValueError,), 1 << 11),
    "rows": Target(partial(_chosen, tuple(map(_of_row, _ROWS))), _row_seeds, (ValueError,), 1 << 10),
    "scan": Target(_scan, _log_seeds),
    "entries": Target(
        partial(_scan, header_size=dledger.ENTRY_HEADER_SIZE), partial(seeds.files, seeds.DLEDGER, "dledger-n0/data/*")
    ),
    "units": Target(_units, _unit_seeds),
    "index": Target(_index, _index_seeds, longest=1 << 15),
    "config": Target(_config, _config_seeds),
    "timer": Target(_timer, _timer_seeds),
    "manifest": Target(_manifest, partial(seeds.files, seeds.ROCKSDB, "*/MANIFEST-*"), (ValueError,)),
    "database": Target(_database, _database_seeds),
    "tiered": Target(_tiered, _tiered_seeds),
    "compaction": Target(_compaction, _compaction_seeds),
    "salvage": Target(_salvage, _raw_seeds),
    "bodies": Target(_bodies, _body_seeds),
    "remoting": Target(answers.read, answers.seeds),
}
