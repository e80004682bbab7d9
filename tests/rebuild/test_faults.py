"""Calls of a small rebuild, and of its undo, are cut or fail: all is as before, or done and can be taken back.

A sample of the calls; `make faults` takes all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rebuild.faults import Trial, memory, trials
from tests.transaction.faults import FAULTS, Fault

_SAMPLE = 6


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with memory() as directory:
        yield directory


@pytest.fixture(scope="module")
def prepared(scratch: Path) -> dict[str, Trial]:
    return trials(scratch)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["rebuild", "undo"])
def test_faults(prepared: dict[str, Trial], scratch: Path, name: str, fault: Fault) -> None:
    assert prepared[name].run(fault, scratch, _SAMPLE) >= 2
