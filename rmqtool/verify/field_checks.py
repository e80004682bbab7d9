"""Records with a damaged field: units and keys that differ from them are judged once the whole log was read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, starmap

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import FieldDamage, FieldJudge, Suspects, SuspectUnit, suspect_of
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.formats.properties import TAGS
from rmqtool.rules.versions import Releases, forgets_light_offsets
from rmqtool.store.consume_queues import Queue
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import UnitFiles, units_of
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.task import StoreReader

_MOST_UNITS = 64  # of the index that fit no message: more, and it is that of another log, and no witness
_SIGNS = frozenset(
    {
        *("commitlog.queue-offset-gap", "commitlog.queue-offset-restart", "commitlog.sys-flag"),
        *("commitlog.properties", "commitlog.property-crc", "consumequeue.wrong-record", "consumequeue.shifted"),
    }
)
"""Codes of which a damaged field may be the cause."""

_INDEX_CODES = frozenset({"index.geometry", "index.header"})
"""Codes after which the index is no witness."""


def damaged_fields(snapshot: Snapshot, reader: StoreReader, total: PartResult) -> list[FieldDamage]:
    """The damaged fields of the log's records, as queues and index prove them."""
    counts = total.report.all_totals()
    suspects = total.suspects
    is_of_another_log = counts.get("index.unit", 0) > _MOST_UNITS
    suspects.drop_doubted()
    started = [state for state in total.states.values() if state.begun or state.repeated]
    if len(started) == 1 and not started[0].repeated:  # a start lets all light queues begin again
        _add_zero(started[0], started[0].begun or [], snapshot.releases, suspects)
    if is_of_another_log or _INDEX_CODES & {code for code, count in counts.items() if count}:
        suspects.keys.clear()
    with_signs = suspects or any(counts.get(code) for code in _SIGNS) or any(
        state.missing for state in total.states.values()
    )  # fmt: skip
    if not with_signs:
        return []
    if reader.task.queues:
        for queue in snapshot.queues:
            _add_unmatched(queue, reader, total)
    return judged_fields(snapshot, reader, suspects, total)


def _add_zero(
    state: QueueProgress, begun: Sequence[tuple[int, SuspectUnit]], releases: Releases, suspects: Suspects
) -> None:
    """Note the only message with offset 0 at the end of a light queue, unless it may be the last one, after a start."""
    for physical_offset, unit in begun if len(begun) == 1 else ():
        is_last = state.next_offset == unit.queue_offset + 1
        if not (is_last and releases.where(forgets_light_offsets)):
            suspects.add_unit(physical_offset, unit)


def judged_fields(snapshot: Snapshot, reader: StoreReader, suspects: Suspects, total: PartResult) -> list[FieldDamage]:
    """Those of the suspects whose fields are damaged; queues, configuration and the log know topics."""
    if not suspects:
        return []
    raw = Dispatcher(reader.task.rules, reader.task.batch_topics, None, reader.task.plain_topics)
    topics = (
        {queue.topic for queue in snapshot.queues} | {*snapshot.topics.by_name} | {name.topic for name in total.states}
    )
    places, has_tags = _places(snapshot, reader), reader.task.tags_expected
    return FieldJudge(reader.files, raw, places, topics, has_tags=has_tags).damages(suspects)


def note_fields(damages: Sequence[FieldDamage], total: PartResult, report: Report) -> None:
    """Report records with a damaged field, by which keys cannot be found."""
    total.damages = damages
    total.keys.fields = [
        (each.physical_offset, key) for each in damages if each.field != TAGS for key in each.key_hashes
    ]
    total.keys.renamed = array("q", (each.physical_offset for each in damages for _ in range(each.renamed_keys)))
    for damage in damages:
        report.add("commitlog.field", **damage.facts)


def _add_unmatched(queue: Queue, reader: StoreReader, total: PartResult) -> None:
    """Note the units of one queue that match no record, and point to one."""
    name, log_end = QueueName(queue.topic, queue.queue_id), reader.files[-1].end_offset if reader.files else 0
    state = total.states.get(name)
    try:
        files = units_of(queue, reader.open_files, reader.log_start)
        rest = [(files.start, files.data_end)] if state is None else state.unproven(files.start, files.data_end)
        for numbers, units in chain.from_iterable(starmap(files.written, rest)):
            offsets = units["physical_offset"]
            rows = (offsets >= max(reader.log_start, 0)) & (offsets < log_end)
            if queue.kind == "simple":
                rows &= ~is_pre_blank(units)
            for row in np.flatnonzero(rows).tolist():
                if total.suspects.is_full:
                    return
                total.suspects.add_unit(int(offsets[row]), suspect_of(name, int(numbers[row]), units[row]))
    except UnreadableError:
        return  # which has its own finding


def _places(snapshot: Snapshot, reader: StoreReader) -> Callable[[QueueName, int], int | None]:
    """The physical offset in the unit of a queue and a queue offset, None without one, as a function."""

    @cache
    def units_in(name: QueueName) -> UnitFiles | None:
        queue = next((each for each in snapshot.queues if (each.topic, each.queue_id) == name), None)
        return None if queue is None else units_of(queue, reader.open_files, reader.log_start)

    def physical_offset(name: QueueName, queue_offset: int) -> int | None:
        files = units_in(name)
        if files is None or not files.start <= queue_offset < files.data_end or files.queue.kind == "batch":
            return None
        unit = files.units(queue_offset, 1)
        return int(unit["physical_offset"][0]) if files.is_written(unit)[0] else None

    return physical_offset
