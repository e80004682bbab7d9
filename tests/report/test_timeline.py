"""Bytes by topic along time and log add up to what a scan counts, however the messages lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.inspect.log_statistics import LogStatistics
from rmqtool.report import facts as timelines
from rmqtool.report.facts import OTHERS, PIECES, Timeline
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LOG, START_TIME, LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.report.growing_store import HOUR, growing_store


def timeline_of(store: Path) -> tuple[Timeline, LogStatistics]:
    """The same log, counted twice."""
    files, statistics, end = list_mapped_files(store / LOG).files, LogStatistics(), 0
    for event in scan_files(files):
        statistics.add(event)
        end = event.physical_offset + event.size if isinstance(event, RecordRun) else end
    first, last = statistics.first_store_timestamp, statistics.last_store_timestamp
    timeline = Timeline.of_range(first, last, files[0].start_offset, end)
    for event in scan_files(files):
        if isinstance(event, RecordRun):
            timeline.add(event)
    return timeline, statistics


@pytest.mark.parametrize("name", stores.samples()[::4])
def test_it_adds_up(name: str, golden_store: GoldenStore) -> None:
    """Messages and bytes of each topic, both ways."""
    timeline, statistics = timeline_of(golden_store(name))
    for topic, totals in statistics.topics.items():
        row = timeline.topics[topic]
        assert timeline.messages[row] == totals.messages
        assert timeline.by_time[row].sum() == timeline.by_place[row].sum() == totals.bytes
    assert timeline.topics.keys() == statistics.topics.keys()


def test_a_message_larger_than_a_piece_fills_all_of_its_pieces(tmp_path: Path) -> None:
    """Nothing that holds bytes looks empty."""
    builder = LogBuilder(file_size=1 << 20)
    builder.add(topic="small", body=b"1")
    builder.add(topic="large", body=bytes(900_000))
    timeline, _ = timeline_of(builder.write(tmp_path))
    pieces = timeline.by_place[timeline.topics["large"]]
    assert (pieces[1:] == timeline.piece)[:-1].all()
    assert pieces[0] + timeline.by_place[timeline.topics["small"]][0] == timeline.piece


def test_bins_are_a_width_that_people_use(tmp_path: Path) -> None:
    """About 27 hours in quarters; times outside go to the ends."""
    timeline, _ = timeline_of(growing_store(tmp_path / "store", files=8))
    assert (timeline.width, timeline.first % timeline.width) == (HOUR // 4, 0)
    assert 100 < timeline.bins < 120
    assert timeline.by_time.any(axis=0).sum() == timeline.bins
    odd = Timeline.of_range(START_TIME, START_TIME + HOUR, 0, 100_000)
    for run in scan_files(list_mapped_files(tmp_path / "store" / LOG).files[-1:]):
        if isinstance(run, RecordRun):
            odd.add(run)
    assert odd.by_time[:, :-1].sum() == 0
    assert odd.by_place[:, -1].sum() > 0


@pytest.mark.parametrize(
    ("span", "width"),
    [(0, 1000), (119_000, 5000), (HOUR, 60_000), (30 * 24 * HOUR, 12 * HOUR), (10**15, 365 * 24 * HOUR)],
)
def test_widths(span: int, width: int) -> None:
    """From a second to a year; the number of bins is bounded, and one second of slack stays."""
    timeline = Timeline.of_range(START_TIME, START_TIME + span, 0, 1)
    assert timeline.width == width
    assert timeline.bins <= 120
    assert timeline.piece == 1


def test_topics_beyond_the_limit_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are none of the largest."""
    monkeypatch.setattr(timelines, "_MAX_TOPICS", 3)
    builder = LogBuilder(file_size=65_536)
    for number in range(40):
        builder.add(topic=f"topic-{number % 10}")
    timeline, statistics = timeline_of(builder.write(tmp_path))
    assert list(timeline.topics) == ["topic-0", "topic-1", "topic-2", OTHERS]
    assert timeline.messages[timeline.topics[OTHERS]] == 28
    assert timeline.largest(8) == ["topic-0", "topic-1", "topic-2"]
    rows = timeline.rows(timeline.by_place, timeline.largest(2))
    assert rows.shape == (3, PIECES)
    assert rows.sum() == sum(totals.bytes for totals in statistics.topics.values())
