"""Sizes of the files that are written: those of broker.conf, else of existing files, else the default.

A broker refuses to start on queue files of another size than its own: with an unknown size nothing is written into a
store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from rmqtool.base.errors import UsageError
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS
from rmqtool.rebuild.options import Part
from rmqtool.rules.file_sizes import DEFAULT_QUEUE_FILE_SIZE, QUEUE_FILE_SIZE, queue_file_size
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.store.unknown_sizes import Sized, common_file_sizes, unknown_sizes

_SETTINGS: dict[Sized, str] = {
    "simple": QUEUE_FILE_SIZE["simple"][0],
    "batch": QUEUE_FILE_SIZE["batch"][0],
    "index": "maxHashSlotNum and maxIndexNum",
}
_NAMES: dict[Sized, str] = {
    "simple": "a consume queue file",
    "batch": "a batch consume queue file",
    "index": "an index file",
}


@dataclass(frozen=True)
class FileSizes:
    """Bytes of a queue file of each kind, and the geometry of an index file; `findings` report contradictions."""

    queues: dict[Kind, int]
    index: Geometry
    findings: list[Finding] = field(default_factory=list)
    assumed: frozenset[Sized] = frozenset()  # kinds whose size neither a file nor broker.conf shows


def file_sizes(snapshot: Snapshot, parts: Collection[Part]) -> FileSizes:
    """Find the sizes; what broker.conf does not set is the default, as for the broker that reads it.

    Sizes of wanted parts that contradict each other are among the findings.
    """
    common = common_file_sizes(snapshot.queues)
    contradictions: list[Finding] = []
    kinds = DEFAULT_QUEUE_FILE_SIZE
    sizes = {kind: _queue_file_size(snapshot.store, kind, common.get(kind), contradictions) for kind in kinds}
    index = _index_geometry(snapshot)
    return FileSizes(
        sizes,
        index or Geometry(DEFAULT_SLOTS, DEFAULT_UNITS),
        contradictions if "queues" in parts else [],
        unknown_sizes(snapshot),
    )


def assumed_findings(sizes: FileSizes, kinds: Collection[Sized]) -> Iterator[Finding]:
    """A finding for each kind of written files whose size is not known, so that the default is taken."""
    for kind in sorted(sizes.assumed.intersection(kinds)):
        details: dict[str, str | int] = {"kind": _NAMES[kind], "setting": _SETTINGS[kind]}
        if kind == "index":
            details |= {"problem": "index", "slots": sizes.index.slots, "units": sizes.index.units}
        else:
            details |= {"problem": "queues", "bytes": sizes.queues[kind]}
        yield finding("rebuild.file-size-assumed", severity="warning", details=details)


def require_known_sizes(store: Store, assumed: Collection[Sized], kinds: Collection[Sized]) -> None:
    """Raise UsageError when files of one of the `kinds` are written into the store and their size is only assumed."""
    unknown = [kind for kind in _SETTINGS if kind in kinds and kind in assumed]
    if unknown:
        names = " and ".join(f"{_NAMES[kind]} ({_SETTINGS[kind]})" for kind in unknown)
        raise UsageError(
            f"the size of {names} is unknown: no file of the store shows it. On queue files of another size than "
            "its own a broker refuses to start, and in index files it finds nothing",
            file=store.root,
            hint="give the broker's configuration with --broker-conf FILE; what it does not set is the default, and "
            "an empty file stands for a broker that sets nothing. --dry-run goes on without it",
        )


def _queue_file_size(store: Store, kind: Kind, common: int | None, findings: list[Finding]) -> int:
    configured = queue_file_size(store.conf, kind)
    if configured is not None and common is not None and configured != common:
        findings.append(_contradiction(store, kind, configured, common))
    return configured or common or DEFAULT_QUEUE_FILE_SIZE[kind]


def _index_geometry(snapshot: Snapshot) -> Geometry | None:
    """The configured geometry, else that of the newest file whose geometry is known."""
    if snapshot.store.conf.index_geometry:
        return Geometry(*snapshot.store.conf.index_geometry)
    geometries = map(snapshot.index_geometry, reversed(snapshot.index_files))
    return next((geometry for geometry in geometries if geometry), None)


def _contradiction(store: Store, kind: Kind, configured: int, common: int) -> Finding:
    details = {"setting": _SETTINGS[kind], "configured": configured, "found": common}
    return finding("rebuild.file-size-differs", file=store.conf.path, details=details)
