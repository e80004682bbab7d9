"""One change of a repair: shown before it is made, made in a transaction, taken back by undo."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import is_remote
from rmqtool.findings.finding import Finding
from rmqtool.store.store import Store
from rmqtool.transaction import Loss, Transaction
from rmqtool.transaction.paths import StorePaths


class Change(Protocol):
    """What a plan shows of a change, and how it is made."""

    @property
    def codes(self) -> frozenset[str]:
        """The codes of the findings that it heals."""

    @property
    def what(self) -> str:
        """One line: what becomes of which file."""

    @property
    def lost(self) -> str | None:
        """What it cannot bring back; None for nothing."""

    @property
    def details(self) -> tuple[str, ...]:
        """More lines, shown one by one."""

    @property
    def size(self) -> int:
        """Bytes that it writes."""

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change; the transaction's commit makes it."""


def change_json(change: Change) -> dict[str, Any]:
    """The JSON object of the contract."""
    return {
        "what": change.what,
        "details": list(change.details),
        "lost": change.lost,
        "codes": sorted(change.codes),
    }


@dataclass(frozen=True)
class FileChange:
    """A small file that is replaced or created, or, where `content` is None, a file or directory that is taken out.

    `name` is relative to the store.
    """

    name: str
    content: bytes | None
    codes: frozenset[str]
    what: str
    lost: str | None = None
    details: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return len(self.content or b"")

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change; what is replaced is kept until undo."""
        if self.content is None:
            transaction.remove(self.name)
            return
        transaction.file(self.name).write(self.content, 0)
        transaction.put(self.name)


KEPT = "rmqtool keeps it until undo --discard"


@dataclass(frozen=True)
class TakenOut:
    """Files and directories, by their names in the store, that are taken out; the transaction keeps them.

    `missing` are log files of whose content they may be the only proof: their loss is recorded.
    """

    names: tuple[str, ...]
    codes: frozenset[str]
    what: str
    lost: str | None = None
    size: int = 0
    missing: tuple[str, ...] = ()

    @property
    def details(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change."""
        for name in self.names:
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


def codes_of(findings: Sequence[Finding], *, info: bool = False) -> frozenset[str]:
    """The codes of the findings; those that are only information count with `info`."""
    return frozenset(finding.code for finding in findings if info or finding.severity != "info")


def zero_from(file: MappedFile, position: int) -> bool:
    """Whether a file holds only zeros from `position` on."""
    with InputFile(file.path) as opened:
        return opened.next_data(position, opened.size) == opened.size
