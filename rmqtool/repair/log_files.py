"""What stands wrongly among the files of a store: strays, empty files, wrong sizes, wrong names.

Nothing is deleted: what is taken out or replaced is kept by the transaction. What no change heals, and what has to come
from elsewhere, says `missing_files.not_healed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.findings.finding import Finding, counted
from rmqtool.findings.report import UNREADABLE
from rmqtool.repair.blanks import blank_changes
from rmqtool.repair.change import Change
from rmqtool.repair.checkpoint import checkpoint_changes
from rmqtool.repair.fields import FIELD_CODES, right_fields
from rmqtool.repair.log_names import name_changes
from rmqtool.repair.places import KEPT, TakenOut, codes_of, name_in_store, names_in_store, zero_from
from rmqtool.repair.timer_files import timer_changes
from rmqtool.rules.file_sizes import LOG_FILE_SIZE
from rmqtool.store.missing_files import missing_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.transaction import Transaction

_LOG_STRAYS = frozenset({"commitlog.stray", "commitlog.stray-directory"})
_QUEUE_STRAY, _WRONG_KIND = "consumequeue.stray", "store.wrong-kind"
_EMPTY, _SIZE = "commitlog.empty-file", "commitlog.file-size"

BEFORE_REBUILDS = frozenset(
    {
        *(*_LOG_STRAYS, _QUEUE_STRAY, _WRONG_KIND, _EMPTY, _SIZE),
        *("commitlog.blank", "commitlog.physical-offset", "commitlog.misaligned-file", "commitlog.overlap"),
        "commitlog.duplicate-file",
        *FIELD_CODES,
    }
)
"""Codes whose changes must be in place before a rebuild reads the log, and before the log is judged again."""


@dataclass(frozen=True)
class Resized:
    """A file that gets the size of the others: filled up with zeros, or rid of zeros after that size.

    A unit of `unit_size` bytes that is not whole goes, too.
    """

    name: str
    path: Path
    old_size: int
    size: int
    codes: frozenset[str] = frozenset({_SIZE})
    unit_size: int = 1

    @property
    def what(self) -> str:
        """One line."""
        if self.old_size < self.size:
            return f"{self.name} is filled up with zeros from {self.old_size} to {self.size} bytes"
        return f"{self.name} is cut from {self.old_size} to {self.size} bytes: only zeros follow"

    @property
    def lost(self) -> str | None:
        """The part of the file that is missing."""
        if self.old_size > self.size:
            return None
        return f"what {self.name} held after its first {self.old_size} bytes, unless it is restored first"

    @property
    def details(self) -> tuple[str, ...]:
        """Nothing more to report."""
        return ()

    def stage(self, transaction: Transaction) -> None:
        """Prepare a copy; it keeps its holes, and zeros that are added take no space."""
        file = transaction.file(self.name)
        file.copy(self.path)
        file.set_size(min(self.old_size - self.old_size % self.unit_size, self.size))
        file.set_size(self.size)
        transaction.put(self.name)


def log_file_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Change]:
    """The changes for files that stand wrongly in the store, for the timer's files and for the checkpoint.

    One after the other, each judged by a verification once the one before is done: sizes, names, the rest. Strays go
    with the first, for nothing is judged by them.
    While something cannot be read, nothing is judged by contents. A rebuild of all queues writes the checkpoint itself.
    """
    codes = codes_of(findings)
    strays = [*_strays(snapshot, findings, codes), *right_fields(snapshot, findings)]
    empty = [*_empty_files(snapshot)] if _EMPTY in codes else []
    if codes & UNREADABLE:
        return [*strays, *empty]
    resized = [*_resized(snapshot)] if _SIZE in codes else []
    names_of_resized = {change.name for change in resized}
    blanks = (each for each in blank_changes(snapshot, findings) if each.name not in names_of_resized)  # judged again
    sizes = [*empty, *resized, *blanks]
    names = [] if sizes else name_changes(snapshot, codes)
    return [*strays, *sizes, *names] or [*timer_changes(snapshot, findings), *checkpoint_changes(snapshot, codes)]


def expected_size(snapshot: Snapshot) -> int | None:
    """The size that every commit log file should have, bytes; None where files and broker.conf contradict each other.

    A size that most files share is right, and a broker.conf that says another one is wrong.
    """
    usual = snapshot.log.file_size
    configured = snapshot.store.conf.size(*LOG_FILE_SIZE)
    return usual if usual and configured in (None, usual) else None


def empty_files(log: MappedFiles) -> tuple[MappedFile, ...]:
    """The files of 0 bytes; none where all of a log that goes on are empty."""
    empty = tuple(file for file in log.files if not file.size)
    return empty if len(empty) < len(log.files) or log.files[0].start_offset == 0 else ()


def _strays(snapshot: Snapshot, findings: Sequence[Finding], codes: frozenset[str]) -> Iterator[Change]:
    store = snapshot.store
    if codes & _LOG_STRAYS:
        yield from _taken_out(snapshot, [stray.path for stray in snapshot.log.strays], _LOG_STRAYS & codes)
    in_queues = [stray.path for queue in snapshot.queues for stray in queue.files.strays]
    is_in_the_way = "consumequeue.missing-queue" in codes
    told = [
        finding for finding in findings
        if finding.code == _QUEUE_STRAY and (finding.severity != "info" or is_in_the_way)
    ]  # fmt: skip
    if told:
        paths = [*in_queues, *(store.root / finding.file for finding in told if finding.file)]
        yield from _taken_out(snapshot, paths, frozenset({_QUEUE_STRAY}))
    wrong = [store.root / finding.file for finding in findings if finding.code == _WRONG_KIND and finding.file]
    yield from _taken_out(snapshot, wrong, frozenset({_WRONG_KIND}))


def _taken_out(snapshot: Snapshot, paths: Sequence[Path], codes: frozenset[str]) -> Iterator[Change]:
    names = names_in_store(snapshot.store, paths)
    if names:
        which = names[0] if len(names) == 1 else f"{len(names)} entries that do not belong there"
        yield TakenOut(names, codes, f"{which}: taken out of the way; {KEPT}")


def _empty_files(snapshot: Snapshot) -> Iterator[Change]:
    empty, last = empty_files(snapshot.log), snapshot.log.files[-1]
    names = names_in_store(snapshot.store, [file.path for file in empty])
    if names:
        what = f"{counted(len(names), 'file')} of 0 bytes of the log: taken out; nothing is in there"
        held = [file.start_offset for file in empty if file != last]  # the last one may never have held anything
        missing = tuple(name for start in held for name in missing_files(snapshot, start, start + 1))
        yield TakenOut(names, frozenset({_EMPTY}), what, missing=missing)


def _resized(snapshot: Snapshot) -> Iterator[Resized]:
    size = expected_size(snapshot)
    for file in snapshot.log.files if size else ():
        name = name_in_store(snapshot.store, file.path)
        if name and size and is_resizable(file, size):
            yield Resized(name, file.path, file.size, size)


def is_resizable(file: MappedFile, size: int) -> bool:
    """Whether a file is short, so that no start takes it as it is, or has only zeros beyond the size of a whole one."""
    return 0 < file.size < size or (file.size > size and zero_from(file, size))
