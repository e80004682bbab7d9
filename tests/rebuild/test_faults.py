"""Calls of a small rebuild, and of its undo, are cut or fail: all is as before, or done and can be taken back.

A sample of the calls; `make faults` takes all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rebuild.faults import JOBS, memory, writer
from tests.transaction.faults import FAULTS, Fault

_SAMPLE = 6


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with memory() as directory:
        yield directory


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", JOBS)
def test_faults(scratch: Path, name: str, fault: Fault) -> None:
    trial = writer(name, scratch)
    places = trial.places(fault)
    for at in random.Random(f"{fault} of {len(places)}").sample(places, min(_SAMPLE, len(places))):
        trial.trial(fault, at)
    assert len(places) >= 2
