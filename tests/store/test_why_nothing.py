"""What people are told when filters find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.scan.filters import Filters
from rmqtool.store.missing import instead_of, why_nothing
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.conftest import GoldenStore

T = 1_795_258_320_000


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    for queue in ("orders/0", "orders/1", "orders/2", "payments/7"):
        (tmp_path / "consumequeue" / queue).mkdir(parents=True)
    builder = LogBuilder().add_all([{"store_timestamp": T}, {"store_timestamp": T + 5000}])
    return Snapshot(open_store(builder.write(tmp_path)))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(topics=("ordes",)), "there is no topic ordes (did you mean orders?)"),
        (Filters(topics=("x",)), "there is no topic x; there are orders, payments"),
        (Filters(topics=("orders",), queue_ids=(1, 17)), "topic orders has no queue 17; there are 0 to 2"),
        (Filters(topics=("payments",), queue_ids=(1, 2)), "topic payments has no queue 1, 2; there are 7"),
        (
            Filters(from_timestamp=T + 5001),
            "the log has messages stored 2026-11-21T10:52:00.000Z to 2026-11-21T10:52:05.000Z",
        ),
        (
            Filters(to_timestamp=T),
            "the log has messages stored 2026-11-21T10:52:00.000Z to 2026-11-21T10:52:05.000Z",
        ),
        (Filters(from_timestamp=T + 5000), "no message matches the filters"),
        (Filters(topics=("orders",), tags=("red",)), "no message matches the filters"),
    ],
)
def test_the_reason(snapshot: Snapshot, filters: Filters, expected: str) -> None:
    assert why_nothing(snapshot, filters) == expected


def test_offsets_outside_the_log(snapshot: Snapshot) -> None:
    end = snapshot.log_range.max_offset
    assert why_nothing(snapshot, Filters(from_offset=end)) == f"the log has the offsets 0 to {end}"
    assert why_nothing(snapshot, Filters(from_offset=end - 1)) == "no message matches the filters"


def test_an_empty_log(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Its offsets are no answer; nor are those of files without a byte."""
    assert why_nothing(Snapshot(open_store(golden_store("5.3.3-empty"))), Filters()) == "the log is empty"
    file = tmp_path / "commitlog" / f"{0:020}"
    file.parent.mkdir()
    file.write_bytes(bytes(4096))
    assert why_nothing(Snapshot(open_store(tmp_path)), Filters(from_offset=7)) == "the log is empty"


def test_several_reasons_are_all_told(snapshot: Snapshot) -> None:
    told = why_nothing(snapshot, Filters(topics=("ordes", "payment"), from_timestamp=T + 6000))
    assert told.startswith(
        "there is no topic ordes (did you mean orders?); there is no topic payment (did you mean pay"
    )
    assert "the log has messages stored" in told


def test_where_no_topic_is_known_none_is_called_unknown(tmp_path: Path) -> None:
    """A log alone does not tell its topics without being read."""
    made = Snapshot(open_store(LogBuilder().add_all([{}]).write(tmp_path)))
    assert why_nothing(made, Filters(topics=("x",))) == "no message matches the filters"


def test_many_names_are_cut() -> None:
    assert instead_of("x", [f"topic-{number}" for number in range(10)]).endswith("topic-7 and 2 more")
