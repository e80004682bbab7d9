"""A store of many queues, of which a group has read nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.verify.small_store import StoreBuilder, finish


def many_queues(directory: Path, topics: int) -> Path:
    """A store of many topics of which one group has read nothing."""
    names = [f"topic-{number}" for number in range(topics)]
    builder = StoreBuilder(file_size=8192)
    for name in names:
        builder.put(name, body=b"body")
    store = finish(builder.write(directory), tuple(names))
    table = {"offsetTable": {f"{name}@readers": {"0": 0} for name in names}}
    (store / "config/consumerOffset.json").write_text(json.dumps(table))
    return store
