"""The events of a scan besides runs of records: blanks and damage."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.findings.commitlog_damage import DAMAGE_MEANINGS, DamageReason

Reason = DamageReason
"""Why an extent holds no message; REASON_MEANINGS says it in a sentence, as findings do."""

REASON_MEANINGS = DAMAGE_MEANINGS

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
