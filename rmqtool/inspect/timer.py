"""Timer wheel, timer log and timer check (`TimerWheel`, `TimerLog`, `TimerCheckpoint`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats import timer_log, timer_wheel
from rmqtool.formats.java import string_hash
from rmqtool.inspect.locate import Location, require_kind
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_blocks import all_of, hex_of, read_units
from rmqtool.scan.filters import Mask
from rmqtool.scan.rows import Rows, make_rows, names_taken, times_of
from rmqtool.scan.text import constant_strings
from rmqtool.store.paths import TIMER_LOG
from rmqtool.store.timer_wheel import precision_of, used_slots

_KINDS = ("bad_unit", "timer_unit", "timer_blank")
_UNIT, _BLANK = 1, 2
_LARGEST = (1 << 63) - 1


def list_wheel(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The slots that have a time; `in_place` when the time belongs in this slot. Slots are never cleared."""
    log = list_mapped_files(location.root / TIMER_LOG, scope=skip_unreadable)
    for mapped in location.files:
        require_kind(mapped.path, "timerwheel")
        precision = precision_of(partial(used_slots, mapped.path, options.reading), log, options.conf, options.reading)
        for block in read_units(mapped, timer_wheel.SLOT_DTYPE, options.reading, reverse=options.reverse):
            used = block.units["time"] != 0
            slots, slot_indexes = block.units[used], block.indices[used]
            times = slots["time"].astype(np.int64)
            due = pa.array(times * precision, mask=np.abs(times) > _LARGEST // precision)
            columns: dict[str, Any] = {
                "file": constant_strings(location.relative(mapped.path), len(slots)),
                "slot": slot_indexes,
                "time": times,
                "due_timestamp": due,
                "due_time": times_of(due),
                **{name: slots[name] for name in ("first_position", "last_position", "count", "magic")},
                "in_place": times % timer_wheel.WHEEL_SLOTS == slot_indexes,
            }
            if options.with_hex:
                columns["hex"] = hex_of(slots)
            kept = options.filters.in_time(np.asarray(due.fill_null(_LARGEST)))
            yield make_rows("timer_slot", columns).filter(kept, reverse=options.reverse)


def list_timer_log(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of the timer log; one that the broker would not take for a unit is a ``bad_unit``."""
    for mapped in reversed(location.files) if options.reverse else location.files:
        require_kind(mapped.path, "timerlog")
        for block in read_units(mapped, timer_log.UNIT_DTYPE, options.reading, reverse=options.reverse):
            units = block.units
            codes = np.where(timer_log.is_written(units), _UNIT, 0)
            codes[timer_log.is_blank(units)] = _BLANK
            due = timer_log.dues(units)
            columns: dict[str, Any] = {
                "file": constant_strings(location.relative(mapped.path), len(units)),
                "position": mapped.start_offset + block.indices * timer_log.UNIT_SIZE,
                **{name: units[name] for name in ("size", "previous_position", "magic", "write_timestamp")},
                "write_time": times_of(pa.array(units["write_timestamp"].astype(np.int64))),
                "delay": units["delay"],
                "due_timestamp": due,
                "due_time": times_of(pa.array(due)),
                **{name: units[name] for name in ("physical_offset", "message_size", "topic_hash")},
                "rolled": (units["magic"] & timer_log.MAGIC_ROLL) != 0,
                "deleted": (units["magic"] & timer_log.MAGIC_DELETE) != 0,
            }
            if options.with_hex:
                columns["hex"] = hex_of(units)
            kept = _kept(location, units, due, codes == _UNIT, options)
            yield make_rows(names_taken(_KINDS, codes), columns).filter(kept, reverse=options.reverse)


def _kept(
    location: Location, units: NDArray[np.void], due: NDArray[np.int64], is_unit: Mask, options: ListingOptions
) -> Mask:
    """Which units pass the filters: on the time when they are due, the topic's hash, and the record in the log."""
    filters = options.filters
    masks: list[Any] = []
    if filters.from_timestamp is not None or filters.to_timestamp is not None:
        masks += [is_unit, filters.in_time(due)]
    for topics, is_chosen in ((filters.topics, True), (filters.excluded_topics, False)):
        if topics:
            hashes = [string_hash(topic) for topic in topics]
            masks += [is_unit, np.isin(units["topic_hash"], hashes, invert=not is_chosen)]
    if filters.start or filters.to_offset is not None:
        offsets = units["physical_offset"]
        masks += [is_unit, offsets >= filters.start, offsets < filters.stop]
    if options.by_record:
        masks.append(is_unit)
    kept = all_of(masks, len(units))
    return options.by_records(location.groups[0], kept, units["physical_offset"], units["message_size"])
