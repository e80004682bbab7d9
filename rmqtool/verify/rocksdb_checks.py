"""The database of the consume queues as a whole: rows that belong to no queue, and how far it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rmqtool.base.paths import has_directory, has_file
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import ROCKSDB_LIGHT_QUEUES
from rmqtool.store.consume_queues import Queue, queue_in
from rmqtool.store.rocksdb_queues import LastUnit, QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, rocksdb_configs
from rmqtool.store.topics import TOPICS
from rmqtool.store.unit_files import RocksDbUnits, UnitFiles
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.task import StoreReader

_MAX_SHOWN = 3
_CHUNK = 1 << 16  # units
_FIELDS = ("physical_offset", "message_size", "tags_code")


def check_database(
    database: QueueDatabase, states: Mapping[QueueName, QueueProgress], report: Report, *, live: bool
) -> None:
    """Check the rows that belong to no queue, and the tables; `states` are the queues by the log."""
    given: dict[str, Any] = {"file": database.path.name}
    report.check("consumequeue.row")
    report_bad_units(database, report)
    for key, why in database.bad_rows():
        report.add("consumequeue.row", details={"problem": "bad-row", "key": key.hex(), "why": why}, **given)
    if database.rows.left_over and not live:
        count, names = len(database.rows.left_over), [*database.rows.left_over[:_MAX_SHOWN]]
        report.add("consumequeue.left-over-table", count=count, details={"tables": count, "names": names}, **given)
    for topic, queue_id in sorted(database.with_rows() - database.lasts.keys()):
        if QueueName(topic, queue_id) not in states:
            report.add("consumequeue.row", topic=topic, queue_id=queue_id, details={"problem": "no-max-row"}, **given)


def check_copies_alone(snapshot: Snapshot, states: Mapping[QueueName, QueueProgress], report: Report) -> None:
    """Note queues with messages that are in RocksDB alone, though the broker may write files of them, too.

    It may where other queues have files, and where topics are in JSON: a broker without files of queues keeps them in
    RocksDB (`RocksDBMessageStore`). One that left files for RocksDB made no files of later queues. Light queues may be
    in RocksDB alone in any case.
    """
    store, database = snapshot.store, snapshot.database
    if database is None or store.writes_queues_twice or store.reads_only_rocksdb:
        return
    in_files = {QueueName(queue.topic, queue.queue_id) for queue in snapshot.queues if queue.files.files}
    with_messages = {name for name in states if not name.topic.startswith(LMQ_PREFIX)}
    ordinary = with_messages.intersection(QueueName(*queue) for queue in database.lasts)
    alone = sorted(ordinary - in_files)
    with_json = has_file(store.root / CONFIG / TOPICS) and not rocksdb_configs(store)
    if not alone or not (ordinary & in_files or with_json):
        return
    shown = ", ".join(f"{name.topic} {name.queue_id}" for name in alone[:_MAX_SHOWN])
    more = f" and {counted(len(alone) - _MAX_SHOWN, 'more queue')}" if len(alone) > _MAX_SHOWN else ""
    what, why = "whether files of queues are lost", "others in files as well" if in_files else "topics in JSON"
    text = f"{what}: {shown}{more} are in RocksDB alone, and {why}; "
    report.doubt(what, f"{text}they are where broker.conf sets rocksdbCQDoubleWriteEnable=true (--broker-conf)")


def check_light_rows(snapshot: Snapshot, report: Report) -> None:
    """Note that rows of light queues may be lost, where only the release decides whether there ever were some."""
    may_have_some = snapshot.store.conf.is_on("enableMultiDispatch") and snapshot.release >= ROCKSDB_LIGHT_QUEUES
    if may_have_some and not DispatchRules.of_snapshot(snapshot).multi_dispatch:
        what = "whether rows of light queues are lost"
        report.doubt(what, f"{what}: there are none, and brokers before {ROCKSDB_LIGHT_QUEUES} write none "
                           "(--broker-version)")  # fmt: skip


def report_bad_units(database: QueueDatabase, report: Report) -> None:
    """Report rows of another form that were met among the units of queues."""
    for key in sorted(database.bad_units):
        report.add("consumequeue.row", file=database.path.name, details={"problem": "bad-unit", "key": key.hex()})
    database.bad_units.clear()


def check_batches(snapshot: Snapshot, rows: RocksDbUnits, min_offset: int, report: Report) -> None:
    """Report the batches of a queue in RocksDB that consumers do not get who begin at its minimum.

    It is a warning where the queue is in files, too, from which a broker gives them all.
    """
    batches = read = 0
    first, end = rows.start, min_offset  # `end` is the first offset without a row
    while len(offsets := rows.rows(first, rows.data_end, most=_CHUNK).offsets):
        following = offsets[offsets >= end]
        in_a_row = following == np.arange(end, end + len(following))
        count = len(following) if in_a_row.all() else int(np.argmin(in_a_row))
        batches, read, end = batches + len(offsets), read + count, end + count
        first = int(offsets[-1]) + 1
    report.check("consumequeue.unread-batches", batches)
    if read < batches:
        facts: dict[str, Any] = {"problem": "all-rows", "read": read, "batches": batches, "min_offset": min_offset}
        facts |= {"problem": "no-row", "missing_row": end} if end < rows.data_end else {}
        first_unread = rows.start if rows.start < min_offset else end
        queue = rows.queue
        files = snapshot.store.root / BATCH_CONSUME_QUEUE / queue.topic / str(queue.queue_id)
        report.add("consumequeue.unread-batches", details=facts, severity="warning" if has_directory(files) else "info",
                   count=batches - read, topic=queue.topic, queue_id=queue.queue_id,
                   queue_offset=first_unread)  # fmt: skip


def check_minimum(rows: RocksDbUnits, minimum: LastUnit | None, log_start: int, report: Report) -> None:
    """Report the units of a queue before its min row, which a broker trusts unless it leads below the log."""
    if minimum is None or not minimum.begins_behind(rows.start, log_start):
        return
    count = min(minimum.queue_offset, rows.data_end) - rows.start
    facts = {"problem": "min-row", "begins_at": minimum.queue_offset, "units": count}
    report.add("consumequeue.wrong-end", count=count, topic=rows.queue.topic, queue_id=rows.queue.queue_id,
               queue_offset=rows.start, details=facts)  # fmt: skip


def check_copy(queue: Queue, database: QueueDatabase, reader: StoreReader, report: Report) -> None:
    """Compare the files of a queue with its rows, where a broker writes both (`CombineConsumeQueueStore`).

    Only the units that both hold: rows may begin later, and end where the last flush before a kill was.
    """
    name = queue.topic, queue.queue_id
    if queue.kind != "simple" or name not in database.lasts:
        return
    rows = RocksDbUnits(queue_in(database, *name), database, reader.open_files, reader.log_start)
    files = UnitFiles(queue, reader.open_files, live=reader.task.live)
    start, stop = max(files.start, rows.start), min(files.data_end, rows.data_end)
    report.check("consumequeue.copies-differ", max(0, stop - start))
    for low, high, is_held in files.stretches(start, stop):
        for first in range(low, high, _CHUNK) if is_held else ():
            count = min(_CHUNK, high - first)
            unit, row = files.units(first, count), rows.units(first, count)
            differs = np.any([unit[field] != row[field] for field in _FIELDS], axis=0)
            if differs.any():
                at = int(np.argmax(differs))
                facts: dict[str, Any] = {"problem": "no-row", "in_file": int(unit["physical_offset"][at])}
                if row["message_size"][at]:
                    facts |= {"problem": "other-row", "in_rocksdb": int(row["physical_offset"][at])}
                report.add("consumequeue.copies-differ", count=int(np.count_nonzero(differs)), topic=queue.topic,
                           queue_id=queue.queue_id, queue_offset=first + at, details=facts)  # fmt: skip
