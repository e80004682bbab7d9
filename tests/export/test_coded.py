"""Columns that are given to the Parquet writer as dictionaries: files hold the same, and no string twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.building import LogBuilder
from tests.export.exporting import check, export, manifest_of, rows_of
from tests.scan.reading import small_blocks

FILE_SIZE = 1 << 20


def test_names_are_written_once_for_a_row_group(tmp_path: Path) -> None:
    """Whatever names the batches of one have, and in what order: each stands in one dictionary of the file."""
    names = ["a" * 500, "b" * 500, "c" * 500]
    orders = [names[:2], names[1:], names[::-1], names[::2]]
    log = LogBuilder(file_size=FILE_SIZE)
    for number, order in enumerate(orders * 3):
        log.add_all([{"topic": order[0][:100], "properties": dict.fromkeys(order, str(number))}] * 16)
    store = log.write(tmp_path / "store")
    with small_blocks(FILE_SIZE // 8):
        export(store, tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    expected = [dict.fromkeys(order, str(number)) for number, order in enumerate(orders * 3) for _ in range(16)]
    assert [dict(row["properties"]) for row in rows] == expected
    assert [row["topic"] for row in rows] == [next(iter(one))[:100] for one in expected]
    file = manifest_of(tmp_path / "out")["files"][0]
    group = pq.read_metadata(tmp_path / "out" / file["path"]).row_group(0)
    sizes = {one.path_in_schema: one.total_uncompressed_size for one in map(group.column, range(group.num_columns))}
    assert sizes["properties.key_value.key"] < 2 * len("".join(names))
    assert sizes["topic"] < 2 * len(names) * 100
    assert check(store, tmp_path / "out") == []


@pytest.mark.slow
def test_names_that_are_too_many_for_a_dictionary(tmp_path: Path) -> None:
    """Each record has names of its own: they are written as they are."""
    log = LogBuilder(file_size=8 << 20)
    properties = [{f"{number}-{place}-" + "x" * 200: "v" for place in range(5)} for number in range(1500)]
    store = log.add_all({"properties": one} for one in properties).write(tmp_path / "store")
    export(store, tmp_path / "out")
    assert [dict(row["properties"]) for row in rows_of(tmp_path / "out")] == properties
    assert check(store, tmp_path / "out") == []
