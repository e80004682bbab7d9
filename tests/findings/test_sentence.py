"""Sentences of findings are filled from their facts, by the template of their page."""

from __future__ import annotations

import ast
from string import Formatter

import pytest

from rmqtool.findings.catalogue import CATALOGUE, finding
from rmqtool.findings.sentence import filled
from tests.rooms import ROOT, modules_under

TEMPLATES = [
    (code, template)
    for code, page in CATALOGUE.items()
    for template in ([page.says] if isinstance(page.says, str) else (page.says or {}).values())
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
        ("here{n:&more unit}", {"n": 0}, "here"),
        ("here{n:&more unit}", {"n": 1}, "here (and 1 more unit)"),
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


def test_the_page_makes_the_sentence() -> None:
    """By the fact `problem` where it has several; its place counts as well, and a whole sentence can be given."""
    details = {"problem": "size", "found": 5, "expected": 6}
    assert finding("consumequeue.wrong-record", details=details).message == "size 5, the record has 6"
    assert finding("commitlog.no-first-file", offset=7).message == "begins at 7: older files were deleted"
    assert finding("commitlog.no-first-file", "given", offset=7).message == "given"
    with pytest.raises(ValueError, match="needs a sentence"):
        finding("commitlog.missing")


@pytest.mark.parametrize(("code", "template"), TEMPLATES)
def test_each_template_can_be_read(code: str, template: str) -> None:
    fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    assert all(field.isidentifier() for field in fields), code


@pytest.mark.budget(1)
def test_who_gives_no_sentence_has_a_page_with_one() -> None:
    """And one for the problem that is named in the same place."""
    for name, module in modules_under(ROOT).items():
        for node in ast.walk(ast.parse(module.text)):
            if (
                not isinstance(node, ast.Call)
                or not node.args
                or ast.unparse(node.func).split(".")[-1] not in ("add", "finding")
            ):
                continue
            code = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if (
                not isinstance(code, str)
                or code not in CATALOGUE
                or len(node.args) > 1
                or any(each.arg == "message" for each in node.keywords)
            ):
                continue
            says = CATALOGUE[code].says
            assert says, f"{name}:{node.lineno}"
            if isinstance(says, str):
                continue
            for given in ast.walk(node):
                if isinstance(given, ast.Dict):
                    facts = {
                        ast.unparse(key): value for key, value in zip(given.keys, given.values, strict=True) if key
                    }
                    problem = facts.get("'problem'")
                    assert not isinstance(problem, ast.Constant) or problem.value in says, f"{name}:{node.lineno}"
