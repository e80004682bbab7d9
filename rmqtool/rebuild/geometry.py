"""Sizes of the files that are written: as broker.conf says, as the files that are there, or the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rmqtool.broker_conf import BATCH_QUEUE_FILE_SIZE, DEFAULT_QUEUE_UNITS, QUEUE_FILE_SIZE
from rmqtool.catalogue import finding
from rmqtool.errors import UnsupportedError
from rmqtool.findings import Finding
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS
from rmqtool.index import Geometry, IndexFile, geometry_of, list_index_files
from rmqtool.queues import UNIT_SIZES, Kind, Queue
from rmqtool.rebuild.options import Part
from rmqtool.store import Store

_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "simple": QUEUE_FILE_SIZE,
    "batch": BATCH_QUEUE_FILE_SIZE,
}


@dataclass(frozen=True)
class FileSizes:
    """Bytes of a queue file of each kind, and the geometry of an index file; `findings` say where they come from."""

    queues: dict[Kind, int]
    index: Geometry
    findings: list[Finding] = field(default_factory=list)


def file_sizes(store: Store, queues: Iterable[Queue], parts: Collection[Part]) -> FileSizes:
    """Find the sizes; of wanted parts, those that neither a file nor broker.conf tells are among the findings."""
    found: dict[Kind, Counter[int]] = {"simple": Counter(), "batch": Counter()}
    for queue in queues:
        found[queue.kind].update(file.size for file in queue.files.files if _is_whole(queue, file.size))
    of_queues: list[Finding] = []
    of_index: list[Finding] = []
    sizes = {kind: _queue_file_size(store, kind, found[kind], of_queues) for kind in found}
    index = _index_geometry(store, of_index)
    wanted = [*(of_queues if "queues" in parts else ()), *(of_index if "index" in parts else ())]
    return FileSizes(sizes, index, wanted)


def _is_whole(queue: Queue, size: int) -> bool:
    """Whether a file of so many bytes holds units and nothing else; one that was cut or made longer tells no size."""
    return size > 0 and size % queue.unit_size == 0


def _queue_file_size(store: Store, kind: Kind, found: Counter[int], findings: list[Finding]) -> int:
    unit_size = UNIT_SIZES[kind]
    told = store.conf.size(*_SETTINGS[kind])
    if told is not None and kind == "simple":
        told = -(-told // unit_size) * unit_size  # MessageStoreConfig#getMappedFileSizeConsumeQueue
    common = max(found, key=lambda size: (found[size], size), default=None)
    if told is not None and common is not None and told != common:
        findings.append(_contradiction(store, kind, told, common))
    if told is None and common is None and kind == "simple":
        findings.append(
            _assumed("a consume queue file", f"{DEFAULT_QUEUE_UNITS * unit_size} bytes", _SETTINGS[kind][0])
        )
    return told or common or DEFAULT_QUEUE_UNITS * unit_size


def _index_geometry(store: Store, findings: list[Finding]) -> Geometry:
    if store.conf.index_geometry:
        return Geometry(*store.conf.index_geometry)
    known = (_told_by(file) for file in reversed(list(list_index_files(store))))
    geometry = next((found for found in known if found), None)
    if geometry:
        return geometry
    shown = f"{DEFAULT_SLOTS} slots and {DEFAULT_UNITS} units"
    findings.append(_assumed("an index file", shown, "maxHashSlotNum and maxIndexNum"))
    return Geometry(DEFAULT_SLOTS, DEFAULT_UNITS)


def _told_by(file: IndexFile) -> Geometry | None:
    try:
        return geometry_of(file)
    except UnsupportedError:
        return None


def _assumed(what: str, size: str, setting: str) -> Finding:
    message = f"no file tells the size of {what}: the default, {size}, is taken"
    return finding("rebuild.file-size-assumed", f"{message}. If broker.conf sets {setting}, give it with --broker-conf")


def _contradiction(store: Store, kind: Kind, told: int, common: int) -> Finding:
    message = f"{_SETTINGS[kind][0]} gives {told} bytes, but most files of the queues have {common}: "
    return finding("rebuild.file-size-differs", f"{message}those of broker.conf are written", file=store.conf.path)
