"""A store that grows for two days, by day more than by night, with three groups that are not equally far."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from tests.building import START_TIME
from tests.verify.small_store import StoreBuilder, finish

HOUR = 3_600_000
TOPICS = ("orders", "payments", "sms", "audit", *(f"device-{number}" for number in range(12)))
FILE_SIZE = 32_768
_MESSAGES_OF_A_FILE = 59


def growing_store(root: Path, hours: int = 48, files: int = 40) -> Path:
    """Messages of sixteen topics; the modification times of the log files are those of their last messages."""
    builder, ends = StoreBuilder(file_size=FILE_SIZE), list[int]()
    step = hours * HOUR / (files * _MESSAGES_OF_A_FILE)
    number, time = 0, float(START_TIME)
    while len(builder.files) < files:
        topic = TOPICS[number % 5 * (number % 3) % len(TOPICS) if number % 7 else number % len(TOPICS)]
        builder.put(topic, queue_id=number % 2, store_timestamp=int(time), body=bytes(300 + number % 200),
                    properties={"KEYS": f"key-{number}", "UNIQ_KEY": f"7F000001000018B4AAC2{number:012X}"})  # fmt: skip
        ends[len(builder.files) - 1 :] = [int(time)]
        day = (time - START_TIME) / (24 * HOUR)
        number, time = number + 1, time + step * (1 + 0.8 * math.sin(2 * math.pi * day))
    store = finish(builder.write(root), TOPICS)
    for at, end in enumerate(ends):
        path = store / "commitlog" / f"{at * FILE_SIZE:020}"
        os.utime(path, ns=(end * 1_000_000, end * 1_000_000))
    _commit(store, builder.next_offsets)
    return store


def _commit(store: Path, ends: dict[tuple[str, int], int]) -> None:
    """`billing` has read nearly all, `shipping` the half, `reporting` a little."""
    shares = {"billing": 0.99, "shipping": 0.5, "reporting": 0.05}
    table = {
        f"{topic}@{group}": {str(queue): int(ends[topic, queue] * share) for queue in (0, 1) if (topic, queue) in ends}
        for topic in ("orders", "payments")
        for group, share in shares.items()
    }
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
