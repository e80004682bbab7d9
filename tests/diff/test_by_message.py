"""Stores of different brokers, compared message by message: counts, verdicts, what is left out, what is listed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, UsageError
from rmqtool.diff import by_message
from rmqtool.formats.message import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.building import LOG, START_TIME
from tests.commands.running import Result, rmqtool
from tests.copies import copied
from tests.diff.message_pairs import FILE_SIZE, Message, changed, messages_of, store_of
from tests.unchanged import unchanged
from tests.verify.small_store import StoreBuilder, small_store


def compared(a: Path, b: Path, *options: str | int) -> Result:
    with unchanged(a), unchanged(b):
        return rmqtool("diff", a, b, "--by-message", "--json", *map(str, options))


def answer(a: Sequence[Message], b: Sequence[Message]) -> dict[str, Any]:
    """What is known of a pair."""
    first, second = Counter(a), Counter(b)
    found: dict[str, Any] = {"in_both": (first & second).total()}
    for name, more, other in (("only_a", first - second, second), ("only_b", second - first, first)):
        others = {each[:2] for each in ((second - first) if name == "only_a" else (first - second))}
        found[name] = {
            "messages": more.total(),
            "topics": Counter(each.topic for each in more.elements()),
            "repeated": sum(count for each, count in more.items() if other[each]),
            "other_body": sum(count for each, count in more.items() if each[:2] in others),
        }
    return found


def said(result: dict[str, Any]) -> dict[str, Any]:
    """The same of an answer."""
    found: dict[str, Any] = {"in_both": result["in_both"]}
    for name in ("only_a", "only_b"):
        only = result[name]
        topics = Counter({each["topic"]: each["messages"] for each in only["topics"]})
        found[name] = {"messages": only["messages"], "topics": topics, "repeated": only["repeated"],
                       "other_body": only["other_body"]}  # fmt: skip
    return found


@pytest.mark.slow
@pytest.mark.parametrize("held", [1 << 23, 16])
def test_random_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """As counted message by message, also where memory has room for few of them."""
    monkeypatch.setattr(by_message, "MAX_HELD", held)
    for seed in range(4):
        chance = random.Random(seed)
        first = messages_of(chance, chance.randrange(150))
        second = changed(first, chance)
        first += chance.sample(first, len(first) // 9)
        a, b = (store_of(tmp_path / f"{name}{seed}", each, chance) for name, each in (("a", first), ("b", second)))
        found = compared(a, b, "--limit", 1000)
        result = found.document["result"]
        assert said(result) == answer(first, second)
        assert found.status == (Exit.OK if Counter(first) == Counter(second) else Exit.FINDINGS)
        for name, mine, other in (("only_a", first, second), ("only_b", second, first)):
            listed = Counter((each["topic"], each["unique_key"] or "") for each in result[name]["listed"])
            more = Counter(mine) - Counter(other)
            assert listed == Counter((each.topic, each.key) for each in more.elements())


@pytest.mark.slow
def test_verdicts(tmp_path: Path) -> None:
    """Same in another order; more in A, in B, in both."""
    messages = messages_of(random.Random(5), 30)
    pairs = {"same": (messages, messages[::-1]), "a-has-more": (messages, messages[1:]),
             "b-has-more": (messages[1:], messages), "differs": (messages[1:], messages[:-1])}  # fmt: skip
    for verdict, (first, second) in pairs.items():
        a, b = store_of(tmp_path / f"a{verdict}", first), store_of(tmp_path / f"b{verdict}", second)
        found = compared(a, b)
        assert found.document["result"]["verdict"] == verdict
        assert found.status == (Exit.OK if verdict == "same" else Exit.FINDINGS)


@pytest.mark.budget(1)
def test_what_is_left_out(tmp_path: Path) -> None:
    """Topics that brokers fill, unless they are named; transactions that did not commit; what filters leave out."""
    builder, other = StoreBuilder(file_size=FILE_SIZE), StoreBuilder(file_size=FILE_SIZE)
    for each in (builder, other):
        each.put("orders", properties={"UNIQ_KEY": "1"}, store_timestamp=START_TIME)
    builder.put("RMQ_SYS_TRANS_HALF_TOPIC", properties={"UNIQ_KEY": "2"}, store_timestamp=START_TIME)
    builder.put("orders", properties={"UNIQ_KEY": "3"}, sys_flag=TRANSACTION_PREPARED, store_timestamp=START_TIME)
    builder.put("orders", properties={"UNIQ_KEY": "4"}, sys_flag=TRANSACTION_ROLLBACK, store_timestamp=START_TIME)
    builder.put("payments", properties={"UNIQ_KEY": "5"}, store_timestamp=START_TIME)
    a, b = small_store(tmp_path / "a", builder), small_store(tmp_path / "b", other)
    result = compared(a, b, "--exclude-topic", "pay*").document["result"]
    assert (result["verdict"], result["a"]["left_out"], result["filters"]) == ("same", 4, {"exclude_topic": ["pay*"]})
    named = compared(a, b, "--topic", "RMQ_SYS_TRANS_HALF_TOPIC").document["result"]
    assert [each["unique_key"] for each in named["only_a"]["listed"]] == ["2"]


@pytest.mark.budget(1)
def test_damage_is_not_the_same(tmp_path: Path) -> None:
    """Where a log has bytes that are no message nothing proves that it has all of the other's."""
    messages = messages_of(random.Random(5), 60)
    a, b = store_of(tmp_path / "a", messages), store_of(tmp_path / "b", messages)
    path = b / LOG / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[0:4] = b"\xff" * 4
    path.write_bytes(data)
    found = compared(a, b, "--from", START_TIME + 2)
    assert (found.status, found.document["result"]["verdict"]) == (Exit.LOSSY, "unproven")
    assert found.document["result"]["b"]["damaged_bytes"] > 0


@pytest.mark.budget(1)
def test_text(tmp_path: Path) -> None:
    """Counts and messages; with --only those of one side."""
    messages = messages_of(random.Random(5), 30)
    a, b = store_of(tmp_path / "a", messages[1:]), store_of(tmp_path / "b", messages[:-1])
    out = rmqtool("diff", a, b, "--by-message").out
    assert "differs: 28 messages in both" in out
    assert "Only A has 1 message" in out
    last = messages[-1].key or "-"
    assert last in rmqtool("diff", a, b, "--by-message", "--only", "a").out.splitlines()[-3]
    redacted = rmqtool("diff", a, b, "--by-message", "--redact", "keys").out
    assert all(each.key not in redacted for each in (messages[0], messages[-1]) if each.key)


@pytest.mark.budget(1)
def test_a_log_that_is_elsewhere(tmp_path: Path) -> None:
    """Without the broker.conf that names its place nothing is compared, which is not the same as the same."""
    a = small_store(tmp_path / "a")
    (a / LOG).rename(tmp_path / "log")
    b = copied(a, tmp_path / "b")
    for options, verdict in ((["--by-message"], "unproven"), ([], "unproven")):
        found = rmqtool("diff", a, b, *options)
        assert found.status == Exit.LOSSY
        assert verdict in found.out
        assert "no log file is in commitlog, but the queue 0 of " in found.out
        assert "give it with --broker-conf" in found.out
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={a}\nstorePathCommitLog={tmp_path / 'log'}\n")
    full = copied(a, tmp_path / "full")
    copied(tmp_path / "log", full / LOG)
    assert rmqtool("diff", a, full, "--by-message", "--broker-conf", conf).status == Exit.OK
    more = rmqtool("diff", a, full, "--by-message")
    assert more.status == Exit.FINDINGS
    assert "A has none that is not in B, of what could be read" in more.out


@pytest.mark.budget(1)
def test_usage(tmp_path: Path) -> None:
    """Filters and Spark are for messages only."""
    a = store_of(tmp_path / "a", messages_of(random.Random(5), 3))
    for options in (("--topic", "orders"), ("--engine", "spark"), ("--by-message", "--fast"), ("--master", "local"),
                    ("--by-message", "--conf", "spark.ui.enabled=false")):  # fmt: skip
        assert rmqtool("diff", a, a, *options).status == Exit.USAGE


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {"spark.driver.memory": "2g"}),
        (("--conf", "spark.driver.memory=5g", "--conf", "spark.ui.enabled=false"),
         {"spark.driver.memory": "5g", "spark.ui.enabled": "false"}),
        (("--master", "yarn", "--conf", "spark.ui.enabled=false"), {"spark.ui.enabled": "false"}),
    ],
)  # fmt: skip
def test_settings_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], settings: dict[str, str]
) -> None:
    """What is given counts; memory for sorting is ours to ask for on this machine only."""
    asked: list[tuple[str | None, dict[str, str]]] = []

    def spark_context(master: str | None, conf: dict[str, str]) -> Any:
        asked.append((master, conf))
        raise UsageError("asked")

    monkeypatch.setattr("rmqtool.spark.session.spark_context", spark_context)
    a = store_of(tmp_path / "a", messages_of(random.Random(5), 3))
    assert rmqtool("diff", a, a, "--by-message", "--engine", "spark", *options).status == Exit.USAGE
    assert asked == [("yarn" if "yarn" in options else None, settings)]
