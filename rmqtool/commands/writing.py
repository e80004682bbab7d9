"""Shared by the commands that write: asking first, files outside of a store, and reporting interrupted runs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnwritableError, UsageError, WrongKindError
from rmqtool.base.visible import repeated_options, visible
from rmqtool.show.output import Style, folded, note
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.rules.versions import Releases, Version
    from rmqtool.salvage.new_store import Carried, NewStore
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import Store
    from rmqtool.transaction.home import Recovered


def write_plan(path: Path, text: str, root: Path) -> None:
    """Write a plan outside of the store at `root`; raises UnwritableError or UsageError."""
    if path.resolve().is_relative_to(root.resolve()):
        raise UsageError("the plan would be a file of the store: give a path outside of it", file=path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def check_place(output: Path, store: Store) -> None:
    """The file is not in the store, and can be written; what is no file would be replaced by one."""
    try:
        path = output.resolve()
    except (OSError, RuntimeError) as error:  # links that lead to each other
        raise UsageError("it is a dangling link", file=output) from error
    conf = store.conf.path
    if conf is not None and path == Path(conf).resolve():
        raise UsageError("it would replace the file of --broker-conf", file=output)
    if any(path.is_relative_to(each.resolve()) for each in (store.root, *store.log_directories)):
        raise UsageError("it would be a file of the store: give a path outside of it", file=output)
    is_stream = str(output).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    if is_stream or (output.exists() and not output.is_file()):
        raise UsageError("it would replace something that is not a file", file=output)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise unwritable(output, OSError(error.errno, error.strerror)) from error


def unwritable(path: Path, error: OSError) -> UnwritableError:
    """The error for a file outside of the store that cannot be written."""
    file = Path(error.filename) if isinstance(error.filename, str) else path
    return UnwritableError(f"cannot be written: {(error.strerror or str(error)).lower()}", file=file)


def confirm(question: str, *, yes: bool, name: str | None = None, has_changed: bool = False) -> None:
    """Return when the user agrees, at a terminal or by ``--yes``; UsageError where nobody can be asked.

    With a `name` a "y" is not enough: the name must be typed. All else ends the command as Ctrl-C does, and says that
    nothing was changed, or, where this run `has_changed` something before, nothing else.
    """
    require_answer(yes=yes)
    if yes or _agrees(visible(question), name):
        return
    note("nothing else was changed" if has_changed else "nothing was changed")
    raise click.Abort


def _agrees(question: str, name: str | None) -> bool:
    try:
        if name is None:
            return click.confirm(folded(f"{question} [y/N]"), default=False, show_default=False, err=True)
        question = folded(f"{question} Type {visible(name)} to agree")
        typed = click.prompt(question, default="", show_default=False, err=True)
        return bool(typed == visible(name))
    except click.Abort:  # Ctrl-C, or the end of the input, in the line of the question
        note("")
        return False


def require_release(snapshot: Snapshot, *, yes: bool, is_allowed: bool) -> None:
    """Return when the named release is not older than the store shows, or the user insists on it; else UsageError.

    What the rules of an older one make, the broker may refuse.
    """
    contradiction = snapshot.release_contradiction
    if contradiction and yes and not is_allowed:
        hint = "name the broker's release, or none; after a downgrade add "
        raise UsageError(f"{contradiction}: nothing was changed", hint=f"{hint}--allow-older-release")
    if contradiction:
        note(f"WARNING: {contradiction}: name the broker's release, or none")
    if contradiction and not is_allowed:
        confirm(f"Write by the rules of {snapshot.version} anyway?", yes=False)


def require_answer(*, yes: bool) -> None:
    """Return when somebody is there to be asked, or need not be; UsageError otherwise, best before any work."""
    if not yes and not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "add --yes, or --dry-run to see what would be done"
        raise UsageError("not a terminal, so no question can be asked: nothing was changed", hint=hint)


def confirm_deletion(root: Path, *, yes: bool) -> None:
    """Ask before an interrupted deletion goes on, as it does when a transaction begins: it is for good."""
    from rmqtool.transaction.home import unfinished_deletion

    left = unfinished_deletion(root)
    if left:
        confirm(f"{left.comes_first} Continue?", yes=yes)


def print_recovered(recovered: Iterable[Recovered]) -> None:
    """Print a note on each interrupted run that was ended, also with ``--quiet``."""
    for run in recovered:
        note(visible(run.text))


def recovered_json(recovered: Iterable[Recovered]) -> list[dict[str, str | None]]:
    """The interrupted runs that were ended, as JSON."""
    from rmqtool.show.shapes import Recovered as Shown

    return [Shown.of(run) for run in recovered]


def recorded_options(conf: str | None, version: Version | None) -> tuple[str, ...]:
    """As `repeated_options`, to be read later and from another directory: an undo prints them."""
    return repeated_options(conf and os.path.abspath(conf), version)


@contextmanager
def reporting_state(style: Style, root: Path, done: str) -> Iterator[None]:
    """Report the state of the store when an error, a signal, or a closed output ends the block, which writes.

    `done` follows the ids of the transactions that the block has made or taken back until then.
    """
    from rmqtool.transaction.home import interrupted, transactions

    before, unfinished = set(transactions(root).values()), interrupted(root)
    try:
        yield
        sys.stdout.flush()  # what nobody takes is noticed here
    except (RmqtoolError, click.Abort, KeyboardInterrupt, SystemExit, OSError) as end:
        changed = sorted((before ^ set(transactions(root).values())) - {unfinished, interrupted(root)})
        cause = _cause(end)
        if cause and interrupted(root):
            _tell(style, f"{cause}the next run that writes to the store, or rmqtool undo, completes it")
        if changed:
            _tell(style, f"{cause}{', '.join(changed)} {done}")
        elif cause and not interrupted(root):
            _tell(style, f"{cause}{'nothing else was changed' if unfinished else 'the store is as it was'}")
        raise


@contextmanager
def told_anyway(style: Style, done: str) -> Iterator[None]:
    """Say what is done also where standard output cannot be written, which the block does."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        _tell(style, done)
        raise


def _cause(end: BaseException) -> str:
    """What ended a command that has no error of its own to report; rich makes an exit of a closed pipe."""
    if isinstance(end, BrokenPipeError) or isinstance(end.__context__, BrokenPipeError):
        return "nothing reads the output any more: "
    return "interrupted: " if isinstance(end, (KeyboardInterrupt, SystemExit)) else ""


def _tell(style: Style, text: str) -> None:
    if not style.quiet:
        note(text)


def derive(
    style: Style, old: Store | None, sources: Iterable[Store], new: NewStore, options: RebuildOptions
) -> tuple[RebuildPlan, list[Carried]]:
    """Write queues and index of the new log, beside the queues of the first of `sources` that can be read.

    The rules are those of the releases that the `old` store shows: its index leads to nothing in the new log. Behind
    the plan come the queues that are left out.
    """
    from rmqtool.salvage.new_store import Carried
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import CONSUME_QUEUE

    releases: Releases | None = None
    with suppress(RmqtoolError):
        releases = Snapshot(old, options.version).releases if old else None
    left_out: list[Carried] = []
    *others, last = sources
    for store in others:
        try:
            return _derive(style, store, new, options, releases), left_out
        except (UnreadableError, WrongKindError) as error:  # noqa: PERF203 - once for each source
            problem = f"of {store.root} queues are left out, because the log has no messages of them: {error}"
            left_out.append(Carried(CONSUME_QUEUE, None, problem, is_unread=True))
    return _derive(style, last, new, options, releases), left_out


def _derive(
    style: Style, store: Store, new: NewStore, options: RebuildOptions, releases: Releases | None
) -> RebuildPlan:
    from rmqtool.rebuild.apply import write_output
    from rmqtool.rebuild.source import open_source

    with byte_progress("writing queues and index", store.commit_log().size, style=style) as progress:
        return write_output(open_source(store, options, releases), new.empty_derived(), progress.update)


def cut_moved(rebuild: RebuildPlan, derived: Path, start: int) -> None:
    """Cut the queues in `derived` of which a log holds no message, whose messages from offset `start` on have moved.

    Raises UnsupportedError for a queue that was not derived from the log, OSError.
    """
    from rmqtool.rebuild.options import directory_of
    from rmqtool.salvage.new_store import cut_queue, require_derived

    require_derived(rebuild.findings)
    for queue in rebuild.without_messages:
        if queue.kind != "rocksdb":
            cut_queue(queue.kind, derived / directory_of(queue.name, queue.kind), start)


def owner_of(stores: Sequence[Store]) -> tuple[int, int] | None:
    """The user and group of the first source, where this process may give files away."""
    if not stores or os.geteuid() != 0:
        return None
    status = stores[0].root.stat()
    return status.st_uid, status.st_gid
