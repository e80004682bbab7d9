"""Files where a directory should be, and directories where a file should be: reported, and skipped by other checks."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from rmqtool.base.errors import note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.report import Report
from rmqtool.formats.file_name import is_index_name
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE
from rmqtool.store.paths import TIMER_LOG
from rmqtool.store.rocksdb_config import CONFIG_DATABASES
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    SIDE_STORE,
    Store,
)
from rmqtool.transaction.paths import HOME

_NOTHING_READ = "the broker reads nothing from it, and fails when it has to write there"
_DIRECTORIES: Mapping[str, str] = {
    CONSUME_QUEUE: "the broker loads no consume queue, and fails when it has to write one",
    BATCH_CONSUME_QUEUE: "the broker loads no batch consume queue, and fails when it has to write one",
    INDEX: "the broker loads no index, and fails when it has to write one",
    CONFIG: "the broker starts without any topic, group or committed offset, and cannot save them",
    CONSUME_QUEUE_EXT: _NOTHING_READ,
    TIMER_LOG: _NOTHING_READ,
    SIDE_STORE: "brokers since 5.4.0 cannot open their database there",
    POP_STORE: "brokers with popConsumerKVServiceInit=true do not start",
    **dict.fromkeys(
        (f"{CONFIG}/{name}" for name in CONFIG_DATABASES),
        "brokers that keep topics, groups and offsets there do not start",
    ),
    HOME: "none; rmqtool keeps what it replaces there, and refuses to repair this store",
}
"""Paths that must be directories if they exist, and the effect on a broker when they are not."""

_FILES: Mapping[str, str] = {
    CHECKPOINT: "the broker refuses to start",
    LOCK_FILE: "the broker refuses to start",
    ABORT_FILE: "the broker takes the last stop for an unclean one, and cannot write its process id there",
}
"""Paths that must be files if they exist, and the effect on a broker when they are not."""


def check_file_types(store: Store, report: Report) -> None:
    """Check the types of the store's directories and small files; a missing one is not a fault."""
    for name, effect in (*_DIRECTORIES.items(), *_FILES.items()):
        report.check("store.wrong-kind")
        try:
            mode = (store.root / name).stat().st_mode
        except OSError as error:
            note_failure(store.root / name, error)
            continue  # reported by the checks that need it
        expected, fits = ("directory", stat.S_ISDIR(mode)) if name in _DIRECTORIES else ("file", stat.S_ISREG(mode))
        if not fits:
            actual = "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "something else"
            facts = {"problem": "other", "found": actual, "expected": expected}
            report.add("store.wrong-kind", effect=effect, file=name, details=facts)
    with skip_wrong_type():
        _check_index_directory(store, report)
    for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        if store.layout != "rocksdb":
            _check_queue_directories(store, name, report)


def _check_index_directory(store: Store, report: Report) -> None:
    for entry in list_directory(store.root / INDEX):
        if is_index_name(entry.name) and not entry.is_file():
            effect = "the broker refuses to start; before 5.0.0 it loads no index file after it"
            report.add("store.wrong-kind", effect=effect, file=f"{INDEX}/{entry.name}", details={"problem": "index"})


def _check_queue_directories(store: Store, name: str, report: Report) -> None:
    """Report files in place of the directories of topics and queues, where the broker cannot write a queue."""
    entries: list[DirectoryEntry] = []
    for topic in _entries(store.root / name):
        if topic.is_dir():
            entries += (entry for entry in _entries(entry_path(topic)) if entry.name.isdecimal())
        else:
            entries.append(topic)
    report.check("consumequeue.stray", len(entries))
    for entry in entries:
        if not entry.is_dir():
            report.add("consumequeue.stray", severity="info", file=store.relative(entry_path(entry)),
                       effect="looks past it, and cannot write a queue of that name",
                       details={"problem": "directory"})  # fmt: skip


def _entries(directory: Path) -> list[DirectoryEntry]:
    """The entries of a directory; empty when it is a file."""
    entries: list[DirectoryEntry] = []
    with skip_wrong_type():
        entries += list_directory(directory)
    return entries
