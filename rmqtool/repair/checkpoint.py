"""A checkpoint that fits the log, in place of one that is missing or does not fit (`StoreCheckpoint`).

Its times are those of the last record, so that a start after a crash scans little of the log and cuts none of it. Where
queues lack units there is no change: a start derives them from the place that the checkpoint names, or a rebuild does,
which writes the checkpoint itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqtool.base.times import file_time, rfc3339
from rmqtool.formats.checkpoint import FILE_SIZE
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, credible
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT
from rmqtool.transaction import Loss, Transaction

_MISSING, _FUTURE, _OFFSET = "checkpoint.missing", "checkpoint.future", "checkpoint.logics-offset"
_END = "commitlog.end-missing"
_KEYS = "start.keys-lost"
_INDEX_TIME = f"{CHECKPOINT} gets the time of the newest index file, which the start then keeps"
_ELSEWHERE = frozenset({"consumequeue.stray", "consumequeue.empty-file", "consumequeue.shifted"})  # lack no units


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint in place of one with the fields `before`, which is empty where there is none."""

    before: Mapping[str, int]
    fields: Mapping[str, int]
    codes: frozenset[str]
    proof: str | None = None  # of newer messages than the log holds, which goes with it
    what: str = f"{CHECKPOINT} is written with the times of the log's last record"
    size: int = FILE_SIZE

    @property
    def lost(self) -> str | None:
        """The proof, which is recorded."""
        return self.proof and f"the proof of a loss: {self.proof}. rmqtool verify reports it until it is acknowledged"

    @property
    def raises_index_time(self) -> bool:
        """Whether it calls more of the index flushed than the one before."""
        return self.fields["index_message_timestamp"] > self.before.get("index_message_timestamp", 0)

    @property
    def details(self) -> tuple[str, ...]:
        """The fields that change."""
        pairs = ((name, self.before.get(name, 0), value) for name, value in self.fields.items())
        return tuple(f"{name}: {before} becomes {value}" for name, before, value in pairs if before != value)

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change."""
        mtime_ns = None if self.before else file_time(self.fields["physic_message_timestamp"])
        transaction.file(CHECKPOINT, mtime_ns=mtime_ns).write(checkpoint_file(self.fields), 0)
        transaction.put(CHECKPOINT)
        if self.proof:
            transaction.record(Loss(transaction.command, int(time.time() * 1000), proofs=(self.proof,)))


def checkpoint_changes(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[NewCheckpoint]:
    """The new checkpoint, when one of its `codes` is told and the queues are complete."""
    before = snapshot.checkpoint or {}
    proving = credible(before)
    told = codes & {_MISSING, _FUTURE, _OFFSET, *([_END] if _offsets_beyond(snapshot, proving) else [])}
    lacks_units = any(code.startswith("consumequeue.") for code in codes - _ELSEWHERE)
    if lacks_units or snapshot.log_range.last_store_timestamp is None:
        return
    if told:
        fields = _sane(snapshot, before)
        if _KEYS in codes:
            fields["index_message_timestamp"] = _index_end(snapshot)
        yield NewCheckpoint(before, fields, told | (codes & {_KEYS}), _proof(snapshot, proving))
    elif _KEYS in codes:
        fields = {**before, "index_message_timestamp": _index_end(snapshot)}
        yield NewCheckpoint(before, fields, frozenset({_KEYS}), what=_INDEX_TIME)


def _proof(snapshot: Snapshot, before: Mapping[str, int]) -> str | None:
    """After a clean stop a checkpoint that is newer than the log proves that the log has lost its end.

    A time that is still to come is that of no message.
    """
    if (snapshot.store.root / ABORT_FILE).exists():
        return None
    newest = max((before.get(name, 0) for name in CHECKPOINT_TIMES), default=0)
    if newest > time.time() * 1000:
        return None
    if newest > (snapshot.log_range.last_store_timestamp or 0):
        return f"{CHECKPOINT} knew a message of {rfc3339(newest) or newest}"
    beyond = [f"{name} {before[name]}" for name in _offsets_beyond(snapshot, before)]
    return f"{CHECKPOINT} had {' and '.join(beyond)}" if beyond else None


def _offsets_beyond(snapshot: Snapshot, before: Mapping[str, int]) -> list[str]:
    """The offsets that lead past the end of the log: where it ended once, and where its last record began."""
    ends = {"confirm_physical_offset": snapshot.log_range.max_offset}
    ends["logics_physical_offset"] = ends["confirm_physical_offset"] - 1
    return [name for name, end in ends.items() if before.get(name, 0) > max(end, 0)]


def _index_end(snapshot: Snapshot) -> int:
    """The store timestamp of the last message in the index, epoch ms."""
    return max((file.end_timestamp for file in snapshot.index_files if file.keys), default=0)


def _sane(snapshot: Snapshot, before: Mapping[str, int]) -> dict[str, int]:
    """The fields: those before where they fit the log, else its own."""
    log, fields = snapshot.log_range, dict(before)
    last = log.last_store_timestamp or 0
    index_end = _index_end(snapshot)
    for name in CHECKPOINT_TIMES:
        is_index = name == "index_message_timestamp"
        if not (0 if is_index else 1) <= fields.get(name, -1) <= last:
            fields[name] = min(index_end, last) if is_index else last
    for name in ("master_flushed_offset", "confirm_physical_offset"):
        fields[name] = min(max(fields.get(name, 0), 0), log.max_offset)
    version = snapshot.version
    if fields.get("logics_physical_offset", 0) or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
        fields["logics_physical_offset"] = log.last_record_offset or 0
    return fields
