"""Delivery times of delayed messages that a rebuild keeps, for `messageDelayLevel` may have been another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.rebuild.sinks import Timestamps, Units
from rmqtool.rules.broker_conf import DelayLevels
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.consume_queues import Queue
from rmqtool.store.delays_seen import SeenDelays
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.unit_files import UnitFiles, units_of


class KeptTimes:
    """The delivery times that units of the store's delay queues have."""

    def __init__(
        self,
        queues: Callable[[], Sequence[Queue]],
        log: Sequence[MappedFile],
        levels: DelayLevels,
        files: OpenFiles,
        *,
        is_moved: bool = False,
    ) -> None:
        """`queues` gives the store's queues, `log` are the files to which these lead, `levels` those of its broker.

        With `is_moved` messages stand elsewhere in the log that is derived from.
        """
        self._list = queues
        self._log = log
        self._levels = levels
        self._open_files = files
        self._is_moved = is_moved

    @cached_property
    def _queues(self) -> dict[QueueName, UnitFiles]:
        """Those that have files count, where a queue has rows in RocksDB too; what cannot be read keeps nothing."""
        found: dict[QueueName, UnitFiles] = {}
        with suppress(DamagedDatabaseError):
            for queue in self._list():
                if queue.topic == SCHEDULE_TOPIC and queue.kind == "simple":
                    found.setdefault(QueueName(queue.topic, queue.queue_id), units_of(queue, self._open_files))
        return found

    def put_into(self, name: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> Units:
        """Consecutive units of a delay queue from `unit_number` on, with the times that the stored ones have.

        A stored one leads to the same record, and its time is sound.
        """
        stored_files = self._queues.get(name)
        if stored_files is None:
            return units
        with suppress(DamagedDatabaseError):
            return self._with_times(stored_files, unit_number, units, timestamps)
        return units

    def _with_times(self, stored_files: UnitFiles, unit_number: int, units: Units, timestamps: Timestamps) -> Units:
        stored, derived = stored_files.units(unit_number, len(units)), units.view(UNIT_DTYPE)
        field = "message_size" if self._is_moved else "physical_offset"
        rows = (stored[field] == derived[field]) & (stored["message_size"] > 0)
        rows &= stored["tags_code"] != derived["tags_code"]
        for row in np.flatnonzero(rows).tolist() if self._is_moved else ():
            record = single_record_at(self._log, int(stored["physical_offset"][row]))
            rows[row] = record is not None and record.number("store_timestamp") == timestamps[row]
        if not rows.any():
            return units
        seen = SeenDelays(stored_files, self._levels, self._log)
        rows &= seen.are_sound(unit_number, stored, np.asarray(timestamps, dtype=np.int64))
        kept = units.copy()
        kept.view(UNIT_DTYPE)["tags_code"][rows] = stored["tags_code"][rows]
        return kept
