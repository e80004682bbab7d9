"""RocksDB databases of brokers: opened without a trace, read in ranges, and damage that is never the end of a queue."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from rocksdict import DBCompressionType, Options, Rdict

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnsupportedError, UnwritableError
from rmqtool.formats.rocksdb_rows import queue_prefix
from rmqtool.store import rocksdb
from rmqtool.store.rocksdb import DamagedDatabaseError, Databases, RocksDb, Table, fewest_rows
from tests.changed_rocksdb import unit_key, unit_value
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden.rocksdb import ROCKSDB
from tests.unchanged import unchanged

NAME = "more/5.5.0-rocksdb"
Rows = dict[str, list[tuple[bytes, bytes]]]


@pytest.fixture
def database(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A copy of the database of consume queues, to be damaged."""
    return copied(unpacked(NAME) / "consumequeue", tmp_path / "consumequeue")


def rows_of(path: Path) -> Rows:
    with RocksDb(path) as database:
        return {family: list(database.rows(family)) for family in database.families}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ROCKSDB))
def test_reading_leaves_no_trace(name: str, golden_store: GoldenStore) -> None:
    """Every database of every store: bytes, times, inodes and names stay, and rows come in order."""
    root = golden_store(name)
    databases = [path.parent for path in root.rglob("CURRENT")]
    assert databases
    for path in databases:
        with unchanged(path):
            rows = rows_of(path)
        assert all(found == sorted(found) for found in rows.values())


def test_no_links_are_left(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library sees is gone in the end, also where it cannot open it."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    assert rows_of(database)
    os.remove(database / "CURRENT")
    with pytest.raises(UnreadableError):
        rows_of(database)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_no_links_are_left_by_a_signal(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the library opens the database."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Rdict, "list_cf", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows_of(database)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_without_a_temporary_directory(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose file system is only read: the error says what is needed, and where it comes from."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(UnwritableError, match="temporary directory, and none can be made: No such file") as raised:
        rows_of(database)
    assert raised.value.hint == "name a directory for it, TMPDIR=DIR; in a container: --tmpfs /tmp"
    assert raised.value.file == str(database)


def test_a_range_is_of_one_queue(database: Path) -> None:
    """Rows with a prefix, from a key on."""
    everything = rows_of(database)["default"]
    prefix = queue_prefix(b"orders", 1)
    wanted = [row for row in everything if row[0].startswith(prefix)]
    with RocksDb(database) as opened:
        assert list(opened.rows("default", prefix)) == wanted
        assert list(opened.rows("default", prefix, prefix + (5).to_bytes(8, "big"))) == wanted[5:]
        assert list(opened.rows("default", queue_prefix(b"nobody"))) == []
    assert 10 < len(wanted) < len(everything)


def test_databases_stay_open_until_they_are_closed(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is opened once, and again after that; nothing is left of those that nobody holds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    databases = Databases()
    first = databases.opened(database)
    assert databases.opened(database) is first
    databases.close()
    assert [*tmp_path.glob("rmqtool-*")] == []
    assert [*databases.opened(database).rows("default")] == rows_of(database)["default"]
    assert len([*tmp_path.glob("rmqtool-*")]) == 1
    del databases
    assert [*tmp_path.glob("rmqtool-*")] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library's threads
def test_a_copy_of_the_process_leaves_open_what_it_has_not_opened(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are its links removed, nor is it read with threads that only the first process has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    databases = Databases()
    opened = databases.opened(database)
    assert vars(pickle.loads(pickle.dumps(databases))) == {"_opened": {}}
    if not (child := os.fork()):
        is_other = databases.opened(database) is not opened
        databases.close()
        os._exit(0 if is_other else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len([*tmp_path.glob("rmqtool-*")]) == 1
    assert databases.opened(database) is opened
    assert [*opened.rows("default")] == rows_of(database)["default"]


def test_without_the_library(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the line that installs it."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnsupportedError, match="needs the package rocksdict") as raised:
        rows_of(database)
    assert raised.value.hint == "pip install 'rmqtool[rocksdb]'"


def test_a_file_that_vanishes_is_looked_for_again(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker has deleted a table between listing and opening; the next listing has what replaced it."""
    expected, table, away = rows_of(database), next(iter(database.glob("*.sst"))), database.parent / "away"
    table.rename(away)
    names_of = RocksDb._names
    listings: list[list[str]] = []

    def names(self: RocksDb) -> list[str]:
        if len(listings) == 1:
            away.rename(table)
        listings.append(names_of(self))
        return listings[-1]

    monkeypatch.setattr(RocksDb, "_names", names)
    assert rows_of(database) == expected
    assert len(listings) == 3


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("how", ["gone", "empty", "cut"])
def test_damage_is_a_sentence(name: str, how: str, database: Path) -> None:
    """A missing, empty or cut file is an error that names the database, never fewer rows without a word."""
    expected = rows_of(database)
    path = max(database.glob(name))
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if how == "empty" else path.stat().st_size // 2)
    with pytest.raises(UnreadableError) as raised:
        assert rows_of(database) == expected
    assert raised.value.file == str(database)
    assert "\n" not in raised.value.message


@pytest.mark.slow
def test_flipped_bytes_are_never_fewer_rows(database: Path) -> None:
    """Bytes of a table and of the manifest, one at a time: an error, or every row."""
    expected, chance = rows_of(database), Random(7)
    for path in (*database.glob("*.sst"), *database.glob("MANIFEST-*"), database / "CURRENT"):
        data = path.read_bytes()
        for position in chance.sample(range(len(data)), min(len(data), 60)):
            path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
            try:
                found = rows_of(database)
            except RmqtoolError:
                found = expected
            assert found == expected, f"{path.name} at {position}"
        path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["more/5.5.0-rocksdb-side", "more/5.5.0-rocksdb-single", "more/5.5.0-rocksdb-second-config", NAME]
)
def test_bad_blocks_of_every_database(name: str, unpacked: GoldenStore, tmp_path: Path) -> None:
    """Single bits of tables, wherever they are: an error, or every row."""
    root, chance = copied(unpacked(name), tmp_path / "store"), Random(name)
    found = [path for path in root.rglob("*.sst") if path.stat().st_size]
    assert found
    for path in found:
        expected, data = rows_of(path.parent), path.read_bytes()
        for position in chance.sample(range(len(data)), 12):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
            with suppress(UnreadableError):
                assert rows_of(path.parent) == expected, f"{path.relative_to(root)} at {position}"
        path.write_bytes(data)


COMPRESSIONS = {"none": DBCompressionType.none, "lz4": DBCompressionType.lz4, "zstd": DBCompressionType.zstd}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_end_of_a_bad_block_is_not_the_end(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the library says nothing of it: the tables know how many rows there are."""
    database, expected = tmp_path / "database", 2000
    write_units(database, expected, COMPRESSIONS[compression]())
    path = next(database.glob("*.sst"))
    data = path.read_bytes()
    path.write_bytes(data[:9000] + bytes([data[9000] ^ 1]) + data[9001:])
    with pytest.raises(DamagedDatabaseError, match="checksum"):
        rows_of(database)
    monkeypatch.setattr(RocksDb, "_check", lambda self, cursor: None)
    with RocksDb(database) as opened:
        rows = opened.rows("default")
        with pytest.raises(DamagedDatabaseError, match=r"\d+ rows of default where its tables hold at least 2000"):
            assert list(rows) == []


def write_units(database: Path, count: int, compression: DBCompressionType) -> None:
    """A database with one table of units, in many blocks."""
    options = Options(raw_mode=True)
    options.set_compression_type(compression)
    written = Rdict(str(database), options)
    for number in range(count):
        written[unit_key("orders", 0, number)] = unit_value(number * 977, 300 + number % 50, number * 7919, number)
    written.flush()
    written.close()


@pytest.mark.parametrize(
    ("tables", "rows"),
    [
        ([], 0),
        ([(b"a", b"c", 5, 0)], 5),
        ([(b"a", b"c", 5, 0), (b"d", b"f", 7, 0)], 12),
        ([(b"a", b"d", 5, 0), (b"d", b"f", 7, 0)], 7),
        ([(b"a", b"z", 5, 0), (b"b", b"c", 3, 0), (b"d", b"f", 4, 0)], 7),
        ([(b"a", b"z", 9, 0), (b"b", b"c", 3, 0), (b"d", b"f", 4, 0)], 9),
        ([(b"d", b"f", 7, 0), (b"a", b"c", 5, 0), (b"c", b"d", 100, 0)], 100),
        ([(b"a", b"c", 5, 0), (b"d", b"f", 7, 1)], 0),
    ],
)
def test_the_fewest_rows_of_tables(tables: list[tuple[bytes, bytes, int, int]], rows: int) -> None:
    """Those that overlap may hold the same rows; a deletion may be one of all."""
    assert fewest_rows([Table(*table) for table in tables]) == rows


def test_a_torn_log_gives_the_rows_before(unpacked: GoldenStore, tmp_path: Path) -> None:
    """The end of a database's own log is lost when its broker is killed."""
    source = copied(unpacked("more/5.5.0-rocksdb-side") / "rocksdbstore", tmp_path / "rocksdbstore")
    expected = rows_of(source)
    (log,) = source.glob("*.log")
    os.truncate(log, log.stat().st_size * 2 // 3)
    found = rows_of(source)
    assert all(set(rows) <= set(expected[family]) for family, rows in found.items())


def test_it_is_known_whether_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is part of what tests install."""
    assert rocksdb.is_readable()
    monkeypatch.setattr(rocksdb, "find_spec", lambda name: None)
    assert not rocksdb.is_readable()
