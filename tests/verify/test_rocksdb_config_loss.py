"""Topics, groups and offsets that RocksDB has lost as a whole: found as in JSON, and never where nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rmqtool.base.errors import Exit
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.verify.outcome import Outcome
from tests.changed_rocksdb import changed, drop_family, empty_family
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.golden.rocksdb import ROCKSDB
from tests.verify.verifying import codes_of, verify

CONFIGS = ("topics", "subscriptionGroups", "consumerOffsets")
V1, SINGLE, SECOND = "more/5.5.0-rocksdb", "more/5.5.0-rocksdb-single", "more/5.5.0-rocksdb-second-config"
EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
ALL_GROUPS = "billing, desk, gifts, reminding"
MISSING = "config.missing"

pytestmark = pytest.mark.slow  # each verification opens ten databases


@pytest.fixture
def copy_of(unpacked: GoldenStore, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden store, to be damaged."""
    return lambda name: Path(shutil.copytree(unpacked(name), tmp_path / "store"))


def lost_in(outcome: Outcome) -> list[Finding]:
    return [finding for finding in outcome.findings if finding.code == MISSING]


def emptied(directory: Path) -> None:
    """A database as a broker makes it when it starts."""
    shutil.rmtree(directory, ignore_errors=True)
    Rdict(str(directory), Options(raw_mode=True)).close()
    for name in ("rocksdict-config.json", "LOG"):
        (directory / name).unlink(missing_ok=True)


@pytest.mark.parametrize("release", ["5.1.4", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_database_that_is_gone(copy_of: Callable[[str], Path], release: str, name: str) -> None:
    """The messages, and the other tables, show that there was one."""
    root = copy_of(f"more/{release}-rocksdb")
    shutil.rmtree(root / "config" / name)
    outcome = verify(root)
    [gone] = lost_in(outcome)
    assert gone.severity == ("warning" if name == "subscriptionGroups" else "error")
    assert (gone.file, gone.message.partition(",")[0]) == (f"config/{name}", "the database is not there")
    assert "the broker starts without" in (gone.effect or "")
    assert outcome.verdict == "corrupt"
    if name != "topics":
        assert gone.message.endswith(ALL_GROUPS)


@pytest.mark.parametrize(("name", "place", "family"), [(V1, "topics", "default"), (SINGLE, "metadata", "topic")])
def test_a_topic_whose_row_is_lost(copy_of: Callable[[str], Path], name: str, place: str, family: str) -> None:
    """The finding names the database, and the plan what people do: a repair writes no rows there."""
    root = copy_of(name)
    with changed(root / "config" / place) as families:
        for topic in (b"orders", b"%RETRY%billing"):
            del families[family][topic]
    found = {finding.topic: finding for finding in verify(root).findings if finding.code == "config.topic-missing"}
    assert found["%RETRY%billing"].message == f"config/{place} does not name it, and it has messages"
    others = {topic: finding.file for topic, finding in found.items() if topic != "%RETRY%billing"}
    assert others == ({"orders": "config/metadata"} if name == SINGLE else {})  # where the table was changed before
    shown = " ".join(rmqtool("verify", root).out.split())
    assert "a repair adds no rows to databases: create the topic again" in shown
    assert "queue None" not in shown
    assert "topics.json" not in shown


def without_retries(root: Path) -> None:
    """No topic of a group has messages or units any longer: what groups have is known from their table alone."""
    for log in (root / "commitlog").iterdir():
        data = log.read_bytes()
        for prefix in (b"%RETRY%", b"%DLQ%"):
            data = data.replace(prefix, b"x" * len(prefix))
        log.write_bytes(data)
    with changed(root / "consumequeue") as families:
        for family in families.values():
            for key in [key for key in list(family.keys()) if b"%RETRY%" in key or b"%DLQ%" in key]:
                del family[key]


def test_configured_groups_alone_show_lost_offsets(copy_of: Callable[[str], Path]) -> None:
    """As in JSON where consumerOffset.json is gone; the table of topics, with retry topics, does as well."""
    root = copy_of(V1)
    without_retries(root)
    assert lost_in(verify(root)) == []
    shutil.rmtree(root / "config" / "consumerOffsets")
    [gone] = lost_in(verify(root))
    assert (gone.severity, gone.message) == ("error", f"the database is not there, and 4 groups consumed: {ALL_GROUPS}")
    emptied(root / "config" / "subscriptionGroups")
    by_topics = {finding.file: finding.message for finding in lost_in(verify(root))}
    assert by_topics["config/consumerOffsets"] == gone.message


def test_groups_that_have_not_consumed_yet(copy_of: Callable[[str], Path]) -> None:
    """Their broker has made the database, or no column family for want of a row: nothing is lost."""
    root = copy_of(V1)
    without_retries(root)
    emptied(root / "config" / "consumerOffsets")
    assert lost_in(verify(root)) == []


@pytest.mark.parametrize("take", [drop_family, empty_family])
def test_a_column_family_of_groups_that_have_not_consumed_yet(
    copy_of: Callable[[str], Path], take: Callable[[Path, str], None]
) -> None:
    """It is made with the first offset."""
    root = copy_of(SINGLE)
    database = (root / "consumequeue_rocksdb").rename(root / "consumequeue")
    without_retries(root)
    database.rename(root / "consumequeue_rocksdb")
    take(root / "config" / "metadata", "consumerOffset")
    assert lost_in(verify(root)) == []


@pytest.mark.parametrize("groups", [(), ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER")])
def test_groups_that_each_broker_has(copy_of: Callable[[str], Path], groups: tuple[str, ...]) -> None:
    """They are no witnesses."""
    root = copy_of(V1)
    without_retries(root)
    with changed(root / "config" / "topics") as families:
        for key in [key for key in list(families["default"].keys()) if key.startswith((b"%RETRY%", b"%DLQ%"))]:
            del families["default"][key]
    with changed(root / "config" / "subscriptionGroups") as families:
        for key in [key for key in list(families["default"].keys()) if key.decode() not in groups]:
            del families["default"][key]
    shutil.rmtree(root / "config" / "consumerOffsets")
    assert [finding for finding in lost_in(verify(root)) if finding.file == "config/consumerOffsets"] == []


@pytest.mark.parametrize("is_brokers", [True, False])
def test_a_copy_of_one_database(copy_of: Callable[[str], Path], is_brokers: bool) -> None:
    """Files that only brokers write show that there were offsets; retry topics in the table of topics alone do not."""
    root = copy_of(V1)
    without_retries(root)
    for path in [path for path in (root / "config").iterdir() if path.name != "topics"]:
        if path.is_dir():
            shutil.rmtree(path)
        elif not is_brokers:
            path.unlink()
    files = {finding.file for finding in lost_in(verify(root))} - {"config/delayOffset.json"}
    assert files == ({"config/consumerOffsets", "config/subscriptionGroups"} if is_brokers else set())


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_offsets_that_a_killed_broker_has_not_written_yet(copy_of: Callable[[str], Path], how: str) -> None:
    """It writes them first after ten seconds: what is lost then is not proven, and that is said."""
    root = copy_of(V1)
    (shutil.rmtree if how == "gone" else emptied)(root / "config" / "consumerOffsets")
    (root / "abort").touch()
    outcome = verify(root)
    assert lost_in(outcome) == []
    [gap] = [gap.text for gap in outcome.gaps if gap.what == "committed offsets"]
    assert "there are none in config/consumerOffsets, which a broker that is killed within" in gap


def test_tables_in_json_beside_a_database(copy_of: Callable[[str], Path]) -> None:
    """A file counts where no database has its table; where broker.conf says so, databases are left over."""
    root = copy_of(V1)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@desk":{"0":5}}}')
    shutil.rmtree(root / "config" / "consumerOffsets")
    assert lost_in(verify(root)) == []
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    [empty] = lost_in(verify(root))
    assert (empty.file, empty.message) == ("config/consumerOffset.json", "it is empty, and 1 group consumed: billing")
    conf = BrokerConf({"storeType": "default"}, path="broker.conf")
    files = {finding.file for finding in lost_in(verify(root, conf=conf))}
    assert files == {f"config/{name}.json" for name in ("topics", "consumerOffset", "subscriptionGroup")}


@pytest.mark.parametrize("take", [drop_family, empty_family])
@pytest.mark.parametrize(
    ("family", "severity", "shown"),
    [
        ("topic", "error", "and the store has messages of 5 topics: bulk, orders, payments, reminders and 1 more"),
        ("subscriptionGroup", "warning", f"and the store has 4 groups: {ALL_GROUPS}"),
        ("consumerOffset", "error", "and 1 group consumed: billing"),
    ],
)
def test_a_lost_column_family(
    copy_of: Callable[[str], Path], take: Callable[[Path, str], None], family: str, severity: str, shown: str
) -> None:
    """The finding names database and family, and no step takes the database away, which has other tables."""
    root = copy_of(SINGLE)
    take(root / "config" / "metadata", family)
    [lost] = lost_in(verify(root))
    begin = f"its column family {family} is empty" if take is empty_family else f"it has no column family {family}"
    assert (lost.file, lost.severity, lost.message) == ("config/metadata", severity, f"{begin}, {shown}")
    done = rmqtool("repair", root, "--yes", "--json")
    plan = done.document["result"]["plan"]
    plan_text = " ".join([*(step["text"] for step in plan["steps"]), *plan["remaining"]])
    assert f"config/metadata, column family {family}: nothing else in the store shows its content" in plan_text
    assert "Do not move the database away" in plan_text
    assert "move it away" not in plan_text
    assert (root / "config" / "metadata" / "CURRENT").exists()
    assert [finding.message for finding in lost_in(verify(root))] == [lost.message]
    start = rmqtool("verify", root).out
    assert f"without the contents of config/metadata, column family {family}" in " ".join(start.split())


def test_lost_offsets_of_version_2(copy_of: Callable[[str], Path]) -> None:
    """Topics and groups in the same database are no part of the loss."""
    root = copy_of(SECOND)
    with changed(root / "config" / "rdb") as families:
        for key in [key for key in list(families["default"].keys()) if key.startswith(b"\x01\x00\x01")]:
            del families["default"][key]
    [lost] = lost_in(verify(root))
    assert (lost.file, lost.message) == (
        "config/rdb",
        "it has no table consumerOffset, and 1 group consumed: billing",
    )
    shown = rmqtool("repair", root, "--dry-run").out
    assert "config/rdb, table consumerOffset: nothing else" in shown
    assert "Stop the clients, then start the broker, and reset each group to its former position" in shown


@pytest.mark.parametrize(
    ("name", "conf", "places"),
    [
        (SINGLE, ROCKSDB[SINGLE], ["config/metadata"]),
        (SECOND, ROCKSDB[SECOND], ["config/rdb"]),
        (V1, ROCKSDB[V1], [f"config/{name}" for name in CONFIGS]),
        ("more/5.1.4-rocksdb", ROCKSDB["more/5.1.4-rocksdb"], [f"config/{name}" for name in CONFIGS]),
        (V1, {}, [f"config/{name}" for name in CONFIGS]),
        ("more/5.5.0-rocksdb-twice", {}, [f"config/{name}.json" for name in ("topics", "consumerOffset")]),
        (V1, {"storeType": "default"}, [f"config/{name}.json" for name in ("topics", "consumerOffset")]),
    ],
)
def test_no_table_is_left(copy_of: Callable[[str], Path], name: str, conf: dict[str, str], places: list[str]) -> None:
    """By broker.conf, or by queues that are in RocksDB alone, tables were in a database: a repair writes no files."""
    root = copy_of(name)
    for path in (root / "config").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name.startswith(("topics", "consumerOffset", "lmqConsumerOffset", "subscriptionGroup")):
            path.unlink()
    given = BrokerConf(conf, path="broker.conf") if conf else None
    lost = lost_in(verify(root, conf=given))
    assert {finding.file for finding in lost} - {"config/subscriptionGroup.json"} == set(places)
    if places[0].endswith(".json"):
        return
    assert all(finding.message.startswith("the database is not there, ") for finding in lost)
    file = root.parent / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**conf, "storeType": "defaultRocksDB"}.items()))
    shown = rmqtool("repair", root, "--dry-run", *(("--broker-conf", file) if conf else ())).out
    assert "topics.json" not in shown.replace("no readable topics.json", "")
    assert "Do not move the database away" not in shown


@pytest.mark.parametrize("left", ["metadata", "rdb", "topics"])
def test_an_empty_directory_shows_which_database_is_lost(copy_of: Callable[[str], Path], left: str) -> None:
    """Where broker.conf is not given."""
    root = copy_of("more/5.1.4-rocksdb")
    for name in CONFIGS:
        shutil.rmtree(root / "config" / name)
    (root / "config" / left).mkdir()
    assert f"config/{left}" in {finding.file for finding in lost_in(verify(root))}


@pytest.mark.parametrize("name", ["more/5.1.4-rocksdb", V1, SINGLE])
def test_without_the_library(name: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that cannot be read are not lost, and topics that they may name are not taken for unknown ones."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    outcome = verify(golden_store(name))
    assert (outcome.verdict, codes_of(outcome)) == ("unproven", set())


def test_groups_of_a_broker_that_was_killed(copy_of: Callable[[str], Path]) -> None:
    """It writes those that each broker has when it stops: a table without a row is none that is lost."""
    root = copy_of(V1)
    emptied(root / "config" / "subscriptionGroups")
    assert [finding.file for finding in lost_in(verify(root))] == ["config/subscriptionGroups"]
    (root / "abort").touch()
    assert lost_in(verify(root)) == []


def example_in_rocksdb(tmp_path: Path) -> Path:
    """The example store, which no whole broker has written and which has no groups, with its tables in RocksDB."""
    root = Path(shutil.copytree(EXAMPLE, tmp_path / "store"))
    command = ("rebuild-cq", root, "--to", "rocksdb", "--yes", "--broker-version", "5.4.0")
    assert rmqtool(*command).status == Exit.OK
    return root


def test_groups_that_a_killed_broker_has_not_written_yet(tmp_path: Path) -> None:
    """A broker makes the database when it starts, and is killed before its first write; else it has lost its own."""
    root = example_in_rocksdb(tmp_path)
    emptied(root / "config" / "subscriptionGroups")
    [lost] = lost_in(verify(root))
    assert (lost.severity, lost.file) == ("warning", "config/subscriptionGroups")
    (root / "abort").touch()
    assert lost_in(verify(root)) == []


@pytest.mark.parametrize(("name", "is_lost"), [("topics", True), ("consumerOffsets", True), ("nothing", False)])
def test_tables_of_a_store_that_no_whole_broker_has_written(tmp_path: Path, name: str, is_lost: bool) -> None:
    """Retries and delayed messages prove topics and offsets, nothing proves groups."""
    root = example_in_rocksdb(tmp_path)
    shutil.rmtree(root / "config" / name, ignore_errors=True)
    assert (MISSING in codes_of(verify(root))) is is_lost


def flipped(path: Path) -> None:
    """A bit of the first block of a table, which holds rows."""
    data = bytearray(path.read_bytes())
    data[10] ^= 0x10
    path.write_bytes(data)


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "garbage": lambda path: path.write_bytes(bytes(range(15))),
    "flipped": flipped,
    "a file": a_file,
    "gone": shutil.rmtree,
}
REFUSALS = [
    # As brokers of the releases were asked: any table that cannot be opened, and its newest version, end a start;
    # rows that cannot be read since 5.3.4.
    ("5.1.4-rocksdb", "subscriptionGroups/000009.sst", "emptied", True),
    ("5.1.4-rocksdb", "subscriptionGroups/000009.sst", "flipped", False),
    ("5.1.4-rocksdb", "consumerOffsets/MANIFEST-000005", "deleted", True),
    ("5.3.3-rocksdb", "consumerOffsets/000013.sst", "deleted", True),
    ("5.3.3-rocksdb", "consumerOffsets/000015.sst", "flipped", False),
    ("5.3.3-rocksdb", "subscriptionGroups/000013.sst", "flipped", False),  # an older version of the table
    ("5.3.3-rocksdb", "subscriptionGroups/000016.sst", "flipped", False),
    ("5.3.3-rocksdb", "subscriptionGroups/000017.sst", "flipped", True),
    ("5.3.3-rocksdb", "subscriptionGroups/000015.log", "garbage", False),
    ("5.3.3-rocksdb", "subscriptionGroups", "a file", True),
    ("5.3.3-rocksdb", "subscriptionGroups", "gone", False),
    ("5.5.0-rocksdb", "topics/CURRENT", "deleted", True),
    ("5.5.0-rocksdb", "subscriptionGroups/000012.sst", "flipped", False),  # an older version of the table
    ("5.5.0-rocksdb", "subscriptionGroups/000014.sst", "flipped", True),
    ("5.5.0-rocksdb", "consumerOffsets/000014.sst", "flipped", True),
    ("5.5.0-rocksdb-single", "metadata/000015.sst", "flipped", False),
    ("5.5.0-rocksdb-single", "metadata/000028.sst", "flipped", True),
    ("5.5.0-rocksdb-single", "metadata", "a file", True),
    ("5.5.0-rocksdb-second-config", "rdb/000009.sst", "flipped", True),
    ("5.5.0-rocksdb-second-config", "rdb", "gone", False),
]


@pytest.mark.parametrize(("store", "file", "damage", "refuses"), REFUSALS)
def test_starts_that_are_refused(
    store: str, file: str, damage: str, refuses: bool, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """A database of `config/` that a broker does not load; what it is without is no claim of the plan."""
    root = copy_of(f"more/{store}")
    DAMAGES[damage](root / "config" / file)
    outcome = verify(root, version=store[:5], conf=BrokerConf(ROCKSDB[f"more/{store}"]))
    assert outcome.clients is not None
    refusal = outcome.start and outcome.start.refusal
    assert (refusal is not None, outcome.clients.refuses is not None) == (refuses, refuses)
    if refusal:
        assert (refusal.cause, refusal.file) == ("database", f"config/{file.split('/', maxsplit=1)[0]}")
        given = tmp_path / "broker.conf"
        given.write_text("".join(f"{key}={value}\n" for key, value in ROCKSDB[f"more/{store}"].items()))
        document = rmqtool("verify", root, "--broker-version", store[:5], "--broker-conf", given, "--json").document
        assert document["result"]["plan"]["clients"] is None
        assert not any("start.refuses" in each for each in document["result"]["plan"]["remaining"])
