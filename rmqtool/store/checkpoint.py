"""The file `checkpoint` as fields and back (`StoreCheckpoint`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmqtool.base.errors import UnreadableError, WrongKindError
from rmqtool.base.files import read_all
from rmqtool.base.times import rfc3339
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, CHECKPOINT_FILE_SIZE, CHECKPOINT_SIZE, Checkpoint
from rmqtool.formats.layout import build
from rmqtool.store.store import CHECKPOINT, Store

CHECKPOINT_TIMES = ("physic_message_timestamp", "logics_message_timestamp", "index_message_timestamp")
"""The fields that are store timestamps of messages, epoch ms."""


def read_checkpoint(store: Store) -> dict[str, int] | None:
    """The checkpoint's fields by name, None without the file; those beyond a short file's end read as 0, as in Java."""
    try:
        data = read_all(store.root / CHECKPOINT, CHECKPOINT_SIZE)
    except UnreadableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except WrongKindError as error:
        error.hint = "move it away: no broker starts with it, and a new one is created"
        raise
    fields = np.frombuffer(data.ljust(CHECKPOINT_SIZE, b"\0"), CHECKPOINT_DTYPE)[0]
    return {name: int(fields[name]) for name in CHECKPOINT_DTYPE.names or ()}


def credible(fields: Mapping[str, int] | None) -> Mapping[str, int]:
    """The fields; none where a time in them cannot be that of a message, for then the file proves nothing."""
    times = [(fields or {}).get(name, 0) for name in CHECKPOINT_TIMES]
    return fields if fields and all(time >= 0 and rfc3339(time) for time in times) else {}


def checkpoint_file(fields: Mapping[str, int]) -> bytes:
    """The whole file with these fields; the others are 0."""
    values = {field.name: fields.get(field.name, 0) for field in Checkpoint.subcons}
    return build(Checkpoint, values).ljust(CHECKPOINT_FILE_SIZE, b"\0")
