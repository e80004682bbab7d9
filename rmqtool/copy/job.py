"""One copy from beginning to end: what it may be made of and where, the copying, the settling, the manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from rmqtool import __version__
from rmqtool.base.errors import ChangedError, RmqtoolError, UnsupportedError, UsageError, notice
from rmqtool.base.files import UNLIMITED, Progress, RateLimit, no_progress
from rmqtool.base.mapped_files import MappedFiles, list_mapped_files, read_at
from rmqtool.copy.identity import cut_epochs, require_possible, take_identity
from rmqtool.copy.manifest import CopiedFile, Manifest, is_unchanged, read_manifest
from rmqtool.copy.run import (
    Copied,
    Copying,
    Earlier,
    Totals,
    allocated_below,
    described,
    needed_bytes,
    stamp_of,
)
from rmqtool.copy.settle import Settled, copy_store, leave_unsettled, problems, settle
from rmqtool.copy.side import needs_rows
from rmqtool.copy.transfer import content_of
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.retention import RetentionSettings, settings_of
from rmqtool.salvage.new_store import NewStore, require_free_name
from rmqtool.store.index_files import Geometry
from rmqtool.store.lock import has_abort
from rmqtool.store.rocksdb import is_readable, without_library
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import COMMIT_LOG, Store

Mode = Literal["full", "update", "restore"]
_COMPARED = 64 << 10  # bytes before the end of the earlier copy
_MS = 1_000_000  # ns


@dataclass(frozen=True)
class CopyRequest:
    """What was asked for."""

    target: Path
    update: bool = False
    prune: bool = False
    raw: bool = False
    fresh_times: bool = False
    identity: str | None = None
    jobs: int = 1
    limit: RateLimit | None = None


@dataclass(frozen=True)
class Expired:
    """The files of a restored log that the first run of the broker's cleaner would delete."""

    files: int = 0
    log_files: int = 0
    bytes: int = 0
    reserved_hours: int = 72


@dataclass(frozen=True)
class CopyPlan:
    """What a copy would do."""

    mode: Mode
    running: bool
    needed: int
    expired: Expired


@dataclass(frozen=True)
class CopyResult:
    """What a copy has; `settled` is None where that was not asked for, or was so before."""

    mode: Mode
    manifest: Manifest
    totals: Totals
    settled: Settled | None
    findings: Sequence[Finding] = field(default=())


class CopyJob:
    """A copy of the store of a snapshot; raises UsageError, UnsupportedError, ChangedError for what cannot be done."""

    def __init__(self, snapshot: Snapshot, request: CopyRequest) -> None:
        self._snapshot, self._request = snapshot, request
        self._store: Store = snapshot.store
        self._expected = self._manifest_of_source()
        self.mode: Mode = "update" if request.update else "restore" if self._expected else "full"
        self._require_copyable()
        self._require_place()

    @cached_property
    def plan(self) -> CopyPlan:
        """What it would do."""
        needed = needed_bytes(self._store, self._earlier)
        return CopyPlan(self.mode, self._is_live, needed, self._expired())

    @property
    def _is_live(self) -> bool:
        return self._snapshot.holder is not None

    @cached_property
    def _earlier(self) -> Earlier | None:
        """The copy that is brought up to date."""
        if not self._request.update:
            return None
        manifest = read_manifest(self._request.target)
        if manifest is None:
            raise UsageError("this is not a copy: it has no manifest; without --update a copy is made",
                             file=self._request.target)  # fmt: skip
        return Earlier(self._request.target, manifest, self._request.prune)

    def _manifest_of_source(self) -> Manifest | None:
        """That of a copy on which no broker has run since; what another one says counts no more."""
        manifest = read_manifest(self._store.root)
        if manifest and (self._is_live or not is_unchanged(self._store.root, manifest)):
            notice(f"{self._store.root} has changed since it was made as a copy: it is treated as a plain store")
            return None
        return manifest

    # What may be copied, and where

    def _require_place(self) -> None:
        """Raise an error for a target that cannot have this copy."""
        request, store = self._request, self._store
        sources = [store.root, *store.log_directories]
        if self._earlier:
            _require_apart(request.target, sources)
            if request.target.is_mount():
                raise UsageError("a mount point cannot be replaced by the new copy: name a directory in it",
                                 file=request.target)  # fmt: skip
            self._require_same_source(self._earlier.manifest)
        elif read_manifest_or_none(request.target):
            raise UsageError("there is already a copy", file=request.target, hint="--update updates it")
        else:
            require_free_name(request.target, sources)

    def _require_copyable(self) -> None:
        """Raise an error for a store, and options, of which there cannot be a copy."""
        request, store, holder = self._request, self._store, self._snapshot.holder
        if holder and holder.program:  # unlike a broker it replaces files that are full
            raise holder.refusal(store.root, effect="nothing is copied", hint="let it end, then copy the store")
        if request.prune and not request.update:
            raise UsageError("--prune is for --update: a new copy has only what the store has")
        if request.fresh_times and self.mode != "restore":
            raise UsageError("--fresh-times is for restoring a copy, and this is not a copy")
        require_possible(store, request.identity)
        if store.reads_only_rocksdb or store.layout == "rocksdb" or needs_rows(self._snapshot):
            if not is_readable():
                raise without_library(store.root)
            if request.raw:
                raise UnsupportedError(
                    "--raw would lose queue entries or half messages: the newest rows in RocksDB are only in the "
                    "broker's memory, and from 5.4.0 on a start scans at most ten files of the log",
                    file=store.root,
                    hint="without --raw they are rebuilt from the log",
                )

    def _require_same_source(self, before: Manifest) -> None:
        """Raise ChangedError unless the source goes on from where the copy ends."""
        if not before.files:
            return
        now = self._store.commit_log()
        hint = "check the source first; copy its present state to another directory"
        if not now.files or now.files[0].start_offset > before.end_offset:
            has = f"begins at {now.files[0].start_offset}" if now.files else "is empty"
            raise ChangedError(
                f"the log of the source {has}, and the copy ends at {before.end_offset}: it is not updated",
                file=self._store.root, hint=hint,
            )  # fmt: skip
        start, data = self._end_of_earlier(before)
        start = max(start, now.files[0].start_offset)
        data = data[len(data) - (before.end_offset - start) :]
        if data and read_at(now.files, start, len(data)) != data:
            raise ChangedError(
                f"the log of the source differs from the copy before the copy's end at {before.end_offset}: it was "
                "cut since, or is another store. The copy is unchanged",
                file=self._store.root, hint=hint,
            )  # fmt: skip

    def _end_of_earlier(self, before: Manifest) -> tuple[int, bytes]:
        """The last bytes of the log of the copy that is brought up to date, and where they begin."""
        return _before(list_mapped_files(self._request.target / COMMIT_LOG), before.end_offset)

    def _expired(self) -> Expired:
        """What the first cleaning would delete of what is restored."""
        settings = settings_of(self._store.conf.settings, {}, self._snapshot.release)
        is_asked = self.mode == "restore" and not self._request.fresh_times
        return expired_of(self._expected if is_asked else None, settings)

    # Copying

    def copy(self, new: NewStore, progress: Progress) -> Copied:
        """Copy all, and note what an interrupted run has copied for the next one."""
        request = self._request
        new.require_space(max(0, self.plan.needed - allocated_below(new.directory)))  # of an interrupted run
        rules = RecoveryRules.of(self._snapshot.release, self._store.conf)
        most_files = rules.recovered_files if request.raw and rules.limits_recovered_files else None
        copying = Copying(self._snapshot, new, limit=request.limit, earlier=self._earlier, expected=self._expected,
                          most_files=most_files, progress=progress)  # fmt: skip
        return copying.run()

    def settle(self, new: NewStore, copied: Copied, progress: Progress) -> Settled | None:
        """Complete and prove the copy; one that is restored was that before, and one that is raw is not."""
        root, conf = new.directory, _with_geometry(self._store.conf, copied.index_geometry)
        was_clean = not (self._is_live or has_abort(self._store.root))
        if self._request.raw:
            leave_unsettled(root, copy_store(root, conf), was_clean=was_clean)
            return None
        if self._expected:  # it is as it was, with an `abort` that copies leave out
            leave_unsettled(root, copy_store(root, conf), was_clean=was_clean)
            return None
        is_same_disk = os.stat(root).st_dev == os.stat(self._store.root).st_dev
        limit = self._request.limit if is_same_disk else None  # that of the store's disk
        return settle(root, conf, self._snapshot.releases, copied.end, was_clean=was_clean,
                      is_live=self._is_live, limit=limit,
                      jobs=self._request.jobs, progress=progress)  # fmt: skip

    def finish(self, new: NewStore, copied: Copied, settled: Settled | None, progress: Progress) -> CopyResult:
        """Write the manifest, and bring the copy to its place."""
        root, releases = new.directory, self._snapshot.releases
        cut_epochs(root, copied.end.end)
        if self._request.identity:
            take_identity(root, copy_store(root, self._store.conf), self._request.identity)
        findings = list(settled.findings) if settled else []
        if settled and not settled.is_proven:
            known = {each.code for each in findings}
            findings += [
                each for each in problems(copy_store(root, self._store.conf), settled.starts) if each.code not in known
            ]
        manifest = Manifest(
            source=os.path.realpath(self._store.root),
            host=os.uname().nodename,
            tool=__version__,
            started=copied.started,
            ended=time.time_ns() // _MS,
            settled=settled is not None and settled.complete,
            running=self._is_live,
            release=str(releases.newest) if releases.is_named else f"{releases.oldest} to {releases.newest}",
            min_offset=copied.end.start,
            end_offset=copied.end.end,
            last_record=copied.end.last_record,
            last_store_timestamp=copied.end.last_store_timestamp,
            identity=self._request.identity,
            files=tuple(self._described(root, copied, progress)),
        )
        self._put_in_place(new, manifest)
        return CopyResult(self.mode, manifest, copied.totals, settled, tuple(findings))

    def _described(self, root: Path, copied: Copied, progress: Progress) -> Sequence[CopiedFile]:  # noqa: ARG002
        """The files of the copy for its manifest."""
        return as_they_are(root, copied)

    def _put_in_place(self, new: NewStore, manifest: Manifest) -> None:
        """Make the copy the one that is there."""
        root = new.directory
        if self.mode == "restore":
            if self._request.fresh_times:
                make_times_fresh(root)
        else:
            manifest.write(root)
        new.finish(None, replaces=self.mode == "update")


def expired_of(manifest: Manifest | None, settings: RetentionSettings) -> Expired:
    """The files of a copy's log that the first cleaning of a restored store would delete; none without a copy."""
    files = [file for file in manifest.files if file.kind == "log"] if manifest else []
    now = time.time_ns() // _MS
    expired = 0
    while expired < len(files) - 1 and now >= settings.expires(files[expired].mtime_ns // _MS):
        expired += 1
    size = sum(file.size for file in files[:expired])
    return Expired(expired, len(files), size, settings.file_reserved_time)


def _with_geometry(conf: BrokerConf, geometry: Geometry | None) -> BrokerConf:
    """The settings with the geometry of index files that the store showed: a copy of few units may not."""
    if geometry is None or conf.index_geometry:
        return conf
    shown = {"maxHashSlotNum": str(geometry.slots), "maxIndexNum": str(geometry.units)}
    return replace(conf, settings={**conf.settings, **shown})


def read_manifest_or_none(root: Path) -> Manifest | None:
    """The manifest of a directory, None too where it is none that can be read."""
    with suppress(RmqtoolError):
        return read_manifest(root)
    return None


def _require_apart(target: Path, sources: Sequence[Path]) -> None:
    where = Path(os.path.realpath(target))
    for source in map(Path, map(os.path.realpath, sources)):
        if where == source or source in where.parents or where in source.parents:
            raise UsageError("a copy must not be inside its source, nor the source inside it", file=target)


def _before(log: MappedFiles, end: int) -> tuple[int, bytes]:
    """The last bytes before an offset in the file that ends there, and where they begin."""
    for file in log.files:
        if file.start_offset < end <= file.end_offset:
            start = max(file.start_offset, end - _COMPARED)
            return start, read_at(log.files, start, end - start)
    return end, b""


def as_they_are(root: Path, copied: Copied) -> list[CopiedFile]:
    """The files that a copy has in the end; what the settling has changed is read again."""
    found, files, stamps = [], copied.files, copied.stamps
    for above, directories, names in os.walk(root):
        directories.sort()
        for name in sorted(names):
            path = Path(above, name)
            relative = path.relative_to(root).as_posix()
            known = files.get(relative)
            try:
                status = os.stat(path)
            except FileNotFoundError:  # of a link: another machine has it, and the broker has deleted it
                found += [known] if known else []
                continue
            if known and stamps.get(relative) == stamp_of(status):
                found.append(replace(known, mtime_ns=status.st_mtime_ns))
                continue
            content = content_of(path, UNLIMITED, no_progress)
            made = described(relative, known.kind if known else "made", content, status.st_mtime_ns)
            found.append(replace(made, is_full=known.is_full, origin=known.origin) if known else made)
    return found


def make_times_fresh(root: Path) -> None:
    """Let the log's files be changed just now, in their order: the cleaner counts their age from there."""
    files = list_mapped_files(root / COMMIT_LOG).files
    now = time.time_ns()
    for number, file in enumerate(files):
        moment = now - (len(files) - 1 - number) * _MS
        os.utime(file.path, ns=(moment, moment))
