"""Inspection of Apache RocketMQ stores: ``rmqtool`` is the program, `open` the way in for Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqtool.library.store import open_path as open  # noqa: A004 - it is called rmqtool.open

__all__ = ["__version__", "open"]
__version__ = "1.0.0rc1"


def __getattr__(name: str) -> Any:
    """`open` is loaded when it is first asked for: most processes of rmqtool do without it."""
    if name != "open":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmqtool.library.store import open_path

    return open_path


def __dir__() -> list[str]:
    """The names for programs, also before they are loaded."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
