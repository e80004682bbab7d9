"""Config files that are missing or empty, although the store proves that they had content (`ConfigManager#load`).

A broker that finds neither a file nor its ``.bak`` silently starts with an empty table. The proof is that a whole
broker has written the store: it has written other config files, or messages in its own topics. Store classes without a
broker write neither, and a log that was copied alone has no `config/`.
"""

from __future__ import annotations

from typing import Any

from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS
from rmqtool.verify.witnesses import DELAYS, GROUPS, State, Witnesses

_FIRST_WRITE_MS = 60_000  # a broker writes its offsets 10 s after its start at the latest; with room for slow machines

EFFECTS = {
    TOPICS: "the broker starts without these topics: clients are refused, or topics are made again with default queues",
    CONSUMER_OFFSET: "the broker starts without any offset: each group begins again by its own policy, and skips what "
    "it has not consumed, or gets all again",
    GROUPS: "the broker starts without these groups: they are made again with default settings, or refused where "
    "autoCreateSubscriptionGroup is off",
    DELAYS: "the broker delivers these messages again",
}
"""What a broker does without a file, or without its table in RocksDB."""

PROOFS = {TOPICS: "topics", CONSUMER_OFFSET: "consumed", GROUPS: "groups"}
"""What shows that there was content: topics with messages, groups that consumed, groups that the store knows."""


def check_losses(witnesses: Witnesses, report: Report) -> None:
    """Report config files whose loss loses topics, groups or offsets."""
    report.check("config.missing", len(EFFECTS))
    if witnesses.is_in_rocksdb:
        return
    _check_topics(witnesses, report)
    _check_offsets(witnesses, report)
    _check_groups(witnesses, report)
    _check_backups_alone(witnesses, report)


def report_loss(
    name: str, state: State, proof: str, report: Report, *, severity: Severity | None = None, **facts: Any
) -> None:
    """Report a lost file; `proof` is how the store shows the content, with its `facts`: names that are `shown`."""
    path = f"{CONFIG}/{name}"
    effect = EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
    details = {"problem": state, "lost": state, "proof": proof, **facts}
    report.add("config.missing", file=path, effect=effect, severity=severity, details=details)


def may_be_unwritten(witnesses: Witnesses) -> bool:
    """Whether the broker may have been killed before it first wrote offsets."""
    return witnesses.is_unclean and witnesses.totals.latest - witnesses.totals.earliest <= _FIRST_WRITE_MS


def doubt_offsets(missing: str, report: Report) -> None:
    """Note that offsets may be lost, or were never written; `missing` says what is not there."""
    text = f"{missing}, which a broker that is killed within its first ten seconds has not written yet"
    report.doubt("committed offsets", f"committed offsets: {text}")


def _check_backups_alone(witnesses: Witnesses, report: Report) -> None:
    """Report files of which only the .bak is left: a broker that stops leaves both, the .bak with the older content."""
    for name in () if witnesses.is_unclean else (*EFFECTS, LMQ_CONSUMER_OFFSET):
        file = witnesses.file(name)
        if file.path is not None and file.path.suffix == ".bak" and file.problem is None:
            effect = EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
            report.add("config.missing", severity="warning", file=f"{CONFIG}/{name}",
                       effect=f"of what has changed since: {effect}",
                       details={"problem": "backup-left", "lost": "backup-left"})  # fmt: skip


def _check_topics(witnesses: Witnesses, report: Report) -> None:
    state, topics = witnesses.state(TOPICS), witnesses.user_topics
    if state in ("there", "unreadable") or not topics:
        return
    proven = state != "gone" or witnesses.is_brokers or witnesses.has_broker_topics
    severity: Severity | None = None if proven else "info"
    report_loss(TOPICS, state, PROOFS[TOPICS], report, severity=severity, shown=sorted(topics))


def _check_offsets(witnesses: Witnesses, report: Report) -> None:
    names = (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET)
    name = LMQ_CONSUMER_OFFSET if LMQ_CONSUMER_OFFSET in witnesses.names else CONSUMER_OFFSET
    state = witnesses.state(name)
    if state in ("there", "unreadable") or (state == "gone" and any(witnesses.state(each) != "gone" for each in names)):
        return
    if state == "gone" and may_be_unwritten(witnesses):
        if witnesses.names:
            doubt_offsets(f"there is no {name}", report)
        return
    groups = witnesses.retrying_groups()
    if state == "without its table" or (state == "gone" and witnesses.is_brokers):
        groups |= witnesses.configured_groups()
    if groups or state == "without its table":
        proof = PROOFS[CONSUMER_OFFSET] if groups else "offsets-of-all"
        report_loss(name, state, proof, report, shown=sorted(groups))


def _check_groups(witnesses: Witnesses, report: Report) -> None:
    state = witnesses.state(GROUPS)
    if state in ("there", "unreadable") or (state == "gone" and not witnesses.is_brokers):
        return
    groups = witnesses.known_groups()
    if groups or state != "gone":
        proof = PROOFS[GROUPS] if groups else "groups-of-all"
        report_loss(GROUPS, state, proof, report, severity="warning", shown=sorted(groups))
