"""A copy becomes a cleanly stopped store: queues and index complete to the log's end, a checkpoint that fits, no abort.

A start after a crash would delete the newest index file, and derive again from a checkpoint that may be older or newer
than a queue; releases from 5.4.0 on look at ten files of the log at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import Progress, RateLimit, ReadPolicy
from rmqtool.base.new_files import new_file, write_all
from rmqtool.broker.log_walk import FileWalk, LogWalks
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.recovery import Recovery
from rmqtool.broker.start_findings import start_findings
from rmqtool.copy.log_end import LogEnd
from rmqtool.copy.side import complete_side_rows
from rmqtool.copy.tail import Added, complete_tail
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source, record
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET, Releases, Version, parse_version
from rmqtool.store.checkpoint import checkpoint_file, read_checkpoint
from rmqtool.store.index_files import list_index_files
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, SIDE_STORE, Store, open_store
from rmqtool.transaction.paths import HOME
from rmqtool.transaction.system import SYSTEM, remove_tree
from rmqtool.transaction.transaction import Transaction


@dataclass(frozen=True)
class Settled:
    """What was added to a copy, and the starts that were predicted for it: of the newest release that fits it first.

    It is not `complete` where the size of files, or the release, is not known by which something is to be written: then
    it is as after a crash.
    """

    complete: bool
    units: int
    files: int
    findings: tuple[Finding, ...]
    starts: tuple[StartPrediction, ...]

    @property
    def is_proven(self) -> bool:
        """Whether each start serves all: it is refused nothing, cuts nothing, and loses nothing."""
        return (
            self.complete
            and all(map(is_whole, self.starts))
            and not any(each.severity == "error" for each in self.findings)
        )


def is_whole(start: StartPrediction) -> bool:
    """Whether a start is refused nothing, cuts nothing and loses nothing."""
    lost = any(queue.lost or queue.truncated or queue.misplaced for queue in start.queues)
    return start.is_up and not (start.commit_log_bytes_cut or start.messages_lost or start.files_deleted or lost)


def copy_store(root: Path, conf: BrokerConf) -> Store:
    """The store of a copy: its log is beside it, whatever paths broker.conf names."""
    return open_store(root, conf.without_log_paths())


def settle(
    root: Path, conf: BrokerConf, releases: Releases, end: LogEnd, *, was_clean: bool, is_live: bool = False,
    limit: RateLimit | None, jobs: int, progress: Progress,
) -> Settled:  # fmt: skip
    """Complete queues and index of the copy at `root` from its log, and give it a checkpoint that fits.

    `releases` may have written the source. The checkpoint of one that `was_clean`, and complete, stays. Of a broker
    that runs, or has stopped cleanly, only the end of the log is read. Raises RmqtoolError.
    """
    added = _tail_of(root, conf, releases, end, limit) if was_clean or is_live else None
    if added is not None:
        complete_side_rows(_snapshot_of(copy_store(root, conf), releases), end.last_record)
        if not (was_clean and not (added.units or added.keys) and (root / CHECKPOINT).exists()):
            write_checkpoint(root, copy_store(root, conf), end, releases.newest)
        starts = tuple(predicted(copy_store(root, conf), releases, end.walk))
        return Settled(True, added.units, int(added.keys > 0), (), starts)
    return _settle_by_rebuild(root, conf, releases, end, was_clean=was_clean, limit=limit, jobs=jobs, progress=progress)


def _snapshot_of(store: Store, releases: Releases) -> Snapshot:
    return Snapshot(store, releases.newest if releases.is_named else None)


def _tail_of(root: Path, conf: BrokerConf, releases: Releases, end: LogEnd, limit: RateLimit | None) -> Added | None:
    """What the end of the log adds to queues and index; None where all of it has to be read."""
    if end.is_damaged:
        return None
    return complete_tail(_snapshot_of(copy_store(root, conf), releases), releases, end.end, ReadPolicy(limit))


def _settle_by_rebuild(
    root: Path, conf: BrokerConf, releases: Releases, end: LogEnd, *, was_clean: bool, limit: RateLimit | None,
    jobs: int, progress: Progress,
) -> Settled:  # fmt: skip
    """The same by a comparison of all queues and the index with the whole log."""
    store = copy_store(root, conf)
    version = releases.newest if releases.is_named else None
    parts: set[Part] = {"queues", *(("index",) if list_index_files(store) else ())}
    options = RebuildOptions(frozenset(parts), version=version, limit=limit, jobs=jobs)
    had_side_store = (root / SIDE_STORE).is_dir()
    with Transaction(store, "copy") as transaction:
        plan = make_plan(record(open_source(store, options, releases), transaction), progress)
        if plan.written_kinds & plan.source.sizes.assumed == {
            "index"
        }:  # its keys are as they were, all else is complete
            options, unknown = replace(options, parts=frozenset(["queues"])), _worth_saying(plan)
            plan = make_plan(open_source(store, options, releases), progress)
            plan.findings.extend(each for each in unknown if each.code == "rebuild.file-size-assumed")
        complete = not plan.undecided and not plan.written_kinds & plan.source.sizes.assumed
        if complete and not plan.is_empty:
            apply_plan(plan, transaction, progress)
    tidy(root, keeps_side_store=had_side_store)
    complete_side_rows(_snapshot_of(copy_store(root, conf), releases), end.last_record)
    if not complete:
        leave_unsettled(root, copy_store(root, conf), was_clean=was_clean)
    elif not (was_clean and plan.is_empty and (root / CHECKPOINT).exists()):
        write_checkpoint(root, copy_store(root, conf), end, releases.newest)
    units = sum(queue.difference.added for queue in plan.changed_queues)
    files = sum(file.action != "keep" for file in plan.index)
    starts = tuple(predicted(copy_store(root, conf), releases, end.walk))
    return Settled(complete, units, files, tuple(_worth_saying(plan)), starts)


def _worth_saying(plan: RebuildPlan) -> Iterator[Finding]:
    """The findings of a rebuild, without fields that queues prove to have been others: the log is copied as it is."""
    return (each for each in plan.findings if each.severity != "info" and each.code != "commitlog.field")


def tidy(root: Path, *, keeps_side_store: bool) -> None:
    """Remove what no copy has: the lock, `abort`, and what a rebuild keeps for undo."""
    for name in (LOCK_FILE, ABORT_FILE, f"{SIDE_STORE}/LOCK"):
        (root / name).unlink(missing_ok=True)
    if not keeps_side_store:
        with suppress(OSError):
            os.rmdir(root / SIDE_STORE)
    remove_tree(SYSTEM, str(root / HOME))


def write_checkpoint(root: Path, store: Store, end: LogEnd, release: Version) -> None:
    """Write the checkpoint of a store that is complete to the end of its log."""
    write_checkpoint_fields(root / CHECKPOINT, settled_fields(store, end, release))


def settled_fields(store: Store, end: LogEnd, release: Version) -> dict[str, int]:
    """The checkpoint of a store that is complete to the end of its log."""
    before = read_checkpoint(store) or {}
    newest = max((file.end_timestamp for file in list_index_files(store)), default=0)
    fields = {
        "physic_message_timestamp": end.last_store_timestamp,
        "logics_message_timestamp": end.last_store_timestamp,
        "index_message_timestamp": newest,
        "master_flushed_offset": min(before.get("master_flushed_offset", 0), end.end),
        "confirm_physical_offset": min(before.get("confirm_physical_offset", 0), end.end),
    }
    if before.get("logics_physical_offset", 0) > 0 or release >= CHECKPOINT_HAS_LOGICS_OFFSET:
        fields["logics_physical_offset"] = max(0, end.last_record)
    return fields


def leave_unsettled(root: Path, store: Store, *, was_clean: bool) -> None:
    """Let the next start of a copy be one after a crash, unless the store `was_clean`.

    It keeps the newest index file, whose time the checkpoint lacks until the file is full.
    """
    if was_clean:
        return
    (root / ABORT_FILE).touch()
    before = read_checkpoint(store)
    newest = max((file.end_timestamp for file in list_index_files(store)), default=0)
    if before is not None and newest > before.get("index_message_timestamp", 0):
        write_checkpoint_fields(root / CHECKPOINT, {**before, "index_message_timestamp": newest})


def write_checkpoint_fields(path: Path, fields: Mapping[str, int]) -> None:
    """Write a checkpoint in a file of its own, with the mode and times of the one before."""
    data = checkpoint_file(fields)
    status = path.stat() if path.exists() else None
    path.unlink(missing_ok=True)
    with new_file(path, len(data)) as descriptor:
        write_all(descriptor, data, 0)
    if status:
        os.chmod(path, status.st_mode & 0o7777)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def predicted(store: Store, releases: Releases, walk: FileWalk | None = None) -> Iterator[StartPrediction]:
    """The start of the newest release that fits the copy, and of the oldest where that recovers in another way.

    `walk` is one through a file of the log that is the same to every release.
    """
    snapshot = _snapshot_of(store, releases)
    walked = [walk] if walk else []
    known: set[object] = set()
    for version in dict.fromkeys((releases.newest, releases.oldest)):
        rules = RecoveryRules.of(version, snapshot.store.conf)
        if rules.answers not in known:
            known.add(rules.answers)
            walks = LogWalks(rules, walked, snapshot.reading)
            yield Recovery(snapshot, rules, walks).predict()
            walked = walks.undamaged()


def problems(store: Store, starts: tuple[StartPrediction, ...]) -> Iterator[Finding]:
    """The findings of starts that do not serve all, for each code once."""
    snapshot = Snapshot(store)
    found: set[str] = set()
    for start in starts:
        if is_whole(start):
            continue
        recovery = Recovery(snapshot, RecoveryRules.of(parse_version(start.version), snapshot.store.conf))
        with suppress(RmqtoolError):
            for each in start_findings(recovery, start):
                if each.code not in found:
                    found.add(each.code)
                    yield each
