"""An export of several stores says which of them are copies of one log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import LOG, LogBuilder
from tests.commands.running import rmqtool
from tests.copies import copied

SAID = "are copies of one log"


def written(root: Path, body: bytes) -> Path:
    """A log of several files."""
    messages = ({"queue_offset": number, "body": body * 10} for number in range(40))
    return LogBuilder(file_size=2048).add_all(messages).write(root)


def said(*stores: Path | str, output: Path, options: tuple[str, ...] = ()) -> list[str]:
    """The notes on copies."""
    found = rmqtool("export", *stores, "--output", output, *options)
    assert found.status == Exit.OK
    return [line for line in " ".join(found.err.split()).split(": leave one") if SAID in line]


@pytest.mark.slow
def test_copies_of_one_log(tmp_path: Path) -> None:
    """Also where one begins later, and has an end of its own; also in a preview, and beside JSON."""
    master, other = written(tmp_path / "master", b"one"), written(tmp_path / "other", b"two")
    slave = copied(master, tmp_path / "slave")
    first, *_, last = sorted((slave / LOG).iterdir())
    first.unlink()
    last.unlink()
    for options in (("--dry-run",), (), ("--json", "--mode", "overwrite")):
        (note,) = said(master, other, slave, output=tmp_path / "lake", options=options)
        assert f"master and slave {SAID}" in note
    assert said(master, other, slave, output=tmp_path / "quiet", options=("-q",)) == []


@pytest.mark.budget(1)
def test_others(tmp_path: Path) -> None:
    """Of other messages at the same offsets, and without a message at the beginning of the later one."""
    a, b = written(tmp_path / "a", b"one"), written(tmp_path / "b", b"two")
    assert said(a, b, output=tmp_path / "lake") == []
    later = copied(a, tmp_path / "later")
    for path in (later / LOG).iterdir():
        path.unlink()
    assert said(a, later, output=tmp_path / "more") == []
