"""A store that may be written: no broker runs on it, we hold its lock, and no interrupted run is left."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from rmqtool.base.errors import UnwritableError
from rmqtool.base.signals import deferred_signals
from rmqtool.transaction.attributes import Neighbours
from rmqtool.transaction.guard import StoreGuard
from rmqtool.transaction.home import STAGING, Home, Recovered
from rmqtool.transaction.mover import Mover
from rmqtool.transaction.paths import StorePaths
from rmqtool.transaction.settle import Settler
from rmqtool.transaction.steps import Assembler
from rmqtool.transaction.system import System, reported

_ROOT = 0


class Session:
    """Holds the store from `__enter__` to `__exit__`; `recovered` are the interrupted runs that were ended."""

    def __init__(self, root: Path, system: System, logs: Sequence[Path] = ()) -> None:
        """`logs` are the directories of the commit log beside ``commitlog/``."""
        self.system = system
        self.paths = StorePaths(os.path.realpath(root), system)
        self.neighbours = Neighbours(self.paths, system)
        self.home = Home(self.paths, self.neighbours, system)
        self.assembler = Assembler(self.paths, self.neighbours, system)
        self.settler = Settler(self.home, Mover(self.paths, system), self.assembler, system)
        self.recovered: list[Recovered] = []
        self.root_mtime_ns = 0
        self.guard = StoreGuard(self.paths, self.neighbours, system, logs)

    def __enter__(self) -> Session:
        with reported(self.paths.root):
            self._check_rights()
            status = self.system.lstat(str(self.paths.root))  # before `lock`, and our directory, are made
            self.root_mtime_ns = status.st_mtime_ns if status else 0
            self.guard.acquire()
        try:
            self._recover()
            self.guard.remember()
        except BaseException:
            self.guard.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.guard.release()

    def _check_rights(self) -> None:
        """Whoever writes must be able to give new files the owner of the others."""
        owner = self.neighbours.attributes_for("checkpoint", directory=False).uid
        if os.geteuid() not in (_ROOT, owner):
            raise UnwritableError(
                f"belongs to user {_user_name(owner)}: new files could not be given that owner",
                file=self.paths.root,
                hint=f"run as {_user_name(owner)} or as root",
            )
        if not os.access(self.paths.root, os.W_OK | os.X_OK):
            is_mounted_so = os.statvfs(self.paths.root).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_mounted_so else errno.EACCES
            with reported(self.paths.root):
                raise OSError(code, os.strerror(code))

    def _recover(self) -> None:
        with reported(self.paths.home), deferred_signals():
            self.home.check()
            for name in self.home.names_by_number().values():
                recovered = self.settler.recover(name)
                if recovered:
                    self.recovered.append(recovered)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        if self.system.lstat(self.home.path):
            was_staging = self.system.lstat(self.home.directory(STAGING)) is not None
            self.home.clear()
            if was_staging:
                self.recovered.append(Recovered(None, None, "rolled_back"))


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
