"""All records of a store's log, with what cannot be read left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.scan.reader import Event, scan_files
from rmqtool.store.commit_log import readable_end
from rmqtool.store.dledger_log import scan_entries
from rmqtool.store.snapshot import Snapshot


def events_of(snapshot: Snapshot, unread: list[RmqtoolError]) -> Iterator[Event]:
    """The scan of the whole log, of a converted broker first of the one before DLedger."""
    reading, live = snapshot.reading, snapshot.holder is not None

    def scan(files: Sequence[MappedFile], start: int) -> Iterator[Event]:
        return scan_files(files, start, readable_end(files, reading, live=live), reading)

    yield from _readable_events(scan, snapshot.older_log, unread)
    entries = partial(scan_entries, reading=reading)
    yield from _readable_events(entries if snapshot.store.layout == "dledger" else scan, snapshot.log, unread)


def _readable_events(
    scan: Callable[[Sequence[MappedFile], int], Iterator[Event]], log: MappedFiles, unread: list[RmqtoolError]
) -> Iterator[Event]:
    """The scan of some files; one that cannot be read is added to `unread` and left out from there on."""
    files, position = list(log.files), 0
    while files:
        try:
            for event in scan(files, position):
                position = event.physical_offset + event.size
                yield event
            return
        except UnreadableError as error:  # noqa: PERF203 - once for each file that cannot be read
            unread.append(error)
            files = [file for file in files if str(file.path) != error.file]
