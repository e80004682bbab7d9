"""The options of a listing: filters, order and shape, and how files are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rmqtool.base.files import ReadPolicy
from rmqtool.inspect.locate import FileGroup
from rmqtool.inspect.record_filter import RecordFilter
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.message_rows import MessageShape


@dataclass(frozen=True)
class ListingOptions:
    """Filters, order and shape of a listing; `with_hex` adds each unit's bytes in hex.

    `filters` can be decided from the units themselves, `by_record` only from the records that they point to.
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
    live: bool = False  # a broker writes: a torn record at the log's end is not damage

    def by_records(
        self, group: FileGroup, kept: Mask, offsets: NDArray[Any], sizes: NDArray[Any] | None = None
    ) -> Mask:
        """Which of the units that are `kept` so far have a record that passes; see `RecordFilter.select`."""
        return kept if self.by_record is None else self.by_record.select(group, kept, offsets, sizes)
