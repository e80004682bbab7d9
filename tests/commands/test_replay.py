"""`rmqtool replay` and a fake cluster: what it counts and sends, of a store and of an export, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit
from rmqtool.replay import sending
from rmqtool.replay.sources import ParquetSource, Reading
from rmqtool.scan.filters import Filters
from tests.building import LOG, LogBuilder
from tests.commands.running import ROOT, Result, answered, rmqtool, validator
from tests.conftest import GoldenStore
from tests.replay.fake_cluster import FakeCluster
from tests.replay.rows import write_store
from tests.unchanged import unchanged

SHOP = "5.3.3-shop"
TOPICS = {"orders": 4, "payments": 2, "reminders": 1, "vouchers": 1, "bulk": 1, "%RETRY%billing": 1}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(sending, "SETTLE_S", 0.0)
    with FakeCluster(topics=dict(TOPICS)) as cluster:
        yield cluster


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.ndjson"


def replay(source: Path, fake: FakeCluster, *options: str | Path) -> Result:
    """Replay a source, and assert that it is as before."""
    with unchanged(source):
        return rmqtool("replay", source, "--nameserver", fake.address, *options)


def lines_of(journal: Path) -> list[dict[str, Any]]:
    """The lines of a journal, which are as the schema says."""
    schema = validator("replay").schema
    line = type(validator("replay"))({"$ref": "#/$defs/journal_line", "$defs": schema["$defs"]})
    found = [json.loads(each) for each in journal.read_text().splitlines()]
    for each in found:
        line.validate(each)
    return found


def test_a_count_sends_nothing(golden_store: GoldenStore, fake: FakeCluster, journal: Path) -> None:
    del fake.topics["vouchers"]
    fake.read_only.add("payments")
    found = replay(golden_store(SHOP), fake, "--json", "--journal", journal)
    result = found.document["result"]
    assert found.status == Exit.FINDINGS
    assert (result["state"], result["messages"], result["sent"]) == ("planned", 93, None)
    assert {target["topic"]: 0 for target in result["targets"]} == {"bulk": 0, "orders": 0, "reminders": 0}
    assert {each["reason"]: each["messages"] for each in result["left_out"]} == {
        "delayed": 18, "half": 13, "retry-topic": 6, "dead-letter": 3, "no-topic": 4, "not-writable": 30,
    }  # fmt: skip
    assert [topic["topic"] for topic in result["unwritable_topics"]] == ["payments", "vouchers"]
    assert fake.stored == []
    assert not journal.exists()
    text = replay(golden_store(SHOP), fake, "--dry-run")
    assert text.status == Exit.FINDINGS
    assert "vouchers: cannot be sent to: the target does not have it" in text.out
    assert "payments: cannot be sent to: fake: the topic is read-only there, or the broker is" in text.out
    assert "93 messages" in text.out
    assert "nothing was sent; to send it, add --send" in text.err


@pytest.mark.slow
def test_sent_with_receipts(golden_store: GoldenStore, fake: FakeCluster, journal: Path) -> None:
    store = golden_store(SHOP)
    options = ("--send", "--yes", "--json", "--journal", journal)
    found = replay(store, fake, *options)
    assert found.status == Exit.OK
    assert found.document["result"]["state"] == "done"
    assert found.document["result"]["sent"]["messages"] == len(fake.stored) == 127
    receipts = [line for line in lines_of(journal) if line["kind"] == "sent"]
    places = {(each.topic, each.queue_id, each.queue_offset): each.properties["UNIQ_KEY"] for each in fake.stored}
    assert {(line["topic"], line["queue_id"], line["queue_offset"]): line["unique_key"] for line in receipts} == places
    assert {each.body.decode() for each in fake.stored if each.topic == "vouchers"} == {
        f'{{"key": "COMMIT-{number}"}}' for number in range(4)
    }
    again = replay(store, fake, *options)
    assert (again.status, again.document["result"]["done_before"]) == (Exit.OK, 127)
    assert len(fake.stored) == 127
    journal.unlink()
    counted = replay(store, fake, "--json", "--journal", journal).document["result"]
    assert (counted["messages"], counted["left_out"][-1]["reason"]) == (0, "already-there")


def test_dead_letters(golden_store: GoldenStore, fake: FakeCluster, journal: Path) -> None:
    """To their topic, or only to their group."""
    store = golden_store(SHOP)
    options = ("--dead-letters-of", "billing", "--send", "--yes", "--journal", journal)
    assert replay(store, fake, *options).status == Exit.OK
    assert [each.topic for each in fake.stored] == ["payments"] * 3
    assert all("RETRY_TOPIC" not in each.properties for each in fake.stored)
    fake.stored.clear()
    journal.unlink()
    assert replay(store, fake, *options, "--to-retry-topic").status == Exit.OK
    assert [(each.topic, each.properties["RETRY_TOPIC"]) for each in fake.stored] == [
        ("%RETRY%billing", "payments")
    ] * 3
    nothing = replay(store, fake, "--dead-letters-of", "billing", "--topic", "orders")
    assert (nothing.status, "0 messages" in nothing.out) == (Exit.FINDINGS, True)


def test_what_a_group_has_not_consumed(golden_store: GoldenStore, fake: FakeCluster) -> None:
    """The desk has stopped before the last eight orders."""
    result = replay(golden_store(SHOP), fake, "--unconsumed-by", "desk", "--json").document["result"]
    assert [(target["topic"], target["queue_id"]) for target in result["targets"]] == [("orders", n) for n in range(4)]
    assert result["messages"] == 8
    unknown = replay(golden_store(SHOP), fake, "--unconsumed-by", "nobody")
    assert unknown.status == Exit.USAGE
    assert "the group nobody has committed no offset" in unknown.err
    assert "desk" in unknown.err


@pytest.mark.slow
def test_messages_that_wait(golden_store: GoldenStore, fake: FakeCluster, journal: Path) -> None:
    """Five on delay levels that have not been delivered, beside those that have."""
    options = ("--topic", "reminders", "--journal", journal, "--tag", "delay", "--send", "--yes", "--json")
    found = replay(golden_store(SHOP), fake, *options, "--delays", "now")
    assert found.status == Exit.OK
    keys = [each.properties["KEYS"] for each in fake.stored]
    assert sum(key.startswith("LATER") for key in keys) == 5
    assert all("DELAY" not in each.properties for each in fake.stored)
    assert replay(golden_store(SHOP), fake, *options, "--delays", "now").document["result"]["sent"]["messages"] == 0
    every = replay(golden_store(SHOP), fake, "--json", "--delays", "now").document["result"]
    delayed = next(each for each in every["left_out"] if each["reason"] == "delayed")
    assert delayed["topics"] == [
        {"topic": "SCHEDULE_TOPIC_XXXX", "messages": 10}, {"topic": "rmq_sys_wheel_timer", "messages": 1},
    ]  # fmt: skip


@pytest.mark.budget(1)
def test_an_export_that_was_edited(golden_store: GoldenStore, fake: FakeCluster, journal: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    exported = rmqtool("export", golden_store(SHOP), "--output", lake, "--topic", "orders", "-q")
    assert exported.status == Exit.OK
    (file,) = [*lake.rglob("*.parquet")]
    table = pq.read_table(file)
    bodies = [body.replace(b"ORD", b"XXX") for body in table.column("body").to_pylist()]
    edited = table.set_column(table.column_names.index("body"), "body", pa.array(bodies))
    pq.write_table(
        edited.select([name for name in edited.column_names if name not in ("body_crc", "unique_key", "keys")]), file
    )
    options = ("--journal", journal, "--to-topic", "orders=payments", "--key", "ORD-10", "--key", "ORD-11")
    found = replay(lake, fake, *options, "--send", "--yes")
    assert found.status == Exit.OK
    assert sorted(each.body for each in fake.stored) == [b'{"key": "XXX-10"}', b'{"key": "XXX-11"}']
    assert {each.topic for each in fake.stored} == {"payments"}
    assert {each.queue_id for each in fake.stored} <= {0, 1}
    store = replay(golden_store(SHOP), fake, "--json", "--topic", "payments", "--from-offset", "1").document["result"]
    assert store["messages"] == 30


def test_an_export_out_of_order(tmp_path: Path) -> None:
    """It is said that the order of the rows counts."""
    rmqtool("export", write_store(tmp_path / "store"), "--output", tmp_path / "lake", "-q")
    (file,) = [*(tmp_path / "lake").rglob("*.parquet")]
    table = pq.read_table(file)
    for rows, is_unordered in ((table, False), (table.take([*range(table.num_rows)][::-1]), True)):
        pq.write_table(rows, file)
        reading = Reading()
        assert (
            sum(len(found) for found, _ in ParquetSource(tmp_path / "lake", Filters()).rows(reading)) == table.num_rows
        )
        assert reading.is_unordered is is_unordered


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--columns", "topic,body"], "required columns are missing"),
        (["--redact", "keys"], "values were hidden"),
        (["--store-column"], "several stores"),
        (["--format", "ndjson"], "neither"),
    ],
)
def test_an_export_that_is_none_of_messages(tmp_path: Path, fake: FakeCluster, options: list[str], says: str) -> None:
    rmqtool("export", write_store(tmp_path / "store"), "--output", tmp_path / "lake", "-q", *options)
    found = replay(tmp_path / "lake", fake)
    assert found.status in (Exit.USAGE, Exit.NOT_A_STORE)
    assert says in found.err or found.status == Exit.NOT_A_STORE or "of the format ndjson" in found.err


def test_damage_is_said(tmp_path: Path, fake: FakeCluster, journal: Path) -> None:
    """What is around it is sent; a damaged body is not."""
    store = write_store(tmp_path / "store")
    file = store / LOG / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[700:1000] = b"\xa5" * 300
    data[data.index(b"body 40") + 1] ^= 1
    file.write_bytes(data)
    found = replay(store, fake, "--send", "--yes", "--json", "--journal", journal)
    result = found.document["result"]
    assert found.status == Exit.LOSSY
    assert result["damaged"]["extents"] == 1
    assert [(each["reason"], each["messages"]) for each in result["left_out"]] == [("damaged-body", 1)]
    assert 50 < len(fake.stored) < 59


@pytest.mark.slow
def test_refused(tmp_path: Path, fake: FakeCluster, journal: Path) -> None:
    """It stops, with status 3 and the broker's words; --keep-going goes on."""
    store = write_store(tmp_path / "store")
    fake.fault = lambda asked: (
        (16, "the broker[fake] sending message is forbidden") if b"body 0" in asked.body else None
    )
    options = ("--send", "--yes", "--journal", journal, "--batch", "1")
    found = replay(store, fake, *options)
    assert found.status == Exit.LOSSY
    assert "it is not permitted (code 16: the broker[fake] sending message is forbidden)" in found.out
    assert "--keep-going" in found.out
    assert len(fake.stored) == 2
    kept = replay(store, fake, *options, "--keep-going", "--json")
    assert kept.status == Exit.LOSSY
    assert kept.document["result"]["sent"]["refused"] == 1
    assert len(fake.stored) == 59
    assert [line["reason"] for line in lines_of(journal) if line["kind"] == "refused"]


def test_a_target_that_is_not_there(tmp_path: Path, fake: FakeCluster, journal: Path) -> None:
    store = write_store(tmp_path / "store")
    found = rmqtool("replay", store, "--nameserver", "127.0.0.1:1")
    assert (found.status, found.out) == (Exit.FAILED, "")
    assert "127.0.0.1:1 cannot be reached: connection refused" in found.err
    fake.fault = lambda asked: "cut-before" if asked.code in (310, 320) else None
    gone = replay(store, fake, "--send", "--yes", "--journal", journal, "--patience", "100ms", "--json")
    assert gone.status == Exit.FAILED
    assert gone.document["error"]["kind"] == "peer"
    assert gone.document["error"]["hint"] == "the same command continues where it stopped"


@pytest.mark.slow
def test_the_question(tmp_path: Path, fake: FakeCluster) -> None:
    """Nobody is asked without a terminal; and no is no."""
    store = write_store(tmp_path / "store")
    assert replay(store, fake, "--send").status == Exit.USAGE
    command = ("replay", store, "--nameserver", fake.address, "--send")
    declined = answered(b"n\n", *command)
    assert declined.status == Exit.INTERRUPTED
    assert "Send 60 messages" in declined.err.replace("\r\n", " ")
    assert fake.stored == []
    assert not (tmp_path / "store.replay.ndjson").exists()
    assert answered(b"y\n", *command).status == Exit.OK
    assert len(fake.stored) == 60
    assert (tmp_path / "store.replay.ndjson").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--send", "--dry-run"], "give either"),
        (["--yes"], "--send, which is missing"),
        (["--unconsumed-by", "a", "--dead-letters-of", "b"], "give either"),
        (["--journal", "{store}/journal"], "a file of the source"),
        (["--journal", "{store}/../nowhere/journal", "--send", "--yes"], "cannot be written"),
        (["--to-topic", "a=b", "--to-topic", "c"], "OLD=NEW"),
        (["--to-topic", "=b"], "OLD=NEW"),
        (["--rate", "fast"], "messages a second"),
        (["--rate", "0"], "messages a second"),
        (["--timeout", "0s"], "is not a duration"),
        (["--patience", "soon"], "is not a duration"),
        (["--nameserver", "nowhere"], "HOST:PORT"),
        (["--nameserver", ";"], "no address"),
        (["--acl-file", "{store}/nowhere"], "cannot be read"),
        (["--tls-key", "{store}/nowhere"], "--tls-cert"),
        (["--tls-ca", "{store}/nowhere"], "certificates cannot be used"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, fake: FakeCluster, options: list[str], says: str) -> None:
    store = write_store(tmp_path / "store", 3)
    found = replay(store, fake, *(option.format(store=store) for option in options))
    assert found.status in (Exit.USAGE, Exit.FAILED)
    assert says in found.err
    assert fake.stored == []


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("after", [1, 2, 5, 9])
def test_killed_and_started_again(tmp_path: Path, fake: FakeCluster, journal: Path, after: int) -> None:
    """Before or after the broker has stored something: the next run looks up what it does not know."""
    store = write_store(tmp_path / "store")
    command = [sys.executable, "-m", "rmqtool", "replay", str(store), "--nameserver", fake.address, "--send", "--yes"]
    command += ["--journal", str(journal), "--batch", "3", "--no-look-up"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)

    def kill(asked: Any) -> str | None:
        if asked.code in (310, 320) and asked.number == after:
            process.kill()
            return "cut-after" if after % 2 else "cut-before"
        return None

    fake.fault = kill
    assert process.wait(60) == -signal.SIGKILL
    fake.fault = lambda _: None
    assert subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode == 0
    assert sorted(each.properties["UNIQ_KEY"] for each in fake.stored) == [f"{number:032X}" for number in range(60)]


def test_a_hostile_name(tmp_path: Path, fake: FakeCluster) -> None:
    """Nothing of the peer or of the source reaches a terminal as it is."""
    store = LogBuilder().add_all([{"topic": "a\x1b[2Jb"}]).write(tmp_path / "store")
    fake.fault = lambda asked: (1, "\x1b]0;bad\x07") if asked.code == 105 else None
    found = replay(store, fake)
    assert found.status == Exit.FAILED
    assert "\x1b" not in found.out + found.err


def test_what_is_typed_wrong_comes_before_what_is_not_given(tmp_path: Path) -> None:
    """Store, group, journal; then the name server."""
    store = write_store(tmp_path / "store", 3)
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{"0":1}}}')
    for source, options, status, says in (
        (tmp_path, ("--dead-letters-of", "x"), Exit.NOT_A_STORE, "neither a store"),
        (tmp_path / "gone", (), Exit.FAILED, "no such file or directory"),
        (store, ("--dead-letters-of", "biling"), Exit.USAGE, "the store has no group biling"),
        (store, ("--unconsumed-by", "biling"), Exit.USAGE, "the group biling has committed no offset"),
        (store, ("--journal", store / "journal"), Exit.USAGE, "a file of the source"),
        (store, ("--acl-file", store / "nowhere"), Exit.FAILED, "cannot be read"),
        (store, ("--rate", "fast"), Exit.USAGE, "messages a second"),
        (store, (), Exit.USAGE, "no target: give --nameserver HOST:PORT"),
        (store, ("--send", "--yes"), Exit.USAGE, "no target: give --nameserver HOST:PORT"),
    ):
        found = rmqtool("replay", source, *options)
        assert (found.status, says in found.err) == (status, True), found.err


def test_counted_without_a_name_server(tmp_path: Path, fake: FakeCluster, journal: Path) -> None:
    """All that would be sent, by topic, less what the journal has; nothing is asked for."""
    store = write_store(tmp_path / "store")
    with unchanged(store):
        found = rmqtool("replay", store, "--dry-run", "--to-topic", "test", "--limit", "40")
    assert found.status == Exit.OK
    assert found.out.startswith("40 messages, ")
    assert "not compared with a target: no --nameserver is given\n" in found.out
    assert "Broker" not in found.out
    result = rmqtool("replay", store, "--dry-run", "--json").document["result"]
    assert (result["messages"], result["name_servers"], result["targets"], result["looked_up"]) == (60, [], [], False)
    assert sum(topic["messages"] for topic in result["topics"]) == 60
    assert fake.asked == []
    counted = replay(store, fake, "--dry-run", "--json").document["result"]
    assert counted["topics"] == result["topics"]
    assert replay(store, fake, "--send", "--yes", "--journal", journal, "--limit", "50").status == Exit.OK
    left = rmqtool("replay", store, "--dry-run", "--journal", journal, "--json").document["result"]
    assert (left["messages"], left["done_before"]) == (10, 50)


def test_a_group_without_dead_letters(golden_store: GoldenStore) -> None:
    """It is known, and there is nothing to send; of another one those that have some are named."""
    store = golden_store(SHOP)
    nothing = rmqtool("replay", store, "--dead-letters-of", "gifts", "--dry-run")
    assert nothing.status == Exit.FINDINGS
    wrong = rmqtool("replay", store, "--dead-letters-of", "biling", "--dry-run")
    assert wrong.status == Exit.USAGE
    assert "the store has no group biling\n  groups with dead letters: billing\n" in wrong.err
