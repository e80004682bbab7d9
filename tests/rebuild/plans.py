"""Plans of rebuilds of golden stores, and the files that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.queue_placement import Order
from rmqtool.rebuild.source import open_source
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from tests.unchanged import digest

QUEUES: frozenset[Part] = frozenset(["queues"])
INDEX: frozenset[Part] = frozenset(["index"])


def options(name: str, parts: frozenset[Part], order: Order = "stored") -> RebuildOptions:
    return RebuildOptions(parts, version=parse_version(name.partition("-")[0]), order=order)


def plan(name: str, root: Path, parts: frozenset[Part]) -> RebuildPlan:
    return make_plan(open_source(open_store(root), options(name, parts)))


def files(root: Path, *directories: str) -> dict[str, bytes]:
    """The bytes of every file below some directories of a store, by path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in _found(root, directories)}


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """The size and a digest of every file of a store, by path: a new index file is 400 MB of holes."""
    return {str(path.relative_to(root)): (path.stat().st_size, digest(path)) for path in _found(root, ["."])}


def _found(root: Path, directories: Iterable[str]) -> Iterator[Path]:
    return (path for directory in directories for path in (root / directory).rglob("*") if path.is_file())
