"""What goes wrong between machines: connections that are cut, files that are replaced, executors that die."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import ChangedError, Exit
from rmqtool.export.options import ExportOptions
from rmqtool.export.output import Output
from rmqtool.export.plan import ExportPlan
from rmqtool.export.results import SplitResult
from rmqtool.export.run import run_export
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.store.message_query import make_query
from rmqtool.store.named_stores import open_stores
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import export, rows_of, run_here
from tests.other_machines.conftest import Place
from tests.other_machines.servers import Proxy, s3_uri
from tests.spark import jobs
from tests.spark.sessions import Session

pytestmark = pytest.mark.slow

_LOG = 40


def test_a_connection_that_is_cut_costs_no_row(s3: Place, s3_place: str, tmp_path: Path) -> None:
    """In the midst of answers: the range is asked for again."""
    builder = LogBuilder(1 << 20).add_all([{"body": bytes([number]) * 5000} for number in range(_LOG)])
    s3.put(builder.write(tmp_path / "store"), "cut/store")
    with Proxy(s3_place, after=30_000, cuts=3) as proxy:
        uri = s3_uri(proxy.place, "cut/store")
        result = rmqtool("export", uri, "-o", tmp_path / "out", "--engine", "local")
        assert proxy.left < 3
    assert result.status == Exit.OK
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == builder.offsets


def test_a_server_that_is_gone_is_told(s3: Place, s3_place: str, tmp_path: Path) -> None:
    """After some tries; nothing is exported."""
    s3.put(LogBuilder(1 << 20).add_all([{"body": b"x" * 5000}] * _LOG).write(tmp_path / "store"), "gone/store")
    with Proxy(s3_place, after=30_000, cuts=10**6) as proxy:
        result = rmqtool("export", s3_uri(proxy.place, "gone/store"), "-o", tmp_path / "out", "--engine", "local")
    assert result.status == Exit.FAILED
    assert "cannot read" in result.err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_replaced_ends_the_run(place: Place, tmp_path: Path) -> None:
    """Between plan and reading; nothing is exported, and the next run takes what is there."""
    first = LogBuilder().add_all([{"queue_offset": number} for number in range(_LOG)])
    uri = place.put(first.write(tmp_path / "first"), "replaced/store")
    second = LogBuilder(1 << 16).add_all([{"queue_offset": number, "body": b"other"} for number in range(2 * _LOG)])
    second.write(tmp_path / "second")

    def replaced(plan: ExportPlan) -> list[SplitResult]:
        place.put(tmp_path / "second", "replaced/store")
        return run_here(plan)

    stores = open_stores([uri], BrokerConf())
    query = make_query(None, "decompressed", Filters(), ())
    with Output(tmp_path / "out", "error") as output, pytest.raises(ChangedError, match="replaced or removed"):
        run_export(stores, output, "error", ExportOptions(query), replaced)
    assert not (tmp_path / "out").exists()
    assert rmqtool("export", uri, "-o", tmp_path / "out", "--engine", "local").status == Exit.OK
    assert [row["physical_offset"] for row in rows_of(tmp_path / "out")] == second.offsets


@pytest.mark.spark
def test_spark_reads_the_same_rows(spark: Session, golden_store: GoldenStore, place: Place, tmp_path: Path) -> None:
    """As a batch and as a stream."""
    store = golden_store("4.9.7-trimmed")
    uri = place.put(store, "spark/store")
    options = {"include": "prepared,rolled-back"}
    local = spark.run(jobs.read, str(store), options)
    assert spark.run(jobs.read, uri, options) == local
    _, rows = spark.run(jobs.stream, uri, str(tmp_path / "stream"), options)
    assert len(rows) == len(local)


@pytest.mark.spark
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
