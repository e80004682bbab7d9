"""Which files of a store are copied when, so that none is newer than what it points at.

What points is copied before what it points at, and a cause after its effect: positions, derived data, the log, names.
A position that was read is then never past the copied log, and what a consumer had written before it moved is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rmqtool.base.errors import note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.paths import entry_path
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.store.paths import COMPACTION, QUEUE_KINDS, TIMER_CHECK, TIMER_LOG
from rmqtool.store.store import (
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    SEPARATE_ROCKSDB_QUEUES,
    SIDE_STORE,
    Store,
    holds_rocksdb,
)
from rmqtool.transaction.paths import HOME

Step = Literal["positions", "timer", "index", "queues", "log", "names"]
STEPS: tuple[Step, ...] = ("positions", "timer", "index", "queues", "log", "names")
"""In the order of copying; what is full of all of them is copied before."""

_LEFT_OUT = re.compile(
    r"lock|abort(\.bak)?|.*\.tmp|LOCK|LOG(\.old)?.*|rocksdict-config\.json|lost\+found|" + re.escape(HOME)
)
_BACKUP = ".bak"
_POSITIONS = {
    CHECKPOINT, TIMER_CHECK, "timermetrics", "transactionMetrics", "consumerOffset.json", "lmqConsumerOffset.json",
    "consumerOrderInfo.json", "delayOffset.json", "position-checkpoint",
}  # fmt: skip
_DATABASES: dict[str, Step] = {
    CONSUME_QUEUE: "queues",
    SEPARATE_ROCKSDB_QUEUES: "queues",
    SIDE_STORE: "index",
    f"{CONFIG}/topics": "names",
    f"{CONFIG}/subscriptionGroups": "names",
}
_LAST_OF_LOG = 2  # the last file that is written, and one that is made in advance


class Found(NamedTuple):
    """A file of a store: its path relative to it, where it is, its step, and whether the broker writes it no more."""

    name: str
    path: Path
    step: Step
    is_full: bool = False


@dataclass(frozen=True)
class Database:
    """A directory of RocksDB: its path relative to the store, where it is, and the step at which it is copied.

    Offsets and names in one database are copied as positions: topics that are made meanwhile are not in it.
    """

    name: str
    path: Path
    step: Step


@dataclass(frozen=True)
class Inventory:
    """What a store holds at a moment."""

    files: tuple[Found, ...]
    databases: tuple[Database, ...]
    directories: tuple[tuple[str, Path], ...]  # with those that are empty; those above come first

    def of(self, step: Step) -> list[Found]:
        """The files of a step in the order of copying: of queues and log the newest file of a sequence first.

        So what is copied has no gap: where the newest was empty, nothing that was copied before leads into it; where it
        was not, the one before it was full. Ext units come after the queue entries that lead to them.
        """
        files = [file for file in self.files if file.step == step]
        if step in ("queues", "log"):
            files.reverse()
        return sorted(files, key=lambda file: file.name.startswith(f"{CONSUME_QUEUE_EXT}/"))


def inventory(store: Store, step: Step | None = None) -> Inventory:
    """List a store, its log from all its directories; raises UnreadableError.

    For one `step` only what is needed for that: a store may have a hundred thousand directories of queues.
    """
    files: list[Found] = []
    databases: list[Database] = []
    directories: list[tuple[str, Path]] = [("", store.root)]
    logs = [entry_path(each) for directory in store.log_directories for each in list_directory(directory)]
    named = sorted((f"{COMMIT_LOG}/{path.name}", path) for path in logs if start_offset_of(path.name) is not None)
    files += _sequence(named, "log", _LAST_OF_LOG)
    left = () if step in (None, "queues") else (store.root / name for name in QUEUE_KINDS)
    elsewhere = {_identity(directory) for directory in (*store.log_directories, *left)}
    walk = _Walk(files, databases, directories, elsewhere)
    walk.below(store.root, "")
    return Inventory(tuple(sorted(files, key=_order)), tuple(databases), tuple(directories))


def _order(file: Found) -> tuple[object, ...]:
    """The wheel before the log of timers, which a start repeats from where it was flushed."""
    return (STEPS.index(file.step), file.name.startswith(f"{TIMER_LOG}/"), file.name)


@dataclass(frozen=True)
class _Walk:
    """Collects what is below a store's directory; what is `elsewhere`, such as the log, is listed apart."""

    files: list[Found]
    databases: list[Database]
    directories: list[tuple[str, Path]]
    elsewhere: set[tuple[int, int]]

    def below(self, directory: Path, name: str) -> None:
        """Take what is in a directory, `name` relative to the store."""
        is_database = bool(name) and holds_rocksdb(directory)
        if is_database:
            self.databases.append(Database(name, directory, _DATABASES.get(name, "positions")))
        found: list[tuple[str, Path]] = []
        for entry in list_directory(directory):
            relative, path = f"{name}/{entry.name}" if name else entry.name, entry_path(entry)
            if _LEFT_OUT.fullmatch(entry.name):
                continue
            try:
                if entry.is_dir():
                    self.directories.append((relative, path))
                    if _identity(path) not in self.elsewhere:
                        self.below(path, relative)
                elif not is_database and entry.is_file():
                    found.append((relative, path))
            except OSError as error:
                note_failure(path, error)
        self.files.extend(_of_directory(name, found))


def _identity(directory: Path) -> tuple[int, int]:
    """Device and inode of a directory, whatever its name; that of none where it is not there."""
    try:
        status = os.stat(directory)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _of_directory(name: str, below: list[tuple[str, Path]]) -> Iterator[Found]:
    """The files of one directory, with their steps."""
    top = name.split("/", 1)[0]
    if top in QUEUE_KINDS or top == COMPACTION:
        mapped = [each for each in below if start_offset_of(each[1].name) is not None]
        yield from _sequence(mapped, "queues", 1 if top in QUEUE_KINDS else len(mapped))
        yield from (Found(*each, step_of(each[0])) for each in below if each not in mapped)
    elif name == TIMER_LOG:
        yield from _sequence(below, "timer", 1)
    elif name == INDEX:
        yield from _sequence([each for each in below if each[1].name.isascii() and each[1].name.isdigit()], "index", 1)
    else:
        yield from (Found(*each, step_of(each[0])) for each in below)


def _sequence(files: list[tuple[str, Path]], step: Step, last: int) -> list[Found]:
    """Files in order; all but the last ones are full."""
    full = len(files) - last
    return [Found(name, path, step, number < full) for number, (name, path) in enumerate(files)]


def step_of(name: str) -> Step:
    """When a single file is copied."""
    plain = name.rsplit("/", 1)[-1].removesuffix(_BACKUP)
    if is_wheel_name(plain):
        return "timer"
    return "positions" if plain in _POSITIONS else "names"
