"""Totals of the parts of a log are those of the log."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.findings.report import Report
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.verify.bad_extents import Extents
from rmqtool.verify.record_checks import RecordChecks, RecordTotals
from tests.building import LogBuilder
from tests.sampling import examples


def totals_of(frames: RecordRun) -> RecordTotals:
    """The totals of one run."""
    checks = RecordChecks(Report(), Extents(), None)
    checks.totals.messages = len(frames)
    checks._check_times(frames)
    return checks.totals


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a log is written again and again."""
    return tmp_path_factory.mktemp("log")


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(times=st.lists(st.integers(1, 9), min_size=1, max_size=12), cuts=st.sets(st.integers(1, 11)))
def test_times(directory: Path, times: list[int], cuts: set[int]) -> None:
    """The largest step back is found wherever a log is cut, with its place."""
    log = LogBuilder(1 << 14).add_all({"store_timestamp": time} for time in times)
    [frames] = [event for event in scan_files(list_mapped_files(log.write(directory) / "commitlog").files)
                if isinstance(event, RecordRun)]  # fmt: skip
    borders = [0, *sorted(cut for cut in cuts if cut < len(times)), len(times)]
    joined = RecordTotals()
    for low, high in pairwise(borders):
        joined.extend(totals_of(frames[low:high]))
    whole = totals_of(frames)
    assert (joined.largest_step, joined.earliest, joined.latest, joined.last_timestamp) == (
        whole.largest_step, whole.earliest, whole.latest, whole.last_timestamp,
    )  # fmt: skip
    assert (joined.step_offset, joined.earliest_offset, joined.latest_offset) == (
        whole.step_offset, whole.earliest_offset, whole.latest_offset,
    )  # fmt: skip
