"""Kills a run at a step of its commit, for tests of what is left then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest


class KilledError(BaseException):
    """Stands for a crash: no `except Exception` sees it."""


def killed_at(number: int, module: ModuleType, names: Sequence[str], patched: pytest.MonkeyPatch) -> Callable[[], int]:
    """Kill the run at a call of these functions of a module, by its number; gives how many are left until then."""
    left = [number]

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:  # and all calls that come after, as the run is dead by then
                raise KilledError
            return operation(*arguments)

        return do

    for name in names:
        patched.setattr(module, name, counted(getattr(module, name)))
    return lambda: left[0]
