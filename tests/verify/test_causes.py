"""Each fault of the catalogue is caused, and told under its code; its healthy twin is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.broker_conf import BrokerConf
from rmqtool.catalogue import CATALOGUE
from rmqtool.store import open_store
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.verification import Request, Verification
from rmqtool.versions import parse_version
from tests.unchanged import unchanged
from tests.verify.circumstances import Circumstance, circumstances
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store

CIRCUMSTANCES = list(circumstances())
CAUSED = {*(damage.code for damage in DAMAGES.values()), *(each.code for each in CIRCUMSTANCES)}
FAULTS = [f"F{number:02}" for number in range(1, 60)]
ELSEWHERE = {
    "store.unreadable": "inspect shows the rest; verify ends with the error",
    "store.version-ambiguous": "clean: whether another release would delete other files",
}
"""Codes of these parts that another command tells."""


def told(store: Path, each: Circumstance) -> Outcome:
    """What a verification tells under the circumstance."""
    conf = BrokerConf(dict(each.conf))
    version = parse_version(each.version) if each.version else None
    with each.while_verifying(store), unchanged(store):
        verification = Verification(open_store(store, conf), Request(version=version))
        verification.run(lambda size: None)
        return outcome_of(verification)


@pytest.mark.parametrize("each", CIRCUMSTANCES, ids=lambda each: each.code)
def test_what_is_caused_is_told(each: Circumstance, tmp_path: Path) -> None:
    """The store as made tells nothing under the code when it is the small store; as changed, it does."""
    if each.build is small_store and each.code != "commitlog.magic-code-v2":
        twin = each._replace(conf={}, while_verifying=Circumstance("").while_verifying)
        codes = {finding.code for finding in told(small_store(tmp_path / "twin"), twin).findings}
        assert each.code not in codes
    store = each.build(tmp_path / "store")
    each.apply(store)
    found = [finding for finding in told(store, each).findings if finding.code == each.code]
    assert found
    assert all(finding.fault == CATALOGUE[each.code].fault for finding in found)
    assert not any((finding.remedy or "").startswith("rmqtool verify") for finding in found)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caused(fault: str) -> None:
    """By a damage or a circumstance, and told by verify itself."""
    assert {code for code in CAUSED if CATALOGUE[code].fault == fault}


def test_each_code_is_caused() -> None:
    """Of all parts but those that only other commands tell."""
    parts = ("start.", "store.", "commitlog.", "consumequeue.", "index.", "checkpoint.", "timer.", "config.")
    of_rebuild = {"commitlog.skipped", "commitlog.neutralised", "commitlog.not-neutralised"}
    known = {code for code in CATALOGUE if code.startswith(parts)} - of_rebuild
    assert known - CAUSED == ELSEWHERE.keys()
