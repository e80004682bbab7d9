"""Records of a tier with damaged tags: no checksum covers these, and their queue entries have the hash of the old ones.

A broker filters by the entry, clients by the record: an entry that is made to match a damaged record takes the message
from those that filter in the broker, and the last trace of the damage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.field_damage import former_tags
from rmqtool.formats.consume_queue import lead_to_same
from rmqtool.scan.frames import RecordRun
from rmqtool.store.unit_files import UnitFiles

_AROUND = 16  # units before and after one, whose tags are those of its queue
_MOST = 1 << 10  # records of a run that are judged


def damaged_tags(
    run: RecordRun, numbers: NDArray[np.int64], built: NDArray[np.void], stored: NDArray[np.void], units: UnitFiles
) -> NDArray[np.bool_]:
    """Which of the units `built` from the records of a run have the tags of a damaged record.

    `numbers` are their queue offsets, `stored` the units that the queue has there, `units` all units of the queue. A
    record with a damaged body is no witness against its unit either.
    """
    found = np.zeros(len(numbers), np.bool_)
    has_other_tags = lead_to_same(built, stored) & (built["tags_code"] != stored["tags_code"])
    for at in np.flatnonzero(has_other_tags)[:_MOST].tolist():
        row = int(np.searchsorted(run.physical_offsets, built["physical_offset"][at]))
        own, code = int(built["tags_code"][at]), int(stored["tags_code"][at])
        found[at] = bool(run.wrong_bodies[row]) or _is_damaged(run, row, int(numbers[at]), own, code, units)
    return found


def _is_damaged(run: RecordRun, row: int, number: int, own: int, code: int, units: UnitFiles) -> bool:
    """Whether the tags of a record are damaged: `own` is their code, `code` that of its unit."""
    if not -(1 << 31) <= code < 1 << 31:
        return False  # no hash
    first = max(0, number - _AROUND)
    around = units.units(first, number + _AROUND + 1 - first)
    others = np.delete(around, number - first)
    codes = {int(each) for each in others["tags_code"][others["message_size"] > 0]}
    is_seen = code != 0 and code in codes and own not in codes  # zeros are damage, too
    start, size = int(run.properties_positions[row]), int(run.properties_sizes[row])
    properties = bytes(run.block.bytes[start : start + size])
    return is_seen or former_tags(properties, own, code, lambda: is_seen) is not None
