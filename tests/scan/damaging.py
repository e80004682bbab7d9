"""Damage of every kind, drawn by hypothesis and done to the files of a log."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from rmqtool.formats.message import HEADER_DTYPES, MAGIC_CODE_BLANK, MAGIC_CODE_V1, MAGIC_CODE_V2, build_blank
from tests.building import LogBuilder, message

FILE_SIZE = 4096
FILES = 4
LONGEST = 1 << 10
"""No record and no blank of the log is longer, bytes."""

# Every run is the same, and no example is given up for being slow: the oracle is.
deterministic = settings(deadline=None, derandomize=True, database=None)

_WIDTHS = [HEADER_DTYPES[0][name].itemsize for name in HEADER_DTYPES[0].names or ()]
_HEADER_FIELDS = [(sum(_WIDTHS[:number]), width) for number, width in enumerate(_WIDTHS)]
_EXTREMES = (
    0,
    1,
    8,
    90,
    91,
    92,
    FILE_SIZE - 1,
    FILE_SIZE,
    1 << 20,
    128 << 20,
    (128 << 20) + 1,
    2**31 - 1,
    -1,
    -4,
    -(2**31),
)
_MAGIC_CODES = (MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_CODE_BLANK, MAGIC_CODE_V1 ^ 1, 0)


@cache
def whole_log() -> LogBuilder:
    """A log of four files with a message of every form; blanks are filled with what looks like old records."""
    log = LogBuilder(FILE_SIZE, filler=message(1 << 40, body=b"old") + b"\0\xda\xa3")
    zlib_body, text = zlib.compress(b"plain" * 20), "x" * 300
    forms: list[dict[str, object]] = [
        {"properties": {"TAGS": "Aa", "KEYS": "k1 k2", "UNIQ_KEY": "0A" * 16}},
        {"properties": {"TAGS": "Aa", "KEYS": "k3", "UNIQ_KEY": "0B" * 16}, "body": b"b" * 100},
        {"properties": b"TAGS\x01a\x02TAGS\x01b", "body": b""},
        {"magic_code": MAGIC_CODE_V2, "topic": "t" * 200, "sys_flag": 0x30},
        {"sys_flag": 0x1, "body": zlib_body},
        {"sys_flag": 0x201, "body": pa.compress(text.encode(), codec="zstd", asbytes=True)},
        {"sys_flag": 0x10, "properties": b"\x01\x02a\x01\x02\x01b\x02c\x01d\x01e\x02\xff\x01\xfe\x02", "topic": ""},
        {"body": struct.pack(">ii", 91, MAGIC_CODE_V1) + message(1 << 40) + build_blank(8)},
        {"sys_flag": 0x2C, "magic_code": MAGIC_CODE_V2, "queue_offset": 1 << 60},
        {"body": b"\0" * 200, "properties": {"k" * number: "v" for number in range(1, 9)}},
    ]
    number = 0
    while len(log.files) < FILES or len(log.files[-1]) < FILE_SIZE // 2:
        log.add(**forms[number % len(forms)], queue_id=number)
        number += 1
    return log


@dataclass
class Files:
    """The files of a log while they are damaged, by start offset."""

    images: dict[int, bytearray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.images = {start: bytearray(data) for start, data in whole_log().images().items()}

    def write(self, offset: int, data: bytes) -> None:
        """Overwrite from a physical offset, as far as the file that holds it goes."""
        start = offset // FILE_SIZE * FILE_SIZE
        image = self.images.get(start, bytearray())
        position = offset - start
        image[position : position + len(data)] = data[: max(0, len(image) - position)]

    def read(self, offset: int, size: int) -> bytes:
        start = offset // FILE_SIZE * FILE_SIZE
        return bytes(self.images.get(start, b"")[offset - start : offset - start + size])


Damaging = Callable[[Files], None]

anywhere = st.integers(0, FILES * FILE_SIZE - 1)
sizes = st.one_of(st.integers(1, 20), st.integers(1, 2000))
file_starts = st.sampled_from([number * FILE_SIZE for number in range(FILES)])
records = st.deferred(lambda: st.sampled_from(whole_log().offsets))


def _flip(offset: int, bit: int) -> Damaging:
    return lambda files: files.write(offset, bytes(byte ^ 1 << bit for byte in files.read(offset, 1)))


def _write(offset: int, data: bytes) -> Damaging:
    return lambda files: files.write(offset, data)


def _number(record: int, place: tuple[int, int], value: int) -> Damaging:
    position, size = place
    return _write(record + position, (value % (1 << 8 * size)).to_bytes(size, "big"))


def _insert(offset: int, data: bytes) -> Damaging:
    def insert(files: Files) -> None:
        image = files.images.get(offset // FILE_SIZE * FILE_SIZE, bytearray())
        size = len(image)
        image[offset % FILE_SIZE : offset % FILE_SIZE] = data
        del image[size:]

    return insert


def _swap(one: int, other: int, size: int) -> Damaging:
    def swap(files: Files) -> None:
        first, second = files.read(one, size), files.read(other, size)
        files.write(one, second)
        files.write(other, first)

    return swap


def _copy(source: int, target: int, size: int) -> Damaging:
    return lambda files: files.write(target, files.read(source, size))


def _cut(start: int, size: int) -> Damaging:
    def cut(files: Files) -> None:
        if start in files.images:
            del files.images[start][size:]

    return cut


def _remove(start: int) -> Damaging:
    def remove(files: Files) -> None:
        files.images.pop(start, None)

    return remove


def _allocate(count: int) -> Damaging:
    def allocate(files: Files) -> None:
        for number in range(FILES, FILES + count):
            files.images.setdefault(number * FILE_SIZE, bytearray(FILE_SIZE))

    return allocate


damage: st.SearchStrategy[Damaging] = st.one_of(
    st.builds(_flip, anywhere, st.integers(0, 7)),
    st.builds(_write, anywhere, sizes.map(bytes)),
    st.builds(
        lambda page, size: _write(page, bytes(size)), file_starts, st.sampled_from((512, FILE_SIZE // 2, FILE_SIZE))
    ),
    st.builds(_write, anywhere, st.binary(min_size=1, max_size=64)),
    st.builds(_insert, anywhere, st.binary(min_size=1, max_size=64)),
    st.builds(_swap, anywhere, anywhere, sizes),
    st.builds(_copy, records, records, st.integers(1, LONGEST)),
    st.builds(_number, records, st.sampled_from(_HEADER_FIELDS), st.sampled_from(_EXTREMES)),
    st.builds(_number, records, st.just((4, 4)), st.sampled_from(_MAGIC_CODES)),
    st.builds(_number, records, st.just((28, 8)), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(_number, records, st.just((0, 4)), st.integers(0, LONGEST)),
    st.builds(_cut, file_starts, st.integers(0, FILE_SIZE)),
    st.builds(_remove, file_starts),
    st.builds(_allocate, st.integers(1, 2)),
)


@st.composite
def damaged_logs(draw: st.DrawFn) -> dict[int, bytes]:
    """The files of the log by start offset, after up to four damages."""
    files = Files()
    for do in draw(st.lists(damage, min_size=1, max_size=4)):
        do(files)
    return {start: bytes(data) for start, data in files.images.items()}
