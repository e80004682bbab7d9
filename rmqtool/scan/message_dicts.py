"""Few messages as objects of the machine interface; `rmqtool.scan.message_rows` makes rows of many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqtool.base.times import rfc3339
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import BODY_COLUMNS, MESSAGE_COLUMNS, BodyChoice, MessageShape, message_rows
from rmqtool.scan.rows import KIND

_TIMES = {"born_time": "born_timestamp", "store_time": "store_timestamp"}


def message_dicts(frames: RecordRun, file: str, body: BodyChoice = "none") -> Iterator[dict[str, Any]]:
    """The records of a run, which stand in `file`, as JSON has them."""
    names = (*MESSAGE_COLUMNS, *(() if body == "none" else BODY_COLUMNS))
    # Times of whole columns need tables, which take longer to make than a few times.
    shape = MessageShape(tuple(name for name in names if name not in _TIMES), body)
    for rows in message_rows(frames, file, shape):
        for found in rows.dicts():
            found.update({name: rfc3339(found[source]) for name, source in _TIMES.items()})
            yield {name: found[name] for name in (KIND, *names) if name in found}
