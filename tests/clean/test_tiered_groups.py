"""Messages that groups have not read are not lost where the tier has them; a comparison says that it does not."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.tiered_damages import expire


def test_groups(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A group before the local queue goes on in the tier."""
    store = copied(golden_store("more/5.5.1-tiered"), tmp_path / "store")
    expire(store)
    table = {"offsetTable": {"history@g": {"0": 10, "1": 110}}}
    (store / "config/consumerOffset.json").write_text(json.dumps(table))
    tier = ("--tiered-path", store / "tiered")
    for options, lost in (((), 68), (tier, 0)):
        result = rmqtool("clean", store, "--dry-run", "--json", *options).document["result"]
        assert [each["already_lost"] for each in result["consumers"] if each["queue_id"] == 0] == [lost]
    page = tmp_path / "page.html"
    assert rmqtool("report", store, "--output", page, *tier).status in (0, 1)
    other = copied(store, tmp_path / "other")
    assert "rmqtool diff takes --tiered-path-b" in rmqtool("diff", store, other).out
