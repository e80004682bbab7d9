"""What `rmqtool repair` does instead of repairing: times, the settling of a store, records of losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqtool.base.errors import Exit
from rmqtool.base.visible import join, visible
from rmqtool.commands import shared_options as shared
from rmqtool.commands import writing
from rmqtool.commands.options import jobs_option, time_or_clock
from rmqtool.show.output import Style, note, show_finding, write_document, write_text
from rmqtool.show.progress import byte_progress
from rmqtool.show.times import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtool.cut.settling import Settling

NOTHING = "nothing to repair"


@dataclass(frozen=True, kw_only=True)
class ApartOptions(shared.OnTier):
    """What these need to know."""

    dry_run: bool = shared.dry_run_option()
    jobs: int | None = jobs_option()
    yes: bool = shared.yes_option()


def _result(state: str, **found: Any) -> dict[str, Any]:
    """The result of a repair, empty but for what was `found`."""
    empty: dict[str, Any] = {
        "transactions": [], "acknowledged": [], "verdict": None, "plan": None, "changes": [], "rebuild": None,
        "recovered": [], "proof": None,
    }  # fmt: skip
    return {"state": state, **empty, **found}


def acknowledge(style: Style, given: ApartOptions) -> Exit:
    """Show the records of losses, and remove them."""
    from rmqtool.transaction import losses as records

    root = given.store.root
    losses = [each.loss.text if each.loss else f"{each.file}: no record" for each in records.recorded_losses(root)]
    if not style.json:
        write_text("".join(f"lost: {visible(sentence(text))}\n" for text in losses) or "no loss is recorded\n")
    if losses and not given.dry_run:
        writing.confirm("Does everybody know of this loss?", yes=given.yes)
        records.acknowledge(root)
    if style.json:
        state = "nothing" if not losses else "planned" if given.dry_run else "done"
        write_document(style, "repair", _result(state, acknowledged=losses))
    return Exit.OK


def give_times(style: Style, given: ApartOptions) -> Exit:
    """Show which files have lost their times, and give them back."""
    from rmqtool.copy import file_times

    found = file_times.lost_times(given.opened.snapshot, time_or_clock(None))
    wanted = [each for each in found if not each.kept]
    changes = [{"what": each.text(given.store), "details": [], "lost": None, "codes": ["store.modification-times"]}
               for each in wanted]  # fmt: skip
    if not style.json:
        write_text("".join(f"{visible(sentence(str(change['what'])))}\n" for change in changes) or f"{NOTHING}\n")
        if len(found) > len(wanted) and not style.quiet:
            note(f"{len(found) - len(wanted)} files of the log keep their times: the first cleaning would delete them")
    if wanted and not given.dry_run:
        writing.confirm("Set these times?", yes=given.yes)
        file_times.give_times(given.store, wanted)
    if style.json:
        state = "nothing" if not wanted else "planned" if given.dry_run else "done"
        write_document(style, "repair", _result(state, changes=changes))
    return Exit.OK


def settle(style: Style, given: ApartOptions) -> Exit:
    """Make a killed broker's store a clean one, after a proof, or show what that would change."""
    from rmqtool.cut.settling import SettleJob

    root, options = given.store.root, writing.recorded_options(given.store.conf.path, given.broker_version)
    processes = shared.processes_for(given.jobs, given.path)
    job = SettleJob(lambda: given.open(given.path).snapshot, jobs=processes, options=options)
    size = given.store.commit_log().size
    if given.dry_run:
        with byte_progress("proving the store", size, style=style) as bar:
            found = job.plan(bar.update)
        return _show_settled(style, given, found)
    writing.require_answer(yes=given.yes)
    writing.confirm_deletion(root, yes=given.yes)
    writing.confirm("Mark this store as cleanly stopped, once that is proven?", yes=given.yes)
    with (
        writing.reporting_state(style, root, "is written; undo takes it back"),
        byte_progress("proving the store", size, style=style) as bar,
    ):
        found = job.settle(bar.update)
    return _show_settled(style, given, found)


def _show_settled(style: Style, given: ApartOptions, found: Settling) -> Exit:
    findings: Sequence[Any] = found.proof.findings if found.proof else ()
    status = Exit.FINDINGS if found.proof and not found.proof.is_proven else Exit.OK
    if style.json:
        state = "done" if found.transactions else "planned" if found.what else "nothing"
        changes = [{"what": what, "details": [], "lost": None, "codes": ["store.unclean-stop"]} for what in found.what]
        recovered = writing.recovered_json(found.recovered)
        result = _result(state, transactions=found.transactions, changes=changes, recovered=recovered)
        write_document(style, "repair", result, findings=findings, status=status)
        return status
    writing.print_recovered(found.recovered)
    write_text("".join(f"{visible(what)}\n" for what in found.what) or "nothing to do: the broker stopped cleanly\n")
    for each in findings:
        show_finding(style.console(), each)
    if found.proof and found.proof.is_proven and not style.quiet:
        write_text("the next start is one after a clean stop, and loses nothing\n")
    if not style.quiet and found.what:
        words = given.words(*shared.OF_NEXT)
        again = join(["rmqtool", "repair", str(given.path), "--settle", *words])
        back = f"to undo it, before a broker starts: {join(['rmqtool', 'undo', str(given.path)])}"
        done = ", ".join(found.transactions)
        note(f"done: {done}; {back}" if done else f"nothing is written yet; next: {again}")
    return status
