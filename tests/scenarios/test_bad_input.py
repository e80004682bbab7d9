"""Stores with something wrong in them: what each gives, and that nothing ever crashes, hangs or goes unsaid."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from rmqtool.formats.message import MessageUnit
from tests.commands.running import Result, inspect, listing, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.sampling import one_in
from tests.unchanged import unchanged

OK, LOSSY, FAILED, NOT_A_STORE = 0, 3, 4, 6
NAMES = ("4.9.7-trimmed", "5.5.0-trimmed")
PAGE = 4096
HEADER_SIZE = 88  # with IPv4 hosts, up to the body
RECORD = 10  # of the second file: one in the middle of the log

Damage = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A damage and what it leads to: three exit statuses, findings that come and go, the entry that an error names."""

    damage: Damage
    overview: int = OK
    scan: int = OK
    listing: int = OK
    names: str = ""
    codes: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


def log(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def queue(store: Path) -> Path:
    """A file of a queue that has several."""
    return min((store / "consumequeue" / "orders" / "0").iterdir())


def batch(store: Path) -> Path:
    return min((store / "batchconsumequeue" / "bulk-inner" / "0").iterdir())


def index(store: Path) -> Path:
    return min((store / "index").iterdir())


def only_index(store: Path) -> Path:
    """Another file would show the geometry."""
    first, *others = sorted((store / "index").iterdir())
    for file in others:
        file.unlink()
    return first


def record_positions(file: Path) -> list[int]:
    """Where the records of a sound file begin, by their sizes."""
    data, position, found = file.read_bytes(), 0, []
    while data[position + 4 : position + 7] == b"\xda\xa3\x20":
        found.append(position)
        position += int.from_bytes(data[position : position + 4], "big")
    return found


def write(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as target:
        target.seek(position)
        target.write(data)


def in_record(offset: int, data: bytes) -> Damage:
    """Overwrite part of a record in the middle."""

    def damage(store: Path) -> None:
        file = log(store)[1]
        write(file, record_positions(file)[RECORD] + offset, data)

    return damage


def behind_body(offset: int, data: bytes) -> Damage:
    """Overwrite what stands `offset` bytes after the body of a record in the middle."""

    def damage(store: Path) -> None:
        file = log(store)[1]
        position = record_positions(file)[RECORD]
        fields = MessageUnit.parse(file.read_bytes()[position:])
        body_end = position + fields.message_size - fields.topic_size - fields.properties_size - 3
        write(file, body_end + offset, data)

    return damage


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def rename(number: int, by: int) -> Damage:
    def damage(store: Path) -> None:
        file = log(store)[number]
        file.rename(file.with_name(f"{int(file.name) + by:020d}"))

    return damage


def swap(store: Path) -> None:
    _, first, other = log(store)
    first.rename(store / "aside")
    other.rename(first)
    (store / "aside").rename(other)


def put(name: str, data: bytes = b"") -> Damage:
    def damage(store: Path) -> None:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(data)

    return damage


def directory(name: str) -> Damage:
    def damage(store: Path) -> None:
        if (store / name).is_file():
            (store / name).unlink()
        (store / name).mkdir(parents=True)

    return damage


def link(name: str, target: str) -> Damage:
    """Put a symlink in place of what is there."""

    def damage(store: Path) -> None:
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return damage


def moved_and_linked(pick: Callable[[Path], Path]) -> Damage:
    def damage(store: Path) -> None:
        path = pick(store)
        path.rename(store.parent / "elsewhere")
        path.symlink_to(store.parent / "elsewhere")

    return damage


def on(pick: Callable[[Path], Path], change: Callable[[bytes], bytes]) -> Damage:
    """Write a file again with changed bytes."""

    def damage(store: Path) -> None:
        file = pick(store)
        file.write_bytes(change(file.read_bytes()))

    return damage


def filled(pick: Callable[[Path], Path], pattern: bytes) -> Damage:
    return on(pick, lambda data: pattern * (len(data) // len(pattern)))


def sparse(pick: Callable[[Path], Path], size: int) -> Damage:
    return lambda store: os.truncate(pick(store), size)


def emptied(name: str) -> Damage:
    def damage(store: Path) -> None:
        shutil.rmtree(store / name)
        (store / name).mkdir()

    return damage


def file_for_directory(name: str) -> Damage:
    def damage(store: Path) -> None:
        shutil.rmtree(store / name, ignore_errors=True)
        (store / name).write_bytes(b"")

    return damage


def second(store: Path) -> Path:
    return log(store)[1]


def last(store: Path) -> Path:
    return log(store)[-1]


NEXT = f"commitlog/{9 * 65536:020d}"
SIZE, EMPTY, CONFIG = "commitlog.file-size", "commitlog.empty-file", "config.consumer-offset"
STRAY, FOLDER = "commitlog.stray", "commitlog.stray-directory"
GAP, OVERLAP, GEOMETRY = "commitlog.gap", "commitlog.overlap", "index.geometry"
UNCLEAN, AMBIGUOUS, UNREADABLE = "store.unclean-stop", "store.version-ambiguous", "store.unreadable"
QUEUE_EMPTY = "consumequeue.empty-file"
HOLE, LACK = "consumequeue.hole", "consumequeue.missing-unit"
QUEUE_SIZE, QUEUE_GAP, QUEUE_STRAY = "consumequeue.file-size", "consumequeue.gap", "consumequeue.stray"
V4, V5 = NAMES[:1], NAMES[1:]

LOG_CASES = {
    "zero page": Case(lambda store: write(second(store), 2 * PAGE, bytes(PAGE)), scan=LOSSY, listing=LOSSY),
    "zero file": Case(on(second, lambda data: bytes(len(data))), scan=LOSSY, listing=LOSSY),
    "foreign bytes": Case(lambda store: write(second(store), 9999, b"#!/bin/sh" * 99), scan=LOSSY, listing=LOSSY),
    "all ones": Case(on(second, lambda data: b"\xff" * len(data)), scan=LOSSY, listing=LOSSY),
    "only magic codes": Case(filled(second, b"\xda\xa3\x20\xa7"), scan=LOSSY, listing=LOSSY),
    "only blanks": Case(filled(second, b"\0\0\0\x08\xcb\xd4\x31\x94"), scan=LOSSY, listing=LOSSY),
    "huge size": Case(in_record(0, int32(2**31 - 1)), scan=LOSSY, listing=LOSSY),
    "size beyond the file": Case(in_record(0, int32(1 << 20)), scan=LOSSY, listing=LOSSY),
    "negative size": Case(in_record(0, int32(-1)), scan=LOSSY, listing=LOSSY),
    "size 0": Case(in_record(0, int32(0)), scan=LOSSY, listing=LOSSY),
    "least size": Case(in_record(0, int32(-(2**31))), scan=LOSSY, listing=LOSSY),
    "size of a blank": Case(in_record(0, int32(8) + b"\xcb\xd4\x31\x94"), scan=LOSSY, listing=LOSSY),
    "wrong magic": Case(in_record(4, b"\xda\xa3\x20\xa8"), scan=LOSSY, listing=LOSSY),
    "negative place": Case(in_record(28, struct.pack(">q", -1)), scan=LOSSY, listing=LOSSY),
    "negative body": Case(in_record(84, int32(-1)), scan=LOSSY, listing=LOSSY),
    "huge body": Case(in_record(84, int32(2**31 - 1)), scan=LOSSY, listing=LOSSY),
    "negative topic": Case(behind_body(0, b"\xff"), scan=LOSSY, listing=LOSSY),
    "topic too long": Case(behind_body(0, b"\x7f"), scan=LOSSY, listing=LOSSY),
    "wrong body": Case(in_record(90, b"\xfe\xfe\xfe\xfe"), scan=LOSSY, listing=LOSSY),
    "IPv6 without room": Case(in_record(36, int32(0x30)), scan=LOSSY, listing=LOSSY),
    "off the grid": Case(rename(1, 100), scan=LOSSY, listing=LOSSY, codes=(GAP, OVERLAP)),
    "far away": Case(rename(2, 1 << 40), scan=LOSSY, listing=LOSSY, codes=(GAP,)),
    "at the end of numbers": Case(rename(2, 2**63 - 1 - 8 * 65536), scan=LOSSY, listing=LOSSY, codes=(GAP,)),
    "beyond numbers": Case(rename(2, 10**20 - 1 - 8 * 65536), codes=(STRAY,)),
    "swapped": Case(swap, scan=LOSSY, listing=LOSSY),
    "empty at the end": Case(put(NEXT), codes=(EMPTY,)),
    "empty in the middle": Case(sparse(second, 0), scan=LOSSY, listing=LOSSY, codes=(EMPTY, GAP)),
    "odd size": Case(sparse(second, 12_345), scan=LOSSY, listing=LOSSY, codes=(SIZE, GAP)),
    "seven bytes": Case(put(NEXT, b"\0\0\1\0\xda\xa3\x20"), scan=LOSSY, listing=LOSSY, codes=(SIZE,)),
    "huge and sparse": Case(sparse(last, 1 << 40), codes=(SIZE,)),
    "stray file": Case(put("commitlog/readme.txt", b"x"), codes=(STRAY,)),
    "backup copy": Case(lambda store: shutil.copy(second(store), f"{second(store)}.bak"), codes=(STRAY,)),
    "directory": Case(directory("commitlog/00000000000000000000"), codes=(FOLDER,)),
    "linked file": Case(moved_and_linked(second)),
    "linked directory": Case(moved_and_linked(lambda store: store / "commitlog")),
    "dangling file": Case(link(NEXT, "nowhere"), LOSSY, LOSSY, FAILED, NEXT, (UNREADABLE,)),
    "looping file": Case(link(NEXT, Path(NEXT).name), LOSSY, LOSSY, FAILED, NEXT, (UNREADABLE,)),
    "dangling stray": Case(link("commitlog/x", "nowhere"), codes=(STRAY,)),
    "link to a directory": Case(link("commitlog/x", "."), codes=(FOLDER,)),
    "dangling directory": Case(link("commitlog", "nowhere"), listing=FAILED, names="commitlog", gone=(AMBIGUOUS,)),
    "looping directory": Case(
        link("commitlog", "commitlog"), LOSSY, LOSSY, FAILED, "commitlog", (UNREADABLE,), (AMBIGUOUS,)
    ),
    "file for directory": Case(
        file_for_directory("commitlog"), LOSSY, LOSSY, FAILED, "commitlog", (UNREADABLE,), (AMBIGUOUS,)
    ),
    "no log": Case(
        lambda store: shutil.rmtree(store / "commitlog"), listing=FAILED, names="commitlog", gone=(AMBIGUOUS,)
    ),
    "no file": Case(emptied("commitlog"), gone=(AMBIGUOUS,)),
}

QUEUE_CASES = {
    "partial unit": Case(on(queue, lambda data: data[:-7]), codes=(QUEUE_SIZE, QUEUE_GAP)),
    "less than a unit": Case(on(queue, lambda data: data[:7]), codes=(QUEUE_SIZE, QUEUE_GAP, HOLE)),
    "zeroed": Case(on(queue, lambda data: bytes(len(data))), codes=(HOLE,)),
    "zeroed in the middle": Case(on(queue, lambda data: data[:200] + bytes(200) + data[400:]), codes=(HOLE,)),
    "all ones": Case(on(queue, lambda data: b"\xff" * len(data)), codes=(HOLE,)),
    "greatest numbers": Case(on(queue, lambda data: b"\x7f" + b"\xff" * 7 + data[8:])),
    "backwards": Case(
        on(queue, lambda data: b"".join(data[at : at + 20] for at in range(580, -1, -20))), codes=(HOLE,)
    ),
    "empty": Case(sparse(queue, 0), codes=(QUEUE_EMPTY, HOLE)),
    "huge and sparse": Case(sparse(queue, 1 << 42), codes=(QUEUE_SIZE, QUEUE_GAP, LACK)),
    "stray names": Case(put("consumequeue/orders/0/readme", b"x"), codes=(QUEUE_STRAY,)),
    "off the grid": Case(
        lambda store: queue(store).rename(queue(store).with_name("7".zfill(20))), codes=(QUEUE_SIZE, QUEUE_GAP, HOLE)
    ),
    "at the end of numbers": Case(
        put(f"consumequeue/orders/0/{2**63 - 1:020d}", b"\1" * 600), codes=(QUEUE_SIZE, QUEUE_GAP)
    ),
    "topic is a file": Case(put("consumequeue/topic")),
    "queue is a file": Case(put("consumequeue/orders/9")),
    "no number": Case(directory("consumequeue/orders/a")),
    "negative number": Case(directory("consumequeue/orders/-1")),
    "number of another script": Case(directory("consumequeue/orders/٣")),
    "numbers too long": Case(directory(f"consumequeue/orders/{'9' * 200}")),
    "directory for file": Case(directory("consumequeue/orders/0/00000000000000009000"), codes=(QUEUE_STRAY,)),
    "dangling topic": Case(link("consumequeue/x", "nowhere")),
    "dangling queue": Case(link("consumequeue/orders/9", "nowhere")),
    "looping topic": Case(link("consumequeue/x", "x")),
    "topic in itself": Case(link("consumequeue/orders/9", ".."), codes=(QUEUE_STRAY,)),
    "dangling file": Case(
        link("consumequeue/orders/0/00000000000000009000", "nowhere"),
        LOSSY,
        LOSSY,
        OK,
        "00000000000000009000",
        (UNREADABLE,),
    ),
    "file for directory": Case(
        file_for_directory("consumequeue"), LOSSY, LOSSY, OK, "consumequeue", (UNREADABLE,), (AMBIGUOUS,)
    ),
    "no queues": Case(lambda store: shutil.rmtree(store / "consumequeue"), gone=(AMBIGUOUS,)),
    "batch: partial unit": Case(on(batch, lambda data: data[:-3]), stores=V5, codes=(QUEUE_SIZE, QUEUE_GAP)),
    "batch: zeroed": Case(on(batch, lambda data: bytes(len(data))), stores=V5, codes=(HOLE,)),
    "batch: all ones": Case(on(batch, lambda data: b"\xff" * len(data)), stores=V5, codes=(HOLE,)),
    "batch: empty": Case(sparse(batch, 0), stores=V5, codes=(QUEUE_EMPTY, HOLE)),
}


def patched(position: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda old: old[:position] + data + old[position + len(data) :]


INDEX_CASES = {
    "short header": Case(sparse(index, 10)),
    "empty": Case(sparse(index, 0)),
    "cut": Case(sparse(only_index, 5000), codes=(GEOMETRY,)),
    "huge and sparse": Case(sparse(only_index, 1 << 40), codes=(GEOMETRY,)),
    "all ones": Case(on(index, lambda data: b"\xff" * len(data))),
    "all zeros": Case(on(index, lambda data: bytes(len(data)))),
    "cycle": Case(on(index, lambda data: data[:240] + patched(16, int32(1))(data[240:]))),
    "negative count": Case(on(index, patched(36, int32(-5)))),
    "huge count": Case(on(only_index, patched(36, int32(2**31 - 1))), codes=(GEOMETRY,)),
    "greatest times": Case(on(index, patched(0, b"\x7f" + b"\xff" * 7))),
    "negative slots": Case(on(index, patched(32, int32(-5)))),
    "wrong name": Case(put("index/readme", b"x")),
    "short name": Case(put("index/1", b"x")),
    "directory": Case(directory("index/20200101000000000")),
    "dangling": Case(link("index/20200101000000000", "nowhere")),
    "looping": Case(link("index/20200101000000000", "20200101000000000")),
    "file for directory": Case(file_for_directory("index"), LOSSY, LOSSY, OK, "index", (UNREADABLE,)),
}

CHECKPOINT_CASES = {
    "short": Case(put("checkpoint", b"\0\0\1")),
    "empty": Case(put("checkpoint")),
    "all ones": Case(put("checkpoint", b"\xff" * 4096)),
    "greatest numbers": Case(put("checkpoint", (b"\x7f" + b"\xff" * 7) * 6)),
    "directory": Case(directory("checkpoint"), LOSSY, LOSSY, OK, "checkpoint", (UNREADABLE,)),
    "dangling": Case(link("checkpoint", "nowhere")),
    "looping": Case(link("checkpoint", "checkpoint"), LOSSY, LOSSY, OK, "checkpoint", (UNREADABLE,)),
    "missing": Case(lambda store: (store / "checkpoint").unlink()),
    "lock is a directory": Case(directory("lock")),
    "lock is a loop": Case(link("lock", "lock")),
    "abort is a directory": Case(directory("abort"), codes=(UNCLEAN,)),
    "abort is binary": Case(put("abort", b"\xff" * 100), codes=(UNCLEAN,)),
    "abort is a huge number": Case(put("abort", b"9" * 20), codes=(UNCLEAN,)),
    "abort is a number of another script": Case(put("abort", "٣²".encode()), codes=(UNCLEAN,)),
}

OFFSETS = "config/consumerOffset.json"


def table(content: str) -> Damage:
    return put(OFFSETS, f'{{"offsetTable":{content}}}'.encode())


CONFIG_CASES = {
    "empty": Case(put(OFFSETS), codes=(CONFIG,)),
    "cut": Case(on(lambda store: store / OFFSETS, lambda data: data[: len(data) // 2]), codes=(CONFIG,)),
    "backup only": Case(lambda store: (store / OFFSETS).rename(store / f"{OFFSETS}.bak")),
    "binary": Case(put(OFFSETS, bytes(range(256)) * 40), codes=(CONFIG,)),
    "zeros": Case(put(OFFSETS, bytes(5000)), codes=(CONFIG,)),
    "quotes": Case(put(OFFSETS, b'{"a":"' + b'\\"' * 500), codes=(CONFIG,)),
    "deep": Case(put(OFFSETS, b"[" * 200_000), codes=(CONFIG,)),
    "deep objects": Case(put(OFFSETS, b'{"a":' * 200_000), codes=(CONFIG,)),
    "a list": Case(put(OFFSETS, b"[]"), codes=(CONFIG,)),
    "a number too long": Case(put(OFFSETS, b'{"a":' + b"9" * 5000 + b"}"), codes=(CONFIG,)),
    "not UTF-8": Case(put(OFFSETS, b'{"offsetTable":{"t@\xff":{0:1}}}')),
    "half a surrogate": Case(table('{"t@\\ud800":{0:1}}')),
    "no object": Case(table("[1,2]"), codes=(CONFIG,)),
    "null": Case(table("null")),
    "no group": Case(table('{"t":{0:1}}')),
    "many signs": Case(table('{"a@b@c":{0:1},"@":{0:1},"@@":{0:1}}')),
    "wrong types": Case(table('{"t@g":{"0":"1","1":null,"2":1.5,"3":true,"4":[],"5":{}},"t@h":7}'), codes=(CONFIG,)),
    "wrong queues": Case(
        table('{"t@g":{"--5":1,"x":1,"":1,"٣":1,"²":1,"1e3":1,"99999999999999999999":1}}'), codes=(CONFIG,)
    ),
    "queue too long": Case(table(f'{{"t@g":{{"{"9" * 5000}":1}}}}'), codes=(CONFIG,)),
    "huge offset": Case(
        table('{"orders@g":{0:99999999999999999999999,1:1e999,2:-99999999999999999999}}'), codes=(CONFIG,)
    ),
    "negative offset": Case(table('{"orders@g":{0:-1,-1:5}}')),
    "light queues": Case(put("config/lmqConsumerOffset.json", b'{"lmqOffsetTable":{"x@y":"1","a@b":3,"c":4}}')),
    "light queues cut": Case(put("config/lmqConsumerOffset.json", b'{"lmqOffsetTable":{'), codes=(CONFIG,)),
    "topics cut": Case(put("config/topics.json", b'{"topicConfigTable":{')),
    "topics of another type": Case(put("config/topics.json", b'{"dataVersion":7}')),
    "directory": Case(directory(OFFSETS), codes=(CONFIG,)),
    "loop": Case(link(OFFSETS, "consumerOffset.json"), codes=(CONFIG,)),
    "dangling": Case(link(OFFSETS, "nowhere")),
    "file for directory": Case(file_for_directory("config"), codes=(CONFIG,)),
}

GROUPS = {
    "log": (LOG_CASES, NAMES),
    "queue": (QUEUE_CASES, V4),
    "index": (INDEX_CASES, V5),
    "checkpoint": (CHECKPOINT_CASES, V5),
    "config": (CONFIG_CASES, V5),
}
PARAMETERS = [
    pytest.param(name, case, id=f"{group}: {title} ({name})", marks=pytest.mark.rare if number else ())
    for group, (cases, names) in GROUPS.items()
    for title, case in cases.items()
    for number, name in enumerate(case.stores or reversed(names))
]
"""Often on the newest store only."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@cache
def codes_without_damage(root: Path) -> set[str]:
    return {finding["code"] for finding in rmqtool("inspect", root, "--json").document["findings"]}


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), PARAMETERS)
def test_bad_input(name: str, case: Case, unpacked: GoldenStore, store: Path) -> None:
    """Each case has its exit statuses and findings, and an error names the entry that it is about."""
    golden = unpacked(name)
    copied(golden, store)
    case.damage(store)
    with unchanged(store):
        overview = rmqtool("inspect", store, "--json")
        text = rmqtool("inspect", store, "-v")
        scan = rmqtool("inspect", store, "--json", "--scan")
        lines = rmqtool("inspect", store / "commitlog", "--json")
    assert (overview.status, scan.status, lines.status) == (case.overview, case.scan, case.listing)
    assert text.status == case.overview
    for found in (overview, scan, lines):
        check_error(found, case.names)
    if overview.status == FAILED:
        assert case.names in text.err
        return
    codes = {finding["code"] for finding in overview.document["findings"]}
    assert codes == codes_without_damage(golden) - {*case.gone} | {*case.codes}
    assert codes == {finding["code"] for finding in scan.document["findings"]}
    assert text.out.count("\n") > 4


def check_error(found: Result, names: str) -> None:
    """Assert that a failure says what it is about, and that the output of anything else is there."""
    if found.status == FAILED:
        error = found.document["error"] if found.out.startswith("{\n") else found.lines[-1]
        assert names
        assert error["file"].endswith(names)
        assert error["message"]
    else:
        assert found.out or found.err


def few(golden: Path, store: Path, count: int) -> tuple[Path, list[int]]:
    """A store of a few records of a golden one, the smallest run; its only file, where they begin, and their end."""
    file = log(golden)[0]
    data, positions = file.read_bytes(), record_positions(file)
    first = min(range(len(positions) - count), key=lambda number: positions[number + count] - positions[number])
    begin, *_, end = found = positions[first : first + count + 1]
    copy = store / "commitlog" / f"{int(file.name) + begin:020d}"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(data[begin:end] + bytes(PAGE))
    return copy, [position - begin for position in found]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_truncations_of_the_last_record(name: str, unpacked: GoldenStore, store: Path) -> None:
    """A file that ends inside its last record has lost that record and no other; the rest of it is damage."""
    file, positions = few(unpacked(name), store, 2)
    data, start = file.read_bytes(), int(file.name)
    whole = listing(store).lines
    for end in [
        *range(positions[1], positions[1] + 8),
        *one_in(3, range(positions[1] + 8, positions[2]), name),
        positions[2],
    ]:
        file.write_bytes(data[:end])
        found = listing(store)
        is_whole = end == positions[2]
        is_cut = not is_whole and data[positions[1] : end].strip(b"\0") != b""
        assert found.status == (LOSSY if is_cut else OK), end
        assert found.of_kind("message") == whole[: 1 + is_whole]
        assert [damage["physical_offset"] for damage in found.of_kind("damage")] == [start + positions[1]] * is_cut
        if end % 8 == 0 or is_whole:
            scan = inspect(store, "--scan", "--json")
            assert scan.status == found.status
            assert scan.document["result"]["commit_log"]["max_offset"] == start + positions[1 + is_whole]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_zeros_behind_a_cut(name: str, unpacked: GoldenStore, store: Path) -> None:
    """A record that was written in part, as a crash leaves it, is not a message before all of its lengths are there."""
    file, positions = few(unpacked(name), store, 2)
    data = file.read_bytes()
    proven = positions[2] - MessageUnit.parse(data[positions[1] :]).properties_size
    for end in range(positions[1], positions[2], 13):
        file.write_bytes(data[:end] + bytes(PAGE))
        assert len(listing(store).of_kind("message")) == (2 if end >= proven else 1)
        assert inspect(store).status == OK
        assert inspect(store, part="commitlog").status in (OK, LOSSY)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_flips_in_a_header(name: str, unpacked: GoldenStore, store: Path) -> None:
    """A flip costs its record at most; where that still stands, the flip changes one field and nothing else."""
    file, positions = few(unpacked(name), store, 3)
    data = file.read_bytes()
    sound = listing(store).lines
    for offset in one_in(3, range(HEADER_SIZE), name):
        flipped = bytearray(data)
        flipped[positions[1] + offset] ^= 0x80 >> offset % 8
        file.write_bytes(flipped)
        found = listing(store)
        messages, damage = found.of_kind("message"), found.of_kind("damage")
        wrong = not all(message["body_crc_ok"] for message in messages)
        assert found.status == (LOSSY if damage or wrong else OK)
        assert (messages[0], messages[-1]) == (sound[0], sound[2])
        if damage:
            extent = {"physical_offset": int(file.name) + positions[1], "size": positions[2] - positions[1]}
            assert extent.items() <= damage[0].items()
        else:
            assert messages[1] != sound[1]
            assert all(messages[1][name] == sound[1][name] for name in ("topic", "properties", "body_size"))
        assert len(messages) + len(damage) == 3
        if offset % 4 == 0:
            assert inspect(store, "--scan", "--json").status == found.status


def test_an_open_string_takes_no_longer_than_another(unpacked: GoldenStore, store: Path) -> None:
    """A config file that was cut inside of a string of many quotes costs seconds, in CPU time."""
    copied(unpacked("5.3.3-single"), store)
    put(OFFSETS, b'{"a":"' + b'\\"' * 60_000)(store)
    begun = time.process_time()
    assert inspect(store).status == OK
    assert time.process_time() - begun < 30  # minutes, when each quote is tried as the beginning of a string


@pytest.mark.slow
def test_flips_are_damage_where_the_field_is_proven(unpacked: GoldenStore, store: Path) -> None:
    """Size, magic code, place and body size are proven: a flip in any of their bytes is damage."""
    file, positions = few(unpacked(NAMES[0]), store, 3)
    data = file.read_bytes()
    proven = [*range(8), *range(28, 36), *range(84, 88)]
    for offset in proven:
        flipped = bytearray(data)
        flipped[positions[1] + offset] ^= 1
        file.write_bytes(flipped)
        assert listing(store).status == LOSSY, offset


@pytest.mark.slow
def test_all_golden_stores_without_their_log(unpacked: GoldenStore, store: Path) -> None:
    """Whatever is left when the log is gone is shown, with lag and queues as they stand."""
    for number, name in enumerate(name for name in stores.names() if name.endswith("-clean")):
        copy = copied(unpacked(name), store / str(number))
        shutil.rmtree(copy / "commitlog")
        found = inspect(copy, "--scan", "--json")
        assert found.status == OK
        assert found.document["result"]["commit_log"]["files"] == found.document["result"]["scan"]["messages"] == 0
        assert len(found.document["result"]["queues"]) > 30
