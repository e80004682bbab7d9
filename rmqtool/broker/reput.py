"""Dispatch of what the queues lack, which brokers from 4.5.1 to 4.9.8 wait for (`ReputMessageService#doReput`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.broker.queue_dispatch import Dispatching
from rmqtool.broker.record_parser import parse_at
from rmqtool.rules.recovery import RecoveryRules


def reput(
    dispatching: Dispatching, files: Sequence[MappedFile], start: int, stop: int, file_size: int, rules: RecoveryRules
) -> str | None:
    """Dispatch from physical offset `start` to before `stop`; why the broker would wait for ever, else None.

    No CRC counts here. What is no record ends a file, not the log.
    """
    rules = replace(rules, check_crc=False)
    position = start
    while position < stop:
        mapped = file_at(files, position)
        if mapped is None:
            return f"no file holds the commit log at offset {position}, and the start waits until it is dispatched"
        limit = min(mapped.size, stop - mapped.start_offset)
        walk = dispatching.run_file(mapped, rules, position - mapped.start_offset, limit)
        position = mapped.start_offset + walk.end
        if walk.outcome == "next":
            position += file_size - position % file_size
        elif walk.end < limit:
            position = mapped.start_offset + _behind_bad_record(mapped, walk.end, limit, rules)
    return None


def _behind_bad_record(mapped: MappedFile, position: int, limit: int, rules: RecoveryRules) -> int:
    with InputFile(mapped.path) as file:
        parsed = parse_at(file, position, rules, check_crc=False)
    return min(limit, position + parsed.size) if parsed.size > 0 else limit
