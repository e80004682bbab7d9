"""DLedger entries read by the same scan: the same messages, damage and ends as in a plain log, at their own offsets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from struct import unpack_from
from typing import Any

import pytest

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.block import Block, Damage, _walk_in_lanes, chain
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import find_next, record_at
from rmqtool.store.commit_log import log_range
from rmqtool.store.splits import find_source, split_source
from rmqtool.store.store import open_store, open_stores
from tests.dledger_building import NODE, EntryBuilder, entry_log, put_entries

FILE_SIZE = 4096
FIRST_READ = 16 << 10  # of a search after damage, bytes
WHOLE = (0, 1 << 62)
Found = list[tuple[Any, ...]]


def files_of(store: Path) -> tuple[MappedFile, ...]:
    return open_store(store).commit_log().files


def scanned(files: Sequence[MappedFile], span: tuple[int, int] = WHOLE) -> Found:
    """Physical offset and size of each message; other events by their kind."""
    found: Found = []
    for event in scan_files(files, *span):
        if isinstance(event, RecordRun):
            rows = zip(event.physical_offsets.tolist(), event.message_sizes.tolist(), strict=True)
            found += [("message", *row) for row in rows]
        else:
            reason = (event.reason,) if isinstance(event, Damage) else ()
            found.append((type(event).__name__.lower(), event.physical_offset, event.size, *reason))
    return found


def whole_entries(log: EntryBuilder, images: Sequence[bytes]) -> Found:
    """The messages of entries whose header and lengths are as they were written: found without any scan."""
    found: Found = []
    for offset in log.offsets:
        number, position = divmod(offset - log.start_offset, log.file_size)
        written, stored = bytes(log.files[number]), images[number]
        size = unpack_from(">i", written, position)[0]
        fixed = slice(position - ENTRY_HEADER_SIZE, position + size)
        if written[fixed] == stored[fixed]:
            found.append(("message", offset, size))
    return found


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("file_size", "records"), [(FILE_SIZE, 60), (1 << 16, 3000), pytest.param(1 << 23, 16_000, marks=pytest.mark.slow)]
)
def test_all_messages(file_size: int, records: int, tmp_path: Path) -> None:
    """Each message at its own offset, a blank at the end of each full file; blocks and lanes end anywhere."""
    log = put_entries(EntryBuilder(file_size=file_size), records)
    found = scanned(files_of(log.write(tmp_path)))
    assert [each[1] for each in found if each[0] == "message"] == log.offsets
    ends = [(log.file_size * number + len(data)) for number, data in enumerate(log.files[:-1])]
    assert len([each for each in found if each[0] == "blank"]) == len(ends)
    assert {each[0] for each in found} <= {"message", "blank"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(60))
def test_damage_and_parts(seed: int, tmp_path: Path) -> None:
    """Every whole entry is found after any damage, nothing else is; parts that meet give each event once."""
    chance = random.Random(seed)
    log = entry_log(chance.choice((3, 50, 200)), start_offset=chance.choice((0, FILE_SIZE * 5)))
    files = files_of(log.write(tmp_path))
    for _ in range(seed % 5):
        file = chance.choice(files).path
        data = bytearray(file.read_bytes())
        start = chance.randrange(len(data))
        end = min(len(data), start + chance.choice((1, 8, 100, 2000)))
        data[start:end] = chance.randbytes(end - start)
        file.write_bytes(data)
    found = scanned(files)
    messages = [each for each in found if each[0] == "message"]
    expected = whole_entries(log, [file.path.read_bytes() for file in files])
    assert [each for each in expected if each not in messages] == []
    offsets = set(log.offsets)
    assert {each[1] for each in messages} <= offsets
    cuts = sorted(chance.sample(range(files[-1].end_offset), 6))
    in_parts = [each for span in pairwise((0, *cuts, WHOLE[1])) for each in scanned(files, span)]
    assert in_parts == found


@pytest.mark.parametrize(
    "before", [*range(FIRST_READ - 130, FIRST_READ + 20, 3), 5 * FIRST_READ - 10, 5 * FIRST_READ - 70]
)
def test_an_entry_anywhere_behind_damage(before: int, tmp_path: Path) -> None:
    """Also where one of the reads that look for it ends in its header, or in its message."""
    log = entry_log(1, start_offset=before)
    (path := tmp_path / "file").write_bytes(b"\xa5" * before + bytes(log.files[0]))
    with InputFile(path) as file:
        assert find_next(file, 0, 0, ENTRY_HEADER_SIZE) == before
        assert find_next(file, 0, before + 1, ENTRY_HEADER_SIZE) == file.size


def test_the_blank_behind_damage(tmp_path: Path) -> None:
    """The last entry of a full file is damaged: the blank after it is none of the damage."""
    log = entry_log(60)
    last = max(offset for offset in log.offsets if offset < FILE_SIZE)
    store = log.write(tmp_path)
    path = store / NODE / "data" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    end = data.rindex(b"\xff\xff\xff\xff\x00\x00")
    data[last - ENTRY_HEADER_SIZE] ^= 1
    path.write_bytes(data)
    found = scanned(files_of(store))
    assert ("damage", last - ENTRY_HEADER_SIZE, end - last + ENTRY_HEADER_SIZE, "magic-code") in found
    assert ("blank", end, FILE_SIZE - end) in found


def test_lanes_of_entries(tmp_path: Path) -> None:
    """A block of entries is walked in lanes, which prove each other, and not one by one."""
    log = put_entries(EntryBuilder(file_size=1 << 20), 1000)
    (path := tmp_path / "file").write_bytes(bytes(log.files[0]))
    block = Block(1 << 20)
    with InputFile(path) as file:
        block.fill(file, 0, file.size, 0)
    lanes = _walk_in_lanes(block, ENTRY_HEADER_SIZE, ENTRY_HEADER_SIZE)
    assert lanes is not None
    assert lanes.tolist() == log.offsets == chain(block, 0, None, ENTRY_HEADER_SIZE).tolist()


def test_runs_begin_where_the_last_event_has_ended(tmp_path: Path) -> None:
    """With the header before its first message: parts of a log are put together by that."""
    end = 0
    for event in scan_files(files_of(entry_log(200).write(tmp_path))):
        assert (event.begin if isinstance(event, RecordRun) else event.physical_offset) == end
        end = event.physical_offset + event.size


def test_single_records_and_range(tmp_path: Path) -> None:
    """One message at its offset, none where its entry begins; first and last offset and times."""
    log = entry_log(60, start_offset=FILE_SIZE * 3)
    files = files_of(log.write(tmp_path))
    for offset in log.offsets:
        record = record_at(files, offset)
        assert record is not None
        assert record.physical_offset == offset
        assert record_at(files, offset - ENTRY_HEADER_SIZE) is None
    found = log_range(files)
    assert (found.min_offset, found.max_offset, found.last_record_offset) == (
        log.start_offset,
        log.end,
        log.offsets[-1],
    )


@pytest.mark.parametrize("field", ["magic", "size", "message size", "another place"])
def test_what_is_no_entry(field: str, tmp_path: Path) -> None:
    """Header and message must agree, and the message must know its place."""
    log = entry_log(9)
    data = log.files[0]
    position = log.offsets[3]
    match field:
        case "magic":
            data[position - ENTRY_HEADER_SIZE + 3] = 2
        case "size":
            data[position - ENTRY_HEADER_SIZE + 7] ^= 1
        case "message size":
            data[position + 3] ^= 1
        case "another place":
            data[position + 35] ^= 1
    found = scanned(files_of(log.write(tmp_path)))
    assert [each[1] for each in found if each[0] == "message"] == log.offsets[:3] + log.offsets[4:]
    [damage] = [each for each in found if each[0] == "damage"]
    entry, following = (log.offsets[row] - ENTRY_HEADER_SIZE for row in (3, 4))
    assert damage[1:3] == (entry, following - entry)


def test_splits_know_of_entries(tmp_path: Path) -> None:
    """What another process gets of a log says that headers stand before its records."""
    store = entry_log(60).write(tmp_path)
    [named] = open_stores([str(store)], BrokerConf())
    splits = list(split_source(find_source(named), 1000))
    found = [each for split in splits for each in scanned(split.files, (split.start, split.stop))]
    assert found == scanned(files_of(store))
    assert all(file.header_size for split in splits for file in split.files)
    assert (store / NODE).is_dir()
