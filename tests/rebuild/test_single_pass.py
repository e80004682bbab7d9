"""Planned and staged in one pass over the log: what is written is what a plan and a second pass write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.rebuild import derive, source
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.single_pass import Prepared, prepare
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import Store, open_store
from rmqtool.transaction import Committed, Transaction
from rmqtool.transaction.system import SYSTEM, System
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.rebuild.damaging import INDEX_DAMAGE, QUEUE_DAMAGE, Damage, index_gone, last_units_lost, unit_zeroed, write
from tests.rebuild.faults import memory
from tests.transaction.small import tree

LATE_INDEX_DAMAGE = ("index_slots_zeroed", "index_counts_too_much", "index_counts_too_little")
"""What shows only behind the first keys."""


@pytest.fixture
def scratch() -> Iterator[Path]:
    with memory() as directory:
        yield directory


def opened(root: Path) -> Store:
    """The store, with a broker.conf that sets nothing: where all queue files are gone, their size is the default."""
    return open_store(root, BrokerConf(path="broker.conf"))


def options(name: str, *parts: Part) -> RebuildOptions:
    return RebuildOptions(frozenset(parts), version=parse_version(name.partition("-")[0]))


def told(plan: RebuildPlan) -> object:
    """What a plan says, but for the store's own name."""
    findings = [(finding.code, finding.message, finding.count) for finding in plan.findings]
    return plan.queues, plan.index, plan.lost.listed, plan.last_record, findings, plan.consumers_moved


def in_one_pass(root: Path, given: RebuildOptions, system: System = SYSTEM) -> tuple[Prepared, Committed]:
    with Transaction(opened(root), "rebuild-cq", system) as transaction:
        prepared = prepare(open_source(opened(root), given), transaction)
        return prepared, prepared.commit(transaction)


def in_two_passes(root: Path, given: RebuildOptions) -> tuple[RebuildPlan, Committed]:
    with Transaction(opened(root), "rebuild-cq") as transaction:
        plan = make_plan(open_source(opened(root), given))
        return plan, Prepared(plan).commit(transaction)


def assert_same(root: Path, given: RebuildOptions, is_staged: bool = True, system: System = SYSTEM) -> None:
    """Same plan, journal, bytes, times and attributes; staged in the first pass where that is possible."""
    other = Path(shutil.copytree(root, root.with_name("other")))
    prepared, committed = in_one_pass(root, given, system)
    plan, expected = in_two_passes(other, given)

    assert told(prepared.plan) == told(plan)
    assert not plan.is_empty
    assert prepared.is_staged == is_staged
    assert committed == expected
    assert tree(root) == tree(other)
    assert [path.name for path in (root / ".rmqtool").iterdir()] == [committed.id]


def damaged(root: Path, to: Path, damage: Callable[[Path], None]) -> Path:
    store = Path(shutil.copytree(root, to))
    damage(store)
    return store


@pytest.fixture(autouse=True)
def few_units_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files differ in what is put into them later."""
    monkeypatch.setattr(derive, "_FEW_UNITS", 100)
    monkeypatch.setattr(derive, "_UNITS_PER_QUEUE", 1)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("5.3.3-clean", damage) for damage in QUEUE_DAMAGE),
        *(("4.9.7-trimmed", damage) for damage in QUEUE_DAMAGE[::3]),
    ],
)
def test_queues(unpacked: GoldenStore, scratch: Path, name: str, damage: Damage) -> None:
    """Every damage: of the first unit of a file, in its middle, behind its end, of whole files and queues."""
    try:
        root = damaged(unpacked(name), scratch / "store", damage)
    except (OSError, ValueError):
        pytest.skip("nothing there to damage")
    if make_plan(open_source(open_store(root), options(name, "queues"))).is_empty:
        pytest.skip("retention had taken what was damaged")
    assert_same(root, options(name, "queues"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_index(unpacked: GoldenStore, scratch: Path, damage: Damage) -> None:
    """Staged when it shows by the first key that the files are not right; else in a second pass."""
    name = "5.3.3-clean"
    root = damaged(unpacked(name), scratch / "store", damage)
    is_staged = damage.__name__ not in LATE_INDEX_DAMAGE
    assert_same(root, options(name, "queues", "index"), is_staged)


@pytest.mark.parametrize("begins_again_at", [0, 2, 5])
def test_a_queue_that_began_again(scratch: Path, begins_again_at: int) -> None:
    """What the earlier units would make different in a file is forgotten with them: a second run plans nothing."""
    offsets = [*range(12), *range(begins_again_at, 15)]
    root = LogBuilder().add_all({"queue_offset": offset} for offset in offsets).write(scratch / "store")
    assert not in_one_pass(root, options("5.3.3", "queues"))[0].plan.is_empty
    assert make_plan(open_source(open_store(root), options("5.3.3", "queues"))).is_empty


def test_a_queue_that_began_again_behind_damage(scratch: Path) -> None:
    """What stands before its first unit now is made for that one, whatever files were there."""
    builder = LogBuilder().add_all({"queue_offset": offset} for offset in range(31, 35))
    builder.files[-1] += b"\xff" * 4000
    root = builder.add_all([{"queue_offset": 3}]).write(scratch / "store")
    store = open_store(root, BrokerConf({"mappedFileSizeConsumeQueue": "600"}))  # 30 units
    with Transaction(store, "rebuild-cq") as transaction:
        prepare(open_source(store, options("5.3.3", "queues")), transaction).commit(transaction)
    assert make_plan(open_source(store, options("5.3.3", "queues"))).is_empty


def test_in_the_brokers_order(unpacked: GoldenStore, scratch: Path) -> None:
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", unit_zeroed)
    assert_same(root, replace(options("5.3.3", "queues"), order="broker"))


def test_damaged_log_is_neutralised(unpacked: GoldenStore, scratch: Path) -> None:
    """What lies in the log's place is known at the end of the pass."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", unit_zeroed)
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(3000)
        file.write(b"\x55" * 2000)
    assert_same(root, replace(options("5.3.3", "queues"), neutralise=True))


def test_several_processes(unpacked: GoldenStore, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that do not meet: what was staged of them is dropped."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", unit_zeroed)
    end = open_store(root).commit_log().files[-1].end_offset
    monkeypatch.setattr(source, "pieces_of", lambda files: [(0, 30_000), (0, end)])
    assert_same(root, replace(options("5.3.3", "queues"), jobs=2))


def test_sound_store_is_left_alone(unpacked: GoldenStore, scratch: Path) -> None:
    root = Path(shutil.copytree(unpacked("5.3.3-clean"), scratch / "store"))
    before = tree(root)
    with Transaction(open_store(root), "rebuild-cq") as transaction:
        prepared = prepare(open_source(open_store(root), options("5.3.3", "queues", "index")), transaction)
        assert not (root / ".rmqtool").exists()

    assert prepared.plan.is_empty
    assert tree(root) == before


def test_queue_that_began_again(scratch: Path) -> None:
    """What was staged is wrong once the stored offsets go back: it is dropped."""
    log = LogBuilder()
    for offset in (*range(40), *range(20, 50)):
        log.add(queue_offset=offset)
    assert_same(log.write(scratch / "store"), options("5.3.3", "queues"), is_staged=False)


def test_jump(scratch: Path) -> None:
    """A queue that is left alone for its offsets jump was staged in vain."""
    log = LogBuilder()
    for offset in (*range(10), *range(5000, 5010)):
        log.add(queue_offset=offset)
    for offset in range(10):
        log.add(queue_id=1, queue_offset=offset)
    assert_same(log.write(scratch / "store"), options("5.3.3", "queues"), is_staged=False)


def test_ext_addresses(unpacked: GoldenStore, scratch: Path) -> None:
    """A unit with an ext address is as good as one without: the first pass cannot know what the second writes."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", unit_zeroed)
    (root / "consumequeue_ext").mkdir()
    write(root / "consumequeue" / "orders" / "0" / f"{0:020d}", 12, (-(1 << 62)).to_bytes(8, "big", signed=True))
    assert_same(root, options("5.3.3", "queues"), is_staged=False)


@pytest.mark.slow
def test_topics_with_batch_queues_are_learnt(unpacked: GoldenStore, scratch: Path) -> None:
    """What the pass had staged until then is dropped, and it begins anew."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", lambda root: shutil.rmtree(root / "consumequeue"))
    (root / "config" / "topics.json").unlink()
    shutil.rmtree(root / "batchconsumequeue")
    assert_same(root, options("5.3.3", "queues"))


class _Narrow(System):
    """Little is free while nothing is needed yet."""

    def __init__(self, free: int) -> None:
        self.answers = [free]

    def free_bytes(self, path: str) -> int:
        return self.answers.pop() if self.answers else super().free_bytes(path)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "free"), [(last_units_lost, 2_000), (index_gone, 30_000)])
def test_little_space(unpacked: GoldenStore, scratch: Path, damage: Damage, free: int) -> None:
    """Nothing is staged beyond a part of what is free before it is known how much there will be."""
    root = damaged(unpacked("5.3.3-clean"), scratch / "store", damage)
    system = _Narrow((16 << 20) + free)
    assert_same(root, options("5.3.3", "queues", "index"), is_staged=False, system=system)
