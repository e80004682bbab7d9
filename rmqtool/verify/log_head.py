"""Deleted files at the head of the commit log: whether the broker's cleaner can have deleted them.

The cleaner also deletes queue and index files all of whose messages are deleted (`CleanConsumeQueueService`), and by
time only files that are older than `fileReservedTime` (`MappedFileQueue#deleteExpiredFileByTime`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from rmqtool.base.errors import RmqtoolError
from rmqtool.findings.report import Report
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.unit_files import UnitFiles
from rmqtool.transaction.selections import chosen_until
from rmqtool.verify.task import StoreReader

_FULL = 0.75  # diskMaxUsedSpaceRatio; cleaning for space leaves a disk about that full
_HOUR = 3_600_000  # ms; fileReservedTime is in whole hours


@dataclass
class LogHead:
    """Traces in the queues of log files before `start`, the physical offset where the log begins.

    `left` counts queues whose first file points only before `start`; `trimmed` is set when a queue does not begin at 0.
    """

    start: int
    left: int = 0
    trimmed: bool = False

    def add_queue(self, opened: UnitFiles) -> None:
        """Check the first file of one queue; a queue's last file is never deleted, and not counted."""
        queue, files = opened.queue, opened.files
        if not self.start or not files or queue.kind != "simple":
            return
        self.trimmed |= files[0].start_offset > 0
        room = files[0].size // queue.unit_size
        if len(files) < 2 or not room:
            return
        units = opened.units_in(files[0], room - 1, 1)
        if len(units) and units["message_size"][0] > 0 and int(units["physical_offset"][0]) < self.start:
            self.left += 1

    def check(self, reader: StoreReader, report: Report) -> None:
        """Report files that no cleaner has deleted, unless after a crash, which may have stopped it half-way."""
        if not reader.files or not self.start or (reader.store.root / ABORT_FILE).exists():
            return
        report.check("commitlog.head-missing")
        left_index = sum(
            index_file.units > 0 and index_file.file.end_physical_offset < self.start
            for index_file in reader.index.files[:-1]
        )
        is_left_out = self.start < chosen_until(reader.store.root)
        early = None if self.trimmed or is_left_out else _deleted_early(reader)
        signs = [early] if early else []
        if self.left or left_index:
            signs.insert(0, {"problem": "left", "queues": self.left, "index_files": left_index})
        if signs:
            facts = {"log_start": self.start, "queues_left": self.left, "index_files_left": left_index, "signs": signs}
            report.add("commitlog.head-missing", offset=self.start, details=facts)


def _deleted_early(reader: StoreReader) -> dict[str, str | int] | None:
    """The evidence that the log's directory was last changed before its deleted files can have expired, or None.

    A file is written until the next one has its first message. Without broker.conf the shortest retention time counts.
    On a disk that is nearly full the cleaner deletes files that have not expired.
    """
    first = reader.files[0]
    try:
        stored = reader.lookups.store_timestamp_at(first.start_offset + first.header_size)
        changed = first.path.parent.stat().st_mtime_ns // 10**6
        disk = shutil.disk_usage(first.path.parent)
    except (RmqtoolError, OSError):
        return None
    if disk.used > _FULL * disk.total:
        return None
    hours = reader.store.conf.size("fileReservedTime") or 1
    if stored is None or not 0 <= changed - stored < hours * _HOUR:
        return None
    return {"problem": "early", "stored": int(stored), "directory": first.path.parent.name,
            "minutes": int(changed - stored) // 60_000}  # fmt: skip
