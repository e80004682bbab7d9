"""Where a message stands in the index: a unit for each of its keys, and the chain that leads to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.broker.dispatcher import Dispatched
from rmqtool.broker.index_keys import KEY, TAGS, UNIQUE_KEY
from rmqtool.query.by_place import Message
from rmqtool.store.index_query import IndexUnit
from rmqtool.store.snapshot import Snapshot

State = Literal["ok", "missing", "not-indexed", "no-index", "unknown"]
"""A unit is there; is not where its key leads; the index ends before the message or begins behind it; there is none;
or a file is damaged, so that it cannot be told."""

_KINDS = {UNIQUE_KEY: "unique-key", KEY: "key", TAGS: "tags"}
_MOST_OF_CHAIN = 100_000  # units that are looked at; a chain has four in a full file of default size


@dataclass(frozen=True)
class IndexPlace:
    """One key of a message: its unit, which is the `place` th of the `length` units of its chain, newest first."""

    key: str
    kind: str
    key_hash: int
    state: State
    unit: IndexUnit | None = None
    place: int | None = None
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
            "number": unit.number if unit else None,
            "slot": unit.slot if unit else None,
            "seconds_since_begin": unit.seconds_since_begin if unit else None,
            "previous": unit.previous if unit else None,
            "place_in_chain": self.place,
            "chain_length": self.length,
        }


def index_places(snapshot: Snapshot, message: Message, found: Dispatched) -> list[IndexPlace]:
    """The places of all keys that the broker puts for one record, in the order of the puts."""
    texts = [*([message["unique_key"]] if message["unique_key"] else []), *message["keys"]]
    texts += [message["tags"]] if len(found.keys) > len(texts) and message["tags"] else []
    used: set[tuple[str, int]] = set()
    rows = zip(texts, found.keys.key_hashes.tolist(), found.keys.kinds.tolist(), strict=False)
    places = [_place(snapshot, message, text, stored_hash, _KINDS[kind], used) for text, stored_hash, kind in rows]
    # Only some releases index tags; where nobody has told which one counts, their unit need not be there.
    return [place for place in places if place.kind != "tags" or snapshot.version or place.state == "ok"]


def _place(
    snapshot: Snapshot, message: Message, text: str, stored_hash: int, kind: str, used: set[tuple[str, int]]
) -> IndexPlace:
    offset = message["physical_offset"]
    files = [file for file in snapshot.index.files if file.keys]
    if not files:
        return IndexPlace(text, kind, stored_hash, "no-index")
    holding = [file for file in files if file.begin_physical_offset <= offset <= file.end_physical_offset]
    for file in holding:
        length, place, unit = 0, None, None
        for length, candidate in enumerate(snapshot.index.chain(file, stored_hash), 1):
            is_it = (candidate.key_hash, candidate.physical_offset) == (stored_hash, offset)
            if is_it and unit is None and (str(candidate.file), candidate.number) not in used:
                unit, place = candidate, length
            if length >= _MOST_OF_CHAIN:
                break
        if unit is not None:
            used.add((str(unit.file), unit.number))
            return IndexPlace(text, kind, stored_hash, "ok", unit, place, length)
    if snapshot.index.problems:
        return IndexPlace(text, kind, stored_hash, "unknown")
    return IndexPlace(text, kind, stored_hash, "missing" if holding else "not-indexed")
