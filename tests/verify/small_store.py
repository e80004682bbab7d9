"""A small store of every form of record, with its queues and its index, to be damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqtool.formats.message import (
    BORN_HOST_V6,
    CRC32_PROPERTY_SIZE,
    MAGIC_CODE_V2,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    build_crc32_property,
    record_crc,
)
from rmqtool.formats.properties import encode_properties
from tests.building import START_TIME, LogBuilder
from tests.deriving import derive

FILE_SIZE = 4096
QUEUE_FILE_SIZE = 160  # 8 units
GEOMETRY = (40, 400)
TOPICS = ("orders", "payments", "t" * 140)
RECORDS = 50


class StoreBuilder(LogBuilder):
    """A log whose records number themselves in their queues."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.next_offsets: dict[tuple[str, int], int] = {}

    def put(self, topic: str = "orders", queue_id: int = 0, checked: bool = False, **fields: Any) -> int:
        """Append a message with the queue offset that is next, with a ``__CRC32#`` property when `checked`."""
        queue = topic, queue_id
        offset = fields.pop("queue_offset", self.next_offsets.get(queue, 0))
        if not fields.get("sys_flag", 0) & TRANSACTION_PREPARED:
            self.next_offsets[queue] = offset + 1
        properties = encode_properties(fields.pop("properties", {}))
        if checked:
            properties += build_crc32_property(0)
        physical_offset = self.add(topic=topic, queue_id=queue_id, queue_offset=offset, properties=properties, **fields)
        if checked:
            record = bytes(self.files[-1][physical_offset % self.file_size :])
            self.files[-1][-CRC32_PROPERTY_SIZE:] = build_crc32_property(record_crc(record))
        return physical_offset


def small_log(records: int = RECORDS, file_size: int = FILE_SIZE) -> StoreBuilder:
    """Records of both versions, with and without property CRC, hosts of both kinds, keys, tags, an empty body."""
    builder = StoreBuilder(file_size=file_size)
    for number in range(records):
        long_topic = number % 7 == 3
        sys_flag = BORN_HOST_V6 * (number % 11 == 5) | STORE_HOST_V6 * (number % 13 == 6)
        builder.put(
            TOPICS[2] if long_topic else TOPICS[number % 2],
            queue_id=0 if long_topic else number // 2 % 2,
            checked=number % 5 == 4,
            magic_code=MAGIC_CODE_V2 if long_topic else -626843481,
            sys_flag=sys_flag | TRANSACTION_COMMIT * (number % 17 == 8),
            store_timestamp=START_TIME + 400 * number,
            body=b"" if number % 19 == 9 else f"body of message {number}".encode() * (1 + number % 3),
            properties={
                "KEYS": f"key-{number} all",
                "UNIQ_KEY": f"7F000001000018B4AAC2{number:012X}",
                **({"TAGS": "red"} if number % 3 else {}),
            },
        )
    return builder


def small_store(store: Path, builder: StoreBuilder | None = None) -> Path:
    """Write the small store, or another log with what is derived from it."""
    if builder is not None:
        return finish(builder.write(store))
    for name, data in _small_files():
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return store


@cache
def _small_files() -> tuple[tuple[str, bytes], ...]:
    """The files of the small store, in the order in which they were written; made once, for hundreds of tests ask."""
    with TemporaryDirectory() as directory:
        store = finish(small_log().write(Path(directory)))
        files = sorted((path for path in store.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
        return tuple((str(path.relative_to(store)), path.read_bytes()) for path in files)


def finish(store: Path, topics: tuple[str, ...] = TOPICS, geometry: tuple[int, int] | None = GEOMETRY) -> Path:
    """Derive queues and index from the log in `store`, and name its topics."""
    derive(store, QUEUE_FILE_SIZE, geometry)
    write_topics(store, topics)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    return store


def write_topics(store: Path, topics: tuple[str, ...], attributes: Mapping[str, str] | None = None) -> None:
    """Write `config/topics.json`, each topic with these attributes."""
    config = store / "config"
    config.mkdir(exist_ok=True)
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "attributes": dict(attributes or {})}
        for name in topics
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}), encoding="utf-8")
