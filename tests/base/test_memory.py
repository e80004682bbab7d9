"""A memory budget: how many processes fit into it, and how much each of them holds."""

from __future__ import annotations

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.base.limits import MIB, MemoryNeed, holding, processes_within, share_held, sized

NEED = MemoryNeed(least=100, usual=200, further_least=50, further_usual=80)


@pytest.mark.parametrize(
    ("memory", "jobs", "expected"),
    [
        (100, 1, (1, 0.0)),
        (150, 1, (1, 0.5)),
        (200, 1, (1, 1.0)),
        (900, 1, (1, 1.0)),
        (149, 4, (1, 0.49)),
        (150, 4, (2, 0.0)),
        (280, 2, (2, 1.0)),
        (249, 9, (3, 49 / 160)),
    ],
)
def test_processes_come_first(memory: int, jobs: int, expected: tuple[int, float]) -> None:
    """As many as work with the least; what is left lets all of them hold more, up to the usual."""
    assert processes_within(memory * MIB, jobs, NEED) == pytest.approx(expected)


def test_too_little_is_refused() -> None:
    """The error names the least."""
    with pytest.raises(UsageError, match=r"--memory 64.0 MiB is too little: at least 100 MiB"):
        processes_within(64 * MIB, 1, NEED)


def test_jobs_one_after_the_other_need_the_most_of_each() -> None:
    other = MemoryNeed(least=110, usual=150, further_least=40, further_usual=90)
    both = MemoryNeed(least=110, usual=200, further_least=50, further_usual=90)
    assert NEED.with_later(other) == other.with_later(NEED) == both


def test_sizes_follow_the_share() -> None:
    """From the least to the usual in proportion; outside of the block all is as before."""
    for share, size in ((0.0, 10), (0.5, 60), (1.0, 110)):
        with holding(share):
            assert (share_held(), sized(110, 10)) == (share, size)
    assert (share_held(), sized(110, 10)) == (1.0, 110)
