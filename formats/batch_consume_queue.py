"""A batch consume queue unit of 46 bytes, since 5.0.0 (`BatchConsumeQueue#putBatchMessagePositionInfo`)."""

from __future__ import annotations

import numpy as np
from construct import Int16sb, Int32sb, Int64sb, Struct
from numpy.typing import NDArray

from .layout import dtype_of

BatchConsumeQueueUnit = Struct(
    "physical_offset" / Int64sb * "commit log position of the record, bytes",
    "message_size" / Int32sb * "stored size of the whole record, bytes",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "broker's clock at storing, epoch ms",
    "base_queue_offset" / Int64sb * "queue offset of the batch's first message (msgBaseOffset)",
    "batch_size" / Int16sb * "messages in the record",
    "compacted_offset" / Int32sb * "-1 (INVALID_POS)",
    "reserved" / Int32sb * "0",
)
UNIT_DTYPE = dtype_of(BatchConsumeQueueUnit)
UNIT_SIZE = UNIT_DTYPE.itemsize  # BatchConsumeQueue.CQ_STORE_UNIT_SIZE


def decode_units(data: bytes | bytearray | memoryview) -> NDArray[np.void]:
    """View `data` as whole units, shape ``(len(data) // 46,)``; a partial last unit is left out."""
    return np.frombuffer(data, dtype=UNIT_DTYPE, count=len(data) // UNIT_SIZE)


def is_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The broker's own test of a unit, per unit (`BatchConsumeQueue#recover`)."""
    written: NDArray[np.bool_] = (
        (units["physical_offset"] >= 0)
        & (units["message_size"] > 0)
        & (units["base_queue_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
    return written


def is_end_mark(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """The mark that ends a full file of a compacted queue, per unit (`SparseConsumeQueue#putEndPositionInfo`)."""
    mark: NDArray[np.bool_] = (units["physical_offset"] == -1) & (units["message_size"] == 0)
    return mark
