"""A sample of all single-byte changes of the small store: each is found, or in the table of blind spots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.verify.flips import BLIND_SPOTS, MASKS, Place, found, places
from tests.verify.small_store import small_store

SAMPLE = 50
SEED = 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("flips") / "store")


@pytest.fixture(scope="module")
def sample(store: Path) -> list[tuple[Place, int]]:
    random = Random(SEED)
    chosen = random.sample(list(places(store)), SAMPLE)
    return [(place, random.choice(MASKS)) for place in chosen]


@pytest.mark.slow
def test_changes_are_found(store: Path, sample: list[tuple[Place, int]]) -> None:
    """Whatever is missed is a byte that nothing depends on."""
    missed = [place for place, mask in sample if not found(store, place, mask)]
    assert [place for place in missed if place.field not in BLIND_SPOTS] == []
    assert len(missed) < SAMPLE / 4


@pytest.mark.slow
def test_each_part_of_the_store_is_changed(store: Path) -> None:
    """The places are of log, queues, index and checkpoint, and no byte is there twice."""
    every = list(places(store))
    assert len({(place.file, place.position) for place in every}) == len(every)
    assert {place.file.partition("/")[0] for place in every} == {"commitlog", "consumequeue", "index", "checkpoint"}


def fields_in_first_record(store: Path) -> Iterator[str]:
    return (place.field for place in places(store) if place.file.startswith("commitlog") and place.position < 88)


def test_places_know_their_field(store: Path) -> None:
    """The table of blind spots is by field, so a field must be right."""
    fields = list(fields_in_first_record(store))
    assert fields[:4] == ["record.message_size"] * 4
    assert fields[20:28] == ["record.queue_offset"] * 8
    assert fields[84:88] == ["record.body_size"] * 4
