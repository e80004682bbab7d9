"""Damaged or lost config files are put back, and what was readable stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.repair.config_left import unhealed_config
from tests.golden import stores
from tests.repair.config_store import commit, contents, findings_of, planned, still_found, undo
from tests.unchanged import snapshot
from tests.verify.config_losses import LOSSES

RELEASES = ("4.4.0", "4.9.7", "5.3.3", "5.5.0")
LEFT = {
    *("topics, before .bak", "retry topic, perm", "half topic, perm"),
    *("offsets", "offsets, another table", "offsets, emptied", "offsets, no table"),
    *("offsets, 0", "offsets, -10", "offsets, below .bak", "offsets, a day old"),
}
"""Losses of which something is left that the store does not show, or that people decide."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_said_to_heal_is_healed(release: str, name: str, tmp_path: Path) -> None:
    """Each loss, repaired: its finding is gone or has a reason why not, a second run plans nothing, undo undoes."""
    loss = LOSSES[name]
    if loss.only and not release.startswith(tuple(loss.only.split())):
        pytest.skip("not of this release")
    store = stores.unpack(f"{release}-shop", tmp_path)
    loss.apply(store)
    before, findings = snapshot(store), findings_of(store, release)
    changes = planned(store, findings, release, offsets=True)
    commit(store, changes)
    after = findings_of(store, release)
    assert still_found(changes, after) == []
    left = [each for each, _ in unhealed_config(findings, changes, offsets=True)]
    worse = [each for each in after if each.severity != "info" and each.code.startswith(("config.", "start."))]
    assert bool(worse) == (name in LEFT or "config/" in name), worse
    assert bool(left) == bool(worse)
    if name != "offsets, no table":  # whose files are gone: then there are none
        assert planned(store, after, release, offsets=True) == []
    undo(store)
    assert contents(store) == {path: entry.content for path, entry in before.items()}
