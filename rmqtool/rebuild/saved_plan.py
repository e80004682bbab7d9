"""Plans in files: saved, reviewed, and carried out only while the store is unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.rebuild.options import QueueSelection, RebuildOptions, Target
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rules.versions import parse_version
from rmqtool.scan.filters import TopicChoice
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    INDEX,
    SEPARATE_ROCKSDB_QUEUES,
    Store,
)
from rmqtool.transaction.plan_file import PlanFile, files_below, fingerprint_of, plan_text

_SCHEMA = "rmqtool.rebuild-plan/1"


def fingerprint(store: Store, target: Target | None = None) -> str:
    """A digest of names, sizes and modification times of all that a rebuild, or a conversion, reads or changes."""
    files = [*_files(store), *(files_below(store.root / CONFIG) if target else ())]
    return fingerprint_of(iter(files), store)


def rebuild_plan_text(plan: RebuildPlan, command: str, result: dict[str, Any]) -> str:
    """A plan as JSON."""
    options = plan.options
    store = plan.source.snapshot.store
    saved = {
        "parts": sorted(options.parts),
        "topics": list(options.selection.topics.wanted),
        "excluded_topics": list(options.selection.topics.excluded),
        "queues": sorted(options.selection.queue_ids),
        "only": None if options.selection.only is None else sorted(options.selection.only),
        "order": options.order,
        "neutralise": options.neutralise,
        "broker_version": str(options.version) if options.version else None,
        "to": options.target,
    }
    return plan_text(
        _SCHEMA, command, store, fingerprint=fingerprint(store, options.target), options=saved, result=result
    )


class SavedPlan(PlanFile):
    """A plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path, command: str) -> None:
        super().__init__(path, _SCHEMA, command)

    def options(self, base: RebuildOptions) -> RebuildOptions:
        """The options that the plan was made with."""
        try:
            return self._options(base)
        except (KeyError, TypeError, ValueError) as error:
            raise self.odd_options() from error

    def _options(self, base: RebuildOptions) -> RebuildOptions:
        saved = self.document["options"]
        only = saved["only"]
        return RebuildOptions(
            base.parts & frozenset(saved.get("parts", base.parts)),
            QueueSelection(
                TopicChoice(tuple(map(str, saved["topics"])), tuple(map(str, saved.get("excluded_topics", ())))),
                frozenset(map(int, saved["queues"])),
                None if only is None else frozenset((str(topic), int(queue)) for topic, queue in only),
            ),
            parse_version(saved["broker_version"]) if saved["broker_version"] else None,
            "broker" if saved["order"] == "broker" else "stored",
            base.limit,
            saved["neutralise"] is True,
            base.jobs,
            target=self._target,
        )

    @property
    def _target(self) -> Target | None:
        return {"files": "files", "rocksdb": "rocksdb"}.get(self.document["options"].get("to"))  # type: ignore[return-value]

    def require_same_store(self, store: Store) -> None:
        """Raise ChangedError when anything that matters was written since."""
        self.require_fingerprint(fingerprint(store, self._target), store)


def _files(store: Store) -> Iterator[Path]:
    for path in store.log_directories:
        yield from files_below(path)
    for name in (CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, BATCH_CONSUME_QUEUE, INDEX):
        yield from files_below(store.root / name)
    yield from (store.root / name for name in (CHECKPOINT, ABORT_FILE))
