"""Arguments of Python programs, checked where they come in, by the annotations of the function that gets them."""

from __future__ import annotations

import inspect
import os
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

from rmqtool.base.errors import UsageError
from rmqtool.base.numbers import Bounds

P = ParamSpec("P")
R = TypeVar("R")
_ALTERNATIVE = re.compile(r"\s*\|\s*(?![^\[]*\])")  # not inside of brackets


class _Kind(NamedTuple):
    """One type that a value may have: what people call it, whether a value has it, and how the function gets it.

    Numbers come as Python's own: those of NumPy wrap around, and those without a sign mix with no others.
    """

    words: str
    fits: Callable[[object], bool]
    plain: Callable[[Any], Any] = lambda value: value


def checked(**bounds: Bounds) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise UsageError for an argument of another type than annotated, or out of `bounds`, by name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def check(*arguments: P.args, **named: P.kwargs) -> R:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError:  # of a name that there is not; Python says it better with the function's own
                return function(*arguments, **named)
            for name, value in bound.arguments.items():
                annotation = signature.parameters[name].annotation
                if annotation is not inspect.Parameter.empty:
                    bound.arguments[name] = _plain(name, value, annotation, bounds.get(name))
            return function(*bound.args, **bound.kwargs)

        return check

    return decorate


def _plain(name: str, value: object, annotation: str, bounds: Bounds | None) -> Any:
    """The value as the function gets it."""
    kinds = [_kind(each) for each in _ALTERNATIVE.split(annotation)]
    kind = next((each for each in kinds if each.fits(value)), None)
    numbers = value if isinstance(value, Collection) and not isinstance(value, (str, bytes)) else (value,)
    if kind and (bounds is None or all(each in bounds for each in numbers if isinstance(each, Real))):
        return kind.plain(value)
    limits = f" {bounds}" if bounds else ""
    words = [_NUMBER.sub(rf"\g<0>{limits}", each.words) for each in kinds if each.words]
    found = reprlib.repr(value) + ("" if kind else f" ({type(value).__name__})")
    raise UsageError(f"{name} is {' or '.join(words)}, not {found}")


_NUMBER = re.compile(r"\bnumber$")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _all(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Whether a value is a collection whose members fit."""
    return lambda value: isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping)) and all(
        map(fits, value)
    )  # fmt: skip


_PLACE = (_is_text, _is_whole, _is_whole)
_KINDS = {
    "None": _Kind("", lambda value: value is None),
    "str": _Kind("a text", _is_text),
    "bytes": _Kind("bytes", lambda value: isinstance(value, bytes)),
    "bool": _Kind("True or False", lambda value: _is_named(value, "bool", "bool_"), bool),  # also those of NumPy
    "int": _Kind("a whole number", _is_whole, int),
    "float": _Kind(
        "a number",
        lambda value: isinstance(value, Real) and not isinstance(value, bool),
        lambda value: value if isinstance(value, (int, float)) else float(value),
    ),
    "Path": _Kind("a path", lambda value: isinstance(value, os.PathLike)),
    "Sequence[str]": _Kind("a list of strings", _all(_is_text)),
    "Sequence[int]": _Kind("a list of whole numbers", _all(_is_whole), lambda value: tuple(map(int, value))),
    "Mapping[str, str]": _Kind(
        "a mapping of strings to strings",
        lambda value: isinstance(value, Mapping) and all(_is_text(each) for pair in value.items() for each in pair),
    ),
    "tuple[str, int, int]": _Kind(
        "a topic, a queue id and a queue offset",
        lambda value: (
            isinstance(value, tuple)
            and len(value) == len(_PLACE)
            and all(fits(each) for fits, each in zip(_PLACE, value, strict=True))
        ),
        lambda value: (value[0], int(value[1]), int(value[2])),
    ),
}


@cache
def _kind(annotation: str) -> _Kind:
    """The kind that one alternative of an annotation names."""
    if annotation in _KINDS:
        return _KINDS[annotation]
    if annotation == "Time":
        return _Kind(
            "a time (a datetime, epoch ms or a string)",
            lambda value: _is_whole(value) or _is_named(value, "datetime", "str"),
            lambda value: int(value) if _is_whole(value) else value,
        )
    if annotation.startswith("Callable"):
        return _Kind("a function", callable)
    choices = _choices(annotation)
    if choices:
        *others, last = map(repr, choices)
        return _Kind(f"{', '.join(others)} or {last}", lambda value: isinstance(value, str) and value in choices)
    return _Kind(f"a {annotation}", lambda value: _is_named(value, annotation))


def _choices(annotation: str) -> tuple[str, ...]:
    """The texts that a `Literal` allows."""
    if annotation == "BodyChoice":
        from rmqtool.scan.message_rows import BodyChoice

        return get_args(BodyChoice)
    return tuple(re.findall(r"['\"]([^'\"]*)['\"]", annotation)) if annotation.startswith("Literal[") else ()


def _is_named(value: object, *names: str) -> bool:
    """Whether a value is of a class with one of these names, which need not be loaded to know that it is not."""
    return any(each.__name__ in names for each in type(value).__mro__)
