"""Metadata of tiered storage, written again from the segments: without them a broker overwrites these.

A real 5.5.1 serves all messages of the tier then, and finds by key what it found before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.findings.finding import Finding, counted
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import integer_at
from rmqtool.formats.properties import KEYS, UNIQUE_KEY, split_keys
from rmqtool.formats.tiered import INDEX_HEADER_DTYPE, INDEX_HEADER_SIZE, INDEX_MAGIC
from rmqtool.repair.change import Change, FileChange, codes_of, name_in_store
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import (
    METADATA,
    SEGMENT_KINDS,
    TABLES,
    Tier,
    TieredQueue,
    all_items_of,
    hashes_of,
    tier_of,
)
from rmqtool.store.unit_files import open_units

_CODE = "tiered.metadata"
_NEVER = (1 << 63) - 1  # begin and end of a segment that holds nothing


def tiered_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Change]:
    """The metadata, where none are left that a broker can read."""
    if _CODE not in codes_of(findings) or not any(each.details.get("cause") == "all" for each in findings):
        return
    tier = tier_of(snapshot.store)
    name = name_in_store(snapshot.store, snapshot.store.root / METADATA)
    if isinstance(tier, Tier) and tier.directory is not None and name:
        content = _Metadata(snapshot, tier).content
        segments = sum(len(rows) for kind in SEGMENT_KINDS for rows in content[TABLES[kind]].values())
        what = f"{name}: written again from {counted(segments, 'segment')} of the tier"
        data = json.dumps(content, indent=1).encode()
        yield FileChange(codes=frozenset({_CODE}), what=what, name=name, content=data)


class _Metadata:
    """What a broker keeps of its tier (`DefaultMetadataStore`), as far as the segments show it."""

    def __init__(self, snapshot: Snapshot, tier: Tier) -> None:
        self._snapshot, self._tier = snapshot, tier
        self._broker = tier.directory.name if tier.directory else ""

    @property
    def content(self) -> dict[str, Any]:
        """The tables; times at which something was done are those of the newest message."""
        queues = self._tier.queues
        tables: dict[str, dict[str, Any]] = {TABLES[kind]: {} for kind in SEGMENT_KINDS}
        latest = 0
        for queue in (*queues, *([self._tier.index] if self._tier.index else ())):
            times = self._times(queue)
            latest = max([latest, *(end for _, end in times.values() if end != _NEVER)])
            path = f"{self._broker}/{queue.topic}/{queue.queue_id}"
            for number, kind in enumerate(SEGMENT_KINDS):
                files = queue.files[kind].files
                if files:
                    tables[TABLES[kind]][path] = {
                        str(file.start_offset): self._row(path, number, file, *times[file]) for file in files
                    }
        ids = self._topic_ids(queues)
        queue_rows: dict[str, dict[str, Any]] = {}
        for queue in queues:
            named = {"brokerName": self._broker, "queueId": queue.queue_id, "topic": queue.topic}
            row = {"queue": named, "minOffset": -1, "maxOffset": -1, "updateTimestamp": latest}
            queue_rows.setdefault(queue.topic, {})[str(queue.queue_id)] = row
        topics = {
            topic: {"topicId": number, "topic": topic, "status": 0, "reserveTime": -1, "updateTimestamp": latest}
            for topic, number in ids.items()
        }
        return {**tables, "queueMetadataTable": queue_rows, "topicMetadataTable": topics,
                "topicSerialNumber": max(ids.values(), default=0)}  # fmt: skip

    def _row(self, path: str, kind: int, file: MappedFile, begin: int, end: int) -> dict[str, Any]:
        return {"path": path, "type": kind, "baseOffset": file.start_offset, "status": 0, "size": file.size,
                "createTimestamp": begin if begin != _NEVER else 0, "beginTimestamp": begin, "endTimestamp": end,
                "sealTimestamp": 0}  # fmt: skip

    def _times(self, queue: TieredQueue) -> dict[MappedFile, tuple[int, int]]:
        """The least and the greatest store time of each segment: of units that of their messages."""
        times = dict.fromkeys((file for kind in SEGMENT_KINDS for file in queue.files[kind].files), (_NEVER, _NEVER))
        for file in queue.log:
            times[file] = self._times_of_log(file)
        for file in queue.units:
            times[file] = self._times_of_units(queue, file)
        for file in queue.files["INDEX"].files:
            with InputFile(file.path) as opened:
                head = opened.read(0, INDEX_HEADER_SIZE)
            if len(head) == INDEX_HEADER_SIZE and integer_at(INDEX_HEADER_DTYPE, "magic", head) == INDEX_MAGIC:
                begin, end = (integer_at(INDEX_HEADER_DTYPE, f"{name}_timestamp", head) for name in ("begin", "end"))
                times[file] = begin, end
        return times

    def _times_of_log(self, file: MappedFile) -> tuple[int, int]:
        runs = (
            event.headers.field("store_timestamp")
            for event in scan_files([file], reading=self._snapshot.reading) if isinstance(event, RecordRun)
        )  # fmt: skip
        found = [(int(each.min()), int(each.max())) for each in runs]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else (_NEVER, _NEVER)

    def _times_of_units(self, queue: TieredQueue, file: MappedFile) -> tuple[int, int]:
        """By its first and last unit: messages are in the order of their times, but for milliseconds."""
        with open_units(queue.queue, self._snapshot.reading) as units:
            count = units.room_of(file)
            ends = [int(units.unit_in(file, at)["physical_offset"]) for at in (0, count - 1)] if count else []
        records = [record for at in ends if (record := single_record_at(queue.log, at)) is not None]
        times = [record.number("store_timestamp") for record in records]
        return (min(times), max(times)) if times else (_NEVER, _NEVER)

    def _topic_ids(self, queues: Sequence[TieredQueue]) -> dict[str, int]:
        """The numbers of topics: those by which items of the index lead to messages of theirs, else new ones."""
        ids: dict[str, int] = {}
        by_place = {(queue.topic, queue.queue_id): queue for queue in queues}
        topics = sorted({queue.topic for queue in queues})
        for segment in self._tier.index.files["INDEX"].files if self._tier.index else ():
            for items in all_items_of(segment):
                for number in np.unique(items["topic_id"]).tolist():
                    if number not in ids.values() and (topic := self._topic_of(
                        items[items["topic_id"] == number], [each for each in topics if each not in ids], by_place
                    )):  # fmt: skip
                        ids[topic] = number
        new = max(ids.values(), default=-1) + 1
        others = [topic for topic in topics if topic not in ids]
        return ids | {topic: number for number, topic in enumerate(others, new)}

    def _topic_of(self, items: Any, topics: Sequence[str], by_place: dict[tuple[str, int], TieredQueue]) -> str | None:
        """The topic to whose message one of the first items leads: with its size, and one of its keys."""
        for item in items[:_TRIED]:
            for topic in topics:
                queue = by_place.get((topic, int(item["queue_id"])))
                record = single_record_at(queue.log, int(item["physical_offset"])) if queue else None
                if record is None or record.number("message_size") != item["message_size"]:
                    continue
                keys = [*split_keys(record.properties.get(KEYS)), record.properties.get(UNIQUE_KEY) or ""]
                if any(int(item["hash"]) in hashes_of(string_hash(f"{topic}#{key}")) for key in keys):
                    return topic
        return None


_TRIED = 64  # items for each number of a topic: messages of some may have expired
