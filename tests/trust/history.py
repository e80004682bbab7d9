"""Faults that were found in our own answers: what each would have cost, and the test that finds it now."""

from __future__ import annotations

from typing import NamedTuple

from tests.trust.results import HERE


class Fault(NamedTuple):
    """One of them; the commit that corrected it, empty for one whose commit has no lasting name yet."""

    day: str
    commit: str
    what: str
    cost: str
    test: str


def _read() -> tuple[Fault, ...]:
    lines = (HERE / "faults.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(Fault(*line.split("\t")) for line in lines)


FAULTS = _read()
"""The oldest first."""
