"""Names of queue files that lie far behind the others: what is between them is told, not gone through."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.golden import stores
from tests.unchanged import unchanged
from tests.verify.verifying import codes_of, verify

FAR, LAST = 1 << 62, (1 << 63) - 1
SIMPLE, BATCH = "consumequeue/orders/0", "batchconsumequeue/bulk-inner/0"


@pytest.mark.slow
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
    assert f"begins {start - end} bytes past" in gap.message
    if queue == SIMPLE:
        unit = file_size // 30
        [hole] = [finding for finding in outcome.findings if finding.code == "consumequeue.hole"]
        assert (hole.queue_offset, hole.count) == (end // unit, (start - end) // unit)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.3.3-trimmed", "5.3.3-shop"])
@pytest.mark.parametrize("start", [LAST, LAST - 807])
def test_a_log_file_at_the_end_of_all_offsets(name: str, start: int, tmp_path: Path) -> None:
    """Offsets after the last one that a name can tell are in no answer, and units are looked up all the same."""
    store = stores.unpack(name, tmp_path)
    last = max((store / "commitlog").iterdir())
    last.rename(last.with_name(f"{start:020d}"))
    with unchanged(store):
        for options in (("verify", store), ("inspect", store, "--scan"), ("clean", store, "--dry-run")):
            assert rmqtool(*options, "--json").status in (Exit.OK, Exit.FINDINGS, Exit.LOSSY)
        found = rmqtool("inspect", store / "consumequeue", "--json", "--key", "nothing")
    assert found.status in (Exit.OK, Exit.FINDINGS, Exit.LOSSY)
