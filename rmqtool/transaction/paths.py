"""Names in the store become paths: on its file system, never through a link; whose owner and mode new files get.

A repair that root runs must leave a store that the broker's own user can open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.transaction.system import CANNOT, SYSTEM, System

HOME = ".rmqtool"
"""Directory in the store that holds everything of ours; every broker from 4.4.0 to 5.5.1 ignores it."""

_MAX_NAME = 255  # bytes
_NOT_OURS = frozenset({HOME, "lock"})  # they keep brokers and transactions apart: never changed
_WITH_LOCK = "rocksdbstore"  # a database that is never replaced as a whole: its LOCK shows that a broker runs


@dataclass(frozen=True)
class Attributes:
    """Owner, group, permissions and security labels of a file or directory."""

    uid: int
    gid: int
    mode: int
    labels: tuple[tuple[str, bytes], ...] = ()


class StorePaths:
    """Turns names such as ``consumequeue/orders/0`` into paths below the store `root`, for the calls of `system`."""

    def __init__(self, root: Path, system: System = SYSTEM) -> None:
        self.root = os.path.realpath(root)
        self.home = os.path.join(self.root, HOME)
        self.system = system
        self._known_attributes: dict[tuple[str, bool], Attributes] = {}
        self._known: set[str] = {""}
        self._device: int | None = None

    def path(self, name: str) -> str:
        """The absolute path of a checked name."""
        return os.path.join(self.root, name)

    def check(self, name: str) -> str:
        """`name` if it may be replaced; raise UnwritableError or UnsupportedError, see `check_name`."""
        self.check_name(name)
        self._check_parents(os.path.dirname(name))
        return name

    def check_name(self, name: str) -> None:
        """Raise UnwritableError for a name outside the store, or of a file that shows who runs on it."""
        parts = name.split("/")
        if os.path.isabs(name):
            raise UnsupportedError("outside the store: it can't be replaced in one step", file=name, hint=_ELSEWHERE)
        if any(not _is_plain(part) for part in parts) or _is_of_others(parts):
            raise UnwritableError(f"{name!r} is not a name inside a store: nothing is written there")

    def _check_parents(self, name: str) -> None:
        """Check that all directories of the path are on the store's own file system: a rename can't leave it."""
        if name in self._known:
            return
        self._check_parents(os.path.dirname(name))
        status = self.system.lstat(self.path(name))
        if status is not None:
            self._check_directory(name, status)
        self._known.add(name)

    def _check_directory(self, name: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise UnsupportedError(
                "a symbolic link: its target can't be replaced in one step",
                file=self.path(name),
                hint=_ELSEWHERE,
            )
        if not stat.S_ISDIR(status.st_mode):
            raise UnwritableError("not a directory", file=self.path(name), hint="move it away, and run this again")
        if status.st_dev != self.device():
            raise UnsupportedError(
                "on another file system than the store: it can't be replaced in one step",
                file=self.path(name),
                hint=_ELSEWHERE,
            )

    def attributes_for(self, name: str, *, directory: bool) -> Attributes:
        """The attributes of what `name` is now, else of an entry beside it, else of the nearest one above."""
        path = self.path(name)
        status = self.system.lstat(path)
        if status and stat.S_ISDIR(status.st_mode) == directory and not stat.S_ISLNK(status.st_mode):
            return read_attributes(self.system, path, status)
        return self._nearest(os.path.dirname(name), directory=directory)

    def _nearest(self, parent: str, *, directory: bool) -> Attributes:
        """The attributes of an entry of `parent`, else of the nearest directory above that has one."""
        key = (parent, directory)
        if key not in self._known_attributes:
            attributes = self._in(self.path(parent), directory=directory, depth=_MAX_DEPTH)
            self._known_attributes[key] = attributes or (
                self._nearest(os.path.dirname(parent), directory=directory)
                if parent
                else self._root(directory=directory)
            )
        return self._known_attributes[key]

    def _in(self, path: str, *, directory: bool, depth: int) -> Attributes | None:
        """The attributes of a file at or below `path`, or of a directory right in it; None without one."""
        status = self.system.lstat(path)
        if status is None or not stat.S_ISDIR(status.st_mode) or depth == 0:
            return None
        entries = [entry for entry in self.system.list(path) if entry.name not in (HOME, "lock")]
        for entry in entries:
            neighbour = self.system.lstat(entry.path)
            if neighbour and (stat.S_ISDIR if directory else stat.S_ISREG)(neighbour.st_mode):
                return read_attributes(self.system, entry.path, neighbour)
        if directory:
            return read_attributes(self.system, path, status)
        below = (self._in(entry.path, directory=directory, depth=depth - 1) for entry in entries)
        return next((neighbour for neighbour in below if neighbour), None)

    def _root(self, *, directory: bool) -> Attributes:
        status = os.stat(self.root)
        attributes = read_attributes(self.system, self.root, status)
        return (
            attributes
            if directory
            else Attributes(attributes.uid, attributes.gid, attributes.mode & _FILE_MODE, attributes.labels)
        )

    def device(self) -> int:
        """The store's own file system."""
        if self._device is None:
            self._device = os.stat(self.root).st_dev
        return self._device


_ELSEWHERE = (
    "move it into the store; or build queues and index elsewhere with rebuild-cq and rebuild-index --output DIR, and "
    "put them in place while the broker is stopped; or create a new store with salvage --output NEW"
)


def _is_of_others(parts: Sequence[str]) -> bool:
    return parts[0] in _NOT_OURS or (parts[0] == _WITH_LOCK and (len(parts) == 1 or parts[1] == "LOCK"))


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= _MAX_NAME


def parents_of(name: str) -> list[str]:
    """The names of all directories above `name`, the outermost first."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


# Not security.capability and security.ima: they belong to one file's bytes. Not trusted.*: it belongs to a file system.
_LABELS = ("security.selinux", "security.SMACK64", "system.posix_acl_access", "system.posix_acl_default", "user.")
_FILE_MODE = 0o666  # of a directory's mode: users that may enter it may read its files
_MAX_DEPTH = 8


def read_attributes(system: System, path: str, status: os.stat_result) -> Attributes:
    """The attributes of an existing file or directory."""
    labels = sorted((name, value) for name, value in system.labels(path).items() if name.startswith(_LABELS))
    return Attributes(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), tuple(labels))


def set_attributes(system: System, path: str, wanted: Attributes) -> None:
    """Give a file or directory of ours these attributes; those that it has already are not set."""
    status = system.lstat(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    now = read_attributes(system, path, status)
    if now == wanted:
        return
    descriptor = system.open_to_sync(path)
    try:
        if (now.uid, now.gid) != (wanted.uid, wanted.gid):
            system.set_owner(descriptor, wanted.uid, wanted.gid)
        system.set_mode(descriptor, wanted.mode)
        _set_labels(system, descriptor, dict(now.labels), dict(wanted.labels))
    finally:
        system.close(descriptor)


def _set_labels(system: System, descriptor: int, now: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    try:
        for name in now.keys() - wanted.keys():  # such as an access list that a new file inherits
            system.remove_label(descriptor, name)
        for name, value in wanted.items():
            if now.get(name) != value:
                system.set_label(descriptor, name, value)
    except OSError as error:
        if error.errno not in CANNOT:
            raise
