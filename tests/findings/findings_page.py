"""docs/findings.md from the catalogue: ``python -m tests.findings.findings_page`` writes it, a test holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqtool.commands.explain import sentence, shown_remedy
from rmqtool.findings.catalogue import CATALOGUE, Entry

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
_HEAD = """\
<!-- Written by `make pages` from rmqtool/findings. -->
# Findings

A finding has a code that never changes. This page lists all codes, with the number of the fault if there is one.
`rmqtool explain CODE` shows the same in a terminal, and [json.md](json.md) has the fields of a finding.

What a broker does depends on its release; each page shows the differences. A "recovery scan" is the part of the commit
log that every start reads; after a crash it is larger.
"""

_CHAPTERS = {
    "start": "What the next start would do",
    "store": "The store and its files",
    "commitlog": "The commit log",
    "consumequeue": "Consume queues",
    "index": "Index files",
    "checkpoint": "The checkpoint",
    "config": "Topics, groups and offsets",
    "timer": "Timer messages",
    "compaction": "Compacted topics",
    "tiered": "Tiered storage",
    "clean": "Retention",
    "upgrade": "Upgrades and broker.conf",
    "rebuild": "Rebuilds",
    "export": "Exports",
}


def page() -> str:
    """The whole page: a chapter for each part, which begins with its codes."""
    chapters: dict[str, list[Entry]] = {}
    for entry in CATALOGUE.values():
        chapters.setdefault(entry.code.partition(".")[0], []).append(entry)
    return "\n".join([_HEAD, *(line for part, entries in chapters.items() for line in _chapter(part, entries))])


def _chapter(part: str, entries: Sequence[Entry]) -> Iterator[str]:
    yield from (f"## {_CHAPTERS[part]}", "", "| code | fault | severity | |", "|---|---|---|---|")
    for entry in entries:
        anchor = entry.code.replace(".", "")
        yield f"| [{entry.code}](#{anchor}) | {entry.fault or ''} | {entry.severity} | {entry.title} |"
    yield ""
    for entry in entries:
        yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### {entry.code}"
    yield ""
    yield f"**{entry.title}.** {sentence(entry.what)}"
    yield ""
    yield f"*How it happens.* {sentence(entry.how)}"
    yield ""
    yield f"*What the broker does.* {sentence(entry.effect)}"
    yield ""
    for versions, effect in entry.all_versions:
        yield f"- {versions}: {effect}"
    yield ""
    yield f"*How to repair.* {sentence(entry.repair)}"
    yield ""
    if entry.remedy:
        yield from ("```console", f"$ {shown_remedy(entry.remedy)}", "```", "")
    if entry.not_detected:
        yield from (f"*Not detected.* {sentence(entry.not_detected)}", "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
