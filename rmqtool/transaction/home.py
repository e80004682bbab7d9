"""The directory ``STORE/.rmqtool``: its transactions, each with a journal, and the leftovers of interrupted runs.

A journal, ``NNNN-DIGEST/journal.json``, is written once, before anything of the store moves, and never changed.
`state`, beside it, is one word:

``committing``  the steps are being carried out; the next run finishes them, or takes them back
``deleting``    the steps are done, files are being deleted for good
``done``        the files in ``old/`` are those that were replaced
``undoing``     they are being put back; the next run finishes that, or takes it back
``abandoned``   somebody else wrote to the store meanwhile: what is in place stays
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnsupportedError
from rmqtool.base.files import InputFile, list_directory, read_all
from rmqtool.base.numbers import byte_size
from rmqtool.base.remote_path import RemotePath
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Severity
from rmqtool.formats.file_name import start_offset_of
from rmqtool.transaction.paths import HOME, StorePaths, read_attributes, set_attributes
from rmqtool.transaction.system import (
    SYSTEM,
    Manifest,
    System,
    create_file,
    is_directory,
    remove_tree,
    sync_path,
    text_digest,
)

State = Literal["committing", "deleting", "done", "undoing", "abandoned"]
STATES: tuple[State, ...] = ("committing", "deleting", "done", "undoing", "abandoned")
Kind = Literal["replace", "create", "remove"]

FORMAT = "rmqtool.journal/1"
JOURNAL = "journal.json"
STATE = "state"
TIMES = "times.json"
_MAX_SIZE = 1 << 30  # bytes; 100,000 queues take about 40 MB
_MAX_STATE_SIZE = 64
_ID = re.compile(r"(\d{4,})-[0-9a-f]{12}", re.ASCII)
_DIGEST_CHARACTERS = 12


class UnknownRunError(UnreadableError):
    """What shows what a transaction is, or how far, is missing or damaged."""


@dataclass(frozen=True)
class PathChange:
    """One path of the store, and its manifests before and after."""

    path: str
    before: Manifest
    after: Manifest

    def reversed(self) -> PathChange:
        """The change that undoes this one."""
        return PathChange(self.path, self.after, self.before)


@dataclass(frozen=True)
class Step:
    """One rename of the store: `path` comes, goes, or changes places with what is staged.

    A `whole` step replaces a directory of which only `changes` differ; all else in it has the same files as before.
    """

    path: str
    kind: Kind
    changes: tuple[PathChange, ...]
    whole: bool = False

    def reversed(self) -> Step:
        """The step that undoes this one."""
        kinds: dict[Kind, Kind] = {"replace": "replace", "create": "remove", "remove": "create"}
        return Step(self.path, kinds[self.kind], tuple(change.reversed() for change in self.changes), self.whole)


@dataclass(frozen=True)
class Deletion:
    """A file to delete for good, if it is still the one of this size, bytes, and time; absolute outside the store."""

    path: str
    size: int
    mtime_ns: int

    def is_still(self, status: os.stat_result | None) -> bool:
        """Whether this is the status of the file that is to be deleted; None where nothing is there."""
        return status is not None and (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


@dataclass(frozen=True)
class Journal:
    """One transaction; `number` counts those of a store.

    `options` are those of the command that the next commands on the store need, too, as words.
    """

    number: int
    command: str
    steps: tuple[Step, ...]
    deletions: tuple[Deletion, ...] = ()
    options: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Number and digest of the content: the same steps give the same id, without a clock."""
        return f"{self.number:04d}-{text_digest(_text(self._contents()))[:_DIGEST_CHARACTERS]}"

    def as_bytes(self) -> bytes:
        """The file `journal.json`."""
        contents = {"format": FORMAT, "id": self.id, **self._contents(), "options": self.options}
        return _text(contents, indent=1)

    def _contents(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "command": self.command,
            "steps": [vars(step) | {"changes": [vars(change) for change in step.changes]} for step in self.steps],
            "deletions": [vars(deletion) for deletion in self.deletions],
        }


def number_of(name: str) -> int | None:
    """The number in the name of a transaction's directory, None for any other name."""
    match = _ID.fullmatch(name)
    return int(match[1]) if match else None


def read_journal(directory: Path, paths: StorePaths) -> Journal:
    """The journal in a transaction's directory; raise UnknownRunError when it is not as this program writes it."""
    path = _present(directory / JOURNAL)
    try:
        with InputFile(path) as file:
            journal = _parse(json.loads(file.read(0, min(file.size, _MAX_SIZE))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unknown(path) from error
    if journal.id != directory.name:
        raise _unknown(path)
    for step in journal.steps:
        paths.check(step.path)
        if not all(f"{change.path}/".startswith(f"{step.path}/") for change in step.changes):
            raise _unknown(path)
    for deletion in journal.deletions:
        if not os.path.isabs(deletion.path):
            paths.check_name(deletion.path)
        elif start_offset_of(os.path.basename(deletion.path)) is None:
            raise _unknown(path)  # outside the store lie commit log files, and nothing else
    return journal


def times_file(times: Mapping[str, int]) -> bytes:
    """The file `times.json`: when the directories whose entries a run changes were modified last before it, ns.

    By their names in the store, which is "". It is apart from the journal, which is the same for the same files.
    """
    return _text(dict(times), indent=1)


def read_times(directory: Path) -> dict[str, int]:
    """What `times_file` has written; nothing where it is missing or damaged, for no byte depends on it."""
    with suppress(RmqtoolError, ValueError, AttributeError):
        content = json.loads(read_all(directory / TIMES, _MAX_SIZE))
        return {name: time for name, time in content.items() if type(time) is int}
    return {}


def read_state(directory: Path) -> State:
    """How far a transaction is; raise UnknownRunError when its file does not say so."""
    path = _present(directory / STATE)
    text = read_all(path, _MAX_STATE_SIZE).decode("ascii", "replace").strip()
    for state in STATES:
        if text == state:
            return state
    raise _unknown(path)


def write_state(system: System, directory: str, state: State) -> None:
    """Say how far a transaction is; on the disk when this returns."""
    prepare_state(system, directory, state)
    path = os.path.join(directory, STATE)
    system.rename(f"{path}.{state}", path)
    sync_path(system, directory)


def prepare_state(system: System, directory: str, state: State) -> None:
    """Write the state beside, so that a later `write_state` is only a rename and needs no disk space."""
    path, data = os.path.join(directory, f"{STATE}.{state}"), f"{state}\n".encode()
    status = system.lstat(path)
    if status and status.st_size == len(data):
        return
    if status:
        system.unlink(path)
    create_file(system, path, data)


def _parse(content: dict[str, Any]) -> Journal:
    if content["format"] != FORMAT:
        raise ValueError(content["format"])
    return Journal(
        int(content["number"]),
        str(content["command"]),
        tuple(
            Step(**step | {"changes": tuple(PathChange(**change) for change in step["changes"])})
            for step in content["steps"]
        ),
        tuple(Deletion(**deletion) for deletion in content["deletions"]),
        tuple(map(str, content.get("options", ()))),
    )


def _present(path: Path) -> Path:
    """The path, unless nothing is there: somebody has removed a part of the transaction."""
    with suppress(OSError):  # whoever opens it says why that fails
        if not path.exists():
            raise _unknown(path, "is missing: some files of this run were removed")
    return path


def _unknown(path: Path, what: str = "not written by this version of rmqtool, or damaged") -> UnknownRunError:
    return UnknownRunError(
        what,
        file=path,
        hint=f"docs/undo.md says what each file in .rmqtool is and how to put files back by hand; to continue "
        f"without, move {path.parent} out of the store"
        f", and verify it",
    )


def _text(value: Any, indent: int | None = None) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=indent) + "\n").encode("ascii")


STAGING, TRASH = "staging", "trash"
NEW, OLD, UNDO, UNDONE = "new", "old", "undo", "undone"
LOSS, LOSSES = "loss.json", "losses"
"""The record of a transaction's loss, and the directory of those whose transaction was discarded."""

_RECORD = ".json"

Outcome = Literal["finished", "rolled_back", "abandoned"]


@dataclass(frozen=True)
class Recovered:
    """The outcome of an interrupted run; `id` and `command` are None where it had not begun to write."""

    id: str | None
    command: str | None
    outcome: Outcome

    @property
    def text(self) -> str:
        """One sentence for people."""
        what = f"the interrupted {self.command} {self.id}" if self.id else "an interrupted run"
        return {
            "finished": f"{what} is now finished",
            "rolled_back": f"{what} is rolled back: the store is as before it",
            "abandoned": f"{what} cannot be finished: another process has written to the store meanwhile. The "
            f"replaced files are in {HOME}/{self.id}/{OLD}; verify the store, and repair it again",
        }[self.outcome]


class Home:
    """Everything below ``.rmqtool``; made when the first transaction begins, gone with the last."""

    def __init__(self, paths: StorePaths) -> None:
        self.path = paths.home
        self.paths = paths
        self._system = paths.system

    @property
    def staging(self) -> str:
        """Where a transaction is built that has no journal yet."""
        return os.path.join(self.path, STAGING)

    def directory(self, name: str) -> str:
        """The directory of one transaction."""
        return os.path.join(self.path, name)

    def make(self) -> None:
        """Make the directory; it belongs to the store's owner and to nobody else."""
        status = self._system.lstat(self.path)
        if status is None:
            self._system.make_directory(self.path)
            root = os.stat(self.paths.root)
            owner = read_attributes(self._system, self.paths.root, root)
            set_attributes(self._system, self.path, type(owner)(owner.uid, owner.gid, 0o700, owner.labels))
            sync_path(self._system, self.paths.root)

    def check(self) -> None:
        """Raise UnsupportedError when something else has our name."""
        if self._system.lstat(self.path) and not is_directory(self._system, self.path):
            raise UnsupportedError("not a directory: rmqtool keeps its journal there", file=self.path)

    def names_by_number(self) -> dict[int, str]:
        """The transactions by number, the oldest first."""
        return transactions(Path(self.paths.root))

    def next_number(self) -> int:
        """The number of the next transaction: above all that are here, or have left a record of a loss."""
        losses = list_directory(Path(self.path) / LOSSES) if is_directory(self._system, self.path) else []
        recorded = [number_of(entry.name.removesuffix(_RECORD)) or 0 for entry in losses]
        return max([*recorded, *self.names_by_number()], default=0) + 1

    def journal(self, name: str) -> Journal:
        """The journal of one transaction."""
        return read_journal(Path(self.directory(name)), self.paths)

    def state(self, name: str) -> State:
        """The state of one transaction."""
        return read_state(Path(self.directory(name)))

    def drop(self, name: str) -> None:
        """Forget a transaction in one step, then remove its files."""
        trash = self.directory(TRASH)
        remove_tree(self._system, trash)
        self._system.rename(self.directory(name), trash)
        sync_path(self._system, self.path)
        self.clear()

    def keep_loss(self, name: str) -> None:
        """Move a transaction's record of a loss, if it has one, to where it stays without the transaction."""
        record, losses = os.path.join(self.directory(name), LOSS), self.directory(LOSSES)
        if not self._system.lstat(record):
            return
        if not self._system.lstat(losses):
            self._system.make_directory(losses)
            sync_path(self._system, self.path)
        self._system.rename(record, os.path.join(losses, name + _RECORD))
        for directory in (losses, self.directory(name)):
            sync_path(self._system, directory)

    def forget_loss(self, name: str) -> None:
        """Remove the record of a transaction that is taken back, where a discard was interrupted that kept it."""
        record = os.path.join(self.directory(LOSSES), name + _RECORD)
        if self._system.lstat(record):
            self._system.unlink(record)
            sync_path(self._system, self.directory(LOSSES))

    def clear(self) -> None:
        """Remove files that belong to no transaction, and the whole directory when nothing else is there."""
        for name in (STAGING, TRASH):
            remove_tree(self._system, self.directory(name))
        losses = self.directory(LOSSES)
        if is_directory(self._system, losses) and not self._system.list(losses):
            self._system.remove_directory(losses)
        if is_directory(self._system, self.path):
            if self._system.list(self.path):
                sync_path(self._system, self.path)
                return
            self._system.remove_directory(self.path)
        sync_path(self._system, self.paths.root)


def transactions(root: Path) -> dict[int, str]:
    """Names of the transactions of the store at `root` by number, the oldest first; reads only."""
    numbered = {entry.name: number_of(entry.name) for entry in list_directory(root / HOME)}
    return dict(sorted((number, name) for name, number in numbered.items() if number is not None))


def interrupted(root: Path) -> str | None:
    """The name of the first run that did not end, ``staging`` for one that had no journal yet, or None; reads only."""
    for name in transactions(root).values():
        if read_state(root / HOME / name) not in ("done", "abandoned"):
            return name
    return STAGING if (root / HOME / STAGING).is_dir() else None


def has_leftovers(root: Path) -> bool:
    """Whether a run was killed while it removed what it had let go of, which is no part of a run any more; reads only.

    The next run that writes to the store removes the rest.
    """
    names = {entry.name for entry in list_directory(root / HOME)}
    return TRASH in names or ((root / HOME).is_dir() and not names)


@dataclass(frozen=True)
class UnfinishedDeletion:
    """An interrupted transaction, and the files that it would still delete."""

    id: str
    command: str
    files: int
    size: int

    @property
    def text(self) -> str:
        """What it is, for people; the beginning of a sentence."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.command} {self.id} still has {files} of {byte_size(self.size)} to delete for good"

    @property
    def comes_first(self) -> str:
        """What is done before anything else, for a question."""
        return f"The interrupted {self.text} is finished first ({self.to_keep_them})."

    @property
    def to_keep_them(self) -> str:
        """What keeps those files."""
        return f"to keep {'it' if self.files == 1 else 'them'}, move {HOME}/{self.id} out of the store first"


def unfinished_deletion(root: Path) -> UnfinishedDeletion | None:
    """The interrupted run that would still delete files; None without one."""
    if isinstance(root, RemotePath):
        return None  # nobody writes there
    name = interrupted(root)
    if name is None or name == STAGING:
        return None
    journal = read_journal(root / HOME / name, StorePaths(root))
    left = [each for each in journal.deletions if each.is_still(SYSTEM.lstat(str(root / each.path)))]
    if not left:
        return None
    return UnfinishedDeletion(name, journal.command, len(left), sum(deletion.size for deletion in left))


def interrupted_findings(root: Path) -> Iterator[Finding]:
    """The finding for a run that was interrupted; the next run that writes brings it to its end."""
    try:
        name, deletion = interrupted(root), unfinished_deletion(root)
    except UnknownRunError as error:
        name, file = Path(str(error.file)).parts[-2:]
        yield finding("store.interrupted-run", severity="error", file=f"{HOME}/{name}/{file}", store=root,
                      details={"problem": "unknown"})  # fmt: skip
        return
    if name:
        facts = {"problem": "deletion", "deletion": deletion.text} if deletion else {"problem": "run"}
        severity: Severity | None = None if name == STAGING else "error"  # files may be half old and half new
        yield finding("store.interrupted-run", severity=severity, file=f"{HOME}/{name}", store=root, details=facts)
