"""The end of a commit log while a broker appends to it: new messages as they come, across files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rmqtool.base.errors import ChangedError, UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at, list_mapped_files
from rmqtool.inspect.commit_log import event_rows
from rmqtool.inspect.locate import FileGroup, Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.reader import scan_files
from rmqtool.scan.rows import Rows
from rmqtool.store.commit_log import written_end

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
            raise UnreadableError("the log has gone: no file is left", file=directories[0], hint=hint)
        if mark is not None and _is_cut(files, position, mark):
            raise _cut(directories[0], position)


def _cut(directory: Path, position: int) -> ChangedError:
    return ChangedError(
        f"the log was cut before offset {position}, up to which it was shown: what comes in its place is not shown",
        file=directory,
        hint="a broker that starts after a kill cuts its log, and one that gets another master: run this again, with "
        "--from or --from-offset",
    )


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
