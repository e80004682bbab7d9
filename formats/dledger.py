"""DLedger: messages wrapped in Raft entries, and their index (`DLedgerEntryCoder`, `MmapFileList` of DLedger)."""

from __future__ import annotations

import numpy as np
from construct import Int32sb, Int64sb, Struct
from numpy.typing import NDArray

from .layout import dtype_of

_ENTRY_FIELDS = (
    "magic" / Int32sb * "1 (CURRENT_MAGIC); -1 begins the blank that ends a full file",
    "size" / Int32sb * "size of the whole entry, bytes",
    "index" / Int64sb * "Raft index, from 0",
    "term" / Int64sb * "Raft term of the leader that wrote it",
    "position" / Int64sb * "position of this entry in the DLedger data, bytes",
    "channel" / Int32sb * "0",
    "chain_crc" / Int32sb * "0, never computed",
    "body_crc" / Int32sb * "0, never set by RocketMQ",
    "body_size" / Int32sb * "size of the message after this header, bytes",
)
DLedgerEntryHeader = Struct(*_ENTRY_FIELDS)
DLedgerIndexUnit = Struct(
    "magic" / Int32sb * "1 (CURRENT_MAGIC)",
    "position" / Int64sb * "position of the entry in the DLedger data, bytes",
    "size" / Int32sb * "size of the whole entry, bytes",
    "index" / Int64sb * "Raft index, from 0",
    "term" / Int64sb * "Raft term",
)
DLedgerBlank = Struct(
    "magic" / Int32sb * "-1 (MmapFileList.BLANK_MAGIC_CODE)",
    "size" / Int32sb * "bytes from here to the end of the file",
)
ENTRY_DTYPE = dtype_of(DLedgerEntryHeader)
ENTRY_HEADER_SIZE = ENTRY_DTYPE.itemsize  # DLedgerEntry.BODY_OFFSET, 48
INDEX_DTYPE = dtype_of(DLedgerIndexUnit)
INDEX_UNIT_SIZE = INDEX_DTYPE.itemsize  # DLedgerMmapFileStore.INDEX_UNIT_SIZE, 32
BLANK_SIZE = dtype_of(DLedgerBlank).itemsize

MAGIC_ENTRY = 1
MAGIC_BLANK = -1


def is_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether an index unit is written, per unit (`DLedgerMmapFileStore#recover`)."""
    written: NDArray[np.bool_] = (units["magic"] == MAGIC_ENTRY) & (units["size"] > 0)
    return written
