"""Modification times that files lost when a store was copied: the broker's cleaner counts the age of the log from them.

Up to 5.1.0 a broker also finds the queue file of a moment by them (`ConsumeQueue#getOffsetInQueueByTime`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import read_all
from rmqtool.base.new_files import whole_file
from rmqtool.base.times import file_time, rfc3339
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.clean.findings import wrong_times
from rmqtool.clean.plan import log_facts
from rmqtool.rules.retention import settings_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store
from rmqtool.transaction.home import JOURNAL, transactions
from rmqtool.transaction.paths import HOME
from rmqtool.transaction.session import Session
from rmqtool.transaction.system import SYSTEM, reported

_TOLERANCE_MS = 3_600_000  # the kernel writes a map's pages, and the time with them, later than the message came
_MS = 1_000_000  # ns
_MOST = 256 << 20  # bytes

RECORD = f"{HOME}/times-before.json"
"""The times that files had before they were set."""


@dataclass(frozen=True)
class FileTime:
    """A file, its modification time, and when its last message was stored, epoch ms.

    One that is `kept` as it is would be deleted by the first cleaning with that time.
    """

    path: Path
    modified: int
    written: int
    kept: bool = False

    def text(self, store: Store) -> str:
        """What becomes of it."""
        before, after = rfc3339(self.modified) or self.modified, rfc3339(self.written) or self.written
        return f"{store.relative(self.path)}: modified {before}, its last message was stored {after}"


def lost_times(snapshot: Snapshot, now: int) -> list[FileTime]:
    """The files of log and queues that were modified later than their messages were stored."""
    settings = settings_of(snapshot.store.conf.settings, {}, snapshot.release)
    files = snapshot.log.files
    last = files[-1].start_offset if files else 0  # which no cleaning deletes
    wrong = wrong_times(log_facts(snapshot, snapshot.log_range, len(files)), now)
    of_log = [
        FileTime(each.log_file.file.path, each.log_file.mtime, each.written,
                 kept=settings.expires(each.written) < now and each.log_file.start_offset != last)
        for each in wrong
    ]  # fmt: skip
    return [*of_log, *(_queue_times(snapshot) if of_log else ())]


def _queue_times(snapshot: Snapshot) -> Iterator[FileTime]:
    """The queue files that were modified later than the message of their last entry was stored."""
    lookups = Lookups(snapshot.log.files, Dispatcher(DispatchRules(snapshot.release)))
    for queue in snapshot.queues:
        loaded = snapshot.queue(queue.topic, queue.queue_id) if queue.database is None else None
        for file in loaded.files if loaded else ():
            found = lookups.time_and_host_at(file.last.physical_offset) if file.last else None
            modified = os.stat(file.mapped.path).st_mtime_ns // _MS
            if found and modified > found[0] + _TOLERANCE_MS:
                yield FileTime(file.mapped.path, modified, found[0])


def give_times(store: Store, times: Sequence[FileTime]) -> None:
    """Set the times of files, while no broker can start on the store; raises StoreInUseError, UnwritableError.

    Those before are on record first, for `take_back`.
    """
    with Session(store.root, SYSTEM, store.log_directories):
        places = [(each, os.stat(each.path).st_mtime_ns) for each in times]
        record = [{"path": str(each.path.absolute()), "before": before, "after": file_time(each.written)}
                  for each, before in places]  # fmt: skip
        path = store.root / RECORD
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as target:
            target.write(json.dumps(record, indent=1).encode("utf-8", "surrogateescape"))
        for each in times:
            with reported(str(each.path)):
                SYSTEM.set_mtime(str(each.path), file_time(each.written))


def is_last(root: Path) -> bool:
    """Whether times were set after the last repair, so that an undo takes these back."""
    record = root / RECORD
    journals = [root / HOME / name / JOURNAL for name in transactions(root).values()]
    return record.exists() and all(record.stat().st_mtime_ns >= each.stat().st_mtime_ns for each in journals)


def take_back(root: Path, logs: Sequence[Path]) -> tuple[int, int]:
    """Put the times back that were before; how many, and how many files have changed since and stay.

    Raises StoreInUseError, UnwritableError, UnreadableError.
    """
    done = left = 0
    with Session(root, SYSTEM, logs):
        try:
            rows = json.loads(read_all(root / RECORD, _MOST).decode("utf-8", "surrogateescape"))
            wanted = [(str(row["path"]), int(row["before"]), int(row["after"])) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableError(f"not a record of times: {error}", file=root / RECORD) from error
        for path, before, after in wanted:
            status = SYSTEM.lstat(path)
            if status is None or status.st_mtime_ns != after:
                left += 1
                continue
            with reported(path):
                SYSTEM.set_mtime(path, before)
            done += 1
        (root / RECORD).unlink()
    return done, left


def forget(root: Path) -> None:
    """Remove the record."""
    (root / RECORD).unlink(missing_ok=True)
