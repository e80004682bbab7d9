"""Messages of a tier and of compacted logs are exported with those of the commit log: each once, as it was sent."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import rmqtool as library
from rmqtool.base.errors import RmqtoolError
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import LOG, UNIT, UNITS, expire, overwrite

EXPORT = ("--engine", "local", "--columns", "*,place")
SENT = [
    (each % 2, each // 2, [f"k{each}", "all"], f"Tag{each % 3}", f"history {each} {'x' * (each % 60)}".encode())
    for each in range(240)
]


@pytest.fixture(params=["5.1.4", "5.3.3", "5.5.1"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store whose first messages are in the tier alone."""
    store = copied(golden_store(f"more/{request.param}-tiered"), tmp_path / "store")
    expire(store)
    return store


def exported(store: Path, output: Path, *more: str | Path) -> pa.Table:
    """The rows of an export in the order in which they were sent."""
    tier = ("--tiered-path", store / "tiered")
    assert rmqtool("export", store, "--output", output, *tier, *EXPORT, *more).status == 0
    check = rmqtool("export", store, "--check", output, *tier)
    assert (check.status, "the export matches the log" in check.out) == (0, True), check.out
    return rows_in(output)


def rows_in(output: Path) -> pa.Table:
    files = [str(path) for path in output.glob("part-*.parquet")]
    return ds.dataset(files).to_table().sort_by([("queue_offset", "ascending"), ("queue_id", "ascending")])


def sent_in(rows: pa.Table) -> list[tuple[object, ...]]:
    names = ("queue_id", "queue_offset", "keys", "tags", "body")
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


def test_half_of_it_is_tiered(store: Path, tmp_path: Path) -> None:
    """Every message once, equal to what was sent, with where it lies; a run that adds finds nothing new."""
    rows = exported(store, tmp_path / "out")
    assert sent_in(rows) == SENT
    places = rows.column("place").to_pylist()
    assert 100 < places.count("tiered") == 240 - places.count("local")
    ids = rows.column("message_id").to_pylist()
    assert [each is None for each in ids] == [place == "tiered" for place in places]
    assert sent_in(exported(store, tmp_path / "out", "--mode", "incremental")) == SENT
    assert exported(store, tmp_path / "other", "--from-offset", "0", "--to-offset", "99999999").num_rows < 120


def test_what_was_local_at_the_last_run(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Messages that have expired since are not exported again from the tier."""
    store = copied(golden_store("more/5.5.1-tiered"), tmp_path / "store")
    assert sent_in(exported(store, tmp_path / "out")) == SENT
    expire(store)
    rmqtool("export", store, "--tiered-path", store / "tiered", "--output", tmp_path / "out", *EXPORT,
            "--mode", "incremental")  # fmt: skip
    assert sent_in(rows_in(tmp_path / "out")) == SENT


def test_damage_of_a_tier(store: Path, tmp_path: Path) -> None:
    """A unit that leads elsewhere keeps no message from being exported; damage of the log is told."""
    name = min((store / LOG).iterdir(), key=lambda path: path.name[8:]).name
    overwrite(store / UNITS / name, 3 * UNIT + 6, b"\1")
    assert sent_in(exported(store, tmp_path / "out")) == SENT
    overwrite(store / LOG / name, 4, b"\1")
    run = rmqtool("export", store, "--output", tmp_path / "less", "--tiered-path", store / "tiered", *EXPORT)
    assert run.status == 3
    assert sent_in(rows_in(tmp_path / "less")) == SENT[1:]


def test_messages_of_the_library(store: Path) -> None:
    """The same messages as objects, the older ones first; without the place of the tier a warning says so."""
    messages = list(library.open(store, tiered_path=store / "tiered").messages())
    assert sorted((each.queue_id, each.queue_offset, each.body) for each in messages) == sorted(
        (queue_id, offset, body) for queue_id, offset, _, _, body in SENT
    )
    assert [messages[0].place, messages[-1].place] == ["tiered", "local"]
    assert "tiered storage is not read" in rmqtool("export", store, "--output", store.parent / "x", *EXPORT).err


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_what_compactions_have_kept(golden_store: GoldenStore, tmp_path: Path, version: str) -> None:
    """Messages that only the compacted log has are exported with those that the commit log still has."""
    store = copied(golden_store(f"more/{version}-compacted"), tmp_path / "store")
    whole = rmqtool("query", store, "--scan", "--topic", "state", "--json").lines
    rows = exported(store, tmp_path / "out", "--topic", "state")
    kept = [row for row in rows.to_pylist() if row["place"] == "compacted"]
    assert sorted({row["queue_offset"] for row in rows.to_pylist()}) == sorted({each["queue_offset"] for each in whole})
    assert len({row["queue_offset"] for row in rows.to_pylist()}) == rows.num_rows
    assert bool(kept) == any(each.get("place") == "compacted" for each in whole)


def test_a_stream_says_what_it_does_not_read(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Messages before the log end a new query that begins at the earliest, unless that is wanted."""
    from rmqtool.spark.options import parse_options
    from rmqtool.spark.source import RocketMQStreamReader

    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    options = {"path": str(store), "tieredPath": str(store / "tiered")}

    def begin(**more: str) -> int:
        [offset] = RocketMQStreamReader(parse_options(options | more), None).initialOffset().values()
        return offset

    assert begin() == 0
    expire(store)
    with pytest.raises(RmqtoolError, match=r"a tier may have earlier messages of 2 queues \(history queue 0\), and"):
        begin()
    assert begin(failOnDataLoss="false") == 32768
    assert begin(topic="other") == begin(failOnDataLoss="false")
    assert begin(startingOffsets="latest") > 32768
