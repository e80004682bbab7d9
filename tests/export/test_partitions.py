"""Partitions: every topic has a directory that file systems and readers take, and rows lose nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.export import write
from rmqtool.export.options import PartitionKey
from rmqtool.export.write import directory_value
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.export.duckdb_rows import duckdb_rows
from tests.export.exporting import check, export, manifest_of, oracle_row, rows_of, sorted_properties
from tests.golden import stores

KEYS: tuple[PartitionKey, ...] = ("topic", "date", "hour", "queue")


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.5.0-clean", "4.4.0-killed"])
def test_rows_of_all_partitions_are_the_messages(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """With every key, each row is where its values say, and the columns are all there."""
    store, output = golden_store(name), tmp_path / "out"
    export(store, output, partition_by=KEYS, split_size=100_000)
    expected = [oracle_row(record) for record in stores.oracle(name)["records"]]
    assert sorted_properties(rows_of(output)) == sorted_properties(expected)
    assert check(store, output) == []
    for file in manifest_of(output)["files"]:
        [topic, date, hour, queue] = [part.partition("=")[2] for part in Path(file["path"]).parts[:4]]
        for row in ds.dataset(output / file["path"]).to_table().to_pylist():
            assert directory_value(row["topic"]) == topic
            assert row["store_timestamp"].strftime("%Y-%m-%d %H") == f"{date} {hour}"
            assert str(row["queue_id"]) == queue


@pytest.mark.slow
def test_other_readers_decode_the_directories(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Pyarrow and DuckDB show %RETRY% topics as they are."""
    export(golden_store("5.5.0-clean"), tmp_path / "out", partition_by=("topic",))
    assert (tmp_path / "out" / "by_topic=%25RETRY%25billing").is_dir()
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table(columns=["topic", "by_topic"])
    pairs = set(zip(table["topic"].to_pylist(), table["by_topic"].to_pylist(), strict=True))
    query = f"select distinct topic, by_topic from read_parquet('{tmp_path}/out/*/*.parquet', hive_partitioning=true)"
    for found in (pairs, {(row["topic"], row["by_topic"]) for row in duckdb_rows(query)}):
        assert ("%RETRY%billing", "%RETRY%billing") in found
        assert {topic for topic, directory in found if topic != directory and len(topic) < 128} == set()


@given(st.text(max_size=300))
def test_any_topic_makes_a_name(topic: str) -> None:
    """One path component, short enough, without what a shell or a reader would take for something else."""
    name = directory_value(topic)
    assert name
    assert not set(name) & set('/\\:*?"#=\0')
    assert len(f"by_topic={name}".encode("utf-8", "surrogatepass")) <= 255


def test_long_names_that_begin_alike_stay_apart() -> None:
    """And a cut never falls into an escape."""
    names = {directory_value("%" * 100 + ending) for ending in ("a", "b", "")}
    assert len(names) == 3
    assert all(name.rpartition("~")[0].endswith("%25") for name in names)


@pytest.mark.slow
def test_many_topics_are_not_all_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When what is held together becomes too much, every partition is written, and begun again."""
    monkeypatch.setattr(write, "_PARTITIONED_BYTES", 10_000)
    builder = LogBuilder(1 << 20).add_all([{"topic": f"t{number % 20}", "body": b"x" * 90} for number in range(400)])
    store = builder.write(tmp_path / "store")
    from rmqtool.scan import frames, reader

    for module in (reader, frames):
        monkeypatch.setattr(module, "block_size", lambda: 1 << 13)
    export(store, tmp_path / "out", partition_by=("topic",))
    assert len(manifest_of(tmp_path / "out")["files"]) > 40
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == builder.offsets
    assert check(store, tmp_path / "out") == []


def test_strange_values_have_partitions_too(tmp_path: Path) -> None:
    """An empty topic, a time that no calendar has, a negative queue."""
    builder = LogBuilder()
    builder.add(topic="", store_timestamp=(1 << 63) - 1, queue_id=-5)
    builder.add(topic="..", store_timestamp=-(1 << 63), queue_id=0)
    builder.add(topic=b"\xff/\n", store_timestamp=-1)
    export(builder.write(tmp_path / "store"), tmp_path / "out", partition_by=KEYS)
    rows = rows_of(tmp_path / "out")
    assert [row["topic"] for row in rows] == ["", "..", "\N{REPLACEMENT CHARACTER}/\n"]
    assert [row["store_timestamp"] is None for row in rows] == [True, True, False]
    dates = {Path(file["path"]).parts[1] for file in manifest_of(tmp_path / "out")["files"]}
    assert dates == {"by_date=__HIVE_DEFAULT_PARTITION__", "by_date=1969-12-31"}
    assert check(tmp_path / "store", tmp_path / "out") == []
