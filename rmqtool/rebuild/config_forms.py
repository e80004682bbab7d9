"""Topics, groups and committed offsets in the form in which a broker keeps them: JSON files, or rows of databases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmqtool.formats.rocksdb_config_rows import config_json_row, config_offset_row, config_version_row
from rmqtool.rebuild.config_tables import LIGHT_OFFSETS, ConfigTable, Form
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import ROCKSDB_CONFIG_VERSIONS, Version
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from rmqtool.store.rocksdb_config import FORBIDDEN, FORBIDDEN_TABLE, SECOND, SINGLE, TABLES, VERSION_FAMILY

Families = Mapping[str, Mapping[bytes, bytes]]
"""The rows of a database by column family."""

_VERSION_KEY = b"kvDataVersionKey"  # ConfigRocksDBStorage.KV_DATA_VERSION_KEY
_DEFAULT = "default"


def json_files(tables: Sequence[ConfigTable], *, light: bool) -> dict[str, bytes]:
    """The files of `config/` by name; with `light` offsets are in the file that `enableLmq` needs."""
    return dict(_json_file(table, light=light) for table in tables)


def _json_file(table: ConfigTable, *, light: bool) -> tuple[str, bytes]:
    content: dict[str, Any] = {"dataVersion": dict(table.version), TABLES[table.file].json_name: dict(table.entries)}
    name = table.file
    if name == CONSUMER_OFFSET and light:
        name = LMQ_CONSUMER_OFFSET
        is_light = {entry: entry.partition("@")[2].startswith(LMQ_PREFIX) for entry in table.entries}
        content["offsetTable"] = {entry: queues for entry, queues in table.entries.items() if not is_light[entry]}
        content[LIGHT_OFFSETS] = {
            entry: next(iter(queues.values())) for entry, queues in table.entries.items() if is_light[entry] and queues
        }
    if table.file == "subscriptionGroup.json":
        content[FORBIDDEN_TABLE] = dict(table.forbidden)
    text = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":"), sort_keys=True)
    return name, text.encode("utf-8", "replace")


def databases(tables: Sequence[ConfigTable], form: Form, release: Version) -> dict[str, Families]:
    """The databases below `config/` by name; a release before 5.3.1 opens none with a second column family."""
    if form == "second":
        return {SECOND: {_DEFAULT: dict(row for table in tables for row in _second_rows(table))}}
    if form == "single":
        families: dict[str, Mapping[bytes, bytes]] = {_DEFAULT: {}}
        for table in tables:
            place = TABLES[table.file]
            families |= {place.family: _entries(table), place.version_family: _version(table)}
            families |= {FORBIDDEN: _forbidden(table)} if table.forbidden or FORBIDDEN not in families else {}
        return {SINGLE: families}
    return {TABLES[table.file].database: _own_database(table, release) for table in tables}


def _own_database(table: ConfigTable, release: Version) -> Families:
    families = {_DEFAULT: _entries(table)}
    if release >= ROCKSDB_CONFIG_VERSIONS:
        families |= {VERSION_FAMILY: _version(table), FORBIDDEN: _forbidden(table)}
    return families


def _entries(table: ConfigTable) -> dict[bytes, bytes]:
    is_offset = table.file == CONSUMER_OFFSET
    return {name.encode(): _text({"offsetTable": entry} if is_offset else entry).encode()
            for name, entry in table.entries.items()}  # fmt: skip


def _version(table: ConfigTable) -> dict[bytes, bytes]:
    return {_VERSION_KEY: _text(table.version).encode()}


def _forbidden(table: ConfigTable) -> dict[bytes, bytes]:
    return {name.encode(): _text(entry).encode() for name, entry in table.forbidden.items()}


def _second_rows(table: ConfigTable) -> Iterator[tuple[bytes, bytes]]:
    name = TABLES[table.file].second
    version = table.version
    yield config_version_row(name, version["stateVersion"], version["timestamp"], version["counter"])
    for entry, value in table.entries.items():
        if table.file != CONSUMER_OFFSET:
            yield config_json_row(name, entry, _text(value))
            continue
        topic, _, group = entry.partition("@")
        for queue_id, offset in value.items():
            yield config_offset_row(group, topic, int(queue_id), int(offset))


def _text(value: object) -> str:
    """A value as `SerializerFeature.BrowserCompatible` writes it."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
