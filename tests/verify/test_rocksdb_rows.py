"""Topics, groups, offsets, index, timers, half messages and POP records in RocksDB: clean, or each fault is found."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rmqtool.base.errors import Exit
from rmqtool.formats.rocksdb_log import crc32c, first_damage
from rmqtool.formats.rocksdb_rows import config_offset_row
from rmqtool.rebuild.staged import write_database
from rmqtool.store.rocksdb import RocksDb
from tests.changed_rocksdb import add_family, changed
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import ROCKSDB
from tests.half_store import HalfStore
from tests.store.other_process import ROCKSDB as HELD
from tests.store.other_process import another_process
from tests.verify.verifying import codes_of, only, verify

SIDE = "more/5.5.0-rocksdb-side"
CLEAN = [name for name in ROCKSDB if not name.endswith(("-twice", "-selected"))]
CONFIGS = ("topics", "subscriptionGroups", "consumerOffsets")
V1 = "more/5.5.0-rocksdb"
SINGLE, SECOND = "more/5.5.0-rocksdb-single", "more/5.5.0-rocksdb-second-config"
Damage = Callable[[Path], None]


@pytest.fixture
def copy_of(unpacked: GoldenStore, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden store, to be damaged."""
    return lambda name: copied(unpacked(name), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rocksdbstore", "kvStore"])
def test_a_directory_without_its_database(copy_of: Callable[[str], Path], place: str) -> None:
    """An empty one is no sound one, whatever it held; where there is none, nothing shows that there was one."""
    root = copy_of(SIDE)
    for path in (root / place).iterdir():
        path.unlink()
    [damaged] = [each for each in verify(root).findings if each.code == "store.rocksdb-damaged"]
    assert (damaged.file, damaged.message[:22]) == (place, "the directory is empty")


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_sound_stores_are_clean(name: str, golden_store: GoldenStore) -> None:
    """Nothing is left that this version does not read."""
    outcome = verify(golden_store(name))
    assert (outcome.verdict, codes_of(outcome)) == ("clean", set())
    if name == SIDE:
        checked = outcome.report.checked
        assert (checked["index.row"], checked["index.row-missing"], checked["timer.row"]) == (457, 455, 5)
    else:
        assert outcome.report.checked["config.row"] > 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "databases"),
    [
        (V1, [f"config/{name}" for name in CONFIGS]),
        (SINGLE, ["config/metadata"]),
        (SECOND, ["config/rdb"]),
        (SIDE, ["rocksdbstore"]),
        ("5.5.0-shop", []),
    ],
)
def test_a_running_broker_leaves_rows_unchecked(
    copy_of: Callable[[str], Path], name: str, databases: list[str]
) -> None:
    """The verdict names the databases; one without rows is nothing that is left out."""
    store = copy_of(name)
    with another_process(store / "rocksdbstore" / "LOCK", HELD):
        outcome = verify(store)
        index = verify(store, selection=only("index.row"))
    gaps = {gap.what.removeprefix("the rows of "): gap for gap in outcome.gaps if gap.why == "changed"}
    assert sorted(gaps) == sorted(databases)
    assert (outcome.verdict, outcome.status) == (("unproven", 3) if databases else ("clean", 0))
    assert [gap.what for gap in index.gaps if gap.why == "changed"] == ["the rows of rocksdbstore"] * (name == SIDE)
    assert all(gap.hides("config.row") for what, gap in gaps.items() if what.startswith("config/"))


def tables(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.sst"))


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[12] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("damage", [gone, cut, flipped])
@pytest.mark.parametrize("place", [f"config/{name}" for name in CONFIGS])
def test_damaged_tables_of_the_configuration(copy_of: Callable[[str], Path], place: str, damage: Damage) -> None:
    """Each table, one at a time."""
    root = copy_of(V1)
    for number in range(len(tables(root / place))):
        path = tables(root / place)[number]
        before = path.read_bytes()
        damage(path)
        outcome = verify(root)
        assert outcome.verdict == "corrupt"
        found = [finding for finding in outcome.findings if finding.code == "config.rocksdb-damaged"]
        assert {finding.file for finding in found} == {place}
        path.write_bytes(before)
    assert verify(root).verdict == "clean"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000005"])
@pytest.mark.parametrize("place", ["config/consumerOffsets", "config/topics"])
def test_what_names_the_tables(copy_of: Callable[[str], Path], place: str, name: str) -> None:
    """Without it, or with a short one, no row or too few are read."""
    root = copy_of(V1)
    path = root / place / name
    before = path.read_bytes()
    path.unlink()
    told = [finding for finding in verify(root).findings if finding.code == "config.rocksdb-damaged"]
    assert [finding.message.count("RocksDB cannot read it") for finding in told][:2] in ([1], [1, 0])
    path.write_bytes(before[: len(before) // 2])
    assert "config.rocksdb-damaged" in codes_of(verify(root))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("content", [None, b"", b"\xff" * 40, b"MANIFEST-000777\n"])
@pytest.mark.parametrize(
    ("name", "place"), [(V1, "config/topics"), (SINGLE, "config/metadata"), (SIDE, "rocksdbstore")]
)
def test_a_lost_current_is_written_anew(
    copy_of: Callable[[str], Path], name: str, place: str, content: bytes | None
) -> None:
    """There is one MANIFEST: the command of the plan heals the store, and nothing is moved away."""
    root = copy_of(name)
    current = root / place / "CURRENT"
    current.unlink()
    if content is not None:
        current.write_bytes(content)
    result = rmqtool("verify", root, "--json").document["result"]
    step = result["plan"]["steps"][0]
    assert "move it away" not in step["text"]
    assert result["plan"]["remaining"] == []
    subprocess.run(["sh", "-c", step["command"]], check=True)
    assert verify(root).verdict == "clean"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["second manifest", "sound"])
def test_what_current_named_is_not_known(copy_of: Callable[[str], Path], damage: str) -> None:
    """Of two MANIFEST files either may be the one; with a sound CURRENT something else is wrong."""
    root = copy_of(V1)
    manifest = next((root / "config" / "topics").glob("MANIFEST-*"))
    if damage == "sound":
        manifest.write_bytes(b"")
    else:
        shutil.copy(manifest, manifest.with_name("MANIFEST-000001"))
        manifest.with_name("CURRENT").unlink()
    found = [finding for finding in verify(root).findings if finding.code == "config.rocksdb-damaged"]
    assert [finding.remedy for finding in found] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["rocksdbstore"])
@pytest.mark.parametrize("damage", [gone, cut, flipped])
def test_damaged_tables_of_index_and_timers(copy_of: Callable[[str], Path], place: str, damage: Damage) -> None:
    """Each table, one at a time."""
    root = copy_of(SIDE)
    for number in range(len(tables(root / place))):
        path = tables(root / place)[number]
        before = path.read_bytes()
        damage(path)
        assert "store.rocksdb-damaged" in codes_of(verify(root))
        path.write_bytes(before)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000005"])
def test_timers_of_a_database_that_does_not_open(copy_of: Callable[[str], Path], name: str) -> None:
    """They are still there, and not in the timer log: nothing says that they would come twice."""
    root = copy_of(SIDE)
    (root / "rocksdbstore" / name).unlink()
    assert codes_of(verify(root)) == {"store.rocksdb-damaged"}


@pytest.mark.parametrize(
    ("database", "family", "key", "value", "why"),
    [
        ("topics", "default", b"orders", b"{", "not JSON"),
        ("topics", "default", b"other", b'{"topicName":"orders"}', "its topicName is 'orders'"),
        ("subscriptionGroups", "default", b"desk", b'{"groupName":"x"}', "its groupName is 'x'"),
        ("consumerOffsets", "default", b"orders@desk", b'{"offsetTable":{"0":"5"}}', "no offset of queue '0'"),
        ("consumerOffsets", "default", b"orders", b'{"offsetTable":{}}', "no topic and group"),
        ("topics", "kvDataVersion", b"kvDataVersionKey", b"{}", "a version without a counter"),
    ],
)
def test_rows_of_the_configuration(
    copy_of: Callable[[str], Path], database: str, family: str, key: bytes, value: bytes, why: str
) -> None:
    """A row that no broker writes, of each table."""
    root = copy_of(V1)
    with changed(root / "config" / database) as families:
        families[family][key] = value
    messages = [finding.message for finding in verify(root).findings if finding.code == "config.row"]
    assert len(messages) == 1
    assert why in messages[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "database"), [(SINGLE, "metadata"), (SECOND, "rdb")])
def test_rows_of_other_places(copy_of: Callable[[str], Path], name: str, database: str) -> None:
    """One database for all, and version 2."""
    root = copy_of(name)
    with changed(root / "config" / database) as families:
        if name == SINGLE:
            families["consumerOffset"][b"a@b"] = b"[]"
        else:
            families["default"][b"\x01\x00\x03\x02\x00\x06orders"] = b"\x02{}"
    assert "config.row" in codes_of(verify(root))


@pytest.mark.slow
def test_a_swapped_offset(copy_of: Callable[[str], Path]) -> None:
    """As `assignResetOffset` of version 2 leaves it: no fault of the store."""
    root = copy_of(SECOND)
    with changed(root / "config" / "rdb") as families:
        key, value = config_offset_row("orders", "desk", 0, 3)
        families["default"][key] = value
    outcome = verify(root)
    assert "config.swapped-offset" in codes_of(outcome, info=True)
    assert outcome.verdict == "clean"


@pytest.mark.parametrize(
    ("place", "family", "key", "value", "code"),
    [
        ("rocksdbstore", "default", bytes(8) + b"@orders@U@no@" + (7).to_bytes(8, "big"), bytes(8), "index.row"),
        ("rocksdbstore", "default", bytes(8) + b"@orders@X@no@" + bytes(8), bytes(8), "index.row"),
        ("rocksdbstore", "timer", bytes(8) + b"KEY", (9).to_bytes(4, "big") + bytes(8), "timer.row"),
        ("rocksdbstore", "trans", (25667).to_bytes(8, "big") + b"@a@b", bytes(8), "store.half-row"),
        (
            *("kvStore", "popState"),
            bytes(8) + b"desk@orders@" + bytes(4) + b"@" + (1 << 30).to_bytes(8, "big"),
            *(b"{}", "store.pop-row"),
        ),
    ],
)
def test_rows_that_lead_to_no_message(
    copy_of: Callable[[str], Path], place: str, family: str, key: bytes, value: bytes, code: str
) -> None:
    """Of another form, or of a message that is not there."""
    root = copy_of(SIDE)
    with changed(root / place) as families:
        families[family][key] = value
    assert codes_of(verify(root)) == {code}


def test_rows_of_half_messages_that_are_gone(tmp_path: Path) -> None:
    """A start after a clean stop makes none; where RocksDB has come some way, it makes those after that."""
    builder = HalfStore()
    outcome = verify(builder.with_rows(tmp_path / "gone", None))
    (finding,) = (each for each in outcome.findings if each.code == "store.half-rows-missing")
    assert (finding.details["half_messages"], finding.queue_offset) == (4, 0)
    assert outcome.clients
    assert outcome.clients.half_messages_unchecked == 4
    assert "store.half-rows-missing" not in codes_of(verify(builder.with_rows(tmp_path / "some", 2)))


@pytest.mark.slow
def test_rows_that_are_missing(copy_of: Callable[[str], Path]) -> None:
    """Each row of the index after the first, and each timer that waits."""
    root = copy_of(SIDE)
    with RocksDb(root / "rocksdbstore") as database:
        indexed = [key for key, _ in database.rows("default") if not key.startswith(b"last")]
        timed = [key for key, _ in database.rows("timer") if not key.startswith((b"sys", b"timeline"))]
    lost = sorted(indexed, key=lambda key: key[-8:])[-40:]
    with changed(root / "rocksdbstore") as families:
        for key in lost:
            del families["default"][key]
        for key in timed:
            del families["timer"][key]
    outcome = verify(root)
    counts = {finding.code: 0 for finding in outcome.findings}
    for finding in outcome.findings:
        counts[finding.code] += finding.count
    assert counts["index.row-missing"] == 40
    assert counts["timer.row-missing"] == len(timed) - 1  # one was delivered before the broker stopped


@pytest.mark.parametrize(
    ("name", "place", "version", "codes"),
    [
        (SIDE, "rocksdbstore", "5.5.0", {"store.rocksdb-damaged"}),
        (SIDE, "kvStore", "5.5.0", {"store.rocksdb-damaged"}),
        (V1, "consumequeue", "5.5.0", {"consumequeue.database"}),
        (SECOND, "config/rdb", "5.5.0", {"config.rocksdb-damaged"}),
        ("more/5.3.3-rocksdb", "config/topics", "5.3.3", {"config.rocksdb-damaged"}),
        (V1, "config/topics", "5.5.0", set()),
        (SINGLE, "config/metadata", "5.5.0", set()),
    ],
)
def test_a_column_family_that_no_broker_knows(
    copy_of: Callable[[str], Path], name: str, place: str, version: str, codes: set[str]
) -> None:
    """RocksDB does not open the database then, but for those who open all that there are."""
    root = copy_of(name)
    add_family(root / place, "foreign")
    outcome = verify(root, version=version)
    assert codes_of(outcome) == codes
    assert all("column family foreign is one that no broker names" in finding.message
               for finding in outcome.findings if finding.severity == "error")  # fmt: skip


@pytest.mark.slow
def test_queues_beside_a_column_family_that_no_broker_knows(copy_of: Callable[[str], Path]) -> None:
    """They are written again from the log, into a database of their own."""
    root = copy_of(V1)
    add_family(root / "consumequeue", "foreign")
    conf = root.parent / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\nmessageDelayLevel=" + "1s " * 16 + "30m 2h\n")
    done = rmqtool("repair", root, "--yes", "--broker-version", "5.5.0", "--broker-conf", conf)
    assert done.status == Exit.OK, done.out
    assert verify(root, version="5.5.0").verdict == "clean"


@pytest.mark.parametrize("place", ["config/topics", "consumequeue"])
def test_a_file_that_is_no_table_by_its_name(copy_of: Callable[[str], Path], place: str) -> None:
    """A table has a number for a name: RocksDB looks at no other file."""
    root = copy_of(V1)
    table = tables(root / place)[0]
    shutil.copy(table, table.with_name("copy of a table.sst"))
    outcome = verify(root)
    assert (outcome.verdict, codes_of(outcome)) == ("clean", set())
    assert "consumequeue.left-over-table" not in codes_of(outcome, info=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), [(SIDE, "kvStore"), (V1, "config/topics"), (SINGLE, "config/metadata")])
def test_a_file_in_place_of_a_database(copy_of: Callable[[str], Path], name: str, place: str) -> None:
    """No broker opens it; a repair moves it away, and what was in the database is not there then."""
    root = copy_of(name)
    shutil.rmtree(root / place)
    (root / place).write_text("a note")
    found = {finding.file for finding in verify(root).findings if finding.code == "store.wrong-kind"}
    assert found == {place}
    rmqtool("repair", root, "--yes", "--broker-version", "5.5.0")
    assert not (root / place).is_file()
    assert "store.wrong-kind" not in codes_of(verify(root))


def killed_database(directory: Path, rows: int) -> Path:
    """A database whose rows are in its write-ahead log alone; the log."""
    source = directory.with_name("open")
    opened = Rdict(str(source), Options(raw_mode=True))
    for number in range(rows):
        opened[f"topic-{number}".encode()] = b'{"topicName":"topic-%d","x":"%s"}' % (number, b"x" * 100)
    opened.flush_wal(True)
    copied(source, directory)
    opened.close()
    (directory / "LOCK").unlink(missing_ok=True)
    return max(directory.glob("*.log"), key=lambda path: path.stat().st_size)


@pytest.mark.slow
@pytest.mark.parametrize("at", [30, 2000])
def test_a_damaged_write_ahead_log(tmp_path: Path, copy_of: Callable[[str], Path], at: int) -> None:
    """RocksDB reads what is before the damage, and says nothing."""
    root = copy_of(V1)
    shutil.rmtree(root / "config" / "topics")
    path = killed_database(root / "config" / "topics", 600)
    assert "config.rocksdb-damaged" not in codes_of(verify(root))
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    found = [finding for finding in verify(root).findings if finding.code == "config.rocksdb-damaged"]
    assert found[0].offset is not None
    assert found[0].offset <= at
    (root / "abort").touch()
    assert "config.rocksdb-damaged" in codes_of(verify(root))  # records follow: no end that a kill has torn


@pytest.mark.slow
def test_the_end_that_a_kill_tears(copy_of: Callable[[str], Path]) -> None:
    """The last record of a killed broker's log is not whole: that is normal."""
    root = copy_of(V1)
    shutil.rmtree(root / "config" / "topics")
    path = killed_database(root / "config" / "topics", 20)
    path.write_bytes(path.read_bytes()[:-10])
    assert "config.rocksdb-damaged" in codes_of(verify(root))
    (root / "abort").touch()
    assert "config.rocksdb-damaged" not in codes_of(verify(root))
    (path.parent / "000900.log").touch()
    assert "config.rocksdb-damaged" not in codes_of(verify(root))  # nothing was written to the next log yet
    shutil.copy(path, path.parent / "000901.log")
    found = [finding for finding in verify(root).findings if finding.code == "config.rocksdb-damaged"]
    assert [finding.file for finding in found if finding.offset] == [f"config/topics/{path.name}"]


def test_a_log_by_its_records() -> None:
    """The checksum of RFC 3720, and a log that is allocated in advance."""
    assert crc32c(b"123456789") == 0xE3069283
    assert first_damage(b"") is None
    assert first_damage(bytes(100)) is None
    assert first_damage(b"\1" * 100) == 0


def test_a_database_of_ours(tmp_path: Path) -> None:
    """What a conversion writes has whole logs."""
    write_database(tmp_path / "new", {"default": {b"key": b"value"}, "more": {}})
    assert {first_damage(path.read_bytes()) for path in (tmp_path / "new").glob("*.log")} == {None}
