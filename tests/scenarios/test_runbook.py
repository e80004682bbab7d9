"""The runbook, section by section: its commands are run, and what it shows of their output is what they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.running import ROOT, rmqtool
from tests.samples import missing_line

PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
BROKEN = "/tmp/broken"
_CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[\d.]+(?:Z|[+-]\d\d:\d\d))?|[+-]\d\d:00\b| {2,}|0\d{3}-[0-9a-f]{12}"
)
"""Times, the blanks that a longer zone pushes away, and names of transactions."""


def commands_in(section: str) -> list[tuple[str, list[str]]]:
    """The command lines of a section, each with the lines that stand below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line and line != "...":
                found[-1][1].append(line)
    return found


def same(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run."""
    return [_CHANGING.sub("-", line) for line in lines]


@pytest.fixture(autouse=True)
def _not_the_hour_of_delete_when(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone in which it is not near 4 o'clock, the hour of deleteWhen: `clean` would say so."""
    monkeypatch.setenv("TZ", "UTC" if time.gmtime().tm_hour not in (3, 4) else "EAST-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_does_what_it_shows(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is broken as the section says; every line that it shows of a command is printed, in that order."""
    monkeypatch.chdir(ROOT)
    commands = commands_in(SECTIONS[title])
    assert commands
    for command, shown in commands:
        here = command.replace(BROKEN, str(tmp_path / "broken"))
        program, *arguments = shlex.split(here)
        if program == "rmqtool":
            result = rmqtool(*arguments)
            printed = f"{result.out}{result.err}".replace(str(tmp_path / "broken"), BROKEN).splitlines()
            assert missing_line(same(shown), same(printed)) is None
        else:
            subprocess.run(["bash", "-ec", here], check=True)


def test_every_symptom_leads_to_a_section() -> None:
    """The links of the table are the titles."""
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) == anchors
