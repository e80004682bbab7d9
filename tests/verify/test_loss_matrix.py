"""Verdicts on stores that have lost something, held to what the users of the real brokers lost: recorded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.unchanged import snapshot, unchanged
from tests.verify import losses_page
from tests.verify import losses_recorded as recorded
from tests.verify.losses_facts import judged, wrong
from tests.verify.losses_together import UNSEEN, all_losses

LOST = recorded.load()
WRITTEN = losses_page.written(LOST)
ROWS = [(store, row) for store, rows in LOST.items() for row in rows]
RANDOM = [each for each in ROWS if each[1] in recorded.RANDOM_ROWS]
TOUCHED = ": touched"

Pair = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """An undamaged store and its older copy, unpacked once."""
    return cache(lambda store: recorded.unpack(store, tmp_path_factory.mktemp(store)))


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize(("store", "row"), ROWS)
def test_no_loss_is_a_clean_store(store: str, row: str, pair: Pair, tmp_path: Path) -> None:
    """Every kind of file with everything that may happen to it; a store that was touched is as sound as before."""
    root = tmp_path / "store"
    names = recorded.make(row, *pair(store), root)
    assert names
    with unchanged(root):
        verdict, codes = judged(root)
    lost = LOST[store][row]
    unseen = not UNSEEN.keys().isdisjoint(names)
    assert unseen or not wrong(verdict, lost), f"{verdict} {codes} after {names}, but users lose {lost}"
    if not row.startswith(recorded.RANDOM):
        assert WRITTEN[store][row] == verdict, "docs/verify.md says otherwise: python -m tests.verify.losses_page"
    if row.endswith(TOUCHED):
        assert (verdict, codes) == ("clean", [])


@pytest.mark.slow
@pytest.mark.parametrize("store", recorded.STORES)
def test_the_undamaged_stores_are_clean(store: str, pair: Pair) -> None:
    """The healthy twins of every row, and of an older time."""
    for root in pair(store):
        with unchanged(root):
            assert judged(root) == ("clean", [])


def test_what_no_check_can_see_is_seen_in_no_store() -> None:
    """A row that some check sees in all stores does not stay among the exceptions."""
    seen = [row for row in UNSEEN if not any(wrong(WRITTEN[s][row], LOST[s][row]) for s in LOST if row in WRITTEN[s])]
    assert seen == []


@pytest.mark.parametrize("store", recorded.STORES)
def test_the_record_holds_every_sort_of_loss(store: str) -> None:
    """A comparison with nothing proves nothing: each area was lost, and some rows lose nothing."""
    lost = LOST[store]
    areas = {"start", "messages", "maximum", "keys", "topics", "groups", "committed", "delays"}
    assert {area for row in lost.values() for area in row} >= areas | ({"timers"} if store == "5.3.3" else set())
    assert sum(bool(row) for row in lost.values()) > 150
    assert all(not lost[row] for row in lost if row.endswith(TOUCHED))
    assert sum(not row for row in lost.values()) > 30


@pytest.mark.slow
@pytest.mark.parametrize("store", recorded.STORES)
def test_the_record_is_of_the_present_rows(store: str, pair: Pair, tmp_path: Path) -> None:
    """Each row of today was recorded, unless the store has nothing to lose there."""
    there = [row for row in recorded.rows() if row not in LOST[store]]
    for number, row in enumerate(there):
        assert recorded.make(row, *pair(store), tmp_path / str(number)) == []
    assert set(LOST[store]) <= set(recorded.rows())


@pytest.mark.parametrize(("store", "row"), RANDOM[:3])
def test_a_row_is_the_same_store_each_time(store: str, row: str, pair: Pair, tmp_path: Path) -> None:
    """Files and bytes: what was recorded once holds for it."""
    assert recorded.make(row, *pair(store), tmp_path / "one") == recorded.make(row, *pair(store), tmp_path / "other")
    one, other = (_files(tmp_path / name) for name in ("one", "other"))
    assert one == other != _files(pair(store)[0])


def _files(root: Path) -> dict[str, bytes]:
    return {name: entry.content for name, entry in snapshot(root).items() if entry.content}


def test_every_kind_of_file_is_lost() -> None:
    """Each kind of the table, in at least one of the stores."""
    recorded_rows = {row for rows in LOST.values() for row in rows}
    kinds = {loss.kind for loss in all_losses() if loss.name in recorded_rows}
    assert kinds == {loss.kind for loss in all_losses()}


def test_the_page_is_of_the_record() -> None:
    """What stands in docs/verify.md has every row, and bold where users lose; `check` holds its verdicts."""
    assert losses_page.present().split("\n") == losses_page.section(WRITTEN, LOST).split("\n")
