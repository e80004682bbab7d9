"""Messages of compacted topics: those that a broker serves, from the compacted log, with where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied

QUEUE = ("--topic", "state", "--queue", "0")
FIRST = "00000000000000000000"

ANSWERS = {  # a real 5.5.0 gave them: status, next offset, and the offsets in the compacted log
    (0, 32): ("FOUND", 57, [0, 182, 364, 546, 728, 910, 1092]),
    (0, 3): ("FOUND", 53, [0, 182, 364]),
    (55, 32): ("FOUND", 57, [910, 1092]),
    (57, 2): ("FOUND", 59, [16560, 16742]),
    (60, 2): ("OFFSET_OVERFLOW_ONE", 60, []),
    (61, 2): ("OFFSET_OVERFLOW_BADLY", 60, []),
}


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_pulls(golden_store: GoldenStore, version: str) -> None:
    """As the broker answers, whatever tags are wanted."""
    store = golden_store(f"more/{version}-compacted")
    for (offset, most), (status, next_offset, offsets) in ANSWERS.items():
        for tags in ((), ("--tag", "TagA")):
            asked = ("--pull", *QUEUE, "--queue-offset", str(offset), "--max", str(most), *tags, "--json")
            [answer] = rmqtool("query", store, *asked).lines
            assert (answer["status"], answer["next_begin_offset"]) == (status, next_offset)
            assert (answer["min_offset"], answer["max_offset"]) == (50, 60)
            assert [message["physical_offset"] for message in answer["messages"]] == offsets
            assert {message["place"] for message in answer["messages"]} <= {"compacted"}


def test_one_message(golden_store: GoldenStore, tmp_path: Path) -> None:
    """From the commit log while it is there, else from the compacted log; one that a compaction dropped is noted."""
    store = copied(golden_store("more/5.5.0-compacted"), tmp_path / "store")
    [logged] = rmqtool("query", store, *QUEUE, "--queue-offset", "52", "--json").lines
    assert logged["file"].startswith("commitlog/")
    assert "place" not in logged
    dropped = rmqtool("query", store, *QUEUE, "--queue-offset", "20")
    assert "consumers do not get this message" in dropped.err
    (store / "commitlog" / FIRST).rename(store / "commitlog" / "00000000000000065536")
    [message] = rmqtool("query", store, *QUEUE, "--queue-offset", "52", "--json").lines
    assert (message["place"], message["message_id"], message["queue_offset"]) == ("compacted", None, 52)
    assert message["unique_key"] == logged["unique_key"]
    shown = rmqtool("query", store, *QUEUE, "--queue-offset", "52", "--trace")
    assert "  id -  v1  in compaction/compactionLog/state/0/" in shown.out
