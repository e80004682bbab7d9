"""Fields of records that the rest of the record proves to be wrong, and that are put right where they stand.

A record is as it was stored but for one field where its lengths add up and its body has its CRC. What the field was, is
proven by a second witness: one flipped bit, the CRC of the whole record, or the queue entry that leads to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.findings.finding import Finding, counted
from rmqtool.formats.message import (
    BODY_SIZE_WIDTH,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
    PROPERTIES_SIZE_WIDTH,
    record_crc,
    stored_record_crc,
    topic_size_width,
)
from rmqtool.repair.change import Patched, name_in_store
from rmqtool.scan.block import MAX_MESSAGE_SIZE
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.single_record import oversized_record_at, whole_record_in
from rmqtool.store.snapshot import Snapshot

_FLAG, _BODY_CRC = "commitlog.body-compression", "commitlog.body-crc"
_OF_STRUCTURE = frozenset(
    f"commitlog.{each}" for each in ("physical-offset", "magic-code", "lengths", "huge-size", "truncated")
)
FIELD_CODES = _OF_STRUCTURE | {_FLAG, _BODY_CRC}
"""Codes of findings that one damaged field may cause."""

_MOST = 1000  # records that are looked at


@dataclass(frozen=True)
class RightField:
    """The right value of a field of the record at a physical offset: its place in the record, and width, bytes.

    `queues` are those that serve its message, once for each message of a batch; it has so many `keys`. Of a record
    that says a larger size than its lengths queries may find `keys_found` all the same. `damaged_bytes` of the log are
    none any more.
    """

    physical_offset: int
    name: str
    place: int
    width: int
    found: int
    right: int
    queues: tuple[QueueName, ...] = ()
    keys: int = 0
    keys_found: int = 0
    damaged_bytes: int = 0

    @property
    def data(self) -> bytes:
        """The bytes of the right value."""
        return (self.right & ((1 << 8 * self.width) - 1)).to_bytes(self.width, "big")

    def __str__(self) -> str:
        """One line."""
        return f"record at physical offset {self.physical_offset}: {self.name} {self.found} becomes {self.right}"


@dataclass(frozen=True, kw_only=True)
class RightFields(Patched):
    """Fields of records of one log file that are put right."""

    fields: tuple[RightField, ...]


def right_fields(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[RightFields]:
    """The fields that are proven, of each log file; none of a DLedger log, whose group has them."""
    by_file: dict[MappedFile, list[RightField]] = defaultdict(list)
    codes: dict[MappedFile, set[str]] = defaultdict(set)
    found = [each for each in findings if each.code in FIELD_CODES][:_MOST]
    if not found:
        return
    dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)
    for each in found:
        file = file_at(snapshot.log.files, each.offset) if each.offset is not None else None
        field = _Record(snapshot, dispatcher, file, each).right_field() if file and not file.header_size else None
        if file and field:
            by_file[file].append(field)
            codes[file].add(each.code)
    for file, fields in by_file.items():
        name = name_in_store(snapshot.store, file.path)
        if name:
            yield RightFields(
                codes=frozenset(codes[file]),
                what=f"{name}: {counted(len(fields), 'damaged field')} of its records corrected",
                details=tuple(map(str, fields)),
                name=name,
                path=file.path,
                writes=[(each.physical_offset - file.start_offset + each.place, each.data) for each in fields],
                fields=tuple(fields),
            )


class _Record:
    """A damaged record that a finding is about, in its file."""

    def __init__(self, snapshot: Snapshot, dispatcher: Dispatcher, file: MappedFile, finding: Finding) -> None:
        self._snapshot = snapshot
        self._dispatcher = dispatcher
        self._finding = finding
        self._offset = finding.offset or 0
        position = self._offset - file.start_offset
        with InputFile(file.path) as opened:
            head = opened.read(position, PREFIX_DTYPE["message_size"].itemsize)
            # Of damage in the structure only where it ends is known: where the next record begins.
            is_damage = finding.code in _OF_STRUCTURE
            self._size = int(finding.details["bytes"]) if is_damage else int.from_bytes(head, "big")
            self._is_possible = MIN_MESSAGE_SIZE <= self._size <= min(MAX_MESSAGE_SIZE, file.size - position)
            self._data = opened.read(position, self._size) if self._is_possible else b""
        self._damaged_bytes = 0 if finding.code == _FLAG else self._size

    def right_field(self) -> RightField | None:
        """The one field with which the record is whole, where a second witness proves it."""
        if not self._is_possible:
            return None
        found = {}
        for field in self._candidates():
            before, after = self._data[: field.place], self._data[field.place + field.width :]
            record = whole_record_in(before + field.data + after, self._offset)
            proven = self._proven(record, field) if record else None
            if proven:
                found[field.place, field.right] = proven
        return next(iter(found.values())) if len(found) == 1 else None

    def _candidates(self) -> Iterator[RightField]:
        details = self._finding.details
        if self._finding.code == _FLAG:
            if details.get("cause") == "flag":
                yield self._field("sys_flag", details["expected_sys_flag"])
        elif self._finding.code == _BODY_CRC:
            if (details["found"] ^ details["expected"]).bit_count() == 1:
                yield self._field("body_crc", details["found"])
        else:
            yield self._field("physical_offset", self._offset)
            yield self._field("message_size", self._size)
            yield self._field("magic_code", MAGIC_CODE_V1)
            yield self._field("magic_code", MAGIC_CODE_V2)
            yield from self._lengths()

    def _lengths(self) -> Iterator[RightField]:
        """The other lengths with one bit flipped."""
        body = HEADER_DTYPES[self._number(self._place("sys_flag"), 4) & HOST_BITS].itemsize
        yield from self._flipped("body_size", body - BODY_SIZE_WIDTH, BODY_SIZE_WIDTH)
        topic = body + self._number(body - BODY_SIZE_WIDTH, BODY_SIZE_WIDTH)
        width = topic_size_width(self._number(self._place("magic_code"), 4))
        yield from self._flipped("topic_size", topic, width)
        properties = topic + width + self._number(topic, width)
        yield from self._flipped("properties_size", properties, PROPERTIES_SIZE_WIDTH)

    def _flipped(self, name: str, place: int, width: int) -> Iterator[RightField]:
        found = self._number(place, width)
        if 0 <= place <= self._size - width:
            for bit in range(8 * width):
                yield RightField(self._offset, name, place, width, found, found ^ (1 << bit))

    def _field(self, name: str, right: int) -> RightField:
        place, width = self._place(name), PREFIX_DTYPE[name].itemsize
        return RightField(self._offset, name, place, width, self._number(place, width), right)

    def _place(self, name: str) -> int:
        fields = PREFIX_DTYPE.fields
        return int(fields[name][1]) if fields else 0

    def _number(self, place: int, width: int) -> int:
        return int.from_bytes(self._data[place : place + width], "big", signed=True)

    def _proven(self, record: RecordRun, field: RightField) -> RightField | None:
        """The field with the queues of its message, where more than its body proves the record."""
        dispatcher, data = self._dispatcher, bytes(record.block.view[: self._size])
        dispatched = dispatcher.dispatch(record)
        places = dispatched.places
        covered, mask = stored_record_crc(data), (1 << 8 * field.width) - 1
        if covered is not None:
            is_proven = record_crc(data) == covered
        elif not int(record.body_sizes[0]):  # its CRC proves nothing
            is_proven = False
        else:
            is_proven = ((field.found ^ field.right) & mask).bit_count() == 1 or any(
                self._is_led_to(*place) for place in places
            )
        if not is_proven:
            return None
        keys, counts = dispatched.keys.hashes_without_tags, dispatched.units.batch_sizes.tolist()
        return replace(
            field,
            queues=tuple(name for (name, _), count in zip(places, counts, strict=True) for _ in range(count)),
            keys=len(keys),
            keys_found=int(np.isin(keys, self._keys_decoded()).sum()),
            damaged_bytes=self._damaged_bytes,
        )

    def _keys_decoded(self) -> list[int]:
        """The hashes of the keys, without tags, with which clients decode the record as it stands."""
        is_sized = self._finding.code in _OF_STRUCTURE
        found = oversized_record_at(self._snapshot.log.files, self._offset) if is_sized else None
        return self._dispatcher.dispatch(found.record).keys.hashes_without_tags if found else []

    def _is_led_to(self, name: QueueName, queue_offset: int) -> bool:
        queue = self._snapshot.queue(*name)
        unit = queue.unit_at(queue_offset) if queue else None
        return unit is not None and (unit.physical_offset, unit.message_size) == (self._offset, self._size)
