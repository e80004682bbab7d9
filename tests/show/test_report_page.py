"""The page of a report stays small however large the store is, and its colours can be seen."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timezone
from pathlib import Path

import pytest

from rmqtool.findings.catalogue import finding
from rmqtool.inspect.overview import overview_of
from rmqtool.library.verified import plan_for
from rmqtool.report.facts import StoreReport, gather
from rmqtool.report.positions import GroupPosition
from rmqtool.report.timeline import Timeline
from rmqtool.show.report_page import report_page
from rmqtool.show.report_times import Clock
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.commands.running import ROOT
from tests.report.growing_store import HOUR, growing_store
from tests.verify.verifying import verify

MANY = 40_000
MOST = 2 << 20
STYLE = (ROOT / "rmqtool" / "show" / "report.css").read_text(encoding="utf-8")


@pytest.fixture
def report(tmp_path: Path) -> StoreReport:
    """Of a small store."""
    store = growing_store(tmp_path / "store", files=3)
    outcome, overview = verify(store), overview_of(open_store(store))
    timeline = Timeline.of_range(START_TIME, START_TIME + 48 * HOUR, 0, 100_000)
    return gather(START_TIME, timezone.utc, overview, outcome, plan_for(outcome, ()), timeline)


@pytest.mark.budget(3)
def test_it_is_small_for_many_queues(report: StoreReport) -> None:
    """40,000 queues of as many topics, a group in each, a finding in each, and 1,000 log files."""
    (queue, offsets), timeline = report.overview.queues[0], report.timeline
    names = [f"a-topic-with-a-long-name-as-they-are-{number:05}" for number in range(MANY)]
    for name in names[:20_000]:
        row = timeline._row(name)
        timeline.by_time[row] = 1000
    findings = tuple(
        finding("consumequeue.behind", f"{number} messages without a unit", topic=name, queue_id=0)
        for number, name in enumerate(names)
    )
    page = report_page(
        replace(
            report,
            overview=replace(report.overview, queues=tuple((replace(queue, topic=name), offsets) for name in names)),
            positions=[GroupPosition("group", name, 1, 0, 10, START_TIME) for name in names],
            outcome=replace(report.outcome, findings=findings),
        ),
        None,
    )
    assert len(page.encode()) < MOST / 2
    assert "40000 of 40000 topics" in page
    for left in ("39800 more, which have less to read", "19800 smaller ones", "39500 shorter ones", "39950 more"):
        assert left in page


def test_times_say_their_zone() -> None:
    """Those that no calendar has are numbers."""
    clock = Clock(timezone.utc)
    assert clock.time(START_TIME) == "2023-11-14 22:13 +00:00"
    assert clock.time(None) == "-"
    assert clock.time(2**62) == f"{2**62} ms"
    assert [clock.length(each) for each in (1000, 300_000, HOUR, 6 * HOUR, 48 * HOUR)] == [
        *("second", "5 minutes", "hour", "6 hours", "2 days")
    ]


def test_captions_end_figures(report: StoreReport) -> None:
    """Elsewhere in them they are no valid HTML."""
    page = report_page(report, None)
    figures = re.findall("<figure>.*?</figure>", page)
    assert len(figures) >= 4
    assert all(figure.endswith("</figcaption></figure>") for figure in figures if "<figcaption>" in figure)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_pictures_have_contrast(scheme: int) -> None:
    """As WCAG 2 wants it: 4.5 for text, 3 for what pictures tell by colour alone."""
    colours = dict(
        re.findall(r"--([\w-]+): (#[0-9a-f]{6})", STYLE.split("@media screen and (prefers-color-scheme: dark)")[scheme])
    )

    def contrast(name: str, back: str) -> float:
        high, low = sorted((_luminance(colours[name]), _luminance(colours[back])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for name in ("text", "soft", "bad", "warn"):
        assert min(contrast(name, back) for back in ("back", "card")) >= 4.5, name
    for name in ("good", "bad", "unreachable", "torn", "unread", *(f"t{number}" for number in range(9))):
        assert contrast(name, "card") >= 3, name
