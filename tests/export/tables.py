"""The tables of both kinds that an export may be, read by the packages of their makers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

STEPS = ("_write_json", "follow_table", "sync", "_remove_empty")
"""Of a commit on this machine: before each of them it is killed."""


class Table(NamedTuple):
    """How an export says which table it is, and what its maker's package reads: all rows, the number of versions.

    A change of the columns is a version of its own where they are `apart`.
    """

    option: str
    read: Callable[[], pa.Table]
    versions: Callable[[], int]
    apart: bool

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.read().column_names)

    def values(self, column: str) -> list[Any]:
        """A column in the order of the log, of which the table has to have the offsets."""
        values: list[Any] = self.read().sort_by("physical_offset").column(column).to_pylist()
        return values


@pytest.fixture
def delta(tmp_path: Path) -> Table:
    """A Delta table in the directory ``out``."""
    deltalake = pytest.importorskip("deltalake")

    def opened() -> Any:
        return deltalake.DeltaTable(str(tmp_path / "out"))

    return Table("delta", lambda: opened().to_pyarrow_dataset().to_table(), lambda: opened().version() + 1, apart=True)


@pytest.fixture
def iceberg(catalog: Any) -> Table:
    """An Iceberg table; `catalog` is that of the fixture of this name."""

    def opened() -> Any:
        return catalog.load_table("lake.messages")

    return Table(
        "iceberg:lake.messages", lambda: opened().scan().to_arrow(), lambda: len(opened().history()), apart=False
    )


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest) -> Table:
    """A table of each kind."""
    found: Table = request.getfixturevalue(request.param)
    return found
