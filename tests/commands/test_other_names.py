"""What other tools call our commands points to ours, and what brokers print to pages and commands."""

from __future__ import annotations

import shlex

import click
import pytest

from rmqtool.base.errors import Exit
from rmqtool.cli import cli
from rmqtool.commands.other_names import OTHER_COMMANDS, OTHER_OPTIONS
from rmqtool.findings.catalogue import CATALOGUE, lookup
from rmqtool.findings.symptoms import SYMPTOMS, Symptom, symptoms_of
from tests.commands.running import command_named, rmqtool

COMMANDS = [*OTHER_COMMANDS.values(), *(each.command.removeprefix("rmqtool ") for each in SYMPTOMS)]


def test_unknown_commands_lead_to_ours() -> None:
    """With its arguments; capitals do not count, and help does the same."""
    for name, ours in OTHER_COMMANDS.items():
        found = rmqtool(name, "store")
        assert found.status == Exit.USAGE
        assert found.err.startswith(f"rmqtool: no command {name}; try: rmqtool {ours}\n")
    assert "try: rmqtool query STORE --id ID" in rmqtool("queryMsgById").err
    assert "try: rmqtool verify STORE" in rmqtool("help", "fsck").err


@pytest.mark.parametrize("name", ["fsck", "check", "ls", "tail", "lag", "dump", "recover"])
def test_the_names_that_people_try_first(name: str) -> None:
    """None of them is a command, and each of them points to one."""
    assert name in OTHER_COMMANDS
    assert name not in cli.modules


def test_no_name_of_ours_is_another_one() -> None:
    """Else it would be of no use; all are in small letters."""
    assert OTHER_COMMANDS.keys().isdisjoint(cli.modules)
    assert [name for name in OTHER_COMMANDS if name != name.lower()] == []


@pytest.mark.parametrize("line", dict.fromkeys(COMMANDS))
def test_what_is_named_is_a_command_line(line: str) -> None:
    """A command with options of its own, and the arguments that it needs."""
    name, *words = shlex.split(line)
    command = command_named(name)
    options = {option: each for each in command.params if isinstance(each, click.Option) for option in each.opts}
    given = [word for word in words if word.startswith("-")]
    assert {*given} <= options.keys()
    valued = [word for word in given if not options[word].is_flag]
    needed = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    assert len(words) - len(given) - len(valued) >= len(needed)


def test_other_options_are_ours() -> None:
    """Each name points to options that some command has."""
    ours = {name for each in cli.modules for option in command_named(each).params for name in option.opts}
    assert {name for names in OTHER_OPTIONS.values() for name in names} <= ours


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("14", "CODE: 14"),
        ("CODE: 14", "CODE: 14"),
        ("CODE: 14  DESC: service not available now, maybe disk full, CL:  0.92 CQ:  0.92 INDEX:  0.92", "CODE: 14"),
        ("MQBrokerException: CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]broker busy", "CODE: 2"),
        ("responseCode=21", "CODE: 21"),
        ("SERVICE_NOT_AVAILABLE", "CODE: 14"),
        ("service not available", "CODE: 14"),
        ("Lock failed", "Lock failed,MQ already started"),
        ("java.lang.RuntimeException: Lock failed, MQ already started, lock status: null", "Lock failed,MQ"),
        ("2026-11-29 04:00:00 ERROR main - Lock failed,MQ already started", "Lock failed,MQ already started"),
        ("length not matched", "length not matched"),
        ("/store/commitlog/00000000000000000000\t4096 length not matched message store config value, ignore it",
         "length not matched"),
        ("Offset for ... not matched", "Offset not matched"),
        ("Offset for 4711 not matched. Request offset: 12", "Offset not matched"),
        ("Offset not matched. Request offset: 7, firstOffset: 0, lastOffset: 4096", "Offset not matched"),
        ("found a illegal magic code 0xaabbccdd", "found a illegal magic code"),
        ("14:03:22 WARN - CRC check failed. bodyCRC=1, currentCRC=2", "CRC check failed"),
        ("PULL_OFFSET_MOVED", "CODE: 21"),
        ("fix the pull request offset, PullRequest [consumerGroup=a]", "CODE: 21"),
        ("exit -3", "length not matched"),
    ],
)  # fmt: skip
def test_what_is_printed_leads_to_a_page(text: str, title: str) -> None:
    """By number or name of a response code, a line of a log, an exception, or a part of one."""
    found = rmqtool("explain", text)
    assert (found.status, found.err) == (Exit.OK, "")
    assert found.out.startswith(title)
    [symptom] = symptoms_of(text)
    assert f"  {symptom.command}\n" in found.out
    for code in symptom.codes:
        assert f"  {code} " in found.out


def test_quotes_are_not_needed() -> None:
    """Words of a command line are one text."""
    for words in ("CODE: 14", "Lock failed", "14:03:22 WARN - CRC check failed. bodyCRC=1, currentCRC=2"):
        assert rmqtool("explain", *words.split()) == rmqtool("explain", words)


@pytest.mark.parametrize("text", ["", " ", "99", "error", "message", "...", "{}", "-", "2026-11-29", "no such thing"])
def test_what_says_nothing_leads_nowhere(text: str) -> None:
    """It is an error, as before."""
    assert symptoms_of(text) == []
    assert rmqtool("explain", text).status == Exit.USAGE


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda each: each.title[:40])
def test_symptoms(symptom: Symptom) -> None:
    """Each is found by all that it has, and points to codes of the catalogue; what is shown fits a terminal."""
    printed = [*symptom.texts, *symptom.spoken, *(symptom.response or ())[:1]]
    assert printed
    for text in printed:
        assert symptom in symptoms_of(str(text)), text
    assert {*symptom.codes} <= CATALOGUE.keys()
    assert not lookup(str(printed[0]))
    assert symptom.what.endswith((".", "?"))
    shown = rmqtool("explain", str(symptom.response[1] if symptom.response else symptom.texts[0]))
    assert max(map(len, shown.out.splitlines())) <= 80
    assert bool(symptom.texts) == bool(symptom.classes)


def test_json_has_symptoms_and_their_pages() -> None:
    """The document is valid, and empty of symptoms where a code was asked for."""
    result = rmqtool("explain", "--json", "CODE: 14").document["result"]
    [symptom] = result["symptoms"]
    assert (symptom["response"], symptom["response_code"]) == ("SERVICE_NOT_AVAILABLE", 14)
    assert [each["code"] for each in result["codes"]] == symptom["codes"]
    assert rmqtool("explain", "--json", "commitlog.gap").document["result"]["symptoms"] == []
