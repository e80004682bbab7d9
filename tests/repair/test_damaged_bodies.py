"""Messages with a damaged body or properties: clients get them, until a repair is asked by name to take them away."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.repair.damaged_fields import Record, flip, records_of, served
from tests.transaction.small import tree

FIRST, LAST = 3, -8
"""A record before the part of the log that a start after a clean stop reads, and one in it."""
LOSE = ("--lose", "commitlog.body-crc")


def damage_bodies(root: Path, *numbers: int) -> list[Record]:
    """Flip a bit of the bodies of records, by their numbers."""
    records = [records_of(root)[number] for number in numbers]
    for record in records:
        with (root / record.path).open("r+b") as file:
            file.seek(record.fields["topic"][0] - 5)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
    return records


def damage_properties(root: Path, *numbers: int) -> list[Record]:
    """Make the level of delayed messages no number; records are counted from the first or last delayed message on."""
    delayed = [record for record in records_of(root) if record.topic == "SCHEDULE_TOPIC_XXXX"]
    records = [delayed[number // 8 if number < 0 else number - FIRST] for number in numbers]
    for record in records:
        flip(root, record, "DELAY", 0x40)
    return records


@dataclass(frozen=True)
class Kind:
    """A kind of damage that leaves a message to its clients."""

    code: str
    damage: Callable[..., list[Record]]
    words: str


KINDS = (
    Kind("commitlog.body-crc", damage_bodies, "a damaged body"),
    Kind("commitlog.properties", damage_properties, "damaged properties"),
)
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)


@pytest.fixture
def store(golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store("5.3.3-clean"), tmp_path / "store")


def bytes_of(root: Path, record: Record) -> bytes:
    with (root / record.path).open("rb") as file:
        file.seek(record.fields["message_size"][0])
        return file.read(record.size)


def follow(command: str) -> None:
    """Carry out a printed step."""
    assert rmqtool(*shlex.split(command)[1:], "--yes").status in (0, 1)


@pytest.mark.slow
@of_each_kind
def test_a_repair_leaves_what_clients_get_until_it_is_named(store: Path, kind: Kind) -> None:
    """Only where a start ends the log, and clients get nothing, a dummy record comes without being asked for."""
    first, last = kind.damage(store, FIRST, LAST)
    before, entries = (bytes_of(store, first), bytes_of(store, last)), served(store, [first])
    planned = rmqtool("verify", str(store), "--json").document["result"]["plan"]
    repair, losing = [step for step in planned["steps"] if step["changes"]]
    assert planned["start_after"] == planned["steps"].index(repair) + 1
    assert losing["lost"] == [f"1 message with {kind.words}, which consumers get until then"]
    assert f"1 message with {kind.words}, at which a start ends the log" in repair["lost"]
    assert shlex.split(losing["command"])[-2:] == ["--lose", kind.code]
    [remedy] = [str(each["remedy"]) for each in verified(store) if each["code"] == "start.other-mode-data-loss"]
    assert shlex.split(remedy)[-2:] == ["--lose", kind.code]
    follow(repair["command"])
    assert bytes_of(store, first) == before[0]
    assert bytes_of(store, last) != before[1]
    assert served(store, [first]) == entries
    again = rmqtool("repair", str(store), "--json", "--dry-run").document["result"]
    assert (again["state"], again["plan"]["start_after"]) == ("nothing", None)
    assert again["plan"]["steps"][0]["command"] == losing["command"]
    assert rmqtool("repair", str(store), "--yes").err == "nothing to repair except what needs --lose\n"
    follow(losing["command"])
    assert bytes_of(store, first) != before[0]
    assert kind.code not in {each["code"] for each in verified(store)}


def verified(store: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rmqtool("verify", str(store), "--json").document["findings"]
    return found


def killed(store: Path) -> None:
    """The next start reads the whole log."""
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))


def no_crc_checked(store: Path) -> None:
    (store.parent / "broker.conf").write_text("checkCRCOnRecover=false\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "numbers", "steps"),
    [
        (killed, (FIRST, LAST), [False]),
        (no_crc_checked, (FIRST, LAST), [True]),
        (lambda store: None, (FIRST,), [True]),
        (lambda store: None, (LAST,), [False]),
    ],
    ids=["killed", "no CRC is checked", "the first", "the last"],
)
def test_what_the_next_start_reads_decides(
    store: Path, prepare: Callable[[Path], object], numbers: tuple[int, ...], steps: list[bool]
) -> None:
    """What ends the log for it is no longer served; the steps that put dummy records, by whether they are named."""
    damage_bodies(store, *numbers)
    prepare(store)
    conf = store.parent / "broker.conf"
    options = ("--broker-conf", str(conf)) if conf.exists() else ()
    planned = rmqtool("verify", str(store), "--json", *options).document["result"]["plan"]
    commands = [shlex.split(step["command"]) for step in planned["steps"] if step["changes"]]
    assert [tuple(words[-2:]) == LOSE for words in commands] == steps


@pytest.mark.slow
def test_a_saved_plan_keeps_what_was_asked_for(store: Path, tmp_path: Path) -> None:
    [first] = damage_bodies(store, FIRST)
    before, plan = bytes_of(store, first), str(tmp_path / "plan.json")
    options = (*LOSE, "--keep-offsets", "--broker-version", "5.3.3", "--save-plan", plan)
    said = rmqtool("repair", str(store), *options).err
    follow(said.partition("next: ")[2])
    assert bytes_of(store, first) != before
    assert rmqtool("repair", str(store), "--plan", plan, *LOSE, "--yes").status == 2


DEAD_LETTERS = "%DLQ%billing"


@pytest.mark.slow
@pytest.mark.parametrize(("committed", "left"), [(None, 0), (0, 0), (3, 3)])
def test_a_queue_of_nothing_but_damage_goes_unless_a_group_goes_on_in_it(
    golden_store: GoldenStore, tmp_path: Path, committed: int | None, left: int
) -> None:
    """Its entries would lead consumers to dummy records; a group that has read them would skip new messages."""
    store = copied(golden_store("5.3.3-shop"), tmp_path / "store")
    for record in records_of(store):
        if record.topic == DEAD_LETTERS:
            with (store / record.path).open("r+b") as file:
                file.seek(record.fields["message_size"][0])
                file.write(b"\xaa" * record.size)
    offsets = store / "config/lmqConsumerOffset.json"
    if committed is not None:
        entry = f'"offsetTable":{{"{DEAD_LETTERS}@readers":{{0:{committed}}},'
        offsets.write_text(offsets.read_text().replace('"offsetTable":{', entry))
    before = tree(store)
    follow(f"rmqtool repair {store}")
    assert sum(each["code"] == "consumequeue.wrong-record" for each in verified(store)) == left
    verdict = rmqtool("verify", str(store), "--json").document["result"]["verdict"]
    assert verdict == ("corrupt" if left else "clean")
    assert rmqtool("undo", str(store), "--yes").status == 0
    assert tree(store) == before
