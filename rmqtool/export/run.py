"""One run from plan to commit, and its manifest: files and sums, stores and skipped damage. The engine may be any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from rmqtool import __version__
from rmqtool.base.errors import UsageError
from rmqtool.base.limits import MemoryNeed
from rmqtool.base.parallel import MAX_PARTS, Job, WorkerPool
from rmqtool.base.paths import is_remote
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import ExportOptions, Mode
from rmqtool.export.output import MANIFEST_SCHEMA, Commit, Output, RemoteOutput, check_table
from rmqtool.export.plan import ExportPlan, plan_export
from rmqtool.export.results import MAX_SKIPPED, QUEUE_KEY, ExportTotals, SplitResult, Sums, merge_sums, queue_sums
from rmqtool.export.sink import DataFile, open_data_file
from rmqtool.export.write import TAIL_MARK
from rmqtool.store.message_reader import MAX_OFFSETS, BodyProblems
from rmqtool.store.splits import HasSplit, OtherLog, Source
from rmqtool.store.store import NamedStore, relative_to

Json = dict[str, Any]

LONG_LISTS = ("files", "queues", "skipped", "damaged", "runs")


def build_manifest(plan: ExportPlan, results: Sequence[SplitResult], run: str, files: Sequence[DataFile]) -> Json:
    """The manifest after a run: its own files and sums, and those of the output that it adds to, if any."""
    totals, sums = _by_store(plan, results)
    base = plan.base or {}
    sources = {source["store"]: source for source in base.get("source", [])}
    for source in plan.sources:
        others = [each.other for each in plan.others if each.name == source.name and each.other]
        sources[source.name] = _source(source, others, totals[source.name], sources.get(source.name))
    all_sums = queue_sums(base)
    merge_sums(all_sums, [sums])
    queues = [dict(zip(QUEUE_KEY, key, strict=True)) | asdict(each) for key, each in sorted(all_sums.items())]
    kept = [extent for extent in base.get("skipped", []) if not _is_read_again(extent, plan)]
    skipped = [
        *kept,
        *({"store": name, **asdict(extent)} for name, total in totals.items() for extent in total.skipped),
    ]
    written = [_without_nothing({name: value for name, value in asdict(file).items() if name != "temporary"}, "log")
               for file in files]  # fmt: skip
    data = [*base.get("files", []), *written]
    names = ("store", "path", "rows", "bytes", "crc32")
    of_run = [{name: getattr(file, name) for name in names} for result in results for file in result.damaged]
    damaged = [*remaining_damaged(plan)[0], *of_run]
    excluded = Counter(base.get("excluded", {}))
    for total in totals.values():
        excluded.update(total.excluded)
    skipped_count = len(skipped) + sum(total.skipped_count - len(total.skipped) for total in totals.values())
    return {
        "schema": MANIFEST_SCHEMA,
        "rmqtool": __version__,
        "rows": base.get("rows", 0) + sum(total.rows for total in totals.values()),
        "bytes": sum(file["bytes"] for file in data),
        **plan.options.as_json(),
        "source": list(sources.values()),
        "scanned": {
            "messages": sum(source["messages"] for source in sources.values()),
            "bytes": sum(source["bytes"] for source in sources.values()),
        },
        "excluded": dict(excluded),
        "skipped_extents": skipped_count + base.get("skipped_extents", 0) - len(base.get("skipped", [])),
        "skipped": skipped[:MAX_SKIPPED],
        "wrong_bodies": {
            name: _problems(base.get("wrong_bodies", {}).get(name), [getattr(total, name) for total in totals.values()])
            for name in ("wrong_crc", "not_decompressed", "not_decoded")
        },
        **_unfit(base.get("unfit", {}), totals.values()),
        "queues": queues,
        "files": data,
        "damaged": damaged,
        "runs": [*base.get("runs", []), _run(run, plan, totals.values(), files)],
    }


def _unfit(before: Json, totals: Iterable[ExportTotals]) -> Json:
    """Values that do not fit the types of their columns, where there are some."""
    every = [*totals]
    names = dict.fromkeys((*before, *(name for total in every for name in total.unfit)))
    found = {name: _problems(before.get(name), [total.unfit[name] for total in every if name in total.unfit])
             for name in names}  # fmt: skip
    return {"unfit": found} if found else {}


def summary(manifest: Json) -> Json:
    """The manifest with the lengths of its long lists instead of the lists."""
    short = {name: value for name, value in manifest.items() if name not in LONG_LISTS}
    counts = {f"{name}_count": len(manifest[name]) for name in LONG_LISTS if name != "skipped"}
    sources = [
        {
            **{name: value for name, value in source.items() if name not in ("files", "other_logs")},
            "files_count": len(source["files"]),
        }
        for source in manifest["source"]
    ]
    return {**short, "source": sources, **counts, "last_run": manifest["runs"][-1]}


def remaining_damaged(plan: ExportPlan) -> tuple[list[Json], list[Json]]:
    """Files of the side table that stay, and those that this run replaces: torn ends that it has read again."""
    read = {source.name for source in plan.sources}
    files: list[Json] = (plan.base or {}).get("damaged", [])
    gone = [file for file in files if file["store"] in read and f"-{TAIL_MARK}-" in file["path"]]
    return [file for file in files if file not in gone], gone


def _by_store(plan: ExportPlan, results: Sequence[SplitResult]) -> tuple[dict[str, ExportTotals], Sums]:
    totals = {source.name: ExportTotals() for source in plan.sources}
    for name, lost in plan.lost.items():
        totals[name].merge(lost)
    sums: Sums = {}
    for result in sorted(results, key=lambda result: result.split_number):
        totals[result.store].merge(result.totals)
        merge_sums(sums, [result.sums])
    return totals, sums


def _without_nothing(row: Json, name: str) -> Json:
    """The same without a field that has no value."""
    return {each: value for each, value in row.items() if each != name or value is not None}


def _source(source: Source, others: Sequence[OtherLog], totals: ExportTotals, before: Json | None) -> Json:
    """The exported part of a store's log; `next_physical_offset` is where the next run goes on."""
    files = {
        relative_to(file.path, source.root): {
            "file": relative_to(file.path, source.root),
            "size": file.size,
            "physical_offset_first": file.start_offset,
            "physical_offset_last": file.end_offset - 1,
        }
        for file in source.files
        if file.end_offset > source.start
    }
    known = {file["file"]: file for file in (before or {}).get("files", [])}
    next_offset = source.start if totals.end is None else totals.end
    last = asdict(totals.last_record) if totals.last_record else (before or {}).get("last_record")
    ranges = {(each.name, each.first, each.stop): each for each in others}
    of_others = [
        {"place": each.place, "topic": each.topic, "queue_id": each.queue_id,
         "queue_offset_first": each.first, "queue_offset_stop": each.stop}
        for each in ranges.values()
    ]  # fmt: skip
    of_others = [*(before or {}).get("other_logs", []), *of_others]
    return {
        "store": source.name,
        "path": str(source.root.resolve()),
        "live": source.live,
        "physical_offset_first": before["physical_offset_first"] if before else source.start,
        "next_physical_offset": max(next_offset, (before or {}).get("next_physical_offset", 0)),
        "last_record": last,
        "messages": totals.messages + (before or {}).get("messages", 0),
        "bytes": totals.bytes + (before or {}).get("bytes", 0),
        "files": [*{**known, **files}.values()],
        **({"other_logs": of_others} if of_others else {}),
    }


def _is_read_again(extent: Json, plan: ExportPlan) -> bool:
    """Whether a skipped extent lies past the last record that was exported before, where this run begins."""
    for source in (plan.base or {}).get("source", []):
        if source["store"] == extent["store"] and source["store"] in {read.name for read in plan.sources}:
            return bool(extent["physical_offset"] >= source["next_physical_offset"])
    return False


def _problems(before: Json | None, others: Iterable[BodyProblems]) -> Json:
    problems = BodyProblems(**before) if before else BodyProblems()
    for other in others:
        problems.merge(other)
    return {"count": problems.count, "physical_offsets": problems.physical_offsets[:MAX_OFFSETS]}


def _run(run: str, plan: ExportPlan, totals: Iterable[ExportTotals], files: Sequence[DataFile]) -> Json:
    rows = sum(total.rows for total in totals)
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    size = sum(file.bytes for file in files)
    added = {"added_columns": plan.added_columns} if plan.added_columns else {}
    return {"run": run, "time": now, "rows": rows, "files": len(files), "bytes": size, **added}


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
            raise UsageError("the output must not be inside a store", file=output, hint="take a directory elsewhere")


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
