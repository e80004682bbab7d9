"""`rmqtool export STORE... --output DIR`: messages to Parquet, CSV or NDJSON, and `--check` of an export."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.numbers import byte_size
from rmqtool.commands import shared_options as shared
from rmqtool.commands.completion import columns, complete_from, compressions
from rmqtool.commands.options import (
    OnStores,
    argument,
    command,
    conf_option,
    flag,
    jobs_option,
    master_option,
    option,
    parsed,
    size_of_at_least,
)
from rmqtool.commands.writing import told_anyway
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.base.decoders import Decoder
    from rmqtool.base.files import RateLimit
    from rmqtool.export.check import CheckResult
    from rmqtool.export.options import BodyFormat, ExportOptions, Mode, PartitionKey
    from rmqtool.export.plan import ExportPlan
    from rmqtool.export.results import SplitResult
    from rmqtool.rules.broker_conf import BrokerConf
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import BodyChoice
    from rmqtool.scan.redaction import Redaction
    from rmqtool.store.store import NamedStore

_PATIENCE = 5.0  # seconds: a machine under load lets processes wait
_SMALL = 1 << 30
"""Bytes of log that processes of this machine export before Spark would have read the first."""


_LEAST_SPLIT = 1 << 20
_KEYS = ("topic", "date", "hour", "queue")


@parsed
def _columns(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return ()
    from rmqtool.scan.typed_columns import split_columns

    return tuple(name for value in values for name in split_columns(value))


@dataclass(frozen=True, kw_only=True)
class ExportChoices(OnStores):
    """What was asked for."""

    stores: tuple[str, ...] = argument("STORE...", shared.StoreWord(), nargs=-1, required=True)
    output: Path | None = shared.output_option(
        "Directory of the files, or its URI.", "DIR", shared.StorePath(may_be_remote=True)
    )
    format: Literal["parquet", "csv", "ndjson"] = option(
        "The files: Parquet, CSV, or JSON with one object per line.",
        type=click.Choice(["parquet", "csv", "ndjson"]), default="parquet",
    )  # fmt: skip
    check: Path | None = option(
        "Compare an export with the log again, row by row, instead.",
        type=shared.StorePath(may_be_remote=True), metavar="DIR",
    )  # fmt: skip
    mode: Mode = option(
        "What to do if DIR already has an export: add new messages, replace it, ...",
        type=click.Choice(["error", "append", "overwrite", "incremental"]), default="error",
    )  # fmt: skip
    columns: tuple[str, ...] = option(
        "Columns, separated by commas; '*' for the default ones; body_text, properties.NAME, body.PATH, "
        "file, place, body.PATH:int as NAME, ...",
        multiple=True, callback=_columns, shell_complete=complete_from(columns), metavar="NAMES",
    )  # fmt: skip
    body: BodyChoice = shared.body_option()
    body_format: BodyFormat | None = option(
        "How CSV and NDJSON write a body (default: base64); bodies that are not text, or not JSON, are written as "
        "base64 to another column.",
        type=shared.BODY_FORMAT,
    )
    include: tuple[str, ...] = shared.include_option()
    partition_by: tuple[PartitionKey, ...] = option(
        "Partition by topic, date, hour, queue: directories, nested in this order.",
        multiple=True, callback=shared.choices_of(*_KEYS), shell_complete=complete_from(lambda: _KEYS), metavar="KEYS",
    )  # fmt: skip
    compression: str | None = option(
        "zstd (default of Parquet), gzip, none (default of CSV and NDJSON); Parquet also brotli, snappy, lz4.",
        shell_complete=complete_from(compressions), metavar="CODEC[:LEVEL]",
    )  # fmt: skip
    table: str | None = option(
        "Also register DIR as a table with a version for each run: delta, or iceberg:NAMESPACE.TABLE.", metavar="KIND"
    )
    store_column: bool = flag("Add a column with the store's name for a single store, too.")
    engine: Literal["auto", "spark", "local"] = option(
        "Spark, or processes of this machine; auto: Spark from 1 GiB of log on, or with --master or --conf.",
        type=click.Choice(["auto", "spark", "local"]), default="auto",
    )  # fmt: skip
    master: str | None = master_option()
    conf: dict[str, str] = conf_option()
    jobs: int | None = jobs_option("all cores")
    memory: int | None = shared.memory_option()
    split_size: int = option(
        "Bytes of log for one task.", callback=size_of_at_least(_LEAST_SPLIT), default="128MiB", metavar="SIZE"
    )
    dry_run: bool = shared.dry_run_option()
    redaction: Redaction | None = shared.redact_options()
    decoder: Decoder | None = shared.decoder_option()
    tiered_path: Path | None = shared.tiered_path_option()
    filters: Filters = shared.filter_options()
    form: dict[str, Any] = field(default_factory=dict)  # of the files

    @property
    def named(self) -> str | None:
        """The store, where there is one."""
        return self.stores[0] if len(self.stores) == 1 else None

    @property
    def conf_of_stores(self) -> BrokerConf:
        """The broker.conf, with the place of the tier."""
        from rmqtool.store.tiered import with_tier

        return with_tier(self.broker_conf, self.tiered_path)


@contextmanager
def export_engine(style: Style, given: ExportChoices, size: int) -> Iterator[Callable[[ExportPlan], list[SplitResult]]]:
    """The function that writes the splits of a plan, of logs of `size` bytes; Spark starts in the background."""
    with local_processes(style, given, size) as jobs:
        if jobs is not None:
            yield lambda plan: _run_local(style, plan, given, jobs)
            return
    from rmqtool.spark.session import starting_spark

    with starting_spark(given.master, given.conf) as start:
        yield lambda plan: _run_on_spark(style, plan, given, start)


@contextmanager
def local_processes(style: Style, given: ExportChoices, size: int) -> Iterator[int | None]:
    """How many processes of this machine export logs of `size` bytes; None where Spark does."""
    if not _is_local(style, given, size):
        if given.memory is not None:
            raise UsageError("--memory is for --engine local: Spark has spark.executor.memory and others")
        yield None
        return
    from rmqtool.base.limits import usable_cores
    from rmqtool.export.run import EXPORT_NEED

    with shared.within_memory(style, given.memory, given.jobs or usable_cores(), EXPORT_NEED) as jobs:
        yield jobs


def _is_local(style: Style, given: ExportChoices, size: int) -> bool:
    """Whether it is done without Spark; where nobody said it, Spark is for what it is worth starting for."""
    if given.engine != "auto":
        return bool(given.engine == "local")
    from rmqtool.spark.gateway import is_submitted

    if given.master or given.conf or is_submitted():
        return False
    if not (find_spec("pyspark") and ("JAVA_HOME" in os.environ or shutil.which("java"))):
        return True
    is_local = bool(given.jobs or given.memory) or size < _SMALL
    if not style.quiet:
        unused, used = "Spark is not used (to use it: --engine spark)", "Spark is used (to avoid it: --engine local)"
        why = unused if is_local else used
        note(f"{byte_size(size)} of log: {why}")
    return is_local


def _run_local(style: Style, plan: ExportPlan, given: ExportChoices, jobs: int) -> list[SplitResult]:
    from rmqtool.export.run import run_local
    from rmqtool.export.write import write_split

    with byte_progress("exporting", plan.size, style=style) as progress:
        tasks = _limited(plan.tasks, given.limit_rate, jobs)
        return run_local(write_split, tasks, jobs, progress.update, patience=patience_for(given.decoder))


def patience_for(decoder: Decoder | None) -> float:
    """Seconds that processes get to end their decoders when a run is interrupted."""
    return 0 if decoder is None else _PATIENCE


def _run_on_spark(
    style: Style, plan: ExportPlan, given: ExportChoices, start: Callable[[], AbstractContextManager[Any]]
) -> list[SplitResult]:
    from rmqtool.export.results import join_results
    from rmqtool.export.write import write_split
    from rmqtool.spark.engine import run_on_spark

    with byte_progress("exporting", plan.size, style=style) as progress:
        progress.wait_for("starting Spark")
        # Spark ends before the output is cleaned up: no worker may write to removed files.
        with start() as context:
            tasks = _limited(plan.tasks, given.limit_rate, context.defaultParallelism)
            return run_on_spark(context, write_split, join_results, tasks, progress.update)


def _limited(tasks: Sequence[Any], limit: RateLimit | None, workers: int) -> Sequence[Any]:
    """The tasks, each worker reading at its part of the limit."""
    if limit is None:
        return tasks
    rate = max(1, limit.bytes_per_second // max(1, min(workers, len(tasks))))
    return [replace(task, options=replace(task.options, query=replace(task.options.query, bytes_per_second=rate)))
            for task in tasks]  # fmt: skip


@command(
    "export",
    ExportChoices,
    (
        "rmqtool export /data/rocketmq/store --output /lake/all --dry-run",
        "rmqtool export /data/rocketmq/store --output /lake/all",
        "rmqtool export /data/rocketmq/store --output /lake/all --mode incremental",
        "rmqtool export /data/rocketmq/store --check /lake/all",
        "rmqtool export /data/rocketmq/store --output /lake/day --from -1d -j 2",
        "rmqtool export /data/rocketmq/store --output /lake/small --memory 512MiB",
        "rmqtool export /data/rocketmq/store -o /lake/csv --format csv \\\n"
        "    --body-format text --from yesterday --to today",
        "rmqtool export '/brokers/*/store' --output /lake/b --master yarn",
        "rmqtool export s3://backups/store --output s3://lake/all --table delta",
    ),
    {
        Exit.OK: "done",
        Exit.FINDINGS: "no message matches the filters, or --check found a difference",
        Exit.USAGE: "the options do not fit, or the output is not empty",
        Exit.LOSSY: "done, but bytes are not messages, or a body is damaged or not decoded",
        Exit.FAILED: "no Java or Spark, a full disk, or something cannot be read",
    },
)
def export(style: Style, given: ExportChoices) -> Exit:
    """Write messages to Parquet, CSV or NDJSON files.

    STORE is a directory that broker.conf calls storePathRootDir, or its URI (s3://, hdfs://, ...), NAME=STORE, or a
    quoted pattern of such directories. A broker may be running on the store; nothing in it is changed.
    """
    if (given.output is None) == (given.check is None):
        raise UsageError("one of --output and --check is needed", hint="rmqtool export STORE --output DIR")
    if given.check is not None:
        if given.dry_run:
            raise UsageError("--check writes nothing: leave out --dry-run")
        return _check(style, given.check, given)
    given = replace(given, form=_form_of(style, given))
    return (_preview if given.dry_run else _export)(style, given.output or Path(), given)  # there is one


def _preview(style: Style, path: Path, given: ExportChoices) -> Exit:
    """Show what a run would read, and where it would write; nothing is made."""
    from rmqtool.export.output import manifest_there
    from rmqtool.export.plan import preview_export
    from rmqtool.export.run import check_output
    from rmqtool.show.export import preview_as_json, show_preview
    from rmqtool.store.store import open_stores

    check_output(path, [named.store.root for named in open_stores(given.stores, given.conf_of_stores)])
    mode, manifest = given.mode, manifest_there(path)
    stores, settings = _selection(given, manifest)
    preview = preview_export(stores, path, mode, settings, manifest)
    size = sum(named.store.commit_log().size for named in stores)
    with local_processes(style, given, size) as jobs:
        document = preview_as_json(preview, path, settings, mode, "spark" if jobs is None else "local")
    if style.json:
        write_document(style, "export", {"plan": document})
    else:
        show_preview(document, style)
    return Exit.OK


def _export(style: Style, path: Path, given: ExportChoices) -> Exit:
    from rmqtool.store.store import open_stores

    if given.table:
        from rmqtool.export.output import check_table

        check_table(path, given.table)
    # A directory that is no store is reported before the output is made, and before Spark is started.
    opened = open_stores(given.stores, given.conf_of_stores)
    size = sum(named.store.commit_log().size for named in opened)
    with export_engine(style, given, size) as engine:
        from rmqtool.export.run import check_output, open_output, run_export, summary
        from rmqtool.scan.filters import Filters
        from rmqtool.show.export import show_export
        from rmqtool.store.missing import excludes_nothing, why_nothing
        from rmqtool.store.snapshot import Snapshot

        check_output(path, [named.store.root for named in opened])
        with open_output(path, given.mode) as output:
            stores, settings = _selection(given, output.manifest)
            exported = run_export(stores, output, given.mode, settings, engine)
    is_empty = not exported.manifest["rows"] and settings.query.filters != Filters()
    status = Exit.LOSSY if exported.totals.is_lossy else Exit.FINDINGS if is_empty else Exit.OK
    with told_anyway(style, f"exported: {path} is complete"):
        if style.json:
            write_document(style, "export", summary(exported.manifest), status=status)
        else:
            show_export(exported, path, style)
    manifest = exported.manifest
    has_bodies = manifest["body_format"] is not None and "body" in [each["name"] for each in manifest["columns"]]
    if manifest["rows"] and not style.json and has_bodies and given.body_format is None:  # nobody asked for base64
        note("bodies are base64; --body-format text writes text bodies as text")
    shared.note_failures(style, exported.totals.decode_failures)
    for named in () if style.quiet else stores:
        snapshot, filters = Snapshot(named.store), settings.query.filters
        reasons = [why_nothing(snapshot, filters)] if is_empty else [*excludes_nothing(snapshot, filters)]
        for reason in reasons:
            note(f"{named.name}: {reason}")
    if is_empty and not style.quiet:
        note(f"{path} now holds an empty export: --mode overwrite replaces it")
    elif manifest["rows"] and not style.quiet and manifest["format"] == "parquet" and sys.stdout.isatty():
        note(f"query it: duckdb -c \"select topic, count(*) from read_parquet('{path}/**/*.parquet') group by all\"")
    return status


def _selection(given: ExportChoices, manifest: dict[str, Any] | None) -> tuple[list[NamedStore], ExportOptions]:
    """The stores, by the names that an output with this manifest has for them, and the options of a run into it."""
    from rmqtool.export.plan import has_store_column, names_in
    from rmqtool.store.store import open_stores

    before = manifest if given.mode in ("append", "incremental") else None
    stores = open_stores(given.stores, given.conf_of_stores, names_in(before))
    with_store = given.store_column or len(stores) > 1 or has_store_column(before)
    return stores, _export_options(given, with_store=with_store)


def _form_of(style: Style, given: ExportChoices) -> dict[str, Any]:
    """The form of the files; raises UsageError for options that do not fit the format."""
    from rmqtool.export.options import parse_compression

    name, body_format = given.format, given.body_format
    if name == "parquet" and body_format is not None:
        raise UsageError("--body-format is for CSV and NDJSON: Parquet has the bytes", hint="add --format ndjson")
    if given.table and name != "parquet":
        raise UsageError(f"--table {given.table} is for Parquet", hint="leave out --format")
    codec, level = parse_compression(given.compression, name)
    for filter_name, values in (("key", given.filters.keys), ("tag", given.filters.tags)):
        if given.redaction is not None and values and given.redaction.hides(f"{filter_name}s"):
            raise UsageError(f"--{filter_name} names what --redact hides: it would be in the manifest")
    return {"format": name, "body_format": body_format or "base64", "int64": style.int64, "codec": codec,
            "level": level, "table": given.table}  # fmt: skip


def _export_options(given: ExportChoices, *, with_store: bool) -> ExportOptions:
    from rmqtool.export.options import ExportOptions
    from rmqtool.store.message_reader import make_query

    query = make_query(given.columns or None, given.body, given.filters, given.include, with_store=with_store,
                       epoch_ms=given.format != "parquet", redaction=given.redaction,
                       decoder=given.decoder)  # fmt: skip
    return ExportOptions(query, given.partition_by, split_size=given.split_size, **given.form)


def _check(style: Style, path: Path, given: ExportChoices) -> Exit:
    from rmqtool.base.limits import usable_cores
    from rmqtool.export.check import Given, check_files, check_split, check_sums, manifest_to_check, plan_check
    from rmqtool.export.plan import names_in
    from rmqtool.export.run import EXPORT_NEED, run_local
    from rmqtool.show.export import show_check
    from rmqtool.store.store import open_stores

    manifest = manifest_to_check(path)
    limit = given.limit_rate
    opened = open_stores(given.stores, given.conf_of_stores, names_in(manifest))
    with shared.within_memory(style, given.memory, given.jobs or usable_cores(), EXPORT_NEED) as jobs:
        rate = None if limit is None else limit.bytes_per_second // jobs
        plan = plan_check(path, manifest, opened, rate, Given(given.redaction, given.decoder))
        with byte_progress("comparing", plan.size, style=style) as progress:
            patience = patience_for(given.decoder)
            results: list[CheckResult] = run_local(check_split, plan.tasks, jobs, progress.update, patience=patience)
    findings = [*check_files(path, manifest, results), *(finding for result in results for finding in result.findings)]
    findings += check_sums(manifest, plan, results)
    status = Exit.FINDINGS if findings else Exit.OK
    rows = sum(result.rows for result in results)
    comparison = {"output": str(path), "rows_compared": rows, "rows": manifest["rows"], "files": len(manifest["files"]),
             "bytes_read": plan.size, "differences": len(findings), "unproven": plan.unproven}  # fmt: skip
    if style.json:
        write_document(style, "export", {"check": comparison}, findings=findings, status=status)
    else:
        show_check(comparison, findings, style)
    return status
