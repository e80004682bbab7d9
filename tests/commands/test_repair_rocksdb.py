"""`rmqtool repair` of queue databases that a disk has damaged: one run with the broker's settings, and all is well."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from tests.changed_rocksdb import changed, current_gone, table_flipped, tables_gone
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import ROCKSDB
from tests.golden.stores import version_of
from tests.real_broker.harness import GEOMETRY, SHOP_SETTINGS

DATABASE = "consumequeue"
TWICE = "more/5.5.0-rocksdb-twice"


def names_gone(root: Path) -> None:
    """Nothing that a broker knows a database by."""
    for name in ("CURRENT", "IDENTITY"):
        (root / DATABASE / name).unlink()


def manifest_halved(root: Path) -> None:
    [path] = (root / DATABASE).glob("MANIFEST-*")
    os.truncate(path, path.stat().st_size // 2)


def emptied(root: Path) -> None:
    for path in (root / DATABASE).iterdir():
        if path.is_file():
            path.unlink()


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [current_gone, names_gone, manifest_halved, tables_gone, table_flipped, emptied],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("name", ["more/5.5.0-rocksdb", "more/5.3.3-rocksdb", "more/5.5.0-rocksdb-twice"])
def test_one_repair(golden_store: GoldenStore, tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    """What it says afterwards is what `verify` says, and a second run finds nothing to do."""
    root, conf = copied(golden_store(name), tmp_path / "store"), tmp_path / "broker.conf"
    settings = {**SHOP_SETTINGS, **GEOMETRY, **ROCKSDB[name]}
    conf.write_text("".join(f"{setting}={value}\n" for setting, value in settings.items()))
    given = ("--broker-conf", conf, "--broker-version", version_of(name))
    damage(root)
    done = rmqtool("repair", root, "--yes", *given)
    assert done.status == Exit.OK, done.err
    found = rmqtool("verify", root, "--json", *given).document["result"]
    assert found["verdict"] == "clean"
    assert "nothing to repair" in rmqtool("repair", root, "--yes", *given).err


def manifest_gone(root: Path) -> None:
    [path] = (root / DATABASE).glob("MANIFEST-*")
    path.unlink()


def delays_only_in_files(root: Path) -> None:
    """Rows of a delayed queue are gone, and something else has to be repaired."""
    with changed(root / DATABASE) as families:
        for key in [key for key, _ in families["default"].items() if SCHEDULE_TOPIC.encode() in key]:
            del families["default"][key]
        for key in [key for key, _ in families["offset"].items() if SCHEDULE_TOPIC.encode() in key]:
            del families["offset"][key]
    with (root / DATABASE / "orders" / "1" / ("0" * 20)).open("r+b") as file:
        file.write(bytes(20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "needs_conf"),
    [(manifest_gone, True), (manifest_halved, True), (delays_only_in_files, False)],
    ids=["manifest gone", "manifest halved", "rows of delays gone"],
)
def test_the_planned_command_works(
    golden_store: GoldenStore, tmp_path: Path, damage: Callable[[Path], None], needs_conf: bool
) -> None:
    """As it is printed by a verification without broker.conf, which is asked for only where delays are not known."""
    root, conf = copied(golden_store(TWICE), tmp_path / "store"), tmp_path / "broker.conf"
    settings = {**SHOP_SETTINGS, **GEOMETRY, **ROCKSDB[TWICE]}
    conf.write_text("".join(f"{setting}={value}\n" for setting, value in settings.items()))
    damage(root)
    steps = rmqtool("verify", root, "--json").document["result"]["plan"]["steps"]
    [command] = [step["command"] for step in steps if " repair " in (step["command"] or "")]
    assert ("BROKER_CONF" in command) == needs_conf
    program, *words = shlex.split(command.replace("BROKER_CONF", str(conf)))
    assert program == "rmqtool"
    done = rmqtool(*words, "--yes")
    assert done.status == Exit.OK, done.err
    outcome = rmqtool("verify", root, "--broker-conf", conf, "--json").document["result"]
    assert outcome["verdict"] == "clean"
