"""Rows of a source, as a store gives them, and a small store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rmqtool.formats.message import body_crc
from tests.building import LogBuilder

KEY = "7F00000100002A9F0000000000000000"
TIME = 1_700_000_000_000
COUNT = 60
"""Messages of `write_store`."""


def row(properties: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """A row of a plain message with a unique key; others by their names."""
    body = fields.get("body", b"body")
    return {
        "topic": "orders",
        "queue_id": 1,
        "queue_offset": 5,
        "physical_offset": 1000,
        "message_size": 200,
        "message_id": f"ID-{fields.get('physical_offset', 1000)}",
        "properties": [*{"UNIQ_KEY": KEY, **(properties or {})}.items()],
        "born_timestamp": TIME,
        "store_timestamp": TIME + 1,
        "store_host": "10.0.0.1:10911",
        "flag": 7,
        "sys_flag": 0,
        "reconsume_times": 0,
        "body_crc": body_crc(body),
        "body": body,
        "is_stored": True,
        **fields,
    }


def write_store(root: Path, count: int = COUNT) -> Path:
    """A store of messages in three queues of `orders`; twelve have one born time."""
    log = LogBuilder(file_size=1 << 16)
    offsets: Counter[int] = Counter()
    for number in range(count):
        queue = number % 3
        log.add(queue_id=queue, queue_offset=offsets[queue], body=f"body {number}".encode(),
                born_timestamp=1_700_000_000_000 + number // 12, properties={"UNIQ_KEY": f"{number:032X}"})  # fmt: skip
        offsets[queue] += 1
    return log.write(root)
