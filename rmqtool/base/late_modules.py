"""Modules that are loaded when something of them is first used, not where they are imported.

`pyarrow.compute` writes the documentation of its 300 functions when it is loaded: a seventh of the CPU time of a
command on a small store, many of which call none of them. What it only hands on, `call_function` and the classes of
options among others, is taken from where it has it.
"""

from __future__ import annotations

import sys
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

_LATE = "pyarrow.compute"


class _Late(ModuleType):
    """A module without content, until an attribute is asked for; other threads wait meanwhile."""

    def __getattr__(self, name: str) -> Any:
        loader: Any = self.__loader__
        if (name == "__all__" or not name.startswith("__")) and isinstance(loader, _LateLoader):
            from pyarrow import _compute

            if not name.startswith("_") and hasattr(_compute, name):
                return getattr(_compute, name)
            loader.load(self)
        if name not in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        getattr(self, "__all__", None)  # loads it
        return sorted(self.__dict__)


class _LateLoader:
    """Puts off what `loader` does."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = RLock()
        self._is_begun = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module without content."""
        return _Late(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing yet."""

    def load(self, module: ModuleType) -> None:
        """Fill the module, unless that is done, or is being done by this thread."""
        with self._lock:
            if not self._is_begun:
                self._is_begun = True
                self._loader.exec_module(module)


class _Finder:
    """A finder of modules that finds only those that are to be loaded late."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module with a loader that waits; None for all others."""
        if fullname != _LATE:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            late: Any = _LateLoader(spec.loader)
            spec.loader = late
        return spec


def load_late() -> None:
    """Have them loaded late, in a process of the program; never in one that imports rmqtool as a library."""
    if _LATE not in sys.modules and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


_PANDAS = "pandas"


class _Hidden:
    """A finder of modules that says of pandas that it is not there, and leaves all others to the next finder."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas."""
        if fullname == _PANDAS:
            raise ModuleNotFoundError("no command needs pandas", name=fullname)


def hide_pandas() -> None:
    """Hide it from pyarrow, in a process of the program; never in one that imports rmqtool as a library."""
    if _PANDAS not in sys.modules and _Hidden not in sys.meta_path:
        sys.meta_path.insert(0, _Hidden)


def show_pandas() -> None:
    """Let it be found again, for somebody else's code."""
    if _Hidden in sys.meta_path:
        sys.meta_path.remove(_Hidden)
