"""The trace of a message in the index that brokers since 5.4.0 may keep in RocksDB: the row of each of its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.formats.rocksdb_rows import INDEX_HOUR
from rmqtool.query.by_key import needs_rocksdb
from rmqtool.query.by_place import Message
from rmqtool.store.rocksdb_index import HeldRows, RocksDbIndex, index_rows
from rmqtool.store.snapshot import Snapshot

RowState = Literal["ok", "missing", "not-indexed"]
"""ok: the row is there. missing: it is not, though the index has come past the message. not-indexed: the index has not
come so far, or begins later."""

_KINDS = {"U": "unique-key", "K": "key", "T": "tags"}


@dataclass(frozen=True)
class RowsTrace:
    """The keys of a message with kind and state, none of them where the database cannot be read: `problem`."""

    keys: tuple[tuple[str, str, RowState], ...]
    indexed_to: int | None = None
    problem: str | None = None

    @property
    def missing(self) -> list[str]:
        """Keys without their row, of a message that has others."""
        found = [key for key, _, state in self.keys if state == "missing"]
        return found if any(state == "ok" for *_, state in self.keys) else []

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "keys": [{"key": key, "kind": kind, "state": state} for key, kind, state in self.keys],
            "indexed_to": self.indexed_to,
            "problem": self.problem,
        }


def rows_trace(snapshot: Snapshot, message: Message) -> RowsTrace | None:
    """The rows of a message; None where the store has no index in RocksDB, or the message no key."""
    rows = tuple(index_rows(message))
    if not rows:
        return None
    index = RocksDbIndex(snapshot.store)
    found = index.held(rows)
    if found is None:
        is_unknown = index.problem and needs_rocksdb(snapshot)
        return RowsTrace((), problem=index.problem) if is_unknown else None
    states = (_state(found, held, message) for held in found.held)
    keys = ((row.text, _KINDS[row.kind], state) for row, state in zip(rows, states, strict=True))
    return RowsTrace(tuple(keys), found.indexed_to)


def _state(found: HeldRows, held: bool, message: Message) -> RowState:  # noqa: FBT001 - of one row
    if held:
        return "ok"
    offset, stored = message["physical_offset"], message["store_timestamp"]
    has_passed = found.indexed_to is not None and offset <= found.indexed_to
    begins_before = found.first_hour is not None and found.first_hour < stored - stored % INDEX_HOUR
    return "missing" if has_passed and (begins_before or any(found.held)) else "not-indexed"
