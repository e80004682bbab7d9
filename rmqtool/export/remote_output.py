"""An output on another machine, where nothing can be renamed safely: the manifest says what is in it.

Workers write files under their final names, each attempt under its own, which no manifest names yet. A commit looks
whether all of them are there, writes down what it will do (`_commit.json`), writes `_manifest.json`, removes what is
replaced, and writes `_SUCCESS` last. Whoever goes by the manifest reads one whole export at any moment. A commit that
was interrupted is finished by the next run, which also removes files that no manifest names.
"""

from __future__ import annotations

import json
import re
import uuid
from contextlib import suppress
from typing import Any

from rmqtool.base.errors import RmqtoolError, notice
from rmqtool.base.files import Closing
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import Mode, Target
from rmqtool.export.output import FINISHED, MANIFEST, SUCCESS, Commit, as_json, check_mode, follow_table, parse_manifest
from rmqtool.export.sink import files_in, read_remote, remove_remote, unwritable, write_remote

JOURNAL = "_commit.json"
OURS = re.compile(r"(.*/)?part-(empty|\d{5}-\d{20}(-tail)?(-\d{5})?)-[0-9a-f]{12}(-[0-9a-f]{8})?\.[a-z0-9.]+", re.ASCII)
_OTHER = "another run has written to this output meanwhile: nothing of this one is in it"


class RemoteOutput(Closing):
    """The output while a run writes to it; files that are not committed are removed when it is closed.

    No lock keeps other runs away. One that has changed the output meanwhile is noticed by the commit, which then fails.
    Raises UsageError where the mode forbids the place, RmqtoolError when it cannot be written.
    """

    def __init__(self, path: RemotePath, mode: Mode) -> None:
        self.path = path
        run = uuid.uuid4().hex[:12]
        self.target = Target(path, run, is_direct=True)
        try:
            self._recover()
            self._before = self._stored(MANIFEST)
            self.manifest = None if self._before is None else parse_manifest(self._before, path / MANIFEST)
            names = [name for name, _ in files_in(path)]
            check_mode(path, self.manifest, mode, is_empty=all(OURS.fullmatch(name) for name in names))
            self._remove([name for name in names if OURS.fullmatch(name) and name not in _paths(self.manifest)])
        except OSError as error:
            raise unwritable(path, error) from error

    def commit(self, commit: Commit) -> None:
        """Make all files of a run part of the export; raises RmqtoolError where one is missing."""
        journal = {"manifest": commit.manifest, "removed": list(commit.removed)}
        try:
            there = dict(files_in(self.path))
            missing = [file.path for file in commit.files if there.get(file.path) != file.bytes]
            if missing or self._stored(MANIFEST) != self._before:
                raise RmqtoolError(_OTHER, file=self.path, hint="run it again, one run at a time")
            write_remote(self._file(JOURNAL), as_json(journal))
            self._apply(journal)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Remove files of this run that were not committed: those of attempts that failed, or of all."""
        with suppress(OSError, RmqtoolError):  # the next run removes them, too
            known = _paths(self._known())
            mark = f"-{self.target.run}"
            self._remove([name for name, _ in files_in(self.path) if mark in name and name not in known])

    def _recover(self) -> None:
        """Finish a commit that was interrupted: what it had written down, if that is whole."""
        data = self._stored(JOURNAL)
        if data is not None:
            with suppress(ValueError):
                self._apply(json.loads(data))
                notice(FINISHED)
            remove_remote(self._file(JOURNAL))

    def _apply(self, journal: dict[str, Any]) -> None:
        """Carry out a journal; doing it again changes nothing."""
        remove_remote(self._file(SUCCESS))
        write_remote(self._file(MANIFEST), as_json(journal["manifest"]))
        follow_table(self.path, journal["manifest"])
        self._remove(journal["removed"])
        write_remote(self._file(SUCCESS), b"")
        remove_remote(self._file(JOURNAL))

    def _known(self) -> dict[str, Any] | None:
        """What the manifest, or a commit that has begun, says by now."""
        journal = self._stored(JOURNAL)
        if journal is not None:
            with suppress(ValueError):
                manifest: dict[str, Any] = json.loads(journal)["manifest"]
                return manifest
        data = self._stored(MANIFEST)
        return None if data is None else parse_manifest(data, self.path / MANIFEST)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            remove_remote(self._file(name))

    def _stored(self, name: str) -> bytes | None:
        try:
            return read_remote(self._file(name))
        except FileNotFoundError:
            return None

    def _file(self, name: str) -> RemotePath:
        return RemotePath(*self.path.parts, *name.split("/"))


def _paths(manifest: dict[str, Any] | None) -> set[str]:
    return {file["path"] for kind in ("files", "damaged") for file in (manifest or {}).get(kind, [])}
