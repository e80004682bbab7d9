"""The end of a commit log while a broker appends to it: new messages as they come, across files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.inspect.commit_log import event_rows
from rmqtool.inspect.locate import FileGroup, Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.reader import scan_files
from rmqtool.scan.rows import Rows
from rmqtool.store.commit_log import log_range, written_end

_PAUSE = 0.25  # seconds between two reads
_START = 8  # size and magic code, which show that a record has been begun, bytes


def follow_log(location: Location, options: ListingOptions, *, from_end: bool) -> Iterator[Rows | None]:
    """Messages from `options.filters.start`, or from the log's end, and then those that are added, without an end.

    None stands for a pause: everything in the log has been yielded.
    """
    directories = tuple(dict.fromkeys(file.path.parent for file in location.files)) or (location.path,)
    files = location.files
    header_size = files[0].header_size if files else 0
    position = log_range(files, reading=options.reading).max_offset if from_end else options.filters.start
    while True:
        if files:
            position = max(position, files[0].start_offset)  # the files before it have been deleted
        if _has_begun(files, position):
            location = replace(location, groups=(FileGroup(files),))
            stop = min(options.filters.stop, written_end(files, position, options.reading))
            for event in scan_files(files, position, stop, options.reading):
                yield from event_rows(event, files, location, options)
                position = event.physical_offset + event.size
        if position >= options.filters.stop:
            return
        yield None
        time.sleep(_PAUSE)
        files = list_mapped_files(*directories, header_size=header_size).files


def _has_begun(files: tuple[MappedFile, ...], position: int) -> bool:
    """Whether the log holds data at `position`, or behind it when its file was deleted."""
    for mapped in files:
        if mapped.end_offset <= position:
            continue
        start = max(0, position - mapped.start_offset)
        with InputFile(mapped.path) as file:
            return file.next_data(start, min(file.size, start + _START)) < min(file.size, start + _START)
    return False
