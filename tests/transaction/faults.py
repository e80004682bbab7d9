"""A system that dies or fails at one of its calls, and what must be true of a store afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.store.lock import HELD_HERE
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import System
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.transaction.small import Tree, tree, undo

Fault = Literal["kill-before", "kill-after", "fail-once", "fail-on", "full-once", "full-on", "short-once"]
FAULTS: tuple[Fault, ...] = ("kill-before", "kill-after", "fail-once", "fail-on", "full-once", "full-on", "short-once")
CALLS = tuple(name for name in vars(System) if not name.startswith("_") and name != "release")
TAKES_SPACE = ("write", "open_to_write", "make_directory", "link", "rename", "exchange", "set_size", "set_label")
CHANGES = (*TAKES_SPACE, "sync", "set_owner", "set_mode", "set_mtime", "remove_label", "unlink", "remove_directory")


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more."""


class Faulty:
    """Wraps a system: call number `at` goes wrong as `fault` says; `at` -1 only counts. `names` tells every call."""

    def __init__(self, system: System, fault: Fault | None = None, at: int = -1) -> None:
        self.names: list[str] = []
        self._system = system
        self._fault = fault
        self._at = at
        self._dead = False
        self._descriptors: set[int] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._system, name)
        if name == "release":
            return self._release

        def wrapped(*arguments: Any, **options: Any) -> Any:
            if self._dead:
                raise KilledError
            number = len(self.names)
            self.names.append(name)
            if number == self._at or (number > self._at >= 0 and str(self._fault).endswith("-on")):
                return self._go_wrong(name, call, *arguments, **options)
            return self._do(name, call, *arguments, **options)

        return wrapped

    def clean_up(self) -> None:
        """Close what a dead process left open, as the system does."""
        for descriptor in self._descriptors:
            os.close(descriptor)

    def _release(self, descriptor: int) -> None:
        self._descriptors.discard(descriptor)
        self._system.release(descriptor)

    def _do(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        answer = call(*arguments, **options)
        if name in ("open_to_write", "open_to_sync"):
            self._descriptors.add(answer)
        elif name == "close":
            self._descriptors.discard(*arguments)
        return answer

    def _go_wrong(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._fault == "kill-before":
            self._dead = True
            raise KilledError
        if self._fault == "kill-after":
            self._do(name, call, *arguments, **options)
            self._dead = True
            raise KilledError
        if self._fault == "short-once" and name == "write":
            descriptor, data, position = arguments
            return call(descriptor, data[: max(1, len(data) // 2)], position)
        number = errno.ENOSPC if str(self._fault).startswith("full") else errno.EIO
        if number == errno.ENOSPC and name not in TAKES_SPACE:
            return self._do(name, call, *arguments, **options)
        if str(self._fault).startswith("short"):
            return self._do(name, call, *arguments, **options)
        if name == "close":
            self._do(name, call, *arguments, **options)  # a descriptor is closed whatever close answers
        if name == "open_input":
            raise UnreadableError("cannot read: input/output error", file=arguments[0])
        raise OSError(number, os.strerror(number), *arguments[:1])


def run_with(system: System, fault: Fault | None, at: int, action: Callable[[System], Any]) -> tuple[Faulty, str]:
    """Do `action`; what became of it: ``done``, ``killed``, or ``failed`` with an error that says so."""
    faulty = Faulty(system, fault, at)
    outcome = "done"
    try:
        action(cast(System, faulty))
    except KilledError:
        outcome = "killed"
    except RmqtoolError:
        outcome = "failed"
    faulty.clean_up()
    assert not HELD_HERE
    return faulty, outcome


def points(names: list[str], fault: Fault) -> list[int]:
    """The calls at which a fault makes a difference."""
    wanted = {"kill": CHANGES, "fail": CALLS, "full": TAKES_SPACE, "short": ("write",)}[fault.partition("-")[0]]
    return [number for number, name in enumerate(names) if name in wanted]


def recover(root: Path, system: System) -> None:
    with Undo(root, system):
        pass


def assert_before_or_after(root: Path, before: Tree, after: Tree, system: System) -> None:
    """All or nothing; nothing is left where nothing was done, and what was done can be undone."""
    found = tree(root)
    assert found in (before, after)
    assert interrupted(root) is None
    if found == before:
        assert not (root / ".rmqtool").exists()
    else:
        assert [kept.state for kept in kept_transactions(root)] == ["done"]
        undo(root, system)
        assert tree(root) == before
        assert not (root / ".rmqtool").exists()
