"""A verification on Spark: its report is that of this machine's processes, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.parallel import WorkerPool
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.spark.sessions import Session, require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTS = 64 << 10
"""Bytes of a part: many of them in a small store."""


def verify_here(path: str, part_size: int, pool: WorkerPool[Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    """The result of a verification, and its findings."""
    verification = Verification(open_store(Path(path)), VerifyRequest(part_size=part_size))
    verification.run(lambda _: None, pool)
    assert verification.complete
    outcome = outcome_of(verification)
    return outcome_json(outcome), [str(finding) for finding in outcome.findings]


def verify_on(session: Any, path: str, part_size: int) -> tuple[dict[str, Any], list[str]]:
    """The same by the workers of a session, whose context goes on."""
    from contextlib import nullcontext

    from rmqtool.spark import register
    from rmqtool.spark.engine import SparkPool

    register(session)
    with SparkPool[Any](lambda: nullcontext(session.sparkContext)) as pool:
        return verify_here(path, part_size, pool)


@pytest.mark.parametrize("name", ["5.3.3-killed", "4.9.7-trimmed", "5.5.0-clean"])
def test_the_report_is_that_of_one_process(spark: Session, golden_store: GoldenStore, name: str) -> None:
    """Of a store in many parts, some of which have to be checked again as one."""
    store = str(golden_store(name))
    assert spark.run(verify_on, store, PARTS) == verify_here(store, PARTS)


def test_damage_at_the_borders_of_parts(spark: Session, tmp_path: Path) -> None:
    """Parts that do not meet are checked again by this process."""
    builder = LogBuilder(1 << 18).add_all([{"queue_offset": number, "body": b"x" * 900} for number in range(400)])
    store = builder.write(tmp_path / "store")
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    for border in range(PARTS, len(data), PARTS):
        data[border - 700 : border + 700] = b"\x7f" * 1400
    log.write_bytes(data)
    found = spark.run(verify_on, str(store), PARTS)
    assert found == verify_here(str(store), PARTS)
    assert found[0]["bad_extents"]


@pytest.mark.rare
def test_a_cluster_that_has_no_package(cluster: Session, golden_store: GoldenStore) -> None:
    """The package travels along; executors are processes of their own."""
    store = str(golden_store("4.9.7-trimmed"))
    assert cluster.run(verify_on, store, PARTS) == verify_here(store, PARTS)


@pytest.mark.rare
def test_the_command_prints_the_same(golden_store: GoldenStore) -> None:
    """With a JVM of its own; that of spark-submit does it in `test_submit`."""
    require_spark()
    store = golden_store("5.3.3-killed")
    here = rmqtool("verify", store, "--json")
    there = rmqtool("verify", store, "--json", "--engine", "spark", "--master", "local[2]")
    assert (there.status, there.out) == (here.status, here.out)


@pytest.mark.parametrize("options", [("--master", "local[2]"), ("--engine", "spark", "-j", "2"),
                                     ("--engine", "spark", "--limit-rate", "1MiB")])  # fmt: skip
def test_options_that_do_not_fit(golden_store: GoldenStore, options: tuple[str, ...]) -> None:
    assert rmqtool("verify", golden_store("4.4.0-shop"), *options).status == Exit.USAGE
