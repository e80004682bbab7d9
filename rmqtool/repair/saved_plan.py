"""A repair's plan in a file: carried out only on the store that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.rules.versions import parse_version
from rmqtool.store.store import Store
from rmqtool.transaction.plan_file import PlanFile, files_below, fingerprint_of, plan_text

_SCHEMA, _COMMAND = "rmqtool.repair-plan/1", "repair"
_OURS = (".rmqtool", "lock")


def fingerprint(store: Store) -> str:
    """A digest of names, sizes and modification times of all files of a store."""
    return fingerprint_of(_files(store), store)


def repair_plan_text(store: Store, chosen: dict[str, Any], result: dict[str, Any]) -> str:
    """A plan as JSON, with the release and the choices that it was made with."""
    version = chosen["broker_version"]
    saved = chosen | {"broker_version": str(version) if version else None}
    return plan_text(_SCHEMA, _COMMAND, store, fingerprint=fingerprint(store), options=saved, result=result)


class SavedRepairPlan(PlanFile):
    """A plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _SCHEMA, _COMMAND)

    @property
    def options(self) -> dict[str, Any]:
        """The options that the plan was made with."""
        try:
            saved = self.document["options"]
            version = saved["broker_version"]
            return {"broker_version": parse_version(version) if version else None,
                    "keep_offsets": saved["keep_offsets"] is True,
                    "lose": tuple(map(str, saved.get("lose", ())))}  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise self.odd_options() from error

    def require_same_store(self, store: Store) -> None:
        """Raise ChangedError when anything was written since."""
        self.require_fingerprint(fingerprint(store), store)


def _files(store: Store) -> Iterator[Path]:
    outside = (path for path in store.commit_log_directories if not path.is_relative_to(store.root))
    for directory in (store.root, *outside):
        yield from files_below(directory, without=_OURS)
