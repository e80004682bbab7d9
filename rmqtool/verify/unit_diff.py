"""Differences of units that point to the right record, but differ from it in other fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.findings.finding import Severity
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS


class UnitDifference(NamedTuple):
    """The fault of the unit in one row; `severity` is None for the usual one of the code."""

    row: int
    code: str
    facts: Mapping[str, Any]
    severity: Severity | None = None


def differences(units: QueueUnits, stored: NDArray[np.void], *, has_ext_units: bool) -> Iterator[UnitDifference]:
    """Compare the expected `units` with the `stored` ones."""
    is_size_equal = stored["message_size"] == units.message_sizes
    is_code_equal = stored["tags_code"] == units.tags_codes
    if not has_ext_units:
        yield from _of_ext_addresses(stored, ~is_code_equal)
    other_codes = ~is_code_equal & (stored["tags_code"] > MAX_EXT_ADDRESS)
    for row in np.flatnonzero(other_codes).tolist():
        yield _of_code(row, int(stored["tags_code"][row]), units)
    for row in np.flatnonzero(~is_size_equal).tolist():
        sizes = {"found": int(stored["message_size"][row]), "expected": int(units.message_sizes[row])}
        yield UnitDifference(row, "consumequeue.wrong-record", {"problem": "size", **sizes})
    if "batch_size" not in (stored.dtype.names or ()) and "store_timestamp" in (stored.dtype.names or ()):
        is_time_equal = stored["store_timestamp"] == units.store_timestamps
        for row in np.flatnonzero(~is_time_equal).tolist():
            times = {"found": int(stored["store_timestamp"][row]), "expected": int(units.store_timestamps[row])}
            yield UnitDifference(row, "consumequeue.store-timestamp", times)
    if "batch_size" in (stored.dtype.names or ()):
        for row in np.flatnonzero(is_size_equal & is_code_equal).tolist():
            yield UnitDifference(row, "consumequeue.batch-unit", {"problem": "other-fields"})


def _of_ext_addresses(stored: NDArray[np.void], rows: NDArray[np.bool_]) -> Iterator[UnitDifference]:
    for row in np.flatnonzero(rows & (stored["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
        yield UnitDifference(row, "consumequeue.ext-address", {"found": int(stored["tags_code"][row])})


def _of_code(row: int, tags_code: int, units: QueueUnits) -> UnitDifference:
    codes = {"found": tags_code, "expected": int(units.tags_codes[row])}
    if tags_code == int(units.tags_hashes[row]):
        return UnitDifference(row, "consumequeue.tags-code", {"problem": "recovered-as-tags", **codes}, "info")
    return UnitDifference(row, "consumequeue.tags-code", {"problem": "other", **codes})
