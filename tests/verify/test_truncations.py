"""The log cut at any place: the torn end is found at the exact offset."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.verify.damages import OFFSETS, overwrite
from tests.verify.small_store import FILE_SIZE, small_log, small_store
from tests.verify.verifying import verify

LAST_START = OFFSETS[-1] // FILE_SIZE * FILE_SIZE
END = small_log().end
SAMPLE = 40


def cut(store: Path, physical_offset: int) -> None:
    """Zero the last file of the log from an offset on, as the pages look that never reached the disk."""
    name = f"commitlog/{LAST_START:020d}"
    overwrite(store, name, physical_offset - LAST_START, bytes(LAST_START + FILE_SIZE - physical_offset))


def expected(physical_offset: int) -> int | None:
    """Where the torn record begins; None for a cut between two records."""
    start = max(offset for offset in OFFSETS if offset <= physical_offset)
    kept = bytes(small_log().files[-1][start - LAST_START : physical_offset - LAST_START])
    return start if kept.strip(b"\0") else None  # of a small size the first bytes are zero: nothing is left then


@pytest.mark.parametrize("physical_offset", sorted(Random(7).sample(range(LAST_START + 1, END), SAMPLE)))
def test_cuts_are_found_at_their_offset(physical_offset: int, tmp_path: Path) -> None:
    """Torn where the last record begins, and the queues then point behind the log's end."""
    store = small_store(tmp_path / "store")
    (store / "abort").touch()
    cut(store, physical_offset)
    outcome = verify(store)
    torn = [finding.offset for finding in outcome.findings if finding.code in ("commitlog.torn", "commitlog.body-crc")]
    assert torn == ([] if expected(physical_offset) is None else [expected(physical_offset)])
    assert "consumequeue.ahead" in {finding.code for finding in outcome.findings}
