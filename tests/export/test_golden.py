"""Stores written by real brokers: an export holds what the broker's own decoder says, field by field."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.export.results import join_results
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.store.message_reader import EXPORT_COLUMNS
from tests.conftest import GoldenStore
from tests.export.exporting import check, export, manifest_of, oracle_row, rows_of, run_here, sorted_properties
from tests.golden import stores

SPLIT = 20_000
ALL_FORMS = "5.5.0-clean"


@pytest.fixture(params=stores.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.one_in(5)
@pytest.mark.slow
def test_rows_are_the_messages_of_the_broker(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Every record once, whatever the splits; and a check agrees."""
    store, output = golden_store(name), tmp_path / "out"
    export(store, output, split_size=SPLIT)
    expected = [oracle_row(record) for record in stores.oracle(name)["records"]]
    assert sorted_properties(rows_of(output)) == sorted_properties(expected)
    assert check(store, output) == []
    manifest = manifest_of(output)
    assert (manifest["skipped"], manifest["wrong_bodies"]["wrong_crc"]["count"]) == ([], 0)
    assert manifest["scanned"]["messages"] == len(expected)
    assert sum(queue["rows"] for queue in manifest["queues"]) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("body", ["stored", "none"])
def test_other_bodies(body: BodyChoice, golden_store: GoldenStore, tmp_path: Path) -> None:
    """As stored, or left out."""
    export(golden_store(ALL_FORMS), tmp_path / "out", body=body, split_size=SPLIT)
    expected = [oracle_row(record, body) for record in stores.oracle(ALL_FORMS)["records"]]
    assert sorted_properties(rows_of(tmp_path / "out")) == sorted_properties(expected)
    assert check(golden_store(ALL_FORMS), tmp_path / "out") == []


@pytest.mark.slow
def test_consumers_see_neither_prepared_nor_rolled_back(golden_store: GoldenStore, tmp_path: Path) -> None:
    """By default they are left out and counted, and each can be asked for."""
    records = [oracle_row(record) for record in stores.oracle(ALL_FORMS)["records"]]
    names = {"prepared": "prepared", "rolled-back": "rollback"}
    for number, include in enumerate([(), ("prepared",), ("rolled-back",), ("prepared", "rolled-back")]):
        output = tmp_path / str(number)
        export(golden_store(ALL_FORMS), output, include=include)
        seen = {"none", "commit", *(names[kind] for kind in include)}
        expected = [row for row in records if row["transaction"] in seen]
        assert sorted_properties(rows_of(output)) == sorted_properties(expected)
        excluded = manifest_of(output)["excluded"]
        assert sum(excluded.values()) == len(records) - len(expected)
        assert [kind for kind, count in excluded.items() if count] == [kind for kind in names if kind not in include]


def test_the_types_are_those_of_the_contract(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Timestamps are UTC microseconds, not INT96, and every column stands in its place."""
    export(golden_store(ALL_FORMS), tmp_path / "out")
    file = manifest_of(tmp_path / "out")["files"][0]
    schema = pq.read_schema(tmp_path / "out" / file["path"])
    assert tuple(schema.names) == EXPORT_COLUMNS
    assert schema.field("store_timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert schema.field("keys").type.value_type == pa.string()
    assert schema.field("body").type == pa.binary()
    assert not schema.field("body").nullable
    integers = {name: str(schema.field(name).type) for name in ("queue_id", "queue_offset", "sys_flag", "body_size")}
    assert integers == {"queue_id": "int32", "queue_offset": "int64", "sys_flag": "int32", "body_size": "int32"}
    physical = pq.ParquetFile(tmp_path / "out" / file["path"]).schema
    assert {column.physical_type for column in physical} >= {"INT64", "INT32", "BYTE_ARRAY"}
    assert "INT96" not in {column.physical_type for column in physical}


@pytest.mark.slow
def test_results_may_be_joined(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The manifest is that of a run whose results came one by one, for each of several stores."""
    stores_given = [golden_store("5.5.0-trimmed"), golden_store("5.3.3-single")]
    for name, engine in (("one", run_here), ("joined", lambda plan: join_results(run_here(plan)))):
        export(stores_given, tmp_path / name, split_size=SPLIT, engine=engine)
    one, joined = (manifest_of(tmp_path / name) for name in ("one", "joined"))
    for name in one.keys() - {"runs", "files"}:
        assert one[name] == joined[name], name
    assert rows_of(tmp_path / "one") == rows_of(tmp_path / "joined")
    assert check(stores_given, tmp_path / "joined") == []


def test_readers_can_pass_over_row_groups(golden_store: GoldenStore, tmp_path: Path) -> None:
    """What is looked for has its smallest and largest value in each; what is not costs nothing."""
    output = tmp_path / "out"
    export(golden_store(ALL_FORMS), output)
    file = manifest_of(output)["files"][0]
    metadata = pq.read_metadata(output / file["path"])
    columns = {one.path_in_schema: one for one in map(metadata.row_group(0).column, range(metadata.num_columns))}
    statistics = columns["physical_offset"].statistics
    assert (statistics.min, statistics.max) == (file["physical_offset_first"], file["physical_offset_last"])
    assert columns["topic"].statistics.has_min_max
    assert columns["body"].statistics is None
    assert "DELTA_BINARY_PACKED" in columns["physical_offset"].encodings


@pytest.mark.parametrize("codec", ["zstd", "gzip", "brotli", "snappy", "lz4", "none"])
def test_every_compression(codec: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Each is what the files say, and what is in them stays the same."""
    export(golden_store("5.3.3-single"), tmp_path / "out", codec=codec, level=None)
    file = manifest_of(tmp_path / "out")["files"][0]
    told = pq.read_metadata(tmp_path / "out" / file["path"]).row_group(0).column(0).compression
    assert told.lower() == {"none": "uncompressed"}.get(codec, codec)
    assert check(golden_store("5.3.3-single"), tmp_path / "out") == []
