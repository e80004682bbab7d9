"""The tags code that a consume queue's ext unit holds (`ConsumeQueueExt#get`)."""

from __future__ import annotations

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import file_at, list_mapped_files
from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.formats.consume_queue_ext import HEADER_DTYPE, offset_of
from rmqtool.store.consume_queues import Queue
from rmqtool.store.paths import CONSUME_QUEUE_EXT
from rmqtool.store.store import Store


class ExtTags:
    """The ext units of one queue, looked up by their addresses."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self._directory = store.root / CONSUME_QUEUE_EXT / queue.topic / str(queue.queue_id)
        self._files = list_mapped_files(self._directory).files if self._directory.is_dir() else ()

    def tags_code(self, stored: int) -> int | None:
        """The tags code that a unit stores, or that of the ext unit that it leads to; None when there is none."""
        if not is_ext_address(stored):
            return stored
        offset = offset_of(stored)
        mapped = None if offset is None else file_at(self._files, offset)
        if mapped is None or offset is None:
            return None
        with InputFile(mapped.path) as file:
            data = file.read(offset - mapped.start_offset, HEADER_DTYPE.itemsize).ljust(HEADER_DTYPE.itemsize, b"\0")
        unit = np.frombuffer(data, HEADER_DTYPE)[0]
        return int(unit["tags_code"]) if unit["size"] > 0 else None
