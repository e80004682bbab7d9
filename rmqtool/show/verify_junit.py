"""A verification as a JUnit report, for continuous integration: one test case for each check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from xml.etree import ElementTree

from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding
from rmqtool.verify.gaps import is_of_verify
from rmqtool.verify.outcome import Outcome

_SUITE = "rmqtool verify"
_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


def junit_report(outcome: Outcome, seconds: float) -> str:
    """The report; a check fails when a finding of it is above information."""
    failed: dict[str, list[Finding]] = {}
    lines: list[str] = []
    for finding in outcome.findings:
        if finding.severity == "info":
            lines.append(f"{finding.code}: {finding.message}")
        else:
            failed.setdefault(finding.code, []).append(finding)
    codes = [code for code in CATALOGUE if code in failed or outcome.report.checked.get(code)]
    skipped = _skipped(outcome, codes)
    incomplete = outcome.is_interrupted
    counts = {"tests": str(len(codes) + len(skipped) + incomplete), "failures": str(len(failed)),
              "errors": str(int(incomplete)), "skipped": str(len(skipped))}  # fmt: skip
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {
        "id": "0", "package": "rmqtool", "name": _SUITE, "hostname": "localhost", "time": f"{seconds:.3f}",
        "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"), **counts,
    })  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("store", str(outcome.root)), ("verdict", outcome.verdict),
                        ("messages", str(outcome.total.totals.messages))):  # fmt: skip
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for code in codes:
        case = _case(suite, code)
        if code in failed:
            shown = failed[code]
            attributes = {"type": shown[0].severity, "message": _clean(CATALOGUE[code].title)}
            ElementTree.SubElement(case, "failure", attributes).text = _clean("\n".join(map(_line, shown)))
    for name, message in skipped.items():
        ElementTree.SubElement(_case(suite, name), "skipped", {"message": _clean(message)})
    if incomplete:
        ElementTree.SubElement(_case(suite, "complete"), "error", {"type": "interrupted", "message": "interrupted"})
    ElementTree.SubElement(suite, "system-out").text = _clean("\n".join((*lines, *outcome.unproven)))
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _skipped(outcome: Outcome, checked: Sequence[str]) -> dict[str, str]:
    """The checks that were skipped, and why: left out by the user, or in need of files that are not read."""
    reasons: dict[str, str] = {}
    for gap in outcome.gaps:
        if gap.why == "interrupted":
            continue  # an error of its own
        hidden = [code for code in CATALOGUE if is_of_verify(code) and gap.hides(code)]
        names = hidden if gap.is_chosen and gap.codes else [gap.what]
        reasons.update((name, gap.text) for name in names if name not in checked and name not in reasons)
    return reasons


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    kind = name.partition(".")[0] if name in CATALOGUE else "verification"
    return ElementTree.SubElement(suite, "testcase", {"name": name, "classname": f"rmqtool.{kind}", "time": "0"})


def _line(finding: Finding) -> str:
    location = " ".join(
        str(field) for field in (finding.file, finding.offset, finding.topic, finding.queue_id) if field is not None
    )
    count = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"{location}: {finding.message}{count}; broker: {finding.effect}"


def _clean(text: str) -> str:
    """Text without the characters that XML forbids: control characters and lone surrogates."""
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode()
