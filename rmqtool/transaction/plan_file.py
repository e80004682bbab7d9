"""Plans in files: reviewed by people, and carried out only while the files are those that they were made from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rmqtool.base.errors import ChangedError, UsageError
from rmqtool.base.files import list_directory, read_all
from rmqtool.store.store import Store

_MAX_SIZE = 1 << 30


def fingerprint_of(files: Iterable[Path], store: Store) -> str:
    """A digest of names, sizes and modification times; a file that does not exist counts, too."""
    digest = blake2b(digest_size=16)
    for path in files:
        digest.update(_line(path, store))
    return digest.hexdigest()


def files_below(directory: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """All files below a directory, in name order, but for entries of the names in `without`; links are not followed."""
    for entry in list_directory(directory):
        if entry.name in without:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), without)
        else:
            yield Path(entry.path)


def plan_text(
    schema: str, command: str, store: Store, *, fingerprint: str, options: Mapping[str, Any], result: Mapping[str, Any]
) -> str:
    """A plan as JSON: what it was made from, with which options, and what it does."""
    document = {
        "schema": schema,
        "command": command,
        "store": str(store.root),
        "fingerprint": fingerprint,
        "options": options,
        "result": result,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


class PlanFile:
    """A command's plan that is read from a file; raises UsageError for a file that holds none."""

    def __init__(self, path: Path, schema: str, command: str) -> None:
        self.path = path
        try:
            document = json.loads(read_all(path, _MAX_SIZE))
        except ValueError as error:
            why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
            raise UsageError(f"not a plan: {why}", file=path) from error
        if not isinstance(document, dict) or document.get("schema") != schema or document.get("command") != command:
            raise UsageError(f"not a plan of {command} that this version can carry out", file=path)
        self.document = document

    def require_fingerprint(self, found: str, store: Store) -> None:
        """Raise ChangedError when the plan was made from other files."""
        if found != self.document.get("fingerprint"):
            raise self.changed(store)

    def require_same_result(self, store: Store, result: dict[str, Any]) -> None:
        """Raise ChangedError when the plan made now differs from the saved one."""
        if json.loads(json.dumps(result)) != self.document.get("result"):
            raise self.changed(store)

    def changed(self, store: Store) -> ChangedError:
        """The error for a store of which the plan does not hold any more."""
        return ChangedError(
            f"the store has changed since {self.path} was made: nothing is written",
            file=store.root,
            hint="make the plan again with --dry-run --save-plan",
        )

    def odd_options(self) -> UsageError:
        """The error for options that no plan has."""
        return UsageError("its options cannot be read: make the plan again", file=self.path)


def _line(path: Path, store: Store) -> bytes:
    try:
        status = path.stat()
    except FileNotFoundError:
        return b"\0"
    name = store.relative(path).encode("utf-8", "surrogateescape")
    return b"%s\0%d\0%d\n" % (name, status.st_size, status.st_mtime_ns)
