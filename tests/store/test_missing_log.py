"""A store without its log, which broker.conf may name elsewhere, holds no message that anybody can take for none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.missing import missing_log
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LOG
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.verify.small_store import small_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store without a log file."""
    root = small_store(tmp_path / "store")
    shutil.rmtree(root / LOG)
    return root


def message_of(store: Path) -> str | None:
    error = missing_log(Snapshot(open_store(store)))
    return error.message if error else None


def test_what_knows_messages(store: Path) -> None:
    """A queue, or the checkpoint; without both nothing does."""
    assert "but the queue 0 of " in str(message_of(store))
    shutil.rmtree(store / "consumequeue")
    assert message_of(store) == "no log file is in commitlog, but checkpoint knows messages"
    (store / "checkpoint").unlink()
    assert message_of(store) is None


def test_what_is_no_loss(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A store with a log, and one that never held a message."""
    assert message_of(small_store(tmp_path)) is None
    assert message_of(golden_store("5.3.3-empty")) is None


def test_commands_that_read_it(store: Path, tmp_path: Path) -> None:
    """None of them says that there are no messages, and an export makes nothing."""
    lake = tmp_path / "lake"
    for words in (
        ("export", store, "--output", lake),
        ("export", store, "--output", lake, "--dry-run"),
        ("replay", store, "--dry-run"),
    ):
        found = rmqtool(*words)
        assert found.status == Exit.FAILED, words
        assert "no log file is in commitlog, but the queue 0 of " in found.err
        assert "give it with --broker-conf" in found.err
    assert not lake.exists()
    assert "no log file is in commitlog" in rmqtool("query", store, "--scan", "--topic", "orders").err


def test_an_export_is_not_proven_by_it(store: Path, tmp_path: Path) -> None:
    """Not even one of no message."""
    whole = small_store(tmp_path / "whole")
    assert rmqtool("export", whole, "--output", tmp_path / "lake").status == Exit.OK
    assert rmqtool("export", store, "--check", tmp_path / "lake").status in (Exit.FAILED, Exit.USAGE)
    shutil.rmtree(whole / LOG)
    assert rmqtool("export", whole, "--check", tmp_path / "lake").status == Exit.FAILED
