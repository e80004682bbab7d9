"""The end of a copied log: what queues and index lack is added as its broker would have, or left to a rebuild."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.files import UNLIMITED
from rmqtool.copy.settle import copy_store
from rmqtool.copy.tail import Added, complete_tail
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Releases, parse_version
from rmqtool.store.snapshot import Snapshot
from tests.building import LOG
from tests.commands.running import rmqtool as run
from tests.copies import copied
from tests.unchanged import tree
from tests.verify.small_store import GEOMETRY, small_store

_CONF = BrokerConf(settings={"maxHashSlotNum": str(GEOMETRY[0]), "maxIndexNum": str(GEOMETRY[1])})


def derived(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(store).items() if name.startswith(("consumequeue/", "index/"))}


def behind(store: Path, messages: int) -> Path:
    """The store with queues and index that lack the last messages of its log."""
    root = copied(store, store.with_name("behind"))
    assert run("cut", root, "--at", f"last-{messages}", "--yes").status == 0
    shutil.rmtree(root / LOG)
    shutil.rmtree(root / ".rmqtool")
    copied(store / LOG, root / LOG)
    return root


def completed(root: Path) -> Added | None:
    snapshot = Snapshot(copy_store(root, _CONF), parse_version("5.3.3"))
    end = snapshot.log_range.max_offset
    return complete_tail(snapshot, Releases.named(parse_version("5.3.3")), end, UNLIMITED)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.mark.parametrize("messages", [1, 7, 19])
def test_the_same_bytes_as_before(store: Path, messages: int) -> None:
    """Units in files that are there and in new ones, keys with their chains, slots and header."""
    root = behind(store, messages)
    assert derived(root) != derived(store)
    added = completed(root)
    assert added
    assert (added.units, added.keys) == (messages, 3 * messages)
    assert derived(root) == derived(store)
    assert completed(root) == Added(0, 0)


@pytest.mark.parametrize("fault", ["unit", "gap", "damage", "index"])
def test_what_is_out_of_the_ordinary_is_left_to_a_rebuild(store: Path, fault: str) -> None:
    """Another unit than the log gives, one that is missing before others, damage, no index: nothing is written."""
    root = behind(store, 7)
    queue = max((root / "consumequeue" / "orders" / "0").iterdir())
    data = bytearray(queue.read_bytes())
    if fault == "unit":
        shutil.copytree(store / "consumequeue", root / "consumequeue", dirs_exist_ok=True)
        queue = max((root / "consumequeue" / "orders" / "0").iterdir())
        data = bytearray(queue.read_bytes())
        data[len(data.rstrip(b"\0")) // 20 * 20 - 12] ^= 1
        data[(len(data.rstrip(b"\0")) - 1) // 20 * 20 + 7] ^= 1
        queue.write_bytes(data)
    elif fault == "gap":
        queue.unlink()
    elif fault == "damage":
        log = max((root / LOG).iterdir())
        content = bytearray(log.read_bytes())
        end = len(content.rstrip(b"\0"))
        content[end - 400 : end - 300] = bytes(100)
        log.write_bytes(content)
    else:
        shutil.rmtree(root / "index")
    before = derived(root)
    assert completed(root) is None
    assert derived(root) == before
