"""Retries and dead letters that only the tier has are waiting, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.commands.running import rmqtool
from tests.pending.waiting_store import WaitingStore
from tests.tier_building import write_tier


def test_messages_of_the_tier(tmp_path: Path) -> None:
    """From the offset on that the group has committed; without the place of the tier a note says what is not seen."""
    store = WaitingStore()
    store.message("orders")
    store.committed["billing", "%RETRY%billing"] = 2
    root = store.build(tmp_path / "store")
    retries = [{"properties": {"KEYS": f"r{number}", "RETRY_TOPIC": "payments"}} for number in range(5)]
    tier = write_tier(root, "%RETRY%billing", retries)
    write_tier(root, "%DLQ%billing", [{"properties": {"KEYS": "dead", "DLQ_ORIGIN_TOPIC": "payments"}}])
    found = listed(root, "--tiered-path", tier)
    assert sorted((each["kind"], each["keys"], each["to_topic"], each["group"]) for each in found) == [
        ("dead-letter", ["dead"], "payments", "billing"),
        *(("retry", [f"r{number}"], "payments", "billing") for number in (2, 3, 4)),
    ]
    assert {each["physical_offset"] for each in found} == {None}
    assert listed(root) == []
    assert "tiered storage is not read" in rmqtool("pending", root).err


def listed(root: Path, *options: str | Path) -> list[dict[str, Any]]:
    """What waits, message by message."""
    run = rmqtool("pending", root, "--list", "--kind", "retry", "--kind", "dead-letter", "--json", *options)
    messages: list[dict[str, Any]] = run.document["result"]["messages"]
    return messages
