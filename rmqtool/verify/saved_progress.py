"""The progress of a verification in a file outside of the store, so that a later run goes on where one has ended.

The file is a line of JSON, which tells of what store, by which options and by which release of this program it is, and
then the merged results of whole parts. They are Python objects, of these classes only: a file that somebody else made
can do nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UsageError
from rmqtool.base.new_files import whole_file
from rmqtool.base.visible import visible
from rmqtool.store.lock import lock_holder
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.store import Store
from rmqtool.verify.gaps import files_below
from rmqtool.verify.part_result import PartMerger
from rmqtool.verify.task import VerifyRequest

_FORMAT = "rmqtool.verify-progress/1"
_LEVEL = 1  # of compression
_HEADER_SIZE = 1 << 20  # bytes at most
_CLASSES = {
    "array": ("array", "_array_reconstructor"),
    "collections": ("Counter",),
    "pathlib": ("PosixPath", "Path"),
    "pathlib._local": ("PosixPath", "Path"),  # of Python 3.13
    "rmqtool.base.errors": ("UnreadableError", "WrongKindError", "ExhaustedError"),
    "rmqtool.base.mapped_files": ("MappedFile",),
    "rmqtool.base.remote_path": ("RemotePath",),
    "rmqtool.broker.destinations": ("Undeliverable",),
    "rmqtool.broker.dispatched_units": ("QueueName",),
    "rmqtool.broker.field_damage": ("SuspectUnit", "Suspects"),
    "rmqtool.broker.log_walk": ("FileWalk",),
    "rmqtool.clients.keys": ("KeyTally", "Unreached"),
    "rmqtool.findings.finding": ("Finding", "Remedy"),
    "rmqtool.findings.report": ("Report", "Selection", "Tally"),
    "rmqtool.scan.filters": ("TopicChoice",),
    "rmqtool.store.rocksdb": ("DamagedDatabaseError",),
    "rmqtool.verify.bad_extents": ("Extents",),
    "rmqtool.verify.part_result": ("PartBoundary", "PartMerger", "PartResult"),
    "rmqtool.verify.queue_progress": ("MissingUnits", "QueueProgress"),
    "rmqtool.verify.read_errors": ("UnreadFiles",),
    "rmqtool.verify.record_checks": ("HeldFinding", "RecordTotals", "Unflagged"),
    "rmqtool.verify.task": ("LogPart",),
}
_UNPICKLING = (pickle.UnpicklingError, zlib.error, AttributeError, EOFError, LookupError, TypeError, ValueError)
_DAMAGED = "is not the progress of a verification, or is damaged"


class SavedProgress:
    """A file of progress; `merger` is what it holds, None where there is none yet.

    `problem` is what went wrong with it.
    """

    def __init__(self, path: Path, store: Store, request: VerifyRequest, release: str) -> None:
        """Read the file, if it is there; raises UsageError where it does not belong to this verification.

        `release` is that of this program, which may come to other results than an earlier one.
        """
        if lock_holder(store.root) is not None:
            raise UsageError("a broker runs on this store, and changes what was verified: --resume cannot continue",
                             file=store.root, hint="--sample and --time-limit alone work on it")  # fmt: skip
        self.path = path
        self.merger: PartMerger | None = None
        self.problem: str | None = None
        self._about = {
            "format": _FORMAT,
            "rmqtool": release,
            "store": str(store.root.resolve()),
            "options": " ".join(request.words),
            "settings": _checksum([json.dumps(store.conf.settings)]),
            "rocksdict": is_readable(),
            "files": _fingerprint(store),
        }
        if path.exists():
            self._read()

    def save(self, merger: PartMerger) -> None:
        """Replace the file as a whole; what goes wrong is the `problem`, for the verification can go on."""
        content = zlib.compress(pickle.dumps(merger, pickle.HIGHEST_PROTOCOL), _LEVEL)
        header = {**self._about, "sha256": hashlib.sha256(content).hexdigest()}
        try:
            with whole_file(self.path, 0o600) as file:
                file.write(json.dumps(header, separators=(",", ":")).encode() + b"\n" + content)
            self.problem = None
        except OSError as error:
            self.problem = f"cannot be written: {_reason(error)}; the progress of this run is not in it"

    def remove(self) -> None:
        """Remove the file of a verification that is complete."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self.problem = f"cannot be removed: {_reason(error)}"

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                header, content = json.loads(file.readline(_HEADER_SIZE)), file.read()
        except OSError as error:
            raise UsageError(f"cannot be read: {_reason(error)}", file=self.path) from error
        except ValueError as error:
            raise self._refused(_DAMAGED) from error
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise self._refused(_DAMAGED)
        for name, what in (
            ("store", "is of another store"),
            ("rmqtool", "was written by another release of rmqtool"),
            ("options", "is of a verification with other options"),
            ("settings", "is of a verification with another broker.conf"),
            ("rocksdict", "is of a verification with the package rocksdict, or without it, other than now"),
            ("files", "is of an earlier state of the store: its files have changed since"),
        ):
            if header.get(name) != self._about[name]:
                is_plain = name in ("store", "rmqtool", "options")
                raise self._refused(f"{what}: {visible(str(header.get(name))) or 'none'}" if is_plain else what)
        if header.get("sha256") != hashlib.sha256(content).hexdigest():
            raise self._refused(_DAMAGED)
        try:
            self.merger = _Unpickler(io.BytesIO(zlib.decompress(content))).load()
        except _UNPICKLING as error:
            raise self._refused(_DAMAGED) from error
        if not isinstance(self.merger, PartMerger):
            raise self._refused(_DAMAGED)

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            what, file=self.path, hint="name another file for --resume, or remove this one to begin again"
        )


class _Unpickler(pickle.Unpickler):
    """Makes objects of known classes only."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _CLASSES.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _fingerprint(store: Store) -> str:
    """A checksum of the names, sizes and modification times of all files of a store."""
    places = {store.root, *store.log_directories}
    return _checksum(sorted({line for place in places for line in _files(place)}))


def _checksum(texts: Sequence[str]) -> str:
    return hashlib.sha256(b"\0".join(map(os.fsencode, texts))).hexdigest()


def _files(directory: Path) -> Iterator[str]:
    for path in files_below(directory):
        with suppress(OSError):
            status = path.stat()
            yield f"{path}\0{status.st_size}\0{status.st_mtime_ns}"
