"""One run from plan to commit; the engine in between may be any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from rmqtool.base.errors import UsageError
from rmqtool.base.limits import MemoryNeed
from rmqtool.base.parallel import MAX_PARTS, WorkerPool
from rmqtool.base.paths import is_remote
from rmqtool.base.remote_path import RemotePath
from rmqtool.base.worker import Job
from rmqtool.export.manifest import build_manifest, remaining_damaged
from rmqtool.export.options import ExportOptions, Mode
from rmqtool.export.output import Commit, Output, RemoteOutput, check_table
from rmqtool.export.plan import ExportPlan, plan_export
from rmqtool.export.results import ExportTotals, SplitResult
from rmqtool.export.sink import DataFile, open_data_file
from rmqtool.store.splits import HasSplit
from rmqtool.store.store import NamedStore

AnyOutput = Output | RemoteOutput
"""An output, here or on another machine."""


@dataclass(frozen=True)
class Exported:
    """A run that is committed: the manifest of the whole output, and the totals of this run."""

    manifest: dict[str, Any]
    totals: ExportTotals
    files: int


def open_output(path: Path, mode: Mode) -> AnyOutput:
    """Open an output for a run; raises as `Output` does."""
    return RemoteOutput(path, mode) if isinstance(path, RemotePath) else Output(path, mode)


def check_output(output: Path, stores: Sequence[Path]) -> None:
    """Refuse an output inside a store: reading a store adds nothing to it."""
    resolved = output.resolve()
    for store in [each.resolve() for each in stores]:
        is_inside = f"{resolved}/".startswith(f"{store}/") if is_remote(output) else resolved.is_relative_to(store)
        if is_inside:
            raise UsageError("the output must not be inside of a store", file=output, hint="take a directory elsewhere")


def run_export(
    stores: Sequence[NamedStore],
    output: AnyOutput,
    mode: Mode,
    options: ExportOptions,
    engine: Callable[[ExportPlan], list[SplitResult]],
) -> Exported:
    """Plan, write with `engine`, commit. An error before the commit leaves the output as it was."""
    check_table(output.path, options.table)
    plan = plan_export(stores, output.manifest, mode, options, output.target)
    results = sorted(engine(plan), key=lambda result: result.split_number)
    files = [file for result in results for file in result.files]
    if not files and not (plan.base or {}).get("files"):
        files = _empty_file(plan.options, output)
    manifest = build_manifest(plan, results, output.target.run, files)
    damaged = [file for result in results for file in result.damaged]
    output.commit(Commit(manifest, [*files, *damaged], _replaced(plan, output)))
    totals = ExportTotals()
    for totals_of_split in [*plan.lost.values(), *(result.totals for result in results)]:
        totals.merge(totals_of_split)
    return Exported(manifest, totals, len(files))


def _replaced(plan: ExportPlan, output: AnyOutput) -> list[str]:
    """Paths of files that the run replaces."""
    if plan.base is None and output.manifest is not None:
        return [file["path"] for name in ("files", "damaged") for file in output.manifest[name]]
    return [file["path"] for file in remaining_damaged(plan)[1]]


def _empty_file(options: ExportOptions, output: AnyOutput) -> list[DataFile]:
    """A file without rows, so that readers find the columns; not among partitions, where it has no place."""
    if options.partition_by:
        return []
    name, final = f"empty{options.suffix}", f"part-empty-{output.target.run}{options.suffix}"
    file = open_data_file(output.target.file(name, final), options.query.dictionary_schema, options)
    try:
        size, crc = file.close()
    except BaseException:
        file.abandon()
        raise
    return [DataFile(name, final, 0, size, crc, None)]


EXPORT_NEED = MemoryNeed(least=220, usual=290, further_least=105, further_usual=170)
_WORTH_A_PROCESS = 32 << 20  # less is written before a process has started, bytes

T = TypeVar("T", bound=HasSplit)
R = TypeVar("R")


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(
    work: Callable[[T], R], tasks: Sequence[T], jobs: int, done: Callable[[int], None], *, patience: float = 0
) -> list[R]:
    """Do `work`, a module's function, for each task with up to `jobs` processes; results in any order.

    `done` is called with the bytes of log that are finished. Raises errors of `work`; then, and when it is interrupted,
    the processes are ended in the midst of their splits, which may take minutes, and are gone when this returns; with
    `patience`, seconds, they may end processes of their own first.
    """
    jobs = min(jobs, len(tasks), 1 + sum(task.split.size for task in tasks) // _WORTH_A_PROCESS)
    results, size = [], 0
    done(0)
    # Not copied: a copy would have this process's threads' locks and its memory.
    with WorkerPool[R](jobs if jobs > 1 else 0, may_copy=False, patience=patience) as pool:
        here = None if pool.workers else _Splits(work, tasks)
        pool.begin(partial(_Splits, work, tasks), range(min(len(tasks), MAX_PARTS)), here)
        for step in pool.steps():
            if step.result is not None:
                results.append(step.result)
                size += step.size
                done(size)
    return results


class _Splits(Job[R], Generic[T, R]):
    """Works on splits: part n is every MAX_PARTSth task, beginning with the nth."""

    def __init__(self, work: Callable[[T], R], tasks: Sequence[T]) -> None:
        self._work = work
        self._tasks = tasks

    def do(self, part: int) -> Iterator[tuple[int, R]]:
        for task in self._tasks[part::MAX_PARTS]:
            result = self._work(task)
            yield task.split.size, result
