"""Inspection of Apache RocketMQ stores: ``rmqtool`` is the program, `open` the way in for Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rmqtool.library.store import Store

__all__ = ["__version__", "open"]
__version__ = "1.0.0rc1"


def open(  # noqa: A001 - it is called rmqtool.open
    path: str | Path, *, broker_conf: str | Path | None = None, broker_version: str | None = None
) -> Store:
    """Open a store; see `rmqtool.library.store.open_path`."""
    from rmqtool.library.store import open_path

    return open_path(path, broker_conf=broker_conf, broker_version=broker_version)
