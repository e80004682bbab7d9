"""File sizes in broker.conf against those in the store: with others a start would refuse it or destroy it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def geometry_findings(facts: Facts) -> Iterator[Finding]:
    """Sizes by broker.conf that differ from the store's; a size that it does not set is the broker's default."""
    conf = facts.snapshot.store.conf
    if not conf.settings:
        return
    size = _size(conf, DEFAULT_LOG_FILE_SIZE, lambda: conf.size(*LOG_FILE_SIZE))
    if size and facts.snapshot.log.file_size not in (0, size):
        yield _finding(LOG_FILE_SIZE[0], size, facts.snapshot.log.file_size, "commitlog")
    for kind, names in QUEUE_FILE_SIZE.items():
        size = _size(conf, DEFAULT_QUEUE_FILE_SIZE[kind], partial(queue_file_size, conf, kind))
        queue = next((s.queue for s in facts.states if s.queue.kind == kind and s.queue.files.file_size), None)
        if size and queue and queue.files.file_size != size:
            directory = facts.snapshot.store.relative(queue.files.files[0].path.parent)
            yield _finding(names[0], size, queue.files.file_size, directory)
    yield from _index_finding(facts)


def _index_finding(facts: Facts) -> Iterator[Finding]:
    first = facts.snapshot.index_files[0] if facts.snapshot.index_files else None
    conf = facts.snapshot.store.conf
    slots = _size(conf, DEFAULT_SLOTS, lambda: conf.size("maxHashSlotNum"))
    units = _size(conf, DEFAULT_UNITS, lambda: conf.size("maxIndexNum"))
    if first and slots and units and first.size != file_size(slots, units):
        effect = "not detected: keys are looked up and written at wrong places of the index"
        path = facts.snapshot.store.relative(first.path)
        yield _finding("maxHashSlotNum and maxIndexNum", file_size(slots, units), first.size, path, effect)


def _size(conf: BrokerConf, default: int, configured: Callable[[], int | None]) -> int:
    """A size by broker.conf, bytes or a count; without it the default; 0 without a broker.conf."""
    try:
        given = configured()
    except UsageError:
        given = None  # a value that the broker cannot parse either: its default counts
    return given or (default if conf.path is not None else 0)


def _finding(name: str, configured: int, actual: int, file: str, effect: str | None = None) -> Finding:
    message = f"by broker.conf ({name}) these files have {configured} bytes, but here they have {actual}"
    return finding("clean.file-size", message, effect=effect, file=file)
