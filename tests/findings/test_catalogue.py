"""The catalogue: complete, readable, and the one source of every finding and of docs/findings.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.findings.catalogue import CATALOGUE, Entry, close_matches, lookup
from rmqtool.scan.block import REASON_MEANINGS
from tests.findings.findings_page import PAGE, page
from tests.findings.made import made
from tests.rooms import nodes_of

SOURCES = Path(__file__).parents[2] / "rmqtool"
FAULTS = [f"F{number:02}" for number in range(1, 60)]
PARTS = {
    "start",
    "store",
    "commitlog",
    "compaction",
    "consumequeue",
    "index",
    "checkpoint",
    "tiered",
    "timer",
    "config",
    "upgrade",
    "clean",
    "rebuild",
    "export",
}


@pytest.fixture(params=CATALOGUE.values(), ids=lambda entry: entry.code)
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


def test_every_fault_has_a_code() -> None:
    """F01 to F59, and no number that does not exist."""
    assert sorted({entry.fault for entry in CATALOGUE.values() if entry.fault}) == FAULTS


def test_codes_are_stable_names(entry: Entry) -> None:
    """Lower case, dotted, the part first; the table finds each under its own code."""
    assert re.fullmatch(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*", entry.code)
    assert entry.code.partition(".")[0] in PARTS
    assert CATALOGUE[entry.code] is entry


def test_pages_are_complete(entry: Entry) -> None:
    """Every section says something, in sentences; no release is named twice."""
    for text in (entry.what, entry.how, entry.repair, *(effect for _, effect in entry.all_versions)):
        assert text.endswith("."), text
    for text in (entry.title, entry.effect):
        assert text
        assert not text.endswith(".")
    assert entry.all_versions
    assert len({versions for versions, _ in entry.all_versions}) == len(entry.all_versions)
    assert "  " not in "".join((entry.what, entry.how, entry.effect, entry.repair))


def test_remedies_are_commands(entry: Entry) -> None:
    """A remedy can be pasted into a shell, whatever the names in it."""
    if entry.remedy:
        place: dict[str, Any] = {"offset": 7, "topic": "a b", "queue_id": 3}
        assert made(entry.code, store="/a store", **place).remedy == entry.remedy.format(
            store="'/a store'", offset=7, topic="'a b'", queue_id=3
        )
        assert made(entry.code).remedy is None
    else:
        assert made(entry.code, store="/store").remedy is None


def test_a_finding_is_filled_from_its_page() -> None:
    """What the caller gives wins, the rest is the page's."""
    found = made("commitlog.body-crc", "wrong", offset=5, file="commitlog/0")
    page_of = CATALOGUE["commitlog.body-crc"]
    assert (found.severity, found.fault, found.effect) == (page_of.severity, "F16", page_of.effect)
    assert (found.message, found.offset, found.file) == ("wrong", 5, "commitlog/0")
    other = made("commitlog.body-crc", "wrong", severity="info", effect="none", remedy="run")
    assert (other.severity, other.effect, other.remedy) == ("info", "none", "run")


@pytest.mark.slow
def test_no_finding_has_another_source() -> None:
    """`Finding` is made by the catalogue alone, and codes that the sources name are in it."""
    makers, codes = set(), set()
    for path in SOURCES.rglob("*.py"):
        for call in calls_of(path):
            if name_of(call) == "Finding":
                makers.add(str(path.relative_to(SOURCES)))
            if name_of(call) == "finding" and call.args and isinstance(call.args[0], ast.Constant):
                codes.add(call.args[0].value)
    assert makers == {"findings/catalogue.py"}
    assert codes - CATALOGUE.keys() == set()
    assert "commitlog.gap" in codes


@pytest.mark.slow
def test_what_is_not_reported_says_so() -> None:
    """Each code is reported somewhere, or its page says what is not detected."""
    nodes = [
        node
        for path in SOURCES.rglob("*.py")
        if path.parent.name != "findings"
        for node in nodes_of(path.read_text(encoding="utf-8"))
    ]
    texts = {*map(text_of, nodes)}
    texts |= {f"commitlog.{reason}" for reason in REASON_MEANINGS}
    begun = [text_of(node.values[0]) for node in nodes if isinstance(node, ast.JoinedStr)]
    beginnings = tuple(text for text in begun if re.fullmatch(r"(clean|rebuild|export)\.[a-z-]*", text))
    silent = [code for code in CATALOGUE if code not in texts and not code.startswith(beginnings)]
    assert [code for code in silent if not CATALOGUE[code].not_detected] == []


def text_of(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls_of(path: Path) -> Iterator[ast.Call]:
    return (node for node in nodes_of(path.read_text(encoding="utf-8")) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str | None:
    return call.func.id if isinstance(call.func, ast.Name) else None


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("commitlog.gap", ["commitlog.gap"]),
        ("CommitLog.Gap", ["commitlog.gap"]),
        ("f3", ["commitlog.empty-file"]),
        ("F16", ["commitlog.body-crc", "commitlog.property-crc"]),
        (
            "timer",
            [
                *("timer.wheel-size", "timer.log", "timer.unit", "timer.ahead", "timer.too-large", "timer.chain"),
                *("timer.read-time", "timer.lost", "timer.again", "timer.aged", "timer.row", "timer.row-missing"),
            ],
        ),
        ("F60", []),
        ("F0", []),
        ("", []),
        ("no-such", []),
    ],
)
def test_lookup(text: str, codes: list[str]) -> None:
    """By code in any case, by the fault's number, by the beginning."""
    assert [entry.code for entry in lookup(text)] == codes


def test_a_code_that_begins_others_is_found_alone() -> None:
    """commitlog.magic-code is the beginning of commitlog.magic-code-v2."""
    assert [entry.code for entry in lookup("commitlog.magic-code")] == ["commitlog.magic-code"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("commitlog.body-crx", "commitlog.body-crc"),
        ("bodycrc", "commitlog.body-crc"),
        ("unclean", "store.unclean-stop"),
        ("COMMITLOG.GAPS", "commitlog.gap"),
    ],
)
def test_close_matches(text: str, code: str) -> None:
    """A slip of the finger still leads there."""
    assert code in close_matches(text)


def test_docs_are_the_table() -> None:
    """`make pages` writes the page again."""
    assert PAGE.read_text(encoding="utf-8") == page()
