"""Index files of another log, as after a wrong restore: they prove nothing about this one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.formats.index_file import UNIT_DTYPE, UNIT_SIZE, unit_position
from rmqtool.formats.layout import decode_units
from rmqtool.store.commit_log import log_start
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.snapshot import Snapshot

_TRIED = 32  # units of a file, the first and the last ones among them
_MOST_READ = 1 << 16  # units


def index_of_another_log(snapshot: Snapshot) -> frozenset[Path]:
    """The index files that lead past the end of the log and are of another one; they are looked for once.

    None of their units leads to a message with its key, and either such a unit leads to a message with other keys, or
    the newest message of the file is older than the first one of this log.
    """
    if index_of_another_log not in snapshot.kept:
        snapshot.kept[index_of_another_log] = _of_another_log(snapshot)
    found: frozenset[Path] = snapshot.kept[index_of_another_log]
    return found


def _of_another_log(snapshot: Snapshot) -> frozenset[Path]:
    files = snapshot.log.files
    try:
        log_range = snapshot.log_range
    except UnreadableError:
        return frozenset()  # of a log that cannot be read nothing shows it
    end, first_time = log_range.max_offset, log_range.first_store_timestamp
    beyond = [each for each in snapshot.index_geometries if each[0].keys and each[0].end_physical_offset >= end]
    if not files or first_time is None or not beyond:
        return frozenset()
    rules = DispatchRules.of_snapshot(snapshot)
    lookups = Lookups(files, Dispatcher(rules, snapshot.topics.with_batch_queues))
    start = log_start(files)
    found: set[Path] = set()
    for file, geometry in snapshot.index_geometries:
        if not file.keys or geometry is None:
            continue
        hits, contradictions = _tried(file, geometry, (start, end), lookups)
        is_older = file.end_timestamp < first_time and file.end_physical_offset >= start
        # Without a unit that leads into this log a file is of the log whose index goes on in it.
        goes_on = file.begin_physical_offset >= end and bool(found)
        if not hits and (contradictions or is_older or goes_on):
            found.add(file.path)
        elif hits:
            found.clear()  # what follows goes on from here
    return frozenset(found & {file.path for file, _ in beyond})


def _tried(file: IndexFile, geometry: Geometry, within: tuple[int, int], lookups: Lookups) -> tuple[int, int]:
    """How many tried units lead to a message with their key, and how many to a message with other keys."""
    with InputFile(file.path) as opened:
        data = opened.read(unit_position(geometry.slots, 1), min(file.keys, _MOST_READ) * UNIT_SIZE)
    units = decode_units(UNIT_DTYPE, data[: len(data) // UNIT_SIZE * UNIT_SIZE])
    inside = np.flatnonzero((units["physical_offset"] >= within[0]) & (units["physical_offset"] < within[1]))
    hits = contradictions = 0
    for row in _spread(inside):
        try:
            hashes = lookups.hashes_at(int(units["physical_offset"][row]))
        except UnreadableError:
            return 1, 0  # who knows what is there
        hits += hashes is not None and int(units["key_hash"][row]) in hashes
        contradictions += hashes is not None and int(units["key_hash"][row]) not in hashes
    return hits, contradictions


def _spread(rows: NDArray[np.intp]) -> list[int]:
    """Some of the rows, spread evenly."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, _TRIED).astype(int))].tolist() if len(rows) else []
