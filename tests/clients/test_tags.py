"""Messages that consumers of their tag miss, as pulls of brokers with and without a tag show (`make clients`)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS, UNIT_SIZE
from rmqtool.formats.java import string_hash
from rmqtool.verify.outcome import Outcome
from rmqtool.verify.queue_progress import QueueProgress
from tests.commands.running import rmqtool as run
from tests.verify.small_store import StoreBuilder, small_store
from tests.verify.verifying import codes_of, verify

QUEUE = "consumequeue/orders/0"
RED = string_hash("red")
TAGGED, PLAIN = 1, 0
"""Queue offsets of a message with a tag, and of one without, in the small store's orders/0."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def set_code(store: Path, code: int, number: int = TAGGED, queue: str = QUEUE) -> None:
    """Give a unit of a queue's first file another tags code."""
    with min((store / queue).iterdir()).open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack(">q", code), number * UNIT_SIZE + 12)


def missed(outcome: Outcome) -> int:
    """What consumers of a tag miss, who lose nothing else."""
    assert outcome.clients is not None
    counts = {kind: count for kind, count in outcome.clients.counts().items() if count}
    assert counts.keys() <= {"missed_by_tag"}
    return counts.get("missed_by_tag", 0)


@pytest.mark.parametrize(
    ("code", "number", "count"),
    [
        (RED + 1, TAGGED, 1),
        (0, TAGGED, 1),
        (RED ^ 1 << 31, TAGGED, 1),
        (RED + (1 << 40), TAGGED, 0),  # brokers compare 32 bits
        (MAX_EXT_ADDRESS, TAGGED, 0),  # no tag is known without the ext unit, and the message is sent
        (-1 << 63, TAGGED, 0),
        (RED, PLAIN, 0),  # clients compare the text, and nobody asks for none
    ],
)
def test_a_wrong_tags_code(store: Path, code: int, number: int, count: int) -> None:
    """A broker compares the hash in the entry, a client the text: both must fit."""
    set_code(store, code, number)
    outcome = verify(store)
    assert missed(outcome) == count
    assert outcome.verdict == "corrupt"
    assert codes_of(outcome) & {"consumequeue.tags-code", "consumequeue.ext-address"}


@pytest.mark.parametrize("topic", ["%RETRY%billing", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "some_REPLY_TOPIC"])
def test_topics_that_are_read_whole(topic: str, tmp_path: Path) -> None:
    """Nobody asks for a tag in topics of brokers, and of retries."""
    builder = StoreBuilder()
    for _ in range(4):
        builder.put(topic, properties={"TAGS": "red"})
    store = small_store(tmp_path / "store", builder)
    set_code(store, 7, queue=f"consumequeue/{topic}/0")
    assert missed(verify(store)) == 0


def test_units_that_are_not_served(store: Path) -> None:
    """A message that nobody gets is not missed by its tag, too."""
    set_code(store, 7, 2)
    file = min((store / QUEUE).iterdir())
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), bytes(2 * UNIT_SIZE), 0)
    outcome = verify(store)
    assert outcome.clients is not None
    assert outcome.clients.unreachable.messages >= 3
    assert outcome.clients.missed_by_tag == 0


def test_parts_of_a_log() -> None:
    """What later parts of the log show is added; a queue that begins again has lost what was before."""
    whole, later, again = (QueueProgress(QueueName("orders", 0), records=1) for _ in range(3))
    for place, part in enumerate((whole, later, again)):
        part.miss_by_tag(place, place + 1)
    whole.extend(later)
    assert whole.missed_by_tag == {0: 1, 1: 2}
    again.restarts = 1
    whole.extend(again)
    assert whole.missed_by_tag == {2: 3}
    whole.restart()
    assert not whole.missed_by_tag


def record_flipped(store: Path) -> None:
    """The tag of the record itself is another."""
    file = min((store / "commitlog").iterdir())
    with file.open("r+b") as opened:
        at = file.read_bytes().index(b"TAGS\1red") + 5
        os.pwrite(opened.fileno(), b"r\x1ad", at)


def unit_changed(store: Path) -> None:
    set_code(store, 7)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "after"), [(unit_changed, 0), (record_flipped, 1)])
def test_what_a_plan_gives_back(store: Path, damage: Callable[[Path], None], after: int) -> None:
    """A queue that is derived again has the right codes; a tag that the record has lost comes back by nothing."""
    damage(store)
    result = run("verify", store, "--json").document["result"]
    assert result["start"]["clients"]["missed_by_tag"] == 1
    assert result["plan"]["clients"]["missed_by_tag"] == after
    assert "1 message missed by consumers of its tag" in run("verify", store).out
    run("repair", store, "--yes")
    again = run("verify", store, "--json").document["result"]
    assert again["start"]["clients"]["missed_by_tag"] == after
