"""`rmqtool explain`: pages for people and programs, lists, and codes that do not exist."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rmqtool.cli import cli
from rmqtool.commands.explain import explain
from rmqtool.findings.catalogue import CATALOGUE
from tests.commands.running import SCHEMAS, errors_of, rmqtool, validator


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_page_fits_a_terminal(code: str) -> None:
    """Each page names its code, its effect and its repair, in 80 columns."""
    found = rmqtool("explain", code)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(f"{code} (")
    assert "?." not in found.out
    assert max(len(line) for line in found.out.splitlines() if "rmqtool" not in line) <= 80
    flowing = " ".join(found.out.split())
    entry = CATALOGUE[code]
    for text in (entry.what, entry.how, entry.repair, entry.title, *(effect for _, effect in entry.all_versions)):
        assert text[1:] in flowing
    assert entry.effect[1:] + "." in flowing


def test_all_codes_are_listed() -> None:
    """Without a code: one line for each."""
    lines = rmqtool("explain").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(CATALOGUE)


def test_a_prefix_lists_and_a_fault_explains() -> None:
    """Several codes are listed; the codes of one fault are explained one below the other."""
    listed = rmqtool("explain", "checkpoint").out
    assert listed.startswith("Code ")
    assert len(listed.splitlines()) == 1 + sum(code.startswith("checkpoint") for code in CATALOGUE)
    pages = rmqtool("explain", "f16").out
    assert pages.startswith("commitlog.body-crc (error, F16)\n")
    assert f"\n\n{'-' * 80}\n\ncommitlog.property-crc (error, F16)\n" in pages


def test_json_says_the_same() -> None:
    """All pages as one document, which is valid; one page alone."""
    codes = rmqtool("explain", "--json").document["result"]["codes"]
    assert [page["code"] for page in codes] == list(CATALOGUE)
    gap = rmqtool("explain", "--json", "commitlog.gap").document["result"]["codes"]
    assert gap == [page for page in codes if page["code"] == "commitlog.gap"]
    assert gap[0]["remedy"] == "rmqtool inspect STORE --scan"
    assert gap[0]["versions"][0] == dict(
        zip(("versions", "effect"), CATALOGUE["commitlog.gap"].all_versions[0], strict=True)
    )


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("commitlog.body-crx", "did you mean commitlog.body-crc"),
        ("F60", "rmqtool explain lists all codes"),
        ("\x1b[31m", "rmqtool explain lists all codes"),
        ("", "rmqtool explain lists all codes"),
    ],
)
def test_no_such_code(code: str, hint: str) -> None:
    """An error of the command line, with the codes that may have been meant."""
    found = rmqtool("explain", code)
    assert (found.status, found.out) == (2, "")
    assert hint in found.err
    assert "\x1b" not in found.err
    document = rmqtool("explain", code, "--json").document
    assert document["error"]["hint"].startswith(hint)


def test_schema_holds() -> None:
    """The schema is valid, explains every field, and refuses what is not in it."""
    content = json.loads((SCHEMAS / "explain.schema.json").read_text(encoding="utf-8"))
    validator("explain").check_schema(content)
    fields = [
        value for part in ("result", "page", "behaviour") for value in content["$defs"][part]["properties"].values()
    ]
    assert all(field["description"] for field in [*fields, *content["properties"].values()] if "$ref" not in field)
    document = rmqtool("explain", "F03", "--json").document
    page = document["result"]["codes"][0]
    for name in list(page):
        kept = {key: value for key, value in page.items() if key != name}
        assert errors_of("explain", {**document, "result": {"codes": [kept]}}), name
    assert errors_of("explain", {**document, "result": {"codes": [{**page, "surplus": 1}]}})
    assert errors_of("explain", {**document, "result": None})


def test_shells_complete_codes() -> None:
    """The argument completes to codes, with their titles."""
    code = next(param for param in explain.params if param.name == "code")
    context = explain.make_context("explain", [])
    items = code.shell_complete(context, "timer.")
    assert [item.value for item in items] == [code for code in CATALOGUE if code.startswith("timer.")]
    assert items[0].help == CATALOGUE["timer.wheel-size"].title


def test_help_has_examples() -> None:
    """Its examples can be run."""
    text = CliRunner().invoke(cli, ["explain", "--help"]).output
    assert "rmqtool explain F16" in text
