"""The objects of JSON: each kind is a class that names its fields once, for the JSON and for its published schema.

A field is read from what is shown: from its attribute of the same name, from another place (``= at("file.size")``), or
by a function of it and of what is around it (``= by(...)``). In `docs/schema` the docstring of the class is the title
of the object, and the comment at a field, or above it, says what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rmqtool.base.numbers import Long
from rmqtool.base.times import Moment, rfc3339

Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Rule:
    """How a field is read; one that is optional is not there where its value is None."""

    read: Read
    optional: bool = False


def by(read: Read, *, optional: bool = False) -> Any:
    """A field that a function makes of what is shown, and of what is around it."""
    return Rule(read, optional)


def at(place: str, *, optional: bool = False) -> Any:
    """A field that stands in an attribute of another name, or of an attribute; of a row under this name."""
    found = attrgetter(place)
    return Rule(lambda shown, _: shown[place] if isinstance(shown, dict) else found(shown), optional)


class Shape:
    """A kind of object, whose values are in others."""

    @classmethod
    def of(cls, shown: Any, around: Any = None) -> dict[str, Any]:
        """What is shown, as JSON."""
        return as_json(cls, shown, around)


def as_json(kind: type, shown: Any, around: Any = None) -> dict[str, Any]:
    """The JSON of an object that is shown by a Shape, or that is a dataclass: then all its fields are."""
    found: dict[str, Any] = {}
    for name, part, is_list, rule in _fields(kind):
        value = rule.read(shown, around)
        if value is None and rule.optional:
            continue
        if part is Moment:
            found |= {f"{name}_timestamp": value, f"{name}_time": rfc3339(value)}
        elif part is None or value is None:
            found[name] = list(value) if type(value) is tuple else value
        else:
            found[name] = [as_json(part, each, around) for each in value] if is_list else as_json(part, value, around)
    return found


@cache
def _fields(kind: type) -> list[tuple[str, Any, bool, Rule]]:
    """For each field its name, the kind of objects in it or Moment, whether it has many, and how it is read."""
    fields = get_type_hints(kind, include_extras=True).items()
    return [(json_name(name), *_kind(hint), rule_of(kind, name)) for name, hint in fields]


def rule_of(kind: type, name: str) -> Rule:
    """How a field is read."""
    found = getattr(kind, name, None)
    rule: Rule = found if isinstance(found, Rule) else at(json_name(name))
    return rule


def json_name(name: str) -> str:
    """The name of a field in JSON: words of Python have an underscore behind them in a class."""
    return name.removesuffix("_")


def _kind(hint: Any, *, is_list: bool = False) -> tuple[Any, bool]:
    """The kind of objects that a type has, or holds a list of; Moment for a moment, None for all else."""
    if get_origin(hint) is Annotated and "moment" in hint.__metadata__:
        return Moment, False
    if isinstance(hint, type) and (issubclass(hint, Shape) or is_dataclass(hint)):
        return hint, is_list
    found = (_kind(part, is_list=get_origin(hint) is list) for part in get_args(hint))
    return next((each for each in found if each[0]), (None, False))


class Recovered(Shape):
    """A run that had been interrupted."""

    transaction: str | None = at("id")  # Its id; null when it had not begun to write.
    command: str | None  # The command that was interrupted; null when it had not begun to write.
    # What was done about it. abandoned: somebody else had written to the store meanwhile, so the store was not changed.
    outcome: Literal["finished", "rolled_back", "abandoned"]


class Error(Shape):
    """Why there is no result."""

    kind: Literal[
        "failed",
        "usage",
        "unreadable",
        "unsupported",
        "wrong-kind",
        "exhausted",
        "in-use",
        "not-a-store",
        "unreachable",
        "unwritable",
        "changed",
        "java",
        "spark",
        "peer",
        "refused",
    ]  # The kind of error.
    message: str  # What went wrong, in one sentence.
    file: str | None  # The file or directory that it is about; null when it is about none.
    offset: Long | None  # Position in that file, bytes; null when it is about no position.
    hint: str | None  # What to do: a sentence or a command to run.


def _given(field: str) -> Any:
    """The values of a filter, where it was given."""
    return by(lambda filters, _: list(getattr(filters, field)) or None, optional=True)


class FiltersGiven(Shape):
    """The filters that were given, by the names of their options."""

    exclude_topic: list[str] = _given("excluded_topics")  # Topics that are left out, or patterns.
    from_: Long = at("from_timestamp", optional=True)  # Stored then or later, epoch ms.
    from_offset: Long = by(
        lambda filters, _: filters.from_offset or None, optional=True
    )  # From this physical offset on.
    key: list[str] = _given("keys")  # Keys and unique keys.
    queue: list[Long] = _given("queue_ids")  # Numbers of queues.
    tag: list[str] = _given("tags")  # Tags.
    to: Long = at("to_timestamp", optional=True)  # Stored before then, epoch ms.
    to_offset: Long = at("to_offset", optional=True)  # Before this physical offset.
    topic: list[str] = _given("topics")  # Topics, or patterns.
    transaction: list[str] = _given("transactions")  # Types of transaction.
