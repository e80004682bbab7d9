"""Fixtures of the scan's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import stores
from tests.unchanged import unchanged


@pytest.fixture(scope="session", params=stores.names())
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Each golden store; its directory name is the store's. No test of the session may change it."""
    with unchanged(stores.unpack(request.param, tmp_path_factory.mktemp("golden"))) as store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a test builds its store."""
    return tmp_path / "store"
