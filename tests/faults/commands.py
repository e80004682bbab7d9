"""Commands that write, each call of which can fail: what they begin with, and what must be true of what they leave.

No byte of a source is lost. What is in the place of an output is whole or not there. The next run goes on, or says why
it does not have to.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rmqtool.base.errors import Exit
from rmqtool.copy.manifest import MANIFEST as COPY_MANIFEST
from rmqtool.export.output import JOURNAL, MANIFEST, SUCCESS
from rmqtool.export.sink import file_crc32
from tests.copies import copied, grown
from tests.dledger_building import entry_log
from tests.faults.shim import STATUSES, Answer, answer, started
from tests.faults.watch import FAULTS, STOP, Call, calls_in, places, unwatch, watch
from tests.transaction.disk import Contents, Disk, write_contents
from tests.unchanged import unchanged
from tests.verify.small_store import finish, small_store

_REFUSED = (Exit.USAGE, Exit.FAILED, Exit.IN_USE)
_PLACE, _TEMPORARY = "out/place/new", "tmp"
_WAREHOUSE = "warehouse"
_CATALOG = f"{_WAREHOUSE}/catalog.db"
_ALWAYS, _DRAWN = 4, 6
"""States after a call that are looked at: those with none and all of what was not synced, and some of the others."""

BESIDE, POWER = "beside", "power"
State = Any
"""What is in the place of an output, as a value that can be compared; None where nothing is."""


class Command(ABC):
    """One of them: `area` has a source, which is never changed, and the directory `out`, in which all calls count."""

    def __init__(self, name: str, scratch: Path, words: Sequence[str], make: Callable[[Path], object]) -> None:
        self.name = name
        self.area = scratch / name
        self.out, self._template = self.area / "out", self.area / "template"
        self.source = self.area / "source"
        self.source.mkdir(parents=True)
        (self.out / _TEMPORARY).mkdir(parents=True)
        (self.area / _PLACE).parent.mkdir()
        make(self.area)
        self.words = [*(word.format(area=self.area) for word in words), "--json"]
        copied(self.out, self._template)
        self.before = self.state()
        self.calls: list[Call] = []
        self.sound = self._recorded()
        self.after = self.state()
        assert self.sound.status in (Exit.OK, Exit.FINDINGS), self.sound
        assert self.after != self.before

    @abstractmethod
    def state(self) -> State:
        """What is in the place of the output; AssertionError for what looks like an output and is not whole."""

    def names(self) -> list[str]:
        """The names of the calls that it makes."""
        return [call.name for call in self.calls]

    def places(self, fault: str) -> list[int]:
        """The calls at which a fault makes a difference."""
        return places(self.names(), STOP if fault == BESIDE else FAULTS[fault])

    def reset(self) -> None:
        """Begin again."""
        shutil.rmtree(self.out)
        copied(self._template, self.out)

    def run(self, words: Sequence[str] | None = None) -> Answer:
        """Run it, or another command line, in a copy of this process; what it reads is as before."""
        with unchanged(self.source):
            return answer(words or self.words, self._in_copy)

    def _in_copy(self) -> None:
        tempfile.tempdir = str(self.out / _TEMPORARY)

    def _recorded(self) -> Answer:
        """One run without a fault."""
        log = self.area / "log"
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            watch(self.out, log=descriptor)
            found = self.run()
            unwatch()
        finally:
            os.close(descriptor)
        self.calls = [*calls_in(log.read_bytes())]
        return found

    # One fault

    def trial(self, fault: str, at: int) -> str:
        """Let a fault come at a call, and look at all that must be true; how the run ended."""
        self.reset()
        if fault == BESIDE:
            return self._two_runs(at)
        watch(self.out, FAULTS[fault], at)
        found = self.run()
        hits = unwatch()
        self._check_end(found)
        left = self.state()
        if found.status == self.sound.status:
            assert left == self.after, "it ends as if nothing had been, and its output is another"
        self.check_left(left)
        self._check_next(left)
        return "not met" if not hits else "killed" if found.is_killed else "done" if _is_done(found) else "failed"

    def _two_runs(self, at: int) -> str:
        """Stop a run at a call, let another one do the same, and let the first one go on."""
        watch(self.out, STOP, at)
        with started(self.words, self._in_copy) as first:
            is_stopped = first.is_stopped()
            second = self.run()
            middle = self.state()
            found = first.answer()
        unwatch()
        for each in (found, second):
            self._check_end(each)
            assert each.status in (self.sound.status, *_REFUSED), said(each)
        left = self.state()
        if found.status == self.sound.status or (second.status == self.sound.status and middle == self.after):
            assert left == self.after, "two runs, of which one has ended well, leave another output"
        self._check_next(left)
        return "not met" if not is_stopped else "the other refused" if second.status in _REFUSED else "both"

    def _check_end(self, found: Answer) -> None:
        """It ends by itself, with a status that has a meaning, and where it fails with one message."""
        if found.is_killed:
            return
        assert found.problem is None, found.problem
        assert found.status in STATUSES, f"exit status {found.status}"
        assert "Traceback" not in found.err, found.err
        if found.status in _REFUSED:
            error = json.loads(found.out)["error"]
            assert error["message"], found.out
            assert "bug" not in error["message"], error["message"]
            assert not error["message"].startswith("cannot read"), f"of a write it says: {error['message']}"

    def check_left(self, left: State) -> None:
        """What more must be true of what a run has left."""
        assert left in (self.before, self.after), "neither as before nor done"

    def _check_next(self, left: State) -> None:
        """The next run goes on; where nothing is left to do, it may say so.

        One that has ended what was begun, or rolled it back, may say so and leave it at that.
        """
        found = self.run()
        self._check_end(found)
        if found.status in (Exit.OK, Exit.FINDINGS) and json.loads(found.out)["result"].get("state") == "recovered":
            found = self.run()
            self._check_end(found)
        assert self.state() == self.after, f"the next run leaves another output, and ends with {said(found)}"
        if found.status != self.sound.status:
            assert self.is_nothing_to_do(found, left), f"the next run ends with {said(found)}"

    def is_nothing_to_do(self, found: Answer, left: State) -> bool:
        """Whether a run that is refused had nothing to do."""
        return bool(left == self.after and found.status in (Exit.USAGE, Exit.OK))

    # Power

    def without_power(self, chance: random.Random, every: int) -> Iterator[Callable[[], None]]:
        """What a power failure may leave after calls, one in so many; each gives the look at one state."""
        self.reset()
        disk, seen = Disk(self.out), set()
        for number, call in enumerate(self.calls, 1):
            call.play(disk, str(self.out))
            is_done = number == len(self.calls)
            if chance.random() * every > 1 and not is_done:
                continue
            crashes = [*disk.crashes(chance)]
            drawn = chance.sample(crashes[_ALWAYS:], min(_DRAWN, max(0, len(crashes) - _ALWAYS)))
            for kept, with_bytes in crashes[:_ALWAYS] + drawn:
                contents = disk.after(kept, with_bytes=with_bytes)
                digest = hash((is_done, *sorted(contents.items(), key=lambda entry: entry[0])))
                if digest not in seen:
                    seen.add(digest)
                    yield partial(self._check_crashed, contents, is_done=is_done)

    def _check_crashed(self, contents: Contents, *, is_done: bool) -> None:
        shutil.rmtree(self.out)
        write_contents(contents, self.out)
        with patch("rmqtool.copy.notes.boot", lambda: "another start of this machine"):
            left = self.state()
            assert left == self.after or not is_done, "a run that has ended well is not on the disk"
            self.check_left(left)
            self._check_next(left)


def said(found: Answer) -> str:
    """How a command ended, in a line."""
    error = json.loads(found.out).get("error") if found.out else None
    return f"{found.status}: {error['file']}: {error['message']}" if error else str(found.status)


def _is_done(found: Answer) -> bool:
    return found.status in (Exit.OK, Exit.FINDINGS, Exit.LOSSY)


class NewStores(Command):
    """Salvage and convert, and what restores a copy: a store in a place of its own."""

    def state(self) -> State:
        """The files of the store."""
        root = self.area / _PLACE
        return _files(root) if root.is_dir() and any(root.iterdir()) else None


class Copies(NewStores):
    """Copies: what has a manifest is as it says."""

    def state(self) -> State:
        """The files of the copy, once all of them are as the manifest says."""
        found = super().state()
        if found is not None:
            document = json.loads((self.area / _PLACE / COPY_MANIFEST).read_text())
            sizes = {each["path"]: each["size"] for each in document["files"]}
            assert sizes == {name: len(data) for name, data in found.items()}, "a manifest of another copy"
        return found


class Exports(Command):
    """Exports: what has `_SUCCESS`, or a manifest, has all files of it."""

    def state(self) -> State:
        """The rows and files of an export; None without one."""
        root = self.area / _PLACE
        if not (root / MANIFEST).exists():
            assert not (root / SUCCESS).exists(), "_SUCCESS without a manifest"
            return None
        manifest = json.loads((root / MANIFEST).read_text())
        for file in manifest["files"]:
            path = root / file["path"]
            found = (path.stat().st_size, file_crc32(path)) if path.exists() else None
            assert found == (file["bytes"], file["crc32"]), f"{file['path']} is not as the manifest says"
        if (root / SUCCESS).exists() and not (root / JOURNAL).exists():
            there = {str(path.relative_to(root)) for path in root.rglob("part-*") if "_temporary" not in path.parts}
            assert there == {file["path"] for file in manifest["files"]}, "files that are not in the manifest"
        return manifest["rows"], len(manifest["files"]), sorted(
            (file["rows"], file["bytes"]) for file in manifest["files"]
        )  # fmt: skip

    def is_nothing_to_do(self, found: Answer, left: State) -> bool:
        """Also where it has finished what was begun."""
        return super().is_nothing_to_do(found, left) or (self.area / _PLACE / SUCCESS).exists()


class Tables(Exports):
    """Exports that are Delta tables, too: what the log of one names is there."""

    def state(self) -> State:
        """That of the export; and the rows of each file of the table, None before its first version."""
        return super().state(), self._table()

    def _table(self) -> list[int] | None:
        root, files = self.area / _PLACE, dict[str, int]()
        for version in sorted((root / "_delta_log").glob("[0-9]*.json")):
            for action in map(json.loads, version.read_text().splitlines()):
                if "add" in action:
                    added = action["add"]
                    assert (root / added["path"]).stat().st_size == added["size"], f"{added['path']} is not as named"
                    files[added["path"]] = json.loads(added["stats"])["numRecords"]
                elif "remove" in action:
                    del files[action["remove"]["path"]]
        return sorted(files.values()) or None

    def check_left(self, left: State) -> None:
        """The table may be behind the export, which the next run brings it up to."""
        for part, states in zip(left, zip(self.before, self.after, strict=True), strict=True):
            assert part in states, "neither as before nor done"


class IcebergTables(Tables):
    """Exports that are Iceberg tables, too: what the catalog names is there."""

    def _table(self) -> list[int] | None:
        from pyiceberg.table import StaticTable

        try:
            metadata = self._metadata()
            found = [task.file for task in StaticTable.from_metadata(metadata).scan().plan_files()] if metadata else []
        except (OSError, ValueError) as error:
            raise AssertionError(f"the catalog names what is not whole: {error}") from error
        for file in found:
            assert Path(file.file_path).stat().st_size == file.file_size_in_bytes, f"{file.file_path} is not as named"
        return sorted(file.record_count for file in found) or None

    def _metadata(self) -> str | None:
        """Where the table's metadata are, of a copy of the catalog: who reads it undoes what a killed run has begun."""
        with tempfile.TemporaryDirectory() as directory:
            for path in self.out.glob(f"{_CATALOG}*"):
                shutil.copy2(path, directory)
            with (
                closing(sqlite3.connect(Path(directory, Path(_CATALOG).name))) as catalog,
                suppress(sqlite3.OperationalError),
            ):
                found = catalog.execute("select metadata_location from iceberg_tables").fetchone()
                return str(found[0]) if found else None
        return None


class InPlace(Command):
    """Cut, and what takes it back: the store is as before, or done, or the next run, of either kind, ends it."""

    def state(self) -> State:
        """The files of the store, without our own."""
        return _files(self.area / _PLACE)

    def is_nothing_to_do(self, found: Answer, left: State) -> bool:
        """Also where what was begun was ended."""
        return found.status in (Exit.OK, Exit.USAGE)

    def check_left(self, left: State) -> None:
        """Undo brings back what was before, whatever is left."""
        if left not in (self.before, self.after):
            found = self.run(["verify", str(self.area / _PLACE), "--json"])
            self._check_end(found)
            assert found.status != Exit.OK, "a change that was cut, and verify finds nothing"
        kept = copied(self.out, self.area / "kept")
        found = self.run(["undo", str(self.area / _PLACE), "--yes", "--json"])
        self._check_end(found)
        assert self.state() in (self.before, self.after), f"undo does not bring it back, and ends with {said(found)}"
        shutil.rmtree(self.out)
        kept.rename(self.out)


class Deletions(InPlace):
    """Clean: what stays is as it was, and nothing goes but what was to go."""

    def check_left(self, left: State) -> None:
        """Each file is as before, or gone if it was to go."""
        assert left.items() <= self.before.items(), "a file that has changed"
        assert left.items() >= self.after.items(), "a file that was to stay is gone"


def _files(root: Path) -> dict[str, bytes]:
    """The files of a store or copy without our own, and without the lock."""
    names = ("lock", ".rmqtool")
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    relative = ((path, path.relative_to(root)) for path in found)
    return {str(name): path.read_bytes() for path, name in relative if name.parts[0] not in names}


# What there is


def _damaged(area: Path) -> None:
    store = small_store(area / "source" / "store")
    path = min((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[700:760] = b"\xa5" * 60
    path.write_bytes(data)


def _small(area: Path) -> None:
    small_store(area / "source" / "store")


def _earlier_copy(area: Path) -> None:
    store = small_store(area / "source" / "store")
    _do("copy", store, "--output", area / _PLACE)
    grown(store, 70)


def _deleted_since(area: Path) -> None:
    _earlier_copy(area)
    min((area / "source" / "store" / "commitlog").iterdir()).unlink()


def _copy_to_restore(area: Path) -> None:
    store = small_store(area / "other")
    _do("copy", store, "--output", area / "source" / "copy")


def _store_in_place(area: Path) -> None:
    store = small_store(area / _PLACE)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{"0":9,"1":9}}}')


def _cut(area: Path) -> None:
    _store_in_place(area)
    _do("cut", area / _PLACE, "--at", _AT, "--yes")


def _old(area: Path) -> None:
    for path in sorted(small_store(area / _PLACE).rglob("*")):
        if path.is_file():
            os.utime(path, (1_700_000_100, 1_700_000_100))


def _exported(area: Path, *options: str) -> None:
    store = small_store(area / "source" / "store")
    _do("export", store, "--output", area / _PLACE, *options)
    grown(store, 70)


def _do(*words: str | Path) -> None:
    found = answer([*map(str, words), "--json"])
    assert found.status == Exit.OK, found


def _with_catalog(area: Path, make: Callable[[Path], object]) -> None:
    """Let pyiceberg's default catalog be where calls count; it is loaded here, before copies of this process."""
    os.environ |= {
        "PYICEBERG_CATALOG__DEFAULT__TYPE": "sql",
        "PYICEBERG_CATALOG__DEFAULT__URI": f"sqlite:///{area}/out/{_CATALOG}",
        "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE": f"file://{area}/out/{_WAREHOUSE}",
    }
    (area / "out" / _WAREHOUSE).mkdir()
    for name in ("catalog.sql", "io.pyarrow", "table"):
        import_module(f"pyiceberg.{name}")
    make(area)


_CLEAN = ("--now", "2026-11-25T04:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50", "--allow-unread", "--yes")
_AT = "2023-11-14T22:13:32Z"  # 20 messages before the end
_ICEBERG = ("--table", "iceberg:lake.messages")
_STORE, _NEW = "{area}/source/store", f"{{area}}/{_PLACE}"
_TO = ("--output", _NEW)
_ALL: dict[str, tuple[type[Command], Sequence[str], Callable[[Path], object]]] = {
    "salvage": (NewStores, ("salvage", _STORE, *_TO, "-j", "1"), _damaged),
    "salvage --topic": (NewStores, ("salvage", _STORE, *_TO, "-j", "1", "--topic", "orders"), _small),
    "convert": (NewStores, ("convert", _STORE, *_TO, "-j", "1"),
                lambda area: finish(entry_log(40).write(area / "source" / "store"))),
    "copy": (Copies, ("copy", _STORE, *_TO, "-j", "1", "--yes"), _small),
    "copy --update": (Copies, ("copy", _STORE, *_TO, "-j", "1", "--yes", "--update"), _earlier_copy),
    "copy --update --prune": (Copies, ("copy", _STORE, *_TO, "-j", "1", "--yes", "--update", "--prune"),
                              _deleted_since),
    "copy, restore": (NewStores, ("copy", "{area}/source/copy", *_TO, "-j", "1", "--yes"), _copy_to_restore),
    "cut": (InPlace, ("cut", _NEW, "--at", _AT, "--yes"), _store_in_place),
    "undo of a cut": (InPlace, ("undo", _NEW, "--yes"), _cut),
    "clean": (Deletions, ("clean", _NEW, *_CLEAN), _old),
    "export": (Exports, ("export", _STORE, *_TO, "-j", "1"), _small),
    "export --mode incremental": (Exports, ("export", _STORE, *_TO, "-j", "1", "--mode", "incremental"), _exported),
    "export --mode overwrite": (
        Exports, ("export", _STORE, *_TO, "-j", "1", "--mode", "overwrite", "--format", "ndjson", "--partition-by",
                  "topic"),
        lambda area: _exported(area, "--format", "ndjson", "--partition-by", "topic"),
    ),
    "export --table delta": (Tables, ("export", _STORE, *_TO, "-j", "1", "--table", "delta"), _small),
    "export --table delta, incremental": (
        Tables, ("export", _STORE, *_TO, "-j", "1", "--table", "delta", "--mode", "incremental"),
        lambda area: _exported(area, "--table", "delta", "--mode", "incremental"),
    ),
    "export --table iceberg": (
        IcebergTables, ("export", _STORE, *_TO, "-j", "1", *_ICEBERG), lambda area: _with_catalog(area, _small)
    ),
    "export --table iceberg, incremental": (
        IcebergTables, ("export", _STORE, *_TO, "-j", "1", *_ICEBERG, "--mode", "incremental"),
        lambda area: _with_catalog(area, lambda area: _exported(area, *_ICEBERG, "--mode", "incremental")),
    ),
}  # fmt: skip
NAMES = tuple(_ALL)


def command(name: str, scratch: Path) -> Command:
    """One of them, in a directory of its own."""
    kind, words, make = _ALL[name]
    return kind(name, scratch, words, make)
