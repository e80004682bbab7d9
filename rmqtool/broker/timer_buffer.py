"""Timer messages that a broker cannot read: it reads each record into one buffer (`TimerMessageStore#bufferLocal`).

A body may be as large as `maxMessageSize`, but before 5.5.1 the buffer has only 100 bytes more for the rest of the
record. Before 5.4.0 the timer stands still at a record that does not fit, and reads nothing after it any more; since
then it passes over it. It does so where it reads its queue, and again where a message is due, which counts for those
that are in the timer log when `maxMessageSize` is made smaller. Real brokers of 5.1.4, 5.3.3, 5.5.0 and 5.5.1 were run
on such messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.timer_start import NextRead, TimerQueue
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import TIMER_BUFFER_HOLDS_PROPERTIES, TIMER_PASSES_OVER, Version

_MAX_BODY = 4 << 20  # maxMessageSize, bytes
_MOST_BESIDE_BODY = 64 << 10  # bytes of a record


def room_beside_body(version: Version) -> int:
    """How much larger than `maxMessageSize` the buffer is, bytes."""
    return _MOST_BESIDE_BODY if version >= TIMER_BUFFER_HOLDS_PROPERTIES else 100


def timer_buffer(queue: TimerQueue, conf: BrokerConf, version: Version) -> int:
    """The bytes of the largest record that the timer reads.

    Where no broker.conf gives `maxMessageSize`, a record that the default would not have let in shows that it is more:
    then the largest is taken for one that fits.
    """
    largest = int(queue.message_sizes.max())
    if conf.decides("maxMessageSize") or largest <= _MAX_BODY + _MOST_BESIDE_BODY:
        return (conf.size("maxMessageSize") or _MAX_BODY) + room_beside_body(version)
    return largest


def passed_over(queue: TimerQueue, next_read: NextRead, conf: BrokerConf, version: Version) -> NDArray[np.bool_]:
    """The messages that the timer has passed over: a start does not read them again, nor are they in the timer log."""
    is_read = queue.queue_offsets < next_read.begin
    return _are_too_large(queue, conf, version) & is_read & ~next_read.logged


def never_delivered(
    queue: TimerQueue, next_read: NextRead, read_until: int, conf: BrokerConf, version: Version
) -> NDArray[np.bool_]:
    """The messages that a start neither reads from the queue nor delivers from the timer log, for the size of one.

    `read_until` is the time up to which the wheel has been read, epoch ms.
    """
    is_never_dequeued = _never_dequeued(queue, next_read, read_until, conf, version)
    return _never_read(queue, next_read, conf, version) | is_never_dequeued


def _never_read(queue: TimerQueue, next_read: NextRead, conf: BrokerConf, version: Version) -> NDArray[np.bool_]:
    """The messages that a start does not read: those that are too large, or all from the first of these on."""
    found = _are_too_large(queue, conf, version) & (queue.queue_offsets >= next_read.begin)
    return found if version >= TIMER_PASSES_OVER else np.maximum.accumulate(found)


def _never_dequeued(
    queue: TimerQueue, next_read: NextRead, read_until: int, conf: BrokerConf, version: Version
) -> NDArray[np.bool_]:
    """The messages of the timer log that a start does not deliver: too large ones, or all from the slot of one on."""
    is_waiting = next_read.logged & (next_read.slots >= read_until)
    found = _are_too_large(queue, conf, version) & is_waiting
    if version < TIMER_PASSES_OVER and found.any():
        found = is_waiting & (next_read.slots >= next_read.slots[found].min())
    return found


def _are_too_large(queue: TimerQueue, conf: BrokerConf, version: Version) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = queue.message_sizes > timer_buffer(queue, conf, version)
    return found
