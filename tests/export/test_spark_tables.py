"""Spark reads the tables that an export is, of both kinds, with the jars of their makers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.building import LogBuilder
from tests.export.exporting import export, rows_of, sorted_properties
from tests.export.spark_tables import read_by_spark

pytestmark = [pytest.mark.rare, pytest.mark.slow, pytest.mark.spark]

FEW = ("topic", "physical_offset", "properties", "born_timestamp")
MORE = ("*", "properties.A", "body.total", "file")
TOPICS = ("orders", "%RETRY%billing")


def grown(builder: LogBuilder, store: Path) -> Path:
    """The store, with ten more messages of two topics."""
    first = len(builder.offsets)
    for number in range(first, first + 10):
        body = b'{"total": %d}' % number
        builder.add(
            topic=TOPICS[number % 2], queue_offset=number, body=body, properties={"A": f"á{number}", "KEYS": "k l"}
        )
    return builder.write(store)


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table in the order of the log, with properties as a list."""
    rows = sorted(table.to_pylist(), key=lambda row: row["physical_offset"])
    return sorted_properties(rows)


def test_rows_are_those_of_the_files(catalog: Any, tmp_path: Path) -> None:
    """In directories with percent signs, with columns that came later, after a replacement; of older versions, too."""
    builder = LogBuilder()
    outputs = {"delta": tmp_path / "delta", "iceberg": tmp_path / "iceberg"}
    tables = {"delta": "delta", "iceberg": "iceberg:lake.messages"}
    wanted: dict[str, tuple[str, Path, dict[str, Any]]] = {}
    for kind, output in outputs.items():
        store = grown(builder, tmp_path / "store")
        export(store, output, table=tables[kind], columns=FEW, partition_by=("topic",))
        export(store, output, "overwrite", table=tables[kind], columns=FEW, partition_by=("topic",))
        grown(builder, store)
        export(store, output, "incremental", table=tables[kind], columns=(*FEW, *MORE), partition_by=("topic",))
    metadata = Path(catalog.load_table("lake.messages").metadata_location)
    replaced = catalog.load_table("lake.messages").history()[-2].snapshot_id
    wanted["delta-now"] = ("delta", outputs["delta"], {})
    wanted["delta-before"] = ("delta", outputs["delta"], {"versionAsOf": 1})
    wanted["iceberg-now"] = ("iceberg", metadata, {})
    wanted["iceberg-before"] = ("iceberg", metadata, {"versionAsOf": replaced})
    read = read_by_spark(wanted, tmp_path)
    for kind, output in outputs.items():
        now, before = rows_in(read[f"{kind}-now"]), rows_in(read[f"{kind}-before"])
        expected = [{**dict.fromkeys(now[0]), **row} for row in sorted_properties(rows_of(output))]
        assert now == expected
        assert [*now[0]][:4] == [*FEW]
        assert (now[0]["file"], now[0]["body.total"], now[-1]["properties.A"]) == (None, None, f"á{len(now) - 1}")
        assert before == [{name: row[name] for name in FEW} for row in expected[: len(before)]]
        assert len(before) == len(now) - 10
