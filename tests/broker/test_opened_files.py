"""What stands in the place of a file that a broker opens: opened as Java opens it. Real brokers of 5.3.3 were asked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.load import open_problem
from rmqtool.rules.broker_conf import BrokerConf
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.verifying import verify


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/file")


def to_be_made(path: Path) -> None:
    path.symlink_to(path.parent / "made")


def loop(path: Path) -> None:
    path.symlink_to(path)


def to_a_file(path: Path) -> None:
    (path.parent / "another").write_bytes(b"")
    path.symlink_to("another")


KINDS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "nothing": (lambda _: None, None),
    "a file": (Path.touch, None),
    "a link to a file": (to_a_file, None),
    "a link in a directory": (to_be_made, None),
    "a link to nowhere": (dangling, "whose directory is missing"),
    "a loop of links": (loop, "Too many levels of symbolic links"),
    "a directory": (Path.mkdir, "Is a directory"),
    "a pipe": (os.mkfifo, "cannot be mapped"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str, tmp_path: Path) -> None:
    """A missing file is made, also where a link leads."""
    make, why = KINDS[kind]
    make(tmp_path / "file")
    problem = open_problem(tmp_path / "file")
    assert why in problem if why and problem else problem is why


@pytest.fixture
def shop(tmp_path: Path, unpacked: GoldenStore) -> Path:
    """A store to damage."""
    return copied(unpacked("5.3.3-shop"), tmp_path / "store")


def put(store: Path, name: str, make: Callable[[Path], object]) -> None:
    """Put something in the place of a file."""
    path = store / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("timerwheel", dangling),
        ("timerwheel", os.mkfifo),
        ("config/timercheck", loop),
        ("lock", dangling),
        ("checkpoint", dangling),
    ],
)
def test_a_start_is_refused(name: str, make: Callable[[Path], object], shop: Path) -> None:
    """The reason names the file."""
    put(shop, name, make)
    outcome = verify(shop, version="5.3.3")
    assert outcome.start is not None
    assert (outcome.start.refuses or "").startswith(f"{name}: ")
    assert "start.refuses" in {finding.code for finding in outcome.findings}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config/topics.json", "config/delayOffset.json"])
def test_a_start_waits(name: str, shop: Path) -> None:
    """Nobody writes into the pipe; nothing of ours waits for it."""
    put(shop, name, os.mkfifo)
    outcome = verify(shop, version="5.3.3")
    assert outcome.start is not None
    assert outcome.start.hangs
    assert "start.hangs" in {finding.code for finding in outcome.findings}


@pytest.mark.slow
def test_a_link_to_a_place_of_its_own(shop: Path) -> None:
    """The broker makes the wheel there, and fills it from the timer log."""
    put(shop, "timerwheel", to_be_made)
    assert verify(shop, version="5.3.3").verdict == "clean"


@pytest.mark.slow
def test_what_a_broker_does_not_open(shop: Path) -> None:
    """Releases before 5.0 have no timer, and it may be turned off."""
    put(shop, "timerwheel", dangling)
    conf = BrokerConf({"timerWheelEnable": "false"})
    outcome = verify(shop, version="5.3.3", conf=conf)
    assert outcome.start is not None
    assert outcome.start.refuses is None
