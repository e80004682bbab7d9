"""Damages of the small store, one for each warning or error that bytes of its files alone can cause.

What is only information, or needs settings, a release, time or another store, is in `circumstances`.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.index_file import unit_position
from tests.verify.small_store import FILE_SIZE, GEOMETRY, QUEUE_FILE_SIZE, small_log

OFFSETS = small_log().offsets
QUEUE = "consumequeue/orders/0"
FILE = f"{QUEUE}/{file_name(0)}"
LAST_FILE = f"{QUEUE}/{file_name(QUEUE_FILE_SIZE)}"
OTHER_FILE = f"consumequeue/orders/1/{file_name(0)}"
TABLE = "config/topics.json"
INDEX = "index/20231114221320001"
SLOTS = GEOMETRY[0]


class Damage(NamedTuple):
    """What is done to the store, and the code that tells it; `exact` when nothing else above information is told."""

    code: str
    apply: Callable[[Path], object]
    exact: bool = True
    offset: int | None = None


def overwrite(store: Path, name: str, position: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    with (store / name).open("r+b") as file:
        file.seek(position)
        file.write(data)


def read(store: Path, name: str, position: int, size: int) -> bytes:
    """Some bytes of a file."""
    return (store / name).read_bytes()[position : position + size]


def patch(name: str, position: int, data: bytes) -> Callable[[Path], None]:
    """A damage that overwrites some bytes of a file."""
    return lambda store: overwrite(store, name, position, data)


def replace_by_file(directory: str) -> Callable[[Path], None]:
    """A damage that puts a file in the place of a directory."""

    def apply(store: Path) -> None:
        remove(store / directory)
        (store / directory).write_bytes(b"notes")

    return apply


def patch_log(physical_offset: int, data: bytes) -> Callable[[Path], None]:
    """A damage that overwrites some bytes of the commit log."""
    base = physical_offset // FILE_SIZE * FILE_SIZE
    return patch(f"commitlog/{file_name(base)}", physical_offset - base, data)


def rename_log_file(number: int, start_offset: int) -> Callable[[Path], object]:
    """A damage that gives a commit log file another start offset."""
    return lambda store: log_file(store, number).rename(store / "commitlog" / file_name(start_offset))


def config(name: str, text: str) -> Callable[[Path], object]:
    """A damage that writes a configuration file."""
    return lambda store: (store / "config" / name).write_text(text)


def log_file(store: Path, number: int) -> Path:
    """A commit log file by its number, from the end when negative."""
    return sorted((store / "commitlog").iterdir())[number]


def body_position(number: int) -> int:
    """Physical offset of the body of a record with IPv4 hosts."""
    return OFFSETS[number] + 88


def index_unit(number: int) -> int:
    """Position of an index unit."""
    return unit_position(SLOTS, number)


def tear(store: Path, number: int = -1, kept: int = 100) -> None:
    """Cut the last record after some bytes, as a power loss does."""
    base = OFFSETS[number] // FILE_SIZE * FILE_SIZE
    start = OFFSETS[number] - base + kept
    overwrite(store, f"commitlog/{file_name(base)}", start, bytes(FILE_SIZE - start))


def keep_index(store: Path) -> None:
    """Have a start after a kill keep the index files: none is newer than the checkpoint's index time."""
    overwrite(store, "checkpoint", 16, (1 << 41).to_bytes(8, "big"))


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def cut_queue(store: Path) -> None:
    """Zero the last two units of a queue."""
    overwrite(store, LAST_FILE, written_end(store) - 40, bytes(40))


def written_end(store: Path) -> int:
    """Where the units of the queue's last file end, bytes."""
    return (len((store / LAST_FILE).read_bytes().rstrip(b"\0")) + 19) // 20 * 20


def append_unit(data: bytes) -> Callable[[Path], None]:
    """A damage that appends a unit after the last one of a queue."""
    return lambda store: overwrite(store, LAST_FILE, written_end(store), data)


def copy_unit(source: str, target: str, number: int) -> Callable[[Path], None]:
    """A damage that puts the entry of another queue in the same place of this one."""
    return lambda store: overwrite(store, target, 20 * number, read(store, source, 20 * number, 20))


def cut_file(store: Path) -> None:
    """Take the last bytes from a commit log file."""
    os.truncate(log_file(store, 1), FILE_SIZE - 8)


def grow(path: Path, size: int) -> None:
    """Make a sparse file of this size."""
    with path.open("wb") as file:
        file.truncate(size)


def sparse(name: str, size: int) -> Callable[[Path], None]:
    """A damage that makes a file of zeros."""
    return lambda store: grow(store / name, size)


def blank_offset() -> int:
    """Physical offset of the first blank."""
    last = max(offset for offset in OFFSETS if offset < FILE_SIZE)
    data = bytes(small_log().files[0])
    return last + int.from_bytes(data[last : last + 4], "big")


def delay_ahead(store: Path) -> None:
    """A delay level that has delivered more than its queue holds."""
    config("delayOffset.json", '{"offsetTable":{3:5}}')(store)
    folder = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2"
    folder.mkdir(parents=True)
    grow(folder / file_name(0), QUEUE_FILE_SIZE)


def make_batch_topic(store: Path) -> None:
    """Configure a topic for batch queues that has simple ones."""
    path = store / TABLE
    table = json.loads(path.read_text())
    table["topicConfigTable"]["payments"]["attributes"] = {"queue.type": "BatchCQ"}
    path.write_text(json.dumps(table))


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _long(value: int) -> bytes:
    return struct.pack(">q", value)


def _damages() -> Iterator[tuple[str, Damage]]:
    yield from _of_log_files()
    yield from _of_records()
    yield from _of_queues()
    yield from _of_the_rest()


def _of_log_files() -> Iterator[tuple[str, Damage]]:
    yield "short file", Damage("commitlog.file-size", cut_file, False)
    yield "empty last file", Damage("commitlog.empty-file", lambda s: (s / "commitlog" / file_name(1 << 20)).touch())
    yield "stray file", Damage("commitlog.stray", lambda s: (s / "commitlog" / "nohup.out").touch())
    yield "stray directory", Damage("commitlog.stray-directory", lambda s: (s / "commitlog" / "old").mkdir())
    yield "empty middle file", Damage("commitlog.empty-file", lambda s: os.truncate(log_file(s, 1), 0), False)
    yield "missing file", Damage("commitlog.gap", lambda s: log_file(s, 1).unlink())
    yield "missing last file", Damage("commitlog.last-file-missing", lambda s: log_file(s, -1).unlink(), False)
    yield "renamed file", Damage("commitlog.misaligned-file", rename_log_file(1, FILE_SIZE + 100), False)
    yield "overlap", Damage("commitlog.overlap", rename_log_file(1, FILE_SIZE - 100), False)
    yield "long blank", Damage("commitlog.blank", patch_log(blank_offset(), _int(1 << 20)))
    yield "negative blank", Damage("commitlog.blank", patch_log(blank_offset(), _int(-16)))
    yield "no blank", Damage("commitlog.blank", patch_log(blank_offset(), bytes(8)))


def _of_records() -> Iterator[tuple[str, Damage]]:
    tenth, checked, size = OFFSETS[10], OFFSETS[4], OFFSETS[11] - OFFSETS[10]
    yield "torn", Damage("commitlog.torn", tear, False, OFFSETS[-1])
    yield "property crc", Damage("commitlog.property-crc", patch_log(checked + 16, b"\0\0\0\1"), True, checked)
    yield "zeros", Damage("commitlog.zeroed", patch_log(tenth, bytes(size)), True, tenth)
    for name, (code, position, data) in RECORD_PATCHES.items():
        yield name, Damage(code, patch_log(tenth + position, data), name != "future", tenth)
    yield "queue offset", Damage("commitlog.field", patch_log(OFFSETS[12] + 20, _long(9)), False)


def _of_queues() -> Iterator[tuple[str, Damage]]:
    yield "queue behind", Damage("consumequeue.behind", cut_queue, False)
    yield "no queue", Damage("consumequeue.missing-queue", lambda s: remove(s / QUEUE))
    yield "a file for a queue", Damage("consumequeue.missing-queue", replace_by_file(QUEUE))
    yield "a file for a topic", Damage("consumequeue.missing-queue", replace_by_file(str(Path(QUEUE).parent)), False)
    yield "no first queue file", Damage("consumequeue.missing-unit", lambda s: (s / FILE).unlink())
    yield "queue ahead", Damage("consumequeue.ahead", append_unit(build_unit(OFFSETS[-1] + 400, 200, 0)), False)
    yield "hole", Damage("consumequeue.hole", patch(FILE, 60, bytes(20)))
    yield "wrong record", Damage("consumequeue.wrong-record", copy_unit(OTHER_FILE, FILE, 2))
    yield "no record", Damage("consumequeue.wrong-record", patch(FILE, 40, build_unit(OFFSETS[3] + 7, 200, 0)))
    yield "wrong size", Damage("consumequeue.wrong-record", patch(FILE, 48, _int(99)))
    yield "wrong tags code", Damage("consumequeue.tags-code", patch(FILE, 52, _long(99)))
    yield "ext address", Damage("consumequeue.ext-address", patch(FILE, 52, _long(-(1 << 63))))
    yield "duplicate unit", Damage("consumequeue.duplicate-unit", append_unit(build_unit(OFFSETS[0], 200, 0)))
    yield "phantom", Damage("consumequeue.garbage-after-end", append_unit(_long(7) + bytes(12)))
    yield "filler", Damage("consumequeue.pre-blank", append_unit(build_unit(0, PRE_BLANK_MESSAGE_SIZE, 0)))
    yield (
        "zero file",
        Damage("consumequeue.zero-file", sparse(f"{QUEUE}/{file_name(2 * QUEUE_FILE_SIZE)}", QUEUE_FILE_SIZE)),
    )
    yield (
        "queue gap",
        Damage("consumequeue.gap", sparse(f"{QUEUE}/{file_name(4 * QUEUE_FILE_SIZE)}", QUEUE_FILE_SIZE), False),
    )
    yield (
        "queue file size",
        Damage("consumequeue.file-size", sparse(f"{QUEUE}/{file_name(2 * QUEUE_FILE_SIZE)}", 140), False),
    )
    yield (
        "empty queue file",
        Damage("consumequeue.empty-file", lambda s: (s / QUEUE / file_name(2 * QUEUE_FILE_SIZE)).touch()),
    )
    yield "queue stray", Damage("consumequeue.stray", lambda s: (s / QUEUE / "x.bak").touch())
    yield "queue of another kind", Damage("consumequeue.kind", make_batch_topic, False)


def _of_the_rest() -> Iterator[tuple[str, Damage]]:
    yield "slot", Damage("index.slot", patch(INDEX, 52, _int(1)))
    yield "circle", Damage("index.chain", patch(INDEX, index_unit(9) + 16, _int(9)))
    yield "link", Damage("index.slot", patch(INDEX, index_unit(90) + 16, _int(2)))
    yield "hash", Damage("index.unit", patch(INDEX, index_unit(5), _int(12345)), False)
    yield "index offset", Damage("index.unit", patch(INDEX, index_unit(5) + 4, _long(77)), False)
    yield "index seconds", Damage("index.unit", patch(INDEX, index_unit(5) + 12, _int(77)))
    yield "index count", Damage("index.geometry", patch(INDEX, 36, _int(401)), False)
    yield "index begin", Damage("index.header", patch(INDEX, 16, _long(3)))
    yield "index end time", Damage("index.header", patch(INDEX, 8, _long(3)))
    yield "index ahead", Damage("index.ahead", patch(INDEX, index_unit(150) + 4, _long(1 << 30)), False)
    yield "abort", Damage("store.unclean-stop", lambda s: (s / "abort").touch())
    yield "no checkpoint", Damage("checkpoint.missing", lambda s: (s / "checkpoint").unlink())
    yield "future checkpoint", Damage("checkpoint.future", patch("checkpoint", 0, _long(1 << 42)), False)
    yield (
        "checkpoint inside a record",
        Damage("checkpoint.logics-offset", patch("checkpoint", 40, _long(OFFSETS[3] + 1))),
    )
    yield "timer wheel", Damage("timer.wheel-size", sparse("timerwheel", 64))
    yield "topics cut", Damage("config.unreadable", config("topics.json", '{"topicConfigTable": {'))
    yield "offsets cut", Damage("config.consumer-offset", config("consumerOffset.json", '{"offsetTable'))
    yield "delay offset", Damage("config.delay-offset", delay_ahead, False)


RECORD_PATCHES = {
    "body": ("commitlog.body-crc", 88, b"B"),
    "body crc": ("commitlog.body-crc", 8, b"\1\2\3\4"),
    "body size": ("commitlog.lengths", 84, _int(7)),
    "magic code": ("commitlog.magic-code", 4, _int(1)),
    "other place": ("commitlog.physical-offset", 28, _long(1)),
    "huge size": ("commitlog.huge-size", 0, b"\x70\0\0\0"),
    "sys flag": ("commitlog.sys-flag", 36, b"\0\0\x80\0"),
    "future": ("commitlog.future-timestamp", 56, _long(1 << 52)),
}
"""Bytes at a position in any record with IPv4 hosts, and the code that tells them."""

DAMAGES = dict(_damages())
"""By a name for the test."""
