"""The plan of a run: splits of the whole log, or of what is new since the last run into the same output."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UsageError, notice
from rmqtool.base.remote_files import files_in
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import ExportOptions, Mode, Target, null_before_of, watermarks
from rmqtool.export.output import OURS, TEMPORARY, check_mode, check_table
from rmqtool.export.results import ExportTotals, queue_sums
from rmqtool.export.sink import output_errors
from rmqtool.export.write import SplitTask
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import DECODED_COLUMNS, message_dicts
from rmqtool.scan.single_record import record_at
from rmqtool.store.message_reader import STORE_COLUMN, LastRecord
from rmqtool.store.other_logs import other_sources
from rmqtool.store.splits import Source, find_sources, split_source
from rmqtool.store.store import NamedStore

_BEFORE = {"format": "parquet", "body_format": None, "int64": None, "redact": None, "decoder": None, "table": None}
"""Options of outputs from before there was a choice."""

_MADE = {"body": ("body",), "decoder": DECODED_COLUMNS}
"""Options that matter only to these columns: an output that has none of them yet takes any value."""

_HINT = "give the same options as before, another --output, or --mode overwrite"


def continued(base: dict[str, Any], options: ExportOptions) -> ExportOptions:
    """The options of a run that adds to the output of manifest `base`, with all columns that the output will have.

    Raises UsageError for options that do not fit: an output holds one selection in one form.
    """
    free = {"compression"}
    if options.table and options.table == base.get("table"):
        options = _with_columns_of(base, options)
        names = {column["name"] for column in base["columns"]}
        free |= {"columns", *(name for name, made in _MADE.items() if names.isdisjoint(made))}
    for name, value in {"table": None, **options.as_json()}.items():
        before = base[name] if name in base else _BEFORE[name]
        if name not in free and before != value:
            message = f"this output was exported with other {name.replace('_', ' ')}: {_shown(before)}"
            raise UsageError(message, hint=_HINT)
    return options


def _with_columns_of(base: dict[str, Any], options: ExportOptions) -> ExportOptions:
    """The options with the columns of a table in their order, and after them those that it lacks."""
    columns: list[dict[str, Any]] = base["columns"]
    names = tuple(column["name"] for column in columns)
    given = options.query.schema
    left_out = [name for name in names if name not in given.names]
    if left_out:
        message = f"this table has columns that are left out: {', '.join(left_out)}"
        hint = "a table keeps its columns: name all of them, or give another --output, or --mode overwrite"
        raise UsageError(message, hint=hint)
    for column in columns:
        name, kind = column["name"], str(given.field(column["name"]).type)
        if kind != column["type"]:
            message = f"the column {name} of this table is {column['type']}, not {kind}"
            raise UsageError(message, hint="types of a table never change: give another --output, or --mode overwrite")
    added = tuple(name for name in options.query.columns if name not in names)
    if STORE_COLUMN in added:
        message = f"the column {STORE_COLUMN} cannot be added: the rows of this table would not name their stores"
        raise UsageError(message, hint="export each store separately, to another --output, or --mode overwrite")
    null_before = {**null_before_of(base), **dict.fromkeys(added, watermarks(base))}
    return replace(options, query=replace(options.query, columns=(*names, *added)), null_before=null_before)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items() if item) or "none"
    if isinstance(value, list):
        return ", ".join(item["name"] if isinstance(item, dict) else str(item) for item in value) or "none"
    return str(value)


def replicas(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Pairs of names of sources that have the same record, of the same broker, where both logs are.

    It is looked for at the beginning of the log that begins later.
    """
    by_broker: dict[str, list[Source]] = {}
    for source in sources:
        first = _record(source, source.min_offset)
        if first is not None:
            (message,) = message_dicts(first, "", fields=("store_host",))
            by_broker.setdefault(message["store_host"], []).append(source)
    for same in by_broker.values():
        for a, b in combinations(same, 2):
            at = max(a.min_offset, b.min_offset)
            records = _record(a, at), _record(b, at)
            if None not in records and _content(records[0]) == _content(records[1]):
                yield a.name, b.name


def _record(source: Source, offset: int) -> RecordRun | None:
    with suppress(RmqtoolError):  # which the export meets itself
        return record_at(source.files, offset)
    return None


def _content(record: RecordRun | None) -> bytes:
    return b"" if record is None else bytes(record.block.view)


@dataclass
class ExportPlan:
    """The tasks of a run, and the part of each store's log that it reads; `base` is the manifest that it adds to.

    `options` have all columns that the output will have; `lost` are bytes that were deleted before they were ever
    exported, by the store's name; `others` are logs beside the commit logs.
    """

    tasks: list[SplitTask]
    sources: list[Source]
    base: dict[str, Any] | None
    options: ExportOptions
    lost: dict[str, ExportTotals] = field(default_factory=dict)
    others: list[Source] = field(default_factory=list)

    @property
    def added_columns(self) -> list[str]:
        """Columns that a table gets by this run."""
        there = None if self.base is None else {column["name"] for column in self.base["columns"]}
        return [] if there is None else [name for name in self.options.query.columns if name not in there]

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(task.split.size for task in self.tasks)


def names_in(manifest: dict[str, Any] | None) -> dict[str, str]:
    """The names that an output has given to stores, by their paths."""
    return {source["path"]: source["store"] for source in (manifest or {}).get("source", [])}


def has_store_column(manifest: dict[str, Any] | None) -> bool:
    """Whether an output's rows name their store."""
    columns = (manifest or {}).get("columns", [])
    return any(column["name"] == STORE_COLUMN for column in columns)


def plan_export(
    stores: Sequence[NamedStore], manifest: dict[str, Any] | None, mode: Mode, options: ExportOptions, target: Target
) -> ExportPlan:
    """Plan a run; raises UsageError when it does not fit the output, UnreadableError."""
    base = manifest if mode in ("append", "incremental") else None
    known = {} if base is None else {source["store"]: source for source in base["source"]}
    given = {store.name for store in stores}
    if base is not None:
        options = continued(base, options)
    if mode == "append":
        _check_new(stores, known)
    _check_given_once(stores)
    filters = options.query.filters
    starts = [known[store.name]["next_physical_offset"] if store.name in known else filters.start for store in stores]
    sources = find_sources(stores, starts, filters.stop)
    for one, other in replicas(sources):
        what = f"{one} and {other} are copies of one log, and messages of both are exported twice"
        notice(f"{what}: leave one of them out, or filter by the column {STORE_COLUMN}")
    plan = ExportPlan([], sources, base, options)
    for store_number, source in enumerate(sources):
        if source.name in known:
            _check_goes_on(source, known[source.name])
            plan.lost[source.name] = _lost(source, known[source.name]["next_physical_offset"])
        elif mode == "incremental":
            _check_not_moved(source, [one for name, one in known.items() if name not in given])
        plan.others += (others := other_sources(stores[store_number], filters, _exported(base, source.name)))
        for part in (source, *others):
            for split in split_source(part, options.split_size):
                plan.tasks.append(SplitTask(len(plan.tasks), store_number, split, options, target))
    return plan


def _exported(base: dict[str, Any] | None, store: str) -> dict[tuple[str, int], int]:
    """The queue offset after the last message that an output has of each queue of a store."""
    sums = {
        (topic, queue_id): each for (name, topic, queue_id), each in queue_sums(base or {}).items() if name == store
    }
    return {queue: each.queue_offset_last + 1 for queue, each in sums.items() if each.queue_offset_last is not None}


def _check_new(stores: Sequence[NamedStore], known: dict[str, Any]) -> None:
    paths = {source["path"] for source in known.values()}
    for named in stores:
        if named.name in known or str(named.store.root.resolve()) in paths:
            message = f"the output already has messages of {named.name}: they would be there twice"
            raise UsageError(message, file=named.store.root, hint="--mode incremental adds new messages")


def _check_given_once(stores: Sequence[NamedStore]) -> None:
    """Raise UsageError for one directory under two names, whose messages would be exported twice."""
    names: dict[Path, str] = {}
    for named in stores:
        name = names.setdefault(named.store.root.resolve(), named.name)
        if name != named.name:
            message = f"this store is given twice, as {name} and as {named.name}: its messages would be there twice"
            raise UsageError(message, file=named.store.root, hint="give it once")


def _check_not_moved(source: Source, others: Sequence[dict[str, Any]]) -> None:
    """Raise UsageError when a store that seems new is one that the output holds, but moved or copied."""
    for other in others:
        last = other["last_record"]
        if last and _record_at(source, last["physical_offset"]) == LastRecord(**last):
            name = other["store"]
            message = f"this log is that of {name}, which the output holds: its messages would be there twice"
            hint = f"{name}=STORE continues it; --mode append adds it as another store, such as a slave's"
            raise UsageError(message, file=source.root, hint=hint)


def _check_goes_on(source: Source, known: dict[str, Any]) -> None:
    """Raise RmqtoolError unless the log still holds the last exported message, or begins after it."""
    end, last = known["next_physical_offset"], known["last_record"]
    if not last:
        return
    hint = "the log was cut or replaced since then: --mode overwrite, or another --output"
    if source.end < end and source.stop >= source.end:
        message = f"the log ends before {end}, up to where it was exported"
        raise RmqtoolError(message, file=source.root, offset=source.end, hint=hint)
    if last["physical_offset"] < source.min_offset:
        return
    expected = LastRecord(**last)
    if _record_at(source, expected.physical_offset) != expected:
        message = "another message is now at the position of the last exported one"
        raise RmqtoolError(message, file=source.root, offset=expected.physical_offset, hint=hint)


def _record_at(source: Source, offset: int) -> LastRecord | None:
    record = record_at(source.files, offset)
    return None if record is None else LastRecord.of(record)


def _lost(source: Source, expected: int) -> ExportTotals:
    """The bytes that the broker deleted after the last run and before this one."""
    lost = ExportTotals()
    if source.files and source.min_offset > expected:
        lost.add_damage(Damage(expected, source.min_offset - expected, "missing"))
    return lost


@dataclass(frozen=True)
class Preview:
    """The plan of a run into an output that holds `rows` already, None where it holds no export.

    `free` are the bytes that the output's disk has left, None on another machine.
    """

    plan: ExportPlan
    rows: int | None
    free: int | None


def preview_export(
    stores: Sequence[NamedStore], path: Path, mode: Mode, options: ExportOptions, manifest: dict[str, Any] | None
) -> Preview:
    """Plan a run into an output with this manifest; raises all that the run itself would raise before it writes."""
    check_table(path, options.table)
    with output_errors(path):
        check_mode(path, manifest, mode, is_empty=_is_empty(path))
    plan = plan_export(stores, manifest, mode, options, Target(path, "preview"))
    free = None if isinstance(path, RemotePath) else shutil.disk_usage(_nearest(path)).free
    return Preview(plan, None if manifest is None else manifest["rows"], free)


def _is_empty(path: Path) -> bool:
    """Whether nothing is there but what an interrupted run has left."""
    if isinstance(path, RemotePath):
        return all(OURS.fullmatch(name) for name, _ in files_in(path))
    there = _nearest(path)
    names = set(os.listdir(there))  # raises for what is no directory
    return there != path.absolute() or names <= {TEMPORARY}


def _nearest(path: Path) -> Path:
    """The output, or the directory above it that is there."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
