"""What a DLedger store's own classes read of it is what ordinary brokers serve of the store that is made of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import NODE
from tests.real_broker.harness import VERSIONS, Harness, dledger_settings
from tests.salvage.entry_logs import overwrite

pytestmark = pytest.mark.broker
Factory = Callable[[str], Harness]

QUESTIONS = {
    "read": [["orders", 0], ["orders", 1]],
    "query": [["orders", f"key{number}", 1000, 0, 1 << 60] for number in range(5)],
}
INDEX_FILE = 5 * 1024 * 1024 * 32  # DLedgerConfig.mappedFileSizeForEntryIndex, bytes
WRITERS = [("4.9.7", "more/4.9.7-dledger"), ("5.3.3", "more/5.3.3-dledger"), ("5.3.3", "more/5.3.3-converted")]


def asked(harness: Harness, root: Path, settings: dict[str, str] | None = None) -> tuple[list[Any], list[int]]:
    """All messages of both queues as consumers get them, and how many each key finds."""
    answers = harness.ask(root, QUESTIONS, settings)
    return answers["read"], [len(found) for found in answers["query"]]


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), WRITERS)
def test_ordinary_brokers_serve_the_same(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str
) -> None:
    """After a clean stop and after a crash, by the writer's release and by the newest; they go on writing."""
    root = golden_store(name)
    own = copied(root, tmp_path / "own")
    for index in own.glob("dledger-n0/index/*"):  # golden ones are cut after their units
        os.truncate(index, INDEX_FILE)
    expected = asked(harness(version), own, dledger_settings())
    assert sum(map(len, expected[0])) >= 400
    for server in (version, VERSIONS[-1]):
        for after in ("clean", "crash"):
            new = tmp_path / f"{server}-{after}"
            assert rmqtool("convert", root, "--output", new, "--broker-version", server).status == Exit.OK
            if after == "crash":
                (new / "abort").touch()
                (new / "checkpoint").unlink()
            assert asked(harness(server), new) == expected
            with harness(server).hold(new, 50):
                pass
            assert rmqtool("verify", new, "--json").document["result"]["verdict"] == "clean"


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), WRITERS)
@pytest.mark.parametrize("after", ["crash", "clean"])
def test_brokers_serve_what_was_salvaged(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str, after: str
) -> None:
    """Of one damaged node all that is complete at the same queue offsets, of two that fill each other everything."""
    root = golden_store(name)
    own = copied(root, tmp_path / "own")
    for index in own.glob("dledger-n0/index/*"):
        os.truncate(index, INDEX_FILE)
    expected = asked(harness(version), own, dledger_settings())
    copies = [copied(root, tmp_path / each) for each in "ab"]
    for number, copy in enumerate(copies):
        files = sorted((copy / NODE / "data").iterdir())
        overwrite(files[number], 20_000, 40_000)
        os.truncate(files[1 - number], 50_000)
        if number:
            files[-1].unlink()
    for sources in (copies[:1], copies):
        new = tmp_path / f"new-{len(sources)}"
        done = rmqtool("salvage", *sources, "--output", new, "--json", "--broker-version", version)
        if after == "crash":
            (new / "abort").touch()
            (new / "checkpoint").unlink()
        missing = done.document["result"]["dledger"]["missing_messages"]
        assert bool(missing) == (len(sources) == 1)
        found = asked(harness(version), new)
        lost = 0
        for all_of, served in zip(expected[0], found[0], strict=True):
            whole = {message for _, message in all_of}  # no CRC covers properties: those of one were overwritten
            last = {each: offset for offset, each in served if each in whole}  # units of lost ones lead after them
            assert [each for each in all_of if each[1] in last] == [[offset, each] for each, offset in last.items()]
            lost += len(all_of) - len(last)
        assert missing <= lost <= missing + 1
        if not missing:
            assert found == expected
        with harness(version).hold(new, 50):
            pass
        document = rmqtool("verify", new, "--json").document
        assert [each["code"] for each in document["findings"] if each["severity"] == "error"] == []
        assert missing or document["result"]["verdict"] == "clean"
