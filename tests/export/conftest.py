"""Exports in tests do not wait for the disk; a catalog of Iceberg tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.export.tables import Table, delta, iceberg, table


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nothing is flushed; the inodes that would have been, in order."""
    found: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(os.fstat(descriptor).st_ino))
    return found


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A catalog in SQLite, which pyiceberg's configuration names."""
    pytest.importorskip("pyiceberg")
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    for name, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{tmp_path}/catalog.db"),
        ("WAREHOUSE", f"file://{tmp_path}"),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    loaded: list[Any] = []
    load = pyiceberg.catalog.load_catalog

    def kept(*arguments: Any) -> Any:
        loaded.append(load(*arguments))
        return loaded[-1]

    monkeypatch.setattr(pyiceberg.catalog, "load_catalog", kept)
    yield kept()
    for each in loaded:
        each.engine.dispose()


__all__ = ["Table", "delta", "iceberg", "table"]  # fixtures
