"""Repairs as an operator goes about them: damage, verify, rebuild, verify, undo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied

NAMES = ("4.9.7-clean", "5.5.0-clean")


def tree(store: Path) -> dict[str, bytes]:
    """Content of every file of the store itself."""
    files = (path for path in store.rglob("*") if path.is_file() and ".rmqtool" not in path.parts)
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store in which the size of one record in the middle of the log says nonsense."""
    root = copied(unpacked(request.param), tmp_path / "store")
    with sorted((root / "commitlog").iterdir())[1].open("r+b") as file:
        data = file.read()
        place = data.index(b"\xda\xa3\x20", data.index(b"\0\6orders"[1:], 2000)) - 4
        file.seek(place)
        file.write(b"\x7f\xff\xff\xff")
    return root


@pytest.mark.slow
def test_a_lost_record(store: Path) -> None:
    """What is lost is told, queues are fixed around it, verify finds nothing more in them, and undo takes it back."""
    before = tree(store)
    found = rmqtool("verify", store, "--json")
    assert found.status == 1
    assert "commitlog." in " ".join(finding["code"] for finding in found.document["findings"])
    done = rmqtool("rebuild-cq", store, "--yes", "--json")
    assert done.status == 3
    assert done.document["result"]["skipped"]
    after = rmqtool("verify", store, "--only", "consumequeue.", "--json")
    assert {finding["severity"] for finding in after.document["findings"]} <= {"info"}
    assert after.status == 0
    again = rmqtool("rebuild-cq", store, "--yes", "--json")
    assert again.document["result"]["state"] == "nothing"
    if done.document["result"]["state"] == "done":
        assert rmqtool("undo", store, "--yes").status == 0
    assert tree(store) == before


@pytest.mark.slow
def test_an_interrupted_run_is_told(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Readers say that a run of ours was cut off, which harms nobody."""
    root = copied(unpacked("5.3.3-clean"), tmp_path / "store")
    (root / ".rmqtool" / "staging").mkdir(parents=True)
    overview = rmqtool("inspect", root, "--json").document
    assert [finding["code"] for finding in overview["findings"]] == ["store.interrupted-run"]
    proof = rmqtool("verify", root, "--json").document
    assert (proof["result"]["verdict"], proof["exit"]["code"]) == ("dirty", 1)
    assert rmqtool("undo", root, "--yes", "--json").document["result"]["recovered"]
    assert rmqtool("inspect", root, "--json").document["findings"] == []
