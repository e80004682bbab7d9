"""Run an export in this process, and read back what it wrote."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rmqtool.export.check import check_files, check_split, check_sums, plan_check
from rmqtool.export.options import ExportOptions, Format, Mode
from rmqtool.export.output import Output, read_manifest
from rmqtool.export.plan import ExportPlan, has_store_column, names_in
from rmqtool.export.results import SplitResult
from rmqtool.export.run import Exported, run_export, run_local
from rmqtool.export.write import write_split
from rmqtool.findings.finding import Finding
from rmqtool.formats.message import compression, transaction
from rmqtool.formats.properties import split_keys
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.store.message_reader import make_query
from rmqtool.store.splits import SPLIT_SIZE
from rmqtool.store.store import open_stores
from tests.unchanged import unchanged

EVERYTHING = ("prepared", "rolled-back")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Row = dict[str, Any]


def run_here(plan: ExportPlan) -> list[SplitResult]:
    """The engine of these tests: one split after the other, in this process."""
    return run_local(write_split, plan.tasks, 1, lambda _: None)


def export(
    stores: Path | Sequence[Path | str],
    output: Path,
    mode: Mode = "error",
    *,
    columns: Sequence[str] | None = None,
    body: BodyChoice = "decompressed",
    filters: Filters | None = None,
    include: Sequence[str] = EVERYTHING,
    engine: Any = run_here,
    split_size: int = SPLIT_SIZE,
    format: Format = "parquet",  # noqa: A002 - as the option is named
    **options: Any,
) -> Exported:
    """Export stores, which stay as they are."""
    paths = [stores] if isinstance(stores, Path) else stores
    with ExitStack() as stack, Output(output, mode) as target:
        for path in paths:
            stack.enter_context(unchanged(Path(str(path).rpartition("=")[2])))
        before = target.manifest if mode in ("append", "incremental") else None
        named = open_stores([str(path) for path in paths], BrokerConf(), names_in(before))
        with_store = len(named) > 1 or has_store_column(before)
        is_text = format != "parquet"
        query = make_query(columns, body, filters or Filters(), include, with_store=with_store, epoch_ms=is_text)
        return run_export(
            named, target, mode, ExportOptions(query, split_size=split_size, format=format, **options), engine
        )


def check(stores: Path | Sequence[Path | str], output: Path) -> list[Finding]:
    """What a comparison with the logs finds."""
    paths = [stores] if isinstance(stores, Path) else stores
    manifest = manifest_of(output)
    named = open_stores([str(path) for path in paths], BrokerConf(), names_in(manifest))
    plan = plan_check(output, manifest, named, None)
    results = run_local(check_split, plan.tasks, 1, lambda _: None)
    found = [finding for result in results for finding in result.findings]
    return [*check_files(output, manifest, results), *found, *check_sums(manifest, plan, results)]


def manifest_of(output: Path) -> dict[str, Any]:
    manifest = read_manifest(output)
    assert manifest is not None
    return manifest


def rows_of(output: Path) -> list[Row]:
    """Every row of the files in the manifest, in the order of each log; no other file is to be seen."""
    manifest = manifest_of(output)
    visible = {
        str(path.relative_to(output))
        for path in output.rglob("*")
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(output).parts)
    }
    assert visible == {file["path"] for file in manifest["files"]}
    assert (output / "_SUCCESS").exists()
    assert not (output / "_temporary").exists()
    rows = [row for file in manifest["files"] for row in pq.ParquetFile(output / file["path"]).read().to_pylist()]
    assert len(rows) == manifest["rows"]
    return sorted(rows, key=lambda row: (row.get("store", ""), row.get("physical_offset", 0)))


def oracle_row(record: dict[str, Any], body: BodyChoice = "decompressed") -> Row:
    """What a record of an oracle is in the machine interface."""
    flag = record["sys_flag"]
    row = {
        "topic": record["topic"],
        "queue_id": record["queue_id"],
        "queue_offset": record["queue_offset"],
        "physical_offset": record["physical_offset"],
        "message_size": record["message_size"],
        "message_id": record["message_id"],
        "unique_key": record["unique_key"],
        "keys": split_keys(record["keys"]) if record["keys"] else [],
        "tags": record["tags"],
        "properties": list(record["properties"].items()),
        "born_timestamp": EPOCH + timedelta(milliseconds=record["born_timestamp"]),
        "store_timestamp": EPOCH + timedelta(milliseconds=record["store_timestamp"]),
        "born_host": host(record["born_host_address"], record["born_host_port"]),
        "store_host": host(record["store_host_address"], record["store_host_port"]),
        "flag": record["flag"],
        "sys_flag": flag,
        "reconsume_times": record["reconsume_times"],
        "body_crc": record["body_crc"],
        "transaction": transaction(flag),
        "compression": compression(flag),
        "prepared_transaction_offset": record["prepared_transaction_offset"],
        "body_size": len(base64.b64decode(record["body_stored_base64"])),
    }
    if body != "none":
        row["body"] = base64.b64decode(record["body_base64" if body == "decompressed" else "body_stored_base64"])
    return row


def host(address: str, port: int) -> str:
    parsed = ip_address(address)
    return f"[{parsed.compressed}]:{port}" if parsed.version == 6 else f"{address}:{port}"


def sorted_properties(rows: Iterable[Row]) -> list[Row]:
    """Rows whose properties can be compared: an oracle is a JSON object, whose order says nothing."""
    return [{**row, "properties": sorted(row["properties"])} if "properties" in row else row for row in rows]
