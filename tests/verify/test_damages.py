"""Each damage is found under its code, at its place, and nothing else is told that is above information."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DAMAGES)
def test_damages_are_found(name: str, store: Path) -> None:
    """By one process, and by the code that the catalogue explains."""
    damage = DAMAGES[name]
    damage.apply(store)
    outcome = verify(store)
    found = [finding for finding in outcome.findings if finding.code == damage.code]
    assert found, codes_of(outcome, info=True)
    if damage.exact:
        told = {code for code in codes_of(outcome) if not code.startswith("start.")}  # what a start makes of it
        assert told == {damage.code}
    if damage.offset is not None:
        assert damage.offset in {finding.offset for finding in found}
    assert outcome.verdict in ("dirty", "corrupt")
