"""Programs decide by the facts of a finding: nothing but what shows it reads its sentences."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.rooms import ROOT, Module, imports_of, modules_under, nodes_of, room_of, tree

pytestmark = pytest.mark.budget(1)  # they parse the whole package

SENTENCES = frozenset({"message", "effect", "remedy"})
"""Attributes of a finding, or of its page, that are text for people."""

MAY_READ = frozenset({"show", "findings"})
"""Rooms that show findings, and the classes themselves."""

OF_LOGS = frozenset({"diff", "replay"})
"""Rooms in which ``message`` is one of the log: they have no findings."""

OTHERS = frozenset({"error", "self", "sizes", "entry"})
"""What errors, sizes of fields and entries of listings are called; findings and all that comes from them are not."""

PASSED_ON = {
    "rmqtool.library.verified.Verified._repr_html_": "message",  # shows them in a notebook
    "rmqtool.repair.plan._decision": "message",  # a step names what people decide
    "rmqtool.repair.plan._steps_after": "message",  # a step names what can wait
    "rmqtool.repair.plan._acknowledgement": "message",  # a step names a loss
    "rmqtool.repair.plan._remaining": "message",  # says what stays
    "rmqtool.salvage.new_store.require_derived": "message",  # becomes an error
    "rmqtool.rebuild.plan.RebuildPlan.require_release": "message",  # becomes an error
    "rmqtool.commands.clean._require_release": "message",  # becomes an error
}
"""Functions that pass a sentence on to people as it is, without looking into it."""

_GETTERS = ("getattr", "attrgetter", "get", "itemgetter", "pop")
_SHOWING = {"rmqtool.commands.explain", "rmqtool.sql.store_tables"}  # pages, and rows of a table
_LOOKING = (ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.While, ast.IfExp)


def reading_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Places that read a sentence of a finding, and findings in rooms where a message is one of the log."""
    for name, module in modules.items():
        room = room_of(name)
        if room in OF_LOGS and "rmqtool.findings.finding.Finding" in imports_of(module):
            yield f"{name} has findings: take it out of OF_LOGS"
        if room not in MAY_READ and name not in _SHOWING:
            own = SENTENCES - {"message"} if room in OF_LOGS else SENTENCES
            yield from _in_tree(name, nodes_of(module.text)[0], own, None)


def _in_tree(place: str, node: ast.AST, sentences: frozenset[str], parent: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        place = f"{place}.{node.name}"
    read = _read_name(node)
    if read in sentences:
        is_other = ast.unparse(getattr(node, "value", node)) in OTHERS
        is_passed_on = PASSED_ON.get(place) == read and not isinstance(parent, _LOOKING)
        if not is_other and not is_passed_on:
            yield f"{place} reads {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from _in_tree(place, child, sentences, node)


def _read_name(node: ast.AST) -> str | None:
    """What is read by name: an attribute, an item of a mapping, or either by a call."""
    name: ast.expr | None = None
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        name = node.slice
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _GETTERS and node.args:
        name = node.args[-1] if len(node.args) == 1 else node.args["getattr" in ast.unparse(node.func)]
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


@pytest.mark.parametrize("name", ["rmqtool.show.monitoring"])
def test_what_monitors_read_is_made_of_facts(name: str) -> None:
    """These show, and yet make no use of a sentence."""
    assert {_read_name(node) for node in nodes_of(modules_under(ROOT)[name].text)} & SENTENCES == set()


def test_nothing_decides_by_a_sentence() -> None:
    assert list(reading_problems(modules_under(ROOT))) == []


def test_all_that_passes_on_does() -> None:
    """No place stays in the table that is gone."""
    modules = modules_under(ROOT)
    for place in PASSED_ON:
        name = next(name for name in sorted(modules, key=len, reverse=True) if place.startswith(f"{name}."))
        assert f"def {place.rpartition('.')[2]}(" in modules[name].text


_FUNCTION = "def _decision(finding):\n    return {}\n"


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ({"repair__other": "def f(finding):\n    return finding.message.split()"}, 1),
        ({"repair__other": "def f(finding):\n    return finding.remedy"}, 1),
        ({"verify__other": "def f(each):\n    return [x.effect for x in each if x.remedy]"}, 2),
        ({"verify__other": "def f(each):\n    return getattr(each, 'message')"}, 1),
        ({"verify__other": "def f(each):\n    return each.as_json()['message']"}, 1),
        ({"verify__other": "def f(each):\n    return each.as_json().get('effect', '')"}, 1),
        ({"verify__other": "from operator import attrgetter\nKEY = attrgetter('message')"}, 1),
        ({"verify__other": "def f(each):\n    return re.search('lost', each.message)"}, 1),
        ({"verify__other": "def f(error):\n    return error.message"}, 0),
        ({"show__other": "def f(finding):\n    return finding.message.split()"}, 0),
        ({"repair__plan": _FUNCTION.format("f'{finding.message}: do it'")}, 0),
        ({"repair__plan": _FUNCTION.format("finding.message.split()")}, 1),
        ({"repair__plan": _FUNCTION.format("'x' in finding.message")}, 1),
        ({"repair__plan": _FUNCTION.format("finding.remedy")}, 1),
        ({"replay__sending": "def f(one):\n    return one.message"}, 0),
        ({"replay__sending": "from rmqtool.findings.finding import Finding"}, 1),
    ],
)
def test_a_reader_is_found(tmp_path: Path, texts: dict[str, str], count: int) -> None:
    assert len(list(reading_problems(tree(tmp_path, **texts)))) == count
