"""Rows of a broker's RocksDB database, changed as no broker would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Options, Rdict

from rmqtool.formats.rocksdb_rows import CHECKPOINT_TOPIC, QueueUnitValue, queue_prefix
from rmqtool.store.rocksdb import RocksDb
from tests.building import START_TIME

Rows = dict[str, dict[bytes, bytes]]
"""The rows of a database by column family."""


@contextmanager
def changed(database: Path) -> Iterator[dict[str, Any]]:
    """The column families of a database by name, to be written to like mappings of keys to values."""
    opened = _open(database)
    rows = {name: opened.get_column_family(name) for name in Rdict.list_cf(str(database), Options(raw_mode=True))}
    yield rows
    for family in rows.values():
        family.flush()
        family.close()
    opened.close()
    rows.clear()  # the database goes on, and takes old files away, as long as anybody holds one of its families
    del opened, family
    _remove_ours(database)


def _remove_ours(database: Path) -> None:
    """Remove what no broker leaves there."""
    for left in ("rocksdict-config.json", "LOG"):
        (database / left).unlink(missing_ok=True)


def add_family(database: Path, name: str) -> None:
    """Make a column family without rows."""
    opened = _open(database)
    opened.create_column_family(name, _options()).close()
    opened.close()
    _remove_ours(database)


def empty_family(database: Path, name: str) -> None:
    """Take all rows of a column family away."""
    with changed(database) as families:
        for key in list(families[name].keys()):
            del families[name][key]


def drop_family(database: Path, name: str) -> None:
    """Take a column family away."""
    opened = _open(database)
    opened.drop_column_family(name)
    opened.close()
    _remove_ours(database)


def _open(database: Path) -> Any:
    names = Rdict.list_cf(str(database), Options(raw_mode=True))
    return Rdict(str(database), _options(), column_families={name: _options() for name in names})


def _options() -> Options:
    """Options for tables that a broker can read."""
    tables, options = BlockBasedOptions(), Options(raw_mode=True)
    tables.set_format_version(5)
    options.set_block_based_table_factory(tables)
    return options


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The key of a unit."""
    return queue_prefix(topic.encode(), queue_id) + queue_offset.to_bytes(8, "big")


def max_key(topic: str, queue_id: int) -> bytes:
    """The key of the row that ends a queue."""
    return queue_prefix(topic.encode()) + b"max\x01" + queue_id.to_bytes(4, "big")


DISPATCHED_KEY = max_key(CHECKPOINT_TOPIC.decode(), 0)


def min_key(topic: str, queue_id: int) -> bytes:
    """The key of the row with the minimum of a queue."""
    return queue_prefix(topic.encode()) + b"min\x01" + queue_id.to_bytes(4, "big")


def end_value(physical_offset: int, queue_offset: int) -> bytes:
    """The value of a row that ends a queue."""
    return physical_offset.to_bytes(8, "big") + queue_offset.to_bytes(8, "big", signed=True)


def with_fields(value: bytes, **fields: int) -> bytes:
    """The value of a unit with other fields."""
    return bytes(QueueUnitValue.build({**QueueUnitValue.parse(value), **fields}))


def number(value: int) -> bytes:
    """As brokers write one."""
    return value.to_bytes(8, "big", signed=True)


def half_row(offset: int, asked: int = 0) -> tuple[bytes, bytes]:
    """A half message."""
    return number(offset) + b"@payments@ID", asked.to_bytes(4, "big") + (100).to_bytes(4, "big")


def write_rows(directory: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """A database with these rows."""
    directory.mkdir()
    opened = Rdict(str(directory), Options(raw_mode=True))
    for name in families:
        opened.create_column_family(name, Options(raw_mode=True))
    opened.close()
    with changed(directory) as written:
        for name, rows in families.items():
            for key, value in rows.items():
                written[name][key] = value


def write_queues(store: Path, units: Sequence[tuple[str, int, int, bytes]], dispatched_end: int | None) -> None:
    """A database of units: topic, queue id, queue offset and value of each; `dispatched_end` None for no such row."""
    (store / "consumequeue").mkdir(parents=True, exist_ok=True)
    opened = Rdict(str(store / "consumequeue"), Options(raw_mode=True))
    opened.create_column_family("offset", Options(raw_mode=True))
    opened.close()
    with changed(store / "consumequeue") as families:
        for topic, queue_id, queue_offset, value in units:
            families["default"][unit_key(topic, queue_id, queue_offset)] = value
            families["offset"][max_key(topic, queue_id)] = value[:8] + queue_offset.to_bytes(8, "big")
        if dispatched_end is not None:
            families["offset"][DISPATCHED_KEY] = dispatched_end.to_bytes(8, "big")


def unit_value(physical_offset: int, message_size: int, tags_code: int, store_timestamp: int) -> bytes:
    """The value of a unit."""
    fields = {"physical_offset": physical_offset, "message_size": message_size, "tags_code": tags_code}
    return bytes(QueueUnitValue.build({**fields, "store_timestamp": store_timestamp}))


def rows_of(database: Path) -> Rows:
    """All rows but those that a broker writes when it is asked for a minimum."""
    with RocksDb(database) as opened:
        found = {family: dict(opened.rows(family)) for family in opened.families}
    found["offset"] = {key: value for key, value in found["offset"].items() if b"\x01min\x01" not in key}
    return found


def tables_gone(root: Path) -> None:
    for path in (root / "consumequeue").glob("*.sst"):
        path.unlink()


def tables_cut(root: Path) -> None:
    for path in (root / "consumequeue").glob("*.sst"):
        path.write_bytes(path.read_bytes()[:-100])


def table_flipped(root: Path) -> None:
    path = max((root / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)


def table_zeroed(root: Path) -> None:
    path = max((root / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    path.write_bytes(bytes(path.stat().st_size))


def current_gone(root: Path) -> None:
    (root / "consumequeue" / "CURRENT").unlink()


def manifest_cut(root: Path) -> None:
    (path,) = (root / "consumequeue").glob("MANIFEST-*")
    path.write_bytes(path.read_bytes()[:40])


def pop_row(offset: int) -> tuple[bytes, bytes]:
    """The record of a message of topic `tasks` that a consumer of `workers` holds (`PopConsumerRecord`)."""
    return number(START_TIME) + b"workers@tasks@" + bytes(4) + b"@" + number(offset), b"{}"
