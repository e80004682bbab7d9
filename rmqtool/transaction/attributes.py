"""Owner, group, mode and security labels: new files get those of their neighbours.

A repair that root runs must leave a store that the broker's own user can open.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from rmqtool.transaction.paths import HOME, StorePaths
from rmqtool.transaction.system import CANNOT, System

# Not security.capability and security.ima: they belong to one file's bytes. Not trusted.*: it belongs to a file system.
_LABELS = ("security.selinux", "security.SMACK64", "system.posix_acl_access", "system.posix_acl_default", "user.")
_FILE_MODE = 0o666  # of a directory's mode: users that may enter it may read its files
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Attributes:
    """Owner, group, permissions and security labels of a file or directory."""

    uid: int
    gid: int
    mode: int
    labels: tuple[tuple[str, bytes], ...] = ()


class Neighbours:
    """Finds whose attributes a new file or directory of the store gets."""

    def __init__(self, paths: StorePaths, system: System) -> None:
        self._paths = paths
        self._system = system
        self._known_attributes: dict[tuple[str, bool], Attributes] = {}

    def attributes_for(self, name: str, *, directory: bool) -> Attributes:
        """The attributes of what `name` is now, else of an entry beside it, else of the nearest one above."""
        path = self._paths.path(name)
        status = self._system.lstat(path)
        if status and stat.S_ISDIR(status.st_mode) == directory and not stat.S_ISLNK(status.st_mode):
            return read_attributes(self._system, path, status)
        return self._nearest(os.path.dirname(name), directory=directory)

    def _nearest(self, parent: str, *, directory: bool) -> Attributes:
        """The attributes of an entry of `parent`, else of the nearest directory above that has one."""
        key = (parent, directory)
        if key not in self._known_attributes:
            attributes = self._in(self._paths.path(parent), directory=directory, depth=_MAX_DEPTH)
            self._known_attributes[key] = attributes or (
                self._nearest(os.path.dirname(parent), directory=directory)
                if parent
                else self._root(directory=directory)
            )
        return self._known_attributes[key]

    def _in(self, path: str, *, directory: bool, depth: int) -> Attributes | None:
        """The attributes of a file at or below `path`, or of a directory right in it; None without one."""
        status = self._system.lstat(path)
        if status is None or not stat.S_ISDIR(status.st_mode) or depth == 0:
            return None
        entries = [entry for entry in self._system.list(path) if entry.name not in (HOME, "lock")]
        for entry in entries:
            neighbour = self._system.lstat(entry.path)
            if neighbour and (stat.S_ISDIR if directory else stat.S_ISREG)(neighbour.st_mode):
                return read_attributes(self._system, entry.path, neighbour)
        if directory:
            return read_attributes(self._system, path, status)
        below = (self._in(entry.path, directory=directory, depth=depth - 1) for entry in entries)
        return next((neighbour for neighbour in below if neighbour), None)

    def _root(self, *, directory: bool) -> Attributes:
        status = os.stat(self._paths.root)
        attributes = read_attributes(self._system, self._paths.root, status)
        return (
            attributes
            if directory
            else Attributes(attributes.uid, attributes.gid, attributes.mode & _FILE_MODE, attributes.labels)
        )


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
