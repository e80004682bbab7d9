"""Small stores with queues and an index, made as a broker makes them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.index_file import HEADER_SIZE, file_size, key_hash, unit_position
from rmqtool.formats.message import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    build_host,
    format_message_id,
)
from rmqtool.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys, tags_code
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, V4, LogBuilder, message

SLOTS, UNITS = 50, 1000
INDEX = "20261121113608128"
QUEUE_FILE = 600  # bytes: 30 units


class StoreMaker:
    """Messages, and the entries and keys that follow from them; `write` makes the store.

    `offsets` are the physical offsets of the messages in the order in which they were added.
    """

    def __init__(self, log_file: int = 65536) -> None:
        self.log = LogBuilder(file_size=log_file)
        self.units: dict[tuple[str, int], list[bytes]] = {}
        self.keys: list[tuple[int, int, int]] = []  # hash, physical offset, store timestamp
        self.config: dict[str, Any] = {}

    @property
    def offsets(self) -> list[int]:
        return self.log.offsets

    def add(self, topic: str = "orders", queue_id: int = 0, code: int | None = None, **fields: Any) -> int:
        """Append a message at the end of its queue; its physical offset. `code` is the tags code when not a hash."""
        properties = fields.get("properties", {})
        flag = fields.get("sys_flag", 0) & TRANSACTION_MASK
        queue = self.units.setdefault((topic, queue_id), [])
        fields = {"queue_offset": len(queue), "store_timestamp": START_TIME + 1000 * len(self.log.offsets), **fields}
        offset = self.log.add(topic=topic, queue_id=queue_id, **fields)
        size = len(message(offset, topic=topic, queue_id=queue_id, **fields))
        if flag not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            queue.append(build_unit(offset, size, tags_code(properties.get(TAGS)) if code is None else code))
        if flag != TRANSACTION_ROLLBACK:
            unique = [properties[UNIQUE_KEY]] if UNIQUE_KEY in properties else []
            for key in [*unique, *split_keys(properties.get(KEYS))]:
                self.keys.append((key_hash(topic, key), offset, fields["store_timestamp"]))
        return offset

    def message_id(self, offset: int) -> str:
        """The offset message id of the message at `offset`."""
        return format_message_id(build_host(*V4), offset)

    def write(self, root: Path) -> Path:
        self.log.write(root)
        for (topic, queue_id), units in self.units.items():
            write_queue(root, topic, queue_id, units)
        if self.keys:
            (root / "index").mkdir()
            (root / "index" / INDEX).write_bytes(index_image(self.keys))
        for name, content in self.config.items():
            (root / "config").mkdir(exist_ok=True)
            (root / "config" / name).write_text(json.dumps(content), encoding="utf-8")
        return root

    def snapshot(self, root: Path) -> Snapshot:
        """The store, written and opened."""
        return Snapshot(open_store(self.write(root)))


def write_queue(root: Path, topic: str, queue_id: int, units: list[bytes]) -> Path:
    directory = root / "consumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True, exist_ok=True)
    for start, part in parts(b"".join(units), QUEUE_FILE):
        (directory / file_name(start)).write_bytes(part)
    return directory


def parts(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    for start in range(0, max(len(data), 1), size):
        yield start, data[start : start + size].ljust(size, b"\0")


def index_image(keys: list[tuple[int, int, int]]) -> bytes:
    """An index file with these keys, put one after the other (`IndexFile#putKey`)."""
    image = bytearray(file_size(SLOTS, UNITS))
    begin = keys[0][2]
    used = set()
    for number, (stored_hash, offset, timestamp) in enumerate(keys, 1):
        slot = HEADER_SIZE + 4 * (stored_hash % SLOTS)
        (previous,) = struct.unpack_from(">i", image, slot)
        unit = (stored_hash, offset, (timestamp - begin) // 1000, previous)
        struct.pack_into(">iqii", image, unit_position(SLOTS, number), *unit)
        struct.pack_into(">i", image, slot, number)
        used.add(slot)
    header = (begin, keys[-1][2], keys[0][1], keys[-1][1], len(used), len(keys) + 1)
    struct.pack_into(">qqqqii", image, 0, *header)
    return bytes(image)
