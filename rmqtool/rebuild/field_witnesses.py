"""Records with damaged fields: what the store's queues and index prove of them counts, not what they say."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import FieldJudge, Suspects
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.comparisons import Comparisons
from rmqtool.rebuild.queue_diff import Comparison
from rmqtool.rebuild.row_diff import RowComparison
from rmqtool.rebuild.source import RebuildSource, run_task


def learn_fields(source: RebuildSource, comparisons: Comparisons, derived: set[QueueName]) -> bool:
    """Judge what a pass found different, once; whether records have damaged fields, so that it has to begin again.

    `derived` are the queues that the pass has derived. A rebuild in the order of a broker, or of queues that are not
    to be believed, takes the log as it is.
    """
    options = source.options
    if source.damages is not None or options.order != "stored" or options.anew:
        return False
    suspects = Suspects()
    of_queues: list[Comparison | RowComparison] = [*comparisons.queues.values(), *comparisons.rows.values()]
    for comparison in of_queues:
        for name in _names(source):
            if name not in derived:
                comparison.add_untouched(name)
        suspects.extend(comparison.suspects)
    if comparisons.index:
        suspects.extend(comparisons.index.suspects)
    task = run_task(source)
    dispatcher = Dispatcher(task.rules, source.batch_topics)
    topics = {name.topic for name in _names(source)} | {*source.snapshot.topics.by_name}
    source.damages = FieldJudge(task.files, dispatcher, _Places(source), topics).damages(suspects)
    return bool(source.damages)


def field_findings(source: RebuildSource) -> Iterator[Finding]:
    """Findings of records with damaged fields."""
    for damage in source.damages or ():
        yield finding("commitlog.field", store=source.snapshot.store.root, **damage.facts)


def _names(source: RebuildSource) -> set[QueueName]:
    return {QueueName(queue.topic, queue.queue_id) for queue in source.snapshot.queues}


class _Places:
    """The physical offsets in units of simple queues, by queue and queue offset."""

    def __init__(self, source: RebuildSource) -> None:
        self._existing = source.existing["simple"]
        self._rows = source.rows if source.places.rocksdb else None

    def __call__(self, name: QueueName, queue_offset: int) -> int | None:
        """The physical offset in the unit of a queue offset; None without one."""
        unit = self._existing.unit_at(name, queue_offset)
        if unit is None and self._rows is not None:
            found = self._rows.rows(name, queue_offset, queue_offset + 1).values
            unit = found[0] if len(found) else None
        return None if unit is None else int(unit["physical_offset"])
