"""Units that point to the right record and tell something else of it: which difference is a fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.findings.finding import Severity
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS


class UnitDifference(NamedTuple):
    """What is wrong with the unit of one row; `severity` where it is not that of the code."""

    row: int
    code: str
    message: str
    severity: Severity | None = None


def differences(units: QueueUnits, found: NDArray[np.void], *, has_ext_files: bool) -> Iterator[UnitDifference]:
    """Compare units with what is `found` in their places."""
    same_size = found["message_size"] == units.message_sizes
    same_code = found["tags_code"] == units.tags_codes
    if not has_ext_files:
        yield from _of_ext_addresses(found, ~same_code)
    other_codes = ~same_code & (found["tags_code"] > MAX_EXT_ADDRESS)
    for row in np.flatnonzero(other_codes).tolist():
        yield _of_code(row, int(found["tags_code"][row]), units)
    for row in np.flatnonzero(~same_size).tolist():
        message = f"size {int(found['message_size'][row])}, the record has {int(units.message_sizes[row])}"
        yield UnitDifference(row, "consumequeue.wrong-record", message)
    if "batch_size" in (found.dtype.names or ()):
        for row in np.flatnonzero(same_size & same_code).tolist():
            message = "other times, offsets or counts than the record gives"
            yield UnitDifference(row, "consumequeue.batch-unit", message)


def _of_ext_addresses(found: NDArray[np.void], rows: NDArray[np.bool_]) -> Iterator[UnitDifference]:
    for row in np.flatnonzero(rows & (found["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
        message = f"{int(found['tags_code'][row])} is an address in consumequeue_ext/, which is not there"
        yield UnitDifference(row, "consumequeue.ext-address", message)


def _of_code(row: int, stored: int, units: QueueUnits) -> UnitDifference:
    message = f"tags code {stored}, the record gives {int(units.tags_codes[row])}"
    if stored == int(units.tags_hashes[row]):
        message += ": a delayed message, dispatched by the recovery of a broker 4.9.2 to 4.9.8"
        return UnitDifference(row, "consumequeue.tags-code", message, "info")
    return UnitDifference(row, "consumequeue.tags-code", message)
