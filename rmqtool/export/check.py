"""Check an export against the logs: all of its rows, sums and files are compared again."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.base.decoders import Decoder
from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.filesystems import patiently
from rmqtool.base.parallel import keep_arrow_to_one_thread
from rmqtool.base.remote_path import RemotePath, located
from rmqtool.export.options import TEXT_SUFFIXES, ExportOptions, options_of
from rmqtool.export.output import MANIFEST, interrupted_manifest, read_manifest
from rmqtool.export.results import SUMMED_COLUMNS, QueueSums, Summing, Sums, merge_sums, queue_sums
from rmqtool.export.sink import TextRows, file_crc32
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.scan.block import Damage
from rmqtool.scan.filters import Filters
from rmqtool.scan.redaction import Redaction
from rmqtool.store.message_reader import STORE_COLUMN, SplitReader
from rmqtool.store.other_logs import other_sources
from rmqtool.store.splits import Source, Split, find_source, split_source
from rmqtool.store.store import NamedStore

_READ_AT_ONCE = 4 << 20


def open_stored(path: Path) -> pa.NativeFile:
    """A file, open to be read at any position; raises OSError."""
    if not isinstance(path, RemotePath):
        return pa.OSFile(str(path))
    system, name = located(path)
    return patiently(lambda: system.open_input_file(name))


def size_and_crc32(path: Path) -> tuple[int, int]:
    """Size of a file, bytes, and its CRC-32; raises OSError."""
    if not isinstance(path, RemotePath):
        return path.stat().st_size, file_crc32(path)
    size = crc = 0
    with open_stored(path) as file:
        while piece := file.read(_READ_AT_ONCE):
            size, crc = size + len(piece), zlib_ng.crc32(piece, crc)
    return size, crc


def stored_names(output: Path) -> list[str]:
    """The paths of all files below an output; raises OSError."""
    if isinstance(output, RemotePath):
        from rmqtool.base.remote_files import files_in

        return sorted(name for name, _ in files_in(output))
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


OFFSET, LINE = "physical_offset", "line"

_LINES = pa.schema([(OFFSET, pa.int64()), (LINE, pa.binary())])
"""Rows of a text file are compared as the text that they are."""


def rows_schema(options: ExportOptions) -> pa.Schema:
    """The columns in which rows of the log and of files are compared."""
    return options.schema if options.format == "parquet" else _LINES


def expected_rows(reader: SplitReader, batch: pa.RecordBatch, options: ExportOptions, store: str) -> pa.RecordBatch:
    """The messages of a batch of a store as rows of `rows_schema`."""
    messages = reader.to_messages(batch)
    if options.format == "parquet":
        return _with_nulls(messages, batch.column(OFFSET), options, store)
    lines = TextRows(options).rows(messages).cast(pa.binary())
    return pa.RecordBatch.from_arrays([batch.column(OFFSET), lines], schema=_LINES)


def _with_nulls(messages: pa.RecordBatch, offsets: pa.Int64Array, options: ExportOptions, store: str) -> pa.RecordBatch:
    """The messages with null where a column came later."""
    if not options.null_before:
        return messages
    columns = {name: messages.column(name) for name in messages.schema.names}
    for name, before in options.null_before.items():
        is_there = pc.greater_equal(offsets, before.get(store, 0))
        columns[name] = pc.if_else(is_there, columns[name], pa.scalar(None, columns[name].type))
    return pa.RecordBatch.from_arrays([*columns.values()], schema=options.schema)


def stored_rows(path: Path, split: Split, options: ExportOptions) -> pa.Table:
    """The rows of a split in a file, as `rows_schema`; raises OSError, ValueError or ArrowException when it cannot."""
    if options.format == "parquet":
        schema = options.schema
        wanted = (ds.field(OFFSET) >= split.start) & (ds.field(OFFSET) < split.stop)
        if STORE_COLUMN in schema.names:
            wanted &= ds.field(STORE_COLUMN) == split.store
        system, name = located(path) if isinstance(path, RemotePath) else (None, str(path))
        source = ds.dataset([name], schema=schema, format="parquet", partitioning=None, filesystem=system)
        return source.to_table(columns=list(schema.names), filter=wanted, use_threads=False)
    is_within = (pc.field(OFFSET) >= split.start) & (pc.field(OFFSET) < split.stop)
    tables = [table.filter(is_within) for table in _text_rows(path, options)]
    return pa.concat_tables([_LINES.empty_table(), *tables])


def count_rows(path: Path, options: ExportOptions) -> int:
    """Rows in a file; raises as `stored_rows`."""
    if options.format == "parquet":
        with open_stored(path) as file:
            return int(pq.read_metadata(file).num_rows)
    return sum(len(ends) for _, ends in _records(path, options))


def _text_rows(path: Path, options: ExportOptions) -> Iterator[pa.Table]:
    for data, ends in _records(path, options):
        starts = pa.py_buffer(np.concatenate(([0], ends)).astype(np.int32))
        lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, starts, pa.py_buffer(data)])
        offsets = _csv_offsets(data, options) if options.format == "csv" else _json_offsets(lines)
        if len(offsets) != len(ends):
            raise ValueError(f"{len(ends)} lines hold {len(offsets)} rows")
        yield pa.Table.from_arrays([offsets, lines], schema=_LINES)


def _records(path: Path, options: ExportOptions) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
    """Whole rows of a text file after its header, a piece at a time, with the end of each."""
    quotes = options.format == "csv"
    rest = b""
    header = len(TextRows(options).header)
    with _opened(path) as file:
        if file.read(header) != TextRows(options).header:
            raise ValueError("the header line does not match the columns")
        while piece := file.read(_READ_AT_ONCE):
            data = rest + piece
            ends = _line_ends(data, quotes=quotes)
            whole = int(ends[-1]) if len(ends) else 0
            rest = data[whole:]
            if whole:
                yield data[:whole], ends
    if rest:
        raise ValueError("the last line has no end")


def _opened(path: Path) -> pa.NativeFile:
    """The text of a file; runs into one output may compress in several ways."""
    file = open_stored(path)
    codec = next(codec for codec, suffix in TEXT_SUFFIXES.items() if path.name.endswith(suffix))
    return file if codec == "none" else pa.CompressedInputStream(file, codec)


def _line_ends(data: bytes, *, quotes: bool) -> NDArray[np.intp]:
    """Positions after the line ends; with `quotes` those inside of quotes are part of a value."""
    view = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(view == ord("\n"))
    if quotes and b'"' in data:
        before = np.searchsorted(np.flatnonzero(view == ord('"')), ends)
        ends = ends[before % 2 == 0]
    return ends + 1


def _csv_offsets(data: bytes, options: ExportOptions) -> pa.ChunkedArray:
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=list(TextRows(options).names)
        ),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(include_columns=[OFFSET], column_types={OFFSET: pa.int64()}),
    )
    return table.column(OFFSET)


def _json_offsets(lines: pa.BinaryArray) -> pa.ChunkedArray:
    # Line by line: Arrow's reader of JSON refuses numbers that it cannot hold, in bodies too.
    try:
        offsets = [int(json.loads(line.as_py(), parse_int=str, parse_float=str)[OFFSET]) for line in lines]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"a line has no {OFFSET}") from error
    return pa.chunked_array([offsets], pa.int64())


CHECK_SPLIT = 32 << 20
"""Bytes of log whose rows are compared at once; both sides are held in memory."""

_REMEDY = "rmqtool export STORE... --output DIR --mode overwrite"
_EXAMPLES = 5
_READING_THREADS = 4
_DAMAGED = ExportOptions()  # the side table is Parquet in every format
_UNREADABLE = (OSError, ValueError, pa.ArrowException)  # what pyarrow raises for a damaged file


@dataclass(frozen=True)
class Given:
    """What an output does not hold and its rows were made with: `redaction` with the salt of hashes, the decoder."""

    redaction: Redaction | None = None
    decoder: Decoder | None = None


@dataclass(frozen=True)
class CheckTask:
    """A split whose rows must be those of `files`, paths below `output`."""

    split: Split
    options: ExportOptions
    output: Path
    files: tuple[str, ...]
    compares_rows: bool = True


@dataclass
class CheckResult:
    """The result of comparing one split; `unreadable` are reasons by the file's path below the output."""

    store: str
    rows: int = 0
    sums: Sums = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass
class CheckPlan:
    """The comparisons to make; `unproven` says in sentences which are impossible by now."""

    tasks: list[CheckTask]
    unproven: list[str]
    whole: list[str]  # names of stores of which the log still holds all that was exported

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(task.split.size for task in self.tasks)


def manifest_to_check(output: Path) -> dict[str, Any]:
    """The manifest of an output; raises UnreadableError where there is none, or a commit has begun and not ended."""
    if interrupted_manifest(output) is not None:
        hint = "run that export again: it first completes the interrupted one"
        raise UnreadableError("an export was interrupted while its files were put in place", file=output, hint=hint)
    manifest = read_manifest(output)
    if manifest is None:
        raise UnreadableError(f"no export is here: it has no {MANIFEST}", file=output)
    return manifest


def plan_check(
    output: Path,
    manifest: dict[str, Any],
    stores: Sequence[NamedStore],
    rate: int | None,
    given: Given | None = None,
) -> CheckPlan:
    """Plan the comparison with the logs of `stores`, each process reading up to `rate` bytes per second.

    Raises UsageError for a store that is not in the output, or for another salt or decoder than it was made with.
    """
    plan = CheckPlan([], [], [])
    options, given = options_of(manifest), given or Given()
    redaction, salted = _redaction_of(manifest, given.redaction)
    decodes = _is_decoder_given(manifest, given.decoder)
    query = replace(options.query, bytes_per_second=rate, redaction=redaction)
    known = {source["store"]: source for source in manifest["source"]}
    _check_known(stores, known)
    for name in known.keys() - {named.name for named in stores}:
        plan.unproven.append(f"store {name} was not given: its rows are not compared")
    if not salted:
        plan.unproven.append("values are hashed: without --redact-salt rows are not compared one by one")
    if not decodes:
        plan.unproven.append("bodies are decoded: without the same --decoder rows are not compared one by one")
    if OFFSET not in query.columns:
        plan.unproven.append(f"without the column {OFFSET} rows are not compared one by one, only sums of the log")
    compares_rows = salted and decodes and OFFSET in query.columns
    options = replace(options, query=replace(query, decoder=given.decoder if compares_rows else None))
    for named in stores:
        first, end = known[named.name]["physical_offset_first"], known[named.name]["next_physical_offset"]
        source = find_source(named, first, end)
        if source.min_offset > first:
            gone = f"store {named.name}: the log begins at {source.min_offset} by now; earlier rows are not compared"
            plan.unproven.append(gone)
        else:
            plan.whole.append(named.name)
        for split, compares in _splits(plan, named, known[named.name], options, compares_rows=compares_rows):
            files = _files_in(manifest, split)
            plan.tasks.append(CheckTask(split, options, output, files, compares_rows=compares))
    return plan


def _splits(
    plan: CheckPlan, named: NamedStore, known: dict[str, Any], options: ExportOptions, *, compares_rows: bool
) -> Iterator[tuple[Split, bool]]:
    """The splits of all logs of a store, and whether their rows are compared."""
    span = known["physical_offset_first"], known["next_physical_offset"]
    for (start, stop), compares in _spans(plan, named.name, span, options, compares_rows=compares_rows):
        yield from ((split, compares) for split in split_source(find_source(named, start, stop), CHECK_SPLIT))
    for other in _others(plan, named, known):
        yield from ((split, compares_rows) for split in split_source(other, CHECK_SPLIT))


def _others(plan: CheckPlan, named: NamedStore, known: dict[str, Any]) -> Iterator[Source]:
    """The logs beside the commit log with the parts of them that were exported, where they still are."""
    exported = known.get("other_logs", [])
    there = other_sources(named, Filters()) if exported else []
    for each in exported:
        name = (each["place"], each["topic"], each["queue_id"])
        first, stop = each["queue_offset_first"], each["queue_offset_stop"]
        found = [source for source in there
                 if (log := source.other) and (log.place, log.topic, log.queue_id) == name]  # fmt: skip
        if not found or any(source.other and source.other.first > first for source in found):
            gone = f"store {named.name}: what was {each['place']} of {name[1]} queue {name[2]} is not all there by now"
            plan.unproven.append(gone)
            plan.whole = [name for name in plan.whole if name != named.name]
            continue
        for source in found:
            if source.other:
                yield replace(source, other=replace(source.other, first=first, stop=stop))


def _check_known(stores: Sequence[NamedStore], known: dict[str, Any]) -> None:
    for named in stores:
        if named.name not in known:
            names = ", ".join([*sorted(known)[:_EXAMPLES], *(["..."] if len(known) > _EXAMPLES else [])])
            hint = f"it holds {names}: NAME=STORE says which of them this is"
            raise UsageError("the output has nothing from this store", file=named.store.root, hint=hint)


def _spans(
    plan: CheckPlan, store: str, span: tuple[int, int], options: ExportOptions, *, compares_rows: bool
) -> Iterator[tuple[tuple[int, int], bool]]:
    """A span of a log in parts, and whether rows of each are compared: those before OFFSET came cannot be placed."""
    begin, end = span
    placed = options.null_before.get(OFFSET, {}).get(store, begin)
    if placed > begin:
        plan.unproven.append(f"store {store}: rows before {placed} are not compared one by one: they have no {OFFSET}")
        yield (begin, placed), False
    if end > placed or placed == begin:
        yield (placed, end), compares_rows


def _is_decoder_given(manifest: dict[str, Any], given: Decoder | None) -> bool:
    """Whether bodies can be decoded again: a command in a manifest is never run. Raises UsageError for another one."""
    stored = manifest.get("decoder")
    if given is not None and given.text != stored:
        raise UsageError(f"the export was made with another --decoder: {stored or 'none'}")
    return stored is None or given is not None


def _redaction_of(manifest: dict[str, Any], given: Redaction | None) -> tuple[Redaction | None, bool]:
    """The redaction of an output, and whether its values can be made again; raises UsageError for another one."""
    stored = manifest.get("redact")
    if given is not None:
        if given.as_json() != stored:
            raise UsageError("the export was made with another --redact, --redact-as or --redact-salt")
        return given, True
    return (Redaction(frozenset(stored["what"])), stored["how"] == "hide") if stored else (None, True)


def check_split(task: CheckTask) -> CheckResult:
    """Compare one split with the rows that were exported of it; raises UnreadableError."""
    keep_arrow_to_one_thread()
    result = CheckResult(task.split.store)
    reader = SplitReader(task.split, task.options.query, (*SUMMED_COLUMNS, OFFSET))
    batches, summing = [], Summing(task.split.store)
    with closing(reader.events()) as events:  # a decoder ends with them
        for event in events:
            if not isinstance(event, Damage):
                summing.add(event)
                if task.compares_rows:
                    batches.append(expected_rows(reader, event, task.options, task.split.store))
    result.sums = summing.sums()
    if task.compares_rows:
        expected = pa.Table.from_batches(batches, rows_schema(task.options))
        result.rows = expected.num_rows
        result.findings += _differences(task, expected, _exported(task, result.unreadable))
    return result


def check_files(output: Path, manifest: dict[str, Any], results: Sequence[CheckResult]) -> Iterator[Finding]:
    """Files that are gone, changed, in no manifest, or could not be read for `results`."""
    known = {file["path"]: file for file in [*manifest["files"], *manifest["damaged"]]}
    options = options_of(manifest)
    unreadable = {path: reason for result in results for path, reason in result.unreadable.items()}
    with ThreadPoolExecutor(_READING_THREADS) as pool:
        problems = pool.map(
            lambda file: _file_problem(output, file, unreadable.get(file["path"]), options), known.values()
        )
        for path, problem in zip(known, problems, strict=True):
            if problem:
                yield _finding("export.file", problem, file=path)
    for name in stored_names(output):
        is_hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
        if f".{options.format}" in name and name not in known and not is_hidden:
            yield _finding("export.file", {"problem": "extra"}, file=name)


def _file_problem(
    output: Path, file: dict[str, Any], unreadable: str | None, options: ExportOptions
) -> dict[str, Any] | None:
    """The problem with a file of the manifest, None without one; `unreadable` is why its rows could not be read."""
    path = output / file["path"]
    try:
        form = options if "physical_offset_first" in file else _DAMAGED
        rows, (size, crc) = count_rows(path, form), size_and_crc32(path)
    except _UNREADABLE as error:
        unreadable = _reason(error)
    if unreadable:
        return {"problem": "unreadable", "why": unreadable}
    if (rows, size) != (file["rows"], file["bytes"]):
        return {"problem": "size", "rows": rows, "bytes": size,
                "expected_rows": file["rows"], "expected_bytes": file["bytes"]}  # fmt: skip
    if crc != file.get("crc32", crc):  # manifests of before have none
        return {"problem": "crc", "crc": crc, "expected_crc": file["crc32"]}
    return None


def check_sums(manifest: dict[str, Any], plan: CheckPlan, results: Sequence[CheckResult]) -> Iterator[Finding]:
    """Totals that differ from those of the files; sums of queues that differ from the log's, where it is whole."""
    for name in ("rows", "bytes"):
        total = sum(file[name] for file in manifest["files"])
        if manifest[name] != total:
            facts = {"problem": "total", "name": name, "found": manifest[name], "expected": total}
            yield _finding("export.sums", facts, file=MANIFEST)
    log_sums: Sums = {}
    merge_sums(log_sums, (result.sums for result in results))
    for (store, topic, queue_id), expected in queue_sums(manifest).items():
        sums = log_sums.pop((store, topic, queue_id), QueueSums())
        if store in plan.whole and sums != expected:
            found = asdict(sums)
            differ = [{"name": name, "expected": one, "found": found[name]}
                      for name, one in asdict(expected).items() if one != found[name]]  # fmt: skip
            facts = {"problem": "queue", "differences": differ}
            yield _finding("export.sums", facts, topic=topic, queue_id=queue_id)
    for (store, topic, queue_id), sums in log_sums.items():
        if store in plan.whole:
            yield _finding("export.sums", {"problem": "no-queue", "rows": sums.rows}, topic=topic, queue_id=queue_id)


def _files_in(manifest: dict[str, Any], split: Split) -> tuple[str, ...]:
    return tuple(
        file["path"]
        for file in manifest["files"]
        if file["store"] == split.store
        and file.get("log") == (split.other.name if split.other else None)
        and file["physical_offset_first"] < split.stop
        and file["physical_offset_last"] >= split.start
    )


def _exported(task: CheckTask, unreadable: dict[str, str]) -> pa.Table:
    """The rows of the split in its files, in log order; adds files that cannot be read to `unreadable`."""
    tables = [rows_schema(task.options).empty_table()]
    for name in task.files:
        try:
            tables.append(stored_rows(task.output / name, task.split, task.options))
        except _UNREADABLE as error:  # noqa: PERF203 - of few files
            unreadable[name] = _reason(error)
    return pa.concat_tables(tables).sort_by(OFFSET)


def _reason(error: Exception) -> str:
    """The message of Arrow or the system, in a line, without the path that the finding names anyway."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return re.sub(r"^Could not open Parquet input source '.*?': ", "", str(error).splitlines()[0])


def _differences(task: CheckTask, expected: pa.Table, exported: pa.Table) -> Iterator[Finding]:
    if exported.equals(expected):
        return
    wanted, there = (np.asarray(table.column(OFFSET).combine_chunks()) for table in (expected, exported))
    missing, extra = np.setdiff1d(wanted, there), np.setdiff1d(there, wanted)
    distinct, counts = np.unique(there, return_counts=True)
    wrong = {"export.missing": missing, "export.extra": extra, "export.doubled": distinct[counts > 1]}
    for code, offsets in wrong.items():
        if len(offsets):
            yield _about_rows(task, code, offsets)
    if len(missing) or len(there) != len(distinct) or len(extra):
        return
    for name in expected.column_names:
        if not expected.column(name).equals(exported.column(name)):
            pairs = zip(expected.column(name), exported.column(name), strict=True)
            rows = [row for row, (one, other) in enumerate(pairs) if one != other]
            yield _about_rows(task, "export.differs", wanted[rows], column=name)


def _about_rows(task: CheckTask, code: str, offsets: Any, **facts: str) -> Finding:
    more = max(0, len(offsets) - _EXAMPLES) or None
    details = {"offsets": offsets[:_EXAMPLES].tolist(), "more": more, **facts}
    return _finding(code, details, offset=int(offsets[0]), file=str(task.split.root), count=len(offsets))


def _finding(code: str, details: Mapping[str, Any], **location: Any) -> Finding:
    return finding(code, remedy=_REMEDY, details=details, **location)
