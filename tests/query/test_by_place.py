"""Where no message begins, and why."""

from __future__ import annotations

from rmqtool.query.by_place import why_not_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore


def test_the_header_of_a_dledger_entry(golden_store: GoldenStore) -> None:
    """The first record of each file stands after it."""
    snapshot = Snapshot(open_store(golden_store("more/5.3.3-dledger")))
    start = snapshot.log.files[1].start_offset
    for offset, first in ((0, 48), (47, 48), (start, start + 48)):
        said = f"at offset {offset} is the header of a DLedger entry, whose record begins at {first}"
        assert why_not_at(snapshot, offset) == (said, False)
