"""The objects of JSON: each kind is a class that names its fields once, for the JSON and for its published schema.

A field is read from what is shown: from its attribute of the same name, from another place (``= at("file.size")``), or
by a function of it and of what is around it (``= by(...)``). In `docs/schema` the docstring of the class is the title
of the object, and the comment at a field, or above it, says what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rmqtool.base.times import Moment, rfc3339

Read = Callable[[Any, Any], Any]


class _Rule:
    def __init__(self, read: Read) -> None:
        self.read = read


def by(read: Read) -> Any:
    """A field that a function makes of what is shown, and of what is around it."""
    return _Rule(read)


def at(place: str) -> Any:
    """A field that stands in an attribute of another name, or of an attribute."""
    found = attrgetter(place)
    return _Rule(lambda shown, _: found(shown))


def same() -> Any:
    """An object that shows another part of the same."""
    return _Rule(lambda shown, _: shown)


class Shape:
    """A kind of object, whose values are in others."""

    @classmethod
    def of(cls, shown: Any, around: Any = None) -> dict[str, Any]:
        """What is shown, as JSON."""
        return as_json(cls, shown, around)


def as_json(kind: type, shown: Any, around: Any = None) -> dict[str, Any]:
    """The JSON of an object that is shown by a Shape, or that is a dataclass: then all its fields are."""
    found: dict[str, Any] = {}
    for name, part, is_list, read in _fields(kind):
        value = read(shown, around)
        if part is Moment:
            found |= {f"{name}_timestamp": value, f"{name}_time": rfc3339(value)}
        elif part is None or value is None:
            found[name] = value
        else:
            found[name] = [as_json(part, each, around) for each in value] if is_list else as_json(part, value, around)
    return found


@cache
def _fields(kind: type) -> list[tuple[str, Any, bool, Read]]:
    """For each field its name, the kind of objects in it or Moment, whether it has many, and how it is read."""
    fields = get_type_hints(kind, include_extras=True).items()
    rules = {name: rule for name, _ in fields if isinstance(rule := getattr(kind, name, None), _Rule)}
    return [(name, *_kind(hint), rules.get(name, at(name)).read) for name, hint in fields]


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
    command: str | None  # The command that was interrupted.
    outcome: Literal["finished", "rolled_back", "abandoned"]  # What was done about it.
