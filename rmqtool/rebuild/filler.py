"""Units that stand for no message."""

from __future__ import annotations

import numpy as np

from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, UNIT_DTYPE
from rmqtool.rebuild.sinks import Units
from rmqtool.rebuild.stored_units import RAW_UNIT


def placeholder_units(following: Units, count: int, missing: int | None) -> Units:
    """Units that stand for lost messages and do no harm.

    One that points to where no file is gets skipped by a pull, alone. Where all files are there it must point to a
    message, or garbage is delivered: the next one then comes more than once, always with its own queue offset.
    """
    units = np.repeat(following, count)
    if missing is not None:
        units.view(UNIT_DTYPE)["physical_offset"] = missing
    return units


def pre_blank_units(count: int) -> Units:
    """`count` units of filler (`ConsumeQueue#fillPreBlank`)."""
    units = np.zeros(count, dtype=UNIT_DTYPE)
    units["message_size"] = PRE_BLANK_MESSAGE_SIZE
    return units.view(RAW_UNIT)
