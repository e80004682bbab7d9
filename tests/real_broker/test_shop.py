"""A whole broker with clients, today: it writes what the golden stores of its release hold."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.inspect.overview import overview_of
from rmqtool.store.store import open_store
from tests.golden import stores
from tests.real_broker.harness import VERSIONS, Harness

OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC@0"

# A shop takes up to a minute; those of all releases are golden stores.
pytestmark = [pytest.mark.broker, pytest.mark.rare]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shop(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """The same fates, queues and committed offsets; the overview shows them."""
    golden = stores.oracle(f"{version}-shop")["facts"]
    facts = harness(version).write_shop(tmp_path)
    assert {fate: set(keys) for fate, keys in facts["keys"].items()} == {
        fate: set(keys) for fate, keys in golden["keys"].items()
    }
    by_time = {OP: 0}  # how many operations share a message is a matter of time
    assert facts["max_offsets"] | by_time == golden["max_offsets"] | by_time
    shown = {
        (found.group, found.topic, found.queue_id, found.offset)
        for found in overview_of(open_store(tmp_path)).snapshot.committed.offsets
    }
    told = {
        (fact["group"], fact["topic"], fact["queue_id"], fact["offset"])
        for fact in facts["committed"]
        if fact["offset"]
    }
    assert told <= shown
