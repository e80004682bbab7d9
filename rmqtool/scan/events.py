"""The events of a scan besides runs of records: blanks and damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover"]
"""Why an extent holds no message; REASON_MEANINGS says it in a sentence."""

MAX_MESSAGE_SIZE = 128 << 20
"""A larger size is taken for damage, bytes; a broker refuses 4 MiB and its network layer 16 MiB by default."""


REASON_MEANINGS: dict[Reason, str] = {
    "zeroed": "zero bytes where a record should begin",
    "magic-code": "neither a message nor a blank begins here",
    "physical-offset": "a record that gives another position as its own",
    "lengths": "lengths do not add up, or a blank that does not cover what follows it in its file",
    "truncated": "the file ends inside a record",
    "missing": "no file holds these bytes",
    "torn": "the last record was not written to its end, as an unclean stop leaves it",
    "leftover": "old bytes behind the last record, up to the end of the page",
}
"""The sentence for each reason."""


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
