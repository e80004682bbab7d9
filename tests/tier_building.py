"""Small tiers of any topics, where those of real brokers have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.formats.properties import TAGS, tags_code
from rmqtool.formats.tiered import cluster_directory, segment_name
from rmqtool.store.tiered import METADATA
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
