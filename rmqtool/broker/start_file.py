"""Where the recovery scan of a start begins (`CommitLog#recoverNormally`, `CommitLog#recoverAbnormally`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.record_parser import parse_at
from rmqtool.formats.layout import integer_at
from rmqtool.formats.message import HEADER_DTYPES, MAGIC_CODE_V1, MAGIC_CODE_V2, MAX_HEADER_SIZE, PREFIX_DTYPE
from rmqtool.formats.sys_flag import BORN_HOST_V6
from rmqtool.rules.recovery import RecoveryRules

Checkpoint = Mapping[str, int]

NORMAL_FILES = 3  # before 5.3.2 a clean start scans the last three
_MARGIN = 3000  # StoreCheckpoint#getMinTimestamp, ms


class Search(Protocol):
    """What else must be found, where the queues need not go beyond a file."""

    def ends_at(self, file: MappedFile) -> bool:
        """Whether the search ends at that file."""


def normal_start(
    files: Sequence[MappedFile],
    max_physical: int,
    checkpoint: Checkpoint,
    rules: RecoveryRules,
    extra: Search | None = None,
) -> int:
    """Index of the file where a clean start begins to scan; `max_physical` is that of all consume queues."""
    if not rules.dispatches_when_clean:
        return max(0, len(files) - NORMAL_FILES)
    file_number, left = len(files) - 1, rules.recovered_files
    while file_number > 0:
        left -= 1
        if rules.tries_first_records:
            is_found = _has_units(files[file_number], max_physical, checkpoint, rules)
            if is_found and (extra is None or extra.ends_at(files[file_number])):
                break
        elif files[file_number].start_offset <= max_physical:
            break
        if rules.limits_recovered_files and left <= 0:
            break
        file_number -= 1
    return file_number


def abnormal_start(
    files: Sequence[MappedFile],
    checkpoint: Checkpoint,
    rules: RecoveryRules,
    dispatched_end: int | None = None,
    extra: Search | None = None,
) -> int:
    """Index of the file where a start after a crash begins to scan.

    With queues in RocksDB `dispatched_end`, which stands in their database, decides instead of the checkpoint.
    """
    left = rules.recovered_files
    for file_number in reversed(range(len(files))):
        left -= 1
        if dispatched_end is None:
            is_old_enough = _is_old_enough(files[file_number], checkpoint, rules)
        else:
            is_old_enough = _has_units(files[file_number], dispatched_end, checkpoint, rules)
        is_old_enough = is_old_enough and (extra is None or extra.ends_at(files[file_number]))
        if is_old_enough or (rules.limits_recovered_files and left <= 0):
            return file_number
    return 0


def _has_units(mapped: MappedFile, max_physical: int, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    """Whether the file's first record is sound and not after the queues."""
    with InputFile(mapped.path) as file:
        first = parse_at(file, 0, rules, check_crc=rules.check_crc)
    if not first.is_record or first.store_timestamp == 0:
        return False
    if rules.index_safe and first.store_timestamp > checkpoint["index_message_timestamp"]:
        return False
    return first.physical_offset <= max_physical


def _is_old_enough(mapped: MappedFile, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    """`isMappedFileMatchedRecover`: whether all units of the file's first record were on disk at the checkpoint."""
    with InputFile(mapped.path) as file:
        if rules.tries_first_records:
            first = parse_at(file, 0, rules, check_crc=rules.check_crc)
            timestamp = first.store_timestamp if first.is_record else 0
            offset = first.physical_offset
        else:
            timestamp, offset = _first_timestamp(file, rules), 0
    if timestamp == 0:
        return False
    if rules.tries_first_records and rules.index_safe and timestamp > checkpoint["index_message_timestamp"]:
        return False
    if rules.starts_by_logics_offset:
        logics = checkpoint["logics_physical_offset"]
        return offset <= logics if logics > 0 else timestamp <= checkpoint["logics_message_timestamp"]
    return timestamp <= _limit(checkpoint, rules)


def _first_timestamp(file: InputFile, rules: RecoveryRules) -> int:
    """Store timestamp of the first record, of which only the magic code is checked; 0 without one."""
    head = file.read(0, MAX_HEADER_SIZE)
    magic_code = integer_at(PREFIX_DTYPE, "magic_code", head)
    if magic_code != MAGIC_CODE_V1 and not (magic_code == MAGIC_CODE_V2 and rules.knows_second_format):
        return 0
    bits = integer_at(PREFIX_DTYPE, "sys_flag", head) & BORN_HOST_V6 if rules.knows_ipv6 else 0
    return integer_at(HEADER_DTYPES[bits], "store_timestamp", head)


def _limit(checkpoint: Checkpoint, rules: RecoveryRules) -> int:
    times = checkpoint["physic_message_timestamp"], checkpoint["logics_message_timestamp"]
    limit = max(0, min(times) - _MARGIN)
    if rules.index_safe and not rules.tries_first_records:
        limit = min(limit, checkpoint["index_message_timestamp"])
    return limit
