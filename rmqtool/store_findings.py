"""What names, sizes and headers alone show to be odd in a store, with what the broker does about it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from rmqtool.config_json import ConfigFile
from rmqtool.errors import RmqtoolError
from rmqtool.findings import Finding
from rmqtool.index import IndexFile
from rmqtool.mapped_files import MappedFile, MappedFiles
from rmqtool.offsets import CONSUMER_OFFSET
from rmqtool.store import CONFIG, ROCKSDB_CONFIGS, Store, holds_rocksdb

# MappedFileQueue#load
_WRONG_SIZE_EFFECT = "most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones"


def unread_finding(store: Store, error: RmqtoolError) -> Finding:
    """A part of the store that could not be read, and is therefore not shown."""
    hint = f" ({error.hint})" if error.hint else ""
    return Finding(
        code="store.unreadable",
        severity="error",
        file=store.relative(Path(error.file)) if error.file else None,
        offset=error.offset,
        message=f"{error.message}: it is missing from what is shown{hint}",
        effect="does not start, or loses this part too, if the user that it runs as cannot read it either",
    )


def layout_findings(store: Store) -> Iterator[Finding]:
    """What of the store is kept in RocksDB and therefore not shown."""
    if store.layout == "rocksdb":
        yield Finding(
            code="store.rocksdb-queues",
            severity="info",
            message="consume queues are kept in RocksDB, which is not read: queues and lag below may be missing",
            effect="none: the broker reads them",
        )
    databases = [name for name in ROCKSDB_CONFIGS if holds_rocksdb(store.root / name)]
    if databases:
        yield Finding(
            code="config.rocksdb",
            severity="info",
            file=databases[0],
            message="consumer offsets are kept in RocksDB, which is not read: consumers below may be missing or old",
            effect="none: the broker reads them",
        )


def log_findings(store: Store, log: MappedFiles) -> Iterator[Finding]:
    """Entries that are no commit log files, sizes that differ, and files that do not follow each other."""
    for stray in log.strays:
        yield Finding(
            code="commitlog.stray",
            severity="warning",
            fault="F05" if stray.kind == "directory" else "F04",
            file=store.relative(stray.path),
            message=f"not a commit log file ({stray.kind})",
            effect="depending on version and size the broker refuses to start, or ignores it: "
            "move it out of the directory, do not delete it",
        )
    for file in log.files:
        if file.size == 0:
            yield _empty_file(store, file, is_last=file is log.files[-1])
        elif file.size != log.file_size:
            yield Finding(
                code="commitlog.file-size",
                severity="error",
                fault="F02",
                file=store.relative(file.path),
                message=f"{file.size} bytes where the others have {log.file_size}",
                effect=_WRONG_SIZE_EFFECT,
            )
    for before, after in pairwise(file for file in log.files if file.size):
        if before.end_offset != after.start_offset:
            yield _not_in_line(store, before, after)


def _empty_file(store: Store, file: MappedFile, is_last: bool) -> Finding:
    """`MappedFileQueue#load`: since 5.1.3 an empty last file is no obstacle."""
    effect = _WRONG_SIZE_EFFECT
    if is_last:
        effect = "since 5.1.3 a start deletes it; earlier versions refuse to start, 4.4.0 and 4.9.2 ignore it"
    return Finding(
        code="commitlog.file-size",
        severity="warning" if is_last else "error",
        fault="F03",
        file=store.relative(file.path),
        message="0 bytes",
        effect=effect,
    )


def _not_in_line(store: Store, before: MappedFile, after: MappedFile) -> Finding:
    file, distance = store.relative(after.path), after.start_offset - before.end_offset
    if distance < 0:
        return Finding(
            code="commitlog.overlap",
            severity="error",
            fault="F11",
            file=file,
            offset=after.start_offset,
            message=f"begins {-distance} bytes before the file before it ends",
            effect="accepted, but offsets are looked up in the wrong file: was it renamed, or copied from elsewhere?",
        )
    conf = "" if store.conf.commit_log_paths else " If the log has several paths, give --broker-conf."
    return Finding(
        code="commitlog.gap",
        severity="error",
        fault="F08",
        file=file,
        offset=before.end_offset,
        message=f"{distance} bytes of the commit log before this file are in no file.{conf}",
        effect="starts, and skips what is missing when it is read; a rebuild of the consume queues by the broker "
        "hangs or shifts offsets. Restore the missing files; do not let a broker rebuild",
    )


def index_finding(store: Store, file: IndexFile) -> Finding:
    """An index file whose header, size and units do not fit together."""
    return Finding(
        code="index.geometry",
        severity="warning",
        file=store.relative(file.path),
        message=f"its header tells {file.keys} keys, but no number of hash slots fits its size and units; "
        "--broker-conf with maxHashSlotNum and maxIndexNum tells more",
        effect="the broker does not notice: queries by key miss messages or find none",
    )


def offset_findings(store: Store, file: ConfigFile) -> Iterator[Finding]:
    """Consumer offsets that are not there or cannot be read, by the rules of `ConfigManager#load`."""
    if file.problem is None:
        return
    shown = f"shown: {store.relative(file.path)}" if file.path else "none are shown"
    effect = "the broker reads the .bak file instead"
    if file.has_bad_backup:
        effect = "the broker refuses to start: the .bak file cannot be read either"
    elif file.path is None:
        effect = "the broker starts without any offset: every group begins anew by its own policy"
    if file.is_forbidden:
        effect = "none, when the broker runs as a user who may read it"
    yield Finding(
        code="config.consumer-offset",
        severity="warning",
        file=f"{CONFIG}/{CONSUMER_OFFSET}",
        message=f"consumer offsets cannot be read ({file.problem}); {shown}",
        effect=effect,
    )
