"""Everything in a commit log, or in a compaction's log, in the order of the log or from its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.inspect.locate import Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import MessageShape, extent_row, message_rows
from rmqtool.scan.reader import Event, scan_files
from rmqtool.scan.rows import Rows
from rmqtool.store.commit_log import written_end
from rmqtool.store.splits import parts_from_end

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
    end = written_end(files, reading=options.reading) if options.live else _end_of(files)
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


def _end_of(files: Sequence[MappedFile]) -> int:
    return files[-1].end_offset if files else 0
