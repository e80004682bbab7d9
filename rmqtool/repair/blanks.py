"""Blanks that claim more bytes than their commit log file has left, or less than none.

A broker since 5.3.2 takes the former for the end of the log, since 5.5.1 the latter, too
(`CommitLog#checkMessageAndReturnSize`). Only their size is wrong, and the right one loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.findings.finding import Finding
from rmqtool.formats.message import BLANK_SIZE, build_blank
from rmqtool.repair.places import name_in_store
from rmqtool.scan.probe import Probe, find_next
from rmqtool.store.snapshot import Snapshot
from rmqtool.transaction import Transaction

_CODE = "commitlog.blank"


@dataclass(frozen=True)
class RightBlank:
    """The blank at `position` of a commit log file gets the size that leads to the end of the file."""

    name: str
    file: MappedFile
    position: int
    codes: frozenset[str] = frozenset({_CODE})
    lost: str | None = None
    details: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """One line."""
        return f"{self.name}: the blank at its end gets the size of what is left there"

    @property
    def size(self) -> int:
        """Bytes that it writes."""
        return self.file.size

    def stage(self, transaction: Transaction) -> None:
        """Prepare a copy of the file."""
        file = transaction.file(self.name)
        file.copy(self.file.path)
        file.write(build_blank(self.file.size - self.position), self.position)
        transaction.put(self.name)


def blank_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[RightBlank]:
    """The right blanks; what is missing or zeroed where a blank should be is damage, which a rebuild neutralises."""
    for finding in findings:
        if finding.code != _CODE or finding.offset is None:
            continue
        file = file_at(snapshot.log.files, finding.offset)
        name = file and name_in_store(snapshot.store, file.path)
        if file and name and _has_wrong_size(file, finding.offset - file.start_offset):
            yield RightBlank(name, file, finding.offset - file.start_offset)


def _has_wrong_size(file: MappedFile, position: int) -> bool:
    """Whether a blank stands there that claims more than the rest of the file or less than none; no record follows."""
    with InputFile(file.path) as opened:
        blank = Probe(opened, file.start_offset, position)
        is_wrong = blank.kind == "blank" and not 0 <= blank.size <= file.size - position
        return is_wrong and find_next(opened, file.start_offset, position + BLANK_SIZE) == file.size
