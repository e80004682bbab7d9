"""The commands of a plan, run to the letter until no step is left, for every damage; verdict and plan agree meanwhile.

A word in capitals is what a step asks for: the broker's configuration, a directory, a release.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.transaction.system import System
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY
from tests.repair.damaged_fields import own_served
from tests.repair.known_faults import SMALL_SETTINGS, Row, conf_of, rows

pytestmark = pytest.mark.slow

_MAX_ROUNDS = 4
_WITH_YES = ("repair", "rebuild-cq", "rebuild-index")
_ENDED = (Exit.OK, Exit.FINDINGS, Exit.LOSSY)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests prove what is written, not that it outlives a loss of power."""
    for name in ("sync", "sync_all"):
        monkeypatch.setattr(System, name, lambda self, what: None)


@dataclass
class Reader:
    """Somebody who does what `rmqtool verify` prints, step by step, with a store and its broker.conf."""

    store: Path
    conf: Path
    version: str
    options: Sequence[str | Path] = ()
    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def follow(self) -> dict[str, Any]:
        """Do all steps that have a command, verify again, until no command is left; returns the last result."""
        for number in range(_MAX_ROUNDS + 1):
            result = self._verified()
            self.lost += [text for step in result["plan"]["steps"] for text in step["lost"]]
            commands = [step["command"] for step in result["plan"]["steps"] if step["command"]]
            commands = [each for each in commands if _changes_something(each)]
            if not commands:
                return result
            for command in commands:
                assert command not in self.done, f"printed again: {command}"
                self.done.append(command)
                self._run(command, self.store.parent / f"round-{number}")
        raise AssertionError(f"there is no end: {self.done}")

    def _verified(self) -> dict[str, Any]:
        result: dict[str, Any] = rmqtool("verify", self.store, "--json", *self.options).document["result"]
        plan = result["plan"]
        if result["verdict"] in ("clean", "dirty"):
            assert plan["start_after"] is None, (result["verdict"], plan)
        if result["verdict"] == "corrupt":
            assert plan["steps"] or plan["remaining"]
        return result

    def _run(self, command: str, place: Path) -> None:
        place.mkdir(exist_ok=True)
        values = {"BROKER_CONF": self.conf, "DIRECTORY": place / "moved", "DIR": place / "made", "NEW": place / "new",
                  "VERSION": self.version}  # fmt: skip
        program, *words = (str(values.get(word, word)) for word in shlex.split(command))
        if program == "mv":
            (place / "moved").mkdir()
            subprocess.run([program, *words], check=True)
            return
        if program == "chmod":
            subprocess.run([program, *words], check=True)
            return
        assert program == "rmqtool"
        shutil.rmtree(place / "moved", ignore_errors=True)
        found = rmqtool(*words, *(["--yes"] if words[0] in _WITH_YES and "--yes" not in words else []))
        assert found.status in _ENDED, (command, found.err)


def _changes_something(command: str) -> bool:
    return not command.startswith("rmqtool verify ") and "--dry-run" not in command


def _rows() -> list[Row]:
    """The damages of the small store, and what circumstances there are."""
    return [row for row in rows() if "-clean" not in row.name]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in _rows()])
def test_the_plan_of_each_fault_comes_to_an_end(row: Row, tmp_path: Path) -> None:
    """In few rounds, with no command that is refused or printed a second time; what is served then still is.

    A record that its queue entry served, at the queue offset that the record has, stays there unless `lost` says so.
    """
    store = row.build(tmp_path / "store")
    row.apply(store)
    conf = conf_of(row, tmp_path / "broker.conf")
    needs_conf = bool(row.settings.keys() - SMALL_SETTINGS.keys())
    options = ("--broker-conf", conf, "--broker-version", row.version) if needs_conf else ()
    reader = Reader(store, conf, row.version, options)
    before = own_served(store) if row.is_stored else {}
    with row.meanwhile(store):
        reader.follow()
    gone = before.items() - own_served(store).items() if before else ()
    assert not gone or reader.lost, (gone, reader.done)


def killed(store: Path) -> None:
    """As a broker leaves it that is killed."""
    (store / "abort").touch()


def index_files_gone(store: Path) -> None:
    """The directory is empty: no file shows the size of index files."""
    for file in (store / "index").iterdir():
        file.unlink()


def newest_queue_file_empty(store: Path) -> None:
    """It was made, and nothing of it flushed."""
    os.truncate(max((store / "consumequeue" / "orders" / "0").iterdir()), 0)


def queue_ends_zeroed(store: Path) -> None:
    """The last unit of each queue was not flushed."""
    for file in (store / "consumequeue").rglob("0*"):
        if file.is_file() and (end := len(file.read_bytes().rstrip(b"\0"))):
            with file.open("r+b") as opened:
                opened.seek((end + 19) // 20 * 20 - 20)
                opened.write(bytes(20))


def zeros_in_the_log(store: Path) -> None:
    """A page of the log."""
    with min((store / "commitlog").iterdir()).open("r+b") as opened:
        opened.seek(8192)
        opened.write(bytes(4096))


def stray_in_the_log(store: Path) -> None:
    """A file that does not belong there."""
    (store / "commitlog" / "nohup.out").touch()


def all_queues_gone(store: Path) -> None:
    """No file shows the size of queue files."""
    shutil.rmtree(store / "consumequeue")


def offset_out_of_range(store: Path) -> None:
    """One group has committed what its queue does not hold."""
    path = store / "config" / "consumerOffset.json"
    path.write_text(path.read_text().replace('"offsetTable":{', '"offsetTable":{\n"orders@far":{0:5000},', 1))


Apply = Callable[[Path], None]
HALF_FLUSHED: list[tuple[str, tuple[Apply, ...]]] = [
    ("4.9.7-clean", (killed, newest_queue_file_empty, index_files_gone)),
    ("5.3.3-killed", (newest_queue_file_empty, index_files_gone)),
    ("5.3.3-clean", (killed, newest_queue_file_empty, queue_ends_zeroed, index_files_gone)),
    ("5.5.0-killed", (stray_in_the_log, index_files_gone)),
    ("4.7.1-killed", (stray_in_the_log, all_queues_gone, index_files_gone)),
    ("5.3.3-shop", (killed, zeros_in_the_log, index_files_gone)),
    ("5.3.3-clean", (killed, zeros_in_the_log, offset_out_of_range)),
    ("5.1.4-clean", (newest_queue_file_empty, all_queues_gone, stray_in_the_log)),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "damages"), HALF_FLUSHED)
def test_a_half_flushed_store_is_healed_to_the_letter(
    golden_store: GoldenStore, tmp_path: Path, name: str, damages: tuple[Apply, ...]
) -> None:
    """Whatever is needed beside the store is asked for by the first command that needs it."""
    store = copied(golden_store(name), tmp_path / "store")
    for damage in damages:
        damage(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{setting}={value}\n" for setting, value in GEOMETRY.items()))
    result = Reader(store, conf, name.partition("-")[0]).follow()
    assert result["verdict"] in ("clean", "dirty")  # a start after a kill, which repairs the rest
    assert result["plan"]["start_after"] is None
