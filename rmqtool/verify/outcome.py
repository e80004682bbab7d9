"""What a verification says in the end, or when it was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqtool.delay_levels import delay_levels_of
from rmqtool.errors import UnreadableError
from rmqtool.files import list_directory
from rmqtool.findings import Finding, counted
from rmqtool.verify.extents import Extents
from rmqtool.verify.records import RecordTotals
from rmqtool.verify.report import Report, verdict_of
from rmqtool.verify.verification import Verification


def outcome_of(verification: Verification) -> Outcome:
    """Everything that is known."""
    total = verification.merged()
    report = verification.report_with(total.report)
    findings = report.findings()
    return Outcome(verification, verdict_of(findings), findings, report, total.totals, total.extents)


_NOT_READ = {
    "timerlog": "single units of timer wheel and timer log",
    "rocksdbstore": "the RocksDB store beside the log",
    "compaction": "compacted logs",
    "consumequeue_ext": "ext units of consume queues",
}


@dataclass(frozen=True)
class Outcome:
    """The result of a verification."""

    verification: Verification
    verdict: str
    findings: list[Finding]
    report: Report
    totals: RecordTotals
    extents: Extents

    @property
    def root(self) -> Path:
        """The store."""
        return self.verification.store.root

    @property
    def checks(self) -> list[dict[str, str | int]]:
        """For each code, how much was looked at and what was found."""
        totals = self.report.totals()
        return [
            {"code": code, "checked": self.report.checked.get(code, 0), "found": totals.get(code, 0)}
            for code in sorted({*self.report.checked, *totals})
        ]

    @property
    def unproven(self) -> list[str]:
        """What no check can tell, in sentences."""
        return list(_unproven(self))


def _unproven(outcome: Outcome) -> Iterator[str]:
    verification, totals = outcome.verification, outcome.totals
    if not verification.complete:
        yield "the rest of the store: the verification was interrupted"
    if verification.unread is not None:
        yield f"the rest of the log, which the running broker has deleted meanwhile: {verification.unread}"
    if not verification.settings.bodies:
        yield "bodies: --fast reads none of them"
    if totals.without_property_crc:
        messages = counted(totals.without_property_crc, "message")
        yield f"topic, properties and header of {messages}: no __CRC32# covers them"
    if totals.without_body:
        yield f"{counted(totals.without_body, 'message')} without a body, whose body CRC proves nothing"
    yield from _unproven_levels(verification)
    yield from _unproven_start(verification)
    yield from _not_read(verification)


def _holds_something(directory: Path) -> bool:
    """Whether there may be anything in a directory: of one that cannot be read nobody knows."""
    try:
        return directory.is_dir() and bool(list_directory(directory))
    except (OSError, UnreadableError):
        return True


def _unproven_levels(verification: Verification) -> Iterator[str]:
    used = verification.settings.rules.delay_levels.delays
    told = delay_levels_of(verification.store.conf).delays
    differing = [str(level) for level, delay in enumerate(used, 1) if delay not in told[level - 1 : level]]
    if differing:
        yield f"delay levels {', '.join(differing)}: taken from their queues, for no broker.conf tells them"


def _unproven_start(verification: Verification) -> Iterator[str]:
    if verification.not_predicted is not None:
        yield f"what a start would do: {verification.not_predicted}"
    if verification.start is not None:
        yield from verification.start.unsure
        if not verification.settings.bodies:
            yield "what a start would do: every body is taken to have its CRC"


def _not_read(verification: Verification) -> Iterator[str]:
    if verification.store.layout == "rocksdb":
        yield "consume queues: they are kept in RocksDB, which this version does not read"
    root = verification.store.root
    there = [text for name, text in _NOT_READ.items() if _holds_something(root / name)]
    if there:
        yield f"what this version does not look into: {', '.join(there)}"
    if verification.holder is not None:
        yield "what the running broker has written since this verification began"
