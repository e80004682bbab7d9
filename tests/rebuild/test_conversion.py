"""Stores converted between files and RocksDB: the rows, files and tables of a broker's own, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, UnreadableError, UsageError
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import RebuildOptions, Target
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.config_json import parse_fastjson
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from tests.building import LogBuilder
from tests.changed_rocksdb import (
    changed,
    current_gone,
    end_value,
    manifest_cut,
    max_key,
    rows_of,
    table_flipped,
    tables_gone,
    unit_key,
)
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import ROCKSDB
from tests.golden.stores import version_of
from tests.real_broker.harness import GEOMETRY, SHOP_SETTINGS
from tests.transaction.faults import Fault, points, recover, run_with
from tests.transaction.small import tree, undo
from tests.verify.verifying import verify

IN_ROCKSDB = "more/5.5.0-rocksdb"
TWICE = "more/5.5.0-rocksdb-twice"
V1 = {"configManagerVersion": "v1"}
Settings = Mapping[str, str]


def convert(
    root: Path, target: Target, settings: Settings, version: str | None = "5.5.0", system: System = SYSTEM
) -> RebuildPlan:
    conf = BrokerConf({**SHOP_SETTINGS, **GEOMETRY, **settings}, path="broker.conf")
    store = open_store(root, conf)
    options = RebuildOptions(frozenset(["queues"]), version=parse_version(version) if version else None, target=target)
    with Transaction(store, "rebuild-cq", system) as transaction:
        plan = make_plan(open_source(store, options))
        apply_plan(plan, transaction)
    return plan


def content_of(root: Path) -> dict[str, Any]:
    """What is in queues and tables, without times of files."""
    found: dict[str, Any] = {}
    for path in sorted([*(root / "consumequeue").rglob("*"), *(root / "config").rglob("*")]):
        if path.is_file() and path.suffix != ".bak":
            name, is_table = str(path.relative_to(root)), path.suffix == ".json"
            found[name] = parse_fastjson(path.read_text()) if is_table else path.read_bytes()
            for cache in ("groupTopicMap", "pullOffsetTable") if is_table else ():
                found[name].pop(cache, None)  # which no broker reads
    return found


@pytest.fixture
def copy_of(golden_store: GoldenStore, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden store, to be written to."""
    return lambda name: copied(golden_store(name), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/5.4.0-rocksdb-twice", TWICE])
@pytest.mark.parametrize("more", [{}, {"useSingleRocksDBForAllConfigs": "true"}, {"configManagerVersion": "v2"}])
def test_there_and_back(copy_of: Callable[[str], Path], name: str, more: Settings) -> None:
    """Rows as the broker wrote them; files and tables are the same after both ways, and each way is undone."""
    if "useSingleRocksDBForAllConfigs" in more and name != TWICE:
        pytest.skip("since 5.3.4")
    root, version = copy_of(name), version_of(name)
    rows = rows_of(root / "consumequeue")
    convert(root, "files", ROCKSDB[name], version)
    in_files, before = content_of(root), tree(root)
    convert(root, "rocksdb", more, version)
    assert rows_of(root / "consumequeue") == rows
    assert not [path for path in (root / "consumequeue").iterdir() if path.is_dir()]
    assert make_conversion_empty(root, "rocksdb", {**more, "storeType": "defaultRocksDB"}, version)
    undo(root, SYSTEM)
    assert tree(root) == before
    convert(root, "rocksdb", more, version)
    convert(root, "files", {**more, **V1}, version)
    assert content_of(root) == in_files


def make_conversion_empty(root: Path, target: Target, settings: Settings, version: str) -> bool:
    store = open_store(root, BrokerConf({**SHOP_SETTINGS, **GEOMETRY, **settings}, path="broker.conf"))
    options = RebuildOptions(frozenset(["queues"]), version=parse_version(version), target=target)
    return make_plan(open_source(store, options)).is_empty


EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
TABLE_FILES = {"topics.json": "topics", "subscriptionGroup.json": "groups", "consumerOffset.json": "offsets"}


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"useSingleRocksDBForAllConfigs": "true"}, {"configManagerVersion": "v2"}], ids=["own", "single", "v2"]
)
@pytest.mark.parametrize(
    "there", [set(), {"topics.json"}, {"consumerOffset.json"}, {"topics.json", "consumerOffset.json"}, {*TABLE_FILES}],
    ids=["none", "topics", "offsets", "no-groups", "all"],
)  # fmt: skip
def test_tables_that_are_not_there(tmp_path: Path, there: set[str], more: Settings) -> None:
    """They are named, verify finds the new store as sound as the old one, and the way back makes no file of them."""
    root = copied(EXAMPLE, tmp_path / "store")
    (root / "config" / "subscriptionGroup.json").write_text(
        '{"dataVersion":{"counter":1},"subscriptionGroupTable":{"billing":{"groupName":"billing"}}}'
    )
    for path in (root / "config").iterdir():
        if path.name not in there:
            path.unlink()
    before, verdict = content_of(root), verify(root).verdict
    settings = {"enableLmq": "false", **more}
    conversion = convert(root, "rocksdb", settings, "5.4.0").conversion
    assert conversion is not None
    assert list(conversion.absent) == [label for file, label in TABLE_FILES.items() if file not in there]
    assert make_conversion_empty(root, "rocksdb", {**settings, "storeType": "defaultRocksDB"}, "5.4.0")
    outcome = verify(root)
    assert verdict == ("clean" if {"topics.json", "consumerOffset.json"} <= there else "corrupt")
    if "configManagerVersion" not in more:  # version 2 does not have all topics
        assert outcome.verdict == verdict
    elif "consumerOffset.json" in there:
        assert outcome.verdict == "clean"
    convert(root, "files", {**settings, **V1}, "5.4.0")
    tables = {name for name in content_of(root) if name.startswith("config/")}
    assert tables == {f"config/{name}" for name in there}
    assert {**content_of(root), **before}.keys() == before.keys()


def test_tables_that_are_not_there_are_shown(tmp_path: Path) -> None:
    """In the text and in JSON."""
    root = copied(EXAMPLE, tmp_path / "store")
    command = ("rebuild-cq", root, "--to", "rocksdb", "--dry-run", "--broker-version", "5.4.0")
    assert "not in this store: groups; a broker begins with empty ones\n" in rmqtool(*command).out
    assert rmqtool(*command, "--json").document["result"]["conversion"]["absent"] == ["groups"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [current_gone, manifest_cut, table_flipped, tables_gone])
def test_out_of_a_damaged_database(copy_of: Callable[[str], Path], damage: Callable[[Path], None]) -> None:
    """The log gives all queues again."""
    root = copy_of(IN_ROCKSDB)
    convert(root, "files", ROCKSDB[IN_ROCKSDB])
    wanted = content_of(root)
    undo(root, SYSTEM)
    damage(root)
    convert(root, "files", ROCKSDB[IN_ROCKSDB])
    assert content_of(root) == wanted


def test_tables_that_cannot_be_read(copy_of: Callable[[str], Path]) -> None:
    """Offsets would be lost: nothing is written."""
    root = copy_of(IN_ROCKSDB)
    for path in (root / "config" / "consumerOffsets").iterdir():
        if path.suffix == ".sst" or (path.suffix == ".log" and path.stat().st_size):
            path.write_bytes(path.read_bytes()[:20])
    before = tree(root)
    with pytest.raises(UnreadableError, match=r"consumerOffset\.json, or what is in its place"):
        convert(root, "files", ROCKSDB[IN_ROCKSDB])
    assert tree(root) == before


@pytest.mark.slow
def test_files_of_before(copy_of: Callable[[str], Path]) -> None:
    """Queue files and JSON files from before a change to RocksDB count for nothing, and do not stay."""
    root = copy_of(IN_ROCKSDB)
    convert(root, "files", ROCKSDB[IN_ROCKSDB])
    wanted = content_of(root)
    undo(root, SYSTEM)
    left = root / "consumequeue" / "orders" / "0"
    left.mkdir(parents=True)
    (left / "00000000000000000600").write_bytes(b"\1" * 600)
    (root / "config" / "topics.json").write_text('{"dataVersion":{"counter":2},"topicConfigTable":{}}')
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@desk":{0:1}}}')
    convert(root, "files", ROCKSDB[IN_ROCKSDB])
    assert content_of(root) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("compacted", [False, True])
def test_ends_of_expired_queues(copy_of: Callable[[str], Path], compacted: bool) -> None:
    """Without a message in the log a queue goes on where it ended, in both worlds."""
    root = copy_of(TWICE)
    convert(root, "files", ROCKSDB[TWICE])
    convert(root, "rocksdb", {})
    log_begin = min((root / "commitlog").iterdir())
    log_begin.rename(log_begin.with_name(f"{1 << 16:020}"))  # every message is elsewhere now
    with changed(root / "consumequeue") as families:
        families["offset"][max_key("orders", 0)] = end_value(70, 1016)
        if not compacted:
            families["default"][unit_key("orders", 0, 1016)] = (
                (70).to_bytes(8, "big") + (123).to_bytes(4, "big") + bytes(16)
            )
    convert(root, "files", {"storeType": "defaultRocksDB"})
    loaded = Snapshot(open_store(root)).queue("orders", 0)
    assert loaded is not None
    assert (loaded.range.min_offset, loaded.range.max_offset) == (1017, 1017)
    (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
    last = path.read_bytes()[26 * 20 : 27 * 20]
    assert (int(path.name), int.from_bytes(last[:8], "big")) == (19800, 70)
    assert int.from_bytes(last[8:12], "big") == (91 if compacted else 123)
    assert path.read_bytes()[27 * 20 :] == bytes(60)
    convert(root, "rocksdb", {})
    with RocksDb(root / "consumequeue") as database:
        assert dict(database.rows("offset"))[max_key("orders", 0)] == end_value(70, 1016)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"enableLmq": "false"}, {"consumerOffset.json"}),
        ({"enableLmq": "true"}, {"lmqConsumerOffset.json"}),
    ],
)
def test_the_file_of_offsets(copy_of: Callable[[str], Path], settings: Settings, names: set[str]) -> None:
    """That which the broker reads; one that it no longer reads would count for others."""
    root = copy_of(IN_ROCKSDB)
    (root / "config" / "lmqConsumerOffset.json").write_text("{}")
    (root / "config" / "consumerOffset.json.bak").write_text("{}")
    plan = convert(root, "files", {**ROCKSDB[IN_ROCKSDB], **settings})
    offsets = {path.name for path in (root / "config").iterdir() if path.name.lower().find("consumeroffset") >= 0}
    assert offsets == names
    assert plan.conversion is not None
    assert ("enableLmq" in plan.conversion.settings) is (settings["enableLmq"] == "true")


def two_files_of_offsets(root: Path) -> None:
    convert(root, "files", ROCKSDB[TWICE])
    light = root / "config" / "lmqConsumerOffset.json"
    for path, offset, time in ((light, 7, 2_000_000_000), (light.with_name("consumerOffset.json"), 3, 1_000_000_000)):
        path.write_text(json.dumps({"offsetTable": {"orders@desk": {"0": offset}}}))
        os.utime(path, (time, time))


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "offset"), [({"enableLmq": "true"}, 7), ({"enableLmq": "false"}, 3)])
def test_two_files_of_offsets(copy_of: Callable[[str], Path], settings: Settings, offset: int) -> None:
    """`enableLmq` says which of them counts."""
    root = copy_of(TWICE)
    two_files_of_offsets(root)
    convert(root, "rocksdb", settings)
    with RocksDb(root / "config" / "consumerOffsets") as database:
        assert dict(database.rows("default")) == {b"orders@desk": b'{"offsetTable":{"0":%d}}' % offset}


@pytest.mark.slow
def test_doubtful_offsets(copy_of: Callable[[str], Path]) -> None:
    """Where nothing says it, the later one counts, and has to be the one that the tool reads."""
    root = copy_of(TWICE)
    two_files_of_offsets(root)
    os.utime(root / "config" / "consumerOffset.json", (3_000_000_000, 3_000_000_000))
    done = rmqtool("rebuild-cq", root, "--to", "rocksdb", "--yes", "--broker-version", "5.5.0")
    assert done.status == Exit.USAGE
    assert "consumerOffset.json is newer than lmqConsumerOffset.json" in done.err


@pytest.mark.slow
def test_light_offsets(copy_of: Callable[[str], Path]) -> None:
    """Offsets of light groups stand in a table of their own in the file, and in rows like all others."""
    root = copy_of(TWICE)
    convert(root, "files", ROCKSDB[TWICE])
    path = root / "config" / "lmqConsumerOffset.json"
    path.write_text('{"lmqOffsetTable":{"%LMQ%alice@%LMQ%alice":4},"offsetTable":{"orders@desk":{0:2,1:3}}}')
    convert(root, "rocksdb", {})
    with RocksDb(root / "config" / "consumerOffsets") as database:
        rows = dict(database.rows("default"))
    assert rows[b"%LMQ%alice@%LMQ%alice"] == b'{"offsetTable":{"0":4}}'
    convert(root, "files", {})
    found = json.loads(path.read_bytes())
    assert found["lmqOffsetTable"] == {"%LMQ%alice@%LMQ%alice": 4}
    assert found["offsetTable"] == {"orders@desk": {"0": 2, "1": 3}}


@pytest.mark.slow
def test_what_groups_may_not_read(copy_of: Callable[[str], Path]) -> None:
    """It is carried both ways where RocksDB has a place for it, and said where not."""
    root = copy_of(TWICE)
    convert(root, "files", ROCKSDB[TWICE])
    path = root / "config" / "subscriptionGroup.json"
    content = json.loads(path.read_bytes()) if path.read_text().isascii() else {}
    forbidden = {"desk": {"orders": 1}}
    path.write_text(json.dumps({**content, "forbiddenTable": forbidden}))
    assert not convert(root, "rocksdb", {}).findings
    convert(root, "files", {})
    assert json.loads(path.read_bytes())["forbiddenTable"] == forbidden
    found = convert(root, "rocksdb", {"configManagerVersion": "v2"}).findings
    assert [finding.code for finding in found] == ["rebuild.not-carried"]


@pytest.mark.slow
def test_batches_are_served_from_files(copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Also the last one, whose entry has its first queue offset only: as converted, and derived again."""
    root, conf = copy_of(IN_ROCKSDB), tmp_path / "broker.conf"
    convert(root, "files", {})
    conf.write_text("".join(f"{name}={value}\n" for name, value in {**SHOP_SETTINGS, **GEOMETRY}.items()))
    found = rmqtool("verify", root, "--broker-conf", conf, "--broker-version", "5.5.0", "--json").document["result"]
    assert (found["verdict"], found["start"]["clients"]["unreachable"]["messages"]) == ("clean", 0)
    shutil.rmtree(root / "batchconsumequeue/bulk")
    command = ("repair", root, "--yes", "--broker-conf", conf, "--broker-version", "5.5.0", "--json")
    document = rmqtool(*command).document
    proof = document["result"]["proof"]
    assert (proof["clients"]["unreachable"]["messages"], proof["more_lost"]) == (0, [])
    assert not [each["code"] for each in document["findings"] if each["severity"] != "info"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "version", "why"),
    [
        (IN_ROCKSDB, {}, "5.5.0", "bulk: topics with batch queues"),
        (TWICE, {}, "5.1.4", "5.1.4 keeps no queues in RocksDB"),
        (TWICE, {}, "5.3.1", "light queues, which have rows since 5.3.2 only"),
        (TWICE, {"useSingleRocksDBForAllConfigs": "true"}, "5.3.3", "that is since 5.3.4"),
        (TWICE, {"configManagerVersion": "v2"}, "5.3.1", "that is since 5.3.2"),
    ],
)
def test_refused(copy_of: Callable[[str], Path], name: str, settings: Settings, version: str, why: str) -> None:
    """What no broker of the release would serve is not written."""
    root = copy_of(name)
    convert(root, "files", ROCKSDB[name])
    before = tree(root)
    with pytest.raises(UsageError, match=why):
        convert(root, "rocksdb", settings, version)
    assert tree(root) == before


def test_release_is_needed(tmp_path: Path) -> None:
    """Nothing shows it in a store of files."""
    root = LogBuilder().add_all({"queue_offset": offset} for offset in range(5)).write(tmp_path / "store")
    with pytest.raises(UsageError, match="depends on its release"):
        convert(root, "rocksdb", {}, None)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["files", "rocksdb"])
@pytest.mark.parametrize("fault", ["kill-before", "fail-once", "full-on"])
def test_faults(copy_of: Callable[[str], Path], tmp_path: Path, target: Target, fault: Fault) -> None:
    """Cut at a sample of its calls: the store is as before, or converted as a whole and can be undone."""
    root, settings = copy_of(TWICE), ROCKSDB[TWICE]
    if target == "rocksdb":
        convert(root, "files", settings)
        settings = {}
    before = tree(root)
    template = copied(root, tmp_path / "template")
    counted, _ = run_with(SYSTEM, None, -1, lambda system: convert(Path(template), target, settings, system=system))
    calls, outcomes = points(counted.names, fault), set()
    for at in calls[:: len(calls) // 4]:
        copy = copied(root, tmp_path / f"copy-{at}")
        _, outcome = run_with(SYSTEM, fault, at, partial(_convert, copy, target, settings))
        recover(copy, SYSTEM)
        outcomes.add(outcome)
        if tree(copy) != before:
            assert make_conversion_empty(copy, target, {}, "5.5.0")
            undo(copy, SYSTEM)
        assert tree(copy) == before
        shutil.rmtree(copy)
    assert outcomes - {"done"}


def _convert(root: Path, target: Target, settings: Settings, system: System) -> None:
    convert(root, target, settings, system=system)


@pytest.mark.slow
def test_as_a_command(copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    """The plan shows what goes where and the settings; a saved plan is refused once the tables have changed."""
    root, plan, conf = copy_of(IN_ROCKSDB), tmp_path / "plan.json", tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in {**SHOP_SETTINGS, **GEOMETRY}.items()))
    given = ("--broker-version", "5.5.0", "--broker-conf", conf)
    shown = rmqtool("rebuild-cq", root, "--to", "files", "--save-plan", plan, *given)
    assert shown.status == Exit.OK
    assert "topics        24  config/topics              config/topics.json" in shown.out
    assert "set in broker.conf:\n  storeType=default\n  enableLmq=true" in shown.out
    version = root / "config" / "topics" / "CURRENT"
    os.utime(version, (1_000_000_000, 1_000_000_000))
    assert rmqtool("rebuild-cq", root, "--plan", plan, "--yes", *given).status != Exit.OK
    rmqtool("rebuild-cq", root, "--to", "files", "--save-plan", plan, *given)
    done = rmqtool("rebuild-cq", root, "--plan", plan, "--yes", *given)
    assert done.status == Exit.OK
    assert "set in broker.conf: storeType=default, enableLmq=true\n" in done.err
    assert f"next: rmqtool verify {root} --broker-version 5.5.0\n" in done.err
    assert rmqtool("verify", root, "--broker-version", "5.5.0").status == Exit.OK
    assert (root / "config" / "topics.json").exists()
    for options in (("--topic", "orders"), ("--neutralise",), ("--output", tmp_path / "out"), ("--plan", plan)):
        assert rmqtool("rebuild-cq", root, "--to", "files", *options, *given).status == Exit.USAGE


@pytest.mark.slow
@pytest.mark.parametrize("version", [(), ("--broker-version", "5.5.0")])
@pytest.mark.parametrize(
    ("name", "target", "place"),
    [(IN_ROCKSDB, "rocksdb", "RocksDB"), ("more/5.5.0-rocksdb-single", "rocksdb", "RocksDB"),
     ("5.5.0-shop", "files", "files")],
)  # fmt: skip
def test_already_there(
    copy_of: Callable[[str], Path], name: str, target: str, place: str, version: tuple[str, ...]
) -> None:
    """Nothing is left to do, whatever topics there are."""
    root = copy_of(name)
    before = tree(root)
    for how in ("--dry-run", "--yes"):
        done = rmqtool("rebuild-cq", root, "--to", target, how, *version)
        assert done.status == Exit.OK, done.err
        assert f"nothing to do: the store is in {place} already\n" in done.err
        assert "the broker needs in broker.conf:\n  storeType=default" in done.out
    assert tree(root) == before


@pytest.mark.slow
def test_undo_names_the_settings(copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    """With those of the conversion a broker would begin with empty queues."""
    root, conf = copy_of(TWICE), tmp_path / "broker.conf"
    for target, settings in (("files", ROCKSDB[TWICE]), ("rocksdb", {})):
        given = {**SHOP_SETTINGS, **GEOMETRY, **settings}
        conf.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        words = ("--broker-version", "5.5.0", "--broker-conf", conf)
        assert rmqtool("rebuild-cq", root, "--to", target, "--yes", *words).status == Exit.OK
    for target in ("rocksdb", "files"):
        undone = rmqtool("undo", root, "--yes")
        assert f"(rebuild-cq --to {target}) replaced" in undone.out
        assert f"also revert the broker.conf settings of rebuild-cq --to {target}\n" in undone.err


@pytest.mark.slow
def test_already_there_and_damaged(copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Then the database is made again, as without the option."""
    root, conf = copy_of(IN_ROCKSDB), tmp_path / "broker.conf"
    settings = {**SHOP_SETTINGS, **ROCKSDB[IN_ROCKSDB]}
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    given = ("--broker-version", "5.5.0", "--broker-conf", conf)
    tables_gone(root)
    done = rmqtool("rebuild-cq", root, "--to", "rocksdb", "--yes", *given)
    assert done.status == Exit.OK, done.err
    assert rmqtool("verify", root, *given).status == Exit.OK
    assert "revert the broker.conf" not in rmqtool("undo", root, "--yes").err


def test_tables_that_stay(copy_of: Callable[[str], Path]) -> None:
    """Where the form is the wanted one already, each table stays in the file that it is in."""
    found = rmqtool("rebuild-cq", copy_of("5.3.3-shop"), "--to", "files", "--dry-run")
    assert found.status == Exit.OK
    assert "config/lmqConsumerOffset.json  config/lmqConsumerOffset.json" in found.out
