"""Single records, looked at again where a unit points: the log is scanned for the many, this is for the few."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.dispatch.dispatcher import Dispatcher
from rmqtool.dispatch.units import QueueName
from rmqtool.formats.host import format_host
from rmqtool.formats.properties import KEYS, TAGS, UNIQUE_KEY
from rmqtool.mapped_files import MappedFile
from rmqtool.scan.lookup import record_at


class Lookups:
    """What one record gives, by its physical offset; raises UnreadableError."""

    def __init__(self, files: Sequence[MappedFile], dispatcher: Dispatcher) -> None:
        self._files = files
        self._dispatcher = dispatcher

    def queues_of(self, physical_offset: int) -> dict[QueueName, int]:
        """The queues that the record at an offset goes to, its own first, and its offset in each; none without one.

        Those to which only an older release dispatches it are among them, where one may have.
        """
        frames = record_at(self._files, physical_offset)
        if frames is None:
            return {}
        dispatched = self._dispatcher.dispatch(frames)
        found = [units for units in (dispatched.units, dispatched.optional_units) if units is not None]
        return {
            self._dispatcher.queues[queue]: offset
            for units in found
            for queue, offset in zip(units.queues.tolist(), units.queue_offsets.tolist(), strict=True)
        }

    def may_lack_tags(self, physical_offset: int) -> bool:
        """Whether an older release may have found no tags in the record at an offset: they hold a separator."""
        return self._may_lack(physical_offset, TAGS)

    def may_lack_keys(self, physical_offset: int) -> bool:
        """The same of its keys: an older release put those into the index whose property holds no separator."""
        return self._may_lack(physical_offset, UNIQUE_KEY, KEYS)

    def _may_lack(self, physical_offset: int, *names: str) -> bool:
        frames = record_at(self._files, physical_offset) if self._dispatcher.rules.may_be_older else None
        if frames is None:
            return False
        dispatched = self._dispatcher.dispatch(frames)
        return any(len(dispatched.rows_with_separator(name)) for name in names)

    def hashes_at(self, physical_offset: int) -> set[int] | None:
        """The hashes of the keys of the record at an offset; None when none begins there."""
        frames = record_at(self._files, physical_offset)
        if frames is None:
            return None
        return set(self._dispatcher.dispatch(frames).keys.key_hashes.tolist())

    def store_timestamp_at(self, physical_offset: int) -> int | None:
        """When the record at an offset was stored, epoch ms; None when none begins there."""
        frames = record_at(self._files, physical_offset)
        return None if frames is None else int(frames.headers.field("store_timestamp")[0])

    def time_and_host_at(self, physical_offset: int) -> tuple[int, str] | None:
        """When the record at an offset was stored, epoch ms, and by which host; None when none begins there."""
        frames = record_at(self._files, physical_offset)
        if frames is None:
            return None
        ((_, hosts),) = frames.headers.hosts("store_host")
        return int(frames.headers.field("store_timestamp")[0]), format_host(hosts[0].tobytes())
