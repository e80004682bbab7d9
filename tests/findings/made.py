"""Findings without facts, for tests to which the sentence does not matter; and whether facts make the sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rmqtool.findings.catalogue import CATALOGUE, finding
from rmqtool.findings.finding import Entry, Finding


def made(code: str, message: str = "a sentence", **given: Any) -> Finding:
    """A finding as `finding` makes it, with this sentence."""
    with patch.object(Entry, "sentence", lambda *_: message):
        return finding(code, **given)


def findings_in(value: object) -> Iterator[dict[str, Any]]:
    """The findings in a JSON document, wherever they are."""
    if isinstance(value, dict) and {"code", "message", "details"} <= value.keys():
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from findings_in(each)


def check_sentences(document: object) -> None:
    """Assert that the facts of each finding, as programs get them, are all that its sentence is made of.

    One that stands for others has the count of all of them beside a sentence about one.
    """
    for each in findings_in(document):
        message, _, more = each["message"].partition(" (")
        if not more.endswith("more like this)"):
            sentence = CATALOGUE[each["code"]].sentence({**each, **each["details"]})
            assert message == sentence.partition(" (")[0], each
