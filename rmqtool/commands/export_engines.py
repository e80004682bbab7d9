"""The engines of `rmqtool export`: Spark, or processes of this machine; which one, and with a progress bar."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import UsageError
from rmqtool.commands.memory_option import within_memory
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.base.decoding import Decoder
    from rmqtool.base.files import RateLimit
    from rmqtool.export.plan import ExportPlan
    from rmqtool.export.results import SplitResult


_PATIENCE = 5.0  # seconds: a machine under load lets processes wait
_SMALL = 1 << 30
"""Bytes of log that processes of this machine export before Spark would have read the first."""


@contextmanager
def export_engine(
    style: Style, options: dict[str, Any], size: int
) -> Iterator[Callable[[ExportPlan], list[SplitResult]]]:
    """The function that writes the splits of a plan, of logs of `size` bytes; Spark starts in the background."""
    with local_processes(style, options, size) as jobs:
        if jobs is not None:
            yield lambda plan: _run_local(style, plan, options, jobs)
            return
    from rmqtool.spark.session import starting_spark

    with starting_spark(options["master"], options["conf"]) as start:
        yield lambda plan: _run_on_spark(style, plan, options, start)


@contextmanager
def local_processes(style: Style, options: dict[str, Any], size: int) -> Iterator[int | None]:
    """How many processes of this machine export logs of `size` bytes; None where Spark does."""
    if not _is_local(style, options, size):
        if options["memory"] is not None:
            raise UsageError("--memory is for --engine local: Spark has spark.executor.memory and others")
        yield None
        return
    from rmqtool.export.local import EXPORT_NEED, usable_cores

    with within_memory(style, options["memory"], options["jobs"] or usable_cores(), EXPORT_NEED) as jobs:
        yield jobs


def _is_local(style: Style, options: dict[str, Any], size: int) -> bool:
    """Whether it is done without Spark; where nobody said it, Spark is for what it is worth starting for."""
    if options["engine"] != "auto":
        return bool(options["engine"] == "local")
    from rmqtool.spark.gateway import is_submitted

    if options["master"] or options["conf"] or is_submitted():
        return False
    if not (find_spec("pyspark") and ("JAVA_HOME" in os.environ or shutil.which("java"))):
        return True
    is_local = bool(options["jobs"] or options["memory"]) or size < _SMALL
    if not style.quiet:
        other = "spark" if is_local else "local"
        note(f"{byte_size(size)} of log: {'without ' if is_local else 'with '}Spark (--engine {other} to change that)")
    return is_local


def _run_local(style: Style, plan: ExportPlan, options: dict[str, Any], jobs: int) -> list[SplitResult]:
    from rmqtool.export.local import run_local
    from rmqtool.export.write import write_split
    from rmqtool.show.progress import byte_progress

    with byte_progress("exporting", plan.size, style=style) as progress:
        tasks = _limited(plan.tasks, options["limit_rate"], jobs)
        return run_local(write_split, tasks, jobs, progress.update, patience=patience_for(options["decoder"]))


def patience_for(decoder: Decoder | None) -> float:
    """Seconds that processes get to end their decoders when a run is interrupted."""
    return 0 if decoder is None else _PATIENCE


def _run_on_spark(
    style: Style, plan: ExportPlan, options: dict[str, Any], start: Callable[[], AbstractContextManager[Any]]
) -> list[SplitResult]:
    from rmqtool.export.results import join_results
    from rmqtool.export.write import write_split
    from rmqtool.show.progress import byte_progress
    from rmqtool.spark.engine import run_on_spark

    with byte_progress("exporting", plan.size, style=style) as progress:
        progress.wait_for("starting Spark")
        # Spark ends before the output is cleaned up: no worker may write to removed files.
        with start() as context:
            tasks = _limited(plan.tasks, options["limit_rate"], context.defaultParallelism)
            return run_on_spark(context, write_split, join_results, tasks, progress.update)


def _limited(tasks: Sequence[Any], limit: RateLimit | None, workers: int) -> Sequence[Any]:
    """The tasks, each worker reading at its part of the limit."""
    if limit is None:
        return tasks
    rate = max(1, limit.bytes_per_second // max(1, min(workers, len(tasks))))
    return [
        replace(task, options=replace(task.options, query=replace(task.options.query, bytes_per_second=rate)))
        for task in tasks
    ]
