"""Delayed messages that a real broker cannot deliver: it delivers all others but those that `verify` counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.golden import stores
from tests.real_broker.client_damages import lose_destination
from tests.real_broker.harness import SHOP_SETTINGS
from tests.real_broker.served import served, wait_for
from tests.real_broker.timers import delivered

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAITING = 5  # messages for the topic, in two levels
LEVEL_17 = 16  # the queue of three of them


@pytest.mark.rare
@pytest.mark.parametrize("version", ["4.4.0", "4.9.2", "4.9.7", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("name", [b"REAL_TOPIC", b"REAL_QID"])
def test_a_message_without_a_destination(version: str, name: bytes, tmp_path: Path) -> None:
    """Most releases go on with the next one; 4.9.3 to 4.9.8 deliver nothing more of the level."""
    root = stores.unpack(f"{'4.9.7' if version == '4.9.2' else version}-shop", tmp_path)
    lose_destination(root, LEVEL_17, 1, name)
    lost = rmqtool("verify", root, "--json", "--broker-version", version).document["result"]["start"]["clients"][
        "delayed"
    ]
    assert lost["never"] == (2 if version == "4.9.7" else 1)
    before = delivered(root, "reminders")
    sizes = {
        setting: str(next((root / folder).rglob("0*0")).stat().st_size)
        for setting, folder in (("CommitLog", "commitlog"), ("ConsumeQueue", "consumequeue/reminders/0"))
    }
    settings = {f"{word}FileSize{name}": size for name, size in sizes.items() for word in ("mapped", "maped")}
    with served(version, root, {**SHOP_SETTINGS, **settings}) as broker:
        wait_for("the others", lambda: delivered(root, "reminders") >= before + WAITING - lost["never"])
        broker.stop()
    assert delivered(root, "reminders") == before + WAITING - lost["never"]
