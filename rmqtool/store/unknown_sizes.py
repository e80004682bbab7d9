"""Whether a store shows the sizes of its derived files; where it does not, only broker.conf knows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from rmqtool.rules.file_sizes import queue_file_size
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.snapshot import Snapshot

Sized = Kind | Literal["index"]
"""Kinds of files whose size only broker.conf and other files of their kind show."""

_QUEUE_KINDS: tuple[Kind, ...] = ("simple", "batch")


def unknown_sizes(snapshot: Snapshot) -> frozenset[Sized]:
    """The kinds of files whose size neither a file of the store nor broker.conf shows.

    None with a broker.conf: what it does not set is the default, as for the broker that reads it.
    """
    conf = snapshot.store.conf
    if conf.path is not None:
        return frozenset()
    shown: set[Sized] = {queue.kind for queue in snapshot.queues if any(_whole_file_sizes(queue))}
    shown |= {kind for kind in _QUEUE_KINDS if queue_file_size(conf, kind) is not None}
    if conf.index_geometry or any(map(snapshot.index_geometry, reversed(snapshot.index_files))):
        shown.add("index")
    kinds: tuple[Sized, ...] = (*_QUEUE_KINDS, "index")
    return frozenset(kind for kind in kinds if kind not in shown)


def common_file_sizes(queues: Iterable[Queue]) -> dict[Kind, int]:
    """The size that most whole files of a kind have, the larger one of two that are as frequent, where it has some."""
    counts: dict[Kind, Counter[int]] = defaultdict(Counter)
    for queue in queues:
        counts[queue.kind].update(_whole_file_sizes(queue))
    return {kind: max(sizes, key=lambda size: (sizes[size], size)) for kind, sizes in counts.items() if sizes}


def _whole_file_sizes(queue: Queue) -> list[int]:
    """Sizes of the files that hold whole units only, bytes; the size of other files is no evidence."""
    return [file.size for file in queue.files.files if file.size > 0 and file.size % queue.unit_size == 0]
