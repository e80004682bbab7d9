"""The filter options: what stands on the command line is what the filters hold."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rmqtool.base.errors import UsageError
from rmqtool.commands.options import Options, command, option
from rmqtool.commands.shared_options import filter_options, limit_option
from rmqtool.scan.filters import Filters
from rmqtool.show.output import Style


@dataclass(frozen=True, kw_only=True)
class Everything(Options):
    """All filters, and more."""

    filters: Filters = filter_options()
    limit: int | None = limit_option()
    other: str | None = option("Something else.")


@dataclass(frozen=True, kw_only=True)
class Some(Options):
    """Two filters."""

    filters: Filters = filter_options("topic", "to")


@command("everything", Everything, (), {})
def everything(style: Style, given: Everything) -> Any:
    """Take all filters."""
    return given


@command("some", Some, (), {})
def some(style: Style, given: Some) -> Any:
    """Take some filters."""
    return given.filters


def parsed(*words: str) -> Any:
    return everything.main(list(words), standalone_mode=False, obj=Style())


def test_every_filter_has_its_option() -> None:
    """All of them together, each in its place, beside options of the command's own."""
    line = "--topic a --topic b --queue 1 --queue -1 --tag x||y --tag z --key k --from 5 --to 1970-01-01T00:00:01Z"
    found = parsed(*line.split(), "--from-offset", "7", "--to-offset", "9", "--limit", "3", "--other", "o")
    filters = Filters(("a", "b"), (1, -1), ("x", "y", "z"), ("k",), 5, 1000, 7, 9)
    assert found == Everything(filters=filters, limit=3, other="o")


def test_without_options_nothing_is_filtered() -> None:
    """The defaults are those of Filters."""
    assert parsed() == Everything(filters=Filters(), limit=None, other=None)


@pytest.mark.parametrize("words", [("--from", "-2h"), ("--from=-2h",)])
def test_a_distance_from_now(words: tuple[str, ...]) -> None:
    """A value that begins with a hyphen is no option."""
    now = time.time_ns() // 1_000_000
    assert now - 7_201_000 < parsed(*words).filters.from_timestamp + 1000 < now - 7_180_000


def test_a_star_is_any_tag() -> None:
    """As consumers subscribe."""
    assert parsed("--tag", "a", "--tag", "*").filters.tags == ()


@pytest.mark.parametrize(
    "line",
    [
        "--from 2026-11-31",
        "--to never",
        "--queue x",
        "--queue 2147483648",
        "--from-offset -1",
        "--limit -1",
        "--tag ||",
    ],
)
def test_what_is_no_value_is_refused(line: str) -> None:
    """Each as click refuses, with the option's name."""
    option, value = line.split()
    with pytest.raises(click.BadParameter) as caught:
        parsed(option, value)
    assert option in caught.value.format_message()


@pytest.mark.parametrize("line", ["--from 6 --to 5", "--from-offset 6 --to-offset 5"])
def test_ranges_that_are_turned_around(line: str) -> None:
    """They match nothing, which nobody wants."""
    with pytest.raises(UsageError, match="nothing is in between"):
        parsed(*line.split())
    assert parsed(*line.replace("6", "5").split()).limit is None


def test_a_command_may_have_some_of_them() -> None:
    """Those that are named, and no others."""
    found = some.main(["--topic", "a", "--to", "5"], standalone_mode=False, obj=Style())
    assert found == Filters(topics=("a",), to_timestamp=5)
    assert CliRunner().invoke(some, ["--queue", "1"]).exit_code == 2


def test_the_same_command_again() -> None:
    """The words of what was given give it again; a default needs none."""
    given = parsed("--topic", "a b", "--topic", "c", "--from", "5", "--limit", "3")
    words = given.words("limit", "filters", "other")
    assert words == ("--limit", "3", "--topic", "a b", "--topic", "c", "--from", "1970-01-01T00:00:00.005Z")
    assert parsed(*words) == given
