"""Stores on other machines, read by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import GoldenStore
from tests.export.exporting import export, rows_of
from tests.other_machines.conftest import Place, abfs, gs, hdfs, place, s3, s3_place
from tests.spark import jobs
from tests.spark.sessions import Session

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.one_in(3)
def test_spark_reads_the_same_rows(spark: Session, golden_store: GoldenStore, place: Place, tmp_path: Path) -> None:
    """As a batch and as a stream; of one kind of server `make test` does."""
    store = golden_store("4.9.7-trimmed")
    uri = place.put(store, "spark/store")
    options = {"include": "prepared,rolled-back"}
    local = spark.run(jobs.read, str(store), options)
    assert spark.run(jobs.read, uri, options) == local
    _, rows = spark.run(jobs.stream, uri, str(tmp_path / "stream"), options)
    assert len(rows) == len(local)


@pytest.mark.rare
def test_an_executor_that_is_killed_costs_no_row(
    cluster: Session, golden_store: GoldenStore, s3: Place, tmp_path: Path
) -> None:
    """Spark reads its splits again, from the server."""
    store = golden_store("5.5.0-killed")
    uri = s3.put(store, "killed/store")
    options = {"include": "prepared,rolled-back", "splitSize": str(1 << 20)}
    (tmp_path / "attempts").mkdir()
    found = cluster.run(jobs.read_and_kill, uri, options, str(tmp_path / "attempts"))
    export(store, tmp_path / "local")
    assert sorted(found) == [row["physical_offset"] for row in rows_of(tmp_path / "local")]
    assert any(path.name.partition("-")[2] != "0" for path in (tmp_path / "attempts").iterdir())


__all__ = ["abfs", "gs", "hdfs", "place", "s3", "s3_place"]  # fixtures
