"""The command that a finding names as its cure does cure it, pasted as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.rebuild.log_damages import flip_a_body, overwrite

LOSSES = ("start.data-loss", "start.other-mode-data-loss")


def cures(store: Path) -> dict[str, str]:
    """The remedies of the findings about lost messages, by code."""
    found = rmqtool("verify", store, "--json").document["findings"]
    return {finding["code"]: finding["remedy"] for finding in found if finding["code"] in LOSSES}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", [flip_a_body, overwrite])
def test_no_start_destroys_messages(
    golden_store: GoldenStore, tmp_path: Path, name: str, killed: bool, damage: Callable[[Path], None]
) -> None:
    """Of the next start, or of the one after a crash: dummy records are in place of the damage."""
    store = copied(golden_store(name), tmp_path / "store")
    damage(store / "commitlog" / "00000000000000000000")
    if killed:
        (store / "abort").touch()
        (store / "checkpoint").unlink()
    remedies = cures(store)
    assert remedies
    (command,) = set(remedies.values())
    program, *arguments = shlex.split(command)
    assert program == "rmqtool"
    assert rmqtool(*arguments, "--yes").status in (Exit.OK, Exit.FINDINGS)  # the loss of what could not be read
    assert not cures(store)
