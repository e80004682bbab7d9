"""The log's files without what follows its new end, the index without its keys, and a checkpoint that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import InputFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.copy.identity import epochs_before
from rmqtool.cut.place import Place
from rmqtool.cut.queues import required_name
from rmqtool.formats.index_file import (
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    IndexHeader,
    file_size,
    unit_position,
)
from rmqtool.formats.layout import build
from rmqtool.repair.change import Change, FileChange, Resized, TakenOut
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file
from rmqtool.store.dledger_node import EPOCH_FILE
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.lock import has_abort
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT

_INDEX_TIME = "index_message_timestamp"
_OFFSET = "logics_physical_offset"
_PIECE = 1 << 20  # units


def log_changes(snapshot: Snapshot, place: Place) -> Iterator[Change]:
    """The file that the log ends in, and those after it; what is behind the end of a file may come back otherwise."""
    store = snapshot.store
    for file in snapshot.log.files:
        if file.start_offset < place.offset < file.end_offset and _has_more(
            file.path, place.offset - file.start_offset
        ):
            name = required_name(store, file.path)
            yield Resized(
                codes=frozenset(), what=f"{name}: zeros from {place.offset} on", name=name, path=file.path,
                kept=place.offset - file.start_offset, new_size=file.size,
            )  # fmt: skip
    gone = tuple(required_name(store, file.path) for file in snapshot.log.files if file.start_offset >= place.offset)
    if gone:
        yield TakenOut(codes=frozenset(), what=f"log files after {place.offset}", details=gone)


def _has_more(path: Path, position: int) -> bool:
    with InputFile(path) as file:
        return file.next_data(position, file.size) < file.size


@dataclass(frozen=True)
class CutIndex:
    """The index as it is then: how many keys go, when the last message that stays was stored, and the changes."""

    keys: int
    end_timestamp: int
    changes: tuple[Change, ...]


def cut_index(snapshot: Snapshot, place: Place) -> CutIndex:
    """The index files without units of messages at an offset or after it; raises UnsupportedError for unknown forms."""
    keys, changes, end = 0, list[Change](), 0
    lookups = Lookups(snapshot.log.files, Dispatcher(DispatchRules.of_snapshot(snapshot)))
    for file, geometry in snapshot.index_geometries:
        name = required_name(snapshot.store, file.path)
        if file.keys <= 0 or file.end_physical_offset < place.offset:
            end = max(end, file.end_timestamp if file.keys > 0 else 0)
            continue
        if geometry is None:
            raise UnsupportedError("the geometry of the index file is not known: it cannot be cut", file=file.path,
                                   hint="give the broker's configuration with --broker-conf FILE")  # fmt: skip
        first = _first_unit(file, geometry, place.offset)
        keys += file.keys + 1 - first
        if first <= 1:
            changes.append(TakenOut(codes=frozenset(), what=f"{name}: no key is left", details=(name,)))
            continue
        change, end = _shorter(name, file, geometry, first, lookups)
        changes.append(change)
    return CutIndex(keys, end, tuple(changes))


def _first_unit(file: IndexFile, geometry: Geometry, offset: int) -> int:
    """The number of the first unit of a message at an offset or after it; units are numbered from 1 on."""
    with InputFile(file.path) as opened:
        for number in range(1, file.keys + 1, _PIECE):
            count = min(_PIECE, file.keys + 1 - number)
            data = opened.read(unit_position(geometry.slots, number), count * UNIT_SIZE)
            rows = np.flatnonzero(np.frombuffer(data, UNIT_DTYPE)["physical_offset"] >= offset)
            if len(rows):
                return number + int(rows[0])
    return file.keys + 1


def _shorter(name: str, file: IndexFile, geometry: Geometry, first: int, lookups: Lookups) -> tuple[Change, int]:
    """A file that ends before a unit: each chain of keys goes on with its newest unit that is left."""
    with InputFile(file.path) as opened:
        slots = np.frombuffer(opened.read(HEADER_SIZE, geometry.slots * SLOT_DTYPE.itemsize), SLOT_DTYPE).astype(
            np.int64
        )
        for slot in np.flatnonzero(slots >= first).tolist():
            unit = int(slots[slot])
            while unit >= first:
                raw = opened.read(unit_position(geometry.slots, unit), UNIT_SIZE).ljust(UNIT_SIZE, b"\0")
                before = int(np.frombuffer(raw, UNIT_DTYPE)[0]["previous"])
                unit = before if before < unit else 0
            slots[slot] = max(0, unit)
        head = np.frombuffer(opened.read(0, HEADER_SIZE), HEADER_DTYPE)[0]
        raw = opened.read(unit_position(geometry.slots, first - 1), UNIT_SIZE)
        last = np.frombuffer(raw, UNIT_DTYPE)[0]
    counts_puts = int(head["hash_slot_count"]) == file.keys  # before 4.7.1; or each key has a slot of its own
    stored = lookups.store_timestamp_at(int(last["physical_offset"]))
    end = stored if stored is not None else int(head["begin_timestamp"]) + 1000 * int(last["seconds_since_begin"])
    fields = {
        "begin_timestamp": int(head["begin_timestamp"]),
        "end_timestamp": end,
        "begin_physical_offset": int(head["begin_physical_offset"]),
        "end_physical_offset": int(last["physical_offset"]),
        "hash_slot_count": first - 1 if counts_puts else int((slots > 0).sum()),
        "index_count": first,
    }
    writes = [(0, build(IndexHeader, fields)), (HEADER_SIZE, slots.astype(SLOT_DTYPE).tobytes())]
    kept, size = unit_position(geometry.slots, first), file_size(geometry.slots, geometry.units)
    what = f"{name}: ends with key {first - 1}"
    change = Resized(codes=frozenset(), what=what, name=name, path=file.path, kept=kept, new_size=size, writes=writes)
    return change, end


def checkpoint_change(snapshot: Snapshot, place: Place, index_end: int) -> Iterator[Change]:
    """The checkpoint with no time and no offset after the new end; a start after a crash keeps the index by it."""
    before = snapshot.checkpoint
    if before is None:
        return
    fields = dict(before)
    for each in CHECKPOINT_TIMES:
        fields[each] = min(before.get(each, 0), place.last_store_timestamp)
    is_unclean = has_abort(snapshot.store.root)
    fields[_INDEX_TIME] = index_end if is_unclean else min(before.get(_INDEX_TIME, 0), index_end)
    for each in ("master_flushed_offset", "confirm_physical_offset"):
        fields[each] = min(before.get(each, 0), place.record_end)
    if before.get(_OFFSET, 0) > 0:
        fields[_OFFSET] = min(before[_OFFSET], place.last_record)
    if fields != before:
        what = f"{CHECKPOINT}: nothing after the message that was stored last"
        name = required_name(snapshot.store, snapshot.store.root / CHECKPOINT)
        yield FileChange(codes=frozenset(), what=what, name=name, content=checkpoint_file(fields))


def epoch_changes(snapshot: Snapshot, place: Place) -> Iterator[Change]:
    """The terms of masters without those that begin at the new end or after it."""
    for name in (EPOCH_FILE, f"{EPOCH_FILE}.bak"):
        found = epochs_before(snapshot.store.root / name, place.offset)
        if found is not None:
            yield FileChange(codes=frozenset(), what=f"{name}: no term after {place.offset}", name=name,
                             content=found or None)  # fmt: skip
