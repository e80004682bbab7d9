"""The plan and the progress of a transaction: ``STORE/.rmqtool/NNNN-DIGEST/journal.json`` and `state`.

The journal is written once, before anything of the store moves, and never changed. `state` is one word:

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.files import InputFile, read_all
from rmqtool.formats.file_name import start_offset_of
from rmqtool.transaction.digest import Manifest, text_digest
from rmqtool.transaction.paths import StorePaths
from rmqtool.transaction.system import System, create_file, sync_path

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
            "steps": [
                {
                    "path": step.path,
                    "kind": step.kind,
                    "whole": step.whole,
                    "changes": [vars(change) for change in step.changes],
                }
                for step in self.steps
            ],
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
            Step(step["path"], step["kind"], tuple(PathChange(**change) for change in step["changes"]), step["whole"])
            for step in content["steps"]
        ),
        tuple(Deletion(**deletion) for deletion in content["deletions"]),
        tuple(map(str, content.get("options", ()))),
    )


def _present(path: Path) -> Path:
    """The path, unless nothing is there: somebody has removed a part of the transaction."""
    with suppress(OSError):  # whoever opens it says why that fails
        if not path.exists():
            raise _unknown(path, "is missing: somebody has removed a part of what this run had left")
    return path


def _unknown(path: Path, what: str = "not written by this version of rmqtool, or damaged") -> UnknownRunError:
    return UnknownRunError(
        what,
        file=path,
        hint=f"docs/undo.md says what each file in .rmqtool is and how to put files back by hand; to go on without, "
        f"move {path.parent} out of the store, and verify it",
    )


def _text(value: Any, indent: int | None = None) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=indent) + "\n").encode("ascii")
