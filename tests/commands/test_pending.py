"""`rmqtool pending`: text and JSON of the same facts, filters, statuses, damaged stores, what cannot be read."""

from __future__ import annotations

import random
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.times import rfc3339
from rmqtool.pending.messages import KINDS
from tests.building import START_TIME
from tests.commands.running import Result, command_named, rmqtool
from tests.commands.terminal import on_terminal
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.pending.waiting_store import DELAYS, REVIVE, WaitingStore
from tests.samples import missing_line
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged
from tests.unreadable import forbidden
from tests.verify.timer_store import TIMERS, store_with_timers

PAGE = Path(__file__).parents[2] / "docs" / "pending.md"
EXAMPLE = PAGE.parents[1] / "examples" / "store"
NOW = START_TIME + 60_000


def pending(store: Path, *options: str) -> Result:
    """What waits, and an untouched store."""
    with unchanged(store):
        return rmqtool("pending", store, *options)


def result_of(store: Path, *options: str) -> dict[str, Any]:
    """The `result` of its JSON, with the messages."""
    found: dict[str, Any] = pending(store, "--json", "--list", *options).document["result"]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Something of every kind but a lost timer, half of it overdue at NOW."""
    builder = WaitingStore()
    for _ in range(3):
        builder.message("tasks")
    builder.delay(1)
    builder.delay(18, "%RETRY%billing", RETRY_TOPIC="payments")
    builder.timer(NOW - 1000)
    builder.timer(NOW + 1000, "reminders")
    builder.half()
    builder.message("%RETRY%billing", RETRY_TOPIC="payments")
    builder.message("%DLQ%billing", RETRY_TOPIC="payments")
    builder.check_point(topic=REVIVE, so=1, n=2, bm=0, pt=NOW, it=60_000)
    return builder.build(tmp_path / "store")


@pytest.mark.slow
def test_text_and_json_say_the_same(store: Path) -> None:
    now = str(NOW)
    text, found = pending(store, "--now", now, "--list").out, result_of(store, "--now", now)
    assert text.startswith(f"8 messages awaiting delivery at {rfc3339(NOW)}, 3 of them overdue\n")
    assert (found["owed"]["messages"], found["owed"]["overdue"]) == (8, 3)
    assert len(found["messages"]) == 9
    for message in found["messages"]:
        line = next(line for line in text.splitlines() if message["unique_key"] in line)
        assert all(str(message[name]) in line for name in ("topic", "queue_offset", "physical_offset", "to_topic"))
        assert ("overdue" in line) is message["overdue"]
    assert [message["overdue"] for message in found["messages"]] == [True] * 3 + [False] * 6
    dues = [message["due_timestamp"] for message in found["messages"]]
    assert dues == [*sorted(due for due in dues if due is not None), None, None]
    by_kind = {(each["kind"], each["level"]): each["messages"] for each in found["waiting"]}
    assert by_kind == {
        ("delay", 1): 1, ("delay", 18): 1, ("timer", None): 2, ("half", None): 1, ("pop", None): 2, ("retry", None): 1,
        ("dead-letter", None): 1,
    }  # fmt: skip
    assert sum(each["messages"] for each in found["receivers"]) == 9


@pytest.mark.slow
def test_without_list_there_are_no_messages(store: Path) -> None:
    assert pending(store, "--json").document["result"]["messages"] is None
    assert "--list" in pending(store).out
    assert "Unique key" not in pending(store).out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--kind", "delay"], 2),
        (["--kind", "delay", "--kind", "pop"], 4),
        (["--kind", "dead-letter"], 1),
        (["--topic", "payments"], 4),
        (["--topic", "payments", "--group", "billing"], 3),
        (["--group", "workers"], 2),
        (["--group", "payers"], 1),
        (["--topic", "nothing"], 0),
        (["--due-before", str(NOW)], 3),
        (["--due-before", str(NOW + 61_000)], 6),
        (["--due-before", "+61s"], 6),
        (["--limit", "2"], 2),
    ],
)
def test_filters(store: Path, options: list[str], expected: int) -> None:
    """They are for counts and messages alike; a limit is for the messages only."""
    found = result_of(store, "--now", str(NOW), *options)
    assert len(found["messages"]) == expected
    counted = sum(each["messages"] for each in found["waiting"])
    assert counted == (9 if "--limit" in options else expected)


def test_the_sentence_has_the_time_that_was_asked_for(store: Path) -> None:
    found = pending(store, "--due-before", "+61s", "--now", "2026-01-01T00:00:00Z")
    asked = " awaiting delivery at 2026-01-01T00:00:00.000Z and due before 2026-01-01T00:01:01.000Z"
    assert asked in found.out.splitlines()[0]


def test_an_unknown_topic_is_told(store: Path) -> None:
    """With the names that there are: nothing would be awaiting delivery to a topic that is spelt wrongly."""
    found = rmqtool("pending", store, "--topic", "no-such-topic")
    assert found.status == Exit.FINDINGS
    assert "there is no topic no-such-topic" in found.err


@pytest.mark.slow
def test_the_most_urgent_are_listed(store: Path) -> None:
    """A limit cuts the list that there is without it."""
    everything = result_of(store)["messages"]
    for limit in (1, 4, 9):
        assert result_of(store, "--limit", str(limit))["messages"] == everything[:limit]


@pytest.mark.slow
def test_places_are_those_that_query_finds(store: Path) -> None:
    for message in result_of(store)["messages"]:
        (found,) = rmqtool("query", store, "--offset", str(message["physical_offset"]), "--json").lines
        names = ("topic", "queue_id", "queue_offset", "unique_key", "keys", "store_timestamp", "reconsume_times")
        assert {name: found[name] for name in names} == {name: message[name] for name in names}


def test_a_lost_timer_leads_to_verify(tmp_path: Path) -> None:
    """It is not owed, and the next step is the command that finds and repairs it."""
    store = store_with_timers(tmp_path)
    shutil.rmtree(store / "timerlog")
    found = result_of(store)
    assert {each["kind"]: each["messages"] for each in found["waiting"]} == {"lost-timer": TIMERS - 1}
    assert found["owed"]["messages"] == 0
    assert "never" in found["next"][0]
    command = found["next"][0].partition(": ")[2].split()
    assert command[:2] == ["rmqtool", "verify"]
    assert "timer.lost" in [finding["code"] for finding in rmqtool(*command[1:], "--json").document["findings"]]


def test_nothing_is_owed(golden_store: GoldenStore) -> None:
    found = pending(golden_store("5.3.3-empty"))
    assert (found.status, found.err) == (Exit.OK, "")
    assert found.out.startswith("nothing awaits delivery at ")


def test_the_default_is_the_clock(store: Path) -> None:
    """Years later everything with a time is overdue."""
    found = result_of(store)
    assert found["now_timestamp"] > NOW
    assert found["owed"]["overdue"] == 7
    assert DELAYS[17] == 7_200_000


def test_a_running_broker(store: Path) -> None:
    with another_process(store / "lock", JAVA):
        found = result_of(store)
    assert found["running"]
    assert "a broker runs on the store" in [note["why"] for note in found["uncertain"]]


@pytest.mark.slow
def test_what_cannot_be_read(store: Path) -> None:
    """The rest is shown, and the exit status says that there may be more."""
    for part in ("consumequeue/SCHEDULE_TOPIC_XXXX/0", "config/delayOffset.json", "commitlog/" + "0" * 20):
        with forbidden(store / part):
            found = rmqtool("pending", store, "--json")
        assert found.status in (Exit.LOSSY, Exit.OK)
        result = found.document["result"]
        assert result["unread"] or result["not_looked_at"] or result["uncertain"], part


def test_there_may_be_more(store: Path) -> None:
    """A damaged unit makes the answer a lower bound, in the exit status and in the first line."""
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / ("0" * 20)
    with path.open("r+b") as file:
        file.write((1 << 40).to_bytes(8, "big"))
    found = pending(store)
    assert found.status == Exit.LOSSY
    assert found.out.startswith("at least 7 messages awaiting delivery at ")
    assert "Not checked\n  1 message of SCHEDULE_TOPIC_XXXX, queue 0: " in found.out


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_there_may_be_fewer(store: Path, damaged: bool) -> None:
    """Without committed offsets half messages count that may be done: an upper bound, of what was read."""
    (store / "config" / "consumerOffset.json").unlink(missing_ok=True)
    (store / "config" / "consumerOffsets").mkdir(parents=True)
    (store / "config" / "consumerOffsets" / "IDENTITY").touch()
    if damaged:
        path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / ("0" * 20)
        path.write_bytes((1 << 40).to_bytes(8, "big") + path.read_bytes()[8:])
    found = pending(store)
    first = found.out.splitlines()[0]
    assert first.startswith("at most ")
    assert first.endswith("of what could be read") is damaged
    assert "what groups have consumed, and which half messages are done: config/consumerOffset.json: RocksDB" in (
        " ".join(found.out.split())
    )
    assert result_of(store)["at_most"] is True


def test_statuses(tmp_path: Path, store: Path) -> None:
    assert rmqtool("pending", tmp_path / "nowhere").status == Exit.FAILED
    (tmp_path / "other").mkdir()
    assert rmqtool("pending", tmp_path / "other").status == Exit.NOT_A_STORE
    for options in (["--kind", "x"], ["--now", "soon"], ["--limit", "0"], ["--due-before", "2026-11-41"]):
        assert rmqtool("pending", store, *options).status == Exit.USAGE
    dledger = stores.unpack("more/5.3.3-dledger", tmp_path / "dledger")
    assert rmqtool("pending", dledger).status == Exit.OK


def test_kinds_of_the_command_line() -> None:
    """They are written there once more, so that a start loads no library."""
    (kinds,) = (option for option in command_named("pending").params if option.name == "kinds")
    assert tuple(kinds.type.choices) == KINDS  # type: ignore[attr-defined]
    assert all(f"| `{kind}` |" in PAGE.read_text() for kind in KINDS)


def test_the_example_of_the_page() -> None:
    """The text in docs/pending.md is what the program prints."""
    shown = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()
    printed = pending(EXAMPLE, "--now", "2026-11-21T11:40:00Z").out.splitlines()
    assert missing_line([line for line in shown if line], printed) is None


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    ["4.4.0-shop", "4.9.7-trimmed", "5.1.4-killed", "5.5.0-clean", "more/5.3.3-rocksdb-twice", "more/5.5.0-rocksdb"],
)
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """No alarm, and the same counts in text and JSON."""
    found = pending(golden_store(name), "--json", "--list", "--limit", "1000")
    assert (found.status, found.err) == (Exit.OK, "")
    result = found.document["result"]
    assert result["not_looked_at"] == result["unread"] == []
    assert len(result["messages"]) == sum(each["messages"] for each in result["waiting"])
    assert f"{result['owed']['messages']} message" in pending(golden_store(name)).out or not result["owed"]["messages"]


def flip(path: Path, chance: random.Random) -> None:
    """One byte is another."""
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    """The end is gone."""
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size + 1)])


def zero(path: Path, chance: random.Random) -> None:
    """Nothing but zeros."""
    path.write_bytes(bytes(path.stat().st_size))


def grow(path: Path, chance: random.Random) -> None:
    """More than there was."""
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(1, 100)))


def swap(path: Path, chance: random.Random) -> None:
    """The content of a neighbour."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file())
    path.write_bytes(chance.choice(others).read_bytes())


def remove(path: Path, chance: random.Random) -> None:
    """It is gone."""
    path.unlink()


def damage_each(name: str, damage: Callable[[Path, random.Random], None], tmp_path: Path, every: int) -> None:
    """Damage one file after the other: an answer or an error, and never a fault of the program."""
    whole = stores.unpack(name, tmp_path / "whole")
    (whole / "timerwheel").unlink(missing_ok=True)  # 39 MB of holes, which a copy would fill
    parts = ("SCHEDULE", "TRANS", "wheel_timer", "DLQ", "RETRY", "config", "timerlog", "commitlog", "reminders")
    files = [path for path in sorted(whole.rglob("*")) if path.is_file() and any(part in str(path) for part in parts)]
    chance = random.Random(f"{name} {damage.__name__}")
    for number, path in enumerate(files[chance.randrange(every) :: every]):
        broken = copied(whole, tmp_path / str(number))
        damage(broken / path.relative_to(whole), chance)
        found = pending(broken, "--json", "--list")
        assert found.status in (Exit.OK, Exit.LOSSY, Exit.FAILED), path
        assert "bug in rmqtool" not in found.out, path
        shutil.rmtree(broken)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, cut, zero, grow, swap, remove])
def test_a_damaged_store(damage: Callable[[Path, random.Random], None], tmp_path: Path) -> None:
    """Some of the files that are read."""
    damage_each("5.3.3-shop", damage, tmp_path, every=8)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize("damage", [flip, cut, zero, grow, swap, remove])
@pytest.mark.parametrize("name", ["4.9.7-shop", "5.1.4-shop", "5.5.0-shop"])
def test_damaged_stores(name: str, damage: Callable[[Path, random.Random], None], tmp_path: Path) -> None:
    """All of them."""
    damage_each(name, damage, tmp_path, every=1)


@pytest.mark.slow
def test_the_command_that_lists_what_waits_can_be_pasted(store: Path) -> None:
    """It has the options of the one that was run."""
    counted = rmqtool("pending", store, "--kind", "half", "--kind", "delay", "--color", "never")
    [command] = [line.partition("list them: ")[2] for line in counted.out.splitlines() if "list them: " in line]
    assert command.endswith(" --list")
    program, *words = shlex.split(command)
    assert program == "rmqtool"
    listed = rmqtool(*words)
    assert listed.status == counted.status
    assert len(listed.out) > len(counted.out)
    assert "--kind half --kind delay" in command


@pytest.mark.slow
def test_a_line_for_each_reason_at_80_columns(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The headline and all that waits stay on the screen."""
    text = on_terminal("pending", str(golden_store("5.5.1-shop")), "--no-pager", cwd=tmp_path)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("What waits"))) + 1 :]
    rows = table[1 : table.index("")]
    assert rows
    assert all(re.match(r"[a-z ()]+\d* +\d+ ", row) and len(row) <= 80 for row in rows)
