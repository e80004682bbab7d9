"""`rmqtool query`: every way to ask, on stores of real brokers."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import query, rmqtool
from tests.conftest import GoldenStore
from tests.golden import stores

STORE = "5.3.3-clean"
V6_STORE = "5.5.0-clean"


@pytest.fixture(scope="module")
def says() -> dict[str, Any]:
    """What the release says about STORE."""
    return stores.oracle(STORE)


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store(STORE)


def record_of(says: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The first record with these fields."""
    return next(record for record in says["records"] if all(record[name] == value for name, value in fields.items()))


def offsets(result: Any) -> list[int]:
    return [line["physical_offset"] for line in result.lines]


def test_chosen_columns(store: Path, says: dict[str, Any]) -> None:
    """A table for people, objects in JSON; properties and fields of JSON bodies have columns of their own."""
    record = record_of(says, topic="payments", queue_id=0, queue_offset=4)
    place = ("--offset", str(record["physical_offset"]))
    names = "queue_offset,tags,body.order,properties.UNIQ_KEY,body.nothing"
    unique_key = record["properties"]["UNIQ_KEY"]
    (row,) = query(store, "--json", *place, "--columns", names).lines
    order = row["body.order"]
    assert row == {"kind": "message", "queue_offset": 4, "tags": record["properties"]["TAGS"], "body.order": order,
                   "properties.UNIQ_KEY": unique_key, "body.nothing": None}  # fmt: skip
    head, line = query(store, *place, "--columns", names).out.splitlines()
    assert head.split() == names.split(",")
    assert line.split() == ["4", row["tags"], order or "-", unique_key, "-"]
    hidden = query(store, *place, "--columns", "unique_key", "--redact", "keys").out.splitlines()
    assert [text.strip() for text in hidden] == ["unique_key", "***"]
    assert query(store, "--scan", "--columns", "topic,queue_offset").out.count("\n") == len(says["records"]) + 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offset", "0", "--columns", "no_such"], "no such column here: no_such; there are: kind, topic, "),
        (["--offset", "0", "--columns", ","], "no such column here: ','"),
        (["--offset", "0", "--columns", "topic", "--trace"], "--trace does not go with --columns"),
        (["--group", "billing", "--columns", "topic"], "--group does not go with --columns"),
    ],
)
def test_columns_that_do_not_fit(store: Path, words: list[str], why: str) -> None:
    found = query(store, *words)
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert why in found.err


def test_by_physical_offset(store: Path, says: dict[str, Any]) -> None:
    record = says["records"][100]
    (message,) = query(store, "--json", "--offset", str(record["physical_offset"])).lines
    assert message["message_id"] == record["message_id"]
    assert message["properties"] == record["properties"]


@pytest.mark.parametrize("name", [STORE, V6_STORE, "4.4.0-trimmed"])
def test_by_message_id(golden_store: GoldenStore, name: str) -> None:
    """Ids of IPv4 and IPv6 store hosts, in either case."""
    ids = {len(record["message_id"]): record["message_id"] for record in stores.oracle(name)["records"]}
    assert set(ids) == ({32} if name.startswith("4.4") else {32, 56})
    for message_id in ids.values():
        for text in (message_id, message_id.lower()):
            (message,) = query(golden_store(name), "--json", "--msg-id", text).lines
            assert message["message_id"] == message_id


def test_a_unique_key_as_message_id(store: Path, says: dict[str, Any]) -> None:
    """Clients print both as the id: a unique key is found all the same, and it is said what it is."""
    record = record_of(says, topic="orders", queue_id=0, queue_offset=5)
    result = query(store, "--json", "--msg-id", record["unique_key"])
    assert offsets(result) == [record["physical_offset"]]
    assert result.err == f"{record['unique_key']} is not an offset message id; found as unique key\n"
    nowhere = query(store, "--msg-id", "7F00000100002A9FFFFFFFFFFFFFFFFF").err
    assert "is not an offset message id: its physical offset would be -1\n" in nowhere
    assert "deleted" not in nowhere


@pytest.mark.slow
def test_by_queue_offset(store: Path, says: dict[str, Any]) -> None:
    for queue in says["queues"]:
        unit = queue["units"][len(queue["units"]) // 2]
        offset = unit[4] if queue["kind"] == "batch" else queue["first_unit"] + len(queue["units"]) // 2
        place = ("--topic", queue["topic"], "--queue", str(queue["queue_id"]), "--queue-offset", str(offset))
        result = query(store, "--json", "--body", "none", *place)
        assert (result.status, offsets(result)) == (0, [unit[0]])


def test_inside_a_batch(store: Path, says: dict[str, Any]) -> None:
    """A batch's record is found by the offset of each of its messages, and which one it is is said."""
    queue = next(queue for queue in says["queues"] if queue["kind"] == "batch")
    base, size = queue["units"][1][4:6]
    place = ("--topic", queue["topic"], "--queue", "0", "--queue-offset", str(base + size - 1))
    result = query(store, "--json", *place)
    assert offsets(result) == [queue["units"][1][0]]
    assert f"a batch of {size}: offset {base + size - 1} is number {size} in it" in result.err


@pytest.mark.slow
def test_by_key(store: Path, says: dict[str, Any]) -> None:
    """With a topic and without one: the messages that have the key, in the order of the log."""
    record = record_of(says, keys="order-50 customer-0 订单50")
    for key in record["keys"].split():
        having = [
            other["physical_offset"]
            for other in says["records"]
            if other["topic"] == "orders" and key in (other["keys"] or "").split()
        ]
        assert offsets(query(store, "--json", "--key", key, "--topic", "orders", "--limit", "10000")) == having
        assert offsets(query(store, "--json", "--key", key, "--limit", "10000")) == having


def test_key_limits_count_index_units(store: Path, says: dict[str, Any]) -> None:
    """The newest units are taken, as the broker takes them, and that there may be more is said."""
    key = next(query for query in says["index"]["queries"] if len(query["physical_offsets"]) > 5)
    place = ("--key", key["key"], "--topic", key["topic"], "--hash-matches", "--limit", "3")
    result = query(store, "--json", *place)
    assert offsets(result) == sorted(offsets(result))
    assert set(offsets(result)) <= set(key["physical_offsets"][-3:])
    assert len(result.lines) == 3
    assert "there may be older messages" in result.err


@pytest.mark.slow
def test_equal_hashes(store: Path, says: dict[str, Any]) -> None:
    """Keys with one hash: the other's messages are left out, and shown when index units are asked for."""
    having = [r for r in says["records"] if r["topic"] == "payments" and r["keys"] and "Aa" in r["keys"].split()]
    others = [r for r in says["records"] if r["topic"] == "payments" and r["keys"] and "BB" in r["keys"].split()]
    assert having
    assert others
    options = ("--json", "--key", "Aa", "--topic", "payments", "--limit", "10000")
    plain, all_of_them = query(store, *options), query(store, *options, "--hash-matches")
    assert offsets(plain) == [record["physical_offset"] for record in having]
    assert len(all_of_them.lines) > len(plain.lines)
    assert {line["key_matches"] for line in all_of_them.lines} == {True, False}
    if any(record not in having for record in others):
        assert "have another key of the same hash" in plain.err


def test_by_unique_key(store: Path, says: dict[str, Any]) -> None:
    """Every record of a message: half and committed copy have one unique key."""
    half = record_of(says, topic="RMQ_SYS_TRANS_HALF_TOPIC")
    having = [r["physical_offset"] for r in says["records"] if r["unique_key"] == half["unique_key"]]
    assert len(having) == 2
    assert offsets(query(store, "--json", "--unique-key", half["unique_key"])) == having
    assert offsets(query(store, "--json", "--unique-key", half["unique_key"], "--topic", "payments")) == having[1:]


def test_a_unique_key_is_no_plain_key(store: Path, says: dict[str, Any]) -> None:
    keyed = next(record for record in says["records"] if record["keys"])
    assert query(store, "--unique-key", keyed["keys"].split()[0]).status == 1
    assert offsets(query(store, "--json", "--key", keyed["unique_key"])) == [keyed["physical_offset"]]


@pytest.mark.slow
def test_scan_finds_what_the_index_finds(store: Path, says: dict[str, Any]) -> None:
    for wanted in says["index"]["queries"][::150]:
        place = ("--json", "--topic", wanted["topic"], "--key", wanted["key"], "--limit", "10000")
        assert offsets(query(store, *place)) == offsets(query(store, *place, "--scan"))


def test_scan_by_unique_key_and_time(store: Path, says: dict[str, Any]) -> None:
    record = next(record for record in says["records"][300:] if record["unique_key"])
    key = ("--scan", "--json", "--unique-key", record["unique_key"])
    assert offsets(query(store, *key)) == [record["physical_offset"]]
    window = ("--from", str(record["store_timestamp"]), "--to", str(record["store_timestamp"] + 1))
    same = [r["physical_offset"] for r in says["records"] if r["store_timestamp"] == record["store_timestamp"]]
    assert offsets(query(store, "--scan", "--json", *window)) == same


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("TAGS=Aa", lambda properties: properties.get("TAGS") == "Aa"),
        ("TAGS!=Aa", lambda properties: properties.get("TAGS") != "Aa"),
        ("KEYS~order-5", lambda properties: "order-5" in properties.get("KEYS", "")),
        ("区域=华东", lambda properties: properties.get("区域") == "华东"),
        ("NOBODY=x", lambda properties: False),
    ],
)
def test_where(store: Path, says: dict[str, Any], condition: str, holds: Any) -> None:
    having = [record["physical_offset"] for record in says["records"] if holds(record["properties"])]
    result = query(store, "--json", "--body", "none", "--where", condition)
    assert offsets(result) == having
    assert result.status == (0 if having else 1)


@pytest.mark.slow
def test_body_contains(store: Path, says: dict[str, Any]) -> None:
    """Looked for in bodies as producers gave them, whatever their compression."""
    for text in ("état", "reminder, level 3", "refund"):
        having = [
            record["physical_offset"]
            for record in says["records"]
            if text.encode() in base64.b64decode(record["body_base64"])
        ]
        assert having
        assert offsets(query(store, "--json", "--body", "none", "--body-contains", text)) == having
    limited = query(store, "--json", "--body-contains", "refund", "--limit", "2")
    assert len(limited.lines) == 2
    assert "there may be more" in limited.err


def test_what_was_stored_then(store: Path, says: dict[str, Any]) -> None:
    """From any moment on, the first messages in the order of the log."""
    times = [record["store_timestamp"] for record in says["records"]]
    for moment in (times[0] - 5, times[0], times[500], times[-1]):
        having = [r["physical_offset"] for r in says["records"] if r["store_timestamp"] >= moment][:4]
        assert offsets(query(store, "--json", "--time", str(moment), "--limit", "4")) == having
    late = query(store, "--json", "--time", str(times[-1] + 1))
    assert (late.status, late.out) == (1, "")


def test_offsets_at_a_moment(store: Path, says: dict[str, Any]) -> None:
    """Both boundaries and the broker's answer, for each queue of the topic or for one."""
    times = {record["physical_offset"]: record["store_timestamp"] for record in says["records"]}
    queue = next(queue for queue in says["queues"] if queue["topic"] == "orders" and queue["queue_id"] == 2)
    moment = times[queue["units"][20][0]]
    lines = query(store, "--json", "--at", str(moment), "--topic", "orders").lines
    assert [line["queue_id"] for line in lines] == [0, 1, 2, 3]
    (line,) = query(store, "--json", "--at", str(moment), "--topic", "orders", "--queue", "2").lines
    assert line == lines[2]
    stored = [times[unit[0]] for unit in queue["units"]]
    assert line["lower"] == line["broker"] == stored.index(moment)
    assert line["upper"] == len(stored) - 1 - stored[::-1].index(moment)


@pytest.mark.slow
def test_groups(store: Path) -> None:
    """Offsets and lags are those of inspect; retry and dead letter queues of the group are there too."""
    lines = query(store, "--json", "--group", "beyond").lines
    assert {(line["topic"], line["queue_id"]) for line in lines} == {("early", 0), *(("orders", n) for n in range(4))}
    assert {(line["lag"], line["state"], line["last_consumed_time"]) for line in lines} == {(-10, "beyond-max", None)}
    (middle, *_) = query(store, "--json", "--group", "middle").lines
    assert middle["state"] == "ok"
    assert middle["last_consumed_timestamp"] > 0
    (retry,) = query(store, "--json", "--group", "billing").lines
    assert (retry["topic"], retry["state"], retry["lag"]) == ("%RETRY%billing", "never-consumed", retry["max_offset"])


@pytest.mark.slow
def test_pull(store: Path, says: dict[str, Any]) -> None:
    """Messages, next offset and range; what only the hash of a tag lets through is marked."""
    queue = next(queue for queue in says["queues"] if queue["topic"] == "orders" and queue["queue_id"] == 0)
    place = ("--pull", "--topic", "orders", "--queue", "0", "--queue-offset", "10", "--max", "7")
    (answer,) = query(store, "--json", *place).lines
    assert answer["status"] == "FOUND"
    assert answer["next_begin_offset"] == 17
    assert (answer["min_offset"], answer["max_offset"]) == (queue["min_offset"], queue["max_offset"])
    assert [message["physical_offset"] for message in answer["messages"]] == [unit[0] for unit in queue["units"][10:17]]
    (tagged,) = query(store, "--json", *place[:-1], "40", "--tag", "BB").lines
    matches = {message["tags"]: message["tag_matches"] for message in tagged["messages"]}
    assert matches in ({"Aa": False, "BB": True}, {"Aa": False})
    (end,) = query(store, "--json", *place[:-3], str(queue["max_offset"])).lines
    assert (end["status"], end["messages"]) == ("OFFSET_OVERFLOW_ONE", [])


def test_pulls_differ_by_version(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Beyond the end an old broker begins again; without a version the newest answers, and the difference is said."""
    store = stores.without_signs(golden_store("4.4.0-clean"), tmp_path / "store")
    place = ("--json", "--pull", "--topic", "orders", "--queue", "0", "--queue-offset", "1000")
    newest, old = query(store, *place), query(store, *place, "--broker-version", "4.9.3")
    assert newest.lines[0]["next_begin_offset"] == newest.lines[0]["max_offset"]
    assert old.lines[0]["next_begin_offset"] == 0
    assert "brokers before 4.9.4 answer OFFSET_OVERFLOW_BADLY, next offset 0" in newest.err
    assert old.err == ""


def test_save_body(store: Path, says: dict[str, Any], tmp_path: Path) -> None:
    """The body as the producer gave it, and as stored; never over a file, never into the store, never several."""
    record = next(record for record in says["records"] if record["sys_flag"] & 1)
    place = ("--offset", str(record["physical_offset"]))
    for choice, field in (("decompressed", "body_base64"), ("stored", "body_stored_base64")):
        file = tmp_path / choice
        assert query(store, *place, "--body", choice, "--save-body", file).status == 0
        assert file.read_bytes() == base64.b64decode(record[field])
        assert query(store, *place, "--save-body", file).status == 2
    assert query(store, *place, "--save-body", store / "body").status == 2
    assert query(store, "--scan", "--save-body", tmp_path / "several").status == 2
    assert not (tmp_path / "several").exists()


def test_text(store: Path, says: dict[str, Any]) -> None:
    """Text has the same message, a picture, and the next command on standard error."""
    record = record_of(says, topic="orders", queue_id=0, queue_offset=5)
    place = ("--topic", "orders", "--queue", "0", "--queue-offset", "5", "--body", "none")
    plain = query(store, *place)
    assert record["message_id"] in plain.out
    assert f"query {store} --offset {record['physical_offset']} --trace" in plain.err
    traced = query(store, *place, "--trace")
    assert traced.out.startswith(plain.out)
    assert "●" in traced.out
    assert max(map(len, traced.out.splitlines())) < 130
    quiet = query(store, *place, "-q")
    assert (quiet.out, quiet.err) == (plain.out, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", [STORE, "4.4.0-killed", "5.5.0-shop"])
def test_traces_as_json(golden_store: GoldenStore, name: str) -> None:
    """Each trace is what the schema says, of every sort of message, and has the parts that the contract names."""
    topics = sorted({record["topic"] for record in stores.oracle(name)["records"]})
    for topic in topics:
        options = ("--json", "--scan", "--topic", topic, "--limit", "2", "--trace", "--body", "none")
        result = query(golden_store(name), *options, every=1)
        assert result.status == 0
        for message in result.lines:
            places = message["places"]
            assert {"commit_log", "consume_queue", "index", "consumers", "delayed_until_timestamp"} <= places.keys()
            assert places["commit_log"]["physical_offset"] == message["physical_offset"]
            waits = topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
            assert (places["delayed_until_timestamp"] is not None) == waits


@pytest.mark.slow
def test_text_of_the_other_answers(store: Path) -> None:
    pulled = query(store, "--pull", "--topic", "orders", "--queue", "0", "--queue-offset", "3", "--tag", "BB").out
    assert "status   FOUND" in pulled
    assert "the client drops it" in pulled
    assert "Lower" in query(store, "--at", "0", "--topic", "orders").out
    assert "beyond-max" in query(store, "--group", "beyond").out


@pytest.mark.slow
def test_a_group_that_lags_names_its_next_message(store: Path) -> None:
    """With the command that shows it and what became of it; a group that is not behind names none."""
    shown = query(store, "--group", "middle")
    (command,) = (line.split(": ", 1)[1] for line in shown.err.splitlines() if "next message for this group" in line)
    (_, *words) = shlex.split(command)
    traced = rmqtool(*words)
    assert traced.status == Exit.OK
    assert "middle has not read orders" in traced.out
    assert "next message" not in query(store, "--group", "beyond").err
    assert query(store, "--group", "middle", "--quiet").err == ""


NOT_FOUND = {
    "beyond the log": ("--offset", "99999999"),
    "inside a record": ("--offset", "5"),
    "after the last record of a file": ("--offset", "65530"),
    "an id beyond the log": ("--msg-id", "C000020100002A9F00000000000FFFFF"),
    "an id of another store": ("--msg-id", "C0A8020100002A9F0000000000000000"),
    "a short id": ("--msg-id", "C000"),
    "an odd id": ("--id", "C000020100002A9F0000000000000000A"),
    "an id that is not hex": ("--id", "Z" * 32),
    "an id of blanks": ("--id", "C0 0020100002A9F000000000000000 0"),
    "an unknown key": ("--key", "nobody"),
    "an empty key": ("--key", ""),
    "a key with #": ("--key", "a#b", "--topic", "orders"),
    "a key with a space": ("--key", "order-50 customer-0"),
    "a key of odd characters": ("--key", "订单\x00😀"),
    "an unknown unique key": ("--unique-key", "C0000211109218B4AAC205265C0700FF"),
    "an unknown topic": ("--topic", "nobody", "--queue", "0", "--queue-offset", "0"),
    "a topic that is a path": ("--topic", "../consumequeue/orders", "--queue", "0", "--queue-offset", "0"),
    "a topic of 10,000 characters": ("--topic", "x" * 10_000, "--queue", "0", "--queue-offset", "0"),
    "a topic that is no name": ("--topic", "a\x00b", "--queue", "0", "--queue-offset", "0"),
    "an unknown queue": ("--topic", "orders", "--queue", "77", "--queue-offset", "0"),
    "a negative queue": ("--topic", "orders", "--queue", "-1", "--queue-offset", "0"),
    "beyond the queue": ("--topic", "orders", "--queue", "0", "--queue-offset", "66"),
    "far beyond the queue": ("--topic", "orders", "--queue", "0", "--queue-offset", str(2**63 - 1)),
    "an unknown group": ("--group", "nobody"),
    "a moment of an unknown topic": ("--at", "0", "--topic", "nobody"),
    "a body that nobody sent": ("--body-contains", "never sent"),
    "a time after the end": ("--time", "9999999999999"),
}


@pytest.mark.parametrize("case", NOT_FOUND)
def test_not_found(store: Path, case: str) -> None:
    """Status 1, nothing on standard output, and a sentence that says why."""
    result = query(store, "--json", *NOT_FOUND[case])
    assert (result.status, result.out) == (1, "")
    assert result.err.count("\n") >= 1
    assert "Traceback" not in result.err


WRONG = {
    "nothing asked": (),
    "a topic alone": ("--topic", "orders"),
    "two questions": ("--offset", "0", "--key", "a"),
    "a negative offset": ("--offset", "-1"),
    "an offset beyond 64 bits": ("--offset", str(2**63)),
    "a queue offset without a topic": ("--queue-offset", "1"),
    "a pull without an offset": ("--pull", "--topic", "orders", "--queue", "0"),
    "a pull of two queues": ("--pull", "--topic", "orders", "--queue", "0", "--queue", "1", "--queue-offset", "0"),
    "a pull of nothing": ("--pull", "--topic", "orders", "--queue", "0", "--queue-offset", "0", "--max", "0"),
    "a moment without a topic": ("--at", "0"),
    "a moment of no day": ("--at", "2026-11-31T10:00:00", "--topic", "orders"),
    "a moment of no zone": ("--at", "2026-11-21", "--topic", "orders", "--time-zone", "Nowhere"),
    "a condition that is none": ("--where", "TAGS"),
    "a condition on no property": ("--where", "=x"),
    "no body to save": ("--offset", "0", "--body", "none", "--save-body", "x"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_command_lines(store: Path, case: str) -> None:
    result = query(store, "--json", *WRONG[case])
    assert result.status == 2
    assert result.document["error"]["kind"] == "usage"
    assert query(store, *WRONG[case]).out == ""
