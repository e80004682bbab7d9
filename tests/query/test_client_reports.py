"""What clients with message trace on say of a message, in its story: real ones, and made ones of every form."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from rmqtool.query.by_place import Notes, message_at
from rmqtool.query.lookup import KeyQuery, by_key
from rmqtool.query.story import Event
from rmqtool.query.trace import trace_of
from rmqtool.show.query import story_lines
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.query.making import StoreMaker

TRACED = ("more/4.7.1-traced", "more/5.5.0-traced")
NEW = TRACED[1]
ID, OTHER, REQUEST = "0A0B0C0D00000000000000000000AAAA", "0A0B0C0D00000000000000000000BBBB", "R1"
TOPIC = "RMQ_SYS_TRACE_TOPIC"


def key_of(name: str, key: str) -> str:
    """The unique key of a message that a traced client sent."""
    (found,) = (sent["unique_key"] for sent in stores.oracle(name)["facts"]["sent"] if sent["key"] == key)
    return str(found)


def story(snapshot: Snapshot, unique_key: str) -> list[Event]:
    """The same from each record of the message."""
    query = KeyQuery(unique_key, unique=True)
    stories = [trace_of(snapshot, message).story for message in by_key(snapshot, query, "none", Notes())]
    assert stories
    assert [event.as_json() for event in stories[0]] == [event.as_json() for event in stories[-1]]
    return stories[0]


def traced(golden_store: GoldenStore, key: str, name: str = NEW) -> list[Event]:
    return story(Snapshot(open_store(golden_store(name))), key_of(name, key))


def names(events: list[Event]) -> list[str]:
    return [event.event.removeprefix("trace-") for event in events]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACED)
def test_a_consumption_that_failed_once(name: str, golden_store: GoldenStore) -> None:
    """Both tries stand between what they follow from and what follows from them."""
    events = traced(golden_store, "FAIL-ONCE", name)
    assert names(events) == [
        *("sent", "send", "stored", "read", "consume-begin", "consume-end", "sent-back"),
        *("retry", "passed", "consume-begin", "consume-end"),
    ]
    assert [(event.times, event.result) for event in events if event.event == "trace-consume-end"] == [
        *((0, "FAILED"), (1, "SUCCESS")),
    ]
    reports = [event for event in events if event.event.startswith("trace-")]
    assert [event.group for event in reports] == ["depot", *["drivers"] * 4]
    for event in reports:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", event.client_host or "")
        assert event.record["topic"] == TOPIC
        assert f"trace topic, message at {event.record['physical_offset']}: as reported by the client" in event.proof
    assert "with the id of the record at" in reports[0].proof


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "result"), [("PLAIN", "SUCCESS"), ("THROWS-ONCE", "EXCEPTION"), ("NULL-ONCE", "RETURNNULL")]
)
def test_each_result(key: str, result: str, golden_store: GoldenStore) -> None:
    ends = [event for event in traced(golden_store, key) if event.event == "trace-consume-end"]
    assert [event.result for event in ends] == ([result, "SUCCESS"] if result != "SUCCESS" else [result])


@pytest.mark.slow
def test_transactions_and_a_recall(golden_store: GoldenStore) -> None:
    """Who ended them, and before the broker asked."""
    committed, rolled_back = traced(golden_store, "COMMIT"), traced(golden_store, "ROLLBACK")
    assert names(committed) == [
        *("sent", "send", "half", "transaction-end", "committed", "passed", "consume-begin", "consume-end"),
    ]
    assert [(event.result, event.from_check, event.group) for event in (committed[3], rolled_back[3])] == [
        ("COMMIT_MESSAGE", False, "depot-transactions"), ("ROLLBACK_MESSAGE", False, "depot-transactions"),
    ]  # fmt: skip
    recall = traced(golden_store, "RECALLED")[-1]
    assert (recall.event, recall.result, recall.group) == ("trace-recall", "SUCCESS", "depot")


@pytest.mark.slow
def test_the_page_and_the_json(golden_store: GoldenStore) -> None:
    store = golden_store(NEW)
    asked = ("query", store, "--unique-key", key_of(NEW, "FAIL-ONCE"), "--topic", "deliveries", "--trace")
    page = " ".join(rmqtool(*asked).out.split())
    assert re.search(r"sent by producer group depot at client 127.0.0.1:\d+, took \d+ ms: SUCCESS \(trace topic", page)
    assert re.search(r"consumption by drivers ended at client 127.0.0.1:\d+ after \d+ ms: FAILED \(trace topic", page)
    (line,) = rmqtool(*asked, "--json").of_kind("message")
    send = line["places"]["story"][1]
    assert (send["event"], send["result"], send["from_check"]) == ("trace-send", "SUCCESS", None)
    assert send["cost_ms"] >= 0


@pytest.mark.slow
def test_without_the_index_the_trace_topic_is_read(tmp_path: Path) -> None:
    """The same story; of a broken index file, too."""
    root = stores.unpack(NEW, tmp_path)
    key = key_of(NEW, "FAIL-ONCE")
    snapshot = Snapshot(open_store(root))
    with_index = [event.as_json() for event in story(snapshot, key) if event.event.startswith("trace-")]
    (offset,) = (each["physical_offset"] for each in _messages(snapshot, key) if each["topic"] == "deliveries")
    (index,) = (root / "index").iterdir()
    whole = index.read_bytes()
    for data in (whole[:100], whole[:20], None):
        index.unlink() if data is None else index.write_bytes(data)
        snapshot = Snapshot(open_store(root))
        message = message_at(snapshot, offset)
        assert message is not None
        told = [event.as_json() for event in trace_of(snapshot, message).story if event.event.startswith("trace-")]
        assert told == with_index


def _messages(snapshot: Snapshot, key: str) -> list[dict[str, Any]]:
    return list(by_key(snapshot, KeyQuery(key, unique=True), "none", Notes()))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["hosts", "keys,properties,bodies,hosts"])
@pytest.mark.parametrize("how", ["hide", "hash"])
def test_hosts_are_redacted(what: str, how: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """In text, JSON and report no byte of them is left, nor of keys and ids."""
    store, key = golden_store(NEW), key_of(NEW, "FAIL-ONCE")
    page = tmp_path / "report.html"
    asked = ("query", store, "--unique-key", key, "--trace", "--body", "none")
    options = ("--redact", what, "--redact-as", how)
    shown = {"text": rmqtool(*asked, *options).out, "json": rmqtool(*asked, "--json", *options).out}
    assert rmqtool("report", store, "-o", page, "--trace", key, *options).status in (0, 1)
    shown["html"] = page.read_text()
    secrets = ["127.0.0.1", key] + (["FAIL-ONCE"] if "keys" in what else [])
    for name, text in shown.items():
        assert "ended at client" in text or name == "json", name
        assert [secret for secret in secrets if secret in text] == [], name
    assert "127.0.0.1" in rmqtool(*asked).out


@pytest.mark.slow
def test_the_report_has_them(golden_store: GoldenStore, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    rmqtool("report", golden_store(NEW), "-o", page, "--trace", key_of(NEW, "FAIL-ONCE"))
    assert page.read_text().count("its consumption by drivers ended at client 127.0.0.1:") >= 2


class TraceMaker(StoreMaker):
    """A message, and what clients report of it."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.add(properties={"UNIQ_KEY": ID}, **fields)

    def say(self, *records: str, keys: str = ID, **fields: Any) -> int:
        body = "".join(f"{record}\x02" for record in records).replace(" ", "\x01").encode()
        fields = {"born_timestamp": START_TIME + 60_000, "body": body, "properties": {"KEYS": keys}, **fields}
        return self.add(fields.pop("topic", TOPIC), **fields)

    def reports(self, root: Path) -> list[Event]:
        return [event for event in self.story(root) if event.event.startswith("trace-")]

    def story(self, root: Path) -> list[Event]:
        snapshot = self.snapshot(root)
        message = message_at(snapshot, 0)
        assert message is not None
        return trace_of(snapshot, message).story


def pub(ids: str = ID, time: int = START_TIME, success: str = "true") -> str:
    return f"Pub {time} r P orders {ids} t k h:1 5 7 0 null {success}"


def before(time: int = START_TIME + 50_000, retry: int = 0) -> str:
    return f"SubBefore {time} r G {REQUEST} {ID} {retry} k"


def test_older_forms(tmp_path: Path) -> None:
    """An end without group and time has them of its begin, found by request and id, in another message, too."""
    made = TraceMaker()
    made.say(f"SubAfter {REQUEST} {ID} 30 false k 1")
    made.say(before(retry=2))
    begin, end = made.reports(tmp_path)
    assert (end.group, end.times, end.result, end.cost) == ("G", 2, "TIME_OUT", 30)
    assert (begin.timestamp, end.timestamp, end.until_timestamp) == (
        *(START_TIME + 50_000, START_TIME + 50_030, START_TIME + 60_000),
    )
    assert end.proof.endswith("time by begin and duration")


def test_an_end_without_its_begin(tmp_path: Path) -> None:
    """All that is known of its time: the message was stored, and then the client wrote its traces."""
    made = TraceMaker()
    made.say(f"SubAfter {REQUEST} {ID} 30 false k")
    (end,) = made.reports(tmp_path)
    assert (end.timestamp, end.until_timestamp, end.result) == (START_TIME, START_TIME + 60_000, "FAILED")
    assert (end.group, end.times) == (None, None)
    ((_, told),) = story_lines([end.as_json()], str)
    assert "its consumption by an unknown group ended" in told


def test_a_batch_and_a_topic_of_a_region(tmp_path: Path) -> None:
    """The sending of a batch has one key of all its ids, to which no index leads: what is behind it is read."""
    made = TraceMaker()
    made.say(pub(f"{OTHER},{ID}"), keys=f"{OTHER},{ID}", topic="rmq_sys_TRACE_DATA_cn-1")
    made.keys = made.keys[:1]
    (send,) = made.reports(tmp_path)
    assert (send.event, send.cost, send.record["topic"]) == ("trace-send", 7, "rmq_sys_TRACE_DATA_cn-1")


def test_only_what_is_about_the_message(tmp_path: Path) -> None:
    """Each once, though a client sent its traces twice and others share a key."""
    made = TraceMaker()
    made.say(pub(), pub(OTHER), keys=f"{ID} {OTHER} k")
    made.say(pub(), keys=f"{ID} {OTHER} k")
    made.say(pub(OTHER), keys=f"{OTHER} k")
    assert [event.record["physical_offset"] for event in made.reports(tmp_path)] == [made.offsets[1]]


def test_a_message_without_unique_key(tmp_path: Path) -> None:
    """Clients call it by its offset message id."""
    made = StoreMaker()
    made.add(properties={"KEYS": "k"})
    message_id = made.message_id(0)
    record = pub(message_id).replace(" ", "\x01").encode() + b"\x02"
    made.add(TOPIC, body=record, properties={"KEYS": message_id})
    snapshot = made.snapshot(tmp_path)
    message = message_at(snapshot, 0)
    assert message is not None
    assert names(trace_of(snapshot, message).story) == ["sent", "send", "stored"]


def test_clocks_that_differ(tmp_path: Path) -> None:
    """A client whose clock is an hour behind, or before: what follows from what is not turned around."""
    for hour in (-3_600_000, 3_600_000):
        made = TraceMaker()
        made.say(pub(time=START_TIME + hour), before(START_TIME + hour),
                 f"SubAfter {REQUEST} {ID} 0 false k 4 {START_TIME + hour} G")  # fmt: skip
        made.add("%RETRY%G", properties={"UNIQ_KEY": ID}, reconsume_times=1)
        made.config["consumerOffset.json"] = {"offsetTable": {"orders@slow": {"0": 0}}}
        told = [name for name in names(made.story(tmp_path / str(hour))) if name != "read"]
        assert told == ["sent", "send", "stored", "consume-begin", "consume-end", "retry", "not-passed"]


@pytest.mark.parametrize("seed", range(5))
def test_damaged_traces(seed: int, tmp_path: Path) -> None:
    """What can be read is told, and that there is more; noise is no error."""
    noise = random.Random(seed).randbytes(60)
    made = TraceMaker()
    made.say(pub(), before()[:20])
    made.say(body=noise)
    made.say(body=pub(OTHER).replace(" ", "\x01").encode(), keys=OTHER)
    reports = made.reports(tmp_path)
    assert names(reports) == ["send", "unreadable", "unreadable"]
    assert ": 1 that may be about other messages" in reports[1].proof
    assert rmqtool("query", tmp_path, "--offset", "0", "--trace").status == 0


def test_a_body_with_a_wrong_crc_is_not_believed(tmp_path: Path) -> None:
    made = TraceMaker()
    made.say(pub(), body_crc=1)
    assert names(made.reports(tmp_path)) == ["unreadable"]


def test_a_trace_message_is_not_about_itself(tmp_path: Path) -> None:
    """Though its unique key points to it, and its body is noise."""
    made = TraceMaker()
    made.say(body=b"noise", properties={"UNIQ_KEY": OTHER, "KEYS": ID})
    assert names(story(made.snapshot(tmp_path), OTHER)) == ["sent", "stored"]


def test_an_index_that_begins_behind_the_message(tmp_path: Path) -> None:
    """It may not lead to its traces either: they are read."""
    made = TraceMaker()
    made.say(pub())
    made.add(properties={"UNIQ_KEY": OTHER})
    made.keys = made.keys[-1:]
    assert names(made.reports(tmp_path)) == ["send"]


def test_a_topic_and_a_host_of_their_own(tmp_path: Path) -> None:
    """The topic is that of broker.conf; a client that names its host is believed."""
    made = TraceMaker()
    made.say(f"{pub().removesuffix('null true')}OID true 192.0.2.7", topic="audit")
    store = made.write(tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("msgTraceTopicName=audit\n", encoding="utf-8")
    asked = ("query", store, "--offset", "0", "--trace")
    assert "sent by producer group P at client 192.0.2.7, took 7 ms" in rmqtool(*asked, "--broker-conf", conf).out
    assert "192.0.2.7" not in rmqtool(*asked).out


def test_without_a_trace_topic_nothing_is_said(golden_store: GoldenStore) -> None:
    """Whatever a broker does without: the word does not come up."""
    out = rmqtool("query", golden_store("5.5.0-shop"), "--offset", "0", "--trace").out
    assert "stored in" in out
    assert not re.search("trace", out)
