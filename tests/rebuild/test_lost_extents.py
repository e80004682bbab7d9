"""What a rebuild counts as lost."""

from __future__ import annotations

import pytest

from rmqtool.rebuild.queue_placement import LostExtents
from rmqtool.scan.block import Damage, Reason


@pytest.mark.parametrize(
    ("reason", "tail", "lossy"),
    [("torn", True, False), ("leftover", True, False), ("physical-offset", True, True), ("lengths", False, True)],
)
def test_a_torn_end_is_no_loss(reason: Reason, tail: bool, lossy: bool) -> None:
    """Nor what stands after it; the records of a last file under a wrong name are whole, and not rebuilt from."""
    lost = LostExtents()
    lost.add(Damage(4096, 300, reason, tail), 1)
    assert lost.is_lossy is lossy
