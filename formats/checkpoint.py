"""The files `checkpoint` and `config/timercheck`: numbers at the start of 4096 bytes.

`StoreCheckpoint` and `TimerCheckpoint`.
"""

from __future__ import annotations

from construct import Int64sb, Struct

from .layout import dtype_of

CHECKPOINT_FILE_SIZE = 4096  # of both

Checkpoint = Struct(
    "physic_message_timestamp" / Int64sb * "store timestamp of the last flushed commit log record, epoch ms",
    "logics_message_timestamp" / Int64sb * "store timestamp of the last flushed consume queue unit, epoch ms",
    "index_message_timestamp" / Int64sb * "end timestamp of the last full index file, epoch ms",
    "master_flushed_offset" / Int64sb * "commit log bytes that the master has flushed, since 5.0.0",
    "confirm_physical_offset" / Int64sb * "commit log bytes confirmed by the in-sync replicas, since 5.1.1",
    "logics_physical_offset" / Int64sb * "start of the last record dispatched before the last flush, since 5.5.0",
)
CHECKPOINT_DTYPE = dtype_of(Checkpoint)
CHECKPOINT_SIZE = CHECKPOINT_DTYPE.itemsize
TimerCheck = Struct(
    "last_read_timestamp" / Int64sb * "up to when the wheel has been read, epoch ms",
    "last_timer_log_flush_position" / Int64sb * "timer log bytes that are flushed",
    "last_timer_queue_offset" / Int64sb * "next queue offset of rmq_sys_wheel_timer to enqueue",
    "master_timer_queue_offset" / Int64sb * "the master's next queue offset of rmq_sys_wheel_timer",
    "state_version" / Int64sb * "data version: state",
    "version_timestamp" / Int64sb * "data version: last change, epoch ms",
    "version_counter" / Int64sb * "data version: counter",
)
TIMER_CHECK_DTYPE = dtype_of(TimerCheck)
TIMER_CHECK_SIZE = TIMER_CHECK_DTYPE.itemsize
