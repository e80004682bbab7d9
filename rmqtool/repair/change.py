"""One change of a repair: shown before it is made, made in a transaction, taken back by undo."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import is_remote
from rmqtool.findings.finding import Finding
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, INDEX, Store
from rmqtool.transaction.losses import Loss
from rmqtool.transaction.paths import StorePaths
from rmqtool.transaction.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Change(ABC):
    """What a plan shows of a change, and how it is made.

    `codes` are those of the findings that it heals, `what` says what becomes of which file, `lost` what it cannot bring
    back, `details` more, line by line. `saved` messages that only a tier has are served then.
    """

    codes: frozenset[str]
    what: str
    lost: str | None = None
    details: tuple[str, ...] = ()
    saved: int = 0

    @property
    def size(self) -> int:
        """Bytes that it writes."""
        return 0

    @abstractmethod
    def stage(self, transaction: Transaction) -> None:
        """Prepare the change, which the transaction's commit makes; what is replaced is kept until undo."""

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        lines, codes = list(self.details), sorted(self.codes)
        return {"what": self.what, "details": lines, "lost": self.lost, "codes": codes}


@dataclass(frozen=True, kw_only=True)
class FileChange(Change):
    """A small file that is replaced or created, or, where `content` is None, a file or directory that is taken out.

    `name` is relative to the store. Without `mtime_ns` it keeps the time that it had.
    """

    name: str
    content: bytes | None
    mtime_ns: int | None = None

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return len(self.content or b"")

    def stage(self, transaction: Transaction) -> None:
        """Write the file, or take it out."""
        if self.content is None:
            transaction.remove(self.name)
            return
        transaction.file(self.name, mtime_ns=self.mtime_ns).write(self.content, 0)
        transaction.put(self.name)


@dataclass(frozen=True, kw_only=True)
class Patched(Change):
    """Bytes of a larger file that are replaced: `writes` are their positions in it, and what is written there."""

    name: str
    path: Path
    writes: Sequence[tuple[int, bytes]]

    @property
    def size(self) -> int:
        """Bytes that are written: all of the file."""
        return self.path.stat().st_size

    def stage(self, transaction: Transaction) -> None:
        """Prepare a copy of the file."""
        file = transaction.file(self.name)
        file.copy(self.path)
        for position, data in self.writes:
            file.write(data, position)
        transaction.put(self.name)


@dataclass(frozen=True, kw_only=True)
class Resized(Change):
    """A file that gets another size: `kept` bytes of `path`, zeros up to `new_size`, `writes` as in `Patched`.

    Without a `path` it is new.
    """

    name: str
    path: Path | None
    kept: int
    new_size: int
    writes: Iterable[tuple[int, bytes]] = ()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.new_size

    def stage(self, transaction: Transaction) -> None:
        """Prepare a copy; it keeps its holes, and zeros that are added take no space."""
        file = transaction.file(self.name)
        if self.path:
            file.copy(self.path)
        file.set_size(self.kept)
        file.set_size(self.new_size)
        for position, data in self.writes:
            file.write(data, position)
        transaction.put(self.name)


KEPT = "moved to .rmqtool (undo restores it)"


@dataclass(frozen=True, kw_only=True)
class TakenOut(Change):
    """Files and directories, whose names in the store are its `details`, are taken out; the transaction keeps them.

    `missing` are log files of whose content they may be the only proof: their loss is recorded.
    """

    missing: tuple[str, ...] = ()

    def stage(self, transaction: Transaction) -> None:
        """Take them out."""
        for name in self.details:
            transaction.remove(name)
        if self.missing:
            transaction.record(Loss(transaction.command, int(time.time() * 1000), files=self.missing))


def name_in_store(store: Store, path: Path) -> str | None:
    """The name by which a transaction changes `path`; None outside the store, behind a link or on another disk.

    Of a store on another machine, of which only a plan is made, the name in the store.
    """
    if is_remote(store.root):
        return store.relative(path)
    paths = StorePaths(store.root)
    try:
        return paths.check(store.relative(path))
    except (UnsupportedError, UnwritableError):
        return None


def names_in_store(store: Store, paths: Iterable[Path]) -> tuple[str, ...]:
    """The names of those that a transaction can change, in order, each once."""
    names = (name_in_store(store, path) for path in paths)
    return tuple(dict.fromkeys(name for name in names if name is not None))


Replaced = Literal["neutralise", "queues", "index", "config"]
"""The treatments for which a repair replaces files of one part of the store."""


def out_of_reach(store: Store, treatment: Replaced) -> tuple[Path, ...]:
    """The directories that a treatment is about and in which no transaction replaces files; missing ones are none.

    This includes a symbolic link whose target does not exist, for example on a disk that is not mounted.
    """
    found = (each for each in _directories(store, treatment) if each.is_dir() or os.path.islink(str(each)))
    return tuple(each for each in found if not name_in_store(store, each / "0"))


def _directories(store: Store, treatment: Replaced) -> tuple[Path, ...]:
    if treatment == "neutralise":
        return store.log_directories
    names = {"queues": (CONSUME_QUEUE, BATCH_CONSUME_QUEUE), "index": (INDEX,), "config": (CONFIG,)}[treatment]
    return tuple(store.root / name for name in names)


def codes_of(findings: Sequence[Finding], *, info: bool = False) -> frozenset[str]:
    """The codes of the findings; those that are only information count with `info`."""
    return frozenset(finding.code for finding in findings if info or finding.severity != "info")


def zero_from(file: MappedFile, position: int) -> bool:
    """Whether a file holds only zeros from `position` on."""
    with InputFile(file.path) as opened:
        return opened.next_data(position, opened.size) == opened.size


def once(changes: Sequence[Change]) -> Iterator[Change]:
    """Of changes that write the same file only the first, which heals what the others do."""
    of_file: dict[str, list[FileChange]] = defaultdict(list)
    for change in changes:
        if isinstance(change, FileChange):
            of_file[change.name].append(change)
    for change in changes:
        same = of_file[change.name] if isinstance(change, FileChange) else [change]
        if len(same) == 1:
            yield change
        elif change is same[0]:
            yield replace(change, codes=frozenset().union(*(each.codes for each in same)))
