"""An export to another machine: its manifest names one whole export at any moment, wherever a run is killed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.remote_files import files_in, read_remote, write_remote
from rmqtool.export import output as remote_output
from rmqtool.export.check import open_stored
from rmqtool.export.options import ExportOptions, Mode
from rmqtool.export.plan import ExportPlan, names_in
from rmqtool.export.results import SplitResult
from rmqtool.export.run import Exported, open_output, run_export
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.store.message_reader import make_query
from rmqtool.store.store import open_stores
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import run_here
from tests.export.killing import KilledError, killed_at
from tests.other_machines.conftest import Place, remote
from tests.sampling import one_in

pytestmark = pytest.mark.slow


def export_to(uri: str, store: Path, mode: Mode = "incremental", engine: Any = run_here) -> Exported:
    with open_output(remote(uri), mode) as output:
        stores = open_stores([str(store)], BrokerConf(), names_in(output.manifest))
        query = make_query(None, "decompressed", Filters(), ())
        return run_export(stores, output, mode, ExportOptions(query, split_size=1000), engine)


def named(uri: str) -> list[int]:
    """Physical offsets of the rows that the manifest names; none without one."""
    import pyarrow.parquet as pq

    try:
        manifest = json.loads(read_remote(remote(uri) / "_manifest.json"))
    except FileNotFoundError:
        return []
    offsets: list[int] = []
    for file in manifest["files"]:
        with open_stored(remote(uri) / file["path"]) as opened:
            offsets += pq.read_table(opened, columns=["physical_offset"]).column(0).to_pylist()
    return sorted(offsets)


def test_an_output_is_what_the_log_says(golden_store: GoldenStore, place: Place) -> None:
    """Of each format, with partitions and several processes; a check reads it there, and finds what is wrong."""
    store = golden_store("4.9.7-trimmed")
    for name, options in (
        ("plain", ()),
        ("parts", ("--partition-by", "topic,queue", "-j", "2")),
        ("text", ("--format", "ndjson", "--compression", "zstd")),
    ):
        uri = place.uri(f"output/{name}")
        assert rmqtool("export", store, "-o", uri, "--engine", "local", *options).status == Exit.OK
        assert rmqtool("export", store, "--check", uri).status == Exit.OK
    path = remote(place.uri("output/plain"))
    assert "_SUCCESS" in dict(files_in(path))
    write_remote(path / next(name for name, _ in files_in(path) if name.startswith("part-")), b"PAR1")
    assert rmqtool("export", store, "--check", place.uri("output/plain")).status == Exit.FINDINGS


@pytest.mark.one_in(2)
def test_a_growing_log(place: Place, tmp_path: Path) -> None:
    """Each run adds what is new; with the log there, too."""
    builder = LogBuilder()
    uri = place.uri("growing/out")
    for step in (5, 0, 40):
        builder.add_all([{"queue_offset": len(builder.offsets) + number} for number in range(step)])
        log = place.put(builder.write(tmp_path / "store"), "growing/store")
        assert rmqtool("export", f"a={log}", "-o", uri, "--engine", "local", "--mode", "incremental").status == Exit.OK
        assert named(uri) == builder.offsets
    assert rmqtool("export", tmp_path / "store", "-o", uri).status == Exit.USAGE  # it holds an export


@pytest.mark.one_in(9)
@pytest.mark.parametrize("mode", ["incremental", "overwrite"])
def test_a_run_that_is_killed_anywhere(mode: Mode, s3: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest names what was there before or all that is new; the next run ends what was begun."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(30)])
    uri, store = s3.uri(f"killed/{mode}"), builder.write(tmp_path / "store")
    export_to(uri, store)
    before = list(builder.offsets)
    for operation in one_in(2, range(100), f"{mode} there"):
        builder.add_all([{"queue_offset": len(builder.offsets)}]).write(store)
        with monkeypatch.context() as patched:
            left = killed_at(operation, remote_output, ("write_remote", "remove_remote"), patched)
            try:
                export_to(uri, store, mode)
            except KilledError:
                assert named(uri) in (before, builder.offsets)
        if left() >= 0:
            break
        export_to(uri, store, mode)
        assert named(uri) == builder.offsets
        check_nothing_else(uri)
        before = list(builder.offsets)
    assert operation >= 5


def check_nothing_else(uri: str) -> None:
    """No file is left that the manifest does not name."""
    path = remote(uri)
    manifest = json.loads(read_remote(path / "_manifest.json"))
    expected = {file["path"] for file in manifest["files"]} | {"_manifest.json", "_SUCCESS"}
    assert {name for name, _ in files_in(path)} == expected


def test_files_of_a_run_that_fails_are_removed(s3: Place, tmp_path: Path) -> None:
    """At once where it can, else by the next run."""
    store = LogBuilder().add_all([{"queue_offset": number} for number in range(30)]).write(tmp_path / "store")
    uri = s3.uri("failing/out")

    def failing(plan: ExportPlan) -> list[SplitResult]:
        run_here(replace(plan, tasks=plan.tasks[:2]))
        assert len(list(files_in(remote(uri)))) == 2
        raise RmqtoolError("no more")

    with pytest.raises(RmqtoolError, match="no more"):
        export_to(uri, store, engine=failing)
    assert list(files_in(remote(uri))) == []


def test_two_runs_at_once(s3: Place, tmp_path: Path) -> None:
    """The later commit fails, and says so; nothing is doubled."""
    builder = LogBuilder().add_all([{"queue_offset": number} for number in range(30)])
    store, uri = builder.write(tmp_path / "store"), s3.uri("twice/out")

    def overtaken(plan: ExportPlan) -> list[SplitResult]:
        results = run_here(plan)
        export_to(uri, store)
        return results

    with pytest.raises(RmqtoolError, match="another run"):
        export_to(uri, store, engine=overtaken)
    assert named(uri) == builder.offsets


def test_what_no_export_wrote_is_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    place.put(tmp_path / "file", "foreign/file")
    store = LogBuilder().add_all([{}]).write(tmp_path / "store")
    with pytest.raises(UsageError, match="not empty"):
        export_to(place.uri("foreign"), store)
    assert [name for name, _ in files_in(remote(place.uri("foreign")))] == ["file"]


def test_an_output_inside_of_a_store_is_refused(s3: Place, golden_store: GoldenStore) -> None:
    uri = s3.put(golden_store("4.4.0-shop"), "inside/store")
    result = rmqtool("export", uri, "-o", s3.uri("inside/store/out"), "--engine", "local")
    assert (result.status, "inside a store" in result.err) == (Exit.USAGE, True)


@pytest.mark.rare
@pytest.mark.spark
def test_spark_writes_there(golden_store: GoldenStore, s3: Place) -> None:
    """Its workers write, this process commits; with the JVM of spark-submit, `tests/spark/test_submit.py`."""
    store, uri = golden_store("4.9.7-trimmed"), s3.uri("by-spark/out")
    assert rmqtool("export", store, "-o", uri, "--engine", "spark", "--master", "local[2]").status == Exit.OK
    assert rmqtool("export", store, "--check", uri).status == Exit.OK
    check_nothing_else(uri)
