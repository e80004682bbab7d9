"""The trace of a message in the index: the unit of each of its keys, and its position in the hash chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.broker.dispatcher import Dispatched
from rmqtool.broker.index_keys import KEY, TAGS, UNIQUE_KEY
from rmqtool.query.by_place import Message
from rmqtool.store.index_query import IndexUnit
from rmqtool.store.snapshot import Snapshot

State = Literal["ok", "missing", "not-indexed", "no-index", "unknown"]
"""ok: the unit is there. missing: the chain has no such unit. not-indexed: no index file covers the message. no-index:
no index file has a unit. unknown: an index file is damaged."""

_KINDS = {UNIQUE_KEY: "unique-key", KEY: "key", TAGS: "tags"}
_MAX_CHAIN_LENGTH = 100_000  # units that are read; a chain has four in a full file of default size


@dataclass(frozen=True)
class IndexTrace:
    """One key of a message and its unit; `position_in_chain` counts from 1, the newest of the `length` units."""

    key: str
    kind: str
    key_hash: int
    state: State
    unit: IndexUnit | None = None
    position_in_chain: int | None = None
    length: int | None = None

    def as_json(self, relative: Any) -> dict[str, Any]:
        """The object of the machine interface; `relative` shortens a path."""
        unit = self.unit
        return {
            "key": self.key,
            "kind": self.kind,
            "key_hash": self.key_hash,
            "state": self.state,
            "file": None if unit is None else relative(unit.file),
            "number": unit.unit_index if unit else None,
            "slot": unit.slot if unit else None,
            "seconds_since_begin": unit.seconds_since_begin if unit else None,
            "previous": unit.previous if unit else None,
            "place_in_chain": self.position_in_chain,
            "chain_length": self.length,
        }


def index_traces(snapshot: Snapshot, message: Message, dispatched: Dispatched) -> list[IndexTrace]:
    """The traces of all keys that the broker puts for one record, in the order of the puts."""
    texts = [*([message["unique_key"]] if message["unique_key"] else []), *message["keys"]]
    texts += [message["tags"]] if len(dispatched.keys) > len(texts) and message["tags"] else []
    used: set[tuple[str, int]] = set()
    rows = zip(texts, dispatched.keys.key_hashes.tolist(), dispatched.keys.kinds.tolist(), strict=False)
    offset = message["physical_offset"]
    traces = [
        IndexTrace(text, _KINDS[kind], stored_hash, *_find_unit(snapshot, offset, stored_hash, used))
        for text, stored_hash, kind in rows
    ]
    # Only some releases index tags; without --broker-version their unit need not be there.
    return [trace for trace in traces if trace.kind != "tags" or snapshot.version or trace.state == "ok"]


def _find_unit(
    snapshot: Snapshot, offset: int, stored_hash: int, used: set[tuple[str, int]]
) -> tuple[State, IndexUnit | None, int | None, int | None]:
    """State, unit, position and length of the chain; a unit is only found once, equal keys have a unit each."""
    files = [file for file in snapshot.index.files if file.keys]
    if not files:
        return "no-index", None, None, None
    holding = [file for file in files if file.begin_physical_offset <= offset <= file.end_physical_offset]
    for file in holding:
        length, position, unit = 0, None, None
        for length, candidate in enumerate(snapshot.index.chain(file, stored_hash), 1):
            is_it = (candidate.key_hash, candidate.physical_offset) == (stored_hash, offset)
            if is_it and unit is None and (str(candidate.file), candidate.unit_index) not in used:
                unit, position = candidate, length
            if length >= _MAX_CHAIN_LENGTH:
                break
        if unit is not None:
            used.add((str(unit.file), unit.unit_index))
            return "ok", unit, position, length
    state: State = "unknown" if snapshot.index.problems else "missing" if holding else "not-indexed"
    return state, None, None, None
