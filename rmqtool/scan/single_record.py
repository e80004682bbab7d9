"""One position of the log, read without a scan: what is there, and the sound record that begins there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.dledger import ENTRY_DTYPE, MAGIC_BLANK, MAGIC_ENTRY
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import integer_at, position_of, struct_of
from rmqtool.formats.message import (
    BLANK_SIZE,
    BODY_SIZE_WIDTH,
    HEAD,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MAGIC_POSITION,
    MAX_PROPERTIES_SIZE,
    MESSAGE_SIZE_WIDTH,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
    PROPERTIES_SIZE_WIDTH,
    SIZE_AND_MAGIC,
    topic_size_width,
)
from rmqtool.formats.properties import decode_properties
from rmqtool.scan.block import BLOCK_SIZE, MAX_MESSAGE_SIZE, Block
from rmqtool.scan.frames import RecordRun, sound_prefix

T = TypeVar("T")
Kind = Literal["message", "blank", "zeroed", "magic-code", "physical-offset", "lengths", "truncated"]

MAGIC_CODES = re.compile(
    b"|".join(
        re.escape(code.to_bytes(4, "big", signed=True)) for code in (MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_CODE_BLANK)
    )
)
_OF_MESSAGES = (MAGIC_CODE_V1, MAGIC_CODE_V2)
_OVERLAP = SIZE_AND_MAGIC.size
_ENTRY_START = struct_of(ENTRY_DTYPE, "magic", "size")
_LEADING_ZEROS = 3
_FIRST_READ = 16 << 10  # damage is mostly small; only where it is not, more is read at once, bytes


class Probe:
    """The kind and size of the bytes at `position` of a file whose first byte has physical offset `start_offset`.

    With a `header_size` these are an entry of DLedger: a header of so many bytes and, at `record_position`, a message.
    """

    def __init__(self, file: InputFile, start_offset: int, position: int, header_size: int = 0) -> None:
        self.file = file
        self.start_offset = start_offset
        self.position = position
        self.record_position = position + header_size
        self.size = 0
        self.topic_position = self.topic_size = 0  # of a message
        self.kind = self._kind_of_entry() if header_size else self._kind_of_bytes()

    def _kind_of_entry(self) -> Kind:
        head = self.file.read(self.position, _ENTRY_START.size)
        if len(head) < _ENTRY_START.size:
            return "truncated" if head.strip(b"\0") else "zeroed"
        magic, size = _ENTRY_START.unpack(head)
        self.size = size
        if magic == MAGIC_BLANK:
            return "blank"
        if magic != MAGIC_ENTRY:
            return "magic-code" if any(head) else "zeroed"
        if self.position + size > self.file.size:
            return "truncated" if size <= MAX_MESSAGE_SIZE else "lengths"
        kind = self._kind_of_bytes()
        if kind == "message" and self.record_position + self.size != self.position + size:
            return "lengths"
        self.size = size
        return "magic-code" if kind in ("blank", "zeroed") else kind

    def _kind_of_bytes(self) -> Kind:
        head = self.file.read(self.record_position, HEAD.size)
        if len(head) >= BLANK_SIZE:
            self.size, magic_code = SIZE_AND_MAGIC.unpack_from(head)
            if magic_code == MAGIC_CODE_BLANK:
                return "blank"
            if self.size == 0 and magic_code == 0:
                return "zeroed"
            if magic_code not in (MAGIC_CODE_V1, MAGIC_CODE_V2):
                return "magic-code"
        elif not head.strip(b"\0"):
            return "zeroed"
        if len(head) < HEAD.size:
            return "truncated"
        _, magic_code, physical_offset, sys_flag = HEAD.unpack(head)
        if physical_offset != self.start_offset + self.record_position:
            return "physical-offset"
        return self._check_lengths(magic_code, sys_flag)

    def _check_lengths(self, magic_code: int, sys_flag: int) -> Kind:
        header_size = HEADER_DTYPES[sys_flag & HOST_BITS].itemsize
        width = topic_size_width(magic_code)
        if not header_size + width + PROPERTIES_SIZE_WIDTH <= self.size <= MAX_MESSAGE_SIZE:
            return "lengths"
        if self.record_position + self.size > self.file.size:
            return "truncated"
        body_size = _signed(self.file.read(self.record_position + header_size - BODY_SIZE_WIDTH, BODY_SIZE_WIDTH))
        rest = self.size - header_size - body_size - width - PROPERTIES_SIZE_WIDTH
        if body_size < 0 or rest < 0:
            return "lengths"
        topic_at = self.record_position + self.size - PROPERTIES_SIZE_WIDTH - rest - width
        topic_size = _signed(self.file.read(topic_at, width))
        if not 0 <= topic_size <= rest:
            return "lengths"
        self.topic_position, self.topic_size = topic_at + width, topic_size
        properties_size = _signed(self.file.read(topic_at + width + topic_size, PROPERTIES_SIZE_WIDTH))
        return "message" if properties_size == rest - topic_size else "lengths"

    @cached_property
    def by_lengths(self) -> tuple[int, int]:
        """The size of a record with a sound head by the lengths in it, whatever size it says; and its last length."""
        _, magic_code, _, sys_flag = HEAD.unpack(self.file.read(self.record_position, HEAD.size))
        end = self.record_position + HEADER_DTYPES[sys_flag & HOST_BITS].itemsize - BODY_SIZE_WIDTH
        length = 0
        for width in (BODY_SIZE_WIDTH, topic_size_width(magic_code), PROPERTIES_SIZE_WIDTH):
            length = _signed(self.file.read(end, width))
            end += width + max(0, length)
        return end - self.record_position, length


def read_message(files: Sequence[MappedFile], physical_offset: int, read: Callable[[Probe], T]) -> T | None:
    """What `read` makes of the sound message that begins at `physical_offset`; None when none does."""
    mapped = file_at(files, physical_offset)
    if mapped is None:
        return None
    position = physical_offset - mapped.start_offset - mapped.header_size
    if position < 0:
        return None
    with InputFile(mapped.path) as file:
        probe = Probe(file, mapped.start_offset, position, mapped.header_size)
        return read(probe) if probe.kind == "message" else None


def find_next(file: InputFile, start_offset: int, position: int, header_size: int = 0, limit: int | None = None) -> int:
    """Position of the first sound record or blank at or after `position`; the file's size when there is none.

    A blank counts only when its size leads exactly to the end of the file. With a `header_size` it is that of an entry.
    What begins at or behind position `limit` need not be found.
    """
    limit = file.size if limit is None else limit
    overlap, first = _OVERLAP + header_size, position
    size = _FIRST_READ
    while position < limit:
        size = min(size, BLOCK_SIZE)
        data = file.read(position, size)
        for match in MAGIC_CODES.finditer(data):
            before = match.start() - MAGIC_POSITION - header_size
            if before >= 0 and is_sound(Probe(file, start_offset, position + before, header_size)):
                return position + before
        if position + len(data) >= file.size or len(data) < overlap:
            break
        position = skip_zeros(file, position + len(data) - overlap + 1, limit)
        size *= 4
    return blank_of_entries(file, first) if header_size else file.size


def blank_of_entries(file: InputFile, position: int) -> int:
    """Position of the blank at the end of a file of entries, at or after `position`; the file's size without one."""
    end = file.data_end(position)
    for start in range(max(position, end - _ENTRY_START.size), end):  # its last bytes may be zero
        head = file.read(start, _ENTRY_START.size)
        if head == _ENTRY_START.pack(MAGIC_BLANK, file.size - start):
            return start
    return file.size


def skip_zeros(file: InputFile, position: int, limit: int) -> int:
    """The first position from `position` to `limit` where a record can begin, as `record_start` of the next byte."""
    return record_start(position, file.next_data(position, limit))


def record_start(position: int, data: int) -> int:
    """Where a record can begin, at or after `position`, before the first byte that is not zero, at `data`.

    Up to three bytes of its size are zero.
    """
    return max(position, data - _LEADING_ZEROS)


def is_sound(probe: Probe) -> bool:
    """Whether it is a record, or a blank whose size leads exactly to the end of the file."""
    if probe.kind == "blank":
        return probe.position + probe.size == probe.file.size
    return probe.kind == "message"


def is_moved(probe: Probe) -> bool:
    """Whether it is a record that is sound but for its stored physical offset: no unclean stop leaves such a record."""
    stored = HEAD.unpack(probe.file.read(probe.record_position, HEAD.size))[2]
    header_size = probe.record_position - probe.position
    return Probe(probe.file, stored - probe.record_position, probe.position, header_size).kind == "message"


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


class SingleRecord:
    """A sound record: the fields before its body, its topic and its properties."""

    def __init__(self, header: bytes, topic: bytes, properties: bytes) -> None:
        """`header` may be longer than the fields before the body."""
        self.header = header
        self.layout = HEADER_DTYPES[integer_at(PREFIX_DTYPE, "sys_flag", header) & HOST_BITS]
        self._topic = topic
        self._properties = properties

    def number(self, field: str) -> int:
        """An integer field of `MessageUnit` that stands before the body."""
        return integer_at(self.layout, field, self.header)

    @property
    def store_host(self) -> bytes:
        """The broker's host as stored."""
        start = position_of(self.layout, "store_host")
        return self.header[start : start + self.layout["store_host"].itemsize]

    @property
    def topic(self) -> str:
        """The topic."""
        return decode_text(self._topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties."""
        return decode_properties(self._properties)


def single_record_at(files: Sequence[MappedFile], physical_offset: int) -> SingleRecord | None:
    """The sound record that begins at `physical_offset`; None when none does."""
    return read_message(files, physical_offset, _read)


def properties_at(files: Sequence[MappedFile], physical_offset: int) -> dict[str, str] | None:
    """The properties of the sound record at `physical_offset`; None without one, or where it cannot be read."""
    with suppress(RmqtoolError):  # which the scan reports
        record = single_record_at(files, physical_offset)
        return None if record is None else record.properties
    return None


def _read(probe: Probe) -> SingleRecord:
    header = probe.file.read(probe.record_position, HEADER_DTYPES[HOST_BITS].itemsize)
    rest = probe.file.read(probe.topic_position, probe.position + probe.size - probe.topic_position)
    return SingleRecord(header, rest[: probe.topic_size], rest[probe.topic_size + PROPERTIES_SIZE_WIDTH :])


def message_at(files: Sequence[MappedFile], physical_offset: int) -> tuple[dict[str, str], bytes] | None:
    """Properties and body of the sound record at `physical_offset`; None without one, or where it cannot be read."""
    record = None
    with suppress(RmqtoolError):  # which the scan reports
        record = record_at(files, physical_offset)
    if record is None:
        return None
    at, size = int(record.properties_positions[0]), int(record.properties_sizes[0])
    body, body_size = int(record.body_positions[0]), int(record.body_sizes[0])
    view = record.block.view
    return decode_properties(bytes(view[at : at + size])), bytes(view[body : body + body_size])


def record_at(files: Sequence[MappedFile], physical_offset: int) -> RecordRun | None:
    """The sound record that begins at `physical_offset`, as a run of one; None when none does."""
    return read_message(files, physical_offset, _record)


def _record(probe: Probe) -> RecordRun | None:
    size = probe.position + probe.size - probe.record_position
    block = Block(size)
    block.fill(probe.file, probe.record_position, size, probe.start_offset + probe.record_position)
    return sound_prefix(block, _FIRST) or None


_FIRST = np.zeros(1, dtype=np.intp)
_MAX_ANSWER = 16 << 20  # bytes: no client takes a larger one (com.rocketmq.remoting.frameMaxLength)


def record_in(data: bytes | bytearray, physical_offset: int) -> RecordRun | None:
    """The sound record that bytes begin with at a physical offset, as a run of one; None when there is none."""
    block = Block(len(data))
    block.start_offset, block.length = physical_offset, len(data)
    block.view[: len(data)] = data
    return sound_prefix(block, _FIRST) or None


def whole_record_in(data: bytes | bytearray, physical_offset: int) -> RecordRun | None:
    """The same where the record takes all of the bytes, and its body is right."""
    record = record_in(data, physical_offset)
    is_whole = record and int(record.message_sizes[0]) == len(data) and not record.wrong_bodies.any()
    return record if is_whole else None


class Oversized(NamedTuple):
    """A record that says a larger size than its lengths add up to: as clients decode it, and the size that it says.

    It is `whole` where all the rest of this size is taken for its properties; None where these would be too long.
    """

    record: RecordRun
    size: int
    whole: RecordRun | None


def oversized_record_at(files: Sequence[MappedFile], physical_offset: int) -> Oversized | None:
    """The record at an offset that is whole as far as its lengths reach, but says a larger size; None: no such.

    Either its size is too large, or the length of its properties is too small. Clients decode it all the same, where
    they are given as many bytes as the record says (`CommitLog#getData`): with the properties that its length covers,
    of a negative one with none.
    """
    mapped = file_at(files, physical_offset)
    if mapped is None or mapped.header_size:  # what begins an entry of DLedger says its size, too
        return None
    with InputFile(mapped.path) as file:
        probe = Probe(file, mapped.start_offset, physical_offset - mapped.start_offset)
        size, properties_size = probe.by_lengths if probe.kind == "lengths" else (0, 0)
        if not MIN_MESSAGE_SIZE <= size < probe.size <= min(_MAX_ANSWER, file.size - probe.position):
            return None
        data, all_of_it = _with_size_by_lengths(probe), _with_all_properties(probe)
    if properties_size < 0:
        data = data[:-PROPERTIES_SIZE_WIDTH] + bytes(PROPERTIES_SIZE_WIDTH)
    record = whole_record_in(data, physical_offset)
    if record is None:
        return None
    return Oversized(record, probe.size, whole_record_in(all_of_it, physical_offset) if all_of_it else None)


def has_wrong_size(probe: Probe) -> bool:
    """Whether a record is whole but for its size, or the length of its properties.

    No write that ended early leaves it so: either comes before what it counts. What ends with zeros may not have been
    written to its end: then lengths of zeros add up to less, too.
    """
    if probe.record_position > probe.position or probe.file.size - probe.position < MIN_MESSAGE_SIZE:
        return False  # what begins an entry of DLedger says its size, too
    physical_offset = probe.start_offset + probe.position
    found = (_with_size_by_lengths(probe), _with_all_properties(probe))
    return any(whole_record_in(data, physical_offset) for data in found if data and not data.endswith(b"\0"))


def has_wrong_magic_code(probe: Probe) -> bool:
    """Whether a record is whole but for its magic code, which comes before all that it may have been cut off from."""
    is_possible = MIN_MESSAGE_SIZE <= probe.size <= min(MAX_MESSAGE_SIZE, probe.file.size - probe.position)
    if probe.record_position > probe.position or not is_possible:
        return False
    data, physical_offset = probe.file.read(probe.position, probe.size), probe.start_offset + probe.position
    found = (SIZE_AND_MAGIC.pack(probe.size, code) + data[SIZE_AND_MAGIC.size :] for code in _OF_MESSAGES)
    return not data.endswith(b"\0") and any(whole_record_in(record, physical_offset) for record in found)


def _with_size_by_lengths(probe: Probe) -> bytes:
    """A record with the size that its lengths add up to; empty where it has this size, or it is none."""
    size, _ = probe.by_lengths
    if size == probe.size or not MIN_MESSAGE_SIZE <= size <= min(MAX_MESSAGE_SIZE, probe.file.size - probe.position):
        return b""
    return size.to_bytes(MESSAGE_SIZE_WIDTH, "big") + probe.file.read(probe.position, size)[MESSAGE_SIZE_WIDTH:]


def _with_all_properties(probe: Probe) -> bytes:
    """A record with properties that take all the rest of its size; empty where they do, or cannot."""
    size, properties_size = probe.by_lengths
    rest = probe.size - size + max(0, properties_size)
    is_possible = MIN_MESSAGE_SIZE <= probe.size <= min(MAX_MESSAGE_SIZE, probe.file.size - probe.position)
    if not is_possible or rest == properties_size or not 0 <= rest <= MAX_PROPERTIES_SIZE:
        return b""
    data, at = probe.file.read(probe.position, probe.size), probe.size - rest
    return data[: at - PROPERTIES_SIZE_WIDTH] + rest.to_bytes(PROPERTIES_SIZE_WIDTH, "big") + data[at:]


def record_with_wrong_magic_code(files: Sequence[MappedFile], physical_offset: int) -> RecordRun | None:
    """The record at `physical_offset` that is whole but for its magic code, as a run of one; None when none is.

    It is the one that decoders get that pass over the magic code: of the first format.
    """
    mapped = file_at(files, physical_offset)
    if mapped is None:
        return None
    with InputFile(mapped.path) as file:
        position = physical_offset - mapped.start_offset
        head = file.read(position, SIZE_AND_MAGIC.size)
        size, magic_code = SIZE_AND_MAGIC.unpack(head) if len(head) == SIZE_AND_MAGIC.size else (0, 0)
        if magic_code == MAGIC_CODE_V1 or not MIN_MESSAGE_SIZE <= size <= min(MAX_MESSAGE_SIZE, file.size - position):
            return None
        data = file.read(position, size)
    return whole_record_in(SIZE_AND_MAGIC.pack(size, MAGIC_CODE_V1) + data[SIZE_AND_MAGIC.size :], physical_offset)
