"""Findings from names, sizes and headers of files alone, with their effect on the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.paths import has_entry, path_of
from rmqtool.base.visible import quote
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Remedy
from rmqtool.rules.file_sizes import LOG_FILE_SIZE, effect_of_empty_last_file, refuses_empty_last_file, spans_of
from rmqtool.rules.versions import ANY_RELEASE, Releases
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.config_tables import CONSUMER_OFFSET, config_database
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import IndexFile
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.store import CONFIG, Store, rocksdb_configs

_INSPECTED_WITH: Mapping[str, str] = {
    "store.unreadable": "rmqtool inspect {path}",
    "store.rocksdb-queues": "rmqtool inspect {store} --scan",
    "config.rocksdb": "rmqtool inspect {store}/config",
    "config.consumer-offset": "rmqtool inspect {path}",
    "commitlog.stray": "rmqtool inspect {path}",
}
"""The next command for findings of an overview whose page names none, by code; `rmqtool verify` for all others."""


def with_next_command(store: Store, finding: Finding) -> Finding:
    """The finding with a remedy: the page's, or the command that shows more."""
    known = finding.next_command
    if known and not (store.dledger_directory is not None and known.is_repair):
        return finding
    command = "rmqtool verify {store}"
    path = store.root / finding.file if finding.file else store.root
    if finding.code in _INSPECTED_WITH and has_entry(path):
        command = _INSPECTED_WITH[finding.code]
    command += " --broker-conf {conf}" if store.conf.path else ""
    words = {"store": store.root, "path": path, "conf": store.conf.path}
    return replace(finding, next_command=Remedy.filled(command, words))


def unread_finding(store: Store, error: RmqtoolError) -> Finding:
    """The finding for a file or directory that could not be read, and is therefore not shown."""
    file = store.relative(path_of(error.file)) if error.file else None
    details = {"problem": "hidden", "why": error.message, "hint": error.hint}
    return finding("store.unreadable", file=file, offset=error.offset, details=details)


def layout_findings(store: Store) -> Iterator[Finding]:
    """Findings for queues and consumer offsets in RocksDB; without its library they are not shown."""
    details = {"problem": "" if is_readable() else "no-library"}
    if store.layout == "rocksdb":
        yield finding("store.rocksdb-queues", details=details)
    databases = rocksdb_configs(store)
    if databases:
        yield finding("config.rocksdb", file=databases[0], details=details)


_NODE_SIZES = "the node does not start: it exits with -1, `length not matched message store config value`"
_NODE_GAP = "the node does not start: `check data file order failed before recovery`"
"""What DLedger does with files of its log (`MmapFileList#load`, `#checkSelf`), which mappedFileSizeCommitLog sizes."""


def log_findings(
    store: Store, log: MappedFiles, releases: Releases = ANY_RELEASE, *, live: bool = False
) -> Iterator[Finding]:
    """Entries that are no commit log files, sizes that differ, and files that do not follow each other.

    `releases` are those that may start on the store; a broker that runs on a `live` one may be creating a file.
    """
    usual = log.file_size  # which counts all files: once is enough
    for stray in log.strays:
        code = "commitlog.stray-directory" if stray.kind == "directory" else "commitlog.stray"
        yield finding(code, file=store.relative(stray.path), details={"kind": stray.kind})
    for file in log.files:
        name = store.relative(file.path)
        if file.size == 0:
            is_last = file is log.files[-1]
            if file.header_size and not live:
                yield finding("commitlog.empty-file", severity="error", effect=_NODE_SIZES, file=name,
                              details={"problem": "entries", "size": 0})  # fmt: skip
            elif not (live and is_last):
                yield empty_file_finding("commitlog.empty-file", store, file, releases if is_last else None)
        elif file.size != usual:
            facts = {"problem": "entries" if file.header_size else "others", "size": file.size}
            facts["expected"] = usual
            effect = _NODE_SIZES if file.header_size else None
            yield finding("commitlog.file-size", store=store.root, file=name, effect=effect, details=facts)
    yield from _configured_size(store, log)
    for before, after in pairwise(file for file in log.files if file.size):
        if before.end_offset != after.start_offset:
            yield _not_in_line(store, before, after)


def _configured_size(store: Store, log: MappedFiles) -> Iterator[Finding]:
    """A size in broker.conf that the files of a node's log do not have; of other stores the start is predicted."""
    configured, entries = store.conf.size(*LOG_FILE_SIZE), MappedFiles(tuple(f for f in log.files if f.header_size))
    if configured and entries.file_size and configured != entries.file_size:
        facts = {"problem": "configured", "size": entries.file_size, "expected": configured}
        name = store.relative(entries.files[0].path)
        yield finding("commitlog.file-size", store=store.root, file=name, effect=_NODE_SIZES, details=facts)


def empty_file_finding(
    code: str, store: Store, file: MappedFile, releases: Releases | None, **location: Any
) -> Finding:
    """The finding for a file of 0 bytes; `releases` decide on the last file, None stands for an earlier one."""
    shown = store.relative(file.path)
    if releases is None:
        effect = "most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones"
        facts: dict[str, Any] = {"problem": "earlier", "size": 0}
        return finding(code, severity="error", effect=effect, file=shown, details=facts, **location)
    refusing, effect = releases.where(refuses_empty_last_file), effect_of_empty_last_file(releases)
    if refusing != releases.fitting:
        facts = {"problem": "last", "size": 0}
        facts |= {"problem": "some-refuse", "refusing": str(spans_of(refusing))} if refusing else {}
        return finding(code, effect=effect, file=shown, details=facts, **location)
    remedy = f"find {quote(str(file.path))} -empty -delete"
    given: dict[str, Any] = {"severity": "error", "effect": effect, "remedy": remedy}
    return finding(code, file=shown, details={"problem": "last", "size": 0}, **given, **location)


def _not_in_line(store: Store, before: MappedFile, after: MappedFile) -> Finding:
    file, distance = store.relative(after.path), after.start_offset - before.end_offset
    if distance < 0:
        return finding("commitlog.overlap", file=file, offset=after.start_offset, details={"bytes": -distance})
    facts = {"problem": "no-file" if store.conf.commit_log_paths else "no-paths", "bytes": distance}
    effect = _NODE_GAP if before.header_size else None
    return finding("commitlog.gap", store=store.root, file=file, offset=before.end_offset, effect=effect, details=facts)


def queue_findings(
    store: Store, queue: Queue, releases: Releases = ANY_RELEASE, *, live: bool = False
) -> Iterator[Finding]:
    """Strays, sizes and gaps of a consume queue's files (`MappedFileQueue#load`); parameters as for `log_findings`."""
    return iter(()) if _is_usual(queue.files, queue.unit_size) else _queue_findings(store, queue, releases, live=live)


def _queue_findings(store: Store, queue: Queue, releases: Releases, *, live: bool) -> Iterator[Finding]:
    files = queue.files
    location: dict[str, Any] = {"store": store.root, "topic": queue.topic, "queue_id": queue.queue_id}
    for stray in files.strays:
        facts: dict[str, Any] = {"problem": "file", "kind": stray.kind}
        yield finding("consumequeue.stray", file=store.relative(stray.path), details=facts, **location)
    for file in files.files:
        facts = {}
        if not file.size:
            is_last = file is files.files[-1]
            if not (live and is_last):
                yield empty_file_finding("consumequeue.empty-file", store, file, releases if is_last else None,
                                  topic=queue.topic, queue_id=queue.queue_id)  # fmt: skip
        elif file.size != files.file_size or file.size % queue.unit_size:
            facts = {"problem": "others", "size": file.size, "expected": files.file_size}
        elif file.start_offset % file.size:
            facts = {"problem": "start", "start_offset": file.start_offset, "size": file.size}
        if facts:
            yield finding("consumequeue.file-size", file=store.relative(file.path), details=facts, **location)
    for before, after in pairwise(file for file in files.files if file.size):
        if before.end_offset != after.start_offset:
            distance = {"distance": after.start_offset - before.end_offset}
            yield finding("consumequeue.gap", file=store.relative(after.path), offset=0, details=distance, **location)


def _is_usual(files: MappedFiles, unit_size: int) -> bool:
    """Whether there is one file, of which nothing is to be found: so it is with most of many queues."""
    if files.strays or len(files.files) != 1:
        return False
    file = files.files[0]
    return file.size > 0 and not file.size % unit_size and not file.start_offset % file.size


def one_of_each(found: Iterable[Finding]) -> Iterator[Finding]:
    """The first finding of each code, which counts the others."""
    of_code: dict[str, list[Finding]] = {}
    for each in found:
        of_code.setdefault(each.code, []).append(each)
    for first, *others in of_code.values():
        yield first.standing_for(1 + len(others), len(others))


def index_finding(store: Store, file: IndexFile) -> Finding:
    """An index file whose header, size and units do not fit together."""
    return finding("index.geometry", store=store.root, file=store.relative(file.path),
                   details={"problem": "no-slots", "keys": file.keys})  # fmt: skip


def offset_findings(store: Store, file: ConfigFile) -> Iterator[Finding]:
    """Consumer offsets that are not there or cannot be read, by the rules of `ConfigManager#load`."""
    if file.problem is None:
        return
    database = config_database(store, CONSUMER_OFFSET) if file.path is None else None
    if database:
        facts = {"problem": "offsets", "why": file.problem}
        yield finding("config.rocksdb-damaged", store=store.root, file=store.relative(database), details=facts)
        return
    facts = {"problem": "none", "why": file.problem}
    if file.path:
        facts |= {"problem": "backup", "shown": store.relative(file.path)}
    effect = None
    if file.has_bad_backup:
        effect = "the broker refuses to start: the .bak file cannot be read either"
    elif file.path is None and not rocksdb_configs(store):
        effect = "the broker starts without any offset: every group begins again by its own policy"
    if file.is_forbidden:
        effect = "none, if the broker's user can read it"
    yield finding("config.consumer-offset", effect=effect, file=f"{CONFIG}/{CONSUMER_OFFSET}", details=facts)
