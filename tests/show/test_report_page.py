"""The page of a report stays small however large the store is, and its colours can be seen."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.base.numbers import byte_size
from rmqtool.inspect.overview import overview_of
from rmqtool.library.verified import Verified
from rmqtool.report.facts import PIECES, GroupPosition, StoreReport, Timeline, gather
from rmqtool.show.report_page import ReportRedaction, findings_list, life_line, report_page
from rmqtool.show.report_pictures import TOPIC_COLORS, Clock
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.commands.running import ROOT
from tests.findings.made import made
from tests.report.growing_store import HOUR, growing_store
from tests.verify.verifying import verify

MANY = 12_000
MOST = 2 << 20
STYLE = (ROOT / "rmqtool" / "show" / "report.css").read_text(encoding="utf-8")


@pytest.fixture
def report(tmp_path: Path) -> StoreReport:
    """Of a small store."""
    store = growing_store(tmp_path / "store", files=3)
    outcome, overview = verify(store), overview_of(open_store(store))
    timeline = Timeline.of_range(START_TIME, START_TIME + 48 * HOUR, 0, 100_000)
    return gather(START_TIME, timezone.utc, overview, outcome, Verified(outcome, ()).plan, timeline)


@pytest.mark.slow
def test_it_is_small_for_many_queues(report: StoreReport) -> None:
    """12,000 queues of as many topics, a group in each, a finding in each, and 1,000 log files."""
    (queue, offsets), timeline = report.overview.queues[0], report.timeline
    names = [f"a-topic-with-a-long-name-as-they-are-{number:05}" for number in range(MANY)]
    for name in names[:6_000]:
        row = timeline._row(name)
        timeline.by_time[row] = 1000
    behind = made("consumequeue.behind", topic=names[0], queue_id=0)
    findings = tuple(
        replace(behind, message=f"{number} messages without an entry", topic=name) for number, name in enumerate(names)
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
    assert "12000 of 12000 topics" in page
    for left in ("11800 more, which have less to read", "5800 smaller ones", "11500 shorter ones", "11950 more"):
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


@pytest.mark.slow
def test_captions_end_figures(report: StoreReport) -> None:
    """Elsewhere in them they are no valid HTML."""
    page = report_page(report, None)
    figures = re.findall("<figure>.*?</figure>", page)
    assert len(figures) >= 4
    assert all(figure.endswith("</figcaption></figure>") for figure in figures if "<figcaption>" in figure)


@pytest.mark.slow
def test_each_picture_has_its_numbers(report: StoreReport) -> None:
    """In a table right after it."""
    page = report_page(report, None)
    pictures = [piece for piece in page.split("<figure>")[1:] if "aria-label" in piece.split("</figure>")[0]]
    assert len(pictures) >= 4
    for piece in pictures:
        behind = piece.partition("</figure>")[2]
        assert "<table>" in behind, piece[:200]
        assert behind.startswith(("<details>", "<section")), piece[:200]


@pytest.mark.slow
def test_numbers_add_up(report: StoreReport) -> None:
    """The table of the topics along the log has all bytes of the picture."""
    counts = np.arange(16 * PIECES, dtype=np.int64).reshape(16, PIECES)
    timeline = replace(report.timeline, topics={f"t{at}": at for at in range(16)}, by_place=counts, by_time=counts)
    page = report_page(replace(report, timeline=replace(timeline, messages=np.ones(16, np.int64))), None)
    (rows,) = re.findall("Bytes of topics in each.*?<tbody>(.*?)</tbody>", page)
    last = [re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?</td>", rows)[-10:]]
    names = timeline.largest(TOPIC_COLORS)
    sums = [int(counts[timeline.topics[name], -10:].sum()) for name in names]
    assert last[1:] == [*map(byte_size, sums), byte_size(int(counts[:, -10:].sum()) - sum(sums))]


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        ("consumers get the damaged body", "The broker: consumers get the damaged body"),
        ("the broker starts without any topic", "The broker starts without any topic"),
        ("most versions refuse to start", "Most versions refuse to start"),
    ],
)
def test_what_a_broker_does_is_a_sentence(effect: str, told: str) -> None:
    """The broker is named once."""
    assert told in findings_list([replace(made("commitlog.body-crc"), effect=effect)], ReportRedaction(None))


@pytest.mark.slow
@pytest.mark.parametrize("days", [0, 400])
def test_now_is_on_the_picture_of_files_unless_it_is_much_later(days: int, report: StoreReport) -> None:
    """Then the log fills the picture, and the caption says how much later it is."""
    files = [os.stat(file.path) for file in report.overview.snapshot.log.files]
    now = max(each.st_mtime_ns for each in files) // 10**6 + days * 24 * HOUR
    page = report_page(replace(report, now=now), None)
    boxes = re.search(r'<svg [^>]*aria-label="Log files in time".*?</svg>', page)
    assert boxes
    assert ('class="now"' in boxes[0]) == (not days)
    assert (f"Now is {days} days later." in page) == bool(days)


@pytest.mark.slow
def test_heights_have_a_scale(report: StoreReport) -> None:
    """Of growth and disk; what is not verified comes after what to do."""
    counts, bins = np.ones(16, np.int64), np.full((16, report.timeline.bins), 1024)
    places = np.ones((16, PIECES), np.int64)
    timeline = replace(report.timeline, topics={"a": 0}, messages=counts, by_time=bins, by_place=places)
    page = report_page(replace(report, timeline=timeline), None)
    assert '<div class="scale" aria-hidden="true"><span>1.00 KiB</span><span>512 B</span><span>0</span></div>' in page
    titles = re.findall("<h2 id=.*?>(.*?)</h2>", page)
    assert titles.index("Not verified") > titles.index("Findings")
    assert re.findall('<a href="#.*?">(.*?)</a>', page) == titles


def event(name: str, first: int | None, last: int | None, due: int | None = None) -> dict[str, Any]:
    return {"event": name, "timestamp": first, "until_timestamp": last, "due_timestamp": due}


def test_a_life_line() -> None:
    """A lane for each kind of event; a delay waits until it is due; what has not happened yet is not drawn."""
    events = [event("sent", 1000, 1000), event("sent-back", 1100, 1100, 2000), event("passed", 1500, None),
              event("trace-send", 1000, 1000), event("not-passed", None, None)]  # fmt: skip
    drawn = life_line(events, Clock(timezone.utc))
    bars = re.findall('<rect x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="0.7" class="(.*?)"/>', drawn)
    assert bars == [
        *(("0", "0.15", "4", "t0"), ("100", "1.15", "900", "t6"), ("500", "2.15", "4", "t2")),
        *(("100", "3.15", "4", "bad"), ("0", "4.15", "4", "t3")),
    ]
    assert 'viewBox="0 0 1000 5"' in drawn
    assert life_line(events[:1], Clock(timezone.utc)) == ""
    assert life_line([event("sent", -(2**63), -(2**63)), event("stored", 2**63 - 1, None)], Clock(timezone.utc))


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
