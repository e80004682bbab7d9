"""Reading the file `checkpoint` (`StoreCheckpoint`)."""

from __future__ import annotations

import numpy as np

from rmqtool.files import read_all
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, USED_SIZE
from rmqtool.store import CHECKPOINT, Store


def read_checkpoint(store: Store) -> dict[str, int] | None:
    """The checkpoint's numbers by name, None without the file; what a short file lacks reads as 0, as in Java."""
    path = store.root / CHECKPOINT
    if not path.exists():
        return None
    data = read_all(path, USED_SIZE).ljust(USED_SIZE, b"\0")
    fields = np.frombuffer(data, CHECKPOINT_DTYPE)[0]
    return {name: int(fields[name]) for name in CHECKPOINT_DTYPE.names or ()}
