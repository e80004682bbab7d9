"""Every byte of a small store changed, one at a time: found, or in the table of blind spots.

``python -m tests.verify.flips`` tries all of them (three values a byte) in some processes and prints the counts; that
takes some twenty minutes of one processor.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rmqtool.formats.index_file import HEADER_DTYPE, HEADER_SIZE, UNIT_DTYPE
from rmqtool.formats.message import CRC32_PROPERTY, HEADER_DTYPES, HOST_BITS
from tests.verify.shares import counts_of_all
from tests.verify.small_store import FILE_SIZE, GEOMETRY, small_log, small_store
from tests.verify.verifying import verify

MASKS = (0x01, 0x80, 0xFF)
"""What a byte is combined with by exclusive or."""

BLIND_SPOTS = {
    "record.flag": "the application's own number: nothing else depends on it",
    "record.born_timestamp": "the client's clock: it may say anything",
    "record.born_host": "the client's address: it may say anything",
    "record.store_host": "a broker may move; only the address in each file's first record is compared",
    "record.store_timestamp": "the index counts whole seconds, and the checkpoint only looks at the newest",
    "record.reconsume_times": "a count that is stored nowhere else",
    "record.prepared_transaction_offset": "the half message may be deleted",
    "record.body_crc": "of an empty body: the broker does not look at it either",
    "record.sys_flag": "bits that mean the same for this record: a compressed body is not decompressed",
    "blank.filler": "no reader looks at what follows the eight bytes of a blank",
    "index.unit.seconds_since_begin": "of a file's first unit: counted from a file that may be deleted by now",
    "index.unused": "after the last unit",
    "index.unit_0": "unit 0 is never used",
    "checkpoint.unused": "no broker reads it, but for the eight bytes of an offset that 5.5.0 reads",
    "checkpoint.timestamps": "a checkpoint may lie after the log",
}
"""What a change may be missed in, and why."""


class Place(NamedTuple):
    """A byte of a file, and the field that it belongs to."""

    file: str
    position: int
    field: str


def places(store: Path) -> Iterator[Place]:
    """Every byte of log, queues, index and checkpoint that holds something."""
    yield from _log_places(store)
    for path in sorted((store / "consumequeue").rglob("0*")):
        if path.is_file():
            size = (len(path.read_bytes().rstrip(b"\0")) + 19) // 20 * 20
            name = str(path.relative_to(store))
            yield from (Place(name, at, _unit_field(at)) for at in range(size))
    yield from _index_places(store)
    yield from (
        Place("checkpoint", at, "checkpoint.timestamps" if at < 24 else "checkpoint.unused") for at in range(64)
    )


def _log_places(store: Path) -> Iterator[Place]:
    offsets = small_log().offsets
    for path in sorted((store / "commitlog").iterdir()):
        base, data = int(path.name), path.read_bytes()
        name = str(path.relative_to(store))
        own = [offset - base for offset in offsets if base <= offset < base + FILE_SIZE]
        for start in own:
            size = int.from_bytes(data[start : start + 4], "big")
            for at, field in enumerate(_record_fields(data[start : start + size])):
                yield Place(name, start + at, field)
        end = own[-1] + int.from_bytes(data[own[-1] : own[-1] + 4], "big")
        if base != offsets[-1] // FILE_SIZE * FILE_SIZE:
            stop = min(end + 40, FILE_SIZE)
            yield from (Place(name, at, "blank.head" if at < end + 8 else "blank.filler") for at in range(end, stop))


def _record_fields(record: bytes) -> list[str]:
    """The field of each byte of a record; of one with ``__CRC32#`` all are "checked"."""
    if CRC32_PROPERTY in record[-20:]:
        return ["checked"] * len(record)
    header = HEADER_DTYPES[int.from_bytes(record[36:40], "big") & HOST_BITS]
    fields = [""] * len(record)
    for name, (kind, at, *_) in (header.fields or {}).items():
        fields[at : at + kind.itemsize] = [f"record.{name}"] * kind.itemsize
    body_size = int.from_bytes(record[header.itemsize - 4 : header.itemsize], "big")
    topic_at = header.itemsize + body_size
    width = 2 if record[7] == 0xAB else 1
    topic_size = int.from_bytes(record[topic_at : topic_at + width], "big")
    fields[header.itemsize : topic_at] = ["record.body"] * body_size
    properties_at = topic_at + width + topic_size
    fields[topic_at : topic_at + width] = ["record.topic_size"] * width
    fields[topic_at + width : properties_at] = ["record.topic"] * topic_size
    fields[properties_at : properties_at + 2] = ["record.properties_size"] * 2
    fields[properties_at + 2 :] = ["record.properties"] * (len(record) - properties_at - 2)
    return fields


def _unit_field(at: int) -> str:
    place = at % 20
    return f"queue.{'physical_offset' if place < 8 else 'message_size' if place < 12 else 'tags_code'}"


def _index_places(store: Path) -> Iterator[Place]:
    (path,) = (store / "index").iterdir()
    name, data = str(path.relative_to(store)), path.read_bytes()
    for field, (kind, at, *_) in (HEADER_DTYPE.fields or {}).items():
        yield from (Place(name, at + byte, f"index.header.{field}") for byte in range(kind.itemsize))
    units_at = HEADER_SIZE + 4 * GEOMETRY[0]
    yield from (Place(name, at, "index.slot") for at in range(HEADER_SIZE, units_at))
    yield from (Place(name, at, "index.unit_0") for at in range(units_at, units_at + 20))
    count = int.from_bytes(data[36:40], "big")
    for number in range(1, count):
        for field, (kind, at, *_) in (UNIT_DTYPE.fields or {}).items():
            start = units_at + 20 * number + at
            yield from (Place(name, start + byte, f"index.unit.{field}") for byte in range(kind.itemsize))
    yield from (Place(name, at, "index.unused") for at in range(units_at + 20 * count, units_at + 20 * count + 20))


def found(store: Path, place: Place, mask: int) -> bool:
    """Whether the verification tells anything when one byte is changed; the byte is put back."""
    path = store / place.file
    with path.open("r+b") as file:
        file.seek(place.position)
        before = file.read(1)[0]
        file.seek(place.position)
        file.write(bytes([before ^ mask]))
        file.flush()
        try:
            return bool(verify(store).findings)
        finally:
            file.seek(place.position)
            file.write(bytes([before]))


def _try_share(share: int, shares: int) -> Counter[tuple[str, bool]]:
    counts: Counter[tuple[str, bool]] = Counter()
    with TemporaryDirectory() as directory:
        store = small_store(Path(directory) / "store")
        for number, place in enumerate(places(store)):
            if number % shares == share:
                for mask in MASKS:
                    counts[place.field, found(store, place, mask)] += 1
    return counts


def main() -> int:
    """Try all changes; 1 when one is missed that is no blind spot."""
    counts = counts_of_all(_try_share, __doc__, "places")
    fields = sorted({field for field, _ in counts})
    lines = [f"{field:<36} {counts[field, True]:>7} found {counts[field, False]:>7} missed\n" for field in fields]
    total = sum(count for (_, seen), count in counts.items() if seen)
    sys.stdout.write("".join([*lines, f"{sum(counts.values())} changes, {total} found\n"]))
    return int(any(counts[field, False] and field not in BLIND_SPOTS for field in fields))


if __name__ == "__main__":
    sys.exit(main())
