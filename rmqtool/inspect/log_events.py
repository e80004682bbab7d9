"""All records of a store's log, with what cannot be read left out."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.scan.reader import Event, scan_files
from rmqtool.store.commit_log import readable_end
from rmqtool.store.snapshot import Snapshot


def events_of(snapshot: Snapshot, unread: list[RmqtoolError]) -> Iterator[Event]:
    """The scan of the whole log; a file that cannot be read is added to `unread` and left out from there on."""
    reading, live = snapshot.reading, snapshot.holder is not None
    files, position = list(snapshot.log.files), 0
    while files:
        try:
            for event in scan_files(files, position, readable_end(files, reading, live=live), reading):
                position = event.physical_offset + event.size
                yield event
            return
        except UnreadableError as error:  # noqa: PERF203 - once for each file that cannot be read
            unread.append(error)
            files = [file for file in files if str(file.path) != error.file]
