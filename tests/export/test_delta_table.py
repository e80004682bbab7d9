"""An export that is a Delta table, too: the table holds what the manifest names, once, wherever a run is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.export import output as output_module
from rmqtool.export.options import Mode
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import check, export, rows_of
from tests.export.killing import KilledError, killed_at
from tests.export.tables import STEPS
from tests.other_machines.conftest import Place, s3, s3_place
from tests.sampling import one_in

pytestmark = pytest.mark.slow

deltalake = pytest.importorskip("deltalake")


def table_rows(output: Path | str, **options: Any) -> list[int]:
    """Physical offsets of the table's rows."""
    table = deltalake.DeltaTable(str(output), **options)
    return sorted(table.to_pyarrow_dataset().to_table(columns=["physical_offset"]).column(0).to_pylist())


def version_of(output: Path) -> int:
    return int(deltalake.DeltaTable(str(output)).version())


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder().add_all([{"queue_offset": number} for number in range(30)])


def test_each_run_is_a_version(builder: LogBuilder, tmp_path: Path) -> None:
    """An append adds what is new and nothing else; a run without news makes no version; the history has watermarks."""
    output = tmp_path / "out"
    for version, more in enumerate((0, 20, 20)):
        builder.add_all([{"queue_offset": len(builder.offsets) + number} for number in range(more)])
        store = builder.write(tmp_path / "store")
        for _ in range(2):
            export(store, output, "incremental", table="delta", split_size=1000)
            assert (version_of(output), table_rows(output)) == (version, builder.offsets)
    assert check(store, output) == []
    history = deltalake.DeltaTable(str(output)).history(1)
    assert str(builder.end) in history[0]["rmqtool"]
    table = deltalake.DeltaTable(str(output))
    table.load_as_version(0)
    assert table.to_pyarrow_dataset().count_rows() == 30


def test_an_overwrite_may_have_other_columns(builder: LogBuilder, tmp_path: Path) -> None:
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    export(store, output, table="delta")
    export(store, output, "overwrite", table="delta", columns=["topic", "physical_offset", "file"])
    table = deltalake.DeltaTable(str(output))
    assert [field.name for field in table.schema().fields] == ["topic", "physical_offset", "file"]
    assert table_rows(output) == builder.offsets


def test_rows_and_types_are_those_of_the_files(golden_store: GoldenStore, tmp_path: Path) -> None:
    """In directories with percent signs, too; DuckDB reads the table."""
    import duckdb

    store, output = golden_store("5.3.3-clean"), tmp_path / "out"
    export(store, output, table="delta", partition_by=("topic",))
    messages = deltalake.DeltaTable(str(output)).to_pyarrow_dataset()
    found = sorted(messages.to_table().to_pylist(), key=lambda row: row["physical_offset"])
    assert [{**row, "properties": dict(row["properties"])} for row in found] == [
        {**row, "properties": dict(row["properties"])} for row in rows_of(output)
    ]
    connection = duckdb.connect()
    connection.register("messages", messages)
    counted = connection.execute("select count(*), count(distinct topic) from messages").fetchall()
    assert counted == [(len(found), len({row["topic"] for row in found}))]


@pytest.mark.parametrize("mode", ["incremental", "overwrite"])
def test_a_run_that_is_killed_anywhere(
    mode: Mode, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has a whole version, whose files are there; the next run brings it up to date.

    Of the steps `make test` tries every second.
    """
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    export(store, output, table="delta", split_size=1000)
    for step in one_in(4, range(100), f"{mode} delta"):
        before = list(builder.offsets)
        builder.add_all([{"queue_offset": len(builder.offsets)}]).write(store)
        with monkeypatch.context() as patched:
            left = killed_at(step, output_module, STEPS, patched)
            try:
                export(store, output, mode, table="delta", split_size=1000)
            except KilledError:
                assert table_rows(output) in (before, builder.offsets)
        if left() >= 0:
            break
        export(store, output, mode, table="delta", split_size=1000)
        assert table_rows(output) == builder.offsets
        assert check(store, output) == []
    assert step >= 4


@pytest.mark.parametrize("left", [b"", bytes(700), b'{"commitInfo":{}}\n{"add":'])
def test_a_version_that_a_power_failure_has_torn(
    left: bytes, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run, which finishes the commit, makes it again; no program can read the table before."""
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    export(store, output, table="delta")
    builder.add_all([{"queue_offset": 30}]).write(store)
    follow = output_module.follow_table

    def fails(*arguments: Any) -> None:
        follow(*arguments)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(output_module, "follow_table", fails)
        with pytest.raises(KilledError):
            export(store, output, "incremental", table="delta")
    max((output / "_delta_log").glob("*.json")).write_bytes(left)
    export(store, output, "incremental", table="delta")
    assert table_rows(output) == builder.offsets
    assert check(store, output) == []


def test_a_table_stays_one(builder: LogBuilder, tmp_path: Path) -> None:
    """A later run cannot leave the table behind, nor make one of an output that has none."""
    store = builder.write(tmp_path / "store")
    for first, then in (("delta", None), (None, "delta")):
        output = tmp_path / str(first)
        export(store, output, table=first)
        with pytest.raises(UsageError, match="other table"):
            export(store, output, "incremental", table=then)


def test_a_table_that_is_damaged_is_told(builder: LogBuilder, tmp_path: Path) -> None:
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    export(store, output, table="delta")
    next((output / "_delta_log").glob("*.json")).write_text("{")
    builder.add(queue_offset=30)
    with pytest.raises(RmqtoolError, match="Delta table cannot be written"):
        export(builder.write(store), output, "incremental", table="delta")


def test_what_does_not_go_with_it(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("4.4.0-shop")
    for options in (("--format", "csv"), ("-o", "hdfs://host:1/out")):
        result = rmqtool("export", store, "-o", tmp_path / "out", "--table", "delta", *options)
        assert result.status == Exit.USAGE


def test_on_s3(golden_store: GoldenStore, s3: Place, s3_place: str) -> None:
    store, uri = golden_store("4.9.7-trimmed"), s3.uri("delta/out")
    for _ in range(2):
        result = rmqtool("export", store, "-o", uri, "--table", "delta", "--mode", "incremental", "--engine", "local")
        assert (result.status, result.err) == (Exit.OK, "")
    assert rmqtool("export", store, "--check", uri).status == Exit.OK
    options = {"AWS_ENDPOINT_URL": f"http://{s3_place}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
               "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}  # fmt: skip
    table = deltalake.DeltaTable("s3://bucket/delta/out", storage_options=options)
    assert table.version() == 0
    assert table.to_pyarrow_dataset().count_rows() > 0


__all__ = ["s3", "s3_place"]  # fixtures
