"""The new log as a rebuild sees it, beside the queues of a source, and the checkpoint that fits what it has written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from rmqtool.base.errors import RmqtoolError, UnsupportedError
from rmqtool.base.files import read_all
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.new_files import create_file, set_time, write_all
from rmqtool.base.tolerant import ReadErrors
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import QUEUE_FILE_SIZE
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET, Version
from rmqtool.store.checkpoint import checkpoint_file, credible, read_checkpoint
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.index_files import list_index_files
from rmqtool.store.missing import common_file_sizes, unknown_sizes
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, COMMIT_LOG, Store


def main_store(stores: Sequence[Store]) -> Store | None:
    """The source whose queues and sizes of files count: the first of those that show the most sizes."""
    unknown: dict[int, int] = {}
    for number, store in enumerate(stores):
        with suppress(RmqtoolError):
            unknown[number] = len(unknown_sizes(Snapshot(store)))
    if unknown:
        return stores[min(unknown, key=lambda number: (unknown[number], number))]
    return stores[0] if stores else None


def known_topics(stores: Sequence[Store]) -> frozenset[str]:
    """The topics that have queues or are configured in any source that shows them."""
    names: set[str] = set()
    for store in stores:
        with suppress(RmqtoolError):
            names.update(Snapshot(store).topic_names)
    return frozenset(names)


def rebuild_sources(main: Store | None, directory: Path, conf: BrokerConf) -> Iterator[Store]:
    """The new log in `directory` with the queues of the main source, and, where these cannot be read, without.

    What can be read of that source shows sizes and delays all the same, as far as `conf` does not set them.
    """
    log = (directory / COMMIT_LOG,)
    if main:
        yield replace(main, commit_log_directories=log)
        conf = replace(conf, settings={**dict(_shown_settings(main)), **conf.settings})
    yield Store(directory, "default", conf, log)


def _shown_settings(store: Store) -> Iterator[tuple[str, str]]:
    """The settings that files of a store show, some of which cannot be read."""
    snapshot = Snapshot(store, scope=ReadErrors().scope)
    for kind, size in common_file_sizes(snapshot.queues).items():
        yield QUEUE_FILE_SIZE[kind][0], str(size)
    geometry = next(filter(None, map(snapshot.index_geometry, reversed(snapshot.index_files))), None)
    if geometry:
        yield "maxHashSlotNum", str(geometry.slots)
        yield "maxIndexNum", str(geometry.units)
    with suppress(RmqtoolError):
        yield "messageDelayLevel", _delays(snapshot)


def with_delays(store: Store) -> Store:
    """The store with its delay levels as settings: of another log its queues do not show them."""
    settings = {**store.conf.settings, "messageDelayLevel": _delays(Snapshot(store))}
    return replace(store, conf=replace(store.conf, settings=settings))


def _delays(snapshot: Snapshot) -> str:
    return " ".join(f"{delay // 1000}s" for delay in snapshot.delay_levels.delays)


def write_checkpoint(store: Store, main: Store | None, last_record: tuple[int, int], version: Version | None) -> None:
    """Write the checkpoint of the new `store`: all queues are complete to the last record, and so is the index.

    `last_record` is its physical offset and store time. Raises OSError.
    """
    physical_offset, timestamp = last_record
    fields = {"physic_message_timestamp": timestamp, "logics_message_timestamp": timestamp}
    fields["index_message_timestamp"] = max((file.end_timestamp for file in list_index_files(store)), default=0)
    if _had_logics_offset(main) or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
        fields["logics_physical_offset"] = physical_offset
    data = checkpoint_file(fields)
    descriptor = create_file(store.root / CHECKPOINT, len(data))
    try:
        write_all(descriptor, data, 0)
        set_time(descriptor, timestamp)
    finally:
        os.close(descriptor)


def _had_logics_offset(main: Store | None) -> bool:
    with suppress(RmqtoolError):
        return main is not None and credible(read_checkpoint(main)).get("logics_physical_offset", 0) > 0
    return False


_JUMP = "rebuild.queue-offset-jump"


def require_derived(findings: Iterable[Finding]) -> None:
    """Raise UnsupportedError where a queue was not derived from the log, so that its units lead to other messages.

    `findings` are those of the rebuild.
    """
    for finding in findings:
        if finding.code == _JUMP:
            raise UnsupportedError(f"topic {finding.topic}, queue {finding.queue_id}: {finding.message}")


def cut_queue(kind: Kind, directory: Path, start: int) -> None:
    """Cut a queue that was copied at its first unit of a message from physical offset `start` on.

    Raises OSError.
    """
    files = list_mapped_files(directory).files
    for number, file in enumerate(files):
        units = UNIT_FORMATS[kind].decode(read_all(file.path, file.size))
        moved = np.flatnonzero(UNIT_FORMATS[kind].is_written(units) & (units["physical_offset"] >= start))
        if not len(moved):
            continue
        if not (number or moved[0]):
            shutil.rmtree(directory)
            with suppress(OSError):  # other queues of the topic stay
                directory.parent.rmdir()
            return
        for behind in files[number + 1 :]:
            behind.path.unlink()
        _zero_from(file, int(moved[0]) * units.itemsize)
        return


def _zero_from(file: MappedFile, position: int) -> None:
    timestamp = file.path.stat().st_mtime_ns // 1_000_000
    descriptor = create_file(file.path, file.size)
    try:
        write_all(descriptor, bytes(file.size - position), position)
        set_time(descriptor, timestamp)
    finally:
        os.close(descriptor)
