"""`rmqtool explain CODE`: what a finding means, how it happens, what each broker version does, how to repair.

Also what a broker or a client prints: where that leads.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Literal

import click
from click.shell_completion import CompletionItem

from rmqtool.base.errors import Exit, UsageError
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options
from rmqtool.findings.catalogue import CATALOGUE, Entry, close_matches, lookup
from rmqtool.findings.symptoms import Symptom, symptoms_of
from rmqtool.show.output import Style, note, show_table, table, write_document, write_text
from rmqtool.show.pager import begin_paging
from rmqtool.show.shapes import Shape, at, by

_WIDTH = 80  # columns; a page is prose, and wrapped where no terminal reads too
_INDENT = "  "

_EXAMPLES = (
    "rmqtool explain commitlog.body-crc", "rmqtool explain F16", "rmqtool explain consumequeue",
    "rmqtool explain 'CODE: 14'", "rmqtool explain 'Lock failed,MQ already started'", "rmqtool explain",
)  # fmt: skip
_EPILOG = examples_and_statuses(_EXAMPLES, {Exit.OK: "done", Exit.USAGE: "no such code"})


class _Code(click.types.StringParamType):
    """A code, a fault's number or the beginning of codes; shells complete it."""

    name = "code"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Codes that begin as typed, with their titles."""
        return [CompletionItem(entry.code, help=entry.title) for entry in lookup(incomplete) or CATALOGUE.values()]


class Behaviour(Shape):
    """What some versions do."""

    versions: str = by(lambda pair, _: pair[0])  # Releases.
    effect: str = by(lambda pair, _: pair[1])  # What they do.


class Page(Shape):
    """A page of the catalogue."""

    code: str  # The code; it never changes.
    fault: str | None  # Number in the catalogue of faults.
    severity: Literal["info", "warning", "error"]  # How bad it is in most cases; a finding may differ.
    title: str  # What is wrong, in a few words.
    what: str  # What is wrong.
    how: str  # How it happens.
    effect: str  # What the broker does with it, in one sentence.
    versions: list[Behaviour] = at("all_versions")  # What each broker version does.
    repair: str  # How to repair it, and what not to do.
    # The command to run next; replace words in capitals.
    remedy: str | None = by(lambda entry, _: None if entry.remedy is None else shown_remedy(entry.remedy))
    not_detected: str | None  # What rmqtool does not detect of it.


class SymptomShown(Shape):
    """What a broker or a client prints."""

    texts: list[str]  # Pieces of it, in the words of any release.
    classes: list[str]  # The Java classes that have them.
    response: str | None = by(lambda each, _: each.response and each.response[0])  # The name of a response code.
    response_code: int | None = by(lambda each, _: each.response and each.response[1])  # Its number.
    what: str  # What it has to do with the store.
    command: str  # The command to run next; replace words in capitals.
    codes: list[str]  # The findings to read about.


class Explained(Shape):
    """The pages."""

    codes: list[Page]  # The requested pages; without CODE all; those of matching symptoms.
    symptoms: list[SymptomShown]  # Matching symptoms; empty if CODE is that of a finding.


@click.command("explain", cls=HelpPage, epilog=_EPILOG)
@click.argument("code", type=_Code(), nargs=-1)
@global_options
@click.pass_obj
def explain(style: Style, /, *, code: tuple[str, ...]) -> Exit:
    """Explain a finding, and how to repair it.

    Shows what the finding means, its causes, and what each broker version does. CODE is the code of a finding, such as
    commitlog.body-crc, a fault's number such as F16, or the beginning of several codes. It may also be something that
    a broker or a client prints: a response code such as 14, an exception, a line of a log. Without CODE all codes are
    listed.
    """
    asked = " ".join(code) if code else None  # what is printed may have been pasted without quotes
    entries, symptoms = _entries(asked)
    begin_paging(style)
    if style.json:
        shown = [SymptomShown.of(each) for each in symptoms]
        write_document(style, "explain", {"codes": [Page.of(entry) for entry in entries], "symptoms": shown})
    elif symptoms:
        write_text("\n".join("".join(f"{line}\n" for line in _symptom(each)) for each in symptoms))
    elif asked is None or (len(entries) > 1 and entries[0].code.startswith(asked.lower())):
        rows = [(entry.code, entry.fault or "", entry.severity, entry.title) for entry in entries]
        show_table(style.console(), table("", "Code, Fault, Severity, Title", rows))
        if not style.quiet:
            note("more about one: rmqtool explain CODE")
    else:
        write_text(f"\n{'-' * _WIDTH}\n\n".join("\n".join(_page(entry)) + "\n" for entry in entries))
    return Exit.OK


def _entries(code: str | None) -> tuple[list[Entry], list[Symptom]]:
    """The pages that are asked for, and the symptoms that lead to them, where it is by what is printed."""
    if code is None:
        return list(CATALOGUE.values()), []
    if entries := lookup(code):
        return entries, []
    if symptoms := symptoms_of(code):
        codes = dict.fromkeys(each for symptom in symptoms for each in symptom.codes)
        return [CATALOGUE[each] for each in codes], symptoms
    matches = close_matches(code)
    hint = f"did you mean {' or '.join(matches)}?" if matches else "rmqtool explain lists all codes"
    raise UsageError(f"{code!r} is neither a finding code nor a known message of brokers or clients", hint=hint)


def _symptom(symptom: Symptom) -> Iterator[str]:
    yield from _wrapped(symptom.title)
    if symptom.classes:
        yield from _section("Printed by", ", ".join(symptom.classes))
    yield from _section("What", symptom.what)
    yield from ("", "Next", f"{_INDENT}{symptom.command}")
    if symptom.codes:
        yield from ("", "Findings (rmqtool explain CODE)")
        width = max(map(len, symptom.codes))
        for code in symptom.codes:
            first, *more = textwrap.wrap(CATALOGUE[code].title, _WIDTH - width - 4)
            yield f"{_INDENT}{code:<{width}}  {first}"
            yield from (f"{_INDENT}{'':<{width}}  {line}" for line in more)


def _page(entry: Entry) -> Iterator[str]:
    fault = f", {entry.fault}" if entry.fault else ""
    yield f"{entry.code} ({entry.severity}{fault})"
    yield from _wrapped(entry.title)
    sections = (
        ("What", entry.what),
        ("How it happens", entry.how),
        ("What the broker does", entry.effect),
        *((f"{_INDENT}{versions}", effect) for versions, effect in entry.all_versions),
        ("How to repair", entry.repair),
    )
    for title, text in sections:
        yield from _section(title, text)
    if entry.remedy:
        yield from ("", "Next", f"{_INDENT}{shown_remedy(entry.remedy)}")
    if entry.not_detected:
        yield from _section("Not detected", entry.not_detected)


def _section(title: str, text: str) -> Iterator[str]:
    margin = _INDENT * (1 + title.startswith(_INDENT))
    yield from ("", title)
    yield from _wrapped(sentence(text), margin)


def sentence(text: str) -> str:
    """`text` with a capital and a full stop, which effects of findings lack; names keep their case."""
    first = text.split(maxsplit=1)[0]
    is_name = first == "rmqtool" or not first.rstrip(",:;").isalpha() or first[1:] != first[1:].lower()
    return (text if is_name else text[0].upper() + text[1:]) + ("" if text.endswith((".", "?")) else ".")


def _wrapped(text: str, margin: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def shown_remedy(remedy: str) -> str:
    """A remedy's template for people: its fields as words in capitals."""
    return remedy.format(store="STORE", offset="OFFSET", topic="TOPIC", queue_id="QUEUE")
