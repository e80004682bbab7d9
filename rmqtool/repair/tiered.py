"""Repairs of tiered storage, and metadata written again from the segments: without them a broker overwrites these.

A real 5.5.1 serves all messages of the tier then, and finds by key what it found before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.findings.finding import Finding, counted, first_of
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import integer_at
from rmqtool.formats.properties import KEYS, UNIQUE_KEY, split_keys
from rmqtool.formats.tiered import INDEX_HEADER_DTYPE, INDEX_HEADER_SIZE, INDEX_MAGIC
from rmqtool.repair.change import Change, FileChange, name_in_store
from rmqtool.repair.tiered_queues import OF_QUEUES, SEGMENT, QueueRepair
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import (
    DELETED,
    METADATA,
    NEVER,
    SEGMENT_KINDS,
    TABLES,
    SegmentKind,
    Tier,
    TieredQueue,
    number_of,
    tier_of,
)
from rmqtool.store.tiered_index import all_items_of, hashes_of
from rmqtool.store.unit_files import open_units
from rmqtool.transaction.losses import Loss
from rmqtool.transaction.transaction import Transaction

METADATA_CODE, INDEX_CODE = "tiered.metadata", "tiered.index"
_OF_TIER = OF_QUEUES | {METADATA_CODE, INDEX_CODE}


def tiered_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> Sequence[Change]:
    """The changes for the queues of a tier that findings name, and for the metadata."""
    return _repair_of(snapshot, findings).changes


def tiered_refusals(snapshot: Snapshot, findings: Sequence[Finding]) -> Sequence[tuple[str, str, tuple[str, ...]]]:
    """What of the tier stays as it is: its code, why, and the files that are needed."""
    return _repair_of(snapshot, findings).refusals


@dataclass
class _TierRepair:
    """What a repair does about a tier, found out once for findings."""

    changes: list[Change] = field(default_factory=list)
    refusals: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)


def _repair_of(snapshot: Snapshot, findings: Sequence[Finding]) -> _TierRepair:
    named = {(each.code, each.topic, each.queue_id, each.details.get("cause"))
             for each in findings if each.code in _OF_TIER and each.severity != "info"}  # fmt: skip
    if not named:
        return _TierRepair()
    known: dict[Any, _TierRepair] = snapshot.kept.setdefault(_TierRepair, {})
    key = frozenset(named)
    if key not in known:
        known[key] = _plan(snapshot, findings)
    return known[key]


def _plan(snapshot: Snapshot, findings: Sequence[Finding]) -> _TierRepair:
    plan, tier = _TierRepair(), tier_of(snapshot.store)
    if not isinstance(tier, Tier) or tier.directory is None:
        return plan
    found: dict[tuple[str | None, int | None], set[str]] = {}
    for each in filter(_is_repaired, findings):
        found.setdefault((each.topic, each.queue_id), set()).add(each.code)
    repairs = {
        queue: QueueRepair(snapshot, tier, queue, frozenset(codes))
        for queue in tier.queues if (codes := found.get((queue.topic, queue.queue_id)))
    }  # fmt: skip
    for repair in repairs.values():
        plan.changes += repair.changes
        plan.refusals += repair.refusals
    if any(name in found and not tier.queue(*name) for name in tier.named):
        plan.refusals.append((SEGMENT, _ALL_GONE, ()))
    is_index_short = any(INDEX_CODE in codes for codes in found.values())
    plan.changes += _metadata_change(snapshot, tier, repairs, is_index_short=is_index_short)
    if plan.changes:
        saved = sum(repair.saved for repair in repairs.values())
        plan.changes[-1] = replace(plan.changes[-1], saved=saved)
    return plan


def _is_repaired(finding: Finding) -> bool:
    """Whether it is about the tier, and a repair may help: items of the index, and other messages, are left alone."""
    cause = finding.details.get("cause")
    if finding.code not in _OF_TIER or finding.severity == "info":
        return False
    return cause == "missing" if finding.code == INDEX_CODE else cause != "differs"


def _metadata_change(
    snapshot: Snapshot, tier: Tier, repairs: Mapping[TieredQueue, QueueRepair], *, is_index_short: bool
) -> Iterator[TieredMetadata]:
    """The metadata with the segments of repaired queues, all of them where there were none."""
    metadata = _Metadata(snapshot, tier)
    content = metadata.content if tier.is_unknown else deepcopy(dict(tier.metadata.content))
    for queue, repair in repairs.items():
        if repair.sizes is not None:
            metadata.put(content, queue, repair.sizes)
    if tier.index and is_index_short:
        metadata.put_index(content, tier.index)
    name = name_in_store(snapshot.store, snapshot.store.root / METADATA)
    if name and _as_stored(content) != _as_stored(dict(tier.metadata.content)):
        segments = sum(len(rows) for kind in SEGMENT_KINDS for rows in content.get(TABLES[kind], {}).values())
        what = f"{name}: written again from {counted(segments, 'segment')} of the tier"
        codes = _OF_TIER if repairs else frozenset({METADATA_CODE, INDEX_CODE})
        missing = tuple(snapshot.store.relative(Path(each)) for repair in repairs.values() for each in repair.missing)
        count = sum(repair.lost for repair in repairs.values())
        lost = f"{counted(count, 'message')} of {first_of(missing, 1)}, unless it is restored first" if count else None
        data = json.dumps(content, indent=1).encode()
        yield TieredMetadata(codes=codes, what=what, name=name, missing=missing if count else (),
                             lost=lost, content=data)  # fmt: skip


def _as_stored(content: dict[str, Any]) -> Any:
    """The same with the names that JSON has: a broker's file has numbers there."""
    return json.loads(json.dumps(content))


_ALL_GONE = "no segment of it is left: restore its directory from a copy of the tier"


@dataclass(frozen=True, kw_only=True)
class TieredMetadata(FileChange):
    """The metadata of a tier, which leave out segments that are `missing`."""

    missing: tuple[str, ...] = ()

    def stage(self, transaction: Transaction) -> None:
        """Write the file, and record segments that it leaves out: nothing else shows then that they were there."""
        super().stage(transaction)
        if self.missing:
            transaction.record(Loss(transaction.command, int(time.time() * 1000), files=self.missing))


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
            latest = max([latest, *(end for _, end in times.values() if end != NEVER)])
            path = f"{self._broker}/{queue.topic}/{queue.queue_id}"
            for number, kind in enumerate(SEGMENT_KINDS):
                files = queue.files[kind].files
                if files:
                    tables[TABLES[kind]][path] = {
                        str(file.start_offset): self._row(path, number, file.start_offset, file.size, *times[file])
                        for file in files
                    }
        ids = self._topic_ids(queues)
        queue_rows: dict[str, dict[str, Any]] = {}
        for queue in queues:
            queue_rows.setdefault(queue.topic, {})[str(queue.queue_id)] = self._queue_row(queue, latest)
        topics = {topic: _topic_row(topic, number, latest) for topic, number in ids.items()}
        return {**tables, "queueMetadataTable": queue_rows, "topicMetadataTable": topics,
                "topicSerialNumber": max(ids.values(), default=0)}  # fmt: skip

    def put(self, content: dict[str, Any], queue: TieredQueue, sizes: Mapping[SegmentKind, Mapping[int, int]]) -> None:
        """Put the segments of a queue into the tables, with the sizes that they have after a repair."""
        path = f"{self._broker}/{queue.topic}/{queue.queue_id}"
        times = self._times(queue)
        known = [each for each in times.values() if each[0] != NEVER]
        usual = (min(low for low, _ in known), max(high for _, high in known)) if known else (NEVER, NEVER)
        for kind, segments in sizes.items():
            table = content.setdefault(TABLES[kind], {})
            rows = {int(base): row for base, row in (table.get(path) or {}).items() if isinstance(row, dict)}
            of_files = {file.start_offset: times[file] for file in queue.files[kind].files}
            table[path] = {}
            for base, size in segments.items():
                row = rows.get(base) or self._row(
                    path, SEGMENT_KINDS.index(kind), base, size, *of_files.get(base, usual)
                )
                is_longer = size > number_of(row.get("size"))
                table[path][str(base)] = (
                    {**row, "path": path, "baseOffset": base, "size": size}
                    | ({"endTimestamp": usual[1]} if is_longer else {})
                    | ({"status": 0} if number_of(row.get("status")) == DELETED else {})
                )
        self._name(content, queue, usual[1])

    def _name(self, content: dict[str, Any], queue: TieredQueue, latest: int) -> None:
        """Put topic and queue into the tables, where they are not there, or under another name."""
        topics = content.setdefault("topicMetadataTable", {})
        row = topics.get(queue.topic)
        if isinstance(row, dict):
            topics[queue.topic] = {**row, "topic": queue.topic, "status": 0}
        else:
            ids = [number_of(row.get("topicId")) for row in topics.values() if isinstance(row, dict)]
            number = self._topic_ids([queue]).get(queue.topic, 0)
            number = number if number not in ids else max(ids, default=-1) + 1
            topics[queue.topic] = _topic_row(queue.topic, number, latest)
            content["topicSerialNumber"] = max([number, *ids])
        content.setdefault("queueMetadataTable", {}).setdefault(queue.topic, {})
        queues = content["queueMetadataTable"][queue.topic]
        found = [queues.pop(key, None) for key in (queue.queue_id, str(queue.queue_id))]
        rows = [row for row in found if isinstance(row, dict) and _queue_id_of(row) == queue.queue_id]
        queues[str(queue.queue_id)] = rows[0] if rows else self._queue_row(queue, latest)

    def put_index(self, content: dict[str, Any], index: TieredQueue) -> None:
        """Leave out segments of the index that are not there."""
        there = {file.start_offset for file in index.files["INDEX"].files}
        table = content.get(TABLES["INDEX"], {})
        path = f"{self._broker}/{index.topic}/{index.queue_id}"
        if path in table:
            table[path] = {base: row for base, row in table[path].items() if int(base) in there}

    def _queue_row(self, queue: TieredQueue, latest: int) -> dict[str, Any]:
        named = {"brokerName": self._broker, "queueId": queue.queue_id, "topic": queue.topic}
        return {"queue": named, "minOffset": -1, "maxOffset": -1, "updateTimestamp": latest}

    def _row(self, path: str, kind: int, base: int, size: int, begin: int, end: int) -> dict[str, Any]:
        return {"path": path, "type": kind, "baseOffset": base, "status": 0, "size": size,
                "createTimestamp": begin if begin != NEVER else 0, "beginTimestamp": begin, "endTimestamp": end,
                "sealTimestamp": 0}  # fmt: skip

    def _times(self, queue: TieredQueue) -> dict[MappedFile, tuple[int, int]]:
        """The least and the greatest store time of each segment: of units that of their messages."""
        times = dict.fromkeys((file for kind in SEGMENT_KINDS for file in queue.files[kind].files), (NEVER, NEVER))
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
        return (min(low for low, _ in found), max(high for _, high in found)) if found else (NEVER, NEVER)

    def _times_of_units(self, queue: TieredQueue, file: MappedFile) -> tuple[int, int]:
        """By its first and last unit: messages are in the order of their times, but for milliseconds."""
        with open_units(queue.queue, self._snapshot.reading) as units:
            count = units.room_of(file)
            ends = [int(units.unit_in(file, at)["physical_offset"]) for at in (0, count - 1)] if count else []
        records = [record for at in ends if (record := single_record_at(queue.log, at)) is not None]
        times = [record.number("store_timestamp") for record in records]
        return (min(times), max(times)) if times else (NEVER, NEVER)

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


def _queue_id_of(row: Mapping[str, Any]) -> int | None:
    name = row.get("queue")
    return number_of(name.get("queueId")) if isinstance(name, dict) and "queueId" in name else None


def _topic_row(topic: str, number: int, latest: int) -> dict[str, Any]:
    return {"topicId": number, "topic": topic, "status": 0, "reserveTime": -1, "updateTimestamp": latest}


_TRIED = 64  # items for each number of a topic: messages of some may have expired
