"""Delay levels that the queues of SCHEDULE_TOPIC_XXXX tell, where broker.conf is not given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rmqtool.delay_levels import SCHEDULE_TOPIC, DelayLevels, delay_levels_of
from rmqtool.files import InputFile
from rmqtool.findings import Finding
from rmqtool.formats.consume_queue import UNIT_SIZE, decode_units, is_pre_blank, is_written
from rmqtool.mapped_files import MappedFile
from rmqtool.queues import Queue
from rmqtool.scan.lookup import record_at
from rmqtool.store import Store

_PROBED_UNITS = 16  # of each queue, the newest
_MOST_LEVELS = 1000
_LONGEST = 366 * 86_400_000  # ms; what 4.9.2 to 4.9.8 write in a recovery, a hash, is a delay of no length


def told_delay_levels(
    store: Store, queues: Iterable[Queue], log: Sequence[MappedFile]
) -> tuple[DelayLevels, list[Finding]]:
    """The levels that broker.conf sets; else the default ones, but for those that units tell otherwise."""
    levels = delay_levels_of(store.conf)
    if store.conf.text("messageDelayLevel") is not None:
        return levels, []
    told = dict(_told(queues, log))
    delays = list(levels.delays)
    delays += [delays[-1]] * (max(told, default=0) - len(delays))
    for level, delay in told.items():
        delays[level - 1] = delay
    if tuple(delays) == levels.delays:
        return levels, []
    return DelayLevels(tuple(delays)), [_finding(sorted(told))]


def _told(queues: Iterable[Queue], log: Sequence[MappedFile]) -> Iterator[tuple[int, int]]:
    """Level and delay, ms, of each queue whose newest units agree."""
    for queue in queues:
        if queue.kind == "simple" and queue.topic == SCHEDULE_TOPIC and queue.queue_id < _MOST_LEVELS:
            delays = set(_delays_of(queue, log))
            if len(delays) == 1 and 0 < min(delays) <= _LONGEST:
                yield queue.queue_id + 1, min(delays)


def _delays_of(queue: Queue, log: Sequence[MappedFile]) -> Iterator[int]:
    for mapped in reversed(queue.files.files[-2:]):
        with InputFile(mapped.path) as file:
            end = -(-file.data_end() // UNIT_SIZE)
            first = max(0, end - _PROBED_UNITS)
            units = decode_units(file.read(first * UNIT_SIZE, (end - first) * UNIT_SIZE))
        for unit in units[is_written(units) & ~is_pre_blank(units)]:
            record = record_at(log, int(unit["physical_offset"]))
            if record is not None:
                yield int(unit["tags_code"]) - int(record.headers.field("store_timestamp")[0])


def _finding(levels: Sequence[int]) -> Finding:
    shown = ", ".join(map(str, levels))
    return Finding(
        code="rebuild.delay-levels",
        severity="info",
        topic=SCHEDULE_TOPIC,
        queue_id=levels[0] - 1,
        message=f"units tell other delays than the default ones (levels {shown}): theirs are taken; "
        "if broker.conf sets messageDelayLevel, give it with --broker-conf",
        effect="delivers messages of a level whose delay is wrong too early or too late",
    )
