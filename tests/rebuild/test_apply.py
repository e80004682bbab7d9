"""Plans carried out in a transaction: what was damaged is fixed, and a second run plans nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.base.errors import ChangedError
from rmqtool.rebuild import derive, source
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import Store, open_store
from rmqtool.transaction.transaction import Transaction
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.rebuild.damaging import INDEX_DAMAGE, QUEUE_DAMAGE, Damage, entry_zeroed, write
from tests.rebuild.faults import memory
from tests.transaction.small import tree


@pytest.fixture
def scratch() -> Iterator[Path]:
    with memory() as directory:
        yield directory


@pytest.fixture(autouse=True)
def few_units_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files differ in what is put into them later."""
    monkeypatch.setattr(derive, "_FEW_UNITS", 100)
    monkeypatch.setattr(derive, "_UNITS_PER_QUEUE", 1)


def opened(root: Path, settings: dict[str, str] | None = None) -> Store:
    """The store, with a broker.conf: where all queue files are gone, their size is what it sets, or the default."""
    return open_store(root, BrokerConf(settings or {}, path="broker.conf"))


def options(name: str, *parts: Part) -> RebuildOptions:
    return RebuildOptions(frozenset(parts), version=parse_version(name.partition("-")[0]))


def damaged(root: Path, to: Path, damage: Damage) -> Path:
    store = copied(root, to)
    damage(store)
    return store


def assert_mends(store: Store, given: RebuildOptions) -> RebuildPlan:
    """A rebuild writes something, leaves nothing behind but what undo needs, and a second one plans nothing."""
    with Transaction(store, "rebuild-cq") as transaction:
        plan = make_plan(open_source(store, given))
        assert not plan.is_empty
        committed = apply_plan(plan, transaction)
    assert [path.name for path in (store.root / ".rmqtool").iterdir()] == [committed.id]
    again = make_plan(open_source(open_store(store.root, store.conf), given))
    assert not again.changed_queues
    assert all(file.action == "keep" for file in again.index)
    return plan


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("5.3.3-clean", damage) for damage in QUEUE_DAMAGE),
        *(("4.9.7-trimmed", damage) for damage in QUEUE_DAMAGE[::3]),
    ],
)
def test_queues(unpacked: GoldenStore, scratch: Path, name: str, damage: Damage) -> None:
    """Every damage: of the first unit of a file, in its middle, after its end, of whole files and queues."""
    try:
        root = damaged(unpacked(name), scratch / "store", damage)
    except (OSError, ValueError):
        pytest.skip("nothing there to damage")
    if make_plan(open_source(open_store(root), options(name, "queues"))).is_empty:
        pytest.skip("retention had taken what was damaged")
    assert_mends(opened(root), options(name, "queues"))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_index(unpacked: GoldenStore, scratch: Path, damage: Damage) -> None:
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", damage)
    assert_mends(opened(root), options("5.3.3", "queues", "index"))


@pytest.mark.parametrize("begins_again_at", [0, 2, 5])
def test_a_queue_that_began_again(scratch: Path, begins_again_at: int) -> None:
    """What the earlier units would make different in a file is forgotten with them."""
    offsets = [*range(12), *range(begins_again_at, 15)]
    root = LogBuilder().add_all({"queue_offset": offset} for offset in offsets).write(scratch / "store")
    assert_mends(opened(root), options("5.3.3", "queues"))


def test_a_queue_that_began_again_behind_damage(scratch: Path) -> None:
    """What stands before its first unit now is made for that one, whatever files were there."""
    builder = LogBuilder().add_all({"queue_offset": offset} for offset in range(31, 35))
    builder.files[-1] += b"\xff" * 4000
    root = builder.add_all([{"queue_offset": 3}]).write(scratch / "store")
    assert_mends(opened(root, {"mappedFileSizeConsumeQueue": "600"}), options("5.3.3", "queues"))  # 30 units


@pytest.mark.slow
def test_in_append_order(unpacked: GoldenStore, scratch: Path) -> None:
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", entry_zeroed)
    assert_mends(opened(root), replace(options("5.3.3", "queues"), order="broker"))


@pytest.mark.slow
def test_damaged_log_is_neutralised(unpacked: GoldenStore, scratch: Path) -> None:
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", entry_zeroed)
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(3000)
        file.write(b"\x55" * 2000)
    assert assert_mends(opened(root), replace(options("5.3.3", "queues"), neutralise=True)).patches


@pytest.mark.slow
def test_several_processes(unpacked: GoldenStore, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that do not meet: one process reads the log instead, also when the plan is carried out."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", entry_zeroed)
    end = open_store(root).commit_log().files[-1].end_offset
    monkeypatch.setattr(source, "log_parts", lambda *_, **__: [(0, 30_000), (0, end)])
    assert_mends(opened(root), replace(options("5.3.3", "queues"), jobs=2))


def test_sound_store_is_left_alone(unpacked: GoldenStore, scratch: Path) -> None:
    root = copied(unpacked("5.3.3-clean"), scratch / "store")
    before = tree(root)
    with Transaction(open_store(root), "rebuild-cq"):
        plan = make_plan(open_source(open_store(root), options("5.3.3", "queues", "index")))
        assert not (root / ".rmqtool").exists()

    assert plan.is_empty
    assert tree(root) == before


def test_jump(scratch: Path) -> None:
    """A queue whose offsets jump is left alone; the others are rebuilt."""
    log = LogBuilder()
    for offset in (*range(10), *range(5000, 5010)):
        log.add(queue_offset=offset)
    for offset in range(10):
        log.add(queue_id=1, queue_offset=offset)
    root = log.write(scratch / "store")
    assert_mends(opened(root), options("5.3.3", "queues"))
    assert [path.name for path in (root / "consumequeue").glob("*/*")] == ["1"]


@pytest.mark.slow
def test_ext_addresses(unpacked: GoldenStore, scratch: Path) -> None:
    """A unit with an ext address is as good as one without."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", entry_zeroed)
    (root / "consumequeue_ext").mkdir()
    write(root / "consumequeue" / "orders" / "0" / f"{0:020d}", 12, (-(1 << 62)).to_bytes(8, "big", signed=True))
    assert_mends(opened(root), options("5.3.3", "queues"))


@pytest.mark.slow
def test_topics_with_batch_queues_are_learnt(unpacked: GoldenStore, scratch: Path) -> None:
    """The pass that finds one begins again."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", lambda root: shutil.rmtree(root / "consumequeue"))
    (root / "config" / "topics.json").unlink()
    shutil.rmtree(root / "batchconsumequeue")
    assert_mends(opened(root), options("5.3.3", "queues"))


def test_log_that_grew_since_the_plan(scratch: Path) -> None:
    """Nothing is written where the log is not the one that the plan was made from."""
    log = LogBuilder().add_all({"queue_offset": offset} for offset in range(5))
    root = log.write(scratch / "store")
    with Transaction(opened(root), "rebuild-cq") as transaction:
        plan = make_plan(open_source(opened(root), options("5.3.3", "queues")))
        log.add(queue_offset=5)
        log.write(root)
        before = tree(root)
        with pytest.raises(ChangedError):
            apply_plan(plan, transaction)
    assert tree(root) == before
