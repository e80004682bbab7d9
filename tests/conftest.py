"""Fixtures of all tests: stores that real brokers wrote, and the proof that reading changes none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.golden import stores
from tests.unchanged import unchanged

GoldenStore = Callable[[str], Path]


@pytest.fixture(scope="session")
def _unpacked(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    @cache
    def unpack(name: str) -> Path:
        return stores.unpack(name, tmp_path_factory.mktemp("golden"))

    return unpack


@pytest.fixture
def golden_store(_unpacked: GoldenStore) -> Iterator[GoldenStore]:
    """Give a golden store by name, unpacked once a session; every test that read one asserts that it left no trace."""
    with ExitStack() as stack:

        @cache
        def use(name: str) -> Path:
            return stack.enter_context(unchanged(_unpacked(name)))

        yield use
