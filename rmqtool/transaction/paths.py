"""Paths of a transaction: inside the store, on its file system, never through a link."""

from __future__ import annotations

import os
import stat

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.transaction.system import System

HOME = ".rmqtool"
"""Directory in the store that holds everything of ours; every broker from 4.4.0 to 5.5.1 ignores it."""

_MAX_NAME = 255  # bytes
_NOT_OURS = frozenset({HOME, "lock", "rocksdbstore"})  # they keep brokers and transactions apart: never changed


class StorePaths:
    """Turns names such as ``consumequeue/orders/0`` into paths below the store `root`."""

    def __init__(self, root: str, system: System) -> None:
        self.root = root
        self.home = os.path.join(root, HOME)
        self._system = system
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
            raise UnsupportedError("outside of the store: it can't be replaced in one step", file=name, hint=_ELSEWHERE)
        if any(not _is_plain(part) for part in parts) or parts[0] in _NOT_OURS:
            raise UnwritableError(f"{name!r} is not a name inside a store: nothing is written there")

    def _check_parents(self, name: str) -> None:
        """Check that all directories of the path are on the store's own file system: a rename can't leave it."""
        if name in self._known:
            return
        self._check_parents(os.path.dirname(name))
        status = self._system.lstat(self.path(name))
        if status is not None:
            self._check_directory(name, status)
        self._known.add(name)

    def _check_directory(self, name: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise UnsupportedError(
                "a symbolic link: what lies after it can't be replaced in one step",
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

    def device(self) -> int:
        """The store's own file system."""
        if self._device is None:
            self._device = os.stat(self.root).st_dev
        return self._device


_ELSEWHERE = (
    "move it into the store; or make queues and index elsewhere with rebuild-cq and rebuild-index --output DIR, and "
    "put them in place while the broker is stopped; or make a new store with salvage --output NEW"
)


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= _MAX_NAME


def parents_of(name: str) -> list[str]:
    """The names of all directories above `name`, the outermost first."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
