"""Plans in files: saved, reviewed, and carried out only while the store is unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rmqtool.base.errors import ChangedError, UsageError
from rmqtool.base.files import list_directory, read_all
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rebuild.selection import QueueSelection
from rmqtool.rules.versions import parse_version
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CHECKPOINT, CONSUME_QUEUE, INDEX, Store

SCHEMA = "rmqtool.rebuild-plan/1"
_MAX_SIZE = 1 << 30


def fingerprint(store: Store) -> str:
    """A digest of names, sizes and modification times of all that a rebuild reads or changes."""
    digest = blake2b(digest_size=16)
    for path in store.commit_log_directories:
        _add(digest, path, store)
    for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX):
        _add(digest, store.root / name, store)
    for name in (CHECKPOINT, ABORT_FILE):
        digest.update(_line(store.root / name, store))
    return digest.hexdigest()


def plan_text(plan: RebuildPlan, command: str, result: dict[str, Any]) -> str:
    """A plan as JSON."""
    options = plan.options
    document = {
        "schema": SCHEMA,
        "command": command,
        "store": str(plan.source.snapshot.store.root),
        "fingerprint": fingerprint(plan.source.snapshot.store),
        "options": {
            "parts": sorted(options.parts),
            "topics": sorted(options.selection.topics),
            "queues": sorted(options.selection.queue_ids),
            "only": None if options.selection.only is None else sorted(options.selection.only),
            "order": options.order,
            "neutralise": options.neutralise,
            "broker_version": str(options.version) if options.version else None,
        },
        "result": result,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


class SavedPlan:
    """A plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path, command: str) -> None:
        self._path = path
        try:
            document = json.loads(read_all(path, _MAX_SIZE))
        except ValueError as error:
            raise UsageError(f"not a plan: {error}", file=path) from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA or document.get("command") != command:
            raise UsageError(f"not a plan of {command} that this version can carry out", file=path)
        self._document = document

    def options(self, base: RebuildOptions) -> RebuildOptions:
        """The options that the plan was made with."""
        try:
            return self._options(base)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError("its options cannot be read: make the plan anew", file=self._path) from error

    def _options(self, base: RebuildOptions) -> RebuildOptions:
        saved = self._document["options"]
        only = saved["only"]
        return RebuildOptions(
            base.parts & frozenset(saved.get("parts", base.parts)),
            QueueSelection(
                frozenset(map(str, saved["topics"])),
                frozenset(map(int, saved["queues"])),
                None if only is None else frozenset((str(topic), int(queue)) for topic, queue in only),
            ),
            parse_version(saved["broker_version"]) if saved["broker_version"] else None,
            "broker" if saved["order"] == "broker" else "stored",
            base.limit,
            saved["neutralise"] is True,
            base.jobs,
        )

    def require_same_store(self, store: Store) -> None:
        """Raise ChangedError when anything that matters was written since."""
        if fingerprint(store) != self._document.get("fingerprint"):
            raise self._changed(store)

    def require_same_result(self, store: Store, result: dict[str, Any]) -> None:
        """Raise ChangedError when the plan made now differs from the saved one."""
        if json.loads(json.dumps(result)) != self._document.get("result"):
            raise self._changed(store)

    def _changed(self, store: Store) -> ChangedError:
        return ChangedError(
            f"the store is not as it was when {self._path} was made: nothing is written",
            file=store.root,
            hint="make the plan anew with --dry-run --save-plan",
        )


def _add(digest: Any, path: Path, store: Store) -> None:
    for file in _files_below(path):
        digest.update(_line(file, store))


def _files_below(path: Path) -> Iterator[Path]:
    for entry in list_directory(path):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def _line(path: Path, store: Store) -> bytes:
    try:
        status = path.stat()
    except FileNotFoundError:
        return b"\0"
    name = store.relative(path).encode("utf-8", "surrogateescape")
    return b"%s\0%d\0%d\n" % (name, status.st_size, status.st_mtime_ns)
