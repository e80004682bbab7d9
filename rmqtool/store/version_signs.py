"""Evidence in a store of the releases that wrote it: signs that a release introduced, and traces that one removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, read_all
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import has_entry
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats.index_file import UNIT_DTYPE, UNIT_SIZE, key_hash, unit_position
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import decode_units
from rmqtool.formats.message import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    CRC32_PROPERTY,
    CRC32_PROPERTY_SIZE,
    HOST_BITS,
    INNER_BATCH,
    MAGIC_CODE_V2,
)
from rmqtool.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqtool.rules.versions import (
    FASTJSON_2,
    INDEX_COUNTS_SLOTS,
    INDEX_OF_TAGS,
    OFFSETS_HAVE_DATA_VERSION,
    PULL_OFFSETS_KEPT,
    PULL_OFFSETS_KEPT_NO_MORE,
    Releases,
    Version,
    sorted_signs,
)
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.checkpoint import credible
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.config_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, TOPICS, CommittedOffsets, entries_in
from rmqtool.store.index_files import Geometry, IndexFile, is_of_rebuild
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CONFIG,
    CONSUME_QUEUE,
    SEPARATE_ROCKSDB_QUEUES,
    Store,
    is_rocksdb_directory,
)

_BY_PATH = {
    "abort.bak": "abort.bak",
    "timerwheel": "timer",
    "timerlog": "timer",
    BATCH_CONSUME_QUEUE: "batch-queue",
    "compaction": "compaction",
    "rocksdbstore": "rocksdbstore",
    SEPARATE_ROCKSDB_QUEUES: "separate-rocksdb-queues",
    f"{CONFIG}/{LMQ_CONSUMER_OFFSET}": "lmq-consumer-offset",
    f"{CONFIG}/timercheck": "timer",
    f"{CONFIG}/topicQueueMapping.json": "config-5.0",
    f"{CONFIG}/consumerOrderInfo.json": "config-5.0",
    f"{CONFIG}/messageRequestMode.json": "config-5.0",
    f"{CONFIG}/transactionMetrics": "transaction-metrics",
}
_MAX_OFFSETS_READ = 1 << 20  # bytes of the offsets that are read for the way in which they are written
_BY_CHECKPOINT = {
    "master_flushed_offset": "checkpoint-master-flushed-offset",
    "confirm_physical_offset": "checkpoint-confirm-offset",
    "logics_physical_offset": "checkpoint-logics-offset",
}


PULL_OFFSETS = "pullOffsetTable"

_FASTJSON_1 = re.compile(r'"[^"@]+@[^"]+":\{-?\d+:-?\d+(,-?\d+:-?\d+)*\n\t\t\}')
_FASTJSON_2 = re.compile(r'"[^"@]+@[^"]+":\{\n\t\t\t-?\d+:-?\d+')


class Trace(NamedTuple):
    """Something in a store by which the last broker on it was one since a release, before one, or `other_than` one."""

    name: str
    since: Version | None = None
    before: Version | None = None
    other_than: Version | None = None


def releases_of(signs: Iterable[str], traces: Iterable[Trace]) -> Releases:
    """The releases that the last broker on a store may have been of, by the evidence in the store."""
    releases = Releases()
    for sign in sorted_signs(signs):
        releases = releases.narrow(sign.name, since=sign.since)
    for trace in traces:
        releases = releases.narrow(trace.name, since=trace.since, before=trace.before, other_than=trace.other_than)
    return releases


def offset_traces(file: ConfigFile) -> Iterator[Trace]:
    """A running broker writes its offsets every few seconds, so they are as the last one wrote them."""
    if file.path is None:
        return
    text = ""
    with skip_unreadable():
        text = decode_text(read_all(file.path, _MAX_OFFSETS_READ))
    if _FASTJSON_2.search(text):
        yield Trace("offsets-by-fastjson-2", since=FASTJSON_2)
        if PULL_OFFSETS in file.content:
            yield Trace("pull-offsets", since=PULL_OFFSETS_KEPT, before=PULL_OFFSETS_KEPT_NO_MORE)
        else:
            yield Trace("no-pull-offsets", other_than=PULL_OFFSETS_KEPT)
    elif _FASTJSON_1.search(text):
        yield Trace("offsets-by-fastjson-1", before=FASTJSON_2)
        if '"dataVersion"' not in text:
            yield Trace("offsets-without-data-version", before=OFFSETS_HAVE_DATA_VERSION)


def index_traces(newest: IndexFile, geometry: Geometry, *, has_tags: bool | None) -> Iterator[Trace]:
    """Traces in the newest index file that holds units; `has_tags` is the result of `holds_tags` for it."""
    if newest.hash_slot_count == newest.keys > geometry.slots:
        yield Trace("index-slots-counted-per-put", before=INDEX_COUNTS_SLOTS)
    if has_tags is not None and not (has_tags and is_of_rebuild(newest)):
        # A rebuild leaves tags out only where the release is known to be older.
        name = "index-of-tags" if has_tags else "index-without-tags"
        yield Trace(name, since=INDEX_OF_TAGS if has_tags else None, before=None if has_tags else INDEX_OF_TAGS)


def file_signs(store: Store, committed: CommittedOffsets, *, is_lmq: bool) -> set[str]:
    """Names of the signs that paths and configuration show, and light queues (`is_lmq`)."""
    return {*_path_signs(store.root), *_config_signs(store.root / CONFIG, committed.file), *(["lmq-queue"] * is_lmq)}


def checkpoint_signs(checkpoint: Mapping[str, int] | None) -> set[str]:
    """Names of the signs that the checkpoint shows: fields that older releases leave 0."""
    fields = credible(checkpoint)
    return {sign for name, sign in _BY_CHECKPOINT.items() if fields.get(name, 0) > 0}


def index_signs(index_files: Iterable[IndexFile]) -> set[str]:
    """Names of the signs that the headers of the index files show."""
    of_brokers = (file for file in index_files if not is_of_rebuild(file))
    is_counted_once = any(0 < file.hash_slot_count < file.keys for file in of_brokers)
    return {"index-slots-counted-once"} if is_counted_once else set()


def _path_signs(root: Path) -> Iterator[str]:
    yield from (sign for path, sign in _BY_PATH.items() if has_entry(root / path))
    if is_rocksdb_directory(root / CONSUME_QUEUE):
        yield "rocksdb-queues"
    with skip_unreadable():  # missing or unreadable: no sign
        if read_all(root / ABORT_FILE, 1):
            yield "abort-process-id"


def _config_signs(config: Path, offsets: ConfigFile) -> Iterator[str]:
    is_plain = offsets.path is not None and offsets.path.name.startswith(CONSUMER_OFFSET)
    plain = offsets if is_plain else load_config(config / CONSUMER_OFFSET)
    for content in (load_config(config / TOPICS).content, plain.content):
        if "stateVersion" in entries_in(content, "dataVersion"):
            yield "state-version"
        if PULL_OFFSETS in content:
            yield "pull-offset-table"


_PROBED_UNITS = 16  # the newest of the newest index file: with tags, every third unit is one of a tag
_MAX_PROBES = 64  # of so many units, from the newest ones back, until one is evidence
_NEWEST_FILES = 3  # the last two may be allocated in advance and empty
_TAG_KEY_PREFIX = "T#"  # topic#T#TAGS: IndexService#buildKey with MessageConst.INDEX_TAG_TYPE


def sampled_signs(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> set[str]:
    """Names of the signs in the first records of the first, the middle and the last files."""
    sampled = {*files[:1], *files[len(files) // 2 :][:1], *files[-_NEWEST_FILES:]}
    names: set[str] = set()
    for mapped in sampled:
        frames = next((event for event in scan_files([mapped], reading=reading) if isinstance(event, RecordRun)), None)
        if frames is not None:
            names |= record_signs(frames)
    return names


def record_signs(frames: RecordRun) -> set[str]:
    """Names of the signs that some record of a run shows."""
    flags = frames.headers.field("sys_flag")
    long_enough = frames.properties_sizes >= CRC32_PROPERTY_SIZE
    ends = (frames.positions + frames.message_sizes)[long_enough]
    last_names = frames.block.gather("<u8", ends - CRC32_PROPERTY_SIZE)
    shown = {
        "ipv6-host": (flags & HOST_BITS) != 0,
        "inner-batch": (flags & INNER_BATCH) != 0,
        "compression-type": ((flags & COMPRESSED) != 0) & ((flags & COMPRESSION_TYPE_MASK) != 0),
        "magic-code-v2": frames.headers.field("magic_code") == MAGIC_CODE_V2,
        "crc32-property": last_names == np.uint64(int.from_bytes(CRC32_PROPERTY, "little")),
    }
    return {name for name, records in shown.items() if records.any()}


def holds_tags(newest: IndexFile, geometry: Geometry, files: Sequence[MappedFile]) -> bool | None:
    """Whether the newest units of an index file include tags; None where no message in it has tags.

    Messages without tags are no evidence: then older units are read.
    """
    stop = newest.units(geometry) + 1
    with InputFile(newest.path) as file:
        for _ in range(_MAX_PROBES):
            first = max(1, stop - _PROBED_UNITS)
            units = decode_units(
                UNIT_DTYPE, file.read(unit_position(geometry.slots, first), (stop - first) * UNIT_SIZE)
            )
            has_tags = set()
            for physical_offset in sorted(set(units["physical_offset"].tolist())):
                hashes = set(units["key_hash"][units["physical_offset"] == physical_offset].tolist())
                has_tags.add(_has_tags_among(hashes, physical_offset, files))
            if has_tags != {None}:
                return True in has_tags
            if first == 1:
                break
            stop = first
    return None


def _has_tags_among(hashes: set[int], physical_offset: int, files: Sequence[MappedFile]) -> bool | None:
    """Whether one of the stored hashes is that of a record's tags and of none of its keys; None without tags."""
    record = single_record_at(files, physical_offset)
    if record is None:
        return None
    properties = record.properties
    tags = properties.get(TAGS)
    if not tags:  # the broker has no key of empty ones
        return None
    topic = record.topic
    of_tags = key_hash(topic, _TAG_KEY_PREFIX + tags)
    if of_tags not in hashes:
        return False
    keys = [*split_keys(properties.get(KEYS)), *filter(None, [properties.get(UNIQUE_KEY)])]
    return of_tags not in {key_hash(topic, key) for key in keys} or None
