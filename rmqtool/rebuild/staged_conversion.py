"""Stages what a conversion changes beside the queues that the log gives; see `conversion.py`."""

from __future__ import annotations

from collections.abc import Callable
from shutil import rmtree

import numpy as np

from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rebuild.conversion import CarriedQueue, Conversion
from rmqtool.rebuild.existing import pre_blank_units
from rmqtool.rebuild.options import directory_of, queue_file_name
from rmqtool.rebuild.sinks import FileGrid
from rmqtool.rebuild.source import RebuildSource
from rmqtool.rebuild.staged import stage_database, write_database
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE
from rmqtool.transaction import Transaction
from rmqtool.transaction.paths import parents_of

_NO_COMPACTED_OFFSET = -1  # BatchConsumeQueue.INVALID_POS


def stage_config(conversion: Conversion, transaction: Transaction) -> None:
    """Stage topics, groups and offsets in their new form; `put_config` puts them."""
    for name, content in conversion.files.items():
        transaction.file(f"{CONFIG}/{name}").write(content, 0)
    if not conversion.databases:
        return
    with transaction.scratch() as scratch:
        for name, families in conversion.databases.items():
            directory = scratch / name
            directory.mkdir()
            write_database(directory, families)
            stage_database(transaction, directory, f"{CONFIG}/{name}")
            rmtree(directory)


def put_config(conversion: Conversion, transaction: Transaction) -> None:
    """Put the new form in place, and take the old one out."""
    for name in [*conversion.files, *conversion.databases]:
        transaction.put(f"{CONFIG}/{name}")
    for name in conversion.removed:
        if name.startswith(f"{CONFIG}/"):
            transaction.remove(name)


def put_queues(
    source: RebuildSource,
    conversion: Conversion,
    names: list[str],
    transaction: Transaction,
    put: Callable[[list[str]], None],
) -> None:
    """Put the queues that are staged as `names`, and take those of the other place out; `put` is for single files."""
    tops = _replaced(source, conversion, names, transaction)
    for name in conversion.removed:
        if not name.startswith(f"{CONFIG}/") and name.partition("/")[0] not in tops:
            transaction.remove(name)
    root = source.snapshot.store.root
    stale = {name for queue in conversion.carried if (root / (name := directory_of(queue.name, queue.kind))).exists()}
    for name in sorted(tops | {name for name in stale if conversion.target == "files" and not _is_below(name, tops)}):
        transaction.put(name)
    put([name for name in names if not _is_below(name, tops | stale)])


def _is_below(name: str, directories: set[str]) -> bool:
    return any(above in directories for above in parents_of(name))


def _replaced(source: RebuildSource, conversion: Conversion, names: list[str], transaction: Transaction) -> set[str]:
    """The directories of the store that are exchanged as a whole: nothing of what they held stays."""
    if conversion.target == "rocksdb":
        database = source.places.database.name
        return {database} if any(name.startswith(f"{database}/") for name in names) else set()
    if not conversion.replaces_queues:
        return set()
    transaction.directory(CONSUME_QUEUE)  # which may stay empty
    root = source.snapshot.store.root
    if any(name.startswith(f"{BATCH_CONSUME_QUEUE}/") for name in names) or (root / BATCH_CONSUME_QUEUE).is_dir():
        transaction.directory(BATCH_CONSUME_QUEUE)
        return {CONSUME_QUEUE, BATCH_CONSUME_QUEUE}
    return {CONSUME_QUEUE}


def stage_ends(source: RebuildSource, conversion: Conversion, transaction: Transaction) -> list[str]:
    """Stage the last file of each queue whose end is carried over; the names of the files."""
    if conversion.target == "rocksdb":
        return []
    return [_stage_end(source, queue, transaction) for queue in conversion.carried]


def end_size(source: RebuildSource, conversion: Conversion) -> int:
    """Bytes that the files of carried queues take."""
    if conversion.target == "rocksdb":
        return 0
    return sum(source.existing[queue.kind].grid.file_size for queue in conversion.carried)


def _stage_end(source: RebuildSource, queue: CarriedQueue, transaction: Transaction) -> str:
    """A queue that ends with a unit below the log: filler stands in front of it, as before a broker's first unit.

    The last unit is no filler, for a broker takes its physical offset for the end of what was dispatched.
    """
    grid: FileGrid = source.existing[queue.kind].grid
    if queue.kind == "batch":
        start, units = 0, _batch_end(source, queue)
    else:
        number = queue.last.queue_offset
        start = grid.start_of(number)
        units = pre_blank_units(number - grid.first_unit(start) + 1).view(consume_queue.UNIT_DTYPE)
        units[-1] = (queue.last.physical_offset, _size_of_last(source, queue), 0)
    name = queue_file_name(queue.name, queue.kind, start)
    transaction.file(name, size=grid.file_size).write(units.tobytes(), 0)
    return name


def _batch_end(source: RebuildSource, queue: CarriedQueue) -> np.ndarray:
    units = np.zeros(1, batch_consume_queue.UNIT_DTYPE)
    units["physical_offset"], units["message_size"] = queue.last.physical_offset, _size_of_last(source, queue)
    units["base_queue_offset"], units["batch_size"] = queue.last.queue_offset, 1
    units["compacted_offset"] = _NO_COMPACTED_OFFSET
    return units


def _size_of_last(source: RebuildSource, queue: CarriedQueue) -> int:
    """The size in the last unit's row, or where a compaction took the row the least that ends before the log."""
    rows = source.rows.rows(queue.name, queue.last.queue_offset, queue.last.queue_offset + 1).values
    if len(rows):
        return int(rows["message_size"][0])
    return max(1, min(MIN_MESSAGE_SIZE, source.snapshot.log_min_offset - queue.last.physical_offset))
