"""Small tiers of any topics, where those of real brokers have none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.formats.properties import TAGS, tags_code
from rmqtool.formats.tiered import (
    INDEX_HEADER_SIZE,
    WRITTEN_ITEM_DTYPE,
    WRITTEN_MAGIC,
    WRITTEN_SLOT_DTYPE,
    cluster_directory,
    segment_name,
)
from rmqtool.store.config_json import load_config
from rmqtool.store.tiered import METADATA
from rmqtool.store.tiered_index import all_items_of
from tests.building import message


def write_tier(store: Path, topic: str, messages: Iterable[Mapping[str, Any]], queue_id: int = 0) -> Path:
    """Write the tier of one queue below ``tier`` of a store, from queue offset 0 on; its path."""
    log, units = b"", []
    for number, fields in enumerate(messages):
        record = message(len(log), topic=topic, queue_id=queue_id, queue_offset=number, **fields)
        units.append((len(log), len(record), tags_code(dict(fields.get("properties", {})).get(TAGS))))
        log += record
    folder = store / "tier" / cluster_directory("lab") / "broker-a" / topic / str(queue_id)
    for kind, data in (("COMMIT_LOG", log), ("CONSUME_QUEUE", np.array(units, UNIT_DTYPE).tobytes())):
        (folder / kind).mkdir(parents=True)
        (folder / kind / segment_name(0)).write_bytes(data)
    (store / METADATA).parent.mkdir(exist_ok=True)
    (store / METADATA).write_text("{}")
    return store / "tier"


SLOTS, ROOM = 50, 1000
"""Slots and items of the index that recorded stores with a tier were written with."""


def take_back_index(store: Path) -> Path:
    """Turn the one index segment of a recorded store into the file that a broker wrote it as; its path."""
    [segment] = (store / "tiered").glob("*/broker-a/rmq_sys_INDEX/0/INDEX/*")
    head = segment.read_bytes()[:INDEX_HEADER_SIZE]
    items = np.concatenate([*all_items_of(MappedFile(segment, 0, segment.stat().st_size))])
    slots, rows = np.zeros(SLOTS, WRITTEN_SLOT_DTYPE), np.zeros(ROOM, WRITTEN_ITEM_DTYPE)
    for number, item in enumerate(items[::-1], 1):  # the newest of a slot is its first one there
        slot = int(item["hash"]) % SLOTS
        rows[number] = (*item.tolist(), slots[slot]["item"])
        slots[slot]["item"] = number
    begin = int.from_bytes(head[4:12], "big")
    counted = head[:24] + len(items).to_bytes(4, "big")
    path = store / "tiered_index_file" / str(begin)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(WRITTEN_MAGIC.to_bytes(4, "big", signed=True) + counted[4:] + slots.tobytes() + rows.tobytes())
    segment.unlink()
    metadata = load_config(store / METADATA).content
    (store / METADATA).write_text(json.dumps({**metadata, "indexFileSegmentTable": {}}))
    return path
