"""A plan in a file: carried out only when the cleaner's next run deletes exactly the files that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtool.clean.deletion import files_to_delete
from rmqtool.clean.plan import CleanPlan
from rmqtool.transaction.plan_file import PlanFile, fingerprint_of, plan_text

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
