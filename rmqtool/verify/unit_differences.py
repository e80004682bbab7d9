"""Units that point to the right record and tell something else of it: which difference is a fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.delay_levels import SCHEDULE_TOPIC
from rmqtool.dispatch.units import QueueName, QueueUnits
from rmqtool.findings import Severity
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS

_MS = 1000
_LONGEST_DELAY = 366 * 86_400 * _MS


class Difference(NamedTuple):
    """What is wrong with the unit of one row; `severity` where it is not that of the code."""

    row: int
    code: str
    message: str
    severity: Severity | None = None


class Differences:
    """The differences of one queue.

    Without a setting `messageDelayLevel` a delay queue itself tells how long its level is: whole seconds, the same for
    all of its units.
    """

    def __init__(self, name: QueueName, has_ext_files: bool, levels_are_known: bool) -> None:
        self._has_ext_files = has_ext_files
        self._learns_delay = name.topic == SCHEDULE_TOPIC and not levels_are_known
        self._level = name.queue_id + 1
        self._delay: int | None = None

    def of(self, units: QueueUnits, found: NDArray[np.void]) -> Iterator[Difference]:
        """Compare units with what is `found` in their places."""
        same_size = found["message_size"] == units.message_sizes
        same_code = found["tags_code"] == units.tags_codes
        if not self._has_ext_files:
            yield from self._of_ext_addresses(found, ~same_code)
        other_codes = ~same_code & (found["tags_code"] > MAX_EXT_ADDRESS)
        if self._learns_delay and other_codes.any():
            yield from self._learn(units, found, other_codes)
        for row in np.flatnonzero(other_codes).tolist():
            yield self._of_code(row, int(found["tags_code"][row]), units)
        for row in np.flatnonzero(~same_size).tolist():
            message = f"size {int(found['message_size'][row])}, the record has {int(units.message_sizes[row])}"
            yield Difference(row, "consumequeue.wrong-record", message)
        if "batch_size" in (found.dtype.names or ()):
            for row in np.flatnonzero(same_size & same_code).tolist():
                message = "other times, offsets or counts than the record gives"
                yield Difference(row, "consumequeue.batch-unit", message)

    def _of_ext_addresses(self, found: NDArray[np.void], rows: NDArray[np.bool_]) -> Iterator[Difference]:
        for row in np.flatnonzero(rows & (found["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
            message = f"{int(found['tags_code'][row])} is an address in consumequeue_ext/, which is not there"
            yield Difference(row, "consumequeue.ext-address", message)

    def _learn(self, units: QueueUnits, found: NDArray[np.void], rows: NDArray[np.bool_]) -> Iterator[Difference]:
        """Take units that are all as late as the first one out of `rows`."""
        delays = found["tags_code"].astype(np.int64) - units.store_timestamps
        if self._delay is None:
            first = int(np.argmax(rows))
            delay = int(delays[first])
            if 0 < delay <= _LONGEST_DELAY and delay % _MS == 0:
                self._delay = delay
                message = f"level {self._level} of messageDelayLevel is {delay // _MS} s here, not the default: " \
                          "give --broker-conf to have it checked"  # fmt: skip
                yield Difference(first, "consumequeue.tags-code", message, "info")
        if self._delay is not None:
            rows &= delays != self._delay

    def _of_code(self, row: int, stored: int, units: QueueUnits) -> Difference:
        message = f"tags code {stored}, the record gives {int(units.tags_codes[row])}"
        if stored == int(units.tags_hashes[row]):
            message += ": a delayed message, dispatched by the recovery of a broker 4.9.2 to 4.9.8"
            return Difference(row, "consumequeue.tags-code", message, "info")
        return Difference(row, "consumequeue.tags-code", message)
