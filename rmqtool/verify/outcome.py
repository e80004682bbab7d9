"""The outcome of a verification, complete or interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rmqtool.base.errors import Exit
from rmqtool.base.mapped_files import file_at
from rmqtool.base.paths import is_remote, path_of
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.start_duration import StartDuration, duration_of
from rmqtool.clients.losses import ClientLosses
from rmqtool.findings.finding import Finding, Remedy, counted
from rmqtool.findings.report import Report, Selection, Verdict, verdict_of
from rmqtool.rules.broker_conf import delay_levels_of
from rmqtool.rules.versions import newer_than_known
from rmqtool.store.commit_log import log_start
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import COMMIT_LOG
from rmqtool.verify.bad_extents import UNREAD, MapExtent, log_map, unreached
from rmqtool.verify.gaps import NODE_IS_NOT_PREDICTED, Gap, gaps_of_running, gaps_of_selection, gaps_of_store, wanted
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.start import Prediction
from rmqtool.verify.task import EarlyEnd
from rmqtool.verify.verification import Verification

_QUEUES_COUNT_ON = frozenset(
    f"consumequeue.{each}" for each in ("tags-code", "store-timestamp", "pre-blank", "ext-address")
)
"""Findings of units that lead to their messages nevertheless, and so count what damage held."""


EMPTY = "empty: is this the right directory?"


class _End(NamedTuple):
    """How an early end is told: the rest, why it is left, and why there is no prediction of a start."""

    rest: str
    text: str
    reason: str


_EARLY_ENDS: dict[EarlyEnd, _End] = {
    "time-limit": _End("the rest (time limit)", "the time limit ended the verification", "the time limit was reached"),
    "sample": _End("all but a sample", "--sample leaves them out", "only a sample was read"),
}


def for_log_elsewhere(snapshot: Snapshot, finding: Finding) -> Finding:
    """A finding with a next command that works where the log is not in `commitlog/`, too."""
    node, command = snapshot.store.dledger_directory, finding.next_command
    if command is None:
        return finding
    if node is None:
        return replace(finding, next_command=_in_directory_of_file(snapshot, command, finding.offset))
    if command.is_repair:
        salvage = Remedy.filled("rmqtool salvage {store} --output NEW", {"store": snapshot.store.root})
        return replace(finding, next_command=salvage)
    if finding.offset is not None and finding.offset >= log_start(snapshot.current_log.files):
        return replace(finding, next_command=command.on_log(node))
    return finding


def _in_directory_of_file(snapshot: Snapshot, command: Remedy, offset: int | None) -> Remedy:
    """A command on `commitlog/` as one on the directory that holds the file with `offset`."""
    file = None if offset is None else file_at(snapshot.log.files, offset)
    if file is None or file.path.parent == snapshot.store.root / COMMIT_LOG:
        return command
    return command.on_log(file.path.parent, "--as", "commitlog")


def outcome_of(verification: Verification) -> Outcome:
    """The outcome so far, or in the end."""
    total, follows = verification.found.total, verification.after
    report = verification.found.everything()
    gaps = [*_gaps(verification, total, report)]
    if verification.found.note_unreported():  # of what was read for the gaps
        report = verification.found.everything()
        gaps = [*_gaps(verification, total, report)]
    findings = [for_log_elsewhere(verification.snapshot, each) for each in report.findings()]
    gaps = wanted(gaps, verification.request.selection)
    topics = verification.request.selection.topics
    verdict = verdict_of(findings, is_proven=not gaps, in_doubt=any(gap.may_hide_a_loss for gap in gaps),
                         is_lost=_is_lost(follows.clients))  # fmt: skip
    return Outcome(
        snapshot=verification.snapshot,
        selection=verification.request.selection,
        bodies=verification.request.bodies,
        complete=verification.complete,
        ended_by=verification.ended_by,
        resumed_by=_resumed_by(verification),
        verdict=verdict,
        findings=tuple(findings),
        report=report,
        total=total,
        log_start=verification.log_start,
        log_end=verification.log_end,
        lost=Counter(
            {topic: lost for topic, lost in verification.after.lost.items() if topics is None or topic in topics}
        ),
        starts=tuple(follows.starts),
        clients=follows.clients,
        not_predicted=follows.not_predicted,
        gaps=tuple(gaps),
        queues_in_log=_queues_in_log(verification, total),
    )


def _is_lost(clients: ClientLosses | None) -> bool:
    """Whether a start takes something from clients that the store could give.

    One that fails is a finding, or fails for some releases only; one that reads no committed offsets is no damage.
    """
    return clients is not None and not clients.refuses and clients.is_of_store


def _queues_in_log(verification: Verification, total: PartResult) -> Set[QueueName] | None:
    if not verification.complete or total.unreadable or total.unread is not None:
        return None
    return total.states.keys() | total.read_errors.queues | verification.read_errors.queues


@dataclass(frozen=True)
class Outcome:
    """The result of a verification: the request, the findings, and the gaps.

    `lost` counts by topic the messages that cannot be read, of the topics that were asked for; `starts` are the
    predicted starts, that of the newest release first, and `clients` what clients lose by that one; `not_predicted`
    says why there are none. `ended_by` is what ended it early, other than an interruption; `resumed_by` are the options
    with which it goes on, where its progress was saved; `queues_in_log` are those of which the log holds messages, or
    may, None where not all of it was read.
    """

    snapshot: Snapshot
    selection: Selection
    bodies: bool
    complete: bool
    ended_by: EarlyEnd | None
    resumed_by: tuple[str, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]
    report: Report
    total: PartResult
    log_start: int
    log_end: int
    lost: Counter[str]
    starts: tuple[Prediction, ...]
    clients: ClientLosses | None
    not_predicted: str | None
    gaps: tuple[Gap, ...]
    queues_in_log: Set[QueueName] | None

    @property
    def root(self) -> Path:
        """The store."""
        return self.snapshot.store.root

    def duration(self, disk_rate: int | None = None) -> StartDuration | None:
        """How long the predicted start takes; `disk_rate` is in bytes per second, measured where it is None."""
        start, totals = self.start, self.total.totals
        if start is None:
            return None
        size = totals.bytes / totals.messages if totals.messages else 0
        snapshot = self.snapshot
        return duration_of(
            start, snapshot.log.files, size, len(snapshot.queues), disk_rate, has_rows_only=snapshot.has_rows_only
        )

    @property
    def start(self) -> StartPrediction | None:
        """The predicted start of the newest release that fits."""
        return self.starts[0].start if self.starts else None

    @property
    def status(self) -> Exit:
        """The exit status: of findings, else of gaps that the user did not choose."""
        if self.is_interrupted:
            return Exit.INTERRUPTED
        if any(finding.severity != "info" for finding in self.findings):
            return Exit.FINDINGS
        return Exit.OK if all(gap.is_chosen for gap in self.gaps) else Exit.LOSSY

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody ended it before it was complete."""
        return not self.complete and self.ended_by is None

    @property
    def note(self) -> str | None:
        """What to think of first: a broker that was started on an unmounted disk leaves an empty store.

        Or that the named release came after this program.
        """
        snapshot = self.snapshot
        is_empty = not any(file.size for file in snapshot.log.files) and not snapshot.leaves_queues_out
        if is_empty and not len(snapshot.queues) and not self.has_serious:
            return EMPTY
        return newer_than_known(snapshot.release)

    @property
    def has_serious(self) -> bool:
        """Whether there is a finding above information."""
        return any(finding.severity != "info" for finding in self.findings)

    @property
    def damaged_bytes(self) -> int:
        """The bytes of the log that are not as stored."""
        return sum(size for _, size, reason in self.total.extents if reason != UNREAD)

    @property
    def lost_is_minimum(self) -> bool:
        """Whether more messages than `lost` may have been in damage, for not all queues are there to count them."""
        codes = {each.code for each in self.findings if each.severity != "info"} - _QUEUES_COUNT_ON
        is_of_queues = any(code.startswith("consumequeue.") for code in codes)
        return bool(self.damaged_bytes) and (is_of_queues or any(gap.why == "unreadable" for gap in self.gaps))

    @property
    def checks(self) -> list[dict[str, str | int]]:
        """For each code, how much was checked and how many findings there are."""
        totals = self.report.totals()
        return [
            {"code": code, "checked": self.report.checked.get(code, 0), "found": totals.get(code, 0)}
            for code in sorted({*self.report.checked, *totals})
        ]

    @property
    def log_map(self) -> Iterator[MapExtent]:
        """The log as extents; those that an interrupted verification has not reached go to the end of the files."""
        cut_at = self.start.max_offset_after if self.start else None
        files = self.snapshot.log.files
        left = unreached(self.total.reached, self.log_start, files[-1].end_offset) if files else []
        return log_map(self.log_start, self.log_end, self.total.extents, cut_at, [] if self.complete else left)

    @property
    def start_not_predicted(self) -> str | None:
        """Why there is no prediction of the next start; None when there is one."""
        if self.start is not None:
            return None
        if not self.selection.wants_any("start."):
            skip = self.selection.skip
            left_out = "--skip leaves it out" if skip and "start".startswith(skip) else ""
            return left_out or "--only leaves it out; --only start predicts it"
        if self.snapshot.holder is not None:
            program = self.snapshot.holder.program
            return f"{program} works on this store" if program else "a broker runs on this store"
        if self.snapshot.leaves_queues_out:
            return "queues are in RocksDB, which needs the package rocksdict"
        if self.snapshot.store.dledger_directory:
            return NODE_IS_NOT_PREDICTED
        return self.not_predicted or (_EARLY_ENDS[self.ended_by].reason if self.ended_by else "interrupted")

    @property
    def unproven(self) -> list[str]:
        """The gaps, and what no check can prove, in sentences."""
        return [*(gap.text for gap in self.gaps), *_unproven(self)]


def _resumed_by(verification: Verification) -> tuple[str, ...]:
    saved, conf = verification.saved, verification.snapshot.store.conf.path
    if verification.complete or saved is None or saved.problem:
        return ()
    return ("--resume", str(saved.path), *verification.request.words, *(("--broker-conf", conf) if conf else ()))


def _gaps(verification: Verification, total: PartResult, report: Report) -> Iterator[Gap]:
    request, task, store = verification.request, verification.task, verification.snapshot.store
    if verification.ended_by is not None:
        yield _gap_of_rest(verification, verification.ended_by, total)
    elif not verification.complete:
        yield Gap("the rest (interrupted)", "interrupted", "the rest of the store: the verification was interrupted")
    for path in sorted(total.unreadable):
        file = store.relative(path_of(path))
        yield Gap(file, "unreadable", f"messages in {file}, which cannot be read, and entries that point to them")
    for path in verification.read_errors.files(reported=total.unreadable):
        file = store.relative(path_of(path)) if path else "files"
        yield Gap(file, "unreadable", f"{file}, which cannot be read, and entries that point to it")
    if total.unread is not None:
        text = f"the rest of the log, because the running broker has deleted meanwhile: {total.unread}"
        yield Gap("the rest of the log", "changed", text)
    if request.selection.wants_any("index.") and not task.index:
        text = "the index, which the running broker changes faster than it can be read"
        yield Gap("the index", "changed", text, ("index.",))
    if verification.after.not_predicted is not None:
        text = f"what a start would do: {verification.after.not_predicted}"
        yield Gap("what a start would do", "unreadable", text, ("start.",))
    for what, text in report.doubts.items():
        yield Gap(what, "empty", text)
    yield from gaps_of_store(store, has_log=bool(task.files))
    if task.live:
        yield from gaps_of_running(store)
    yield from gaps_of_selection(request.selection, bodies=request.bodies)


def _gap_of_rest(verification: Verification, ended_by: EarlyEnd, total: PartResult) -> Gap:
    files = verification.snapshot.log.files
    left = unreached(total.reached, verification.log_start, files[-1].end_offset) if files else []
    size = sum(size for _, size in left)
    share = f" ({100 * size / verification.snapshot.log.size:.0f} %)" if size else ""
    end = _EARLY_ENDS[ended_by]
    return Gap(
        end.rest, ended_by, f"{counted(size, 'byte')} of the log{share}, and entries that point to them: {end.text}"
    )


def _unproven(outcome: Outcome) -> Iterator[str]:
    totals, store = outcome.total.totals, outcome.snapshot.store
    if is_remote(store.root):
        yield "whether a broker runs on the store, and when it wrote each file: locks and times stay on its machine"
    if totals.without_property_crc:
        messages = counted(totals.without_property_crc, "message")
        yield f"topic, properties and header of {messages}: no __CRC32# covers them"
    if totals.without_body:
        yield f"{counted(totals.without_body, 'message')} without a body, whose body CRC proves nothing"
    if outcome.lost_is_minimum:
        lost = f"at least {counted(outcome.lost.total(), 'message')}" if outcome.lost else "not known"
        yield f"how many messages are damaged: {lost}, because queues that may show more are missing or damaged"
    yield from _unproven_levels(outcome.snapshot)
    yield from _unproven_start(outcome)
    if outcome.total.deleted:
        deleted = ", ".join(store.relative(path_of(path)) for path in outcome.total.deleted)
        yield f"log files that the running broker has deleted meanwhile: {deleted}"
    if outcome.snapshot.holder is not None:
        missing = ((state.missing or {}).get("consumequeue.behind") for state in outcome.total.states.values())
        if outcome.snapshot.database and (count := sum(each.count for each in missing if each)):
            messages = counted(count, "message")
            yield f"the consume queue rows of the last {messages}, which the running broker has not flushed"
        yield "what the running broker has written since this verification began"


def _unproven_levels(snapshot: Snapshot) -> Iterator[str]:
    used = snapshot.delay_levels.delays
    configured = delay_levels_of(snapshot.store.conf).delays
    differing = [str(level) for level, delay in enumerate(used, 1) if delay not in configured[level - 1 : level]]
    if differing:
        yield f"delay levels {', '.join(differing)}: taken from their queues, because no broker.conf sets them"


def _unproven_start(outcome: Outcome) -> Iterator[str]:
    if outcome.start is not None:
        yield from outcome.start.unsure
        if not outcome.bodies:
            yield "what a start would do: bodies are assumed to have their CRC"
    elif not outcome.selection.wants_any("start."):
        yield f"what a start would do: {outcome.start_not_predicted}"
