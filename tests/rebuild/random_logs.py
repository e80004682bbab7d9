"""Random commit logs in the form in which brokers write them, with what they hold of the queues' odd histories."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rmqtool.formats.message import (
    BORN_HOST_V6,
    INNER_BATCH,
    MAGIC_CODE_V2,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from tests.building import START_TIME, LogBuilder
from tests.real_broker.versions import features

Kind = Callable[[], dict[str, Any]]
"""Makes the fields of a record."""

FILE_SIZE = 65536
MOST_FILES = 9  # from 5.4.0 on a recovery looks at no more than ten
_TOPICS = ("orders", "payments", "%RETRY%group", "a", "支付", "x" * 100)
_TAGS = ("Aa", "BB", "支付😀", "polygenelubricants", "created")
_LIGHT = ("%LMQ%one", "%LMQ%two")
_BATCH_TOPIC = "batches"
_MANY_KEYS = 30


def _end(number: int) -> dict[str, Any]:
    return {"topic": "end", "queue_offset": number}


class RandomLog:
    """A log of one seed; the same seed and version give the same bytes."""

    def __init__(self, version: str, seed: int) -> None:
        self._random = random.Random(f"{version} {seed}")
        self._features = features(version)
        # 4.9.2 to 4.9.8 derive other tags codes of delayed messages in a recovery than they have written.
        self._delays = version != "4.9.7"
        self._next: dict[tuple[str, int], int] = defaultdict(self._first_offset)
        self._time = START_TIME
        self._log = LogBuilder(FILE_SIZE, start_offset=self._random.choice((0, 0, FILE_SIZE * 7)))

    def write(self, root: Path) -> Path:
        """Write the log and its configuration below `root`; half of the logs end as after a kill."""
        for _ in range(self._random.randrange(1, 900)):
            if len(self._log.files) < MOST_FILES:
                self._add([])
        for number in range(2):
            # 4.5.1 to 4.9.8 dispatch what is past the last unit again: the keys of a last record without one.
            self._add([partial(_end, number)])
        images = {start: bytearray(image) for start, image in self._log.images().items()}
        if self._random.random() < 0.5:
            self._tear(images)
        folder = root / "commitlog"
        folder.mkdir(parents=True)
        for start, image in images.items():
            (folder / f"{start:020d}").write_bytes(image)
        (root / "config").mkdir()
        (root / "config" / "topics.json").write_text(json.dumps(self._topics()), encoding="utf-8")
        return root

    def _tear(self, images: dict[int, bytearray]) -> None:
        """The last record is not there as a whole; sometimes a file of zeros follows."""
        last = self._log.offsets[-1]
        start = max(start for start in images if start <= last)
        size = int.from_bytes(images[start][last - start : last - start + 4], "big")
        torn = last - start + self._random.randrange(8, size)
        images[start][torn:] = bytes(len(images[start]) - torn)
        if start == max(images) and self._random.random() < 0.5:
            images[start + FILE_SIZE] = bytearray(FILE_SIZE)

    def _first_offset(self) -> int:
        return self._random.choice((0, 0, 0, 5, 31, 1000))

    def _offset(self, topic: str, queue_id: int) -> int:
        """The next queue offset; now and then there is a gap, or the queue begins again."""
        event = self._random.random()
        place = topic, queue_id
        if event < 0.004:
            self._next[place] = 0
        elif event < 0.008:
            self._next[place] = max(0, self._next[place] - self._random.randrange(5))
        elif event < 0.012:
            self._next[place] += self._random.randrange(40)
        self._next[place] += 1
        return self._next[place] - 1

    def _kinds(self) -> list[Kind]:
        kinds = [self._plain] * 12 + [self._transaction]
        kinds += [self._delayed] if self._delays else []
        kinds += [self._light] if "lmq" in self._features else []
        kinds += [self._batch] if "batch-queue" in self._features else []
        kinds += [self._long_topic] if "v2" in self._features else []
        return kinds

    def _add(self, kinds: list[Kind]) -> None:
        self._time += self._random.choice((0, 1, 7, 1500, -20))
        fields = self._random.choice(kinds or self._kinds())()
        if "ipv6" in self._features:
            fields["sys_flag"] = fields.get("sys_flag", 0) | self._random.choice((0, 0, 0, BORN_HOST_V6, STORE_HOST_V6))
        body = self._random.randbytes(self._random.choice((0, 10, 200, 900)))
        self._log.add(**{"body": body, "store_timestamp": self._time, **fields})

    def _properties(self) -> dict[str, str]:
        chance, found = self._random, {}
        if chance.random() < 0.7:
            found["TAGS"] = chance.choice(_TAGS)
        if chance.random() < 0.6:
            count = chance.choice((1, 1, 2, 3, _MANY_KEYS))
            found["KEYS"] = " ".join(chance.choice(("Aa", "BB", f"k{chance.randrange(50)}", "")) for _ in range(count))
        if chance.random() < 0.7:
            found["UNIQ_KEY"] = f"{chance.getrandbits(128):032X}"
        names = list(found)
        chance.shuffle(names)
        return {name: found[name] for name in names if found[name]}

    def _plain(self) -> dict[str, Any]:
        topic, queue_id = self._random.choice(_TOPICS), self._random.randrange(3)
        return self._to(topic, queue_id)

    def _to(self, topic: str, queue_id: int, **more: str) -> dict[str, Any]:
        return {
            "topic": topic,
            "queue_id": queue_id,
            "queue_offset": self._offset(topic, queue_id),
            "properties": {**self._properties(), **more},
        }

    def _transaction(self) -> dict[str, Any]:
        kind = self._random.choice((TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, TRANSACTION_COMMIT))
        if kind == TRANSACTION_COMMIT:
            return {**self._plain(), "sys_flag": kind}
        return {"topic": "orders", "queue_id": 1, "sys_flag": kind, "properties": self._properties()}

    def _delayed(self) -> dict[str, Any]:
        level = self._random.choice((1, 3, 18, 25))
        return self._to(SCHEDULE_TOPIC, min(level, 18) - 1, DELAY=str(level))

    def _light(self) -> dict[str, Any]:
        names = _LIGHT[: self._random.randrange(1, 3)]
        offsets = ",".join(str(self._offset(name, 0)) for name in names)
        fields = self._to("sensors", self._random.randrange(2))
        fields["properties"].update({"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": offsets})
        return fields

    def _batch(self) -> dict[str, Any]:
        size, place = self._random.randrange(1, 6), (_BATCH_TOPIC, 0)
        base = self._next[place]
        self._next[place] += size
        more = {"INNER_BASE": str(base), "INNER_NUM": str(size)}
        properties = {**self._properties(), **more}
        return {"topic": _BATCH_TOPIC, "queue_offset": base, "sys_flag": INNER_BATCH, "properties": properties}

    def _long_topic(self) -> dict[str, Any]:
        return {**self._to("y" * 200, 0), "magic_code": MAGIC_CODE_V2}

    def _topics(self) -> dict[str, Any]:
        batch = {"topicName": _BATCH_TOPIC, "attributes": {"queue.type": "BatchCQ"}, "perm": 6}
        table = {_BATCH_TOPIC: {**batch, "readQueueNums": 1, "writeQueueNums": 1}}
        with_batches = "batch-queue" in self._features
        return {"topicConfigTable": table if with_batches else {}, "dataVersion": {"counter": 0, "timestamp": 0}}
