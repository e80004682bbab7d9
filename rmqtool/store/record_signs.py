"""Signs of the broker's version in records and in index units (see `rmqtool.rules.versions.SIGNS`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.crc import CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.index_file import UNIT_SIZE, decode_units, key_hash, unit_position
from rmqtool.formats.message import HOST_BITS, MAGIC_CODE_V2
from rmqtool.formats.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, INNER_BATCH
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.record_at import record_at
from rmqtool.store.index_files import Geometry, IndexFile

_PROBED_UNITS = 16  # the newest of the newest index file: with tags, every third unit is one of a tag
_MOST_PROBES = 64  # of so many units, from the newest ones back, until one tells
_NEWEST_FILES = 3  # the last two may be allocated ahead and empty
_TAG_KEY_PREFIX = "T#"  # topic#T#TAGS: IndexService#buildKey with MessageConst.INDEX_TAG_TYPE


def sampled_signs(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> set[str]:
    """Names of the signs in the first records of the first, the middle and the last files."""
    sampled = {*files[:1], *files[len(files) // 2 :][:1], *files[-_NEWEST_FILES:]}
    found: set[str] = set()
    for mapped in sampled:
        frames = next((event for event in scan_files([mapped], reading=reading) if isinstance(event, RecordRun)), None)
        if frames is not None:
            found |= record_signs(frames)
    return found


def record_signs(frames: RecordRun) -> set[str]:
    """Names of the signs that some record of a run shows."""
    found = set()
    flags = frames.headers.field("sys_flag")
    if (flags & HOST_BITS).any():
        found.add("ipv6-host")
    if (flags & INNER_BATCH).any():
        found.add("inner-batch")
    if (((flags & COMPRESSED) != 0) & ((flags & COMPRESSION_TYPE_MASK) != 0)).any():
        found.add("compression-type")
    if (frames.headers.field("magic_code") == MAGIC_CODE_V2).any():
        found.add("magic-code-v2")
    if _has_crc32_property(frames):
        found.add("crc32-property")
    return found


def _has_crc32_property(frames: RecordRun) -> bool:
    long_enough = frames.properties_sizes >= CRC32_PROPERTY_SIZE
    places = (frames.positions + frames.message_sizes)[long_enough] - CRC32_PROPERTY_SIZE
    names = frames.block.gather("<u8", places)
    return bool((names == np.uint64(int.from_bytes(CRC32_PROPERTY, "little"))).any())


def index_signs(newest: IndexFile, geometry: Geometry, files: Sequence[MappedFile]) -> Iterator[str]:
    """Names of the signs that the newest units of an index file show, looked up in the commit log."""
    if holds_tags(newest, geometry, files):
        yield "index-of-tags"


def holds_tags(newest: IndexFile, geometry: Geometry, files: Sequence[MappedFile]) -> bool | None:
    """Whether the newest units of an index file are of tags too; None where no message in it has tags.

    Messages without tags show nothing: then older units are read.
    """
    stop = newest.keys + 1
    with InputFile(newest.path) as file:
        for _ in range(_MOST_PROBES):
            first = max(1, stop - _PROBED_UNITS)
            units = decode_units(file.read(unit_position(geometry.slots, first), (stop - first) * UNIT_SIZE))
            told = set()
            for physical_offset in np.unique(units["physical_offset"]).tolist():
                hashes = set(units["key_hash"][units["physical_offset"] == physical_offset].tolist())
                told.add(_has_tags_among(hashes, physical_offset, files))
            if told != {None}:
                return True in told
            if first == 1:
                break
            stop = first
    return None


def _has_tags_among(hashes: set[int], physical_offset: int, files: Sequence[MappedFile]) -> bool | None:
    """Whether one of the stored hashes is that of a record's tags and of none of its keys; None without tags."""
    frame = record_at(files, physical_offset)
    if frame is None:
        return None
    (row,) = next(record_batches(frame, ("topic", "tags"))).to_pylist()
    of_tags = key_hash(row["topic"], _TAG_KEY_PREFIX + (row["tags"] or ""))
    if not row["tags"]:
        return None
    if of_tags not in hashes:
        return False
    (keyed,) = next(record_batches(frame, ("keys", "unique_key"))).to_pylist()
    keys = [*keyed["keys"], *([keyed["unique_key"]] if keyed["unique_key"] else [])]
    return of_tags not in {key_hash(row["topic"], key) for key in keys} or None
