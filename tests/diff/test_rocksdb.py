"""Two stores with queues in RocksDB, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed_rocksdb import changed, unit_key, with_fields
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

NAME = "more/5.5.0-rocksdb"


@pytest.mark.slow
def test_rows_are_compared(unpacked: GoldenStore, tmp_path: Path) -> None:
    """The same, one that differs, and a database that cannot be read."""
    store, other = unpacked(NAME), copied(unpacked(NAME), tmp_path / "other")
    with unchanged(store), unchanged(other):
        assert "same: no difference" in rmqtool("diff", store, other).out
    with changed(other / "consumequeue") as families:
        key = unit_key("orders", 1, 9)
        families["default"][key] = with_fields(families["default"][key], physical_offset=0)
    result = rmqtool("diff", store, other)
    assert result.status == 1
    assert "orders queue 1: A 0 to 17, B 0 to 17, first different entry 9" in result.out
    (other / "consumequeue" / "CURRENT").write_text("MANIFEST-1\n")
    result = rmqtool("diff", store, other)
    assert result.status == 3
    assert "RocksDB cannot read it" in result.out
