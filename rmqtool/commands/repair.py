"""`rmqtool repair STORE`: carry out what `verify` says is to do."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rmqtool
from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.visible import join, quote, visible
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, jobs_option, store_options
from rmqtool.commands.shared_options import StorePath, memory_option, within_memory
from rmqtool.commands.verifying import progress_bar, recorded_options
from rmqtool.commands.writing import (
    confirm,
    confirm_deletion,
    dry_run_option,
    older_release_option,
    print_recovered,
    recovered_json,
    reporting_state,
    require_answer,
    require_release,
    saved_plan_options,
    write_plan,
    yes_option,
)
from rmqtool.library.repeated_options import repeated_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note, write_document, write_text
from rmqtool.show.times import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtool.base.files import RateLimit
    from rmqtool.base.limits import MemoryNeed
    from rmqtool.broker.field_damage import FieldDamage
    from rmqtool.library.store import Store as OpenedStore
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.repair.diagnosis import Repairs
    from rmqtool.repair.plan import Plan
    from rmqtool.repair.proof import Proof
    from rmqtool.repair.saved_plan import RepairOptions, SavedRepairPlan
    from rmqtool.store.missing import Sized
    from rmqtool.store.store import Store
    from rmqtool.transaction import Transaction
    from rmqtool.verify.outcome import Outcome


@dataclass
class RepairRequest:
    """The arguments and options of a repair, by the names that click gives them; so many `processes` work."""

    path: Path
    dry_run: bool
    save_plan: Path | None
    plan: Path | None
    keep_offsets: bool
    lose: tuple[str, ...]
    acknowledge: bool
    jobs: int
    memory: int | None
    yes: bool
    allow_older_release: bool
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None
    processes: int = field(init=False)
    store: Store = field(init=False)
    options: RepairOptions = field(init=False)
    saved: SavedRepairPlan | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        from rmqtool.repair.saved_plan import RepairOptions, SavedRepairPlan
        from rmqtool.store.store import require_plain_log

        if self.acknowledge and (self.plan or self.keep_offsets or self.lose or self.save_plan):
            raise UsageError("--acknowledge repairs nothing: no other choice may be made beside it")
        if self.plan and (self.only_shows or self.keep_offsets or self.lose or self.broker_version):
            raise UsageError("--plan carries out what was saved: it cannot be combined with other choices")
        self.processes = self.jobs
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store
        if not self.acknowledge:
            require_plain_log(self.store, "repair")
        self.options = RepairOptions(self.broker_version, self.keep_offsets, frozenset(self.lose))
        if self.plan:
            self.saved = SavedRepairPlan(self.plan)
            self.options = self.saved.options

    def reopen(self) -> None:
        """See the store as the last transaction has left it: queues may be in RocksDB again."""
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store

    @property
    def opened(self) -> OpenedStore:
        """The store as it was seen last, by the rules of the release that a saved plan may name."""
        from rmqtool.library.store import Store as OpenedStore
        from rmqtool.store.snapshot import Snapshot

        return OpenedStore(Snapshot(self.store, self.options.version, self.limit_rate))

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    @property
    def words(self) -> tuple[str, ...]:
        """The options that other commands on the store need, too."""
        rate = self.limit_rate.bytes_per_second if self.limit_rate else None
        return repeated_options(self.broker_conf.path, self.options.version, rate, self.jobs, self.memory)

    def words_without(self, name: str) -> list[str]:
        """The same but for one option."""
        pairs = zip(self.words[::2], self.words[1::2], strict=True)
        return [word for option, value in pairs if option != name for word in (option, value)]


_NOTHING = "nothing to repair"
_MOST = 6  # transactions of one repair
_EXAMPLES = 10_000  # of each code: what a repair does about offsets and topics goes by them
_EPILOG = examples_and_statuses(
    (
        "rmqtool repair /data/rocketmq/store --dry-run",
        "rmqtool repair /data/rocketmq/store --save-plan /tmp/plan.json",
        "rmqtool repair /data/rocketmq/store --dry-run --broker-version 5.3.3 -j 4",
    ),
    {
        Exit.OK: "repaired, planned, or nothing to repair",
        Exit.FINDINGS: "done; verify still has findings above info, which are shown",
        Exit.USAGE: "the options do not fit each other or the store, or nobody confirmed",
        Exit.LOSSY: "done; not all can be read, or clients lose more than the plan said",
        Exit.FAILED: "could not finish; the store is as before",
        Exit.IN_USE: "a broker runs on the store",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("repair", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=StorePath())
@dry_run_option
@saved_plan_options
@click.option("--keep-offsets", is_flag=True, help="Leave committed offsets as they are, even impossible ones.")
@click.option(
    "--lose",
    type=click.Choice(["commitlog.body-crc"]),
    multiple=True,
    help="Also take from clients what the plan says with this option: messages with a damaged body, which they get "
    "until then, give way to dummy records. Nothing that clients get is taken away without it.",
)
@click.option(
    "--acknowledge",
    is_flag=True,
    help="Repair nothing: remove the records of losses, which verify reports until then.",
)
@jobs_option()
@memory_option
@yes_option
@older_release_option
@store_options
@global_options
@click.pass_obj
def repair(style: Style, /, **given: Any) -> Exit:
    """Carry out the plan that verify ends with.

    The store is verified before and after it. STORE is the directory that broker.conf calls storePathRootDir. What
    is replaced is kept in STORE/.rmqtool until `rmqtool undo`. Stop the broker first.
    """
    request = RepairRequest(**given)
    style.store = str(request.path)
    if request.acknowledge:
        return _acknowledge(style, request)
    only_reads = request.only_shows
    require_release(request.opened.snapshot, yes=request.yes, is_allowed=request.allow_older_release or only_reads)
    with within_memory(style, request.memory, request.jobs, _need()) as request.processes:
        return _show_only(style, request) if request.only_shows else _carry_out(style, request)


def _need() -> MemoryNeed:
    """A repair verifies, and then rebuilds."""
    from rmqtool.rebuild.workers import REBUILD_NEED
    from rmqtool.verify.part_run import VERIFY_NEED

    return VERIFY_NEED.with_later(*REBUILD_NEED.values())


def _carry_out(style: Style, request: RepairRequest) -> Exit:
    """Repair, after a question, and show what is left."""
    require_answer(yes=request.yes)
    root = request.store.root
    on = join(["rmqtool", "repair", str(root), *request.words])
    done = f"is written; undo takes it back, to go on: {on}"
    done_so_far = _Done()
    confirm_deletion(root, yes=request.yes)
    with reporting_state(style, root, done):
        found = _repair(style, request, done_so_far)
    return _show_done(style, request, found, done_so_far)


def _acknowledge(style: Style, request: RepairRequest) -> Exit:
    """Show the records of losses, and remove them."""
    from rmqtool.transaction import acknowledge, recorded_losses

    root = request.store.root
    losses = [each.loss.text if each.loss else f"{each.file}: no record" for each in recorded_losses(root)]
    if not style.json:
        write_text("".join(f"lost: {visible(sentence(text))}\n" for text in losses) or "no loss is on record\n")
    if losses and not request.dry_run:
        confirm("Is this known to everybody?", yes=request.yes)
        acknowledge(root)
    if style.json:
        state = "nothing" if not losses else "planned" if request.dry_run else "done"
        result = {"state": state, "transactions": [], "acknowledged": losses, "verdict": None, "plan": None,
                  "changes": [], "rebuild": None, "recovered": [], "proof": None}  # fmt: skip
        write_document(style, "repair", style.store, result)
    return Exit.OK


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
        from rmqtool.repair.change import change_json
        from rmqtool.show.rebuild import plan_json

        return {
            "verdict": self.outcome.verdict,
            "plan": self.plan.as_json(),
            "changes": [change_json(change) for change in self.repairs.changes],
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


def _find(style: Style, request: RepairRequest) -> _Found:
    """Verify the store, and plan the next transaction."""
    from rmqtool.repair.diagnosis import repairs_of
    from rmqtool.repair.needed_conf import needed_sizes
    from rmqtool.repair.plan import plan_of

    with progress_bar(style, "verifying") as progress:
        verified = request.opened.verify(max_examples=_EXAMPLES, jobs=request.processes, progress=progress)
    diagnosis = replace(replace(verified, options=request.words).diagnosis, lose=request.options.lose)
    keep_offsets = request.options.keep_offsets
    repairs = repairs_of(diagnosis, keep_offsets=keep_offsets)
    rebuild = _rebuild_plan(style, request, repairs, verified.outcome.total.damages)
    if rebuild and rebuild.is_empty:
        repairs, rebuild = repairs_of(diagnosis, keep_offsets=keep_offsets, is_rebuilt=True), None
    plan = plan_of(diagnosis, repairs, keep_offsets=keep_offsets)
    return _Found(verified.outcome, plan, repairs, rebuild, needed_sizes(diagnosis, repairs))


def _rebuild_plan(
    style: Style, request: RepairRequest, repairs: Repairs, damages: Sequence[FieldDamage]
) -> RebuildPlan | None:
    """The rebuild of a repair; records with `damages` count as what they were, whichever part is rebuilt."""
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.rebuild.plan import make_plan
    from rmqtool.rebuild.source import open_source
    from rmqtool.show.progress import byte_progress

    wanted: dict[Part, bool] = {"queues": repairs.queues, "index": repairs.index}
    parts = frozenset(part for part, is_wanted in wanted.items() if is_wanted)
    if not parts:
        return None
    options = RebuildOptions(parts, version=request.options.version, limit=request.limit_rate,
                             neutralise=repairs.neutralise, jobs=request.processes,
                             served_until=repairs.served_until)  # fmt: skip
    with byte_progress("comparing with the commit log", request.store.commit_log().size, style=style) as bar:
        source = open_source(request.store, options)
        source.damages = [*damages] or None
        return make_plan(source, bar.update)


def _show_only(style: Style, request: RepairRequest) -> Exit:
    from rmqtool.repair.saved_plan import repair_plan_text
    from rmqtool.show.repair_text import show_found
    from rmqtool.transaction import interrupted

    found = _find(style, request)
    if request.save_plan:
        text = repair_plan_text(request.store, request.options, found.as_json())
        write_plan(request.save_plan, text, request.store.root)
    if style.json:
        return _write_json(style, found, "nothing" if found.is_empty else "planned", _Done())
    show_found(found.outcome, found.plan, found.repairs, found.rebuild, style)
    if not style.quiet:
        is_done = found.is_empty and not interrupted(request.store.root)
        note(_nothing(found) if is_done else f"nothing is written yet; next: {_following(request, found)}")
    return Exit.OK


def _nothing(found: _Found) -> str:
    """That there is nothing to write; the plan may have steps all the same."""
    return f"{_NOTHING}: the steps above are done by hand" if found.plan.steps else _NOTHING


def _following(request: RepairRequest, found: _Found) -> str:
    """The command line that carries out the plan that was shown."""
    from rmqtool.repair.plan import asked_for

    rebuild = found.rebuild
    missing = ["--broker-version", "VERSION"] if rebuild and rebuild.undecided else []
    if found.needed_sizes or (rebuild and rebuild.written_kinds & rebuild.source.sizes.assumed):
        missing += ["--broker-conf", "BROKER_CONF"]
    words = ["rmqtool", "repair", str(request.store.root)]
    saved = [] if request.save_plan is None else [str(request.save_plan)]
    if saved and not missing:  # the plan has the other choices
        return join([*words, *request.words_without("--broker-version"), "--plan", *saved])
    words += [*request.words, *(["--keep-offsets"] if request.keep_offsets else []), *asked_for(request.lose)]
    return join([*words, *missing, *(["--save-plan", *saved] if saved else [])])


def _repair(style: Style, request: RepairRequest, done: _Done) -> _Found:
    """Repair until nothing is left to do: what is wrong after a first repair may show only after it."""
    found = _run(style, request, done)
    while not found.is_empty and len(done.ids) < _MOST:
        found = _run(style, request, done)
    return found


def _show_done(style: Style, request: RepairRequest, found: _Found, done: _Done) -> Exit:
    """Show what is left after the last transaction, and say what was done, also where nobody reads the former."""
    from rmqtool.show.repair_text import show_found, show_proof

    if style.json:
        return _write_json(style, found, "done" if done.ids else "nothing", done)
    proof = done.proof(found)
    try:
        show_found(found.outcome, found.plan, None, None, style)
        if proof:
            show_proof(proof, request.store.root, style)
    finally:
        if not style.quiet:
            back = f"to take it back, before a broker starts: rmqtool undo {quote(str(request.store.root))}"
            note(f"done: {', '.join(done.ids)}; {back}" if done.ids else _nothing(found))
    return _status(found, proof) if done.ids else Exit.OK


def _status(found: _Found, proof: Proof | None) -> Exit:
    return Exit.LOSSY if proof and proof.more_lost else found.outcome.status


def _run(style: Style, request: RepairRequest, done: _Done) -> _Found:
    """Verify, and write what is to be repaired in one transaction, which is added to those `done`."""
    from rmqtool.transaction import CONTINUED, Transaction

    if done.ids:
        request.reopen()
    saved = None if done.ids else request.saved
    command = f"repair{CONTINUED}" if done.ids else "repair"
    options = recorded_options(request.store.conf.path, request.options.version)
    with Transaction(request.store, command, options=options) as transaction:
        print_recovered(transaction.recovered)
        done.recovered += recovered_json(transaction.recovered)
        if saved:
            saved.require_same_store(request.store)
        found = _find(style, request)
        if saved:
            saved.require_same_result(request.store, found.as_json())
        if not found.is_empty:
            _require_consent(style, request, found, done.ids, has_changed=bool(transaction.recovered or done.ids))
            done.ids.append(_write(style, request, found, transaction))
            done.found.append(found)
    return found


def _require_consent(
    style: Style, request: RepairRequest, found: _Found, done: list[str], *, has_changed: bool
) -> None:
    """Return when what the result depends on is known and the user agrees; raises UsageError or click.Abort.

    The question names the step of the plan, since what is written comes in several transactions, each asked for.
    """
    from rmqtool.rebuild.source import require_known_sizes
    from rmqtool.show.repair_text import show_found

    require_known_sizes(request.store, found.needed_sizes, found.needed_sizes)
    if found.rebuild:
        require_known_sizes(request.store, found.rebuild.source.sizes.assumed, found.rebuild.written_kinds)
        found.rebuild.require_release()
    if request.yes:
        return
    if not style.json:
        show_found(found.outcome, found.plan, found.repairs, found.rebuild, style)
        sys.stdout.flush()
    if done:
        note(f"\nwritten: {', '.join(done)}; verified again, and above is what is left")
    step = f"Do step {found.plan.start_after}" if found.plan.start_after else "Write this"
    confirm(f"{step}, too?" if done else f"{step} now?", yes=False, has_changed=has_changed)


def _write(style: Style, request: RepairRequest, found: _Found, transaction: Transaction) -> str:
    """Stage all changes and commit; returns the transaction's id."""
    from rmqtool.rebuild.apply import stage_plan
    from rmqtool.show.progress import byte_progress

    changes = found.repairs.changes
    transaction.require_space(sum(change.size for change in changes))
    for change in changes:
        change.stage(transaction)
    if found.rebuild:
        with byte_progress("repairing", request.store.commit_log().size, style=style) as bar:
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
    write_document(style, "repair", style.store, result, findings=found.outcome.findings, status=status)
    return status
