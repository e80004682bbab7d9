"""`rmqtool undo STORE`: put the files back that a repair replaced, or discard them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import Count, byte_size
from rmqtool.base.visible import join, quote, visible
from rmqtool.commands.options import command, flag
from rmqtool.commands.shared_options import OnStore, dry_run_option, yes_option
from rmqtool.commands.writing import confirm, print_recovered, reporting_state
from rmqtool.findings.finding import counted
from rmqtool.show.output import Style, note, write_document, write_text
from rmqtool.show.shapes import Recovered as RecoveredRun
from rmqtool.show.shapes import Shape, at, by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtool.transaction.home import Recovered, UnfinishedDeletion
    from rmqtool.transaction.undo import Kept


@dataclass(frozen=True, kw_only=True)
class UndoOptions(OnStore):
    """What was asked for."""

    discard: bool = flag("Delete the replaced files of all repairs for good, and keep the repairs.")
    dry_run: bool = dry_run_option()
    yes: bool = yes_option()


@command(
    "undo",
    UndoOptions,
    (
        "rmqtool undo /data/rocketmq/store --dry-run",
        "rmqtool undo /data/rocketmq/store",
        "rmqtool undo /data/rocketmq/store --discard --yes",
    ),
    {
        Exit.OK: "done, or nothing to do",
        Exit.LOSSY: "done, but something in the store could not be read",
        Exit.USAGE: "not a terminal, and no --yes",
        Exit.FAILED: "files have changed since, or something cannot be read or written",
        Exit.IN_USE: "a broker runs on the store",
    },
)
def undo(style: Style, given: UndoOptions) -> Exit:
    """Undo the last repair of a store.

    Every repair keeps the replaced files in STORE/.rmqtool. This restores the files of the last repair, if nothing
    that it wrote has changed since; run it again to undo the repair before. Once a broker has run on the store, a
    repair can rarely be undone: then --discard frees the space, and does nothing else. An interrupted repair or undo
    is completed first.
    """
    from rmqtool.transaction.home import has_leftovers, interrupted, unfinished_deletion
    from rmqtool.transaction.undo import Undo, kept_transactions, last_run

    path, discard, root = given.path, given.discard, given.store.root
    if (root / _TIMES).exists() and _takes_times(style, given):
        return Exit.OK
    kept, unfinished = kept_transactions(root), interrupted(root)
    if not kept and not unfinished:
        if has_leftovers(root) and not given.dry_run:
            with Undo(root):  # removes them
                pass
        _show(style, path, None, "nothing")
        return Exit.OK
    chosen = kept if discard else last_run(kept)
    if given.dry_run:
        if not discard and not unfinished:
            Undo(root).check_run(chosen)
        _plan(style, chosen, unfinished, unfinished_deletion(root), discard=discard)
        return Exit.OK
    done = "is removed for good" if discard else "is put back"
    with reporting_state(style, root, f"{done}; what is left: rmqtool undo {quote(str(path))} --dry-run"):
        if not (discard or unfinished):
            with Undo(root) as session:  # what stands in the way is said before the question
                session.check_run(chosen)
        confirm(_question(chosen, unfinished, unfinished_deletion(root), discard=discard), yes=given.yes)
        _undo(style, path, root, chosen, discard=discard)
    return Exit.OK


_TIMES = ".rmqtool/times-before.json"  # as rmqtool.copy.file_times has it, which is loaded where it is needed only


def _takes_times(style: Style, given: UndoOptions) -> bool:
    """Put back the times that `repair --times` has set, if that was last; False where a repair is."""
    from rmqtool.copy import file_times

    root = given.store.root
    if given.discard:
        if not given.dry_run:
            file_times.forget(root)
        return False
    if not file_times.is_last(root):
        return False
    if given.dry_run:
        done, state = 0, "planned"
    else:
        confirm("Restore the times that files had before repair --times?", yes=given.yes)
        (done, left), state = file_times.take_back(root, given.store.log_directories), "rolled_back"
    if style.json:
        _write(style, (), state)
    elif given.dry_run:
        write_text("restored: the times that files had before repair --times\n")
    else:
        changed = f"; {counted(left, 'file')} changed since, and are kept" if left else ""
        write_text(f"restored: the times of {counted(done, 'file')}{changed}\n")
    return True


def _undo(style: Style, path: Path, root: Path, chosen: Sequence[Kept], *, discard: bool) -> None:
    """Put back what was chosen, or remove it for good, and show it."""
    from rmqtool.transaction.undo import Undo, kept_transactions

    with Undo(root) as session:
        print_recovered(session.recovered)
        if discard:
            gone = session.discard()
            _show(style, path, gone, "done" if gone else "nothing", session.recovered)
            return
        # Ending an interrupted run may have taken it back.
        left = {one.id for one in kept_transactions(root)} & {one.id for one in chosen}
        back = [done for _ in left if (done := session.put_back())]
        _show(style, path, back, "rolled_back", session.recovered)


def _question(
    kept: Sequence[Kept], unfinished: str | None, deletion: UnfinishedDeletion | None, *, discard: bool
) -> str:
    kept = _with_changes(kept)
    first = f"Finish the interrupted run {unfinished} first. " if unfinished else ""
    if deletion:
        first = f"{deletion.comes_first} "
    if discard and kept:
        return f"{first}Remove {_sum(kept)} for good?"
    return f"{first}Put back {_sum(kept)}?" if kept else f"{first}Continue?"


def _with_changes(kept: Sequence[Kept]) -> list[Kept]:
    """Those that have replaced something; a deletion has not."""
    return [one for one in kept if one.changes]


def _sum(kept: Sequence[Kept]) -> str:
    names = ", ".join(f"{one.id} ({one.command})" for one in kept)
    size = byte_size(sum(one.backup_bytes for one in kept))
    return f"what {names} replaced: {counted(sum(len(one.changes) for one in kept), 'path')}, {size}"


def _plan(
    style: Style, kept: Sequence[Kept], unfinished: str | None, deletion: UnfinishedDeletion | None, *, discard: bool
) -> None:
    if style.json:
        _write(style, kept, "planned")
        return
    if unfinished:
        write_text(f"the interrupted run {visible(unfinished)} is finished first\n")
    if deletion:
        write_text(f"{deletion.text}, for which there is no undo; {deletion.to_keep_them}\n")
    for one in _with_changes(kept):
        write_text(f"{'remove' if discard else 'put back'}: {visible(_sum([one]))}\n")
        if style.verbosity > 0 or not discard:
            for change in one.changes:
                what = "remove" if change.before is None else "put back"
                write_text(f"  {'discard' if discard else what}  {visible(change.path)}\n")


def _show(
    style: Style, path: Path, kept: Sequence[Kept] | None, state: str, recovered: Sequence[Recovered] = ()
) -> None:
    if style.json:
        _write(style, kept or (), state, recovered)
    elif not kept:
        nothing = "nothing to undo: no repair has kept files here (deletions by clean are final)"
        write_text(f"{nothing if state == 'nothing' else 'done'}\n")
    elif state == "done":
        write_text(f"removed for good: {visible(_sum(kept))}\n")
    else:
        write_text(f"put back: {visible(_sum(kept))}\n")
        if not style.quiet:
            for one in kept:
                if one.is_conversion:
                    note(f"before you start the broker, also revert the broker.conf settings of {one.command}")
            note(f"next: {join(['rmqtool', 'verify', str(path), *kept[-1].options])}")


class Change(Shape):
    """One path that a repair changed."""

    path: str  # File or directory, relative to the store.
    # What the repair did with the path; undo does the opposite.
    action: Literal["create", "replace", "remove"] = by(
        lambda change, _: "create" if change.before is None else "remove" if change.after is None else "replace"
    )


class Repair(Shape):
    """A repair whose replaced files are kept."""

    transaction: str = at("id")  # Its name, and that of its directory in STORE/.rmqtool.
    command: str  # The command that made it, such as rebuild-cq.
    changes: list[Change]  # What it changed, in its order.
    backup_bytes: Count  # Sizes of the replaced files together, bytes.


class _Undone(NamedTuple):
    state: str
    transactions: Sequence[Kept]
    recovered: Sequence[Recovered]


class UndoResult(Shape):
    """What was undone."""

    # The last repair that this was about; null when there was nothing to do.
    transaction: str | None = by(
        lambda undone, _: next((run.id for run in (*undone.transactions[-1:], *undone.recovered)), None)
    )
    # planned: --dry-run. rolled_back: the store is as before that repair. done: with --discard, the replaced files are
    # gone.
    state: Literal["planned", "nothing", "done", "rolled_back"]
    transactions: list[Repair]  # The repairs that this was about: the last, or all of them with --discard.
    recovered: list[RecoveredRun]  # Interrupted runs that were completed first.
    # Sizes of their replaced files together, bytes.
    backup_bytes: Count = by(lambda undone, _: sum(one.backup_bytes for one in undone.transactions))


def _write(style: Style, kept: Sequence[Kept], state: str, recovered: Sequence[Recovered] = ()) -> None:
    write_document(style, "undo", UndoResult.of(_Undone(state, kept, recovered)))
