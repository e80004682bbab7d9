"""Compacted queues put right: an interrupted replacement of their files ended, units written again from the log.

The files of units that a real 5.5.0 has written are byte for byte those that are made of its log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import read_all
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.broker.copied_records import judged_records
from rmqtool.findings.finding import Finding, counted
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, is_batch_written
from rmqtool.formats.file_name import file_name
from rmqtool.repair.change import (
    KEPT,
    Change,
    FileChange,
    Patched,
    Resized,
    TakenOut,
    codes_of,
    name_in_store,
    names_in_store,
)
from rmqtool.store.compaction import (
    DELETED,
    WORKING,
    CompactedQueue,
    LogRecords,
    file_sizes,
    list_compacted,
    read_records,
    replaced_names,
    stored_units,
    whole_copies,
)
from rmqtool.store.config_json import load_config
from rmqtool.store.paths import COMPACTION, COMPACTION_CHECKPOINT
from rmqtool.store.snapshot import Snapshot
from rmqtool.transaction.transaction import Transaction

FILES, UNIT, RECORD, POSITION = "compaction.files", "compaction.unit", "compaction.record", "compaction.position"
_OF_QUEUES = frozenset({FILES, UNIT, RECORD})


def compaction_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Change]:
    """The changes for compacted queues that findings above information name."""
    findings = [each for each in findings if each.details.get("cause") != "differs"]  # which people decide
    codes = codes_of(findings) & {*_OF_QUEUES, POSITION}
    if not codes:
        return []
    queues, strays = list_compacted(snapshot.store)
    changes = [*_taken_out(snapshot, strays, "that is not a queue")]
    sizes = file_sizes(snapshot.store, queues)
    named = {(each.topic, each.queue_id) for each in findings if each.code in _OF_QUEUES}
    for queue in queues:
        if (queue.topic, queue.queue_id) in named:
            changes += _QueueRepair(snapshot, queue, sizes).changes()
    return [*changes, *(_right_position(snapshot, findings) if POSITION in codes else ())]


def _taken_out(snapshot: Snapshot, paths: Iterable[Path], why: str, lost: str | None = None) -> Iterator[Change]:
    names = names_in_store(snapshot.store, paths)
    if names:
        what = f"{names[0] if len(names) == 1 else counted(len(names), 'entry|entries')} {why}: {KEPT}"
        yield TakenOut(codes=frozenset({FILES}), what=what, details=names, lost=lost)


def _right_position(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Change]:
    path = snapshot.store.root / COMPACTION / COMPACTION_CHECKPOINT
    name, content = name_in_store(snapshot.store, path), dict[str, Any](load_config(path).content)
    taken = {f"{each.topic}_{each.queue_id}" for each in findings if each.code == POSITION}
    content["queueOffsetMap"] = {key: at for key, at in content.get("queueOffsetMap", {}).items() if key not in taken}
    if name:
        what = f"{name}: without {', '.join(sorted(taken))}; the next compaction looks at all files again"
        yield FileChange(codes=frozenset({POSITION}), what=what, name=name, content=json.dumps(content).encode())


_LOST = "the contents of missing log files, unless they are restored first"


class _QueueRepair:
    """The changes for one queue."""

    def __init__(self, snapshot: Snapshot, queue: CompactedQueue, sizes: tuple[int, int]) -> None:
        self._snapshot, self._queue, self._sizes = snapshot, queue, sizes

    def changes(self) -> list[Change]:
        """Files of the log first, then records: units are judged again once the log is whole."""
        if filled := [*self._filled()]:
            return filled
        if patched := [*self._patched()]:
            return patched
        log, changes = self._ended_log()
        if any(file.size != self._sizes[0] for file in log):
            return []
        return [*changes, *self._ended_queue(log)]

    def _filled(self) -> Iterator[Change]:
        """Files of the log of another size: what is missing from the commit log, where units say what stood there."""
        size = self._sizes[0]
        for file, unit_file in self._queue.pairs if size else ():
            name = name_in_store(self._snapshot.store, file.path)
            if file.size in (0, size) or name is None:
                continue
            kept = min(read_records(self._queue, file.with_size(min(file.size, size))).end, file.start_offset + size)
            units = _units_of(unit_file)
            gone = units[is_batch_written(units) & (units["physical_offset"] >= kept)]
            copies = [*whole_copies(self._snapshot, self._queue, gone, [(kept, file.start_offset + size)])]
            what = f"{name} gets its size of {size} bytes"
            what += f", and {counted(len(copies), 'record')} from the commit log" if copies else ""
            lost = len(gone) - len(copies)
            yield Resized(
                codes=frozenset({FILES}), what=what, name=name, path=file.path, kept=kept - file.start_offset,
                new_size=size, writes=[(place - file.start_offset, data) for place, data in copies],
                lost=f"{counted(lost, 'message')} of {name}, unless it is restored first" if lost else None,
            )  # fmt: skip

    def _patched(self) -> Iterator[Change]:
        """Damaged records that the commit log has whole."""
        for file, unit_file in self._queue.pairs:
            stored = _units_of(unit_file)
            records = judged_records(self._snapshot, self._queue, file, stored)
            units = stored if unit_file else records.units
            writes = [(place - file.start_offset, data) for place, data in
                      whole_copies(self._snapshot, self._queue, units, records.to_mend)]  # fmt: skip
            if writes and (name := name_in_store(self._snapshot.store, file.path)):
                what = f"{name}: {counted(len(writes), 'record')} from the commit log"
                yield Patched(codes=frozenset({RECORD}), what=what, name=name, path=file.path, writes=writes)

    def _ended_log(self) -> tuple[list[MappedFile], list[Change]]:
        """The files that the log has once an interrupted replacement is ended or taken back, and the changes to it."""
        queue, directory = self._queue, self._queue.log_directory
        old = {int(name.removesuffix(DELETED)): directory / name for name in replaced_names(queue)[0]}
        waiting = list_mapped_files(directory / WORKING[0]).files
        log = {file.start_offset: file for file in queue.log.files}
        strays = [each.path for each in queue.log.strays if each.kind == "name" and each.path not in old.values()]
        strays += [directory / name for name in WORKING if (directory / name).is_dir()]
        changes: list[Change] = []
        if old and waiting:  # not all of the new files are there: the old ones count
            is_moved = waiting[0].start_offset > 0
            moved = [path for start, path in self._but_last(log) if is_moved and start not in old]
            strays += moved
            log = {start: file for start, file in log.items() if file.path not in moved}
            for start, path in old.items():
                log[start] = MappedFile(path, start, path.stat().st_size)
            changes += self._renamed_back(old)
        else:
            strays += old.values()
        changes += _taken_out(self._snapshot, strays, "of an interrupted compaction, or of no compacted log")
        return sorted(log.values(), key=lambda file: file.start_offset), changes

    def _but_last(self, log: dict[int, MappedFile]) -> Iterator[tuple[int, Path]]:
        """All files but the last, which no compaction replaces."""
        yield from ((start, file.path) for start, file in log.items() if start != max(log))

    def _renamed_back(self, old: dict[int, Path]) -> Iterator[Change]:
        names = [name_in_store(self._snapshot.store, path) for path in old.values()]
        known = [name for name in names if name]
        if len(known) == len(old):
            what = f"{counted(len(old), 'file')} of {self._queue.topic} queue {self._queue.queue_id} that a compaction "
            yield RenamedBack(codes=frozenset({FILES}), what=f"{what}was replacing: named as before",
                              details=tuple(known))  # fmt: skip

    def _ended_queue(self, log: Sequence[MappedFile]) -> Iterator[Change]:
        """The units of each file of the log, and no other files of units."""
        queue, size, directory = self._queue, self._sizes[1], self._queue.units_directory
        codes, by_start = frozenset({FILES, UNIT}), {file.start_offset: file for file in queue.units.files}
        for file in log:
            records = judged_records(self._snapshot, queue, file, _units_of(by_start.get(file.start_offset)))
            path = directory / file_name(file.start_offset)
            name = name_in_store(self._snapshot.store, path)
            if name is None or not size or len(records.built) > size or self._are_kept(records, path):
                continue
            content = records.built.ljust(size, b"\0")
            if not path.is_file() or read_all(path, size + 1) != content:
                what = f"{name}: {counted(len(records.units), 'entry')} written again from the compacted log"
                yield FileChange(codes=codes, what=what, name=name, content=content)
        starts = {file.start_offset for file in log}
        others = [file.path for file in queue.units.files if file.start_offset not in starts]
        others += [stray.path for stray in queue.units.strays if stray.path.name != WORKING[1]]
        is_gone = 0 not in starts or any(file.start_offset > max(starts) for file in queue.units.files)
        lost = _LOST if is_gone else None
        yield from _taken_out(self._snapshot, others, "of entries without a file of the log", lost if others else None)

    def _are_kept(self, records: LogRecords, path: Path) -> bool:
        """Whether units lead to damaged records, which are to be restored before."""
        return bool(records.damages) and path.is_file()


def _units_of(file: MappedFile | None) -> NDArray[np.void]:
    """All units of a file, written or not."""
    return stored_units(file) if file else np.zeros(0, BATCH_UNIT_DTYPE)


class RenamedBack(Change):
    """Files whose names, the `details`, end in ``.delete`` again without that."""

    def stage(self, transaction: Transaction) -> None:
        """Prepare the names as links."""
        for name in self.details:
            new = name.removesuffix(DELETED)
            transaction.link(new, name)
            transaction.put(new)
            transaction.remove(name)
