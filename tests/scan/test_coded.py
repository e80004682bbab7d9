"""Columns of few distinct strings as dictionaries: the same values, and no string twice in a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.formats.message import COMPRESSED, STORE_HOST_V6
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LogBuilder
from tests.scan.reading import files_of
from tests.unchanged import unchanged

CODED = [name for name, column in COLUMNS.items() if column.dictionary_encoded is not None]
MIXED: list[Mapping[str, Any]] = [
    {"topic": b"\xff", "properties": b"a\1x\2"},
    {"topic": b"\xfe", "properties": b"\xff\1x\2\xfe\1y\2", "sys_flag": STORE_HOST_V6},
    {"topic": "orders", "sys_flag": COMPRESSED | 0x700},
    {"topic": "orders", "sys_flag": COMPRESSED | 0x500},
]
"""Texts that differ as bytes and not as text, both forms of hosts, compressions that have no name."""


def dictionaries(column: pa.Array) -> Iterator[list[str]]:
    if pa.types.is_map(column.type):
        column = column.keys
    if pa.types.is_dictionary(column.type):
        yield column.dictionary.to_pylist()


def assert_same(store: Path) -> None:
    with unchanged(store):
        for event in scan_files(files_of(store)):
            if isinstance(event, RecordRun):
                plain, dictionary_encoded = (
                    (*record_batches(event, list(COLUMNS), dictionary_encoded=one),) for one in (False, True)
                )
                for one, other in zip(plain, dictionary_encoded, strict=True):
                    other.validate(full=True)
                    assert one.to_pylist() == other.to_pylist()
                    found = {name: [*dictionaries(other.column(name))] for name in COLUMNS}
                    assert [name for name, parts in found.items() if parts] == CODED
                    for parts in found.values():
                        assert all(len(set(part)) == len(part) for part in parts)


@pytest.mark.one_in(3)
def test_coded_columns_hold_the_same(golden: Path) -> None:
    assert_same(golden)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_strings_are_distinct_as_text(tmp_path: Path, count: int) -> None:
    """Arrow's writer gives up a dictionary that holds a string twice."""
    assert_same(LogBuilder(file_size=1 << 16).add_all(MIXED[:count] * 3).write(tmp_path))
