"""`rmqtool repair STORE`: carry out what `verify` says is to do."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import Exit, UnreadableError, UnsupportedError, UsageError
from rmqtool.base.visible import join, quote
from rmqtool.commands import repair_apart, writing
from rmqtool.commands import shared_options as shared
from rmqtool.commands.options import command, flag, jobs_option, option
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress, job_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqtool.broker.field_damage import FieldDamage
    from rmqtool.rebuild.log_pass import Recording
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.rebuild.source import RebuildSource
    from rmqtool.repair.diagnosis import Repairs
    from rmqtool.repair.plan import Plan
    from rmqtool.repair.proof import Proof
    from rmqtool.repair.saved_plan import SavedRepairPlan
    from rmqtool.store.missing import Sized
    from rmqtool.transaction.transaction import Transaction
    from rmqtool.verify.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class RepairOptions(repair_apart.ApartOptions):
    """What was asked for; of a saved plan, what it was made with."""

    dry_run: bool = shared.dry_run_option()
    save_plan: Path | None = shared.save_plan_option()
    plan: Path | None = shared.plan_option()
    keep_offsets: bool = flag("Do not change committed offsets, even impossible ones.")
    lose: tuple[str, ...] = option(
        "Also replace by dummy records messages with a damaged body or damaged properties, which clients still get; "
        "the plan names them. Without it no repair removes anything that clients get.",
        type=click.Choice(["commitlog.body-crc", "commitlog.properties"]), multiple=True,
    )  # fmt: skip
    times: bool = flag(
        "Only restore the modification times that files lost when the store was copied, except where the first "
        "cleaning would then delete them."
    )
    settle: bool = flag(
        "Only turn the store of a killed broker into one that stopped cleanly, so that its next start is short and "
        "keeps all keys; refused unless it is proven that nothing is lost."
    )
    acknowledge: bool = flag("Only remove the records of losses, which verify reports until then.")
    jobs: int | None = jobs_option()
    memory: int | None = shared.memory_option()
    yes: bool = shared.yes_option()
    allow_older_release: bool = shared.older_release_option()
    processes: int = 1  # that fit into the memory

    def require_consistent(self) -> None:
        """Raise UsageError for options that do not fit each other."""
        apart = [name for name in ("times", "settle", "acknowledge") if getattr(self, name)]
        if apart and (len(apart) > 1 or self.plan or self.keep_offsets or self.lose or self.save_plan):
            raise UsageError(f"--{apart[0]} does nothing else: it cannot be combined with other options")
        if self.plan and (self.only_shows or self.keep_offsets or self.lose or self.broker_version):
            raise UsageError("--plan applies the saved plan: it cannot be combined with other options")

    @cached_property
    def saved(self) -> SavedRepairPlan | None:
        """The plan to carry out."""
        from rmqtool.repair.saved_plan import SavedRepairPlan

        return SavedRepairPlan(self.plan) if self.plan else None

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    @property
    def chosen(self) -> dict[str, Any]:
        """What decides about a repair, which a saved plan holds."""
        return {"broker_version": self.broker_version, "keep_offsets": self.keep_offsets, "lose": self.lose}


_CHOSEN = ("keep_offsets", "lose")
_MOST = 6  # transactions of one repair
_EXAMPLES = 10_000  # of each code: what a repair does about offsets and topics goes by them


@command(
    "repair",
    RepairOptions,
    (
        "rmqtool repair /data/rocketmq/store --dry-run",
        "rmqtool repair /data/rocketmq/store --save-plan /tmp/plan.json",
        "rmqtool repair /data/rocketmq/store --dry-run --broker-version 5.3.3 -j 4",
    ),
    {
        Exit.OK: "repaired, planned, or nothing to repair",
        Exit.FINDINGS: "done; verify still has findings above info, shown below",
        Exit.USAGE: "the options contradict each other or the store, or not confirmed",
        Exit.LOSSY: "done; something cannot be read, or clients lose more than planned",
        Exit.FAILED: "could not finish; the store is as before",
        Exit.IN_USE: "a broker runs on the store",
    },
)
def repair(style: Style, given: RepairOptions) -> Exit:
    """Repair a store by the plan that verify prints.

    The store is verified before and after the repair. STORE is the directory that broker.conf calls storePathRootDir.
    Replaced files are kept in STORE/.rmqtool for `rmqtool undo`. Stop the broker first.
    """
    from rmqtool.rebuild.log_pass import REBUILD_NEED
    from rmqtool.store.store import require_plain_log
    from rmqtool.verify.log_pass import VERIFY_NEED

    given.require_consistent()
    if given.acknowledge:
        return repair_apart.acknowledge(style, given)
    require_plain_log(given.store, "repair")
    if given.times:
        return repair_apart.give_times(style, given)
    if given.settle:
        return repair_apart.settle(style, given)
    if given.saved:
        given = replace(given, **given.saved.options)
    only_reads = given.only_shows
    writing.require_release(given.opened.snapshot, yes=given.yes, is_allowed=given.allow_older_release or only_reads)
    need = VERIFY_NEED.with_later(*REBUILD_NEED.values())  # it verifies, and then rebuilds
    with shared.within_memory(style, given.memory, shared.processes_for(given.jobs, given.path), need) as processes:
        given = replace(given, processes=processes)
        return _show_only(style, given) if only_reads else _carry_out(style, given)


def _carry_out(style: Style, given: RepairOptions) -> Exit:
    """Repair, after a question, and show what is left."""
    writing.require_answer(yes=given.yes)
    root, done = given.store.root, _Done()
    on = join(["rmqtool", "repair", str(root), *given.words(*shared.OF_NEXT, *_CHOSEN)])
    writing.confirm_deletion(root, yes=given.yes)
    with writing.reporting_state(style, root, f"is written (undo takes it back); to continue: {on}"):
        found = _run(style, given, done)
        while not found.is_empty and len(done.ids) < _MOST:  # what is wrong after a first repair may show only after it
            found = _run(style, given, done)
    return _show_done(style, given, found, done)


@dataclass(frozen=True)
class _Found:
    """A verification, its plan, and what a transaction would do about it; `rebuild` None where it changes nothing.

    `needed_sizes` are the kinds of files whose size this transaction or a later one needs from broker.conf.
    """

    outcome: Outcome
    plan: Plan
    repairs: Repairs
    rebuild: RebuildPlan | None
    needed_sizes: frozenset[Sized]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.repairs.changes or self.rebuild)

    def as_json(self) -> dict[str, Any]:
        """What was found and what is planned."""
        from rmqtool.show.rebuild import plan_json

        return {
            "verdict": self.outcome.verdict,
            "plan": self.plan.as_json(),
            "changes": [change.as_json() for change in self.repairs.changes],
            "rebuild": self.rebuild and plan_json(self.rebuild, "planned"),
        }


@dataclass
class _Done:
    """The transactions of a repair so far, and what each of them has done."""

    ids: list[str] = field(default_factory=list)
    found: list[_Found] = field(default_factory=list)
    recovered: list[dict[str, str | None]] = field(default_factory=list)

    def proof(self, last: _Found) -> Proof | None:
        """What clients lose now, held against the first plan that knew it; None where nothing was written."""
        from rmqtool.repair.proof import proof_of

        planned = (step.clients for found in self.found for step in found.plan.steps if step.clients)
        return proof_of(next(planned, None), last.outcome.clients) if self.ids else None


def _find(
    style: Style, given: RepairOptions, transaction: Transaction | None = None, *, records: bool = False
) -> _Found:
    """Verify the store, and plan the next transaction.

    Where it `records`, the verification derives what a rebuild may need, so that the log is not read again for that. In
    a `transaction` what is planned is written without reading it again in any case.
    """
    from rmqtool.repair.diagnosis import needed_sizes, repairs_of
    from rmqtool.repair.plan import plan_of
    from rmqtool.verify.task import VerifyRequest

    opened, source = given.opened, _Source(given, transaction)
    version, rate = opened.snapshot.version, opened.snapshot.bytes_per_second
    with job_progress(style, "verifying") as progress:
        asked = VerifyRequest(version, max_examples=_EXAMPLES, jobs=given.processes, rate=rate)
        verified = opened.verified(asked, progress, source.recording if records else lambda: None)
    diagnosis = replace(replace(verified, options=given.words(*shared.OF_NEXT)).diagnosis, lose=frozenset(given.lose))
    repairs = repairs_of(diagnosis, keep_offsets=given.keep_offsets)
    rebuild = _rebuild_plan(style, source, repairs, verified.outcome.total.damages)
    if rebuild and rebuild.is_empty:
        repairs, rebuild = repairs_of(diagnosis, keep_offsets=given.keep_offsets, is_rebuilt=True), None
    plan = plan_of(diagnosis, repairs, keep_offsets=given.keep_offsets)
    return _Found(verified.outcome, plan, repairs, rebuild, needed_sizes(diagnosis, repairs))


@dataclass
class _Source:
    """The store as a rebuild reads it, and what a verification in a transaction has recorded of its log."""

    given: RepairOptions
    transaction: Transaction | None
    recorded: RebuildSource | None = None

    def options(self, parts: Iterable[Part]) -> RebuildOptions:
        """The options of a rebuild of some parts."""
        from rmqtool.rebuild.options import RebuildOptions

        of = self.given
        return RebuildOptions(frozenset(parts), version=of.broker_version, limit=of.limit_rate, jobs=of.processes)

    def recording(self) -> Recording | None:
        """A recording to be made by a verification; None without a transaction, or where the queues cannot be read."""
        from rmqtool.rebuild.source import open_source, record

        if self.transaction is None:
            return None
        with suppress(UnsupportedError, UnreadableError):
            self.recorded = record(open_source(self.given.store, self.options(("queues", "index"))), self.transaction)
        return self.recorded.recording if self.recorded else None

    def opened(self, options: RebuildOptions, damages: Sequence[FieldDamage]) -> RebuildSource:
        """The source of a rebuild, for which records with `damages` count as what they were."""
        from rmqtool.rebuild.source import open_source, record, source_of

        if self.recorded:
            source = source_of(self.recorded.snapshot, options, self.recorded.snapshot.releases)
            source.recording = self.recorded.recording
        else:
            source = open_source(self.given.store, options)
            source = record(source, self.transaction) if self.transaction else source
        source.damages = [*damages]  # the verification has judged all parts
        return source


def _rebuild_plan(
    style: Style, source: _Source, repairs: Repairs, damages: Sequence[FieldDamage]
) -> RebuildPlan | None:
    """The rebuild of a repair."""
    from rmqtool.rebuild.plan import make_plan

    wanted: dict[Part, bool] = {"queues": repairs.queues, "index": repairs.index}
    parts = frozenset(part for part, is_wanted in wanted.items() if is_wanted)
    if not parts:
        return None
    options = replace(source.options(parts), neutralise=repairs.neutralise, served_until=repairs.served_until,
                      readable_until=repairs.readable_until)  # fmt: skip
    with byte_progress("comparing with the commit log", source.given.store.commit_log().size, style=style) as bar:
        return make_plan(source.opened(options, damages), bar.update)


def _show_only(style: Style, given: RepairOptions) -> Exit:
    from rmqtool.repair.saved_plan import repair_plan_text
    from rmqtool.show.verify import show_found
    from rmqtool.transaction.home import interrupted

    found = _find(style, given)
    if given.save_plan:
        text = repair_plan_text(given.store, given.chosen, found.as_json())
        writing.write_plan(given.save_plan, text, given.store.root)
    if style.json:
        return _write_json(style, found, "nothing" if found.is_empty else "planned", _Done())
    show_found(found.outcome, found.plan, found.repairs, found.rebuild, style)
    if not style.quiet:
        is_done = found.is_empty and not interrupted(given.store.root)
        note(_nothing(found) if is_done else f"nothing is written yet; next: {_following(given, found)}")
    return Exit.OK


def _nothing(found: _Found) -> str:
    """That there is nothing to write; the plan may have steps all the same."""
    if any("--lose" in (step.command or "") for step in found.plan.steps):
        return f"{repair_apart.NOTHING} except what needs --lose"
    return f"{repair_apart.NOTHING}: do the steps above by hand" if found.plan.steps else repair_apart.NOTHING


def _following(given: RepairOptions, found: _Found) -> str:
    """The command line that carries out the plan that was shown."""
    rebuild = found.rebuild
    missing = ["--broker-version", "VERSION"] if rebuild and rebuild.undecided else []
    if found.needed_sizes or (rebuild and rebuild.written_kinds & rebuild.source.sizes.assumed):
        missing += ["--broker-conf", "BROKER_CONF"]
    if given.save_plan and not missing:  # the plan has the other choices
        others = (name for name in shared.OF_NEXT if name != "broker_version")
        return join(["rmqtool", "repair", str(given.store.root), *given.words(*others), "--plan", str(given.save_plan)])
    words = given.words(*shared.OF_NEXT, *_CHOSEN, "save_plan")
    return join(["rmqtool", "repair", str(given.store.root), *words, *missing])


def _show_done(style: Style, given: RepairOptions, found: _Found, done: _Done) -> Exit:
    """Show what is left after the last transaction, and say what was done, also where nobody reads the former."""
    from rmqtool.show.verify import show_found, show_proof

    if style.json:
        return _write_json(style, found, "done" if done.ids else "nothing", done)
    proof = done.proof(found)
    try:
        show_found(found.outcome, found.plan, None, None, style)
        if proof:
            show_proof(proof, given.store.root, style)
    finally:
        if not style.quiet:
            back = f"to undo it, before a broker starts: rmqtool undo {quote(str(given.store.root))}"
            note(f"done: {', '.join(done.ids)}; {back}" if done.ids else _nothing(found))
    return _status(found, proof) if done.ids else Exit.OK


def _status(found: _Found, proof: Proof | None) -> Exit:
    return Exit.LOSSY if proof and proof.more_lost else found.outcome.status


def _run(style: Style, given: RepairOptions, done: _Done) -> _Found:
    """Verify, and write what is to be repaired in one transaction, which is added to those `done`."""
    from rmqtool.transaction.transaction import Transaction
    from rmqtool.transaction.undo import CONTINUED

    if done.ids:
        given = replace(given)  # queues may be in RocksDB again
    saved = None if done.ids else given.saved
    command = f"repair{CONTINUED}" if done.ids else "repair"
    options = writing.recorded_options(given.store.conf.path, given.broker_version)
    with Transaction(given.store, command, options=options) as transaction:
        writing.print_recovered(transaction.recovered)
        done.recovered += writing.recovered_json(transaction.recovered)
        if saved:
            saved.require_same_store(given.store)
        found = _find(style, given, transaction, records=not done.ids)  # the last run most often only verifies
        if saved:
            saved.require_same_result(given.store, found.as_json())
        if not found.is_empty:
            _require_consent(style, given, found, done.ids, has_changed=bool(transaction.recovered or done.ids))
            done.ids.append(_write(style, given, found, transaction))
            done.found.append(found)
    return found


def _require_consent(style: Style, given: RepairOptions, found: _Found, done: list[str], *, has_changed: bool) -> None:
    """Return when what the result depends on is known and the user agrees; raises UsageError or click.Abort.

    The question names the step of the plan, since what is written comes in several transactions, each asked for.
    """
    from rmqtool.rebuild.source import require_known_sizes
    from rmqtool.show.verify import show_found

    require_known_sizes(given.store, found.needed_sizes, found.needed_sizes)
    if found.rebuild:
        require_known_sizes(given.store, found.rebuild.source.sizes.assumed, found.rebuild.written_kinds)
        found.rebuild.require_release()
    if given.yes:
        return
    if not style.json:
        show_found(found.outcome, found.plan, found.repairs, found.rebuild, style)
        sys.stdout.flush()
    if done:
        note(f"\nwritten: {', '.join(done)}; verified again: see above for what remains")
    step = f"Do step {found.plan.start_after}" if found.plan.start_after else "Write this"
    writing.confirm(f"{step}, too?" if done else f"{step} now?", yes=False, has_changed=has_changed)


def _write(style: Style, given: RepairOptions, found: _Found, transaction: Transaction) -> str:
    """Stage all changes and commit; returns the transaction's id."""
    from rmqtool.rebuild.apply import stage_plan

    changes = found.repairs.changes
    transaction.require_space(sum(change.size for change in changes))
    for change in changes:
        change.stage(transaction)
    if found.rebuild:
        with byte_progress("repairing", given.store.commit_log().size, style=style) as bar:
            stage_plan(found.rebuild, transaction, bar.update)
    return str(transaction.commit().id)


def _write_json(style: Style, found: _Found, state: str, done: _Done) -> Exit:
    """The document: the last verification and its plan, and what was done, or is planned."""
    proof = done.proof(found)
    result = {"state": state, "transactions": done.ids, "acknowledged": [], **found.as_json(),
              "recovered": done.recovered, "proof": proof and proof.as_json()}  # fmt: skip
    if done.found:
        made = [run.as_json() for run in done.found]
        result["changes"] = [change for run in made for change in run["changes"]]
        result["rebuild"] = next((run["rebuild"] for run in made if run["rebuild"]), None)
    status = _status(found, proof) if state == "done" else Exit.OK
    write_document(style, "repair", result, findings=found.outcome.findings, status=status)
    return status
