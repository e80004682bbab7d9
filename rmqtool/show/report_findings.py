"""The findings of a report, those of one code together, with the first of them open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from rmqtool.findings.finding import Finding, counted
from rmqtool.show.html import Html, details, element, joined
from rmqtool.show.report_redaction import ReportRedaction
from rmqtool.show.times import sentence
from rmqtool.show.verify_text import location_of

_MAX_SHOWN = 3
_MAX_OF_A_CODE = 50
_MAX_CODES = 60


def findings_list(findings: Sequence[Finding], hidden: ReportRedaction) -> Html:
    """All above information, errors first."""
    told = sorted((each for each in findings if each.severity != "info"), key=attrgetter("severity"))
    if not told:
        return element("p", "None.")
    groups = ([*same] for _, same in groupby(told, key=attrgetter("severity", "code")))
    shown = joined(_of_code(same, hidden) for same in islice(groups, _MAX_CODES))
    left = sum(1 for _ in groups)
    return joined((shown, element("p", f"and findings of {counted(left, 'further code')}"))) if left else shown


def _of_code(findings: Sequence[Finding], hidden: ReportRedaction) -> Html:
    first, total = findings[0], sum(finding.count for finding in findings)
    head = element("h3", element("span", first.severity, class_=first.severity), " ", element("code", first.code),
                   f", {total} times" if total > 1 else "")  # fmt: skip
    effects = list(dict.fromkeys(sentence(hidden.text(finding.effect)) for finding in findings))
    items = list(_items(findings[:_MAX_OF_A_CODE], hidden))
    more = f"{len(findings) - _MAX_SHOWN} more" if len(findings) > _MAX_SHOWN else ""
    left = len(findings) - len(items)
    rest = [element("p", f"and {left} more")] if left > 0 else []
    return joined((
        head,
        *(element("p", f"The broker: {effect}", class_="soft") for effect in effects[:_MAX_SHOWN]),
        element("ul", *items[:_MAX_SHOWN]),
        details(more, element("ul", *items[_MAX_SHOWN:]), *rest) if more else "",
    ))  # fmt: skip


def _items(findings: Sequence[Finding], hidden: ReportRedaction) -> Iterator[Html]:
    for finding in findings:
        where = location_of(finding)
        place = [element("span", where, class_="where"), ": "] if where else []
        yield element("li", *place, sentence(hidden.finding(finding)))
