"""Tables that the MANIFEST of a RocksDB database does not name: what a kill leaves behind, and what is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rmqtool.store.rocksdb import DamagedDatabaseError, RocksDb
from tests.changed_rocksdb import unit_key, unit_value
from tests.copies import copied

ROWS = 20


class Killed:
    """A database of two families before and after a flush of the second, and the MANIFEST of the two."""

    def __init__(self, directory: Path, *, starts: int, flushes: int, moves_on: bool = False) -> None:
        """Opened so often, with so many flushes of the first family before the one that counts.

        With `moves_on` both are flushed before that, so that the log of the start is needed no longer.
        """
        self.flushes = flushes
        self.before, self.after = directory / "before", directory / "after"
        source = directory / "source"
        for start in range(starts):
            options, more = Options(raw_mode=True), Options(raw_mode=True)
            opened = Rdict(str(source), options, {"more": more} if start else None)
            family = opened.get_column_family("more") if start else opened.create_column_family("more", more)
            if start < starts - 1:
                opened[b"start"] = family[b"start"] = b"%d" % start
            else:
                if moves_on:
                    family[b"early"] = b"1"
                    opened.flush_wal(True)
                    (self.first_log,) = source.glob("*.log")
                    self.first_content = self.first_log.read_bytes()
                    family.flush()
                self._fill(opened, family, flushes)
                opened.flush_wal(True)
                copied(source, self.before)
                family.flush()
                copied(source, self.after)
            family.close()
            opened.close()
            del opened, family
        for copy in (self.before, self.after):
            (copy / "LOCK").unlink()

    @staticmethod
    def _fill(opened: Rdict, family: Rdict, flushes: int) -> None:
        for number in range(ROWS):
            family[unit_key("orders", 0, number)] = unit_value(number, 300, 0, number)
        for number in range(flushes):
            opened[b"flush"] = b"%d" % number
            opened.flush()
            opened[b"end"] = b"%d" % number

    def new(self, ending: str) -> list[Path]:
        """What the flush has made."""
        names = {path.name for path in self.before.iterdir()}
        return [path for path in self.after.glob(f"*{ending}") if path.name not in names]

    def while_writing(self) -> Path:
        """The files of a broker that was killed in the middle of the flush."""
        for path in (*self.new(".sst"), *self.new(".log")):
            shutil.copy(path, self.before)
        return self.before

    def with_old_manifest(self) -> Path:
        """The files after the flush, of which the MANIFEST has lost its end between two records."""
        for path in self.before.glob("MANIFEST-*"):
            shutil.copy(path, self.after)
        return self.after


def rows_of(path: Path) -> int:
    with RocksDb(path) as database:
        assert database.left_over == []
        return len(list(database.rows("more")))


@pytest.fixture(params=[(1, 0, False), (1, 1, False), (1, 3, False), (2, 0, False), (3, 2, False), (1, 0, True),
                        (1, 3, True), (2, 2, True)])  # fmt: skip
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Killed:
    """Databases that need the first log since their start, or another."""
    starts, flushes, moves_on = request.param
    return Killed(tmp_path, starts=starts, flushes=flushes, moves_on=moves_on)


def test_a_kill_loses_nothing(killed: Killed) -> None:
    """The rows of the table are still in the log: nothing is reported."""
    assert len(killed.new(".sst")) == 1
    assert rows_of(killed.while_writing()) >= ROWS


def test_a_table_that_the_manifest_has_lost(killed: Killed) -> None:
    """Other logs are there, with rows and with smaller numbers, but not the one that had the rows of the table."""
    path = killed.with_old_manifest()
    with RocksDb(path) as database:
        assert (len(list(path.glob("*.log"))) > 1) == bool(killed.flushes)
        assert [path / name for name in database.left_over] == killed.new(".sst")
        with pytest.raises(DamagedDatabaseError, match="fewer tables than there are"):
            list(database.rows("more"))


def test_a_log_that_was_not_deleted_yet(tmp_path: Path) -> None:
    """An older log than those that the database needs has none of the rows."""
    killed = Killed(tmp_path, starts=1, flushes=2, moves_on=True)
    path = killed.with_old_manifest()
    (path / killed.first_log.name).write_bytes(killed.first_content)
    with RocksDb(path) as database:
        assert [path / name for name in database.left_over] == killed.new(".sst")


def first_log(path: Path) -> Path:
    return min(each for each in path.glob("*.log") if each.stat().st_size)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def manifest_cut(path: Path) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    os.truncate(manifest, manifest.stat().st_size - 1)


def manifest_flipped(path: Path) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    flip(manifest, manifest.stat().st_size - 1)


def manifest_too_long(path: Path) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    os.truncate(manifest, (4 << 20) + 2)


DOUBTS: dict[str, Callable[[Path], None]] = {
    "the log is cut": lambda path: os.truncate(first_log(path), first_log(path).stat().st_size - 1),
    "the log is flipped": lambda path: flip(first_log(path), first_log(path).stat().st_size - 1),
    "the log is empty": lambda path: os.truncate(first_log(path), 0),
    "the log is gone": lambda path: first_log(path).unlink(),
    "the MANIFEST is cut": manifest_cut,
    "the MANIFEST is flipped": manifest_flipped,
    "the MANIFEST is long": manifest_too_long,
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_any_doubt_is_reported(tmp_path: Path, doubt: str) -> None:
    """A kill that is not the whole story: opened or not, the database is not called sound."""
    path = Killed(tmp_path, starts=1, flushes=1).while_writing()
    DOUBTS[doubt](path)
    with pytest.raises(DamagedDatabaseError), RocksDb(path) as database:
        database.check_tables()
