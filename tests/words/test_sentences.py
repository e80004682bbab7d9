"""The words that users see stay as they were read."""

from __future__ import annotations

import ast
import re

import pytest

from tests.rooms import ROOT, modules_under, nodes_of
from tests.words import sentences

pytestmark = pytest.mark.budget(3)  # all of the product is parsed


def test_the_sentences_are_those_of_the_file() -> None:
    """Read the difference, then write them: ``python -m tests.words.sentences``."""
    assert sentences.text() == sentences.FILE.read_text(encoding="utf-8")


def test_no_piece_of_a_sentence_is_lost() -> None:
    """A string below another one, without brackets around both, is a statement of its own, and shown by nobody."""
    lost = []
    for name, module in modules_under(ROOT).items():
        lines = module.text.encode().splitlines()
        for node in nodes_of(module.text):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.JoinedStr | ast.Constant):
                end = lines[(node.end_lineno or 0) - 1][: node.end_col_offset]
                lost += [f"{name}:{node.lineno}"] * (end.endswith((b"'", b'"')) and not end.endswith(b'"""'))
    assert lost == []


def test_no_sentence_has_a_word_of_our_own() -> None:
    """What gives a value "tells" nothing; only people are told, and only two like things are told apart."""
    ours = r"anew|inert|owe[sd]?|mend(s|ed|ing)?|tells?|told|lacking|strange|goes past|looked at|so many bytes|no fault"
    own = re.compile(rf"\b({ours})\b", re.IGNORECASE)
    found = [line.strip() for line in sentences.text().splitlines() if own.search(line)]
    meant = (
        ".result.owed",
        "fix heal recover",  # what others call a repair
        "its producer was never told",
        "cannot tell",
        "would tell a topic that was deleted from one",
    )
    assert [line for line in found if not any(words in line for words in meant)] == []
