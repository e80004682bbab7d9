"""Every call of a small rebuild is cut or fails: the store is as before, or the next run ends it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from rmqtool.broker_conf import BrokerConf
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.store import open_store
from rmqtool.transaction import Transaction
from rmqtool.transaction.system import System
from rmqtool.versions import Version
from tests.building import LogBuilder
from tests.transaction.faults import FAULTS, Fault
from tests.transaction.small import SYSTEMS, tree
from tests.transaction.test_faults import assert_before_or_after, points, recover, run_with

_CONF = BrokerConf({"mappedFileSizeConsumeQueue": "60", "maxHashSlotNum": "3", "maxIndexNum": "8"})
_PARTS: frozenset[Part] = frozenset(["queues", "index"])


def make_store(root: Path) -> Path:
    """Three queues of some files: one to create, one with a wrong unit and one that is sound; no index; a crash."""
    fields = (
        {"queue_id": number % 3, "queue_offset": number // 3, "properties": {"KEYS": f"k{number}"}}
        for number in range(15)
    )
    LogBuilder().add_all(fields).write(root)
    rebuild(root, System())
    shutil.rmtree(root / "consumequeue" / "orders" / "0")
    shutil.rmtree(root / "index")
    shutil.rmtree(root / ".rmqtool")
    with (root / "consumequeue" / "orders" / "1" / f"{60:020d}").open("r+b") as file:
        file.write(b"\x01")
    (root / "abort").touch()
    return root


def rebuild(root: Path, system: System) -> None:
    store = open_store(root, _CONF)
    with Transaction(store, "rebuild-cq", system) as transaction:
        plan = make_plan(open_source(store, RebuildOptions(_PARTS, version=Version(5, 3, 3))))
        apply_plan(plan, transaction)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_every_call(tmp_path: Path, fault: Fault) -> None:
    """Whatever fails: all is as before, or done and can be taken back."""
    system = SYSTEMS["all"]()
    template = make_store(tmp_path / "template")
    reference = Path(shutil.copytree(template, tmp_path / "reference"))
    before = tree(reference)
    faulty, outcome = run_with(system, None, -1, partial(rebuild, reference))
    after = tree(reference)
    assert outcome == "done"
    assert after != before

    for at in points(faulty.names, fault):
        root = Path(shutil.copytree(template, tmp_path / "store"))
        run_with(system, fault, at, partial(rebuild, root))
        recover(root, system)
        assert_before_or_after(root, before, after, system)
        shutil.rmtree(root)
