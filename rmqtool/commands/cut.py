"""`rmqtool cut STORE --at OFFSET`: end the log here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtool.base.errors import Exit
from rmqtool.base.visible import join
from rmqtool.commands import shared_options as shared
from rmqtool.commands import writing
from rmqtool.commands.options import command, flag, option, parsed, time_from, time_or_clock
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtool.cut.job import CutJob, CutPlan, CutProof, CutRequest
    from rmqtool.cut.place import At
    from rmqtool.transaction.home import Recovered

_OFFSET = re.compile(r"\d{1,18}", re.ASCII)
_LAST = re.compile(r"last-(\d{1,18})", re.ASCII)


@parsed
def _at(value: str) -> At:
    from rmqtool.cut.place import At

    if _OFFSET.fullmatch(value):
        return At("offset", int(value))
    last = _LAST.fullmatch(value)
    return At("last", int(last[1])) if last else At("time", time_from(value, "--at", time_or_clock(None)))


@dataclass(frozen=True, kw_only=True)
class CutOptions(shared.OnStore):
    """What was asked for."""

    at: At = option(
        "Where to end the log: a physical offset at which a record begins or ends; a time, with all messages stored "
        "from then on deleted; or last-N, with the last N messages deleted.",
        required=True, callback=_at, metavar="OFFSET|TIME|last-N",
    )  # fmt: skip
    renumber: bool = flag("Let queues that keep no message begin again at queue offset 0.")
    node_only: bool = flag("Cut one node of several; the others must be cut at the same offset.")
    dry_run: bool = shared.dry_run_option()
    yes: bool = shared.yes_option()


@command(
    "cut",
    CutOptions,
    (
        "rmqtool cut /data/rocketmq/store --at 3198209 --dry-run",
        "rmqtool cut /data/rocketmq/store --at 2026-11-29T12:00:00Z --dry-run",
        "rmqtool cut /data/rocketmq/store --at last-100 --yes",
    ),
    {
        Exit.OK: "done, planned, or nothing to do",
        Exit.FINDINGS: "done; the next start would not serve all remaining messages",
        Exit.USAGE: "no such place, nothing would be left, or nobody confirmed",
        Exit.FAILED: "could not finish; the store is as before",
        Exit.IN_USE: "a broker runs on the store",
    },
)
def cut(style: Style, given: CutOptions) -> Exit:
    """Cut off the log of a store at an offset, in place.

    Everything stored from there on is deleted, with its queue entries, keys and timers. Committed offsets and delay
    levels past the new ends are lowered, and messages that were delivered after the cut are delivered again. None of
    it comes back. (When a broker cuts its log itself, it leaves the old bytes after the end, and they may come back.)
    Stop the broker first. `rmqtool undo` takes the cut back, until a broker has run.
    """
    from rmqtool.cut.job import CutJob, CutRequest
    from rmqtool.store.store import require_plain_log

    require_plain_log(given.store, "cut")
    request = CutRequest(given.at, given.renumber, given.node_only)
    if given.dry_run:
        plan = _plan(style, CutJob(given.opened.snapshot, request))
        return _show_plan(style, given, plan)
    writing.require_answer(yes=given.yes)
    writing.confirm_deletion(given.store.root, yes=given.yes)
    with writing.reporting_state(style, given.store.root, "is written; undo takes it back"):
        return _carry_out(style, given, request)


def _plan(style: Style, job: CutJob) -> CutPlan:
    with byte_progress("reading what is deleted", job.size, style=style) as bar:
        return job.plan(bar.add)


def _carry_out(style: Style, given: CutOptions, request: CutRequest) -> Exit:
    from rmqtool.cut.job import CutJob, proof_of
    from rmqtool.transaction.transaction import Transaction

    options = writing.recorded_options(given.store.conf.path, given.broker_version)
    with Transaction(given.store, "cut", options=options) as transaction:
        writing.print_recovered(transaction.recovered)
        snapshot = given.opened.snapshot
        plan = _plan(style, CutJob(snapshot, request))
        if plan.changes:
            _ask(style, given, plan)
            plan.stage(transaction)
        snapshot.databases.close()
        done = transaction.commit().id if plan.changes else None
        proof = proof_of(snapshot) if done else None
    return _show_done(style, given, plan, done, proof, transaction.recovered)


def _ask(style: Style, given: CutOptions, plan: CutPlan) -> None:
    from rmqtool.show.cut import show_cut

    if given.yes:
        return
    if not style.json:
        show_cut(plan, None, style)
    writing.confirm(f"Remove {plan.tail.records} messages from the log?", yes=False)


def _show_plan(style: Style, given: CutOptions, plan: CutPlan) -> Exit:
    from rmqtool.show.cut import cut_json, show_cut

    if style.json:
        write_document(style, "cut", cut_json(plan, "planned" if plan.changes else "nothing"))
        return Exit.OK
    show_cut(plan, None, style)
    if not style.quiet:
        words = given.words("renumber", "node_only", *shared.OF_NEXT)
        at = ["--at", str(plan.place.offset)]
        following = join(["rmqtool", "cut", str(given.path), *at, *words])
        note(f"nothing is written yet; next: {following}" if plan.changes else "nothing to do")
    return Exit.OK


def _show_done(
    style: Style, given: CutOptions, plan: CutPlan, done: str | None, proof: CutProof | None,
    recovered: Sequence[Recovered],
) -> Exit:  # fmt: skip
    from rmqtool.show.cut import cut_json, show_cut

    findings = proof.findings if proof else ()
    status = Exit.FINDINGS if proof and not proof.is_proven else Exit.OK
    if style.json:
        result = cut_json(plan, "done" if done else "nothing", done, proof, recovered)
        write_document(style, "cut", result, findings=findings, status=status)
        return status
    if given.yes or not done:
        show_cut(plan, proof, style)
    if not style.quiet:
        words = given.words("broker_conf", "broker_version")
        back = join(["rmqtool", "undo", str(given.path)])
        note(f"done: {done}; to undo it, before a broker starts: {back}" if done else "nothing to do")
        if plan.is_unclean:
            settling = join(["rmqtool", "repair", str(given.path), "--settle", *words])
            note(f"the broker did not stop cleanly, and its next start recovers; {settling} turns it into a clean one")
    return status
