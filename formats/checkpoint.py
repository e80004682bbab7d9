"""The file `checkpoint`: six numbers at the start of 4096 bytes (`StoreCheckpoint`)."""

from __future__ import annotations

from construct import Int64sb, Struct

from .layout import dtype_of

Checkpoint = Struct(
    "physic_message_timestamp" / Int64sb * "store timestamp of the last flushed commit log record, epoch ms",
    "logics_message_timestamp" / Int64sb * "store timestamp of the last flushed consume queue unit, epoch ms",
    "index_message_timestamp" / Int64sb * "end timestamp of the last full index file, epoch ms",
    "master_flushed_offset" / Int64sb * "commit log bytes that the master has flushed, since 5.0.0",
    "confirm_physical_offset" / Int64sb * "commit log bytes confirmed by the in-sync replicas, since 5.1.1",
    "logics_physical_offset" / Int64sb * "start of the last record dispatched before the last flush, since 5.5.0",
)
CHECKPOINT_DTYPE = dtype_of(Checkpoint)
USED_SIZE = CHECKPOINT_DTYPE.itemsize
FILE_SIZE = 4096
