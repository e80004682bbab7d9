"""Where a fuzzer begins: pieces of golden stores, which brokers wrote."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.layout import integer_at, position_of
from rmqtool.formats.message import PREFIX_DTYPE
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.golden.stores import unpack

_OFFSET = position_of(PREFIX_DTYPE, "physical_offset")
PLAIN = "5.5.0-clean"
EXTRAS = "more/5.5.0-extras"
COMPACTED = "more/5.5.0-compacted"
TIERED = "more/5.5.1-tiered"
DLEDGER = "more/5.3.3-dledger"
ROCKSDB = "more/5.5.0-rocksdb"
_SIZE = 4096
"""Of larger files so many bytes are enough."""


@cache
def _unpacked(name: str) -> TemporaryDirectory[str]:
    directory = TemporaryDirectory(prefix="rmqtool-seeds-")
    unpack(name, Path(directory.name))
    return directory


def store(name: str) -> Path:
    """A golden store, unpacked for as long as the process lives."""
    return Path(_unpacked(name).name) / name


def files(name: str, pattern: str, most: int = 3, size: int = _SIZE) -> Iterator[bytes]:
    """The beginnings of some files of a store."""
    found = [path for path in sorted(store(name).glob(pattern)) if path.is_file() and path.stat().st_size]
    for path in found[:most]:
        with path.open("rb") as file:
            yield file.read(size)


@cache
def records(most: int = 24) -> tuple[bytes, ...]:
    """Records of a store, each of other flags or another size, as if each were the first of its log."""
    found: dict[tuple[int, int], bytes] = {}
    for event in scan_files(list_mapped_files(store(PLAIN) / "commitlog").files):
        if not isinstance(event, RecordRun):
            continue
        for position, size in zip(event.positions.tolist(), event.message_sizes.tolist(), strict=True):
            record = event.block.data[position : position + size]
            found.setdefault((integer_at(PREFIX_DTYPE, "sys_flag", record), size // 64), record)
    return tuple(rebased(record, 0) for record in list(found.values())[:most])


def rebased(record: bytes, physical_offset: int) -> bytes:
    """A record as if it stood at another place in the log."""
    moved = bytearray(record)
    struct.pack_into(">q", moved, _OFFSET, physical_offset)
    return bytes(moved)


def log(most: int = 6) -> bytes:
    """A small log of some of the records."""
    data = b""
    for record in records()[:most]:
        data += rebased(record, len(data))
    return data
