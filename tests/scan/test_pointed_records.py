"""Records looked at where units point to: all that pass, whatever the units tell, at the price of what is asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.base.files import InputFile
from rmqtool.formats.message import HEADER_DTYPES
from rmqtool.scan.block import BLOCK_SIZE
from rmqtool.scan.filters import Filters
from rmqtool.scan.pointed_records import Heads, passing_records, read_heads
from tests.building import START_TIME, LogBuilder, message, write_log, write_sparse
from tests.scan.reading import files_of
from tests.unchanged import unchanged

FILE_SIZE = 1 << 16


def build(store: Path, count: int = 2000, **fields: Any) -> LogBuilder:
    """Records of several sizes over several files, every third one with the key ``third``."""
    rng = random.Random(count)
    log = LogBuilder(file_size=FILE_SIZE)
    for number in range(count):
        properties = {"KEYS": "third other"} if number % 3 == 0 else {"TAGS": "a"}
        body = rng.randbytes(rng.choice((0, 10, 300, 2000)))
        sys_flag = rng.choice((0, 0x10, 0x20, 0x30))
        log.add(**{"body": body, "properties": properties, "sys_flag": sys_flag, **fields,
                   "store_timestamp": START_TIME + number})  # fmt: skip
    log.write(store)
    return log


def heads_at(store: Path, offsets: Any) -> Heads:
    with unchanged(store):
        return read_heads(files_of(store), np.unique(np.array(offsets, dtype=np.int64)))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 7, 300])
def test_heads_tell_what_the_records_tell(tmp_path: Path, step: int) -> None:
    """Size and store time of each, with hosts of either form, near each other or far apart."""
    log = build(tmp_path)
    found = heads_at(tmp_path, log.offsets[::step])
    assert found.is_record.all()
    assert found.store_timestamps.tolist() == [START_TIME + number for number in range(2000)][::step]
    images = log.images()
    stored = [images[at // FILE_SIZE * FILE_SIZE][at % FILE_SIZE :][:4] for at in log.offsets[::step]]
    assert found.message_sizes.tolist() == [int.from_bytes(size, "big") for size in stored]


def test_where_no_record_begins(tmp_path: Path) -> None:
    """Any place but that of a record: before, after and between files, inside records, in a blank."""
    log = build(tmp_path, 400)
    places = {-(1 << 63), -1, log.end, 10**15, (1 << 63) - 1}
    places |= {offset + 1 for offset in log.offsets} | {offset + 30 for offset in log.offsets}
    places |= {file.end_offset - 5 for file in files_of(tmp_path)}
    found = heads_at(tmp_path, [*places, *log.offsets[::9]])
    assert found.offsets[found.is_record].tolist() == log.offsets[::9]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 50])
def test_records_that_pass(tmp_path: Path, step: int) -> None:
    """Keys are in the properties, at the end of each record."""
    log = build(tmp_path)
    heads = heads_at(tmp_path, log.offsets[::step])
    with unchanged(tmp_path):
        passed, sound = passing_records(files_of(tmp_path), heads, Filters(keys=("third",)))
    assert sound.all()
    assert passed.tolist() == [number % 3 == 0 for number in range(2000)][::step]


def test_more_than_one_block(tmp_path: Path) -> None:
    """Records that take more than a block together, and one that takes more alone."""
    log = LogBuilder(file_size=16 << 20)
    for number in range(40):
        size = BLOCK_SIZE + 5 if number == 20 else 300_000
        log.add(body=bytes(size), properties={"KEYS": f"k{number % 2}"})
    log.write(tmp_path)
    heads = heads_at(tmp_path, log.offsets)
    passed, sound = passing_records(files_of(tmp_path), heads, Filters(keys=("k1",)))
    assert sound.all()
    assert passed.tolist() == [bool(number % 2) for number in range(40)]


@pytest.mark.slow
def test_damaged_records_take_none_with_them(tmp_path: Path) -> None:
    """A record with lengths that do not add up is not sound; its neighbours are judged as before."""
    log = build(tmp_path, 600, sys_flag=0)
    images = {start: bytearray(data) for start, data in log.images().items()}
    bad = set(log.offsets[5:400:2])
    for offset in bad:
        images[offset // FILE_SIZE * FILE_SIZE][offset % FILE_SIZE + 84] = 0x7F  # the first byte of the body's size
    write_log(tmp_path, {start: bytes(data) for start, data in images.items()})
    heads = heads_at(tmp_path, log.offsets)
    assert heads.is_record.all()
    passed, sound = passing_records(files_of(tmp_path), heads, Filters(keys=("third",)))
    assert {offset for offset, good in zip(log.offsets, sound, strict=True) if not good} == bad
    assert passed.tolist() == [number % 3 == 0 and log.offsets[number] not in bad for number in range(600)]


def test_records_inside_a_record(tmp_path: Path) -> None:
    """A body may hold records that tell their own places: each is judged by itself."""
    head = HEADER_DTYPES[0].itemsize
    inner = message(head, properties={"KEYS": "inner"})
    second = head + len(inner)
    inner += message(second)
    outer = message(0, properties={"KEYS": "outer"}, body=inner)
    assert outer[head : head + len(inner)] == inner
    behind = message(len(outer), properties={"KEYS": "outer"})
    write_log(tmp_path, {0: (outer + behind).ljust(4096, b"\0")})
    heads = heads_at(tmp_path, [0, head, second, len(outer)])
    assert heads.is_record.all()
    for key, expected in (("outer", [True, False, False, True]), ("inner", [False, True, False, False])):
        passed, sound = passing_records(files_of(tmp_path), heads, Filters(keys=(key,)))
        assert sound.all()
        assert passed.tolist() == expected


def test_only_what_is_pointed_to_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of records far apart in a large log not much more than they are is read."""
    gap = 40 << 20
    pieces = {number * gap: message(number * gap, store_timestamp=number) for number in range(20)}
    write_sparse(tmp_path / "commitlog" / ("0" * 20), pieces, 1 << 30)
    read: list[int] = []
    real = InputFile.read_into

    def counted(self: Any, target: memoryview, position: int) -> int:
        read.append(len(target))
        return real(self, target, position)

    monkeypatch.setattr(InputFile, "read_into", counted)
    files = files_of(tmp_path)
    heads = read_heads(files, np.array(sorted(pieces), dtype=np.int64))
    assert heads.store_timestamps.tolist() == list(range(20))
    passed, _ = passing_records(files, heads, Filters(topics=("orders",)))
    assert passed.all()
    assert sum(read) < 20 * 400


def test_nothing_to_look_at(tmp_path: Path) -> None:
    """Without units, without files, without a record."""
    nothing = np.zeros(0, dtype=np.int64)
    assert not len(read_heads((), nothing).offsets)
    passed, sound = passing_records((), read_heads((), nothing), Filters(keys=("k",)))
    assert len(passed) == len(sound) == 0
    heads = read_heads((), np.array([0, 5], dtype=np.int64))
    assert not heads.is_record.any()
    assert not passing_records((), heads, Filters(keys=("k",)))[1].any()


def test_ipv6_hosts(tmp_path: Path) -> None:
    """The place of the store time depends on the hosts before it."""
    log = LogBuilder().add_all([{"sys_flag": flag, "store_timestamp": 7 + flag} for flag in (0, 0x10, 0x20, 0x30)])
    log.write(tmp_path)
    assert heads_at(tmp_path, log.offsets).store_timestamps.tolist() == [7, 23, 39, 55]
