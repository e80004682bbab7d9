"""A repair of several transactions, and its undo, cut anywhere: the next one ends it, and undo takes all of it back.

A sample; `make faults` takes all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.rebuild.faults import memory
from tests.repair.whole import Whole
from tests.transaction.faults import FAULTS, Fault, points

_SAMPLE = 3  # stores without power

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with memory() as scratch:
        yield Whole(scratch)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_that_does_not_end(whole: Whole, fault: Fault) -> None:
    for job, calls in whole.calls.items():
        at = random.Random(f"{job} {fault}").choice(points(calls, fault))
        whole.check(whole.run(job, fault, at))


@pytest.mark.parametrize("job", ["repair", "undo"])
def test_power_fails(whole: Whole, job: str) -> None:
    """Also where names come back that an earlier transaction had removed, and not synced."""
    for contents in random.Random(2).sample(list(whole.crashes(job, random.Random(1), 50)), _SAMPLE):
        whole.check(whole.crashed(contents))
