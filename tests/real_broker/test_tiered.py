"""A real broker with tiered storage: what it does with damage that is predicted, and what it serves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import Harness, tiered_settings
from tests.verify.tiered_damages import LOG, UNITS, damaged, expire, with_ends

HOUR = 3_600_000
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.rare]


@pytest.mark.parametrize("name", [None, "the tier ends early", "a torn end", "no metadata", "repaired"])
@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_what_is_served(
    harness: Callable[[str], Harness], golden_store: GoldenStore, tmp_path: Path, version: str, name: str | None
) -> None:
    """All of a half tiered queue, and of a damaged one as the findings say."""
    store = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store")
    whole = harness(version).read_tiered(copied(store, tmp_path / "whole"), tmp_path / "whole" / "tiered")
    if name == "the tier ends early":
        damaged(store, name)
    else:
        expire(store)
        if name == "repaired":
            damaged(store, "no metadata")
            assert "done: " in rmqtool("repair", store, "--tiered-path", store / "tiered", "--yes").err
        elif name:
            damaged(store, name)
    first, other = harness(version).read_tiered(store, store / "tiered")
    expected = [offset for offset, _ in whole[0]["messages"]]
    served = [offset for offset, _ in first["messages"]]
    assert expected == list(range(120))
    if name in (None, "repaired"):
        assert [first["messages"], other["messages"]] == [queue["messages"] for queue in whole]
    elif name == "no metadata":  # nothing of the tier is known
        assert first["min_offset"] > 50
        assert served == expected[first["min_offset"] :]
    elif name == "a torn end":  # the local queue still has these messages
        assert first["messages"] == whole[0]["messages"]
    else:  # deleted at once, and what is in neither is gone
        assert first["min_offset"] > 50
        assert served == expected[first["min_offset"] :]
        assert not list((store / UNITS).glob("cfcd2084*"))


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_what_expires(
    harness: Callable[[str], Harness], golden_store: GoldenStore, tmp_path: Path, version: str
) -> None:
    """The segments that a broker deletes are those that clean foretells."""
    store, conf = copied(golden_store(f"more/{version}-tiered"), tmp_path / "store"), tmp_path / "broker.conf"
    expire(store)
    with_ends(store, int(time.time() * 1000) - 10 * HOUR, 2 * HOUR)
    conf.write_text("tieredStoreFileReservedTime=9\n")
    options = ("--tiered-path", store / "tiered", "--broker-conf", conf, "--json")
    [first, _] = rmqtool("clean", store, "--dry-run", *options).document["result"]["tier"]
    assert (first["min_offset_after"], first["messages_deleted"], first["segments"]) == (94, 78, 2)
    settings = {"tieredStoreFileReservedTime": "9", "tieredStoreDeleteFileInterval": "100"}
    harness(version).read_tiered(store, store / "tiered", settings)
    left = [sorted(int(path.name[8:]) for path in (store / part).iterdir()) for part in (UNITS, LOG)]
    assert left == [[1000, 2000], [19996]]
    [served, _] = harness(version).read_tiered(store, store / "tiered")
    assert (served["min_offset"], len(served["messages"])) == (78, 42)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_what_keys_find(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """After a kill, when the index is still written: what a broker finds in its store and in its tier."""
    root = tmp_path / "killed"
    harness(version).write_tiered(root, root / "tiered", 240, is_killed=True)
    assert [path.name for path in (root / "tiered_index_file").iterdir() if path.is_file()]
    store = copied(root, tmp_path / "store")
    whole = harness(version).read_tiered(root, root / "tiered")
    digests = {(queue["queue_id"], offset): digest for queue in whole for offset, digest in queue["messages"]}
    expire(store)
    conf = tmp_path / "broker.conf"
    settings = tiered_settings(version, store / "tiered").items()
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings))
    found = {}
    for key in (f"k{number}" for number in range(0, 240, 8)):
        messages = rmqtool("query", store, "--key", key, "--broker-conf", conf, "--json").lines
        found[key] = {digests[message["queue_id"], message["queue_offset"]] for message in messages}
    keys = harness(version).ask_tiered(store, store / "tiered")["keys"]
    assert found == {key: set(keys[key]) for key in found}
    assert all(found.values())
