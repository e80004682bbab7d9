"""Every sentence that a user may see, by module: ``python -m tests.words.sentences`` writes them, a test holds them.

So a change of words shows in a diff. A sentence is a string of the product with a space and a letter in it that is no
docstring; what is put into it at run time is shown as ``{}``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.rooms import ROOT, Module, modules_under, nodes_of

FILE = Path(__file__).with_name("sentences.txt")
_LEFT_OUT = ("rmqtool.rules.broker_conf",)  # a table of its own


@cache
def text() -> str:
    """The whole file: below the name of each module its sentences, in the order of the source."""
    parts = []
    for name, module in sorted(modules_under(ROOT).items()):
        sentences = dict.fromkeys(_sentences(module))
        if sentences and name not in _LEFT_OUT:
            parts.append("\n".join([name, *(f"    {sentence}" for sentence in sentences)]))
    return "\n\n".join(parts) + "\n"


def _sentences(module: Module) -> Iterator[str]:
    nodes = nodes_of(module.text)
    skipped = {id(node) for node in _docstrings(nodes)} | {id(part) for each in nodes for part in _pieces(each)}
    for node in nodes:
        if id(node) not in skipped:
            shown = _shown(node)
            if " " in shown.strip() and any(character.isalpha() for character in shown):
                yield shown.encode("unicode_escape").decode()


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Strings that are statements: docstrings of modules, classes, functions and names."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _pieces(node: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a larger string."""
    if isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from (
                ast.walk(value.format_spec) if isinstance(value, ast.FormattedValue) and value.format_spec else ()
            )
            if isinstance(value, ast.Constant):
                yield value


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(_shown(value) if isinstance(value, ast.Constant) else "{}" for value in node.values)


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
