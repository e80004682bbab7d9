"""`rmqtool repair --settle`: what is missing is added, what stands behind the end goes, damage is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqtool
from rmqtool.base.errors import Exit
from tests.building import LOG
from tests.commands.running import Result
from tests.commands.running import rmqtool as run
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import tree, unchanged
from tests.verify.small_store import FILE_SIZE, small_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store whose broker was killed."""
    root = small_store(tmp_path / "store")
    (root / "abort").touch()
    return root


def settle(store: Path) -> Result:
    return run("repair", store, "--settle", "--yes", "--json")


def derived(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(store).items() if name.startswith(("consumequeue/", "index/"))}


def require_clean(store: Path) -> None:
    assert not (store / "abort").exists()
    checked = run("verify", store, "--json")
    assert (checked.status, checked.document["result"]["verdict"]) == (Exit.OK, "clean")
    assert checked.document["result"]["start"]["mode"] == "normal"


def test_a_whole_store_loses_its_abort_only(store: Path) -> None:
    before = derived(store)
    done = settle(store)
    assert (done.status, done.document["result"]["state"]) == (Exit.OK, "done")
    assert derived(store) == before
    require_clean(store)
    assert settle(store).document["result"]["state"] == "nothing"
    assert run("undo", store, "--yes").status == Exit.OK
    assert (store / "abort").exists()


@pytest.mark.parametrize("part", ["unit", "queue", "index"])
def test_what_is_missing_is_added(store: Path, part: str) -> None:
    """A unit, a queue, an index file: a start after a clean stop would never look for it."""
    before = derived(store)
    queue = store / "consumequeue" / "orders" / "0"
    if part == "unit":
        last = max(queue.iterdir())
        data = last.read_bytes().rstrip(b"\0")
        last.write_bytes(data[: (len(data) - 1) // 20 * 20].ljust(160, b"\0"))
    elif part == "queue":
        for file in queue.iterdir():
            file.unlink()
    else:
        index = max((store / "index").iterdir())
        head = bytearray(index.read_bytes())
        head[36:40] = (int.from_bytes(head[36:40], "big") - 1).to_bytes(4, "big")
        index.write_bytes(head)
    assert derived(store) != before
    assert settle(store).status == Exit.OK
    assert {name: data for name, data in derived(store).items() if part != "index" or "index/" not in name} == {
        name: data for name, data in before.items() if part != "index" or "index/" not in name
    }
    require_clean(store)


def test_what_stands_behind_the_end_is_zeroed(store: Path) -> None:
    """Half a record, and old bytes after it, into which a log may go on."""
    last = max((store / LOG).iterdir())
    data = bytearray(last.read_bytes())
    end = run("verify", store, "--json").document["result"]["start"]["max_offset_after"] % FILE_SIZE
    data[end : end + 60], data[end + 100 : end + 200] = data[:60], b"x" * 100
    last.write_bytes(data)
    assert settle(store).status == Exit.OK
    assert not last.read_bytes()[end:].strip(b"\0")
    require_clean(store)


def test_damage_in_the_log_is_refused(store: Path) -> None:
    """What a start would cut off is not settled away: the messages after it can be read."""
    last = max((store / LOG).iterdir())
    data = bytearray(last.read_bytes())
    data[300:500] = b"\xff" * 200
    last.write_bytes(data)
    with unchanged(store):
        refused = run("repair", store, "--settle", "--dry-run")
    assert refused.status == Exit.FAILED
    assert "repair it first" in refused.err


def test_a_dry_run_changes_nothing(store: Path) -> None:
    with unchanged(store):
        shown = run("repair", store, "--settle", "--dry-run")
    assert (shown.status, "abort" in shown.out) == (Exit.OK, True)


def test_it_goes_with_no_other_choice(store: Path) -> None:
    assert run("repair", store, "--settle", "--times").status == Exit.USAGE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-killed", "4.9.7-killed", "5.3.3-killed", "5.5.0-killed"])
def test_stores_of_killed_brokers(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    root = copied(golden_store(name), tmp_path / "store")
    messages = sum(1 for _ in rmqtool.open(root).messages())
    assert settle(root).status == Exit.OK
    assert sum(1 for _ in rmqtool.open(root).messages()) == messages
    require_clean(root)
