"""File sizes in broker.conf against those in the store: with others a start would refuse it or destroy it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rmqtool.base.errors import UsageError
from rmqtool.clean.snapshot import Facts
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS, file_size
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import (
    DEFAULT_LOG_FILE_SIZE,
    DEFAULT_QUEUE_FILE_SIZE,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    queue_file_size,
)


@dataclass(frozen=True)
class WrongSize:
    """Files at or below `file` whose size is not what broker.conf sets with `setting`, bytes."""

    setting: str
    configured_size: int
    size: int
    file: str
    consequence: str | None = None

    def __str__(self) -> str:
        """The difference in a sentence."""
        configured = f"by broker.conf ({self.setting}) these files have {self.configured_size} bytes"
        return f"{configured}, but here they have {self.size}"


def geometry_findings(facts: Facts) -> Iterator[Finding]:
    """A finding for each wrong size."""
    for wrong in wrong_sizes(facts):
        details = {"setting": wrong.setting, "configured_size": wrong.configured_size, "size": wrong.size}
        yield finding("clean.file-size", effect=wrong.consequence, file=wrong.file, details=details)


def wrong_sizes(facts: Facts) -> Iterator[WrongSize]:
    """Sizes by broker.conf that differ from the store's; a size that it does not set is the broker's default."""
    conf = facts.snapshot.store.conf
    if not conf.settings:
        return
    size = _size(conf, DEFAULT_LOG_FILE_SIZE, lambda: conf.size(*LOG_FILE_SIZE))
    if size and facts.snapshot.log.file_size not in (0, size):
        yield WrongSize(LOG_FILE_SIZE[0], size, facts.snapshot.log.file_size, "commitlog")
    for kind, names in QUEUE_FILE_SIZE.items():
        size = _size(conf, DEFAULT_QUEUE_FILE_SIZE[kind], partial(queue_file_size, conf, kind))
        queue = next((s.queue for s in facts.states if s.queue.kind == kind and s.queue.files.file_size), None)
        if size and queue and queue.files.file_size != size:
            directory = facts.snapshot.store.relative(queue.files.files[0].path.parent)
            yield WrongSize(names[0], size, queue.files.file_size, directory)
    yield from _of_index(facts)


def _of_index(facts: Facts) -> Iterator[WrongSize]:
    first = facts.snapshot.index_files[0] if facts.snapshot.index_files else None
    conf = facts.snapshot.store.conf
    slots = _size(conf, DEFAULT_SLOTS, lambda: conf.size("maxHashSlotNum"))
    units = _size(conf, DEFAULT_UNITS, lambda: conf.size("maxIndexNum"))
    if first and slots and units and first.size != file_size(slots, units):
        effect = "not detected: keys are looked up and written at wrong places of the index"
        path = facts.snapshot.store.relative(first.path)
        yield WrongSize("maxHashSlotNum and maxIndexNum", file_size(slots, units), first.size, path, effect)


def _size(conf: BrokerConf, default: int, configured: Callable[[], int | None]) -> int:
    """A size by broker.conf, bytes or a count; without it the default; 0 without a broker.conf."""
    try:
        given = configured()
    except UsageError:
        given = None  # a value that the broker cannot parse either: its default counts
    return given or (default if conf.path is not None else 0)
