"""Repairs of log files, the checkpoint and the timer's files, judged by starts of the real releases."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.file_name import file_name
from tests.commands.running import rmqtool
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import VERSIONS, Harness
from tests.real_broker.served import SETTINGS, served, wait_for
from tests.real_broker.timers import delivered, logged, send
from tests.repair.healing import carry_out, plan
from tests.sampling import one_in
from tests.verify.damages import log_file, remove
from tests.verify.losses_facts import lost
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]
Damage = Callable[[Path], object]


def swap(store: Path) -> None:
    """Let the first two log files change names."""
    first, second = log_file(store, 0), log_file(store, 1)
    spare = first.with_name("spare")
    first.rename(spare)
    second.rename(first)
    spare.rename(second)


def behind_the_last(store: Path) -> Path:
    """The log file that would come next."""
    last = log_file(store, -1)
    return last.with_name(file_name(int(last.name) + last.stat().st_size))


DAMAGES: dict[str, Damage] = {
    "swapped": swap,
    "renamed": lambda s: log_file(s, 1).rename(log_file(s, 1).with_name(file_name(int(log_file(s, 1).name) + 100))),
    "stray": lambda s: (s / "commitlog/nohup.out").write_text("notes"),
    "stray directory": lambda s: (s / "commitlog/old").mkdir(),
    "stray in a queue": lambda s: (next((s / "consumequeue").glob("*/0")) / "x.bak").touch(),
    "empty last file": lambda s: behind_the_last(s).touch(),
    "zeros cut": lambda s: os.truncate(log_file(s, -1), len(log_file(s, -1).read_bytes().rstrip(b"\0"))),
    "zeros added": lambda s: os.truncate(log_file(s, 0), log_file(s, 0).stat().st_size + 4096),
    "no checkpoint": lambda s: (s / "checkpoint").unlink(),
    "garbage in the checkpoint": lambda s: (s / "checkpoint").write_bytes(b"\x12" * 48),
    "directory in the index": lambda s: (s / "index/20361121113608184").mkdir(parents=True),
}
TIMER_DAMAGES: dict[str, Damage] = {
    "no timer log": lambda s: remove(s / "timerlog"),
    "no timercheck": lambda s: (s / "config/timercheck").unlink(),
    "short wheel": lambda s: os.truncate(s / "timerwheel", 64),
}
DELIVERED, WAITING = 2, 4  # timers
DUE_MS = 2000
HOUR_MS = 3_600_000


def repair(store: Path) -> None:
    """What is planned, until nothing is."""
    while changes := plan(store):
        carry_out(store, changes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_finds_the_same_log_and_queues(harness: Factory, version: str, tmp_path: Path) -> None:
    """As on the store before the damage, which some releases refuse."""
    source = stores.unpack(f"{version}-clean", tmp_path)
    judge = harness(version).judge
    roots = {name: tmp_path / name for name in one_in(3, [*DAMAGES], version)}
    for name, root in roots.items():
        copied(source, root)
        DAMAGES[name](root)
        repair(root)
    [expected, *found] = judge([source, *roots.values()])
    assert expected["refuses"] is None
    assert dict(zip(roots, found, strict=True)) == dict.fromkeys(roots, expected)


@pytest.mark.rare
def test_timers_that_wait_are_delivered_once(harness: Factory, tmp_path: Path) -> None:
    """Those that were delivered, and are in the log, come again where the queue is read again, as the change says."""
    sound = tmp_path / "sound"
    with served("5.3.3", sound) as broker:
        send(broker, DELIVERED, DUE_MS)
        send(broker, WAITING, HOUR_MS)
        wait_for("the first timers to be delivered", lambda: delivered(sound) >= DELIVERED)
        wait_for("the timer to read the others", lambda: logged(sound) >= DELIVERED + WAITING)
        broker.stop()
    roots = {name: tmp_path / name for name in TIMER_DAMAGES}
    for name, root in roots.items():
        copied(sound, root)
        TIMER_DAMAGES[name](root)
        repair(root)
        assert codes_of(verify(root)) == set()
    before, *surveys = harness("5.3.3").survey([(root, ()) for root in (sound, *roots.values())], SETTINGS)
    assert (before["refuses"], len(before["timers"])) == (None, WAITING)
    found = {name: lost(before, after) for name, after in zip(roots, surveys, strict=True)}
    again = {"timers": f"0 of {WAITING} not delivered, {DELIVERED} delivered again"}
    assert found == {"no timer log": again, "short wheel": {}, "no timercheck": {}}


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "4.4.0"])
def test_a_short_file_of_a_queue_without_messages(harness: Factory, version: str, tmp_path: Path) -> None:
    """A start is refused; filled up, the queue goes on after its last unit, and all others are as before."""
    sound, damaged, repaired = (stores.unpack(f"{version}-trimmed", tmp_path / name) for name in ("a", "b", "c"))
    name = "consumequeue/early/0/00000000000000000600"
    for store in (damaged, repaired):
        os.truncate(store / name, 50)
    assert rmqtool("repair", repaired, "--yes", "--keep-offsets").status in (Exit.OK, Exit.FINDINGS)
    expected, before, after = harness(version).judge([sound, damaged, repaired])
    assert (expected["refuses"], before["refuses"], after["refuses"]) == (None, "load returns false", None)
    early = ["simple", "early", 0]
    (ended,) = (queue for queue in after["queues"] if queue[:3] == early)
    assert ended[-1] == 32
    assert [each for each in after["queues"] if each != ended] == [
        each for each in expected["queues"] if each[:3] != early
    ]
