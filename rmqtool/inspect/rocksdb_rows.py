"""The rows of a RocksDB database, each by the family that it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmqtool.base.errors import UnreadableError
from rmqtool.formats import rocksdb_rows as rows
from rmqtool.formats.rocksdb_config_rows import config_entry
from rmqtool.inspect.locate import Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.filters import Filters
from rmqtool.store.config_json import parse_fastjson
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
