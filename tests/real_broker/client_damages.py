"""Damages for `tests.real_broker.clients`: bytes, files and directories of any store, the same for the same seed."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from tests.verify.losses import FILE_OPERATIONS, Loss, Scene
from tests.verify.losses_together import UNSEEN, all_losses

_V1, _V2 = 0xDAA320A7, 0xDAA320AB
_UNIT = 20
_INDEX_HEADER = 40
_SLOTS = 50  # of the harness
_BORN_V6, _STORE_V6 = 0x10, 0x20
_HOUR_MS = 3_600_000
_ROW_OPERATIONS = ("deleted", "emptied", "cut in half", "page of zeros")


@dataclass(frozen=True)
class LogRecord:
    """A record of the commit log, and where its fields stand in the file."""

    file: Path
    at: int
    size: int
    physical_offset: int
    topic: str
    queue_id: int
    sys_flag: int
    store_timestamp: int
    fields: dict[str, int]
    properties: dict[str, str]

    def as_oracle(self) -> dict[str, Any]:
        """As LogReader.java gives one, as far as its keys need."""
        return {
            "topic": self.topic,
            "physical_offset": self.physical_offset,
            "sys_flag": self.sys_flag,
            "unique_key": self.properties.get("UNIQ_KEY"),
            "keys": self.properties.get("KEYS"),
        }


def records_of(store: Path) -> list[LogRecord]:
    """Those of each log file up to the first that is not whole, as the last of a store that was killed."""
    return [record for file in sorted((store / "commitlog").glob("0*")) for record in _of_file(file)]


def _of_file(file: Path) -> Iterator[LogRecord]:
    data, at = file.read_bytes(), 0
    while (record := _record_at(file, data, at)) is not None:
        yield record
        at += record.size


def _record_at(file: Path, data: bytes, at: int) -> LogRecord | None:
    try:
        record = _parsed(file, data, at)
    except (struct.error, UnicodeDecodeError, IndexError):
        return None
    is_whole = record is not None and record.physical_offset == int(file.name) + at and at + record.size <= len(data)
    return record if is_whole else None


def _parsed(file: Path, data: bytes, at: int) -> LogRecord | None:
    size, magic = struct.unpack_from(">iI", data, at)
    if magic not in (_V1, _V2) or size <= 0:
        return None
    queue_id, _, _, physical_offset, sys_flag = struct.unpack_from(">iiqqi", data, at + 12)
    body_size_at = at + 48 + (20 if sys_flag & _BORN_V6 else 8) + 8 + (20 if sys_flag & _STORE_V6 else 8) + 12
    body_at = body_size_at + 4
    topic_size_at = body_at + struct.unpack_from(">i", data, body_size_at)[0]
    width = 1 if magic == _V1 else 2
    topic_at = topic_size_at + width
    topic_end = topic_at + int.from_bytes(data[topic_size_at:topic_at], "big")
    properties = data[topic_end + 2 : topic_end + 2 + struct.unpack_from(">h", data, topic_end)[0]]
    fields = {"size": 0, "magic code": 4, "body CRC": 8, "queue id": 12, "queue offset": 20, "physical offset": 28,
              "sys flag": 36, "body size": body_size_at - at, "topic": topic_at - at,
              "properties": topic_end + 2 - at}  # fmt: skip
    if topic_size_at > body_at:
        fields["body"] = body_at - at
    if not properties:
        del fields["properties"]
    if (key := properties.find(b"KEYS\1")) >= 0:
        fields["key"] = fields["properties"] + key + 5
    if (tag := properties.find(b"TAGS\1")) >= 0:
        fields["tag"] = fields["properties"] + tag + 5
    pairs = (text.split("\1", 1) for text in properties.decode(errors="replace").split("\2") if "\1" in text)
    (stored,) = struct.unpack_from(">q", data, at + 48 + (20 if sys_flag & _BORN_V6 else 8))
    return LogRecord(file, at, size, physical_offset, data[topic_at:topic_end].decode(), queue_id, sys_flag, stored,
                     fields, {pair[0]: pair[1] for pair in pairs})  # fmt: skip


def damages() -> list[Loss]:
    """All kinds; what leaves a store that a broker could have left is none."""
    return [*_of_queues(), *_of_index(), *_of_the_rest(), *_of_the_log(), *_of_rows()]


def whole_file_losses() -> list[Loss]:
    """Those of docs/verify.md that need no older copy and no light queues."""
    return [loss for loss in all_losses() if loss.name not in UNSEEN and "older" not in loss.name]


def all_damages() -> list[Loss]:
    """Those that come by chance, and those that do not."""
    return [*whole_file_losses(), *damages(), *_not_by_chance()]


def apply_named(scene: Scene, names: Sequence[str]) -> list[str]:
    """Those of the names that the store has something for."""
    known = {loss.name: loss for loss in all_damages()}
    return [name for name in names if known[name].apply(scene)]


def apply_some(scene: Scene) -> list[str]:
    """One to three of them; the names of those that the store had something for."""
    own, others = damages(), whole_file_losses()
    wanted = scene.random.choice((1, 1, 1, 2, 2, 3))
    names: list[str] = []
    for _ in range(200):
        loss = scene.random.choice(own if scene.random.random() < 0.75 else others)
        if loss.name not in names and loss.apply(scene):
            names.append(loss.name)
        if len(names) == wanted:
            break
    return names


def _of_queues() -> Iterator[Loss]:
    yield Loss("a queue deleted", _queue(lambda scene, queue: shutil.rmtree(queue)))
    yield Loss("queues of a topic deleted", _queue(lambda scene, queue: shutil.rmtree(queue.parent)))
    yield Loss("a queue: last file deleted", _queue(lambda scene, queue: max(queue.iterdir()).unlink()))
    yield Loss("a queue: first file deleted", _queue(lambda scene, queue: min(queue.iterdir()).unlink()))
    for name in ("emptied", "cut in half"):
        yield Loss(f"a queue: a file {name}", _queue(lambda scene, queue, name=name: FILE_OPERATIONS[name](
            scene, [scene.random.choice(sorted(queue.iterdir()))])))  # fmt: skip
    yield Loss("queue entries zeroed", _units(lambda scene, unit: bytes(_UNIT)))
    yield Loss("queue entries of garbage", _units(lambda scene, unit: scene.random.randbytes(_UNIT)))
    yield Loss("a queue entry: a bit flipped", _units(_flipped, most=1))
    yield Loss("a queue entry: offset of another", _units(lambda scene, unit: struct.pack(
        ">q", int.from_bytes(unit[:8], "big") + scene.random.choice((-100, 100, 7))) + unit[8:], most=1))  # fmt: skip
    yield Loss("a queue: zeros from an entry on", _zeros_from)
    yield Loss("a delay queue: a due time changed", _units(lambda scene, unit: unit[:12] + struct.pack(
        ">q", int.from_bytes(unit[12:], "big", signed=True) + scene.random.choice((-_HOUR_MS, _HOUR_MS))),
        most=1, topics=("SCHEDULE_TOPIC_XXXX",)))  # fmt: skip


def _queues(scene: Scene, topics: tuple[str, ...] = ()) -> list[Path]:
    found = sorted(path for path in scene.store.glob("consumequeue/*/*") if path.is_dir() and any(path.iterdir()))
    return [path for path in found if not topics or path.parent.name in topics]


def _queue(change: Callable[..., object]) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        found = _queues(scene)
        if found:
            change(scene, scene.random.choice(found))
        return bool(found)

    return apply


def _used(file: Path) -> list[int]:
    """Where units stand."""
    data = file.read_bytes()
    return [at for at in range(0, len(data) - _UNIT + 1, _UNIT) if any(data[at + 8 : at + 12])]


def _units(
    change: Callable[[Scene, bytes], bytes], most: int = 5, topics: tuple[str, ...] = ()
) -> Callable[[Scene], bool]:
    """Neighbouring units of one file."""

    def apply(scene: Scene) -> bool:
        files = [file for queue in _queues(scene, topics) for file in sorted(queue.glob("0*")) if _used(file)]
        if not files:
            return False
        file = scene.random.choice(files)
        used = _used(file)
        first = scene.random.randrange(len(used))
        with file.open("r+b") as opened:
            for at in used[first : first + scene.random.randint(1, most)]:
                unit = os.pread(opened.fileno(), _UNIT, at)
                os.pwrite(opened.fileno(), change(scene, unit), at)
        return True

    return apply


def _flipped(scene: Scene, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[scene.random.randrange(len(data))] ^= 1 << scene.random.randrange(8)
    return bytes(changed)


def _zeros_from(scene: Scene) -> bool:
    files = [file for queue in _queues(scene) for file in sorted(queue.glob("0*")) if _used(file)]
    if not files:
        return False
    file = scene.random.choice(files)
    at = scene.random.choice(_used(file))
    _overwrite(file, at, bytes(file.stat().st_size - at))
    return True


def _of_index() -> Iterator[Loss]:
    yield Loss("an index file deleted", _index(lambda scene, file: file.unlink()))
    yield Loss("index/ deleted", _index(lambda scene, file: shutil.rmtree(file.parent)))
    yield Loss("index slots zeroed", _index(lambda scene, file: _overwrite(file, _INDEX_HEADER, bytes(4 * _SLOTS))))
    yield Loss("an index slot: a bit flipped", _index(lambda scene, file: _flip(
        scene, file, _INDEX_HEADER + 4 * scene.random.randrange(_SLOTS), 4)))  # fmt: skip
    for name, at, size in (("hash", 0, 4), ("offset", 4, 8), ("previous", 16, 4)):
        yield Loss(f"an index entry: {name} flipped", _index(lambda scene, file, at=at, size=size: _flip(
            scene, file, _index_unit(scene, file) + at, size)))  # fmt: skip
    yield Loss("index header: a bit flipped", _index(lambda scene, file: _flip(scene, file, 0, _INDEX_HEADER)))
    yield Loss("an index file cut in half", _index(lambda scene, file: FILE_OPERATIONS["cut in half"](scene, [file])))


def _index(change: Callable[..., object]) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        found = sorted(path for path in scene.store.glob("index/*") if path.stat().st_size > _INDEX_HEADER)
        if found:
            change(scene, scene.random.choice(found))
        return bool(found)

    return apply


def _index_unit(scene: Scene, file: Path) -> int:
    with file.open("rb") as opened:
        count = int.from_bytes(os.pread(opened.fileno(), 4, 36), "big")
    return _INDEX_HEADER + 4 * _SLOTS + _UNIT * scene.random.randrange(1, max(2, min(count, 1000)))


def _of_the_rest() -> Iterator[Loss]:
    yield Loss("checkpoint deleted", _file("checkpoint", lambda scene, file: file.unlink()))
    yield Loss("checkpoint: times zero", _file("checkpoint", lambda scene, file: _overwrite(file, 0, bytes(24))))
    yield Loss("checkpoint: index time zero", _file("checkpoint", lambda scene, file: _overwrite(file, 16, bytes(8))))
    yield Loss("checkpoint: times an hour later", _file("checkpoint", lambda scene, file: _later(file, _HOUR_MS)))
    yield Loss("checkpoint: times a second earlier", _file("checkpoint", lambda scene, file: _later(file, -1000)))
    yield Loss("abort made", _abort)
    yield Loss("killed: abort, and the checkpoint of an index that is not full", _killed)
    yield Loss("killed: zeros at the end of the log", _killed_with_zeros)
    for name in ("consumerOffset.json", "delayOffset.json", "consumerFilter.json", "topics.json", "timercheck",
                 "subscriptionGroup.json"):  # fmt: skip
        yield Loss(f"config/{name} and .bak deleted", _config_deleted(name))


def _file(name: str, change: Callable[[Scene, Path], object]) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        if not (scene.store / name).is_file():
            return False
        change(scene, scene.store / name)
        return True

    return apply


def _later(file: Path, by_ms: int) -> None:
    times = struct.unpack(">3q", file.read_bytes()[:24])
    _overwrite(file, 0, struct.pack(">3q", *(time + by_ms if time else 0 for time in times)))


def _abort(scene: Scene) -> bool:
    if (scene.store / "abort").exists():
        return False
    (scene.store / "abort").touch()
    return True


def _killed(scene: Scene) -> bool:
    """Log and queues are flushed, of the index only full files are, and only these move its time on."""
    file = scene.store / "checkpoint"
    if not file.is_file():
        return False
    (scene.store / "abort").touch()
    latest = max(struct.unpack(">3q", file.read_bytes()[:24]))
    _overwrite(file, 0, struct.pack(">3q", latest, latest, 0))
    return True


def _killed_with_zeros(scene: Scene) -> bool:
    found = records_of(scene.store)
    if len(found) < 20:
        return False
    first = scene.random.choice(found[-20:])
    (scene.store / "abort").touch()
    _overwrite(first.file, first.at, bytes(first.file.stat().st_size - first.at))
    for file in scene.store.glob("commitlog/0*"):
        if int(file.name) > int(first.file.name):
            _overwrite(file, 0, bytes(file.stat().st_size))
    return True


def _config_deleted(name: str) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        found = list(scene.store.glob(f"config/{name}*"))
        for path in found:
            path.unlink()
        return bool(found)

    return apply


def _of_the_log() -> Iterator[Loss]:
    for field in ("queue id", "queue offset", "sys flag", "topic", "key", "body", "size", "magic code", "body CRC",
                  "physical offset"):  # fmt: skip
        yield Loss(f"a record: {field} flipped", _record(lambda scene, record, field=field: _flip(
            scene, record.file, record.at + record.fields[field], _WIDTHS.get(field, 1)), field))  # fmt: skip
    yield Loss("a record zeroed", _record(lambda scene, record: _overwrite(record.file, record.at, bytes(record.size))))


_WIDTHS = {"queue id": 4, "queue offset": 8, "sys flag": 4, "size": 4, "magic code": 4, "body CRC": 4,
           "physical offset": 8}  # fmt: skip


def _not_by_chance() -> Iterator[Loss]:
    """Only by name, so that the cases of each seed stay what they are."""
    yield Loss("the last log file overwritten by another", _last_overwritten)
    yield Loss("queue entries: tags code flipped", _units(lambda scene, unit: unit[:12] + _flipped(scene, unit[12:])))
    yield Loss("queue entries: tags code zero", _units(lambda scene, unit: unit[:12] + bytes(8)))
    yield Loss("queue entries: an ext address", _units(lambda scene, unit: unit[:12] + struct.pack(
        ">q", scene.random.randrange(-1 << 63, -1 << 40))))  # fmt: skip
    yield Loss("a record: tag flipped", _record(lambda scene, record: _flip(
        scene, record.file, record.at + record.fields["tag"], 1), "tag"))  # fmt: skip
    yield Loss("a record: properties flipped", _properties(lambda scene, record, at, size: _flip(
        scene, record.file, at, size)))  # fmt: skip
    yield Loss("a record: size of properties flipped", _properties(lambda scene, record, at, _: _flip(
        scene, record.file, at - 2, 2)))  # fmt: skip
    yield Loss("a record: properties of zeros", _properties(lambda _, record, at, size: _overwrite(
        record.file, at, bytes(size))))  # fmt: skip

    for name in ("consumerOffset.json", "lmqConsumerOffset.json", "topics.json", "subscriptionGroup.json",
                 "delayOffset.json", "consumerFilter.json"):  # fmt: skip
        yield Loss(f"config/{name}: zeros in a name", _in_a_name(name))


def _in_a_name(name: str) -> Callable[[Scene], bool]:
    """Of a table, an entry or a field, in the file or in its ``.bak`` too; not where a survey asks for the name."""

    def apply(scene: Scene) -> bool:
        files = sorted(scene.store.glob(f"config/{name}*"))
        names = sorted({*re.findall(rb'"([^"]+)"\s*:', files[0].read_bytes())} - {b"topicName"}) if files else []
        if not names:
            return False
        found = scene.random.choice(names)
        at = scene.random.randrange(len(found))
        at = 0 if b"@" in found[at : at + 2] else at
        new = found[:at] + bytes(len(found[at : at + 2])) + found[at + 2 :]
        for file in files[: scene.random.randint(1, 2)]:
            file.write_bytes(file.read_bytes().replace(b'"%b"' % found, b'"%b"' % new, 1))
        return True

    return apply


def lose_destination(
    store: Path, queue_id: int, number: int, name: bytes = b"REAL_QID", topic: str = SCHEDULE_TOPIC
) -> None:
    """Let a message of a delay queue, or the timer's, name no topic, or no queue, to which it is to be delivered."""
    record = [each for each in records_of(store) if (each.topic, each.queue_id) == (topic, queue_id)][number]
    data = record.file.read_bytes()
    _overwrite(record.file, data.index(name, record.at), b"X")


def _properties(change: Callable[[Scene, LogRecord, int, int], object]) -> Callable[[Scene], bool]:
    """Of a record with properties: where they begin in its file, and their size."""

    def apply(scene: Scene, record: LogRecord) -> None:
        at = record.at + record.fields["properties"]
        change(scene, record, at, record.size - record.fields["properties"])

    return _record(apply, "properties")


def _last_overwritten(scene: Scene) -> bool:
    held = [file for file in sorted(scene.store.glob("commitlog/0*")) if any(file.read_bytes())]
    if len(held) > 1:
        shutil.copyfile(scene.random.choice(held[:-1]), held[-1])
    return len(held) > 1


def _record(change: Callable[..., object], field: str = "size") -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        found = [record for record in records_of(scene.store) if field in record.fields]
        if found:
            change(scene, scene.random.choice(found))
        return bool(found)

    return apply


def _of_rows() -> Iterator[Loss]:
    """Of databases of RocksDB."""
    for name in _ROW_OPERATIONS:
        yield Loss(f"a table of rows {name}", _tables(name))
    yield Loss("queues in RocksDB deleted", _rows_deleted)


def _tables(name: str) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        found = [path for path in sorted(scene.store.rglob("*.sst")) if path.stat().st_size]
        return bool(found) and FILE_OPERATIONS[name](scene, [scene.random.choice(found)])

    return apply


def _rows_deleted(scene: Scene) -> bool:
    if not (scene.store / "consumequeue/CURRENT").exists():
        return False
    shutil.rmtree(scene.store / "consumequeue")
    return True


def _overwrite(file: Path, at: int, data: bytes) -> None:
    """A disk that damages a file leaves its times."""
    times = file.stat()
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), data, at)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _flip(scene: Scene, file: Path, at: int, width: int) -> None:
    """One bit of `width` bytes."""
    at += scene.random.randrange(width)
    with file.open("rb") as opened:
        byte = (os.pread(opened.fileno(), 1, at) or b"\0")[0]  # of a file that another damage has cut
    _overwrite(file, at, bytes([byte ^ 1 << scene.random.randrange(8)]))
