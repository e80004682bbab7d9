"""Random damage to one or two copies: every whole message is in the new log, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats.message import CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from tests.building import LOG
from tests.copies import copied
from tests.salvage.damaged_logs import Records, checked_log, damage, images_of, records_of, salvaged, whole_in
from tests.sampling import examples
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 10**9))
def test_all_that_is_whole(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(seed=st.integers(0, 10**9))
def test_all_that_is_whole_of_many(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Damage some files of a log, or of it and of a copy; the sources stay as they are then."""
    chance = random.Random(seed)
    with TemporaryDirectory() as directory:
        log = checked_log(chance.choice((5, 40, 60)), start_offset=chance.choice((0, FILE_SIZE * 7)))
        stores = [log.write(Path(directory) / "a")]
        if chance.random() < 1 / 3:
            stores.append(copied(stores[0], Path(directory) / "b"))
        for store in stores:
            damage_some(sorted((store / LOG).iterdir()), chance)
        expected = whole_in(records_of(log), [data for store in stores for data in images_of(store).values()])
        with unchanged(stores[0]), unchanged(stores[-1]):
            _, found = salvaged(Path(directory) / "new", *stores)
        unproven = {offset for offset, record in found.items() if not holds_crc(record)}
        unproven |= {
            offset for offset in expected if any(overlap(offset, other, expected, found) for other in unproven)
        }
        assert without(found, unproven) == without(expected, unproven)


def damage_some(files: list[Path], chance: random.Random) -> None:
    for path in chance.sample(files, min(len(files), chance.randint(0, 4))):
        for _ in range(chance.randint(1, 3)):
            if path.stat().st_size:
                damage(path, chance)


def holds_crc(record: bytes) -> bool:
    """Whether a record has a CRC of its own still; one that has lost it proves only its body and its sizes."""
    return record[-CRC32_PROPERTY_SIZE:].startswith(CRC32_PROPERTY)


def overlap(offset: int, other: int, expected: Records, found: Records) -> bool:
    return offset < other + len(found[other]) and other < offset + len(expected[offset])


def without(records: Records, offsets: set[int]) -> Records:
    return {offset: record for offset, record in records.items() if offset not in offsets}
