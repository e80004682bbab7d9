"""Commit logs for tests: messages with sensible defaults, laid out in files as a broker does."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import (
    BLANK_SIZE,
    BORN_HOST_V6,
    MAGIC_CODE_V1,
    PREFIX_DTYPE,
    STORE_HOST_V6,
    body_crc,
    build_blank,
    build_host,
    build_message,
)
from rmqtool.formats.properties import encode_properties

V4 = ("192.0.2.17", 43210)
V6 = ("2001:db8::17", 43210)
_HOSTS = (build_host(*V4), build_host(*V6))
START_TIME = 1_700_000_000_000
LOG = "commitlog"
GIB = 1 << 30
QUEUE_FILE = 6_000_000
"""Size of a file of a consume queue by default, bytes."""
_OFFSET_AT = position_of(PREFIX_DTYPE, "physical_offset")


def message(physical_offset: int = 0, **fields: Any) -> bytes:
    """Encode one record. Fields not given are those of a plain message; the body's CRC and the hosts are right.

    `topic` may be text, `properties` a mapping; IPv6 hosts follow the bits of `sys_flag`.
    """
    sys_flag = fields.get("sys_flag", 0)
    body = fields.get("body", b"body")
    properties = fields.pop("properties", b"")
    if isinstance(properties, Mapping):
        properties = encode_properties(properties)
    topic = fields.pop("topic", "orders")
    values: dict[str, Any] = {
        "magic_code": MAGIC_CODE_V1,
        "body_crc": body_crc(body),
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "physical_offset": physical_offset,
        "sys_flag": sys_flag,
        "born_timestamp": START_TIME,
        "born_host": _HOSTS[bool(sys_flag & BORN_HOST_V6)],
        "store_timestamp": START_TIME + 1,
        "store_host": _HOSTS[bool(sys_flag & STORE_HOST_V6)],
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "topic": topic.encode() if isinstance(topic, str) else topic,
        "properties": properties,
    }
    return build_message(**{**values, **fields})


class LogBuilder:
    """A commit log that grows message by message; `files` holds the bytes of each file, the last one as far as written.

    `offsets` are the physical offsets of all records. Where the next record and a blank's eight bytes do not fit,
    the file is ended with a blank; `filler` repeated is what stands after it.
    """

    def __init__(self, file_size: int = 4096, start_offset: int = 0, filler: bytes = b"\0") -> None:
        self.file_size = file_size
        self.start_offset = start_offset
        self.filler = filler
        self.files = [bytearray()]
        self.offsets: list[int] = []

    @property
    def end(self) -> int:
        """Physical offset of the next record when it fits into the last file."""
        return self.start_offset + (len(self.files) - 1) * self.file_size + len(self.files[-1])

    def add(self, **fields: Any) -> int:
        """Append a message; return its physical offset."""
        record = bytearray(message(**fields))
        if len(self.files[-1]) + len(record) + BLANK_SIZE > self.file_size:
            self.roll()
        self.offsets.append(self.end)
        struct.pack_into(">q", record, _OFFSET_AT, self.end)
        self.files[-1] += record
        return self.offsets[-1]

    def add_all(self, messages: Iterable[Mapping[str, Any]]) -> LogBuilder:
        """Append a message for each mapping of fields."""
        for fields in messages:
            self.add(**fields)
        return self

    def roll(self) -> None:
        """End the last file with a blank and begin the next."""
        rest = self.file_size - len(self.files[-1])
        filler = self.filler * (rest // len(self.filler) + 1)
        self.files[-1] += (build_blank(rest) + filler)[:rest]
        self.files.append(bytearray())

    def images(self) -> dict[int, bytes]:
        """The bytes of each file by its start offset, the last one filled up with zeros."""
        starts = range(self.start_offset, self.end + 1, self.file_size)
        return {start: bytes(data).ljust(self.file_size, b"\0") for start, data in zip(starts, self.files, strict=True)}

    def write(self, store: Path) -> Path:
        """Write the files below `store`; return it."""
        return write_log(store, self.images())


def write_log(store: Path, images: Mapping[int, bytes]) -> Path:
    """Write commit log files by their start offsets below `store`, and remove others; return `store`."""
    folder = store / LOG
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for start, data in images.items():
        (folder / file_name(start)).write_bytes(data)
    return store


def write_sparse(path: Path, pieces: Mapping[int, bytes], size: int) -> Path:
    """Write a file of `size` bytes that holds `pieces` at their positions and holes elsewhere; return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        for position, data in pieces.items():
            file.seek(position)
            file.write(data)
    return path


def write_sparse_log(root: Path, files: int, records: int) -> Path:
    """Log files of 1 GiB, full by their blanks: so many records and a blank in each, then a hole; return `root`."""
    size = len(message())
    for start in range(0, files * GIB, GIB):
        data = b"".join(message(start + number * size, queue_offset=number) for number in range(records))
        write_sparse(root / LOG / file_name(start), {0: data + build_blank(GIB - len(data))}, GIB)
    return root


def write_large_store(root: Path, log_files: int, queues: int) -> Path:
    """A store of sparse files of the default sizes: records at the head of each, three files in each queue."""
    offsets_of: list[int] = []
    for number in range(log_files):
        start = number * GIB
        records = message(start) + message(start + len(message()))
        offsets_of += [start, start + len(message())]
        write_sparse(root / LOG / file_name(start), {0: records}, GIB)
    first, last = build_unit(offsets_of[0], 100, 0), build_unit(offsets_of[-1], 100, 0)
    pieces = [{0: first, QUEUE_FILE - 20: first}, {0: first, QUEUE_FILE - 20: last}, {0: last * 100}]
    for number in range(queues):
        directory = root / "consumequeue" / f"topic{number // 8}" / str(number % 8)
        for place, piece in enumerate(pieces):
            write_sparse(directory / file_name(place * QUEUE_FILE), piece, QUEUE_FILE)
    return root
