"""Files whose modification time lies against their messages: restored with `cp`, touched, or from another clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rmqtool.broker.log_deletion import LogFile
from rmqtool.clean.snapshot import Facts

TOLERANCE_MS = 3_600_000  # the kernel writes a map's pages, and the time with them, later than the message came

Deviation = Literal["future", "later", "earlier"]


@dataclass(frozen=True)
class WrongTime:
    """A file of which the broker takes a wrong age; `written` is when its messages end or begin, epoch ms."""

    log_file: LogFile
    deviation: Deviation
    written: int

    @property
    def shift(self) -> int:
        """By how much longer the file stays than its messages would, ms; negative when it goes earlier."""
        return self.log_file.mtime - self.written


def wrong_times(facts: Facts, now: int) -> Iterator[WrongTime]:
    """The files whose modification time is in the future, later than their messages, or earlier than the first.

    A file's last message is taken to be as old as the next file's first one; `now` is epoch ms.
    """
    begins = facts.first_timestamps
    for file_number, log_file in enumerate(facts.log_files):
        if log_file.start_offset > facts.log_range.max_offset:
            return
        first = begins[file_number]
        following = begins[file_number + 1] if file_number + 1 < len(begins) else None
        last = following if following is not None else facts.log_range.last_store_timestamp
        if log_file.mtime > now + TOLERANCE_MS:
            yield WrongTime(log_file, "future", last if last is not None else now)
        elif last is not None and log_file.mtime > last + TOLERANCE_MS:
            yield WrongTime(log_file, "later", last)
        elif first is not None and log_file.mtime < first - TOLERANCE_MS:
            yield WrongTime(log_file, "earlier", first)
