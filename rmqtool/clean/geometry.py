"""File sizes in broker.conf against those in the store: with others a start would refuse it or destroy it."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.base.errors import UsageError
from rmqtool.clean.snapshot import Facts
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS, file_size
from rmqtool.rules.broker_conf import (
    BATCH_QUEUE_FILE_SIZE,
    DEFAULT_LOG_FILE_SIZE,
    DEFAULT_QUEUE_UNITS,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
)
from rmqtool.store.consume_queues import Kind

_QUEUES: tuple[tuple[Kind, tuple[str, ...], int], ...] = (
    ("simple", QUEUE_FILE_SIZE, consume_queue.UNIT_SIZE),
    ("batch", BATCH_QUEUE_FILE_SIZE, batch_consume_queue.UNIT_SIZE),
)


def geometry_findings(facts: Facts) -> Iterator[Finding]:
    """Sizes by broker.conf that are not the store's; what the file does not give is the default, as for the broker."""
    conf = facts.store.conf
    if not conf.settings:
        return
    size = _size(facts, DEFAULT_LOG_FILE_SIZE, *LOG_FILE_SIZE)
    if size and facts.log.file_size not in (0, size):
        yield _finding(LOG_FILE_SIZE[0], size, facts.log.file_size, "commitlog")
    for kind, names, unit in _QUEUES:
        size = _size(facts, DEFAULT_QUEUE_UNITS * unit, *names)
        size = -(-size // unit) * unit  # MessageStoreConfig#getMappedFileSizeConsumeQueue
        found = next((s.queue for s in facts.states if s.queue.kind == kind and s.queue.files.file_size), None)
        if size and found and found.files.file_size != size:
            place = facts.store.relative(found.files.files[0].path.parent)
            yield _finding(names[0], size, found.files.file_size, place)
    yield from _index_finding(facts)


def _index_finding(facts: Facts) -> Iterator[Finding]:
    first = facts.index_files[0] if facts.index_files else None
    is_file = facts.store.conf.path is not None
    slots = _size(facts, DEFAULT_SLOTS if is_file else 0, "maxHashSlotNum")
    units = _size(facts, DEFAULT_UNITS if is_file else 0, "maxIndexNum")
    if first and slots and units and first.size != file_size(slots, units):
        effect = "not detected: keys are looked up and written at wrong places of the index"
        place = facts.store.relative(first.path)
        yield _finding("maxHashSlotNum and maxIndexNum", file_size(slots, units), first.size, place, effect)


def _size(facts: Facts, default: int, *names: str) -> int:
    """A size by broker.conf, bytes or a count; 0 when no file was given that would make the default count."""
    conf = facts.store.conf
    try:
        given = conf.size(*names)
    except UsageError:
        given = None  # a value that the broker cannot parse either: its default counts
    return given or (default if conf.path is not None else 0)


def _finding(name: str, configured: int, found: int, place: str, effect: str | None = None) -> Finding:
    message = f"by broker.conf ({name}) these files have {configured} bytes, but here they have {found}"
    return finding("clean.file-size", message, effect=effect, file=place)
