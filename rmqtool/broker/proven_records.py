"""What damaged records really were: fields that no CRC covers, as queues and index prove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqtool.scan.frames import RecordRun


@dataclass(frozen=True)
class ProvenRecord:
    """The fields of one record that its witnesses prove; None for those that are as stored.

    `tags_code` is that of its queue entry, `key_hashes` are those of its index units, in their order.
    `batch_size` counts the messages of a batch, whose first queue offset is `queue_offset`; `light_queues` are all
    further queues that it was dispatched to: topic, queue id and queue offset.
    """

    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    sys_flag: int | None = None
    tags_code: int | None = None
    key_hashes: tuple[int, ...] | None = None
    batch_size: int | None = None
    light_queues: tuple[tuple[str, int, int], ...] | None = None


@dataclass(frozen=True)
class ProvenRecords:
    """The records with damaged fields, by physical offset."""

    records: Mapping[int, ProvenRecord] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.records)

    def rows_of(self, frames: RecordRun) -> dict[int, ProvenRecord]:
        """Those of a run of records, by their row in it."""
        if not self.records:
            return {}
        known = np.isin(frames.physical_offsets, [*self.records])
        return {int(row): self.records[int(frames.physical_offsets[row])] for row in np.flatnonzero(known)}
