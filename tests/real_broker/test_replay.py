"""Replays to a real broker: what a real consumer gets, a broker that is killed or stands still, and what it refuses."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.formats.message import COMPRESSED
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.deriving import derive
from tests.real_broker.harness import Harness
from tests.real_broker.replays import QUEUES, TOPIC, VERSIONS, killed_replay, write_source
from tests.real_broker.served import NAME_SERVER, Served, served, wait_for
from tests.replay.captured import CERTIFICATE
from tests.replay.compressed import lz4, zstd

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_MESSAGES = 300  # of a replay that something interrupts
OWN = {"CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "REPLAY_OF", "WAIT"}
"""Properties that the broker, the consumer and the replay add; brokers of 4.9 drop WAIT."""
DROPPED = {"PGROUP", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "DELAY", "TIMER_OUT_MS"}
DROPPED |= {
    "TIMER_DELIVER_MS",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "TRANSACTION_CHECK_TIMES",
    "__transactionId__",
}


_MAX_SIZE = 16_384  # bytes of a message that the broker takes


@pytest.fixture(scope="module", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, harness: Callable[[str], Harness], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """One for all tests of a release: each sends to topics that no other one of them fills."""
    harness(request.param)
    with served(request.param, tmp_path_factory.mktemp("target"), {"maxMessageSize": str(_MAX_SIZE)}) as running:
        yield running


def send(broker: Served, source: Path, *options: object) -> dict[str, Any]:
    """Replay a source, which succeeds; the result."""
    found = broker.replay(source, "--send", "--yes", "--json", *options)
    assert found.returncode == 0, found.stdout + found.stderr
    result: dict[str, Any] = json.loads(found.stdout)["result"]
    return result


def kept(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in OWN | DROPPED}


def test_a_dead_letter_comes_again_to_its_group(broker: Served, golden_store: GoldenStore, tmp_path: Path) -> None:
    """By the retry topic only its group gets it, under the topic that it came from, which stays empty."""
    store = golden_store(f"{broker.version}-shop")
    broker.declare("payments", 2)
    assert broker.consume("payments", 0, "billing") == []
    options = ("--dead-letters-of", "billing", "--to-retry-topic", "--journal", tmp_path / "journal")
    wait_for("the group's retry topic", lambda: broker.replay(store, *options).returncode == 0)
    assert send(broker, store, *options)["sent"]["messages"] == 3
    letters = broker.consume("payments", 3, "billing")
    assert {each["topic"] for each in letters} == {"payments"}
    assert sorted(each["properties"]["KEYS"] for each in letters) == ["FAIL-0", "FAIL-1", "FAIL-2"]
    assert broker.consume("payments", 0) == []


def test_a_consumer_gets_what_was_stored(broker: Served, golden_store: GoldenStore, tmp_path: Path) -> None:
    """A shop of the same release: bodies, properties, times, flags, queues and their order."""
    store = golden_store(f"{broker.version}-shop")
    for topic, queues in (("orders", 4), ("payments", 2), ("vouchers", 1)):
        broker.declare(topic, queues)
    options = ("--topic", "orders", "--topic", "payments", "--topic", "vouchers", "--journal", tmp_path / "journal")
    result = send(broker, store, *options)
    assert result["sent"]["messages"] == 102
    for topic in ("orders", "payments", "vouchers"):
        stored = {each.unique_key: each for each in rmqtool.open(store).messages(topic=topic)}
        consumed = broker.consume(topic, len(stored))
        assert Counter(each["message_id"] for each in consumed) == Counter(stored.keys())
        for each in consumed:
            message = stored[each["message_id"]]
            assert base64.b64decode(each["body"]) == message.body
            assert kept(each["properties"]) == kept(dict(message.properties))
            assert each["properties"]["REPLAY_OF"].split()[1] == str(message.physical_offset)
            assert each["born_timestamp"] == round(message.born_timestamp.timestamp() * 1000)
            assert (each["queue_id"], each["queue_offset"]) == (message.queue_id, message.queue_offset)
            assert (each["flag"], each["reconsume_times"]) == (message.flag, message.reconsume_times)


def test_all_sorts_of_messages(broker: Served, tmp_path: Path) -> None:
    """Compressed bodies, other characters, flags, no unique key; singly and in batches."""
    log = LogBuilder(file_size=1 << 20)
    plain: dict[str, bytes] = {}
    for number in range(40):
        body, sys_flag = f"body {number} {'ü' * number}".encode(), 0
        stored = body
        if number % 4 == 1:
            stored, sys_flag = zlib.compress(body), COMPRESSED
        elif number % 4 == 2:
            body, stored, sys_flag = b"zstd" * 1000, zstd(b"zstd" * 1000), COMPRESSED | 0x200
        elif number % 4 == 3:
            body, stored, sys_flag = b"lz4 " * 1000, lz4(b"lz4 " * 1000), COMPRESSED | 0x100
        properties = {"KEYS": f"K-{number} schlüssel", "TAGS": "tag", "名": "值", "number": str(number)}
        if number % 5:
            properties["UNIQ_KEY"] = f"{number:032X}"
        plain[str(number)] = body
        log.add(topic="sorts", queue_offset=number, body=stored, sys_flag=sys_flag | (0x30 if number % 3 == 0 else 0),
                flag=number, reconsume_times=number % 2, properties=properties)  # fmt: skip
    source = log.write(tmp_path / "source")
    broker.declare("sorts", 1)
    assert send(broker, source)["sent"]["messages"] == 40
    consumed = broker.consume("sorts", 40)
    assert len(consumed) == 40
    for each in consumed:
        number = int(each["properties"]["number"])
        assert base64.b64decode(each["body"]) == plain[str(number)]
        assert (each["flag"], each["reconsume_times"], each["queue_offset"]) == (number, number % 2, number)
        assert each["properties"]["KEYS"] == f"K-{number} schlüssel"
        assert each["properties"]["名"] == "值"
    assert (
        json.loads(broker.replay(source, "--json", "--journal", tmp_path / "other").stdout)["result"]["messages"] == 0
    )


def test_messages_that_wait(broker: Served, tmp_path: Path, golden_store: GoldenStore) -> None:
    """Those that are due come at once; the broker keeps the others, and takes their times."""
    store = golden_store(f"{broker.version}-shop")
    broker.declare("reminders", 1)
    options = ("--topic", "reminders", "--delays", "keep", "--journal", tmp_path / "journal")
    found = broker.replay(store, "--send", "--yes", "--json", *options)
    result = json.loads(found.stdout)["result"]
    assert found.returncode == 0, found.stdout
    waiting = 5 if broker.version.startswith("4") else 7
    assert result["sent"]["messages"] == len(rmqtool.open(store).messages(topic="reminders").to_arrow()) + waiting
    keys = [each["properties"]["KEYS"] for each in broker.consume("reminders", result["sent"]["messages"])]
    assert sum(key.startswith("LATER") for key in keys) == 5  # they have been due since the store was written


def test_what_waits_there_is_not_sent_again(broker: Served, tmp_path: Path) -> None:
    """Neither after a run that was killed before it had its receipts, nor without the journal."""
    log, now = LogBuilder(file_size=1 << 20), time.time_ns() // 1_000_000
    for number in range(5):
        log.add(topic="SCHEDULE_TOPIC_XXXX", queue_id=17, queue_offset=number, store_timestamp=now, body=b"later",
                properties={"UNIQ_KEY": f"{number:032X}", "REAL_TOPIC": "waiting", "REAL_QID": "0",
                            "DELAY": "18"})  # fmt: skip
    source, journal = log.write(tmp_path / "source"), tmp_path / "journal"
    derive(source)
    broker.declare("waiting", 1)
    options = ("--delays", "keep", "--topic", "waiting", "--journal", journal)
    assert send(broker, source, *options)["sent"]["messages"] == 5
    lines = journal.read_text().splitlines(keepends=True)
    for kept in (("replay", "sending"), ()):
        journal.write_text("".join(line for line in lines if json.loads(line)["kind"] in kept))
        sent = send(broker, source, *options)["sent"]
        assert (sent["messages"], sent["found"]) == (0, 5)


@pytest.mark.rare
def test_a_broker_that_is_killed_meanwhile(broker: Served, tmp_path: Path) -> None:
    """The replay waits for it, and goes on."""

    def restart() -> None:
        broker.kill()
        time.sleep(1)
        broker.start()
        broker.declare("killed", QUEUES)

    _interrupted(broker, tmp_path, "killed", restart)


def test_a_broker_that_stands_still_meanwhile(broker: Served, tmp_path: Path) -> None:
    """Longer than its answers are waited for; what had no answer is carried out when it goes on."""

    def stand_still() -> None:
        broker.pause()
        time.sleep(4)
        broker.resume()

    _interrupted(broker, tmp_path, "paused", stand_still)


def _interrupted(broker: Served, tmp_path: Path, topic: str, interrupt: Callable[[], None]) -> None:
    source = write_source(tmp_path / "source", _MESSAGES, random.Random(5), topic)
    broker.declare(topic, QUEUES)
    journal = tmp_path / "journal"
    options = ["--send", "--yes", "--json", "--journal", journal, "--rate", "100/s", "--timeout", "1s"]
    command = broker.command("replay", source, "--nameserver", NAME_SERVER, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            wait_for(
                "messages that are sent",
                lambda: program.poll() is not None or (journal.exists() and journal.stat().st_size > 20_000),
            )
            assert program.poll() is None, program.communicate()
            interrupt()
            out, _ = program.communicate(timeout=120)
        finally:
            program.kill()
    assert program.returncode == 0, out
    sent = json.loads(out)["result"]["sent"]
    assert sent["messages"] + sent["found"] == _MESSAGES
    consumed = broker.consume(topic, _MESSAGES)
    assert Counter(each["message_id"] for each in consumed) == {f"{number:032X}": 1 for number in range(_MESSAGES)}
    in_queues = sorted((each["queue_id"], each["queue_offset"], each["message_id"]) for each in consumed)
    for queue in range(QUEUES):
        ids = [message_id for queue_id, _, message_id in in_queues if queue_id == queue]
        assert ids == sorted(ids)


def test_what_is_refused(broker: Served, tmp_path: Path) -> None:
    """No topic, a topic that is read only, a disk that is full: each in a sentence, and nothing is there afterwards."""
    topic = "refused"
    source = write_source(tmp_path / "source", 20, random.Random(6), topic)
    options = ("--send", "--yes", "--journal", tmp_path / "journal")
    missing = broker.replay(source, *options)
    assert missing.returncode == 3
    assert f"{topic}: cannot be sent to: the target does not have it" in missing.stdout
    broker.declare(topic, QUEUES)
    broker.permit(topic, 4)
    wait_for("the permission", lambda: "read-only" in broker.replay(source, "--no-look-up").stdout)
    assert broker.replay(source, *options).returncode == 3
    broker.permit(topic, 6)
    wait_for("the permission", lambda: "read-only" not in broker.replay(source, "--no-look-up").stdout)
    broker.fill_disk(full=True)
    full = broker.replay(source, *options)
    assert full.returncode == 3
    assert "the broker cannot store messages now (code 14" in full.stdout
    assert "its disk is full" in full.stdout
    broker.fill_disk(full=False)
    assert send(broker, source, "--journal", tmp_path / "journal")["sent"]["messages"] == 20
    assert len(broker.consume(topic, 20)) == 20


@pytest.mark.parametrize("broker", ["5.5.0"], indirect=True)
def test_a_batch_topic(broker: Served, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Inner batches are taken apart and put together again by the new broker."""
    broker.declare_batch("bulk")
    result = send(broker, golden_store("5.3.3-shop"), "--topic", "bulk", "--journal", tmp_path / "journal")
    assert result["sent"]["messages"] == 20
    keys = [each["properties"]["KEYS"] for each in broker.consume("bulk", 20)]
    assert sorted(keys) == sorted(f"BULK-{batch}-{number}" for batch in range(5) for number in range(4))


def test_messages_that_are_too_large(broker: Served, tmp_path: Path) -> None:
    """A small maxMessageSize is seen."""
    broker.declare("large", 1)
    messages = [{"topic": "large", "body": body} for body in (bytes(_MAX_SIZE + 900), b"small")]
    source = LogBuilder(file_size=1 << 20).add_all(messages).write(tmp_path / "source")
    found = broker.replay(source, "--send", "--yes", "--json", "--journal", tmp_path / "journal")
    result = json.loads(found.stdout)["result"]
    assert found.returncode == 3
    assert [(each["reason"], each["messages"]) for each in result["left_out"]] == [("too-large", 1)]
    assert result["sent"]["messages"] == 1


ACL = """
accounts:
  - {accessKey: rmqtool-key, secretKey: rmqtool-secret, admin: true}
"""


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4"])
def test_access_keys(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """Without them, or with a wrong one, the broker refuses; that is said. With them all goes well."""
    harness(version)
    source = write_source(tmp_path / "source", 20, random.Random(7))
    keys = tmp_path / "tools.yml"
    with served(version, tmp_path / "target", {"aclEnable": "true"}, {"plain_acl.yml": ACL}) as broker:
        broker.declare(TOPIC, QUEUES)
        for secret in (None, "wrong-secret"):
            keys.write_text(f"accessKey: rmqtool-key\nsecretKey: {secret}\n")
            options = () if secret is None else ("--acl-file", keys)
            found = broker.replay(source, *options)
            assert found.returncode == 4, found.stdout
            assert "the access key or its signature is not accepted" in found.stderr
            assert "--acl-file" in found.stderr
        keys.write_text("accessKey: rmqtool-key\nsecretKey: rmqtool-secret\n")
        assert send(broker, source, "--acl-file", keys)["sent"]["messages"] == 20
        counted = broker.replay(source, "--acl-file", keys, "--journal", tmp_path / "other", "--json")
        assert json.loads(counted.stdout)["result"]["left_out"][0]["reason"] == "already-there"


USERS = f"""
accounts:
  - {{accessKey: administrator, secretKey: of-all-1234, admin: true}}
  - {{accessKey: writer-key, secretKey: writer-secret, topicPerms: ["{TOPIC}=PUB|SUB"]}}
  - {{accessKey: sender-key, secretKey: sender-secret, topicPerms: ["{TOPIC}=PUB"]}}
  - {{accessKey: stranger-key, secretKey: stranger-secret, topicPerms: ["other=PUB|SUB"]}}
"""
"""Of ACL 1.0; brokers with ACL 2.0 take them over."""
_AUTH = "org.apache.rocketmq.auth"
_ADMINISTRATOR = {"accessKey": "administrator", "secretKey": "of-all-1234"}
ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "innerClientAuthenticationCredentials": json.dumps(_ADMINISTRATOR),
    "migrateAuthFromV1Enabled": "true",
}


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_users_of_acl_2(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """Signatures of ACL 1.0 are accepted; who is no user, or may not write, is refused, and that is said."""
    harness(version)
    source = write_source(tmp_path / "source", 20, random.Random(7))
    keys = tmp_path / "tools.yml"

    with served(version, tmp_path / "target", ACL_2, {"plain_acl.yml": USERS}) as broker:

        def replay(user: str, secret: str, *options: str) -> subprocess.CompletedProcess[str]:
            keys.write_text(f"accessKey: {user}\nsecretKey: {secret}\n")
            return broker.replay(source, "--acl-file", keys, "--journal", tmp_path / f"{user}.ndjson", *options)

        broker.declare(TOPIC, QUEUES)
        unsigned = broker.replay(source)
        assert (unsigned.returncode, "--acl-file" in unsigned.stderr) == (4, True)
        for user, secret, says in (
            ("writer-key", "wrong-secret", "the access key or its signature is not accepted"),
            ("nobody", "secret", "the access key or its signature is not accepted"),
            ("stranger-key", "stranger-secret", f"has no permission to access Topic:{TOPIC}"),
            ("sender-key", "sender-secret", "--no-look-up"),
        ):
            for options in ((), ("--send", "--yes")):
                refused = replay(user, secret, *options)
                assert (refused.returncode, says in refused.stderr) == (4, True), refused.stderr
        for user, option in (("writer-key", "--look-up"), ("sender-key", "--no-look-up")):
            sent = replay(user, user.replace("key", "secret"), "--send", "--yes", option)
            assert (sent.returncode, sent.stderr, "sent 20 messages" in sent.stdout) == (0, "", True)
        broker.stop()
    assert sum(1 for _ in rmqtool.open(tmp_path / "target").messages(topic=TOPIC)) == 40


@pytest.mark.parametrize("version", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.rare)])
def test_tls(harness: Callable[[str], Harness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A broker takes TLS and plain connections on one port; its certificate must be signed by who is named."""
    harness(version)
    text = CERTIFICATE.read_text()
    border = text.index("-----BEGIN CERTIFICATE")
    (tmp_path / "key.pem").write_text(text[:border])
    (tmp_path / "certificate.pem").write_text(text[border:])
    files = f"-Dtls.server.keyPath={tmp_path / 'key.pem'} -Dtls.server.certPath={tmp_path / 'certificate.pem'}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.server.mode=permissive -Dtls.test.mode.enable=false {files}")
    source = write_source(tmp_path / "source", 20, random.Random(8))
    with served(version, tmp_path / "target") as broker:
        broker.declare(TOPIC, QUEUES)
        unknown = broker.replay(source, "--tls")
        assert unknown.returncode == 4
        assert "no TLS connection" in unknown.stderr
        assert send(broker, source, "--tls-ca", CERTIFICATE)["sent"]["messages"] == 20


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_killed(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """A few of the kills of ``make replays``."""
    harness(version)
    outcome = killed_replay(version, 3, 11, tmp_path)
    assert outcome.is_right, outcome
