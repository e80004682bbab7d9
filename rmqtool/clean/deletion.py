"""Deleting the files of a plan's first run in a transaction; and when that is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.clean.findings import wrong_sizes
from rmqtool.clean.plan import CleanPlan
from rmqtool.store.store import other_root
from rmqtool.transaction.plan_file import PlanFile, fingerprint_of, plan_text
from rmqtool.transaction.transaction import Committed, Transaction


def files_to_delete(plan: CleanPlan) -> Iterator[Path]:
    """The files that the first run deletes, in the broker's order: commit log, queues, index, each oldest first."""
    run = plan.runs[0]
    yield from (decision.log_file.file.path for decision in run.log.deleted)
    yield from (file.path for _, file in run.queue_files)
    yield from (file.path for file in run.index_files)


def refuse(plan: CleanPlan) -> None:
    """Raise where deleting would harm: a foreign broker.conf, or nothing left of the log."""
    store, run = plan.snapshot.store, plan.runs[0]
    wrong = next(wrong_sizes(plan.facts), None)
    if wrong:
        raise UsageError(
            f"{wrong}: a start with this broker.conf would refuse the store or destroy it",
            file=store.conf.path,
            hint="give the broker.conf that the store was written with, or none: nothing was changed",
        )
    if not run.log.deleted:
        return
    other = other_root(store.root, store.conf)
    if other and any(store.root not in path.parents for path in store.log_directories):
        raise UsageError(
            f"of another store, {other}: files of its log would be deleted",
            file=store.conf.path,
            hint="name that store, or give a copy of broker.conf with the paths of this one: nothing was changed",
        )
    end = plan.facts.log_range.max_offset
    if run.log.min_offset >= end or not any(decision.reason == "last-file" for decision in run.log.kept):
        raise RmqtoolError(
            f"no message would be left: the log ends at {end}, and would begin at {run.log.min_offset}",
            file=store.commit_log_directories[0],
            hint="look at the plan with --dry-run; nothing was changed",
        )


def delete(plan: CleanPlan, transaction: Transaction) -> Committed:
    """Delete the files of the first run for good; raise UnwritableError.

    An interrupted deletion is finished by the next command that writes.
    """
    for path in files_to_delete(plan):
        transaction.delete(plan.snapshot.store.relative(path))
    return transaction.commit()


def same_deletion(one: CleanPlan, other: CleanPlan) -> bool:
    """Whether two plans delete the same files."""
    return list(files_to_delete(one)) == list(files_to_delete(other))


_SCHEMA, _COMMAND = "rmqtool.clean-plan/1", "clean"


def clean_plan_text(plan: CleanPlan, options: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """A plan as JSON, with the options that it was made with."""
    store = plan.snapshot.store
    return plan_text(_SCHEMA, _COMMAND, store, fingerprint=_fingerprint(plan), options=options, result=result)


class SavedCleanPlan(PlanFile):
    """A plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _SCHEMA, _COMMAND)

    def require_same(self, plan: CleanPlan) -> None:
        """Raise ChangedError when the plan made now deletes other files, or files that were written to since."""
        self.require_fingerprint(_fingerprint(plan), plan.snapshot.store)


def _fingerprint(plan: CleanPlan) -> str:
    return fingerprint_of(files_to_delete(plan), plan.snapshot.store)
