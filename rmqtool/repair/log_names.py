"""Commit log files under wrong names: each record gives its own position, so the first one gives the file's name.

All or nothing: files are renamed only where the log follows on better with the new names than with the old ones. A file
of another broker would only tear a new gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.findings.finding import counted
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import HEAD
from rmqtool.repair.change import Change
from rmqtool.repair.places import KEPT, TakenOut, name_in_store, zero_from
from rmqtool.scan.events import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.probe import Probe
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.transaction import Transaction
from rmqtool.transaction.digest import same_entry
from rmqtool.transaction.system import SYSTEM

Starts = Mapping[MappedFile, int]
"""The start offset of each file as its records give it."""

NAME_CODES = frozenset(
    {
        *("commitlog.physical-offset", "commitlog.misaligned-file", "commitlog.overlap", "commitlog.gap"),
        "commitlog.duplicate-file",
    }
)
"""Codes of findings that a wrong name, or a second copy, may cause."""


@dataclass(frozen=True)
class Renamed:
    """Commit log files that get the names that their records give: pairs of the name now and the name to be."""

    names: tuple[tuple[str, str], ...]
    codes: frozenset[str]
    lost: str | None = None
    size: int = 0

    @property
    def what(self) -> str:
        """One line."""
        if len(self.names) == 1:
            old, new = self.names[0]
            return f"{old} is renamed to {new}: that is where its records say they are"
        return f"{counted(len(self.names), 'log file')} get the names that their records give"

    @property
    def details(self) -> tuple[str, ...]:
        """The names."""
        return tuple(f"{old} becomes {new}" for old, new in self.names)

    def stage(self, transaction: Transaction) -> None:
        """Prepare the new names as links: at no moment of the commit a file is without a name."""
        for old, new in self.names:
            transaction.link(new, old)
            transaction.put(new)
        for old in {old for old, _ in self.names} - {new for _, new in self.names}:
            transaction.remove(old)


def name_changes(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    """Copies that are taken out, and files that are renamed."""
    if not codes & NAME_CODES or "store.mixed" in codes:
        return []
    starts = {file: told_start(file, snapshot.reading) for file in snapshot.log.files if file.size}
    copies = dict(_copies(snapshot.store, starts))
    return [*_taken_out(snapshot.store, copies, codes), *_renamed(snapshot.store, starts, copies, codes)]


def told_start(file: MappedFile, reading: ReadPolicy) -> int:
    """The start offset that the first record of a file gives, if most of the file agrees; else that of its name."""
    with InputFile(file.path, reading) as opened:
        if Probe(opened, file.start_offset, 0).kind != "physical-offset":
            return file.start_offset
        stored = int(HEAD.unpack(opened.read(0, HEAD.size))[2])
    if stored < 0:
        return file.start_offset
    sizes = {RecordRun: 0, Damage: 0}
    for event in scan_files([MappedFile(file.path, stored, file.size)], reading=reading):
        if isinstance(event, (RecordRun, Damage)):
            sizes[type(event)] += event.size
    return stored if sizes[RecordRun] > sizes[Damage] else file.start_offset


def _copies(store: Store, starts: Starts) -> Iterator[tuple[MappedFile, MappedFile]]:
    """Files that are byte for byte another one, which stands where it belongs, each with that one."""
    by_start: dict[int, list[MappedFile]] = defaultdict(list)
    for file, start in starts.items():
        by_start[start].append(file)
    for start, files in by_start.items():
        where = {file: (file.start_offset != start, name_in_store(store, file.path) is not None) for file in files}
        original, *others = sorted(files, key=lambda file: where[file])
        for other in others:
            if same_entry(SYSTEM, str(original.path), str(other.path)):
                yield other, original


def _taken_out(store: Store, copies: Mapping[MappedFile, MappedFile], codes: frozenset[str]) -> Iterator[TakenOut]:
    for copy, original in copies.items():
        name = name_in_store(store, copy.path)
        if name:
            what = f"{name} is taken out: byte for byte the same as {store.relative(original.path)}; {KEPT}"
            yield TakenOut((name,), codes & NAME_CODES, what)


def _renamed(
    store: Store, starts: Starts, copies: Mapping[MappedFile, MappedFile], codes: frozenset[str]
) -> Iterator[Renamed]:
    left = {file: start for file, start in starts.items() if file not in copies}
    moved = {file: start for file, start in left.items() if start != file.start_offset}
    wanted = set(moved.values())
    # Files of zeros, allocated ahead, give way: the transaction replaces and keeps them.
    after = {
        file: start for file, start in left.items()
        if file in moved or start not in wanted or not zero_from(file, 0)
    }  # fmt: skip
    if not moved or not _follows_better(after, list(left)):
        return
    pairs = [(file.path, file.path.with_name(file_name(start))) for file, start in moved.items()]
    names = [(name_in_store(store, old), name_in_store(store, new)) for old, new in pairs]
    if all(old and new for old, new in names):
        yield Renamed(tuple((old, new) for old, new in names if old and new), codes & NAME_CODES)


def _follows_better(after: Mapping[MappedFile, int], before: Sequence[MappedFile]) -> bool:
    """Whether no two files have one start, and fewer do not follow on; or as many, with the same names or all new."""
    starts = sorted(after.values())
    if len(set(starts)) < len(starts):
        return False
    breaks_after = _breaks((start, start + file.size) for file, start in after.items())
    breaks_before = _breaks((file.start_offset, file.end_offset) for file in before)
    if breaks_after < breaks_before:
        return True
    is_rearranged = set(starts) <= {file.start_offset for file in before}
    return breaks_after == breaks_before and (
        is_rearranged or all(file.start_offset != start for file, start in after.items())
    )


def _breaks(extents: Iterable[tuple[int, int]]) -> int:
    """How many files do not begin where the one before them ends."""
    return sum(before[1] != after[0] for before, after in pairwise(sorted(extents)))
