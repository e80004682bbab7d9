"""The outputs that README and docs show are those of the program."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands.running import ROOT, rmqtool
from tests.samples import missing_line
from tests.unchanged import unchanged

EXAMPLE = "examples/store"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Sample(NamedTuple):
    """A command line on the example store, and the lines that a document shows of its output."""

    document: str
    command: str
    lines: list[str]


def samples_in(text: str, document: str) -> list[Sample]:
    """Each plain block after a block of commands belongs to the first of them; ``...`` leaves lines out."""
    blocks = [(found[1], found[2]) for found in _FENCED.finditer(text)]
    found = []
    for (kind, commands), (next_kind, shown) in pairwise(blocks):
        command = commands.splitlines()[0].removeprefix("$ ")
        if kind == "console" and not next_kind and re.match(r"rmqtool .*\b(STORE|examples/store)\b", command):
            lines = [line for line in shown.splitlines() if line and line != "..."]
            found.append(Sample(document, command.replace("STORE", EXAMPLE), lines))
    return found


SAMPLES = [
    sample
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.name != "runbook.md"  # whose commands break a store; they have a test of their own
    for sample in samples_in(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.document}: {sample.command}")
def test_a_sample_is_what_the_program_prints(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line that is shown is in the output, in that order."""
    monkeypatch.chdir(ROOT)
    with unchanged(ROOT / EXAMPLE):
        result = rmqtool(*shlex.split(sample.command, comments=True)[1:])
    assert missing_line(sample.lines, result.out.splitlines()) is None


def test_samples_are_found_and_compared() -> None:
    """README has some, an unknown line is missed, and so is one in the wrong place."""
    assert len([sample for sample in SAMPLES if sample.document == "README.md"]) >= 2
    text = "```console\n$ rmqtool inspect STORE\n```\n\n```\na\n...\nb\n```\n```console\n$ make\n```\n```\nx\n```\n"
    assert samples_in(text, "x") == [Sample("x", f"rmqtool inspect {EXAMPLE}", ["a", "b"])]
    assert missing_line(["a", "b"], ["a", "c", "b"]) is None
    assert missing_line(["a", "x"], ["a", "c", "b"]) == "x"
    assert missing_line(["b", "a"], ["a", "b"]) == "a"


def test_documents_link_to_what_is_there() -> None:
    """Every relative link points to a file."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert Path(path.parent, target).exists(), f"{path.name}: {target}"
