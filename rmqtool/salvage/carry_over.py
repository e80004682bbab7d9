"""What a store has beside its log that nothing is derived from: each file from the first source that has it whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import list_directory
from rmqtool.base.new_files import copy_file
from rmqtool.base.tolerant import ReadErrors
from rmqtool.store.config_json import read_config_file
from rmqtool.store.paths import COMPACTION, TIMER_LOG
from rmqtool.store.store import CONFIG, CONSUME_QUEUE_EXT, SIDE_STORE, Store

_BACKUP = ".bak"
_JSON = ".json"
_TREES = (TIMER_LOG, COMPACTION, SIDE_STORE)
_FILES = ("timerwheel", "epochFileCheckpoint", "brokerIdentity")


@dataclass(frozen=True)
class Carried:
    """A file or directory, relative to a store, of source number `source`; None where `problem` is with all of them.

    `is_unread`: it could not be read, and nobody knows what was in it.
    """

    name: str
    source: int | None
    problem: str | None = None
    is_unread: bool = False


def find_carried(stores: Sequence[Store], main: Store | None, *, only_config: bool = False) -> list[Carried]:
    """What is carried over; ext units go with the queues of `main` that point to them.

    With `only_config` without the files in which physical offsets stand, or messages of all topics (`not_carried`).
    """
    names = {f"{CONFIG}/{entry.name}" for store in stores for entry in list_directory(store.root / CONFIG)}
    found = [_first_of(stores, name) for name in sorted(names)]
    found += [] if only_config else [_first_of(stores, name) for name in not_carried(stores)]
    if main and main.has_ext_units:
        found.append(Carried(CONSUME_QUEUE_EXT, stores.index(main)))
    return found


def not_carried(stores: Sequence[Store]) -> list[str]:
    """What stores have beside log, queues, index and config: timers, epochs, compacted messages, RocksDB."""
    names = (*_TREES, *_FILES, *(f"{file}{_BACKUP}" for file in _FILES))
    return [name for name in names if any(os.path.exists(store.root / name) for store in stores)]


def carry_over(stores: Sequence[Store], carried: Sequence[Carried], directory: Path) -> list[Carried]:
    """Copy them below `directory` with their modification times; what has a problem now, or had one before.

    Raises OSError for what cannot be written.
    """
    problems = []
    for each in carried:
        if each.source is None:
            problems.append(each)
            continue
        errors = ReadErrors()
        for path in _files_of(stores[each.source].root / each.name):
            with errors.scope():
                copy_file(path, directory / path.relative_to(stores[each.source].root))
        problems += [Carried(each.name, None, str(error), is_unread=True) for error in errors.errors]
    return problems


def carried_bytes(stores: Sequence[Store], carried: Sequence[Carried]) -> int:
    """Their sizes, bytes."""
    found = (stores[each.source].root / each.name for each in carried if each.source is not None)
    return sum(os.stat(file).st_blocks * 512 for path in found for file in _files_of(path))


def _first_of(stores: Sequence[Store], name: str) -> Carried:
    problem = None
    for number, store in enumerate(stores):
        path = store.root / name
        if not os.path.exists(path):
            continue
        problem = _problem_of(path)
        if problem is None:
            return Carried(name, number)
    return Carried(name, None, problem)


def _problem_of(path: Path) -> str | None:
    """Why a file is not carried over: a broker refuses to start on some that it cannot decode."""
    if not path.name.removesuffix(_BACKUP).endswith(_JSON) or path.is_dir():
        return None
    try:
        read_config_file(path)
    except RmqtoolError as error:
        return error.message
    return None


def _files_of(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for above, _, names in os.walk(path):
        yield from (Path(above, name) for name in sorted(names) if not os.path.islink(Path(above, name)))
