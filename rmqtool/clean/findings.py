"""Findings about a plan: what keeps the cleaner from deleting, or makes it delete more than expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from rmqtool.base.visible import quote
from rmqtool.broker.cleaner import NOT_BY_AGE, LogFile, unconfigured_findings
from rmqtool.broker.trigger import failing_hours, matching_hours
from rmqtool.clean.plan import AsIf, CleanPlan, Facts, cleaner_of, rules_of
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS, file_size
from rmqtool.rules import file_sizes
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import (
    DISK_LEVELS_CONFIGURED,
    DISK_RATIO_AS_DF,
    NEWEST,
    OLDEST,
    TEXT_SETTINGS_TRIMMED,
    Version,
)
from rmqtool.store.file_findings import layout_findings, log_findings, offset_findings
from rmqtool.store.lock import ABORT_FILE, has_abort
from rmqtool.transaction.home import interrupted_findings


@dataclass(frozen=True)
class WrongSize:
    """Files at or below `file` whose size is not what broker.conf sets with `setting`, bytes."""

    setting: str
    configured_size: int
    size: int
    file: str
    consequence: str | None = None

    def __str__(self) -> str:
        """The difference in a sentence."""
        configured = f"by broker.conf ({self.setting}) these files have {self.configured_size} bytes"
        return f"{configured}, but here they have {self.size}"


def geometry_findings(facts: Facts) -> Iterator[Finding]:
    """A finding for each wrong size."""
    for wrong in wrong_sizes(facts):
        details = {"setting": wrong.setting, "configured_size": wrong.configured_size, "size": wrong.size}
        yield finding("clean.file-size", effect=wrong.consequence, file=wrong.file, details=details)


def wrong_sizes(facts: Facts) -> Iterator[WrongSize]:
    """Sizes by broker.conf that differ from the store's; a size that it does not set is the broker's default."""
    snapshot, conf = facts.snapshot, facts.snapshot.store.conf
    if not conf.settings:
        return
    size = _size(conf, file_sizes.LOG_FILE_SIZE, file_sizes.DEFAULT_LOG_FILE_SIZE)
    if size and snapshot.log.file_size not in (0, size):
        yield WrongSize(file_sizes.LOG_FILE_SIZE[0], size, snapshot.log.file_size, "commitlog")
    for kind, names in file_sizes.QUEUE_FILE_SIZE.items():
        size = _size(conf, names, file_sizes.DEFAULT_QUEUE_FILE_SIZE[kind])
        size = -(-size // UNIT_SIZE) * UNIT_SIZE if kind == "simple" else size  # `#getMappedFileSizeConsumeQueue`
        queue = next((s.queue for s in facts.states if s.queue.kind == kind and s.queue.files.file_size), None)
        if size and queue and queue.files.file_size != size:
            directory = snapshot.store.relative(queue.files.files[0].path.parent)
            yield WrongSize(names[0], size, queue.files.file_size, directory)
    first = snapshot.index_files[0] if snapshot.index_files else None
    slots, units = _size(conf, ("maxHashSlotNum",), DEFAULT_SLOTS), _size(conf, ("maxIndexNum",), DEFAULT_UNITS)
    if first and slots and units and first.size != file_size(slots, units):
        effect = "not detected: keys are looked up and written at wrong places of the index"
        path = snapshot.store.relative(first.path)
        yield WrongSize("maxHashSlotNum and maxIndexNum", file_size(slots, units), first.size, path, effect)


def _size(conf: BrokerConf, names: Sequence[str], default: int) -> int:
    """A size by broker.conf, bytes or a count; without it the default; 0 without a broker.conf."""
    given = conf.number(*names)  # one of 0 or less the broker does not take either: its default counts
    return given if given is not None and given > 0 else default if conf.path is not None else 0


TOLERANCE_MS = 3_600_000  # the kernel writes a map's pages, and the time with them, later than the message came

Deviation = Literal["future", "later", "earlier"]


@dataclass(frozen=True)
class WrongTime:
    """A file of which the broker takes a wrong age; `written` is when its messages end or begin, epoch ms."""

    log_file: LogFile
    deviation: Deviation
    written: int

    @property
    def shift(self) -> int:
        """By how much longer the file stays than its messages would, ms; negative when it goes earlier."""
        return self.log_file.mtime - self.written


def wrong_times(facts: Facts, now: int) -> Iterator[WrongTime]:
    """The files whose modification time is in the future, later than their messages, or earlier than the first.

    A file's last message is taken to be as old as the next file's first one; `now` is epoch ms.
    """
    begins = facts.first_timestamps
    for file_number, log_file in enumerate(facts.log_files):
        if log_file.start_offset > facts.log_range.max_offset:
            return
        first = begins[file_number]
        following = begins[file_number + 1] if file_number + 1 < len(begins) else None
        last = following if following is not None else facts.log_range.last_store_timestamp
        if log_file.mtime > now + TOLERANCE_MS:
            yield WrongTime(log_file, "future", last if last is not None else now)
        elif last is not None and log_file.mtime > last + TOLERANCE_MS:
            yield WrongTime(log_file, "later", last)
        elif first is not None and log_file.mtime < first - TOLERANCE_MS:
            yield WrongTime(log_file, "earlier", first)


_HOUR_MS = 3_600_000
# One release for each set of rules.
_DIFFERENT_RULES = (OLDEST, DISK_RATIO_AS_DF, DISK_LEVELS_CONFIGURED, TEXT_SETTINGS_TRIMMED, NEWEST)


def findings_of(plan: CleanPlan, options: str = "") -> Iterator[Finding]:
    """All findings about a plan and the store below it, the most important first.

    The commands that they name have the `options` that the plan was made with, with a blank in front.
    """
    snapshot, store = plan.snapshot, plan.snapshot.store
    yield from _interrupted(plan)
    yield from geometry_findings(plan.facts)
    yield from _delete_when(plan)
    yield from _blocked(plan)
    yield from _disk(plan)
    yield from _mtimes(plan)
    yield from _overdue(plan)
    yield from _ambiguous(plan, options)
    yield from _settings(plan)
    yield from unconfigured_findings(snapshot)
    yield from layout_findings(store)
    yield from log_findings(store, snapshot.log, snapshot.releases, live=snapshot.holder is not None)
    yield from offset_findings(store, snapshot.committed.file)


def _interrupted(plan: CleanPlan) -> Iterator[Finding]:
    """An interrupted run of ours, or a broker that was killed: a start or the next run changes files first."""
    root = plan.snapshot.store.root
    yield from interrupted_findings(root)
    if plan.snapshot.holder is None and has_abort(root):
        yield finding(
            "store.unclean-stop",
            store=root,
            file=ABORT_FILE,
            effect="the next start recovers first, and may cut the end of the log and delete index files before its "
            "cleaner runs",
        )


def _delete_when(plan: CleanPlan) -> Iterator[Finding]:
    """Hours at which the run fails, and a deleteWhen that no hour matches (`UtilAll#isItTimeToDo`)."""
    delete_when = plan.rules.settings.delete_when
    failing, matching = failing_hours(delete_when), matching_hours(delete_when)
    if failing:
        yield finding(
            "clean.delete-when",
            details={
                "problem": "always" if len(failing) == 24 else "sometimes",
                "delete_when": delete_when,
                "hours": len(failing),
            },
            effect="deletes nothing in those hours, not even when the disk is full; its log says "
            "'CleanCommitLogService service has exception'. Write 04 or 04;16",
        )
    elif not matching:
        yield finding(
            "clean.delete-when",
            severity="warning",
            details={"problem": "never", "delete_when": delete_when},
            effect="deletes only when the disk is too full, or after mqadmin deleteExpiredCommitLog",
        )


def _blocked(plan: CleanPlan) -> Iterator[Finding]:
    """Files that have expired and wait after a younger one (`MappedFileQueue#deleteExpiredFileByTime`)."""
    shielded = [decision for decision in plan.kept if decision.reason == "shielded" and decision.expires <= plan.now]
    if not shielded:
        return
    first = next(decision for decision in plan.kept if decision.reason == "not-expired")
    size = sum(decision.log_file.allocated for decision in shielded)
    yield finding(
        "clean.blocked-by-older-file",
        file=plan.snapshot.store.relative(first.log_file.file.path),
        details={"bytes": size, "expires": first.expires},
        count=len(shielded),
    )


def _disk(plan: CleanPlan) -> Iterator[Finding]:
    """A disk that is too full while nothing goes, or so full that producers are refused."""
    trigger, settings = plan.trigger, plan.rules.settings
    if trigger.writes_refused:
        yield finding(
            "store.disk-full",
            severity="error",
            details={"problem": "refused", "used": _used(plan), "level": settings.warning_level},
            effect="refuses messages ('service not available now ... disk full') until a run finds the disk below",
        )
    if not (trigger.space and not plan.runs[0].log.deleted):
        return
    yield finding("clean.disk-full-nothing-deleted", details={"used": _used(plan), **_why_nothing(plan)})


def _used(plan: CleanPlan) -> float:
    ratios = (plan.trigger.log_ratio, plan.trigger.queue_ratio or 0.0)
    return round(max(ratios) * 100, 2)


def _why_nothing(plan: CleanPlan) -> dict[str, Any]:
    """Why no file is deleted, as facts."""
    kept, settings = plan.runs[0].log.kept, plan.rules.settings
    candidates = [decision for decision in kept if decision.reason not in NOT_BY_AGE]
    if not candidates and plan.holds_entries_back:
        return {"reason": "before-dledger"}
    if not candidates:
        return {"reason": "one-file"}
    if candidates[0].reason == "in-use":
        return {"reason": "in-use"}
    forced = (
        plan.trigger.log_ratio > settings.forcibly_level or (plan.trigger.queue_ratio or 0) > settings.forcibly_level
    )
    if forced and not settings.clean_file_forcibly_enable:
        return {"reason": "not-forced"}
    return {"reason": "not-expired", "expires": candidates[0].expires, "level": settings.forcibly_level}


def _mtimes(plan: CleanPlan) -> Iterator[Finding]:
    by_deviation: dict[str, list[WrongTime]] = {}
    never = _never_by_age(plan)
    for wrong in wrong_times(plan.facts, plan.now):
        if wrong.log_file.start_offset not in never:
            by_deviation.setdefault(wrong.deviation, []).append(wrong)
    for deviation, files in by_deviation.items():
        yield _wrong_time(plan, deviation, files)


def _never_by_age(plan: CleanPlan) -> set[int]:
    """Start offsets of the files that stay, however old, because the last log file from before DLedger does."""
    kept = [decision for decision in plan.runs[0].log.kept if decision.reason in NOT_BY_AGE]
    stay = plan.holds_entries_back and any(decision.reason == "last-file" for decision in kept)
    return {decision.log_file.start_offset for decision in kept} if stay else set()


def _wrong_time(plan: CleanPlan, deviation: str, files: Sequence[WrongTime]) -> Finding:
    first = files[0]
    path = first.log_file.file.path
    shift = max(abs(wrong.shift) for wrong in files) / _HOUR_MS
    effects = {
        "future": f"treats the file as younger than it is: it and all newer files are kept up to {shift:.0f} h longer",
        "later": f"counts the age from there: files are kept up to {shift:.0f} h longer than their messages need",
        "earlier": f"counts the age from there: files are deleted up to {shift:.0f} h before their messages expire",
    }
    when = datetime.fromtimestamp(first.written / 1000, timezone.utc).isoformat(timespec="seconds")
    return finding(
        f"clean.mtime-{deviation}",
        file=plan.snapshot.store.relative(path),
        details={"modified": first.log_file.mtime, "written": first.written, "others": len(files) - 1},
        effect=effects[deviation],
        remedy=f"touch -m -d {when} {quote(str(path))}" + ("  (the others likewise)" if len(files) > 1 else ""),
        count=len(files),
    )


def _overdue(plan: CleanPlan) -> Iterator[Finding]:
    """A first file that should have been deleted in an earlier hour: no broker runs, or one with other settings."""
    files, rules = plan.facts.log_files, plan.rules
    decisions = plan.runs[0].log.decisions
    hours = matching_hours(rules.settings.delete_when)
    if (
        len(files) < 2
        or not hours
        or decisions[0].reason in NOT_BY_AGE
        or plan.now - decisions[0].expires < 25 * _HOUR_MS
        or failing_hours(rules.settings.delete_when)
    ):
        return
    holder = plan.snapshot.holder
    yield finding(
        "clean.overdue",
        severity="info" if holder is None else "warning",
        file=plan.snapshot.store.relative(files[0].file.path),
        details={"problem": "broker" if holder else "no-broker", "expires": decisions[0].expires},
        effect="none" if holder is None else "look for 'destroy mapped file[REF' in its store.log",
    )


def _ambiguous(plan: CleanPlan, options: str) -> Iterator[Finding]:
    """Whether a broker of another version that may have written the store would decide otherwise."""
    snapshot = plan.snapshot
    oldest = snapshot.releases.oldest
    candidates = [oldest, *(version for version in _DIFFERENT_RULES if oldest < version < snapshot.release)]
    expected = [decision.log_file for decision in plan.runs[0].log.deleted]
    for version in candidates:
        other = _deleted_by(plan, version)
        if other != expected:
            yield finding(
                "store.version-ambiguous",
                details={
                    "problem": "deletions",
                    "version": str(version),
                    "log_files": len(other),
                    "shown_version": str(snapshot.release),
                    "shown_log_files": len(expected),
                },
                remedy=f"rmqtool clean {quote(str(snapshot.store.root))}{options} --dry-run --broker-version {version}",
            )
            return


def _deleted_by(plan: CleanPlan, version: Version) -> list[object]:
    shown = {setting.name: setting.given for setting in plan.rules.settings.shown if setting.given is not None}
    as_if = AsIf(zone=plan.rules.zone, is_manual=plan.rules.manual, is_first_file_in_use=plan.rules.first_in_use)
    rules = rules_of(plan.facts, shown, as_if, version)
    cleaner = cleaner_of(plan.facts, rules, log_only=True)
    return [decision.log_file for decision in cleaner.run(plan.now).log.deleted]


def _settings(plan: CleanPlan) -> Iterator[Finding]:
    for setting in plan.rules.settings.shown:
        if setting.why is not None:
            yield finding(
                "clean.setting",
                details={"setting": setting.name, "given": setting.given, "why": setting.why},
                effect=f"works with {setting.effective}",
            )
