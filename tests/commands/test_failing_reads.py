"""Each read of a store fails in turn, finds a file cut off, or finds nothing from then on: it is said, whatever it was.

A check may do without what it could not read: that is no reason to call a store clean, or to end with 0.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.failing_calls import READS, Call, Calls, Fault, calls_on
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.sampling import ALL

STORES = ("5.3.3-shop", "more/5.5.0-extras", "more/5.5.0-rocksdb-side", "more/5.3.3-dledger")
FAULTS: dict[str, tuple[Fault, tuple[str, ...], bool]] = {
    "read": ("error", READS, False),
    "reads-from-there": ("error", READS, True),
    "open": ("error", ("open",), False),
    "listing": ("error", ("scandir", "listdir"), False),
    "status": ("error", ("stat", "lstat", "fstat"), False),
    "nothing-from-there": ("empty", READS, True),
    "cut": ("cut", READS, False),
}
"""The fault, the calls that get it one at a time, and whether all later ones get it too."""

OTHERS = (
    "inspect",
    "pending",
    "query --group billing",
    "query --key no-such-key",
    "rebuild-cq --dry-run",
    "rebuild-index --dry-run",
    "repair --dry-run",
    "clean --dry-run",
    "export --engine local --output",
)
EACH = 8 if ALL in os.environ else 4
"""Calls of a kind that are tried in one test."""


def calls_of(kinds: tuple[str, ...], *words: str | Path) -> tuple[list[Call], Result]:
    """The calls that a command makes on a store, its second word, and its answer."""
    with calls_on(Calls(Path(words[1]), kinds=kinds)) as calls:
        result = rmqtool(*words, "--json")
    return calls.seen, result


def chosen(seen: list[Call], store: Path, seed: str) -> list[int]:
    """Numbers of some calls that ask for what is there; not those that resolve links, of which there are none."""
    matters = [
        number
        for number, call in enumerate(seen)
        if call.path != "." and (call.name, call.path) != ("lstat", "commitlog")
        # At the end of a file a read finds that there is no more.
        and (path := store / call.path).exists() and (path.is_dir() or call.position < max(1, path.stat().st_size))
    ]  # fmt: skip
    return sorted(random.Random(seed).sample(matters, min(EACH, len(matters))))


def codes_of(result: Result) -> set[str]:
    """The codes of findings above information."""
    return {finding["code"] for finding in result.document["findings"] if finding["severity"] != "info"}


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", STORES)
def test_verify(name: str, fault: str, unpacked: GoldenStore, tmp_path: Path) -> None:
    """Never clean, never 0."""
    kind, calls, goes_on = FAULTS[fault]
    store = unpacked(name)
    seen, _ = calls_of(calls, "verify", store)
    for number in chosen(seen, store, f"{name} {fault}"):
        call = seen[number]
        root = copied(store, tmp_path / str(number)) if kind == "cut" else store
        with calls_on(Calls(root, number, 1 << 60 if goes_on else number + 1, kind, calls)):
            found = rmqtool("verify", root, "--json")
        assert found.status in (Exit.FINDINGS, Exit.LOSSY, Exit.FAILED), call
        assert (found.document["result"] or {}).get("verdict") != "clean", call
        assert "Traceback" not in found.err, call


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("fault", ["read", "open", "listing", "nothing-from-there", "cut"])
@pytest.mark.parametrize("command", OTHERS)
def test_other_commands(command: str, fault: str, unpacked: GoldenStore, tmp_path: Path) -> None:
    """Something is missing, and they do not end with 0."""
    kind, calls, goes_on = FAULTS[fault]
    store, (name, *options) = unpacked("5.3.3-shop"), command.split()
    seen, _ = calls_of(calls, name, store, *options, *([tmp_path / "healthy"] * (name == "export")))
    for number in chosen(seen, store, f"{command} {fault}"):
        root = copied(store, tmp_path / str(number)) if kind == "cut" else store
        output = [tmp_path / f"out-{number}"] * (name == "export")
        with calls_on(Calls(root, number, 1 << 60 if goes_on else number + 1, kind, calls)):
            found = rmqtool(name, root, *options, *output, "--json")
        assert found.status in (Exit.FINDINGS, Exit.LOSSY, Exit.FAILED), seen[number]
        assert found.status != Exit.FINDINGS or "cannot read" in found.out + found.err, seen[number]
        assert "Traceback" not in found.err, seen[number]


def test_a_key_is_not_denied(unpacked: GoldenStore) -> None:
    """An index file that cannot be read may lead to the message."""
    store = unpacked("5.3.3-shop")
    with calls_on(Calls(store, kinds=READS)) as calls:
        rmqtool("query", store, "--key", "no-such-key")
    first = next(number for number, call in enumerate(calls.seen) if call.path.startswith("index/"))
    with calls_on(Calls(store, first, 1 << 60, "error", READS)):
        found = rmqtool("query", store, "--key", "no-such-key")
    assert found.status == Exit.FINDINGS
    assert "no message has the key" not in found.err
    assert "whether a message has the key no-such-key is not known: --scan looks at every message" in found.err


@pytest.mark.slow
def test_processes_pass_on_what_they_could_not_read(unpacked: GoldenStore) -> None:
    """As one does; they are copies of this one, in which the calls fail too."""
    store = unpacked("5.3.3-clean")
    with calls_on(Calls(store, kinds=READS)) as calls:
        assert rmqtool("verify", store, "-j", "2", "--json").status == Exit.OK
    with calls_on(Calls(store, len(calls.seen) * 3 // 4, 1 << 60, "error", READS)):
        found = rmqtool("verify", store, "-j", "2", "--json")
    assert found.status == Exit.FINDINGS
    assert codes_of(found) <= {"store.unreadable", "commitlog.unreadable"}
