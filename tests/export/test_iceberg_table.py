"""An export that is an Iceberg table, too: the table holds what the manifest names, once, wherever a run is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, UsageError
from rmqtool.export import output as output_module
from rmqtool.export.options import Mode
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import check, export, rows_of
from tests.export.killing import KilledError, killed_at
from tests.export.tables import STEPS
from tests.sampling import one_in

pytestmark = pytest.mark.slow

pytest.importorskip("pyiceberg")


def table_rows(catalog: Any) -> list[int]:
    table = catalog.load_table("lake.messages")
    return sorted(table.scan(selected_fields=("physical_offset",)).to_arrow().column(0).to_pylist())


TABLE: Any = {"table": "iceberg:lake.messages"}


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder().add_all([{"queue_offset": number} for number in range(30)])


def test_each_run_is_a_snapshot(
    catalog: Any, builder: LogBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An append adds what is new and nothing else; a run without news makes none; snapshots have watermarks."""
    for snapshots, more in enumerate((0, 20, 20), 1):
        builder.add_all([{"queue_offset": len(builder.offsets) + number} for number in range(more)])
        store = builder.write(tmp_path / "store")
        for _ in range(2):
            export(store, tmp_path / "out", "incremental", split_size=1000, **TABLE)
            assert table_rows(catalog) == builder.offsets
            assert len(catalog.load_table("lake.messages").history()) == snapshots
    assert check(store, tmp_path / "out") == []
    assert caplog.messages == []
    assert str(builder.end) in catalog.load_table("lake.messages").current_snapshot().summary["rmqtool"]


def test_an_overwrite_may_have_other_columns(catalog: Any, builder: LogBuilder, tmp_path: Path) -> None:
    store = builder.write(tmp_path / "store")
    export(store, tmp_path / "out", **TABLE)
    export(store, tmp_path / "out", "overwrite", columns=["topic", "physical_offset", "file"], **TABLE)
    assert [field.name for field in catalog.load_table("lake.messages").schema().fields] == [
        "topic", "physical_offset", "file"
    ]  # fmt: skip
    assert table_rows(catalog) == builder.offsets


def test_rows_are_those_of_the_files(catalog: Any, golden_store: GoldenStore, tmp_path: Path) -> None:
    """In directories with percent signs, too; DuckDB reads the table."""
    export(golden_store("5.3.3-clean"), tmp_path / "out", partition_by=("topic",), **TABLE)
    scan = catalog.load_table("lake.messages").scan()
    found = sorted(scan.to_arrow().to_pylist(), key=lambda row: row["physical_offset"])
    assert [{**row, "properties": dict(row["properties"])} for row in found] == [
        {**row, "properties": dict(row["properties"])} for row in rows_of(tmp_path / "out")
    ]
    counted = scan.to_duckdb("messages").execute("select count(*), count(distinct topic) from messages").fetchall()
    assert counted == [(len(found), len({row["topic"] for row in found}))]


def test_metadata_are_on_the_disk_once_they_are_written(tmp_path: Path, synced: list[int]) -> None:
    """With the names of the directories that were made; what is there is not overwritten without being asked."""
    from rmqtool.export.synced_files import SyncedFiles

    file = tmp_path / "lake" / "metadata" / "0.json"
    output = SyncedFiles({}).new_output(file.as_uri())
    with output.create() as stream:
        stream.write(b"{}")
    assert file.read_bytes() == b"{}"
    assert synced[0] == file.stat().st_ino
    assert {*synced[1:]} == {path.stat().st_ino for path in (file.parent, file.parent.parent, tmp_path)}
    with pytest.raises(FileExistsError):
        output.create()
    with output.create(overwrite=True):
        pass
    assert file.read_bytes() == b""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["incremental", "overwrite"])
def test_a_run_that_is_killed_anywhere(
    catalog: Any, mode: Mode, builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has a whole snapshot, whose files are there; the next run brings it up to date.

    Of the steps `make test` tries every fourth.
    """
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    export(store, output, split_size=2000, **TABLE)
    for step in one_in(4, range(100), f"{mode} iceberg"):
        before = list(builder.offsets)
        builder.add_all([{"queue_offset": len(builder.offsets)}]).write(store)
        with monkeypatch.context() as patched:
            left = killed_at(step, output_module, STEPS, patched)
            try:
                export(store, output, mode, split_size=2000, **TABLE)
            except KilledError:
                assert table_rows(catalog) in (before, builder.offsets)
        if left() >= 0:
            break
        export(store, output, mode, split_size=2000, **TABLE)
        assert table_rows(catalog) == builder.offsets
    assert step >= 4


def test_a_table_of_another_output_is_left_alone(catalog: Any, builder: LogBuilder, tmp_path: Path) -> None:
    store = builder.write(tmp_path / "store")
    export(store, tmp_path / "out", **TABLE)
    with pytest.raises(UsageError, match="another output"):
        export(store, tmp_path / "other", **TABLE)
    assert table_rows(catalog) == builder.offsets


@pytest.mark.parametrize("table", ["iceberg:messages", "iceberg:a..b", "hudi"])
def test_names_that_are_none(golden_store: GoldenStore, tmp_path: Path, table: str) -> None:
    result = rmqtool("export", golden_store("4.4.0-shop"), "-o", tmp_path / "out", "--table", table)
    assert result.status == Exit.USAGE
