"""A repair's plan in a file: carried out only on the store that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.store import Store
from rmqtool.transaction.plan_file import PlanFile, files_below, fingerprint_of, plan_text

_SCHEMA, _COMMAND = "rmqtool.repair-plan/1", "repair"
_OURS = (".rmqtool", "lock")


@dataclass(frozen=True)
class RepairOptions:
    """What decides about a repair: the release whose rules count, whether committed offsets are left alone.

    And the codes of what it may take from clients (`lose`).
    """

    version: Version | None = None
    keep_offsets: bool = False
    lose: frozenset[str] = frozenset()


def fingerprint(store: Store) -> str:
    """A digest of names, sizes and modification times of all files of a store."""
    return fingerprint_of(_files(store), store)


def repair_plan_text(store: Store, options: RepairOptions, result: dict[str, Any]) -> str:
    """A plan as JSON."""
    version = str(options.version) if options.version else None
    saved = {"broker_version": version, "keep_offsets": options.keep_offsets, "lose": sorted(options.lose)}
    return plan_text(_SCHEMA, _COMMAND, store, fingerprint=fingerprint(store), options=saved, result=result)


class SavedRepairPlan(PlanFile):
    """A plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _SCHEMA, _COMMAND)

    @property
    def options(self) -> RepairOptions:
        """The options that the plan was made with."""
        try:
            saved = self.document["options"]
            version = saved["broker_version"]
            return RepairOptions(parse_version(version) if version else None, saved["keep_offsets"] is True,
                                 frozenset(map(str, saved.get("lose", ()))))  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise self.odd_options() from error

    def require_same_store(self, store: Store) -> None:
        """Raise ChangedError when anything was written since."""
        self.require_fingerprint(fingerprint(store), store)


def _files(store: Store) -> Iterator[Path]:
    outside = (path for path in store.commit_log_directories if not path.is_relative_to(store.root))
    for directory in (store.root, *outside):
        yield from files_below(directory, without=_OURS)
