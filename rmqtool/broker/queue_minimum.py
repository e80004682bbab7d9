"""The minimum offset of a queue after a start (`correctMinOffset` of `ConsumeQueue` and `BatchConsumeQueue`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.queue_simulation import SimulatedQueue
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, QUEUE_WITHOUT_FILE_IS_RESET, Version


def min_offset_of(state: SimulatedQueue, log_min_offset: int, version: Version) -> int:
    """The queue's minimum offset; `log_min_offset` is the commit log's, -1 without a file."""
    if state.kind == "batch":
        return _batch_min(state, log_min_offset)
    if not state.has_files:
        return 0 if version >= QUEUE_WITHOUT_FILE_IS_RESET else state.min_position // state.unit
    if version >= EXPIRED_QUEUE_MIN_IS_MAX:
        return _searched_min(state, log_min_offset) // state.unit
    base, units = state.first_file_units()
    found = np.flatnonzero(units["physical_offset"] >= log_min_offset)
    position = base + int(found[0]) * state.unit if len(found) else state.min_position
    return position // state.unit


def _searched_min(state: SimulatedQueue, log_min_offset: int) -> int:
    """The minimum as brokers since 5.0.0 search it, as a position in the queue, bytes."""
    if state.min_position >= state.end:
        return state.min_position
    last = state.last_unit_offset()
    if last is not None and last < log_min_offset:
        return state.end
    base, units = state.first_file_units()
    start = state.min_position - base
    first = max(0, start) // state.unit
    offsets = units["physical_offset"][first:]
    if not len(offsets) or (start >= 0 and offsets[0] >= log_min_offset):
        return state.min_position
    found = _search(offsets, log_min_offset)
    return state.min_position if found is None else base + (first + found) * state.unit


def _search(offsets: NDArray[np.int64], log_min_offset: int) -> int | None:
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        found = int(offsets[middle])
        low, high = middle if found <= log_min_offset else low, middle if found >= log_min_offset else high
    return next((number for number in range(low, high + 1) if offsets[number] >= log_min_offset), None)


def _batch_min(state: SimulatedQueue, log_min_offset: int) -> int:
    if not state.has_files:
        return -1
    _, units = state.first_file_units()
    if not len(units):
        return -1
    if state.first_batch_offset is not None and state.is_made:
        return state.first_batch_offset
    reachable = units["physical_offset"] >= log_min_offset
    below = int(np.argmax(reachable)) if reachable.any() else len(units)
    if not below:
        return int(units["base_queue_offset"][0])
    return int(units["base_queue_offset"][below - 1]) + int(units["batch_size"][below - 1])
