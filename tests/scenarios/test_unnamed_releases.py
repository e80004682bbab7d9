"""Stores whose release nobody names: what any release that fits would have written is sound, and stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.rules.versions import INDEX_OF_TAGS, Releases, Version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import GEOMETRY
from tests.verify.verifying import codes_of, verify

DIFFERING = [f"more/{version}-differing" for version in ("4.7.1", "4.9.7", "5.3.3", "5.5.0")]
LIGHT = DIFFERING[1:]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", stores.names())
def test_the_release_that_wrote_a_store_fits(name: str, golden_store: GoldenStore) -> None:
    """Evidence rules out others, never the one that was there."""
    releases = Snapshot(open_store(golden_store(name))).releases
    assert releases.oldest <= Version(*map(int, stores.version_of(name).split("."))) <= releases.newest
    assert len(releases.fitting) < len(Releases().fitting)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERING)
def test_what_releases_derive_differently_is_sound(name: str, golden_store: GoldenStore) -> None:
    """With all signs of the release."""
    assert codes_of(verify(golden_store(name))) == set()
    assert codes_of(verify(golden_store(name), version=stores.version_of(name))) == set()


@pytest.mark.parametrize("name", LIGHT)
def test_it_is_sound_where_nothing_shows_the_release(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Every release fits, and what each of them would have written is different."""
    store = stores.without_signs(golden_store(name), tmp_path / "store")
    codes = codes_of(verify(store))
    assert not {code for code in codes if code.startswith(("commitlog.", "consumequeue."))}


@pytest.mark.parametrize("name", DIFFERING)
@pytest.mark.parametrize("command", ["rebuild-cq", "rebuild-index"])
def test_a_rebuild_plans_nothing(name: str, command: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """No unit and no key is taken away from a healthy store."""
    store = tmp_path / "store"
    copied(golden_store(name), store)
    before = contents(store)
    result = rmqtool(command, store, "--yes", "--json")
    assert (result.status, result.document["result"]["state"]) == (0, "nothing")
    assert {path: data for path, data in contents(store).items() if not path.startswith(".rmqtool")} == before


@pytest.mark.parametrize("name", LIGHT)
def test_a_rebuild_without_signs_plans_nothing(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """The units that are there decide."""
    store = stores.without_signs(golden_store(name), tmp_path / "store")
    assert rmqtool("rebuild-cq", store, "--dry-run", "--json").document["result"]["state"] == "nothing"


@pytest.mark.slow
def test_what_a_repair_wrote_shows_no_release(golden_store: GoldenStore, tmp_path: Path) -> None:
    """An index with tags, by the rules of the newest release that fits, is no evidence of a broker of that release."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    shutil.rmtree(store / "index")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in GEOMETRY.items()))
    before = Snapshot(open_store(store)).releases
    assert before.oldest < INDEX_OF_TAGS <= before.newest
    assert rmqtool("rebuild-index", store, "--yes", "--broker-conf", conf).status == Exit.OK
    snapshot = Snapshot(open_store(store))
    assert snapshot.index_holds_tags
    assert snapshot.releases == before
    assert rmqtool("rebuild-index", store, "--dry-run", "--json").document["result"]["state"] == "nothing"


@pytest.mark.parametrize("name", LIGHT)
def test_where_only_the_release_decides_a_rebuild_asks(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """A light queue is gone, and with it what showed which records it held."""
    store = stores.without_signs(golden_store(name), tmp_path / "store")
    queues = store / "consumequeue"
    whole = contents(queues)
    shutil.rmtree(queues / "%LMQ%one")
    left = contents(queues)
    refused = rmqtool("rebuild-cq", store, "--yes")
    assert refused.status == 2
    assert "--broker-version" in refused.err
    assert contents(queues) == left
    assert rmqtool("rebuild-cq", store, "--yes", "--broker-version", stores.version_of(name)).status == 0
    assert contents(queues) == whole


@pytest.mark.parametrize("name", [name for name in LIGHT if stores.version_of(name) != "5.3.3"])
def test_with_signs_of_the_release_it_does_not_ask(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """What fits agrees about the units; signs of 5.3.3 fit 5.1.0, which gives light queues those of retry topics."""
    store = tmp_path / "store"
    copied(golden_store(name), store)
    queues = store / "consumequeue"
    whole = contents(queues)
    shutil.rmtree(queues / "%LMQ%one")
    assert rmqtool("rebuild-cq", store, "--yes").status == 0
    assert contents(queues) == whole


@pytest.mark.budget(0.5)
@pytest.mark.parametrize("jobs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_units_of_several_parts(jobs: int, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Parts of a log are put together with what older releases derive in each."""
    store = stores.without_signs(golden_store("more/4.9.7-differing"), tmp_path / "store")
    outcome = verify(store, jobs=jobs, part_size=8192)
    assert not {code for code in codes_of(outcome) if code.startswith(("commitlog.", "consumequeue."))}


def test_no_release_starts_without_loss(tmp_path: Path) -> None:
    """Old ones leave messages out of a queue file that was cut, later ones refuse to start."""
    store = stores.unpack("4.4.0-trimmed", tmp_path)
    (file,) = (store / "consumequeue" / "RMQ_SYS_TRANS_HALF_TOPIC" / "0").iterdir()
    os.truncate(file, file.stat().st_size // 2)
    outcome = verify(store)
    assert "start.depends-on-release" in codes_of(outcome)
    assert outcome.verdict == "corrupt"
