"""The messages that only a tier or compacted logs have, as tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.sql import log_tables
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.sql.asking import asking
from tests.verify.tiered_damages import expire


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/5.5.1-tiered", "more/5.5.0-compacted"])
def test_messages_beside_the_log_are_those_of_an_export(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """In tables of their own with the same columns; a view has all."""
    store = copied(golden_store(name), tmp_path / "store")
    tier, place = (store / "tiered", "tiered") if "tiered" in name else (None, "compacted")
    if tier:
        expire(store)
    more = ("--tiered-path", tier) if tier else ()
    rmqtool("export", store, "--output", tmp_path / "out", "--columns", ",".join(log_tables.MESSAGE_COLUMNS),
            "--engine", "local", *more)  # fmt: skip
    rows = pq.read_table(tmp_path / "out").to_pylist()
    key = ("place", "topic", "queue_id", "queue_offset", "physical_offset")
    rows.sort(key=lambda row: [row[name] for name in key])
    with asking(store, tier=tier) as ask:
        assert ask(f"from everywhere order by {', '.join(key)}") == rows
        found = ask(f"from {place} order by {', '.join(key)}")
        assert found == [row for row in rows if row["place"] == place]
        assert bool(found) == bool(tier)
        assert {row["place"] for row in ask("select distinct place from messages")} == {"local"}
        one = rows[0]
        where = f"topic = '{one['topic']}' and queue_id = {one['queue_id']}"
        assert ask(f"select count(*) as n from {place} where {where}") == [
            {"n": sum((row["place"], row["topic"], row["queue_id"]) == (place, one["topic"], one["queue_id"])
                      for row in rows)}]  # fmt: skip
        if tier:
            [scan] = ask.reading.scans
            assert 0 < len(scan.parts) < scan.of_parts
