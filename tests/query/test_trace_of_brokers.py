"""Traces in stores of whole brokers with clients: what became of each message is what the clients saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqtool.query.by_place import Message, Notes
from rmqtool.query.groups import group_offsets
from rmqtool.query.lookup import KeyQuery, by_key
from rmqtool.query.trace import MessageTrace, trace_of
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores

NAMES = [name for name in stores.names() if name.endswith("-shop")]
HALF, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def facts(name: str) -> dict[str, Any]:
    """What the broker and its clients said."""
    found: dict[str, Any] = stores.oracle(name)["facts"]
    return found


@pytest.fixture
def snapshot(name: str, golden_store: GoldenStore) -> Snapshot:
    return Snapshot(open_store(golden_store(name)), parse_version(name.partition("-")[0]))


def traces(snapshot: Snapshot, key: str, topic: str) -> Iterator[tuple[Message, MessageTrace]]:
    """The pages on the messages of a topic with a key."""
    for message in by_key(snapshot, KeyQuery(key, [topic]), "none", Notes()):
        yield message, trace_of(snapshot, message)


@pytest.mark.slow
def test_nothing_contradicts(snapshot: Snapshot, name: str) -> None:
    for record in stores.oracle(name)["records"]:
        for message in by_key(snapshot, KeyQuery(record["unique_key"] or "", [record["topic"]]), "none", Notes()):
            assert trace_of(snapshot, message).contradictions == []


@pytest.mark.slow
def test_transactions(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    """Committed, rolled back and pending ones are told apart by half, op message and copy."""
    for key in facts["keys"]["commit"]:
        ((half, page),) = traces(snapshot, key, HALF)
        ((copy, other),) = traces(snapshot, key, "vouchers")
        assert page.transaction is not None
        assert other.transaction is not None
        assert (page.transaction.state, page.transaction.commit) == ("committed", copy["physical_offset"])
        assert page.transaction.op is not None
        assert other.transaction.half == half["physical_offset"]
        assert [item["group"] for item in other.consumers if item["consumed"]] == ["gifts"]
    for fate, state in (("rollback", "rolled-back"), ("pending", "pending")):
        for key in facts["keys"][fate]:
            pages = [page for _, page in traces(snapshot, key, HALF)]
            assert pages
            assert {page.transaction.state for page in pages if page.transaction} == {state}
            assert list(traces(snapshot, key, "vouchers")) == []


def test_delays(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    """What was delivered has a copy and what waits has none; the broker's own offsets say the same."""
    for key in facts["keys"]["delivered"]:
        ((_, page),) = traces(snapshot, key, SCHEDULE)
        ((copy, other),) = traces(snapshot, key, "reminders")
        assert page.delay is not None
        assert (page.delay.delivered, page.delay.delivered_physical_offset) == (True, copy["physical_offset"])
        assert page.delay.due_timestamp is not None
        assert 0 <= copy["store_timestamp"] - page.delay.due_timestamp < 60_000
        assert [relative.relation for relative in other.relatives] == ["delayed"]
    for key in facts["keys"]["waiting"]:
        ((_, page),) = traces(snapshot, key, SCHEDULE)
        assert page.delay is not None
        assert (page.delay.delivered, page.delay.delivered_physical_offset) == (False, None)
        assert (page.delay.real_topic, page.delay.real_queue_id) == ("reminders", "0")


def test_timers(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    for fate, delivered in (("timed_delivered", True), ("timed_waiting", None)):
        for key in facts["keys"].get(fate, []):
            ((_, page),) = traces(snapshot, key, "rmq_sys_wheel_timer")
            assert page.delay is not None
            assert (page.delay.by, page.delay.delivered) == ("timer", delivered)


@pytest.mark.slow
def test_retries_and_dead_letters(snapshot: Snapshot) -> None:
    """From the dead letter back to the original, and from the original to all that came of it."""
    for number in range(3):
        ((dead, page),) = traces(snapshot, f"FAIL-{number}", "%DLQ%billing")
        ((original, first),) = traces(snapshot, f"FAIL-{number}", "payments")
        assert page.retry is not None
        assert (page.retry.kind, page.retry.group, page.retry.origin_topic) == ("dead-letter", "billing", "payments")
        assert (page.retry.origin_state, page.retry.origin_physical_offset) == ("found", original["physical_offset"])
        relations = [relative.relation for relative in first.relatives]
        # Early releases send a dead letter through a delay level, too.
        assert relations[:4] == ["delayed", "retry", "delayed", "retry"]
        assert relations[4:] in (["dead-letter"], ["delayed", "dead-letter"])
        assert first.relatives[-1].record["physical_offset"] == dead["physical_offset"]
        for attempt, (_, retried) in enumerate(traces(snapshot, f"FAIL-{number}", "%RETRY%billing"), 1):
            assert retried.retry is not None
            assert (retried.retry.kind, retried.retry.reconsume_times) == ("retry", attempt)
            assert retried.retry.origin_physical_offset == original["physical_offset"]
        waiting = [page for _, page in traces(snapshot, f"FAIL-{number}", SCHEDULE)]
        assert {page.delay.delivered for page in waiting if page.delay} == {True}
        assert {page.retry.group for page in waiting if page.retry} == {"billing"}


def test_groups(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    """Each group is where the broker knew it; nobody consumed the dead letters."""
    shown = {
        (found.group, found.topic, found.queue_id): found
        for group in ("billing", "desk", "reminding", "gifts")
        for found in group_offsets(snapshot, group)
    }
    for fact in facts["committed"]:
        place = fact["group"], fact["topic"], fact["queue_id"]
        if fact["max_offset"]:
            assert shown[place].committed == fact["offset"]
            assert shown[place].state == "ok"
    assert shown["billing", "%DLQ%billing", 0].state == "never-consumed"


@pytest.mark.slow
def test_who_has_passed(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    """What the desk's client saw the desk has passed, and not what came later."""
    for key in facts["keys"]["consumed_by_desk"][::5]:
        ((_, page),) = traces(snapshot, key, "orders")
        assert [item["consumed"] for item in page.consumers if item["group"] == "desk"] == [True]
    for number in range(8):
        ((_, page),) = traces(snapshot, f"LATE-{number}", "orders")
        assert [item["consumed"] for item in page.consumers if item["group"] == "desk"] == [False]
