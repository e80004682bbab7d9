"""What of a place is wanted, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtool.broker_conf import BrokerConf
from rmqtool.files import Reading
from rmqtool.filters import Filters
from rmqtool.messages import MessageShape


@dataclass(frozen=True)
class ListingOptions:
    """Filters, order and shape of a listing; `with_hex` adds each unit's bytes in hex."""

    filters: Filters = field(default_factory=Filters)
    limit: int | None = None
    reverse: bool = False
    with_hex: bool = False
    slots: bool = False  # of an index file the hash slots instead of the units
    shape: MessageShape = field(default_factory=MessageShape)
    conf: BrokerConf = field(default_factory=BrokerConf)
    reading: Reading = field(default_factory=Reading)
    live: bool = False  # a broker writes: what is torn at the log's end is not damage
