"""What a scan meets besides messages: blanks and damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover"]
"""Why an extent holds no message.

zeroed: zero bytes where a record should begin. magic-code: neither a message's nor a blank's. physical-offset: a
record that tells another position as its own. lengths: sizes that do not add up, or a blank with sound records behind
it that its size does not cover. truncated: the file ends inside a record. missing: no file holds these bytes.
torn: the log's last record, cut by an unclean stop. leftover: old bytes behind the log's last record, in its page.
"""

MAX_MESSAGE_SIZE = 128 << 20
"""A larger size is taken for damage, bytes; a broker refuses 4 MiB and its network layer 16 MiB by default."""


@dataclass(frozen=True)
class Blank:
    """The end of a full file: from `physical_offset` on `size` bytes, of which only the first eight mean something."""

    physical_offset: int
    size: int


@dataclass(frozen=True)
class Damage:
    """An extent in which no sound record begins; `tail` when none follows in the file and all later files are zeros."""

    physical_offset: int
    size: int
    reason: Reason
    tail: bool = False
