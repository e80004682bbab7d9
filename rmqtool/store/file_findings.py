"""What names, sizes and headers alone show to be odd in a store, with what the broker does about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rules.empty_files import effect_of_empty_last_file, refuses_empty_last_file, spans_of
from rmqtool.rules.releases import ANY_RELEASE, Releases
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.consume_queues import Queue
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET
from rmqtool.store.index_files import IndexFile
from rmqtool.store.store import CONFIG, ROCKSDB_CONFIGS, Store, holds_rocksdb

_LOOKED_AT: Mapping[str, str] = {
    "store.unreadable": "rmqtool inspect {place}",
    "store.rocksdb-queues": "rmqtool inspect {store} --scan",
    "config.rocksdb": "rmqtool inspect {store}/config",
    "config.consumer-offset": "rmqtool inspect {place}",
    "commitlog.stray": "rmqtool inspect {place}",
}
"""The command that looks closer at what an overview finds, where its page names no other; verify for all else."""

_READS_DLEDGER = ("rmqtool inspect", "rmqtool undo")  # the other commands refuse a DLedger store


def with_next_command(store: Store, found: Finding) -> Finding:
    """A finding that names the command that looks closer, whatever its page says."""
    is_dledger = store.layout == "dledger"
    if found.remedy and (not is_dledger or found.remedy.startswith(_READS_DLEDGER)):
        return found
    root = quote(str(store.root))
    command = "rmqtool inspect {store} --scan" if is_dledger else "rmqtool verify {store}"
    place = store.root / found.file if found.file else store.root
    if found.code in _LOOKED_AT and os.path.lexists(place):
        command = _LOOKED_AT[found.code]
    conf = f" --broker-conf {quote(store.conf.path)}" if store.conf.path else ""
    return replace(found, remedy=command.format(store=root, place=quote(str(place))) + conf)


def unread_finding(store: Store, error: RmqtoolError) -> Finding:
    """A part of the store that could not be read, and is therefore not shown."""
    hint = f" ({error.hint})" if error.hint else ""
    message = f"{error.message}: it is missing from what is shown{hint}"
    file = store.relative(Path(error.file)) if error.file else None
    return finding("store.unreadable", message, file=file, offset=error.offset)


def layout_findings(store: Store) -> Iterator[Finding]:
    """What of the store is kept in RocksDB and therefore not shown."""
    if store.layout == "rocksdb":
        message = "consume queues are kept in RocksDB, which is not read: queues and lag below may be missing"
        yield finding("store.rocksdb-queues", message)
    databases = [name for name in ROCKSDB_CONFIGS if holds_rocksdb(store.root / name)]
    if databases:
        message = "consumer offsets are kept in RocksDB, which is not read: consumers below may be missing or old"
        yield finding("config.rocksdb", message, file=databases[0])


def log_findings(
    store: Store, log: MappedFiles, releases: Releases = ANY_RELEASE, *, live: bool = False
) -> Iterator[Finding]:
    """Entries that are no commit log files, sizes that differ, and files that do not follow each other.

    `releases` are those that may start on the store; a broker that runs on a `live` one may be creating a file.
    """
    for stray in log.strays:
        code = "commitlog.stray-directory" if stray.kind == "directory" else "commitlog.stray"
        yield finding(code, f"not a commit log file ({stray.kind})", file=store.relative(stray.path))
    for file in log.files:
        place = store.relative(file.path)
        if file.size == 0:
            is_last = file is log.files[-1]
            if not (live and is_last):
                yield empty_file_finding("commitlog.empty-file", store, file, releases if is_last else None)
        elif file.size != log.file_size:
            message = f"{file.size} bytes where the others have {log.file_size}"
            yield finding("commitlog.file-size", message, store=store.root, file=place)
    for before, after in pairwise(file for file in log.files if file.size):
        if before.end_offset != after.start_offset:
            yield _not_in_line(store, before, after)


def empty_file_finding(code: str, store: Store, file: MappedFile, releases: Releases | None, **place: Any) -> Finding:
    """A file that was created and not sized; `releases` decide of the last one, any other is an obstacle."""
    shown = store.relative(file.path)
    if releases is None:
        effect = "most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones"
        return finding(code, "0 bytes, with files behind it", severity="error", effect=effect, file=shown, **place)
    message = "0 bytes: the broker was killed after it had created the file and before it gave it its size"
    refusing = releases.where(refuses_empty_last_file)
    if refusing != releases.fitting:
        message += f"; {spans_of(refusing)} refuse to start on it" if refusing else ""
        return finding(code, message, effect=effect_of_empty_last_file(releases), file=shown, **place)
    details = {"effect": effect_of_empty_last_file(releases), "remedy": f"find {quote(str(file.path))} -empty -delete"}
    return finding(code, message, severity="error", file=shown, **{**place, **details})


def _not_in_line(store: Store, before: MappedFile, after: MappedFile) -> Finding:
    file, distance = store.relative(after.path), after.start_offset - before.end_offset
    if distance < 0:
        message = f"begins {-distance} bytes before the file before it ends"
        return finding("commitlog.overlap", message, file=file, offset=after.start_offset)
    conf = "" if store.conf.commit_log_paths else " If the log has several paths, give --broker-conf."
    message = f"{distance} bytes of the commit log before this file are in no file.{conf}"
    return finding("commitlog.gap", message, store=store.root, file=file, offset=before.end_offset)


def queue_findings(
    store: Store, queue: Queue, releases: Releases = ANY_RELEASE, *, live: bool = False
) -> Iterator[Finding]:
    """Names, sizes and the chain of a consume queue's files (`MappedFileQueue#load`); the rest as for the log."""
    files = queue.files
    place: dict[str, Any] = {"store": store.root, "topic": queue.topic, "queue_id": queue.queue_id}
    for stray in files.strays:
        message = f"not a consume queue file ({stray.kind})"
        yield finding("consumequeue.stray", message, file=store.relative(stray.path), **place)
    for file in files.files:
        message = ""
        if not file.size:
            is_last = file is files.files[-1]
            if not (live and is_last):
                yield empty_file_finding("consumequeue.empty-file", store, file, releases if is_last else None,
                                  topic=queue.topic, queue_id=queue.queue_id)  # fmt: skip
        elif file.size != files.file_size or file.size % queue.unit_size:
            message = f"{file.size} bytes where the others have {files.file_size}"
        elif file.start_offset % file.size:
            message = f"begins at {file.start_offset}, which is no multiple of {file.size}"
        if message:
            yield finding("consumequeue.file-size", message, file=store.relative(file.path), **place)
    for before, after in pairwise(file for file in files.files if file.size):
        if before.end_offset != after.start_offset:
            distance = after.start_offset - before.end_offset
            message = f"begins {distance} bytes behind the end of the file before it"
            yield finding("consumequeue.gap", message, file=store.relative(after.path), offset=0, **place)


def one_of_each(found: Iterable[Finding]) -> Iterator[Finding]:
    """The first finding of each code, which counts the others."""
    of_code: dict[str, list[Finding]] = {}
    for each in found:
        of_code.setdefault(each.code, []).append(each)
    for first, *others in of_code.values():
        more = f" ({len(others)} more like this)" if others else ""
        yield replace(first, message=first.message + more, count=1 + len(others))


def index_finding(store: Store, file: IndexFile) -> Finding:
    """An index file whose header, size and units do not fit together."""
    message = (
        f"its header tells {file.keys} keys, but no number of hash slots fits its size and units; "
        "--broker-conf with maxHashSlotNum and maxIndexNum tells more"
    )
    return finding("index.geometry", message, store=store.root, file=store.relative(file.path))


def offset_findings(store: Store, file: ConfigFile) -> Iterator[Finding]:
    """Consumer offsets that are not there or cannot be read, by the rules of `ConfigManager#load`."""
    if file.problem is None:
        return
    shown = f"shown: {store.relative(file.path)}" if file.path else "none are shown"
    effect = None
    if file.has_bad_backup:
        effect = "the broker refuses to start: the .bak file cannot be read either"
    elif file.path is None:
        effect = "the broker starts without any offset: every group begins anew by its own policy"
    if file.is_forbidden:
        effect = "none, when the broker runs as a user who may read it"
    message = f"consumer offsets cannot be read ({file.problem}); {shown}"
    yield finding("config.consumer-offset", message, effect=effect, file=f"{CONFIG}/{CONSUMER_OFFSET}")
