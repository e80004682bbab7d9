"""Consume queue files of a size that nothing shows are not written into a store: a broker would refuse to start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.transaction.system import System
from tests.building import LogBuilder
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY
from tests.unchanged import unchanged

QUEUE_SIZE = int(GEOMETRY["mappedFileSizeConsumeQueue"])
DEFAULT_SIZE = 6_000_000
ASSUMED = "rebuild.file-size-assumed"


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written need not survive a power failure here."""
    monkeypatch.setattr(System, "sync", lambda self, path: None)
    monkeypatch.setattr(System, "sync_all", lambda self, path: None)


@pytest.fixture
def store(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store without any consume queue, batch queues aside."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    return store


def rebuild(store: Path, *options: str | Path, as_json: bool = True) -> Result:
    return rmqtool("rebuild-cq", store, "--broker-version", "5.3.3", *(["--json"] if as_json else []), *options)


def conf(store: Path, text: str) -> list[str | Path]:
    """The option that names a broker.conf of this text."""
    path = store.with_name("broker.conf")
    path.write_text(text)
    return ["--broker-conf", path]


def codes(found: Result) -> set[str]:
    return {finding["code"] for finding in found.document["findings"]}


def sizes(store: Path) -> set[int]:
    return {path.stat().st_size for path in (store / "consumequeue").glob("*/*/*")}


def asks_for(found: Result, setting: str) -> bool:
    """Whether nothing was done, and the error names the setting and the option."""
    error = found.document["error"]
    assert error["kind"] == "usage"
    assert "--broker-conf" in error["hint"]
    return found.status == Exit.USAGE and setting in error["message"]


@pytest.mark.slow
def test_a_size_that_nothing_shows_is_asked_for(store: Path) -> None:
    """Before a byte is written; what is left is not called clean."""
    with unchanged(store):
        assert asks_for(rebuild(store, "--yes"), "mappedFileSizeConsumeQueue")
    assert rmqtool("verify", store, "--json").document["result"]["verdict"] == "corrupt"


def test_a_saved_plan_asks_too(store: Path, tmp_path: Path) -> None:
    """What it was made with is not what the store is written with."""
    assert rebuild(store, "--save-plan", tmp_path / "plan.json").status == Exit.OK
    with unchanged(store):
        assert asks_for(rebuild(store, "--plan", tmp_path / "plan.json", "--yes"), "mappedFileSizeConsumeQueue")


@pytest.mark.slow
def test_what_leaves_the_store_alone_takes_the_default(store: Path, tmp_path: Path) -> None:
    """And says so; the next command names the option."""
    with unchanged(store):
        planned = rebuild(store, "--dry-run")
        elsewhere = rebuild(store, "--output", tmp_path / "out")
        shown = rebuild(store, "--dry-run", as_json=False)
    assert (planned.status, elsewhere.status) == (Exit.OK, Exit.OK)
    assert ASSUMED in codes(planned) & codes(elsewhere)
    assert sizes(tmp_path / "out") == {DEFAULT_SIZE}
    assert shown.err.rstrip().endswith("--broker-conf BROKER_CONF")


@pytest.mark.parametrize(
    ("text", "size"),
    [(f"mappedFileSizeConsumeQueue={QUEUE_SIZE}", QUEUE_SIZE), ("", DEFAULT_SIZE), ("brokerName=a", DEFAULT_SIZE)],
)
def test_broker_conf_decides(store: Path, text: str, size: int) -> None:
    """What it does not set is the broker's default."""
    found = rebuild(store, "--yes", *conf(store, text))
    assert found.status == Exit.OK
    assert ASSUMED not in codes(found)
    assert sizes(store) == {size}


def test_one_queue_shows_the_size(golden_store: GoldenStore, tmp_path: Path) -> None:
    """All queues of a kind have the same."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    for topic in (store / "consumequeue").iterdir():
        if topic.name != "archive":
            shutil.rmtree(topic)
    assert rebuild(store, "--yes").status == Exit.OK
    assert sizes(store) == {QUEUE_SIZE}


def test_a_file_that_was_cut_shows_nothing(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Neither an empty one, nor one that ends inside a unit."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    for number, path in enumerate((store / "consumequeue").glob("*/*/*")):
        os.truncate(path, (0, 250)[number % 2])
    with unchanged(store):
        assert asks_for(rebuild(store, "--yes"), "mappedFileSizeConsumeQueue")


def test_batch_queues_have_a_size_of_their_own(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Another setting; the simple queues say nothing of it."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    shutil.rmtree(store / "batchconsumequeue")
    with unchanged(store):
        found = rebuild(store, "--yes")
    assert asks_for(found, "mapperFileSizeBatchConsumeQueue")
    assert "mappedFileSizeConsumeQueue" not in found.document["error"]["message"]


def test_nothing_is_asked_where_nothing_is_written(tmp_path: Path) -> None:
    """A log without a message, or a sound store."""
    store = LogBuilder().write(tmp_path / "store")
    assert rebuild(store, "--yes").status == Exit.OK


@pytest.mark.slow
def test_an_index_has_a_size_of_its_own(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A broker looks for its units after as many slots as it is set to, and finds nothing in other files."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    before = {path.name: path.read_bytes() for path in (store / "index").iterdir()}
    for path in (store / "index").iterdir():
        os.truncate(path, 0)
    with unchanged(store):
        asked = rmqtool("rebuild-index", store, "--broker-version", "5.3.3", "--json", "--yes")
    assert asks_for(asked, "maxHashSlotNum")
    text = f"maxHashSlotNum={GEOMETRY['maxHashSlotNum']}\nmaxIndexNum={GEOMETRY['maxIndexNum']}"
    named = rmqtool("rebuild-index", store, "--broker-version", "5.3.3", "--json", "--yes", *conf(store, text))
    assert named.status == Exit.OK
    assert {path.stat().st_size for path in (store / "index").iterdir()} == set(map(len, before.values()))


@pytest.mark.slow
def test_one_setting_of_an_index_is_enough(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The other one is the broker's default."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    shutil.rmtree(store / "index")
    rmqtool("rebuild-index", store, "--broker-version", "5.3.3", "--yes", *conf(store, "maxIndexNum=1000"))
    assert {path.stat().st_size for path in (store / "index").iterdir()} == {40 + 5_000_000 * 4 + 1000 * 20}
