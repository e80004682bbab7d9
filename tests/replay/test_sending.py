"""Sending to a cluster whose connections are cut, that is silent, busy, or refuses: nothing is lost, nothing twice."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.replay import cluster, sending, sources
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.connection import Security
from rmqtool.replay.journal import Done, Journal, Reason
from rmqtool.replay.requests import Rewriting
from rmqtool.replay.sending import Replay, Selection, SendOptions, Sent
from rmqtool.replay.sources import StoreSource
from rmqtool.scan.filters import Filters
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import find_source
from rmqtool.store.store import NamedStore, open_store
from tests.building import LogBuilder
from tests.replay.fake_cluster import Asked, FakeCluster, Fault
from tests.replay.rows import COUNT, write_store

SENDS = (310, 320)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: a fake broker does not store late."""
    monkeypatch.setattr(sending, "SETTLE_S", 0.0)
    monkeypatch.setattr(sending, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(cluster, "_POLL_S", 0.01)


def replay(store: Path, fake: FakeCluster, options: SendOptions | None = None, **given: Any) -> tuple[Replay, Path]:
    snapshot = Snapshot(open_store(store))
    source = StoreSource(snapshot, find_source(NamedStore("", snapshot.store)), Filters())
    target = Cluster([fake.address], Security(timeout=given.pop("timeout", 60.0)))
    selection = Selection(source, given.pop("rewriting", Rewriting()))
    return Replay([selection], target, options or SendOptions(), **given), store.parent / "journal"


def send(store: Path, fake: FakeCluster, options: SendOptions | None = None, **given: Any) -> Sent:
    job, path = replay(store, fake, options, **given)
    with job.cluster, Journal(path, job.header()) as journal:
        return job.send(journal, lambda _: None)


def require_each_once(fake: FakeCluster, journal: Path, count: int = COUNT) -> None:
    """Each message is there once, in the order of its queue, and where its receipt says."""
    assert Counter(each.properties["UNIQ_KEY"] for each in fake.stored) == {f"{n:032X}": 1 for n in range(count)}
    for queue in range(4):
        keys = [each.properties["UNIQ_KEY"] for each in fake.stored if each.queue_id == queue]
        assert keys == sorted(keys)
    places = {each.properties["UNIQ_KEY"]: (each.queue_id, each.queue_offset) for each in fake.stored}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    receipts = {
        line["unique_key"]: (line["queue_id"], line["queue_offset"]) for line in lines if line["kind"] == "sent"
    }
    assert receipts == places


@pytest.mark.parametrize("options", [SendOptions(), SendOptions(batch=1), SendOptions(batch=5, looks_up=False)])
def test_all_is_sent(tmp_path: Path, options: SendOptions) -> None:
    store = write_store(tmp_path / "store")
    with FakeCluster() as fake:
        sent = send(store, fake, options)
        assert (sent.result.sent, sent.result.found, sent.error) == (COUNT, 0, None)
        require_each_once(fake, tmp_path / "journal")
        assert (320 in fake.codes()) is (options.batch > 1)
        assert (12 in fake.codes()) is options.looks_up
        for each in fake.stored:
            number = int(each.properties["UNIQ_KEY"], 16)
            assert int(each.fields["g"]) == 1_700_000_000_000 + number // 12
            assert each.body == f"body {number}".encode()
        again = send(store, fake, options)
        assert (again.result.sent, again.outcome.done_before) == (0, COUNT)


def test_loose_born_times_fill_batches(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    with FakeCluster() as fake:
        send(store, fake, SendOptions(loose_born_time=True))
        require_each_once(fake, tmp_path / "journal")
        assert sum(code in SENDS for code in fake.codes()) == 3


@pytest.mark.parametrize("how", ["cut-before", "cut-after", "silence", b"HTTP/1.1 400\r\n\r\n", b"\0\0\0\4\0\0\0\0"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_send_without_an_answer(tmp_path: Path, how: str | bytes, number: int) -> None:
    """It is looked up before it is sent again."""
    store = write_store(tmp_path / "store")

    def fault(asked: Asked) -> str | bytes | None:
        return how if asked.code in SENDS and asked.number == number else None

    with FakeCluster(fault=fault) as fake:
        sent = send(store, fake, SendOptions(looks_up=False), timeout=2.0 if how == "silence" else 60.0)
        assert sent.error is None
        assert sent.result.sent + sent.result.found == COUNT
        assert (sent.result.found > 0) or how == "cut-before"
        require_each_once(fake, tmp_path / "journal")


TIMER = {"maxMessageSize": "4194304", "timerWheelEnable": "true", "timerMaxDelaySec": "259200"}


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("how", ["killed", "without its journal"])
@pytest.mark.parametrize("settings", [{}, TIMER])
def test_what_waits_on_the_target_is_found(tmp_path: Path, settings: dict[str, str], how: str, is_due: bool) -> None:
    """Messages that wait for their delivery are no messages of their topic yet; also when they are due meanwhile."""
    log = LogBuilder(file_size=1 << 16)
    for number in range(5):
        properties = {"UNIQ_KEY": f"{number:032X}", "REAL_TOPIC": "orders", "REAL_QID": "0", "DELAY": "18"}
        log.add(topic="SCHEDULE_TOPIC_XXXX", queue_id=17, queue_offset=number, properties=properties)
    store, now = log.write(tmp_path / "store"), time.time_ns() // 1_000_000

    def run(due: int) -> Sent:
        return send(store, fake, rewriting=Rewriting(due=dict.fromkeys(log.offsets, due)))

    with FakeCluster(settings=settings, release="V5_3_3") as fake:
        assert run(now + 1_800_000).result.sent == 5
        assert {each.topic for each in fake.stored} == {"rmq_sys_wheel_timer" if settings else "SCHEDULE_TOPIC_XXXX"}
        journal = tmp_path / "journal"
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(line for line in lines if json.loads(line)["kind"] in ("replay", "sending")))
        if how != "killed":
            journal.unlink()
        again = run(now - 1 if is_due else now + 1_800_000)
        assert (again.result.sent, again.result.found, len(fake.stored)) == (0, 5, 5)


@pytest.mark.parametrize("born", [None, 1_700_000_000_000])
def test_a_source_whose_clock_was_ahead(tmp_path: Path, born: int | None) -> None:
    """Its store times are no reason to look for copies in the future only."""
    later = time.time_ns() // 1_000_000 + 10 * 86_400_000
    log = LogBuilder(file_size=1 << 16)
    for number in range(5):
        log.add(queue_offset=number, store_timestamp=later, born_timestamp=born or later,
                properties={"UNIQ_KEY": f"{number:032X}"})  # fmt: skip
    store = log.write(tmp_path / "store")
    with FakeCluster() as fake:
        assert send(store, fake).result.sent == 5
        (tmp_path / "journal").unlink()
        again = send(store, fake)
        assert (again.result.sent, again.result.found, len(fake.stored)) == (0, 5, 5)


@pytest.mark.slow
def test_a_bad_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of all requests fail, one way or the other; the pauses between two tries are short."""
    monkeypatch.setattr(sending, "_MAX_PAUSE_S", sending._FIRST_PAUSE_S)
    store = write_store(tmp_path / "store")
    chance = random.Random(3)

    def fault(asked: Asked) -> str | bytes | None:
        return chance.choice(("cut-before", "cut-after", b"\xff" * 9)) if chance.random() < 0.2 else None

    with FakeCluster() as fake:
        job, path = replay(store, fake, SendOptions(batch=4, patience=30.0, looks_up=False))
        job.plan(Done(), lambda _: None, looks_up=False)
        fake.fault = fault
        with job.cluster, Journal(path, job.header()) as journal:
            sent = job.send(journal, lambda _: None)
        assert sent.error is None
        assert sent.result.found > 0
        require_each_once(fake, path)


def test_a_cluster_that_stays_away(tmp_path: Path) -> None:
    """The replay ends in time with an error, and the next run goes on."""
    store = write_store(tmp_path / "store")
    with FakeCluster(fault=lambda asked: "cut-after" if asked.code in SENDS and asked.number > 3 else None) as fake:
        sent = send(store, fake, SendOptions(batch=2, patience=0.2))
        assert sent.error is not None
        fake.fault = lambda asked: "cut-before" if asked.code not in SENDS else None
        dead = send(store, fake, SendOptions(batch=2, patience=0.2))
        assert dead.error is not None
        fake.fault = lambda _: None
        rest = send(store, fake, SendOptions(batch=2))
        assert rest.error is None
        require_each_once(fake, tmp_path / "journal")


def test_a_topic_that_vanishes_meanwhile(tmp_path: Path) -> None:
    """While a broker is away, a name server forgets its topics: they are not taken for missing."""
    store = write_store(tmp_path / "store")

    def fault(asked: Asked) -> str | tuple[int, str] | None:
        if asked.code in SENDS and asked.number == 2:
            return "cut-after"
        return (17, "No topic route info") if asked.code == 105 and 0 < asked.number < 4 else None

    with FakeCluster(fault=fault) as fake:
        sent = send(store, fake)
        assert (sent.error, sent.outcome.left_out) == (None, {})
        require_each_once(fake, tmp_path / "journal")


def test_queues_that_vanish_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that becomes shorter changes no choice: messages of a queue would get out of order."""
    monkeypatch.setattr(sources, "_ROWS", 10)
    store = write_store(tmp_path / "store")

    def fault(asked: Asked) -> str | None:
        if asked.code in SENDS and asked.number == 2:
            fake.topics["orders"] = 2
            return "cut-after"
        return None

    with FakeCluster(fault=fault) as fake:
        assert send(store, fake).error is None
        assert all(each.queue_id == int(each.properties["UNIQ_KEY"], 16) % 3 for each in fake.stored)
        require_each_once(fake, tmp_path / "journal")


@pytest.mark.parametrize(
    "answer", [(2, "[TIMEOUT_CLEAN_QUEUE]broker busy"), (1, "[PC_SYNCHRONIZED]broker busy"), (14, "shut down")]
)
def test_a_busy_broker_is_asked_again(tmp_path: Path, answer: tuple[int, str]) -> None:
    store = write_store(tmp_path / "store")
    busy: Fault = lambda asked: answer if asked.code in SENDS and asked.number % 3 else None  # noqa: E731
    with FakeCluster(fault=busy) as fake:
        sent = send(store, fake)
        assert (sent.result.sent, sent.result.refused) == (COUNT, 0)
        require_each_once(fake, tmp_path / "journal")


@pytest.mark.parametrize("code", [2, 14])
def test_a_broker_that_stays_busy_refuses(tmp_path: Path, code: int) -> None:
    store = write_store(tmp_path / "store")
    with FakeCluster(fault=lambda asked: (code, "the broker's disk is full") if asked.code in SENDS else None) as fake:
        sent = send(store, fake, SendOptions(patience=0.1))
        assert sent.is_stopped
        assert "the broker's disk is full" in str(sent.result.first_refusal)
        assert fake.stored == []
        fake.fault = lambda _: None
        send(store, fake)
        require_each_once(fake, tmp_path / "journal")


def test_the_first_refusal_ends_it(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    with FakeCluster(fault=lambda asked: (16, "forbidden") if asked.fields.get("e") == "1" else None) as fake:
        sent = send(store, fake)
        assert sent.is_stopped
        assert sent.result.first_refusal is not None
        assert "it is not permitted (code 16: forbidden)" in str(sent.result.first_refusal)
        assert {each.queue_id for each in fake.stored} == {0, 2}
        kept = send(store, fake, SendOptions(keeps_going=True))
        assert (kept.is_stopped, kept.result.refused) == (False, 20)
        assert len(fake.stored) == 40
        fake.fault = lambda _: None
        assert send(store, fake).result.sent == 20
        require_each_once(fake, tmp_path / "journal")


def test_one_wrong_message_of_a_batch(tmp_path: Path) -> None:
    """The batch is sent again one by one, so that only that one is refused."""
    store = write_store(tmp_path / "store")
    wrong: Fault = lambda asked: (13, "illegal") if b"body 21" in asked.body else None  # noqa: E731
    with FakeCluster(fault=wrong) as fake:
        sent = send(store, fake, SendOptions(keeps_going=True))
        assert (sent.result.sent, sent.result.refused) == (COUNT - 1, 1)
        assert len(fake.stored) == COUNT - 1
        fake.fault = lambda _: None
        last = send(store, fake)
        assert (last.result.sent, last.outcome.done_before) == (1, COUNT - 1)


def test_stored_but_not_safely(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    with FakeCluster() as fake:
        store_it = fake._store
        fake._store = lambda asked: (10, *store_it(asked)[1:])  # type: ignore[method-assign]
        sent = send(store, fake)
        assert sent.result.less_safe == {"flush-disk-timeout": COUNT}
        require_each_once(fake, tmp_path / "journal")


def test_what_is_there_already(tmp_path: Path) -> None:
    """Sent by another replay of this store, or by somebody else under the same key."""
    store = write_store(tmp_path / "store")
    with FakeCluster() as fake:
        send(store, fake, limit=10)
        assert len(fake.stored) == 10
        (tmp_path / "journal").unlink()
        fake.stored[4].properties.pop("REPLAY_OF")
        sent = send(store, fake)
        assert (sent.result.found, sent.result.there, sent.result.sent) == (9, 1, COUNT - 10)
        assert sent.outcome.left_out["already-there"].messages == 1
        (tmp_path / "journal").unlink()
        again = send(store, fake, SendOptions(send_again=True))
        assert (again.result.found, again.result.sent) == (COUNT - 1, 1)


@pytest.mark.parametrize(
    ("target", "reason"),
    [(FakeCluster(topics={}), "no-topic"), (FakeCluster(read_only={"orders"}), "not-writable")],
)
def test_topics_that_cannot_be_sent_to(tmp_path: Path, target: FakeCluster, reason: Reason) -> None:
    store = write_store(tmp_path / "store")
    with target as fake:
        sent = send(store, fake)
        assert sent.outcome.left_out[reason].messages == sent.outcome.unsendable == COUNT
        assert not set(SENDS) & set(fake.codes())


def test_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches become as small as the rate, and the waits add up to it."""
    store = write_store(tmp_path / "store")
    waits: list[float] = []
    with FakeCluster() as fake:
        monkeypatch.setattr(time, "monotonic", lambda: sum(waits))
        monkeypatch.setattr(time, "sleep", waits.append)
        sent = send(store, fake, SendOptions(rate=40.0))
        monkeypatch.undo()
        assert sent.result.sent == COUNT
        assert sum(waits) == pytest.approx(COUNT / 40.0, abs=0.4)
        assert max(Counter(id(each.fields) for each in fake.stored).values()) == 4
        require_each_once(fake, tmp_path / "journal")
