"""Copies on other machines: made, brought up to date, and restored from there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir

from rmqtool.base.errors import RmqtoolError, UnreadableError, UsageError
from rmqtool.base.files import Progress, ReadPolicy
from rmqtool.base.new_files import new_file, write_all
from rmqtool.base.remote_path import RemotePath
from rmqtool.copy.identity import require_possible, take_identity
from rmqtool.copy.job import (
    CopyJob,
    CopyPlan,
    CopyRequest,
    CopyResult,
    Expired,
    Mode,
    as_they_are,
    expired_of,
    make_times_fresh,
)
from rmqtool.copy.log_end import LogEnd
from rmqtool.copy.manifest import CopiedFile, Manifest
from rmqtool.copy.notes import Notes, name_of
from rmqtool.copy.objects import RemoteCopy, Uploads, require_place
from rmqtool.copy.run import Copied, Copying, Earlier, Totals, drop_dangling, needed_bytes
from rmqtool.copy.settle import Settled, copy_store
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.retention import settings_of
from rmqtool.rules.versions import Version, parse_version
from rmqtool.salvage.new_store import NewStore, require_free_name
from rmqtool.store.snapshot import Snapshot

_TRIES = 3  # of what is completed while the broker deletes files
_COMPARED = 64 << 10  # bytes before the end of the earlier copy


def staging_of(target: RemotePath) -> Path:
    """Where what still changes of a store is put together on this machine, in the directory for temporary files."""
    name = hashlib.sha256("\0".join(target.address).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(gettempdir()) / f"rmqtool-copy-{name}"


class RemoteCopyJob(CopyJob):
    """A copy of the store of a snapshot on another machine."""

    def __init__(self, snapshot: Snapshot, request: CopyRequest, target: RemotePath) -> None:
        self._there = RemoteCopy(target)
        self._reading = ReadPolicy(request.limit, drop_page_cache=snapshot.holder is not None)
        super().__init__(snapshot, request)

    def _manifest_of_source(self) -> Manifest | None:
        """None: a copy of a copy is one of a store."""
        return None

    @cached_property
    def _earlier(self) -> Earlier | None:
        manifest = self._there.manifest
        return Earlier(None, manifest, self._request.prune) if manifest and self._request.update else None

    def _require_place(self) -> None:
        require_place(self._there, update=self._request.update)
        if self._earlier:
            self._require_same_source(self._earlier.manifest)

    def _end_of_earlier(self, before: Manifest) -> tuple[int, bytes]:
        for file in before.files:
            if file.kind != "log" or file.first is None:
                continue
            stop = before.end_offset - file.first
            if 0 < stop <= file.size:
                start = max(0, stop - _COMPARED)
                data = self._there.read(file, start, min(stop, file.used) - start)
                return file.first + start, data.ljust(stop - start, b"\0")
        return before.end_offset, b""

    def copy(self, new: NewStore, progress: Progress) -> Copied:
        """Copy all: what no longer changes to the other machine, the rest to this one."""
        new.require_space(needed_bytes(self._store, only_changing=True))
        self._uploads = Uploads(self._there, name_of(self._store), self._reading)
        copying = Copying(self._snapshot, new, limit=self._request.limit, earlier=self._earlier,
                          uploads=self._uploads, progress=progress)  # fmt: skip
        return copying.run()

    def settle(self, new: NewStore, copied: Copied, progress: Progress) -> Settled | None:
        """As the base, of what is in the store meanwhile."""
        for attempt in range(_TRIES):
            drop_dangling(new.directory)
            try:
                return super().settle(new, copied, progress)
            except RmqtoolError:
                if attempt == _TRIES - 1 or not drop_dangling(new.directory):
                    raise
        raise AssertionError

    def _described(self, root: Path, copied: Copied, progress: Progress) -> Sequence[CopiedFile]:
        found = as_they_are(root, copied)
        there = [file for file in found if file.object]
        here = [file for file in found if not file.object]
        return sorted([*copied.there, *there, *self._uploads.put_all(root, here, progress)], key=lambda file: file.path)

    def _put_in_place(self, new: NewStore, manifest: Manifest) -> None:  # noqa: ARG002 - what is here is not kept
        self._uploads.commit(manifest)


class RestoreJob:
    """A copy on another machine that becomes a store on this one; raises UsageError for what cannot be done."""

    mode: Mode = "restore"

    def __init__(self, there: RemoteCopy, request: CopyRequest, conf: BrokerConf, version: Version | None) -> None:
        if there.manifest is None:
            raise UsageError("not a copy: it has no manifest", file=there.root,
                             hint="an interrupted copy has none; copy a store where its disk is")  # fmt: skip
        if request.update or request.prune or request.raw:
            raise UsageError("--update, --prune and --raw are for making a copy, not for restoring one")
        self._there, self._request, self._conf = there, request, conf
        self._manifest: Manifest = there.manifest
        self._release = version or parse_version(self._manifest.release.rpartition(" ")[2])
        require_free_name(request.target, [])

    @cached_property
    def plan(self) -> CopyPlan:
        """What it would do."""
        return CopyPlan(self.mode, False, sum(file.used for file in self._manifest.files), self._expired())

    def _expired(self) -> Expired:
        settings = settings_of(self._conf.settings, {}, self._release)
        return expired_of(None if self._request.fresh_times else self._manifest, settings)

    def copy(self, new: NewStore, progress: Progress) -> Copied:
        """Fetch all files, each of which is compared with the manifest; raises UnreadableError, OSError."""
        manifest, root = self._manifest, new.directory
        notes = Notes(new.notes, {"copy": str(self._there.root), "ended": manifest.ended})
        known = notes.read()
        if known is None:
            new.begin_anew()
        notes.open(is_new=known is None)
        new.require_space(sum(file.used for file in manifest.files if file.path not in (known or {})))
        totals = Totals()
        for file, parts in self._there.contents(ReadPolicy(self._request.limit), progress):
            path = root / file.path
            if known and file.path in known and path.exists() and path.stat().st_size == file.size:
                totals.went_on += 1
                progress(file.used)
                continue
            self._fetch(file, parts, path)
            notes.add(file)
            totals.copied += 1
            totals.bytes_read += file.used
        notes.close()
        require_possible(copy_store(root, self._conf), self._request.identity)
        end = LogEnd(manifest.min_offset, manifest.end_offset, manifest.last_record, manifest.last_store_timestamp)
        return Copied(end, manifest.by_path, {}, manifest.started, totals=totals)

    def _fetch(self, file: CopiedFile, parts: Iterator[bytes], path: Path) -> None:
        if not self._there.has(file):
            raise self._damaged(file, "is missing, or shorter than in the manifest")
        if ".." in Path(file.path).parts or Path(file.path).is_absolute():
            raise self._damaged(file, "is outside the copy: this is not the manifest of a copy")
        found, position = hashlib.sha256(), 0
        path.unlink(missing_ok=True)
        with new_file(path, file.size) as descriptor:
            for part in parts:
                found.update(part)
                if part.strip(b"\0"):  # holes stay holes
                    write_all(descriptor, part, position)
                position += len(part)
            os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
        if found.hexdigest() != file.sha256:
            raise self._damaged(file, "differs from the manifest: the copy is damaged")

    def _damaged(self, file: CopiedFile, what: str) -> UnreadableError:
        hint = "copy --verify names all damaged files; another copy may have them intact"
        return UnreadableError(f"{file.path} {what}", file=self._there.root / (file.object or file.path), hint=hint)

    def settle(self, new: NewStore, copied: Copied, progress: Progress) -> None:
        """Nothing: it was, before it went there."""

    def finish(self, new: NewStore, copied: Copied, settled: Settled | None, progress: Progress) -> CopyResult:  # noqa: ARG002
        """Bring the store to its place."""
        root = new.directory
        if self._request.identity:
            take_identity(root, copy_store(root, self._conf), self._request.identity)
        if self._request.fresh_times:
            make_times_fresh(root)
        new.finish(None)
        identity = self._request.identity or self._manifest.identity
        return CopyResult(self.mode, replace(self._manifest, identity=identity), copied.totals, None)
