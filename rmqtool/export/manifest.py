"""The manifest of an output: its files and sums, the stores that they come from, and skipped damage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from rmqtool import __version__
from rmqtool.export.output import MANIFEST_SCHEMA
from rmqtool.export.plan import ExportPlan
from rmqtool.export.results import MAX_SKIPPED, ExportTotals, QueueSums, SplitResult, Sums, merge_sums
from rmqtool.export.sink import DataFile
from rmqtool.export.write import TAIL_MARK
from rmqtool.scan.block import Damage
from rmqtool.store.message_reader import MAX_OFFSETS, BodyProblems
from rmqtool.store.splits import Source
from rmqtool.store.store import relative_to

Json = dict[str, Any]

LONG_LISTS = ("files", "queues", "skipped", "damaged", "runs")


def build_manifest(plan: ExportPlan, results: Sequence[SplitResult], run: str, files: Sequence[DataFile]) -> Json:
    """The manifest after a run: its own files and sums, and those of the output that it adds to, if any."""
    totals, sums = _by_store(plan, results)
    base = plan.base or {}
    sources = {source["store"]: source for source in base.get("source", [])}
    for source in plan.sources:
        sources[source.name] = _source(source, totals[source.name], sources.get(source.name))
    old_sums = {_queue_key(queue): _queue_sums(queue) for queue in base.get("queues", [])}
    merge_sums(old_sums, [sums])
    queues = [_queue(*item) for item in sorted(old_sums.items())]
    kept = [extent for extent in base.get("skipped", []) if not _is_read_again(extent, plan)]
    skipped = [*kept, *(_extent(name, extent) for name, total in totals.items() for extent in total.skipped)]
    data = [*base.get("files", []), *(_file(file) for file in files)]
    damaged = [*remaining_damaged(plan)[0], *(_damaged(file) for result in results for file in result.damaged)]
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
        "excluded": _sum_counts([base.get("excluded", {}), *(total.excluded for total in totals.values())]),
        "skipped_extents": skipped_count + base.get("skipped_extents", 0) - len(base.get("skipped", [])),
        "skipped": skipped[:MAX_SKIPPED],
        "wrong_bodies": {
            name: _problems(base.get("wrong_bodies", {}).get(name), [getattr(total, name) for total in totals.values()])
            for name in ("wrong_crc", "not_decompressed", "not_decoded")
        },
        "queues": queues,
        "files": data,
        "damaged": damaged,
        "runs": [*base.get("runs", []), _run(run, plan, totals.values(), files)],
    }


def summary(manifest: Json) -> Json:
    """The manifest with the lengths of its long lists instead of the lists."""
    short = {name: value for name, value in manifest.items() if name not in LONG_LISTS}
    counts = {f"{name}_count": len(manifest[name]) for name in LONG_LISTS if name != "skipped"}
    sources = [
        {**{name: value for name, value in source.items() if name != "files"}, "files_count": len(source["files"])}
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


def _source(source: Source, totals: ExportTotals, before: Json | None) -> Json:
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
    }


def _is_read_again(extent: Json, plan: ExportPlan) -> bool:
    """Whether a skipped extent lies past the last record that was exported before, where this run begins."""
    for source in (plan.base or {}).get("source", []):
        if source["store"] == extent["store"] and source["store"] in {read.name for read in plan.sources}:
            return bool(extent["physical_offset"] >= source["next_physical_offset"])
    return False


def _queue_key(queue: Json) -> tuple[str, str, int]:
    return queue["store"], queue["topic"], queue["queue_id"]


def _queue_sums(queue: Json) -> QueueSums:
    return QueueSums(**{name: queue[name] for name in QueueSums.__dataclass_fields__})


def _queue(key: tuple[str, str, int], sums: QueueSums) -> Json:
    return {"store": key[0], "topic": key[1], "queue_id": key[2], **asdict(sums)}


def _extent(store: str, extent: Damage) -> Json:
    extent_of_store = {"store": store, "physical_offset": extent.physical_offset, "size": extent.size}
    return {**extent_of_store, "reason": extent.reason, "tail": extent.tail}


def _file(file: DataFile) -> Json:
    return {name: value for name, value in asdict(file).items() if name != "temporary"}


def _damaged(file: DataFile) -> Json:
    return {name: getattr(file, name) for name in ("store", "path", "rows", "bytes", "crc32")}


def _sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for counted in counts:
        for name, count in counted.items():
            sums[name] += count
    return dict(sums)


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
