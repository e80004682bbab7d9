"""From the log to the queues: each record that the broker dispatches has its unit, where it belongs.

Runs of units that a queue should hold are compared as bytes with what it holds. Only where they differ is a closer
look taken, unit by unit where it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.limits import memory_is_short
from rmqtool.dispatch.units import QueueName, QueueUnits, group
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.places import CONSUME_QUEUE_EXT
from rmqtool.queues import Kind, Queue
from rmqtool.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, relative_to
from rmqtool.verify.extents import Extents
from rmqtool.verify.open_files import OpenFiles
from rmqtool.verify.queue_files import QueueFiles, files_in
from rmqtool.verify.queue_state import MAX_PLACES, MOST_LOOKS, QueueState, tell_jump
from rmqtool.verify.report import Report
from rmqtool.verify.unit_differences import differences
from rmqtool.verify.unread import Unread

BATCH = (32 if memory_is_short() else 256) << 10
"""Units that are gathered before they are compared: small enough for the cache, enough for each of many queues."""

_UNITS_PER_QUEUE = 256
_MOST = (128 if memory_is_short() else 1024) << 10
_DIRECTORIES: dict[Kind, str] = {"simple": CONSUME_QUEUE, "batch": BATCH_CONSUME_QUEUE}
_NAME_MAX = 255

QueuesOf = Callable[[int], Mapping[QueueName, int]]
"""The queues of the record that begins at a physical offset, and its offset in each; none when none begins there."""


FoundQueues = dict[tuple[Kind, QueueName], QueueFiles | None]
"""The files of the queues that were asked for; None for one that has none."""


class QueueCheck:
    """Compares the units of one part of the log, in log order."""

    def __init__(
        self, root: Path, report: Report, extents: Extents, open_files: OpenFiles, queues_of: QueuesOf,
        is_batch: Callable[[str], bool], live: bool, found: FoundQueues, unread: Unread | None = None,
    ) -> None:  # fmt: skip
        """`found` keeps the files of each queue from part to part."""
        self.states: dict[QueueName, QueueState] = {}
        self._root = root
        self._report = report
        self._extents = extents
        self._open = open_files
        self._queues_of = queues_of
        self._is_batch = is_batch
        self._live = live
        self._found = found
        self._unread = unread
        self._parts: list[QueueUnits] = []
        self._waiting = 0
        self._queues: dict[int, _OneQueue] = {}

    def add(self, units: QueueUnits, names: Sequence[QueueName]) -> None:
        """Take the units of a run; `names` are the queues by number."""
        if not len(units):
            return
        self._parts.append(units)
        self._waiting += len(units)
        if self._waiting >= min(max(BATCH, _UNITS_PER_QUEUE * len(names)), _MOST):
            self.flush(names)

    def flush(self, names: Sequence[QueueName]) -> None:
        """Compare what was taken."""
        if not self._parts:
            return
        units = QueueUnits.concatenate(self._parts)
        self._parts, self._waiting = [], 0
        order, bounds = group(units.queues)
        stored = units.as_consume_queue().view("V20").take(order)
        self._report.check("consumequeue.missing-unit", len(units))
        offsets = units.queue_offsets.take(order)
        nexts = offsets + units.batch_sizes.take(order)
        follows = np.zeros(len(units), dtype=np.bool_)
        follows[1:] = offsets[1:] == nexts[:-1]
        follows[bounds[:-1]] = False
        broken = np.flatnonzero(~follows)
        numbers = units.queues[order[bounds[:-1]]].tolist()
        for number, low, high in zip(numbers, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            first, last = np.searchsorted(broken, (low, high))
            borders = broken[first:last].tolist()  # the group's own beginning is always one
            name, unread = names[number], self._unread
            if unread is None or self._live:
                self._take(number, name, borders, high, units, order, stored)
            elif name not in unread.queues:
                with unread.queue(name):
                    self._take(number, name, borders, high, units, order, stored)
                if name in unread.queues:
                    self.states.pop(name, None)

    def _take(
        self, number: int, name: QueueName, borders: list[int], end: int, units: QueueUnits, order: NDArray[np.intp],
        stored: NDArray[np.void],
    ) -> None:  # fmt: skip
        """Compare the units of one queue; a new run of queue offsets begins at each border."""
        queue = self._queue(number, name)
        for start, stop in zip(borders, [*borders[1:], end], strict=True):
            queue.take(units, order[start:stop], stored[start:stop].tobytes())

    def _queue(self, number: int, name: QueueName) -> _OneQueue:
        queue = self._queues.get(number)
        if queue is None:
            files, state = self._files_of(name), self.states.setdefault(name, QueueState(name))
            queue = _OneQueue(state, files, self._report, self._extents, self._queues_of, self._root)
            self._queues[number] = queue
        return queue

    def _files_of(self, name: QueueName) -> QueueFiles | None:
        if not is_directory_name(name.topic) or name.queue_id < 0:
            return None
        kind: Kind = "batch" if self._is_batch(name.topic) else "simple"
        if (kind, name) not in self._found:
            files = files_in(self._root / _DIRECTORIES[kind] / name.topic / str(name.queue_id))
            queue = Queue(name.topic, name.queue_id, kind, files)
            self._found[kind, name] = QueueFiles(queue, self._open, self._live) if files.files else None
        return self._found[kind, name]


def is_directory_name(topic: str) -> bool:
    """Whether a topic from the log can be a directory of its own: what is stored must not lead elsewhere."""
    usable = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return usable and len(topic.encode("utf-8", "replace")) <= _NAME_MAX


class _OneQueue:
    """Compares the units of one queue; `shift` is how far its unit numbers are from the queue offsets now."""

    def __init__(
        self, state: QueueState, files: QueueFiles | None, report: Report, extents: Extents, queues_of: QueuesOf,
        root: Path,
    ) -> None:  # fmt: skip
        self.state = state
        self._root = root
        self._files = files
        self._report = report
        self._extents = extents
        self._queues_of = queues_of
        self._has_ext_files = (root / CONSUME_QUEUE_EXT).is_dir()
        self._shift = 0
        self._looks = 0
        self._next: int | None = None  # of a batch queue: number of the next unit

    def take(self, units: QueueUnits, rows: NDArray[np.intp], stored: bytes) -> None:
        """Compare the units `rows`, whose queue offsets follow each other; `stored` is what a simple queue holds."""
        state, files = self.state, self._files
        first, last = int(rows[0]), int(rows[-1])
        offset, physical_offset = int(units.queue_offsets[first]), int(units.physical_offsets[first])
        if not state.records:
            state.first_offset = state.next_offset = offset
            state.first_physical_offset = physical_offset
        state.records += len(rows)
        tell_jump(state, offset, physical_offset, self._report, self._extents)
        state.next_offset = int(units.queue_offsets[last]) + int(units.batch_sizes[last])
        state.last_physical_offset = int(units.physical_offsets[last])
        if files is None:
            self._lack("consumequeue.missing-queue", units[rows[:MAX_PLACES]], len(rows))
        elif files.queue.kind == "batch":
            run = units[rows]
            self._compare(files, run, run.as_batch_consume_queue().tobytes())
        elif files.read(offset + self._shift, len(rows)) == stored:
            self._prove(offset + self._shift, offset + self._shift + len(rows))
        else:
            self._compare(files, units[rows], stored)

    def _compare(self, files: QueueFiles, units: QueueUnits, expected: bytes) -> None:
        done = 0
        while done < len(units):
            number = self._number_of(files, units, done)
            count, at = len(units) - done, done * files.size
            if files.read(number, count) == expected[at:]:
                self._prove(number, number + count)
                return
            done += self._look(files, units[done:], np.frombuffer(expected[at:], files.dtype), number)

    def _number_of(self, files: QueueFiles, units: QueueUnits, row: int) -> int:
        """Where the unit of a record should be; of a batch queue behind the unit of the record before."""
        if files.queue.kind == "simple":
            return int(units.queue_offsets[row]) + self._shift
        if self._next is None:
            self._next = files.find_from(int(units.physical_offsets[row]))
        return self._next

    def _prove(self, start: int, stop: int) -> None:
        self.state.prove(start, stop)
        self._next = stop
        if self._shift:
            place: dict[str, Any] = {"topic": self.state.name.topic, "queue_id": self.state.name.queue_id}
            side = "before" if self._shift < 0 else "behind"
            units = "1 unit stands" if stop - start == 1 else f"{stop - start} units stand"
            message = f"{units} {abs(self._shift)} {side} the queue offset"
            self._report.add("consumequeue.shifted", message, count=stop - start, queue_offset=start, **place)

    def _look(self, files: QueueFiles, units: QueueUnits, expected: NDArray[np.void], number: int) -> int:
        """Compare from unit `number` on; how many records are through, none when their units stand elsewhere."""
        _ = files.written_stop  # before the units are read: what was written by then must be there
        found = files.units(number, len(units))
        width = f"V{files.size}"
        same = found.view(width) == expected.view(width)
        row = int(np.argmin(same))
        if row:
            self._prove(number, number + row)
            return row
        same_place = (found["physical_offset"] == expected["physical_offset"]) & (found["message_size"] > 0)
        wrong = ~same_place & files.is_written(found)
        if self._looks >= MOST_LOOKS and wrong[0]:
            return self._give_up(_stretch(wrong), number)
        if same_place[0]:
            stop = _stretch(same_place & ~same)
            self._differ(units[:stop], found[:stop], number)
            self._next = number + stop
            return stop
        moved = files.find(int(units.physical_offsets[0]))
        if moved is not None and moved != number:
            # Batch units follow each other, whatever records between them cannot be read.
            self._shift = moved - int(units.queue_offsets[0]) if files.queue.kind == "simple" else 0
            self._next = moved
            return 0
        return self._absent(files, units, found, number)

    def _give_up(self, count: int, number: int) -> int:
        """Of another store all units are wrong: they are counted, not looked up."""
        self._report.count("consumequeue.wrong-record", count)
        self.state.prove(number, number + count)
        self._next = number + count
        return count

    def _differ(self, units: QueueUnits, found: NDArray[np.void], number: int) -> None:
        """Units that point to the right record and tell something else of it."""
        self.state.prove(number, number + len(units))
        for row, code, message, severity in differences(units, found, self._has_ext_files):
            self._tell(code, message, units, row, number + row, severity=severity)

    def _absent(self, files: QueueFiles, units: QueueUnits, found: NDArray[np.void], number: int) -> int:
        """Records whose unit is nowhere in the queue; how many are alike."""
        numbers = number + np.arange(len(units))
        simple = files.queue.kind == "simple"
        blank = is_pre_blank(found) if simple else np.zeros(len(found), dtype=np.bool_)
        unwritten = ~files.is_written(found)
        beyond = numbers >= files.written_stop
        for code, rows in (
            ("consumequeue.behind", beyond),
            ("consumequeue.missing-unit", (numbers < files.start) | blank),
            ("consumequeue.hole", unwritten & ~beyond),
        ):
            if rows[0]:
                count = _stretch(rows)
                self._lack(code, units[:count])
                if code == "consumequeue.hole":
                    self.state.prove(number, number + count)
                return count
        if simple:
            self._mismatch(units, found, number)
        else:
            self._lack("consumequeue.missing-unit", units[:1])
        return 1

    def _mismatch(self, units: QueueUnits, found: NDArray[np.void], number: int) -> None:
        """The unit in a record's place points elsewhere."""
        self._looks += 1
        target = int(found["physical_offset"][0])
        if self.state.name in self._queues_of(target):
            return  # two records with this queue offset: told as a restart of the queue's offsets
        message = f"points to physical offset {target}, its message is at {int(units.physical_offsets[0])}"
        self._tell("consumequeue.wrong-record", message, units, 0, number)
        self.state.prove(number, number + 1)

    def _lack(self, code: str, units: QueueUnits, count: int | None = None) -> None:
        offsets = zip(
            units.queue_offsets[:MAX_PLACES].tolist(), units.physical_offsets[:MAX_PLACES].tolist(), strict=True
        )
        self.state.lack(code, list(offsets), len(units) if count is None else count)

    def _tell(self, code: str, message: str | None, units: QueueUnits, row: int, number: int, **details: Any) -> None:
        name = self.state.name
        if not self._report.wants_example(code) or self._files is None:
            self._report.count(code, 1)
            return
        path, position = self._files.place_of(number)
        file = None if path is None else relative_to(path, self._root)
        self._report.add(code, message or "", file=file, offset=position, topic=name.topic, queue_id=name.queue_id,
                         queue_offset=int(units.queue_offsets[row]), **details)  # fmt: skip


def _stretch(rows: NDArray[np.bool_]) -> int:
    """How many of the first rows are true."""
    return len(rows) if rows.all() else int(np.argmin(rows))
