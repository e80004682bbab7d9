"""Single records, looked at again where a unit points: the log is scanned for the many, this is for the few."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.dispatch.dispatcher import Dispatcher
from rmqtool.dispatch.units import QueueName
from rmqtool.errors import UnreadableError
from rmqtool.formats.host import format_host
from rmqtool.mapped_files import MappedFile
from rmqtool.scan.lookup import record_at


class Lookups:
    """What one record gives, by its physical offset; `hashes_at` and `time_and_host_at` raise UnreadableError."""

    def __init__(self, files: Sequence[MappedFile], dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher

    def queues_of(self, physical_offset: int) -> dict[QueueName, int] | None:
        """The queues that the record at an offset goes to, its own first, and its offset in each; none without one.

        None where the file cannot be read: a running broker deletes files, and of a file the rest may be unreadable.
        """
        try:
            frames = record_at(self._files, physical_offset)
        except UnreadableError:
            return None
        if frames is None:
            return {}
        units = self._dispatcher.dispatch(frames).units
        names = [self._dispatcher.queues[queue] for queue in units.queues.tolist()]
        return dict(zip(names, units.queue_offsets.tolist(), strict=True))

    def hashes_at(self, physical_offset: int) -> set[int] | None:
        """The hashes of the keys of the record at an offset; None when none begins there."""
        frames = record_at(self._files, physical_offset)
        if frames is None:
            return None
        return set(self._dispatcher.dispatch(frames).keys.key_hashes.tolist())

    def begins_at(self, physical_offset: int) -> bool | None:
        """Whether a record begins at an offset; None where the file cannot be read."""
        try:
            return record_at(self._files, physical_offset) is not None
        except UnreadableError:
            return None

    def store_timestamp_at(self, physical_offset: int) -> int | None:
        """When the record at an offset was stored, epoch ms; None when none can be read there."""
        try:
            frames = record_at(self._files, physical_offset)
        except UnreadableError:
            return None
        return None if frames is None else int(frames.headers.field("store_timestamp")[0])

    def time_and_host_at(self, physical_offset: int) -> tuple[int, str] | None:
        """When the record at an offset was stored, epoch ms, and by which host; None when none begins there."""
        frames = record_at(self._files, physical_offset)
        if frames is None:
            return None
        ((_, hosts),) = frames.headers.hosts("store_host")
        return int(frames.headers.field("store_timestamp")[0]), format_host(hosts[0].tobytes())
