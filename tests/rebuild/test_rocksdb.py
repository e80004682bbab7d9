"""Queue databases rebuilt: the rows of the broker's own, whatever was damaged, and all else as it was."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit, UnreadableError, UnsupportedError, UnwritableError
from rmqtool.rebuild import derive
from rmqtool.rebuild.apply import apply_plan, write_output
from rmqtool.rebuild.options import QueueSelection, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.scan.filters import TopicChoice
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.store import Store, open_store
from rmqtool.transaction.losses import recorded_losses
from rmqtool.transaction.staging import StagedFile
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from tests.building import LogBuilder
from tests.changed_rocksdb import (
    DISPATCHED_KEY,
    changed,
    current_gone,
    end_value,
    manifest_cut,
    max_key,
    min_key,
    rows_of,
    table_flipped,
    table_zeroed,
    tables_cut,
    tables_gone,
    unit_key,
    unit_value,
    with_fields,
)
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import ROCKSDB
from tests.golden.stores import version_of
from tests.real_broker.harness import GEOMETRY, SHOP_SETTINGS
from tests.transaction.faults import Fault, points, recover, run_with
from tests.transaction.small import tree, undo

NAME = "more/5.5.0-rocksdb"
SELECTED = "more/5.5.1-rocksdb-selected"
OTHER_QUEUES = ("5.1.4-rocksdb", "5.3.3-rocksdb-second-config", "5.5.0-rocksdb-side", SELECTED)
NAMES = [name for name in ROCKSDB if not name.endswith(OTHER_QUEUES)]
Damage = Callable[[Path], None]


def opened(root: Path, name: str = NAME) -> Store:
    return open_store(root, BrokerConf({**SHOP_SETTINGS, **GEOMETRY, **ROCKSDB[name]}, path="broker.conf"))


def options(name: str = NAME, *topics: str) -> RebuildOptions:
    version = parse_version(version_of(name))
    return RebuildOptions(frozenset(["queues"]), QueueSelection(TopicChoice(topics)), version)


def rebuilt(store: Store, given: RebuildOptions, system: System = SYSTEM) -> RebuildPlan:
    with Transaction(store, "rebuild-cq", system) as transaction:
        plan = make_plan(open_source(store, given))
        apply_plan(plan, transaction)
    return plan


@pytest.fixture
def root(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A copy of a store, to be written to."""
    return copied(golden_store(NAME), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_the_broker(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """From the log alone, in every mode and release: each row, each end, and how far records were dispatched."""
    root = copied(golden_store(name), tmp_path / "store")
    assert make_plan(open_source(opened(root, name), options(name))).is_empty
    database = queue_database(opened(root, name))
    assert database is not None
    before = rows_of(database)
    whole = tree(root)
    shutil.rmtree(database)
    without = tree(root)

    rebuilt(opened(root, name), options(name))
    assert rows_of(database) == before
    files = {path: entry for path, entry in tree(root).items() if path in whole and (database / path).is_dir()}
    assert files.items() <= whole.items()
    assert make_plan(open_source(opened(root, name), options(name))).is_empty
    undo(root, SYSTEM)
    assert tree(root) == without


@pytest.mark.slow
def test_topics_that_a_broker_leaves_out(golden_store: GoldenStore, tmp_path: Path) -> None:
    """With `rocksdbCQSelectiveDoubleWriteEnable` only topics of LITE messages, and their light queues, have rows."""
    root = copied(golden_store(SELECTED), tmp_path / "store")
    plan = make_plan(open_source(opened(root, SELECTED), options(SELECTED)))
    assert plan.is_empty
    topics = json.loads((root / "config" / "topics.json").read_text("utf-8"))
    topics["topicConfigTable"]["orders"]["attributes"] = {"message.type": "LITE"}
    (root / "config" / "topics.json").write_text(json.dumps(topics), encoding="utf-8")
    plan = make_plan(open_source(opened(root, SELECTED), options(SELECTED)))
    assert {queue.name.topic for queue in plan.changed_queues} == {"orders"}


def test_elsewhere(golden_store: GoldenStore, tmp_path: Path) -> None:
    """`--output` writes the database below another directory."""
    write_output(open_source(opened(golden_store(NAME)), options()), tmp_path)
    assert rows_of(tmp_path / "consumequeue") == rows_of(golden_store(NAME) / "consumequeue")


def row_missing(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        del families["default"][unit_key("orders", 1, 3)]


def row_wrong(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        key = unit_key("orders", 1, 3)
        families["default"][key] = with_fields(families["default"][key], message_size=91)


def row_too_many(root: Path) -> None:
    """Past the end, as the broker would serve it."""
    with changed(root / "consumequeue") as families:
        end = next(offset for offset in range(100) if unit_key("orders", 1, offset) not in families["default"])
        families["default"][unit_key("orders", 1, end)] = unit_value(5, 100, 0, 0)
        families["offset"][max_key("orders", 1)] = end_value(5, end)


def end_wrong(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        families["offset"][max_key("orders", 1)] = end_value(0, 2)


def beginning_wrong(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        families["offset"][min_key("orders", 1)] = end_value(0, 2)


def queue_gone(root: Path) -> None:
    """With its end, as after a start that has looked at the last files of the log only."""
    with changed(root / "consumequeue") as families:
        for offset in range(100):
            del families["default"][unit_key("orders", 1, offset)]
        del families["offset"][max_key("orders", 1)]
        families["offset"][DISPATCHED_KEY] = bytes(8)


def row_of_no_queue(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        families["default"][b"nonsense"] = b""


def end_of_no_queue(root: Path) -> None:
    with changed(root / "consumequeue") as families:
        families["offset"][b"nonsense"] = b""


def row_with_a_long_key(root: Path) -> None:
    """Among the units of a queue."""
    with changed(root / "consumequeue") as families:
        families["default"][unit_key("orders", 1, 3) + b"x"] = bytes(28)


def rows_without_an_end(root: Path) -> None:
    """Of a queue of which the log holds no message."""
    with changed(root / "consumequeue") as families:
        families["default"][unit_key("orders", 99, 0)] = bytes(28)


FOREIGN = (row_of_no_queue, end_of_no_queue, row_with_a_long_key, rows_without_an_end)
DAMAGE = (
    *(row_missing, row_wrong, row_too_many, end_wrong, beginning_wrong, queue_gone, *FOREIGN),
    *(tables_gone, tables_cut, table_flipped, table_zeroed, current_gone, manifest_cut),
)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(root: Path, damage: Damage) -> None:
    """Rows are as before, a second run finds nothing, and undo brings back every byte of the damage."""
    wanted = rows_of(root / "consumequeue")
    damage(root)
    before = tree(root)
    plan = rebuilt(opened(root), options())
    assert plan.changed_queues or damage in FOREIGN
    assert {queue.kind for queue in plan.queues} == {"rocksdb"}
    assert rows_of(root / "consumequeue") == wanted
    assert make_plan(open_source(opened(root), options())).is_empty
    undo(root, SYSTEM)
    assert tree(root) == before


@pytest.mark.parametrize(
    ("damage", "difference"),
    [(row_missing, (1, 0, 0)), (row_wrong, (0, 1, 0)), (row_too_many, (0, 0, 1)), (end_wrong, (0, 1, 0))],
)
def test_differences_are_counted(root: Path, damage: Damage, difference: tuple[int, int, int]) -> None:
    """Rows missing, wrong and too many, of the one queue that has them."""
    damage(root)
    (queue,) = make_plan(open_source(opened(root), options())).changed_queues
    assert (queue.name.topic, queue.name.queue_id) == ("orders", 1)
    found = queue.difference
    assert (found.added, found.changed, found.dropped) == difference


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("damage", FOREIGN)
def test_rows_of_no_queue(root: Path, damage: Damage) -> None:
    """They alone make a repair write the database again, which says so; the verdict is clean then."""
    damage(root)
    options = ("--broker-version", "5.5.0", "--json")
    assert "consumequeue.row" in str(rmqtool("verify", root, *options).document["findings"])
    done = rmqtool("repair", root, "--yes", *options)
    assert done.document["result"]["state"] == "done"
    assert "consumequeue.row" not in str(rmqtool("verify", root, *options).document["findings"])


@pytest.mark.slow
def test_one_topic(root: Path) -> None:
    """The other queues are carried over, damaged as they are."""
    wanted = rows_of(root / "consumequeue")
    row_missing(root)
    with changed(root / "consumequeue") as families:
        del families["default"][unit_key("payments", 0, 1)]
        del families["offset"][DISPATCHED_KEY]
    rebuilt(opened(root), options(NAME, "orders"))

    del wanted["default"][unit_key("payments", 0, 1)]
    wanted["offset"][DISPATCHED_KEY] = bytes(8)  # what others lack is dispatched at the next start
    assert rows_of(root / "consumequeue") == wanted


@pytest.mark.slow
def test_one_topic_of_a_damaged_database(root: Path) -> None:
    """Refused where the rows of the others would be lost."""
    table_flipped(root)
    before = tree(root)
    codes = {finding.code for finding in make_plan(open_source(opened(root), options())).findings}
    assert codes == {"rebuild.rocksdb-unreadable"}
    with pytest.raises(UnreadableError, match="RocksDB cannot read it"):
        rebuilt(opened(root), options(NAME, "orders"))
    assert tree(root) == before


@pytest.mark.slow
def test_queues_of_which_the_log_holds_nothing(root: Path) -> None:
    """They stay: groups have committed offsets of them."""
    wanted = rows_of(root / "consumequeue")
    row_missing(root)
    more = {unit_key("gone", 2, offset): unit_value(1 << 40, 100, 0, 0) for offset in (8, 9)}
    with changed(root / "consumequeue") as families:
        for key, value in more.items():
            families["default"][key] = value
        families["offset"][max_key("gone", 2)] = end_value(1 << 40, 9)
    rebuilt(opened(root), options())

    found = rows_of(root / "consumequeue")
    assert found["default"] == wanted["default"] | more
    assert found["offset"] == wanted["offset"] | {max_key("gone", 2): end_value(1 << 40, 9)}


def again(root: Path, system: System) -> None:
    rebuilt(opened(root), options(), system)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill-before", "kill-after", "fail-once", "full-on"])
def test_faults(root: Path, tmp_path: Path, fault: Fault) -> None:
    """Cut at a sample of its calls, or without space: the store is as before, or done and can be undone."""
    wanted = rows_of(root / "consumequeue")
    row_missing(root)
    before = tree(root)
    template = copied(root, tmp_path / "template")
    counted, _ = run_with(SYSTEM, None, -1, partial(again, template))
    calls = points(counted.names, fault)
    outcomes = set()
    for at in calls[:: len(calls) // 6]:
        copy = copied(root, tmp_path / f"copy-{at}")
        _, outcome = run_with(SYSTEM, fault, at, partial(again, copy))
        recover(copy, SYSTEM)
        outcomes.add(outcome)
        if tree(copy) != before:
            assert rows_of(copy / "consumequeue") == wanted
            undo(copy, SYSTEM)
        assert tree(copy) == before
        shutil.rmtree(copy)
    assert outcomes - {"done"}


def test_without_the_library(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the line that installs it."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match="needs the package rocksdict") as raised:
        open_source(opened(root), options())
    assert raised.value.hint == "pip install 'rmqtool[rocksdb]'"
    shutil.rmtree(root / "consumequeue")
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnsupportedError, match="needs the package rocksdict"):
        rebuilt(opened(root), options())


@pytest.mark.slow
def test_delays_that_no_row_shows(root: Path) -> None:
    """Without broker.conf nothing is written: delayed messages would come at other times."""
    tables_gone(root)
    before = tree(root)
    for command in ("rebuild-cq", "repair"):
        refused = rmqtool(command, root, "--yes", "--broker-version", "5.5.0")
        assert refused.status == Exit.USAGE
        assert "messageDelayLevel" in refused.err
    assert tree(root) == before


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[LogBuilder], Store]:
    """Opens a store that has nothing but a log; its units come a few at a time."""
    monkeypatch.setattr(derive, "_FEW_UNITS", 4)
    monkeypatch.setattr(derive, "_UNITS_PER_QUEUE", 1)
    return lambda log: opened(log.write(tmp_path / "built"))


def offsets_of(store: Store) -> list[int]:
    return [int.from_bytes(key[-8:], "big") for key in rows_of(store.root / "consumequeue")["default"]]


@pytest.mark.parametrize("begins_again_at", [0, 2, 5])
def test_a_queue_that_began_again(built: Callable[[LogBuilder], Store], begins_again_at: int) -> None:
    """The later messages count; rows of the earlier ones after them are taken out."""
    offsets = [*range(12), *range(begins_again_at, 9)]
    store = built(LogBuilder().add_all({"queue_offset": offset} for offset in offsets))
    rebuilt(store, options())
    assert offsets_of(store) == [*range(9)]
    assert make_plan(open_source(store, options())).is_empty


def test_rows_below_the_log(built: Callable[[LogBuilder], Store]) -> None:
    """They are no difference, for a broker never serves them; a new database is without them."""
    store = built(LogBuilder().add_all({"queue_offset": offset} for offset in range(60)))
    rebuilt(store, options())
    min((store.root / "commitlog").iterdir()).unlink()
    assert make_plan(open_source(store, options())).is_empty
    with changed(store.root / "consumequeue") as families:
        del families["default"][unit_key("orders", 0, 50)]
    (queue,) = rebuilt(store, options()).changed_queues
    assert (queue.difference.added, queue.difference.dropped) == (1, 0)
    assert offsets_of(store) == [*range(queue.min_offset, 60)]
    assert 0 < queue.min_offset < 50


@pytest.mark.parametrize("name", [NAME, "more/5.4.0-rocksdb-twice"])
def test_lost_messages_are_recorded(built: Callable[[LogBuilder], Store], name: str) -> None:
    """A row in place of each keeps the offsets of the others; the record counts each once."""
    store = opened(built(LogBuilder().add_all({"queue_offset": offset} for offset in range(20))).root, name)
    rebuilt(store, options())
    values = rows_of(store.root / "consumequeue")["default"]
    lost = int.from_bytes(values[unit_key("orders", 0, 7)][:8], "big")
    with min((store.root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(lost)
        file.write(bytes([0x55] * 60))
    rebuilt(store, options())
    assert offsets_of(store) == [*range(20)]
    (recorded,) = recorded_losses(store.root)
    assert recorded.loss is not None
    assert recorded.loss.messages == {"orders": 1}


def test_rows_before_the_first(built: Callable[[LogBuilder], Store]) -> None:
    """A broker serves them, though they lead to other messages: they are too many."""
    store = built(LogBuilder().add_all({"queue_offset": offset} for offset in range(5, 20)))
    rebuilt(store, options())
    with changed(store.root / "consumequeue") as families:
        for offset in (3, 4):
            families["default"][unit_key("orders", 0, offset)] = unit_value(0, 100, 0, 0)
    (queue,) = rebuilt(store, options()).changed_queues
    assert queue.difference.dropped == 2
    assert offsets_of(store) == [*range(5, 20)]


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("files_gone", [False, True])
def test_rows_beside_files(built: Callable[[LogBuilder], Store], first: int, trimmed: bool, files_gone: bool) -> None:
    """What files hold before the first message, filler and units below the log, is in no row."""
    log = LogBuilder().add_all({"queue_offset": offset} for offset in range(first, 60))
    store = opened(built(log).root, "more/5.4.0-rocksdb-twice")
    rebuilt(store, options())
    if trimmed:
        min((store.root / "commitlog").iterdir()).unlink()
    with changed(store.root / "consumequeue") as families:
        del families["default"][unit_key("orders", 0, 50)]
    if files_gone:
        shutil.rmtree(store.root / "consumequeue" / "orders")
    plan = rebuilt(store, options())
    (least,) = (queue.min_offset for queue in plan.queues if queue.kind == "rocksdb")
    assert (least > first) if trimmed else (least == first)
    assert offsets_of(store) == [*range(least, 60)]
    with RocksDb(store.root / "consumequeue") as database:
        assert database.left_over == []
    assert (store.root / "consumequeue" / "orders" / "0").is_dir()
    assert make_plan(open_source(opened(store.root, "more/5.4.0-rocksdb-twice"), options())).is_empty


@pytest.mark.slow
def test_what_is_written_is_read_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that keeps other bytes than were written: the store stays as it was."""
    row_missing(root)
    before, copy = tree(root), StagedFile.copy

    def wrong(self: StagedFile, source: Path) -> None:
        copy(self, source)
        if self.name.endswith(".sst"):
            self.write(b"\xff" * 8, 8)

    monkeypatch.setattr(StagedFile, "copy", wrong)
    with pytest.raises(UnwritableError, match="differ from those written"):
        rebuilt(opened(root), options())
    assert tree(root) == before


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_repair(root: Path, tmp_path: Path, damage: Damage) -> None:
    """`rmqtool repair` carries it out, and nothing is left of the damage."""
    wanted = rows_of(root / "consumequeue")
    damage(root)
    before = tree(root)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in {**SHOP_SETTINGS, **ROCKSDB[NAME]}.items()))
    options = ("--broker-version", "5.5.0", "--broker-conf", conf)
    rmqtool("repair", root, "--yes", *options)
    assert rows_of(root / "consumequeue") == wanted
    planned = rmqtool("repair", root, "--dry-run", "--json", *options)
    assert planned.document["result"]["state"] == "nothing"
    assert rmqtool("undo", root, "--yes").status == Exit.OK
    assert tree(root) == before


@pytest.mark.slow
def test_as_a_command(root: Path) -> None:
    """Plan, rebuild, nothing more to do, undo."""
    row_missing(root)
    before = tree(root)
    version = ("--broker-version", "5.5.0")
    planned = rmqtool("rebuild-cq", root, "--dry-run", *version)
    assert planned.out.splitlines()[0] == "0 queues to create, 1 to replace, 21 kept"
    done = rmqtool("rebuild-cq", root, "--yes", "--json", *version)
    assert (done.status, done.document["result"]["state"]) == (Exit.OK, "done")
    (queue,) = (queue for queue in done.document["result"]["queues"] if queue["action"] != "keep")
    assert (queue["kind"], queue["topic"], queue["added"]) == ("rocksdb", "orders", 1)
    again = rmqtool("rebuild-cq", root, "--yes", "--json", *version)
    assert again.document["result"]["state"] == "nothing"
    assert rmqtool("undo", root, "--yes").status == Exit.OK
    assert tree(root) == before
