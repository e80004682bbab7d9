"""What becomes of findings: which are wanted, how many are counted, in which order they stand, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Entry, Finding, Remedy, Severity
from rmqtool.findings.report import Report, Selection, Verdict, to_be_treated, verdict_of
from tests.findings.made import made

TORN, BEHIND = "commitlog.torn", "consumequeue.behind"  # traces of an unclean stop, warnings
CRC, GAP = "commitlog.body-crc", "commitlog.gap"
LOSS = "store.recorded-loss"  # about what is around the messages


def of(code: str, severity: Severity | None = None, count: int = 1, topic: str | None = None) -> Finding:
    """A finding that stands for some."""
    found = made(code, topic=topic) if severity is None else made(code, severity=severity, topic=topic)
    return replace(found, count=count)


VERDICTS: list[tuple[list[tuple[str, Severity | None]], Verdict]] = [
    ([], "clean"),
    ([(TORN, "info"), (CRC, "info")], "clean"),
    ([("store.unreadable", "error"), ("commitlog.unreadable", "error")], "clean"),
    ([(LOSS, "warning")], "clean"),
    ([(TORN, None)], "dirty"),
    ([(TORN, None), (BEHIND, None), (LOSS, None)], "dirty"),
    ([(TORN, "error")], "corrupt"),
    ([(CRC, None)], "corrupt"),
    ([(CRC, "warning")], "corrupt"),
    ([(TORN, None), (CRC, "warning")], "corrupt"),
    ([(TORN, None), (BEHIND, "error")], "corrupt"),
]


@pytest.mark.parametrize(("found", "verdict"), VERDICTS)
def test_verdict(found: list[tuple[str, Severity | None]], verdict: Verdict) -> None:
    """By what findings are about, whether a start removes them, and what else is known."""
    findings = [of(code, severity) for code, severity in found]
    assert verdict_of(findings, is_proven=True) == verdict
    assert verdict_of(findings, is_proven=False) == ("unproven" if verdict == "clean" else verdict)
    assert verdict_of(findings, is_proven=True, in_doubt=True) == ("unproven" if verdict == "dirty" else verdict)
    assert verdict_of(findings, is_proven=True, is_lost=True) == "corrupt"


@pytest.mark.parametrize(
    ("only", "skip", "code", "is_wanted"),
    [
        ((), (), CRC, True),
        (("commitlog",), (), CRC, True),
        (("index", "commitlog.body"), (), CRC, True),
        (("index",), (), CRC, False),
        ((), ("commitlog",), CRC, False),
        ((), ("index",), CRC, True),
        (("commitlog",), ("commitlog.body-crc",), CRC, False),
        (("commitlog",), ("commitlog.body-crc",), GAP, True),
    ],
)
def test_wanted_codes(only: tuple[str, ...], skip: tuple[str, ...], code: str, is_wanted: bool) -> None:
    assert Selection(only, skip).wants(code) == is_wanted


def test_wanted_topics() -> None:
    """A finding that names no topic is of all."""
    some = Selection(topics={"orders"})
    assert [some.wants_finding(CRC, topic) for topic in (None, "orders", "other")] == [True, True, False]
    assert Selection().wants_finding(CRC, "other")
    assert not Selection(("index",), topics={"orders"}).wants_finding(CRC, "orders")


def test_whether_some_code_is_wanted() -> None:
    """One of a group is enough, and others than of the group do not count."""
    one = Selection(("commitlog.body-crc",))
    assert one.wants_any("commitlog.")
    assert not one.wants_any("index.")
    assert not Selection(skip=("commitlog",)).wants_any("commitlog.")


def test_what_was_checked() -> None:
    report = Report(Selection(("commitlog",)))
    report.check(CRC)
    report.check(CRC, 3)
    report.check("index.header", 3)
    assert report.checked == {CRC: 4}
    report.checked["index.header"] = 0
    report.check("index.header")
    assert report.checked["index.header"] == 1


@pytest.fixture
def report() -> Report:
    """Two examples of each code."""
    return Report(max_examples=2)


def shown(report: Report) -> list[tuple[str, int]]:
    return [(each.code, each.count) for each in report.findings()]


def test_the_last_example_stands_for_the_others(report: Report) -> None:
    """All are counted, whatever each of them stands for."""
    report.add_findings([of(CRC), of(CRC, count=3), of(CRC, count=5), of(GAP, count=2)])
    report.count(CRC, 7)
    assert report.totals() == {CRC: 16, GAP: 2}
    assert sorted(shown(report)) == [(CRC, 1), (CRC, 15), (GAP, 2)]


def test_examples_are_few(report: Report) -> None:
    assert report.wants_example(CRC)
    report.add_finding(of(CRC))
    assert report.wants_example(CRC)
    report.add_finding(of(CRC))
    assert not report.wants_example(CRC)
    assert report.wants_example(GAP)


def test_made_only_where_it_is_shown(report: Report) -> None:
    """Others are counted, those that are not wanted, too: other checks ask for them."""
    report.selection = Selection(skip=("index",))
    with patch.object(Entry, "sentence", lambda *_: "a sentence"):
        for _ in range(4):
            report.add(CRC, count=2)
        report.add(CRC, count=5, severity="info")
        report.add("index.header", count=3)
        report.add("index.header")
    assert report.totals() == {CRC: 13}
    assert shown(report) == [(CRC, 2), (CRC, 11)]
    assert report.all_totals() == {CRC: 13, "index.header": 4}
    assert report.serious_totals() == {CRC: 8, "index.header": 4}


def test_nothing_is_no_finding(report: Report) -> None:
    report.count(CRC, 0)
    assert report.findings() == []
    report.selection = Selection(("index",))
    report.count(CRC, 0)
    assert report.all_totals() == {}


def test_not_wanted_and_yet_told(report: Report) -> None:
    """A file that cannot be read is told whatever is selected, and every one of them."""
    report.selection = Selection(("index",))
    report.add_finding(of(CRC, count=2))
    for _ in range(3):
        report.add_always(of("store.unreadable", count=2))
    assert shown(report) == [("store.unreadable", 2)] * 3
    assert report.all_totals() == {CRC: 2, "store.unreadable": 6}


def test_no_advice_to_verify(report: Report) -> None:
    """Whoever reads a report of `verify` has just done that."""
    verify, repair = (Remedy(f"rmqtool {command} store") for command in ("verify", "repair"))
    report.add_finding(replace(of(CRC), next_command=verify))
    report.add_finding(replace(of(GAP), next_command=repair))
    assert {each.code: each.next_command for each in report.findings()} == {CRC: None, GAP: repair}


def test_parts_together(report: Report) -> None:
    """Counts are added, and examples of the first part come first, up to their number."""
    report.selection = Selection(skip=("index",))
    other = Report(report.selection, max_examples=2)
    for each, count in ((report, 1), (other, 4)):
        each.check(CRC, count)
        each.doubt("a loss", f"the {count}th")
        with patch.object(Entry, "sentence", lambda *_: "a sentence"):
            each.add("index.header", count=count)
            each.add(CRC, count=count, severity="info")
        each.add_finding(of(GAP, count=count))
    other.add_finding(of(GAP, count=9))
    report.merge(other)
    assert report.checked == {CRC: 5}
    assert report.doubts == {"a loss": "the 4th"}
    assert report.all_totals() == {"index.header": 5, CRC: 5, GAP: 14}
    assert report.serious_totals() == {"index.header": 5, CRC: 0, GAP: 14}
    assert sorted(shown(report)) == [(CRC, 1), (CRC, 4), (GAP, 1), (GAP, 13)]


def test_the_worst_first(report: Report) -> None:
    """By severity, then as the catalogue has them."""
    codes = [code for code in CATALOGUE if code.startswith("commitlog.")][:3]
    for code, severity in zip((*codes, *reversed(codes)), ("info", "warning", "error") * 2, strict=True):
        report.add_finding(of(code, severity))  # type: ignore[arg-type]
    order = [(each.severity, codes.index(each.code)) for each in report.findings()]
    assert order == [("error", 0), ("error", 2), ("warning", 1), ("warning", 1), ("info", 0), ("info", 2)]


def test_what_a_repair_treats() -> None:
    """What is in the way of a queue that is missing, though it is only information."""
    stray, missing, note = of("consumequeue.stray", "info"), of("consumequeue.missing-queue", "error"), of(CRC, "info")
    assert to_be_treated([stray, note]) == ()
    assert to_be_treated([stray, note, missing]) == (stray, missing)
    assert to_be_treated(iter([of(GAP, "warning"), stray])) == (of(GAP, "warning"),)
