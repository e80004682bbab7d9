"""The file `config/timercheck`: seven numbers at the start of 4096 bytes (`TimerCheckpoint`)."""

from __future__ import annotations

from construct import Int64sb, Struct

from .layout import dtype_of

TimerCheck = Struct(
    "last_read_timestamp" / Int64sb * "up to when the wheel has been read, epoch ms",
    "last_timer_log_flush_position" / Int64sb * "timer log bytes that are flushed",
    "last_timer_queue_offset" / Int64sb * "next queue offset of rmq_sys_wheel_timer to enqueue",
    "master_timer_queue_offset" / Int64sb * "the master's next queue offset of rmq_sys_wheel_timer",
    "state_version" / Int64sb * "data version: state",
    "version_timestamp" / Int64sb * "data version: last change, epoch ms",
    "version_counter" / Int64sb * "data version: counter",
)
CHECK_DTYPE = dtype_of(TimerCheck)
USED_SIZE = CHECK_DTYPE.itemsize
FILE_SIZE = 4096
