"""Sentences of findings are filled from their facts, by the template of their page."""

from __future__ import annotations

import ast
from string import Formatter

import pytest

from rmqtool.findings.catalogue import CATALOGUE, finding
from rmqtool.findings.finding import Says, filled
from tests.rooms import ROOT, modules_under, nodes_of, room_of

TEMPLATES = [
    (code, template)
    for code, page in CATALOGUE.items()
    for says in (page.says, page.gist or "", *page.parts.values())
    for template in ([says] if isinstance(says, str) else says.values())
]


@pytest.mark.parametrize(
    ("template", "facts", "sentence"),
    [
        ("{n:message}", {"n": 1}, "1 message"),
        ("{n:message} lost", {"n": 0}, "0 messages lost"),
        ("{n:used hash slot}", {"n": 2}, "2 used hash slots"),
        ("{n:unit stands|units stand} there", {"n": 1}, "1 unit stands there"),
        ("{n:unit stands|units stand} there", {"n": 2}, "2 units stand there"),
        ("here{n:+unit}", {"n": 1}, "here"),
        ("here{n:+unit}", {"n": 3}, "here (3 units)"),
        ("here[ (and {n:more unit})]", {"n": 0}, "here"),
        ("here[ (and {n:more unit})]", {"n": 1}, "here (and 1 more unit)"),
        ("at [{n}] or so[, {name}]", {"n": 0, "name": None}, "at 0 or so"),
        ("pip install 'rmqtool[rocksdb]'", {}, "pip install 'rmqtool[rocksdb]'"),
        ("{names:topic}: {names!n}", {"names": list("abcdef")}, "6 topics: a, b, c, d and 2 more"),
        ("{reasons!l}", {"reasons": {"zeroed": 2, "torn": 1}}, "2 zeroed, 1 torn"),
        ("{gone!v} {text!v} {n!v}", {"gone": None, "text": "a\x1b", "n": 3}, "not there 'a\\\\x1b' 3"),
        ("at {t!t}", {"t": 1_700_000_000_000}, "at 2023-11-14T22:13:20.000Z"),
        ("at {t!t}", {"t": 1 << 62}, f"at {1 << 62}"),
        ("{names!l}", {"names": ["a", "b"]}, "a, b"),
        ("{crc:#010x} {used:.0%} {name!r}", {"crc": 255, "used": 0.5, "name": "a"}, "0x000000ff 50% 'a'"),
    ],
)
def test_a_template_is_filled(template: str, facts: dict[str, object], sentence: str) -> None:
    assert filled(template, facts) == sentence


def test_a_fact_that_is_not_given_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("{n:message}", {})


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"why": "late"}, "because it is late"),
        ({"why": ["early", "late"], "n": 2}, "because it is 2 hours early and late"),
        ({"why": [{"problem": "early", "n": 1}, {"problem": "late"}]}, "because it is 1 hour early; late"),
    ],
)
def test_parts_say_what_a_fact_means(facts: dict[str, object], sentence: str) -> None:
    """A word, words, or facts of their own."""
    parts = {"why": {"early": "{n:hour} early", "late": "late"}}
    assert filled("because it is {why}", facts, parts) == sentence


def test_the_page_makes_the_sentence() -> None:
    """By the fact `problem` where it has several; its place counts as well."""
    details = {"problem": "size", "found": 5, "expected": 6}
    assert finding("consumequeue.wrong-record", details=details).message == "size 5, the record has 6"
    assert finding("commitlog.no-first-file", offset=7).message == "begins at 7: older files were deleted"
    with pytest.raises(KeyError):
        finding("commitlog.missing")


@pytest.mark.parametrize(("code", "template"), TEMPLATES)
def test_each_template_can_be_read(code: str, template: str) -> None:
    fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    assert all(field.isidentifier() for field in fields), code


def test_a_shorter_sentence_leaves_out_the_evidence() -> None:
    """Where a page has one."""
    short = {code: page.gist for code, page in CATALOGUE.items() if page.gist}
    assert short.keys() == {"commitlog.missing", "commitlog.end-missing", "commitlog.head-missing"}
    found = finding("commitlog.head-missing", details={"log_start": 7, "signs": []})
    assert CATALOGUE[found.code].gist_of(found) == "the log begins at 7"
    other = finding("commitlog.no-first-file", offset=7)
    assert CATALOGUE[other.code].gist_of(other) == other.message


@pytest.mark.budget(1)
def test_no_check_makes_a_sentence() -> None:
    """Pages alone do, of facts: nobody passes a text, or puts another one in its place."""
    for name, module in modules_under(ROOT).items():
        for call in (node for node in nodes_of(module.text) if isinstance(node, ast.Call)):
            maker, of_page = ast.unparse(call.func).rpartition(".")[2], room_of(name) in ("findings", "show", "diff")
            code = str(call.args[0].value) if call.args and isinstance(call.args[0], ast.Constant) else ""
            makes = maker in ("finding", "_finding") or (maker == "add" and code in CATALOGUE)
            if makes and code in CATALOGUE:
                assert len(call.args) == 1 or not isinstance(call.args[1], ast.Constant | ast.JoinedStr), name
                _known_problem(call, CATALOGUE[code].says, f"{name}:{call.lineno}")
            texts = [each.arg for each in call.keywords if each.arg in ("message", "gist")]
            assert not texts or not (makes or (maker == "replace" and not of_page)), f"{name}:{call.lineno}"


def _known_problem(call: ast.Call, says: Says, place: str) -> None:
    for given in (node for node in ast.walk(call) if isinstance(node, ast.Dict)):
        facts = {ast.unparse(key): value for key, value in zip(given.keys, given.values, strict=True) if key}
        problem = facts.get("'problem'")
        assert isinstance(says, str) or not isinstance(problem, ast.Constant) or problem.value in says, place
