"""Consume queues, index and checkpoint for a commit log that a test has made, as a broker derives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.broker.dispatcher import Dispatcher, IndexKeys
from rmqtool.formats import consume_queue, index_file
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, CHECKPOINT_FILE_SIZE
from rmqtool.formats.file_name import file_name
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.store import open_store
from rmqtool.verify.index_chains import previous_units

QUEUE_FILE_SIZE = 6_000_000
GEOMETRY = (index_file.DEFAULT_SLOTS, index_file.DEFAULT_UNITS)
INDEX_NAME = "20231114221320001"
_FLUSH = 1 << 20  # units


def derive(
    store: Path,
    queue_file_size: int = QUEUE_FILE_SIZE,
    geometry: tuple[int, int] | None = GEOMETRY,
    batch_topics: frozenset[str] = frozenset(),
    *,
    light_queues: bool = False,
    index_tags: bool = False,
) -> Path:
    """Write what a broker would have derived from the log in `store`; queues must begin at 0 and have no gaps.

    Without a `geometry` there is no index; with `light_queues` there are those that records name, with `index_tags` the
    index has tags as well.
    """
    rules = DispatchRules(index_tags=index_tags, multi_dispatch=light_queues, lmq=light_queues)
    dispatcher = Dispatcher(rules, batch_topics)
    waiting: list[QueueUnits] = []
    index = _IndexWriter(store / "index" / INDEX_NAME, geometry) if geometry else None
    times = [0]
    for event in scan_files(open_store(store).commit_log().files):
        if isinstance(event, RecordRun):
            dispatched = dispatcher.dispatch(event)
            waiting.append(dispatched.units)
            times.append(int(event.headers.field("store_timestamp")[-1]))
            if index:
                index.add(dispatched.keys)
            if sum(map(len, waiting)) > _FLUSH:
                _write_queues(store, dispatcher, waiting, queue_file_size)
    _write_queues(store, dispatcher, waiting, queue_file_size)
    if index:
        index.close()
    (store / "lock").touch()
    checkpoint = np.zeros(1, CHECKPOINT_DTYPE)
    checkpoint["physic_message_timestamp"] = checkpoint["logics_message_timestamp"] = times[-1]
    (store / "checkpoint").write_bytes(checkpoint.tobytes().ljust(CHECKPOINT_FILE_SIZE, b"\0"))
    return store


def _write_queues(store: Path, dispatcher: Dispatcher, waiting: list[QueueUnits], file_size: int) -> None:
    if not waiting:
        return
    for number, units in QueueUnits.concatenate(waiting).by_queue():
        name = dispatcher.queues[number]
        data = units.as_consume_queue().tobytes()
        position = int(units.queue_offsets[0]) * consume_queue.UNIT_SIZE
        folder = store / "consumequeue" / name.topic / str(name.queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        done = 0
        while done < len(data):
            base = (position + done) // file_size * file_size
            piece = data[done : done + base + file_size - position - done]
            path = folder / file_name(base)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.truncate(file_size)
                file.seek(position + done - base)
                file.write(piece)
            done += len(piece)
    waiting.clear()


class _IndexWriter:
    """One index file that is large enough for all keys (`IndexFile#putKey`)."""

    def __init__(self, path: Path, geometry: tuple[int, int]) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("w+b")
        self._slot_count = geometry[0]
        self._file.truncate(index_file.file_size(*geometry))
        self._slots = np.zeros(geometry[0], np.int32)
        self._header = np.zeros(1, index_file.HEADER_DTYPE)
        self._header["index_count"] = 1

    def add(self, keys: IndexKeys) -> None:
        """Put the keys of a run."""
        if not len(keys):
            return
        first = int(self._header["index_count"][0])
        numbers = np.arange(first, first + len(keys), dtype=np.int32)
        if first == 1:
            self._header["begin_timestamp"] = keys.store_timestamps[0]
            self._header["begin_physical_offset"] = keys.physical_offsets[0]
        units = np.zeros(len(keys), index_file.UNIT_DTYPE)
        units["key_hash"] = keys.key_hashes
        units["physical_offset"] = keys.physical_offsets
        units["seconds_since_begin"] = (keys.store_timestamps - int(self._header["begin_timestamp"][0])) // 1000
        units["previous"] = previous_units(keys.key_hashes.astype(np.int64) % self._slot_count, numbers, self._slots)
        self._header["hash_slot_count"] += np.count_nonzero(units["previous"] == 0)
        self._header["index_count"] += len(keys)
        self._header["end_timestamp"] = keys.store_timestamps[-1]
        self._header["end_physical_offset"] = keys.physical_offsets[-1]
        self._file.seek(index_file.unit_position(self._slot_count, first))
        self._file.write(units.tobytes())

    def close(self) -> None:
        """Write header and slots."""
        self._file.seek(0)
        self._file.write(self._header.tobytes() + self._slots.astype(">i4").tobytes())
        self._file.close()
