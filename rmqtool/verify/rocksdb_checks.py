"""The database of the consume queues as a whole: rows that belong to no queue, and how far it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.verify.queue_progress import QueueProgress

_MAX_SHOWN = 3


def check_database(
    database: QueueDatabase, states: Mapping[QueueName, QueueProgress], report: Report, *, live: bool
) -> None:
    """Check the rows that belong to no queue, and the tables; `states` are the queues by the log."""
    details: dict[str, Any] = {"file": database.path.name}
    report.check("consumequeue.row")
    report_bad_units(database, report)
    for key, why in database.bad_rows():
        report.add("consumequeue.row", f"key {key.hex()}: {why}", **details)
    if database.rows.left_over and not live:
        tables = ", ".join(database.rows.left_over[:_MAX_SHOWN])
        message = f"{counted(len(database.rows.left_over), 'table')}, such as {tables}"
        report.add("consumequeue.left-over-table", message, count=len(database.rows.left_over), **details)
    for topic, queue_id in sorted(database.with_rows() - database.lasts.keys()):
        if QueueName(topic, queue_id) not in states:
            message = "rows without a max row, and no message in the log"
            report.add("consumequeue.row", message, topic=topic, queue_id=queue_id, **details)


def report_bad_units(database: QueueDatabase, report: Report) -> None:
    """Report rows of another form that were met among the units of queues."""
    for key in sorted(database.bad_units):
        message = f"key {key.hex()} among the units of a queue: its key or its value is too long or too short"
        report.add("consumequeue.row", message, file=database.path.name)
    database.bad_units.clear()
