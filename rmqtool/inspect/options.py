"""What of a place is wanted, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rmqtool.base.files import ReadPolicy
from rmqtool.inspect.locate import Part
from rmqtool.inspect.record_filter import RecordFilter
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.message_rows import MessageShape


@dataclass(frozen=True)
class ListingOptions:
    """Filters, order and shape of a listing; `with_hex` adds each unit's bytes in hex.

    `filters` are those that the units themselves tell, `by_record` has those that only their records tell.
    """

    filters: Filters = field(default_factory=Filters)
    by_record: RecordFilter | None = None
    limit: int | None = None
    reverse: bool = False
    with_hex: bool = False
    slots: bool = False  # of an index file the hash slots instead of the units
    shape: MessageShape = field(default_factory=MessageShape)
    conf: BrokerConf = field(default_factory=BrokerConf)
    reading: ReadPolicy = field(default_factory=ReadPolicy)
    live: bool = False  # a broker writes: what is torn at the log's end is not damage

    def by_records(self, part: Part, kept: Mask, offsets: NDArray[Any], sizes: NDArray[Any] | None = None) -> Mask:
        """Which of the units that are `kept` so far have a record that passes; see `RecordFilter.select`."""
        return kept if self.by_record is None else self.by_record.select(part, kept, offsets, sizes)
