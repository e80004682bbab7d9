"""Real brokers on what was salvaged: they start, keep the whole log, and serve every message that is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.answers import queue_of, reachable
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness
from tests.rebuild.log_damages import overwrite, zero_the_end

pytestmark = pytest.mark.broker


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("after", [pytest.param("clean", marks=pytest.mark.rare), "crash"])
def test_broker_serves_what_was_salvaged(
    harness: Callable[[str], Harness], golden_store: GoldenStore, tmp_path: Path, version: str, after: str
) -> None:
    """Damage in one log file, the end of another zeroed, a third gone: the rest is served, in its queue offsets.

    After a crash and without a checkpoint, too, where a start reads all that it reads of a log.
    """
    name = f"{version}-clean"
    root = copied(golden_store(name), tmp_path / "store")
    files = sorted((root / "commitlog").iterdir())
    overwrite(files[1])
    zero_the_end(files[3])
    files[4].unlink()
    (conf := tmp_path / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in GEOMETRY.items()))
    new = tmp_path / "new"
    done = rmqtool("salvage", root, "--output", new, "--json", "--broker-version", version, "--broker-conf", conf)
    assert (done.status, done.document["result"]["gap_count"]) == (Exit.FINDINGS, 3)
    if after == "crash":
        (new / "abort").touch()
        (new / "checkpoint").unlink()

    expected, found = stores.oracle(name)["recovered"], harness(version).recover(new)
    assert found["commit_log"] == expected["commit_log"]
    served = {queue_of(queue): queue for queue in found["queues"]}
    lost = 0
    for queue in expected["queues"]:
        if queue["reachable"]:
            after_start = served[queue_of(queue)]
            if max(reachable(queue)) in reachable(after_start):
                assert after_start["max_offset"] == queue["max_offset"]
            lost += len(reachable(queue) - reachable(after_start))
    assert 0 < lost <= done.document["result"]["gap_bytes"] // MIN_MESSAGE_SIZE
