"""Everything in a commit log, or in a compaction's log, in the order of the log or from its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.errors import ChangedError, UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at, list_mapped_files
from rmqtool.formats import dledger
from rmqtool.inspect.locate import FileGroup, Location, require_kind
from rmqtool.inspect.options import ListingOptions, read_units
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import MessageShape, extent_row, message_rows
from rmqtool.scan.reader import Event, scan_files
from rmqtool.scan.rows import Rows, names_taken
from rmqtool.scan.windows import constant_strings
from rmqtool.store.commit_log import written_end
from rmqtool.store.dledger_node import committed_index
from rmqtool.store.splits import parts_from_end
from rmqtool.store.store import DLEDGER_DATA

ToRows = Callable[[RecordRun, str, MessageShape], Iterator[Rows]]
"""Records, the file that they are in, and the shape of messages to their rows."""

_WINDOW = 16 << 20  # of a log that is read from its end, bytes: its rows are kept at once


def list_log(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """Messages that pass the filters, with blanks and damage between them."""
    yield from log_rows(location.files, location, options)


def list_compaction(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The logs of compacted queues: each file on its own, for gaps between them are normal and their ends are zeros."""
    files = [file for group in location.groups for file in group.files]
    for file in reversed(files) if options.reverse else files:
        yield from log_rows([file], location, options)


def log_rows(
    files: Sequence[MappedFile], location: Location, options: ListingOptions, to_rows: ToRows = message_rows
) -> Iterator[Rows]:
    """Messages, blanks and damage of the files of a log."""
    end = written_end(files, reading=options.reading) if options.live else (files[-1].end_offset if files else 0)
    start, stop = options.filters.start, min(options.filters.stop, end)
    if not options.reverse:
        for event in scan_files(files, start, stop, options.reading):
            yield from event_rows(event, files, location, options, to_rows)
        return
    for first, last in parts_from_end(files, start, stop, _WINDOW):
        items = []
        for event in scan_files(files, first, last, options.reading):
            items += list(event_rows(event, files, location, options, to_rows))
        yield from (rows.reversed() for rows in reversed(items))


def event_rows(
    event: Event,
    files: Sequence[MappedFile],
    location: Location,
    options: ListingOptions,
    to_rows: ToRows = message_rows,
) -> Iterator[Rows]:
    """One event of a scan as rows; none for messages that do not pass."""
    if isinstance(event, RecordRun):
        mapped = file_at(files, event.physical_offset) or files[-1]  # which may have grown since it was listed
        file = location.relative(mapped.path)
        frames = options.filters.select(event)
        if frames is not None:
            short = options.limit is not None and not options.reverse and len(frames) > options.limit
            yield from to_rows(frames[: options.limit] if short else frames, file, options.shape)
    else:
        yield extent_row(event)


_INDEX_KINDS = ("empty", "dledger_index_unit")
RAFT_COLUMNS = ("dledger_index", "dledger_term", "dledger_committed")


def list_entries(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The messages of all entries, with blanks and damage between them; offsets are those of the messages."""
    folder = location.files[0].path.parent if location.files else None
    is_in_node = folder is not None and folder.name == DLEDGER_DATA  # else a file of entries that lies elsewhere
    committed = committed_index(folder.parent) if folder and is_in_node else None
    yield from log_rows(location.files, location, options, partial(_entry_rows, committed))


def list_dledger_index(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of the index: where the entry of each Raft index stands."""
    for mapped in reversed(location.files) if options.reverse else location.files:
        require_kind(mapped.path, location.kind)
        for block in read_units(mapped, dledger.INDEX_DTYPE, options.reading, reverse=options.reverse):
            units, is_written = block.units, dledger.is_written(block.units)
            columns = {
                "file": constant_strings(location.relative(mapped.path), len(units)),
                "number": block.indices + mapped.start_offset // dledger.INDEX_UNIT_SIZE,
                **{name: units[name] for name in ("position", "size", "index", "term")},
            }
            offsets = units["position"].astype(np.int64) + dledger.ENTRY_HEADER_SIZE
            sizes = units["size"] - dledger.ENTRY_HEADER_SIZE
            kept = options.kept(location.groups[0], [], is_written, offsets, sizes)
            yield options.rows(names_taken(_INDEX_KINDS, is_written.astype(np.int32)), columns, units, kept)


def _entry_rows(committed: int | None, frames: RecordRun, file: str, shape: MessageShape) -> Iterator[Rows]:
    """Rows of messages with Raft index and term from the entries' headers."""
    done = 0
    for rows in message_rows(frames, file, shape):
        positions = frames.positions[done : done + len(rows)]
        headers = frames.block.gather(dledger.ENTRY_DTYPE, positions - dledger.ENTRY_HEADER_SIZE)
        indices, terms = (pa.array(headers[name].astype(np.int64)) for name in ("index", "term"))
        is_committed = pa.nulls(len(rows), pa.bool_()) if committed is None else pc.less_equal(indices, committed)
        batch = rows.batch
        for name, column in zip(RAFT_COLUMNS, (indices, terms, is_committed), strict=True):
            batch = batch.append_column(name, column)
        yield replace(rows, batch=batch)
        done += len(rows)


_PAUSE = 0.25  # seconds between two reads
_START = 8  # size and magic code, which show that a record has been begun, bytes
_MARK = 64  # so much of the end of what was shown shows whether it is still there, bytes


def follow_log(location: Location, options: ListingOptions, *, from_end: bool) -> Iterator[Rows | None]:
    """Messages from `options.filters.start`, or from the log's end, and then those that are added, without an end.

    None stands for a pause: everything in the log has been yielded. Raises UnreadableError when the log has gone, and
    ChangedError when it was cut: what comes in the place of what was shown would be missed.
    """
    directories = tuple(dict.fromkeys(file.path.parent for file in location.files)) or (location.path,)
    files = location.files
    header_size = files[0].header_size if files else 0
    position = written_end(files, reading=options.reading) if from_end else options.filters.start
    mark = _mark(files, position) if from_end else None
    while True:
        if files and position < files[0].start_offset:  # the files before it have been deleted
            position, mark = files[0].start_offset, b""
        if _has_begun(files, position):
            location = replace(location, groups=(FileGroup(files),))
            stop = min(options.filters.stop, written_end(files, position, options.reading))
            for event in scan_files(files, position, stop, options.reading):
                yield from event_rows(event, files, location, options)
                position = event.physical_offset + event.size
                mark = b""
            mark = None if mark is None else _mark(files, position)
        if position >= options.filters.stop:
            return
        yield None
        time.sleep(_PAUSE)
        had_files, files = bool(files), list_mapped_files(*directories, header_size=header_size).files
        if had_files and not files:
            hint = f"move or mount it back, and run this again with --from-offset {position}"
            raise UnreadableError("the log disappeared: no file is left", file=directories[0], hint=hint)
        if mark is not None and _is_cut(files, position, mark):
            cut = f"the log was cut before offset {position}, up to which it was shown"
            why = "a broker cuts its log when it starts after a kill, or gets another master"
            hint = f"{why}: run this again, with --from or --from-offset"
            raise ChangedError(f"{cut}: its replacement is not shown", file=directories[0], hint=hint)


def _mark(files: tuple[MappedFile, ...], position: int) -> bytes:
    """The last bytes before `position` in the file that the log goes on in; none where it goes on in a new one."""
    mapped = file_at(files, position)
    if mapped is None or mapped.start_offset == position:
        return b""
    stop = position - mapped.start_offset
    with InputFile(mapped.path) as file:
        return file.read(max(0, stop - _MARK), min(_MARK, stop))


def _is_cut(files: tuple[MappedFile, ...], position: int, mark: bytes) -> bool:
    """Whether what was shown up to `position` is no longer there, or no longer the same.

    Zeros at its end may be filled later: a broker may wait for a page of the file in the middle of a record.
    """
    if files and position > files[-1].end_offset:
        return True
    written = mark.rstrip(b"\0")
    return file_at(files, position) is not None and not _mark(files, position).startswith(written)


def _has_begun(files: tuple[MappedFile, ...], position: int) -> bool:
    """Whether the log holds data at `position`, or after it when its file was deleted."""
    for mapped in files:
        if mapped.end_offset <= position:
            continue
        start = max(0, position - mapped.start_offset)
        with InputFile(mapped.path) as file:
            return file.next_data(start, min(file.size, start + _START)) < min(file.size, start + _START)
    return False
