"""A sample of all places in the last 64 KiB of a log: cut there, the torn record is told at its exact offset."""

from __future__ import annotations

from random import Random

import pytest

from tests.verify.cuts import DEPTH, WAYS, CutStore, Way

SAMPLE = 24
SEED = 7


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CutStore:
    return CutStore(tmp_path_factory.mktemp("cuts") / "store")


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("depth", sorted(Random(SEED).sample(range(1, DEPTH + 1), SAMPLE)))
def test_cuts_are_told_at_their_offset(depth: int, way: Way, store: CutStore) -> None:
    """Torn where the last record begins, and the queues then point after the log's end."""
    cut = store.cut(store.end - depth, way)
    store.restore()
    assert cut.torn == cut.expected
    assert cut.is_exact


def test_a_cut_between_two_records_tears_none(store: CutStore) -> None:
    """Only the queues tell that there was more."""
    cut = store.cut(store.offsets[-1], "zeroed")
    store.restore()
    assert cut.torn == []
    assert "consumequeue.ahead" in cut.codes


def test_the_places_are_the_last_64_kib(store: CutStore) -> None:
    """None is left out, and all lie in the log."""
    assert len(store.places) == DEPTH
    assert 0 < store.places[-1] < store.places[0] == store.end - 1
