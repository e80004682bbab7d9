"""A store whose half messages are in RocksDB."""

from __future__ import annotations

from pathlib import Path

from rmqtool.formats.rocksdb_rows import INDEXED_TO
from rmqtool.rules.system_topics import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from tests.changed_rocksdb import half_row, number, write_rows
from tests.pending.waiting_store import WaitingStore

HALVES = 6


class HalfStore(WaitingStore):
    """Half messages of which the second and the fifth are ended, the fourth message but one after the others."""

    def __init__(self) -> None:
        super().__init__()
        named = {"REAL_TOPIC": "payments", "REAL_QID": "0", "PGROUP": "payers"}
        self.halves = [self.message(ROCKSDB_HALF_TOPIC, **named) for _ in range(HALVES - 1)]
        for ended in (1, 4):
            self.message(ROCKSDB_OP_TOPIC, TRANS_OFFSET=str(self.halves[ended]), REAL_TOPIC="payments")
        self.halves.append(self.message(ROCKSDB_HALF_TOPIC, **named))

    def with_rows(self, root: Path, known: int | None) -> Path:
        """The store whose database has rows of the half messages up to one of them, or none yet."""
        rows = dict(half_row(offset, 3) for offset in self.halves[: 0 if known is None else known + 1])
        progress = {INDEXED_TO: number(self.halves[known])} if known is not None else {}
        write_rows(self.build(root) / "rocksdbstore", {"trans": {**rows, **progress}})
        return root
