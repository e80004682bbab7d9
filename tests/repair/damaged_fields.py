"""Fields of records that no CRC covers: where they stand in the log, and what queues and index lead to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, OpenFiles
from rmqtool.formats.index_file import UNIT_DTYPE, UNIT_SIZE, unit_position
from rmqtool.formats.layout import decode_units
from rmqtool.formats.message import HEADER_DTYPES
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.unit_files import units_of

Served = dict[tuple[str, int, int], tuple[int, int]]
"""Physical offset and tags code by topic, queue id and queue offset."""


@dataclass(frozen=True)
class Record:
    """A record of a store, with the extent of each field in its file: position and size."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    path: Path  # below the store's root
    fields: Mapping[str, tuple[int, int]]


def records_of(root: Path) -> list[Record]:
    """All records of a log, in order."""
    snapshot = Snapshot(open_store(root))
    found = []
    for event in scan_files(snapshot.log.files):
        if isinstance(event, RecordRun):
            found += [_record(root, snapshot, event, row) for row in range(len(event))]
    return found


def _record(root: Path, snapshot: Snapshot, frames: RecordRun, row: int) -> Record:
    offset = int(frames.physical_offsets[row])
    file = next(each for each in snapshot.log.files if each.holds(offset))
    begin = offset - file.start_offset - int(frames.positions[row])  # of the block in the file
    layout = HEADER_DTYPES[int(frames.headers.field("sys_flag")[row]) & 0x30]
    base = int(frames.positions[row]) + begin
    fields = {name: (base + layout.fields[name][1], layout[name].itemsize) for name in layout.names or ()}  # type: ignore[index]
    topic, topic_size = int(frames.topic_positions[row]), int(frames.topic_sizes[row])
    fields["topic"] = topic + begin, topic_size
    start, size = int(frames.properties_positions[row]), int(frames.properties_sizes[row])
    for name, found, value in _properties(bytes(frames.block.bytes[start : start + size])):
        at = found + start + begin
        fields[f"{name} name"] = at, len(name)
        fields[f"{name} separator"] = at + len(name), 1
        fields[name] = at + len(name) + 1, len(value)
    text = bytes(frames.block.bytes[topic : topic + topic_size]).decode()
    queue_id, number = (int(frames.headers.field(name)[row]) for name in ("queue_id", "queue_offset"))
    return Record(offset, int(frames.message_sizes[row]), text, queue_id, number, file.path.relative_to(root), fields)


def _properties(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    for piece in data.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if name and value:
            yield name.decode(), at, value
        at += len(piece) + 1


def with_lengths(record: Record) -> Record:
    """A record with the extents of the lengths of its topic and properties, too."""
    topic, size = record.fields["topic"]
    return replace(record, fields={**record.fields, "topic_size": (topic - 1, 1), "properties_size": (topic + size, 2)})


def flip(root: Path, record: Record, field: str, mask: int = 1, at: int = -1) -> None:
    """Change bits of one byte of a field, by default the lowest bit of its last byte."""
    position, size = record.fields[field]
    with (root / record.path).open("r+b") as file:
        file.seek(position + at % size)
        byte = file.read(1)[0]
        file.seek(position + at % size)
        file.write(bytes([byte ^ mask]))


def served(root: Path, records: list[Record]) -> Served:
    """The units that lead to a whole record, as the log had them."""
    snapshot, sizes = Snapshot(open_store(root)), {record.physical_offset: record.size for record in records}
    found: Served = {}
    with closing(OpenFiles(UNLIMITED)) as open_files:
        for queue in snapshot.queues:
            files = units_of(queue, open_files, snapshot.log_min_offset)
            units = files.units(files.start, files.data_end - files.start)
            for row, (written, unit) in enumerate(zip(files.is_written(units), units, strict=True)):
                offset = int(unit["physical_offset"])
                if written and sizes.get(offset) == int(unit["message_size"]):
                    found[queue.topic, queue.queue_id, files.start + row] = offset, int(unit["tags_code"])
    if snapshot.database:
        snapshot.database.close()
    return found


def own_served(root: Path) -> dict[tuple[str, int, int], int]:
    """Physical offsets by topic, queue id and queue offset, where these are the topic and the offset of the record.

    Its queue id, which may be damaged, is another only where its own queue does not lead to it there.
    """
    try:
        records = {record.physical_offset: record for record in records_of(root)}
        found = served(root, [*records.values()])
    except RmqtoolError:
        return {}
    own: dict[tuple[str, int, int], int] = {}
    for place, (offset, _) in found.items():
        topic, queue_id, number = place
        record = records[offset]
        is_of_another = queue_id != record.queue_id and found.get((topic, record.queue_id, number), (-1,))[0] == offset
        if (record.topic, record.queue_offset) == (topic, number) and not is_of_another:
            own[place] = offset
    return own


def keys(root: Path) -> Counter[tuple[int, int]]:
    """Hash and physical offset of all index units."""
    found: Counter[tuple[int, int]] = Counter()
    for file, geometry in Snapshot(open_store(root)).index_geometries:
        if geometry is not None:
            start = unit_position(geometry.slots, 1)
            units = decode_units(UNIT_DTYPE, file.path.read_bytes()[start : start + file.keys * UNIT_SIZE])
            found.update(zip(units["key_hash"].tolist(), units["physical_offset"].tolist(), strict=True))
    return found
