"""Names of queue files that lie far behind the others: what is between them is told, not gone through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import stores
from tests.verify.verifying import codes_of, verify

FAR = 1 << 62
SIMPLE, BATCH = "consumequeue/orders/0", "batchconsumequeue/bulk-inner/0"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("queue", "file_size"), [(SIMPLE, 600), (BATCH, 460)])
def test_a_file_far_behind_the_others(queue: str, file_size: int, tmp_path: Path) -> None:
    """Its distance is told as a gap, and the units that no file has are counted without being looked at."""
    store = stores.unpack("5.3.3-trimmed", tmp_path)
    *_, before, last = sorted((store / queue).iterdir())
    end, start = int(before.name) + file_size, FAR // file_size * file_size
    last.rename(last.with_name(f"{start:020d}"))
    outcome = verify(store)
    assert "consumequeue.gap" in codes_of(outcome)
    [gap] = [finding for finding in outcome.findings if finding.code == "consumequeue.gap"]
    assert f"begins {start - end} bytes behind" in gap.message
    if queue == SIMPLE:
        unit = file_size // 30
        [hole] = [finding for finding in outcome.findings if finding.code == "consumequeue.hole"]
        assert (hole.queue_offset, hole.count) == (end // unit, (start - end) // unit)
