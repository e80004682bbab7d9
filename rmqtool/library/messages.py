"""Messages of a store that pass filters: one by one, as record batches, as a table.

Arguments of Python programs are checked where they come in, by the annotations of the function that gets them.
"""

from __future__ import annotations

import inspect
import os
import re
import reprlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

import pyarrow as pa

from rmqtool.base.errors import UsageError
from rmqtool.base.numbers import Bounds
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import By, Lookup
from rmqtool.scan.filters import Filters
from rmqtool.store.message_reader import EXPORT_COLUMNS, Query, make_query, read_messages
from rmqtool.store.missing import unknown_topic
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import find_source, split_source
from rmqtool.store.store import NamedStore

P = ParamSpec("P")
R = TypeVar("R")
_ALTERNATIVE = re.compile(r"\s*\|\s*(?![^\[]*\])")  # not inside of brackets


def _same(value: Any) -> Any:
    return value


class _Kind(NamedTuple):
    """One type that a value may have: what people call it, whether a value has it, and how the function gets it.

    Numbers come as Python's own: those of NumPy wrap around, and those without a sign mix with no others.
    """

    words: str
    fits: Callable[[object], bool]
    plain: Callable[[Any], Any] = _same


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


def _number(value: Any) -> int | float:
    return value if isinstance(value, (int, float)) else float(value)


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
    "float": _Kind("a number", lambda value: isinstance(value, Real) and not isinstance(value, bool), _number),
    "Path": _Kind("a path", lambda value: isinstance(value, os.PathLike)),
    "Sequence[str]": _Kind("a list of texts", _all(_is_text)),
    "Sequence[int]": _Kind("a list of whole numbers", _all(_is_whole), lambda value: tuple(map(int, value))),
    "Mapping[str, str]": _Kind(
        "a mapping of texts to texts",
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
            "a time (a datetime, epoch ms or a text)",
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


_AT_ONCE = 1000  # messages that are Python objects at the same time
_WAY_OUT = "on_damage='skip'"


@dataclass(frozen=True, slots=True)
class Message:
    """One message; the fields are the columns of an export, times are aware and in UTC."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_size: int
    message_id: str
    unique_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    properties: Mapping[str, str]
    born_timestamp: datetime
    store_timestamp: datetime
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    reconsume_times: int
    body_crc: int
    transaction: str
    compression: str | None
    prepared_transaction_offset: int
    body_size: int
    body: bytes | None


class Messages:
    """Messages that pass filters, in the order of the log. Each iteration reads the log as it is then.

    Memory is that of a few batches, whatever the size of the log. Damage raises RmqtoolError, or is passed over.
    """

    def __init__(self, store: NamedStore, query: Query, snapshot: Snapshot, *, skips_damage: bool) -> None:
        self._store = store
        self._snapshot = snapshot
        self._query = query
        self._skips_damage = skips_damage

    def __iter__(self) -> Iterator[Message]:
        for batch in self._batches(replace(self._query, columns=EXPORT_COLUMNS)):
            for start in range(0, batch.num_rows, _AT_ONCE):
                for row in batch.slice(start, _AT_ONCE).to_pylist():
                    yield _message(row)

    def first(self) -> Message | None:
        """The first one, None where there is none."""
        return next(iter(self), None)

    def count(self) -> int:
        """How many there are; bodies are not read."""
        return sum(batch.num_rows for batch in self.batches(("physical_offset",)))

    @checked()
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The messages as Arrow record batches with these columns, by default those of an export.

        Raises UsageError for a column that there is not.
        """
        query = make_query(columns, self._query.body, self._query.filters, self._query.include)
        return self._batches(query)

    @checked()
    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All of them as an Arrow table, in memory."""
        query = make_query(columns, self._query.body, self._query.filters, self._query.include)
        return pa.Table.from_batches(self._batches(query), schema=query.schema)

    @checked()
    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a `pandas.DataFrame`, in memory; needs pandas."""
        return self.to_arrow(columns).to_pandas()

    def _batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        source = find_source(self._store, query.filters.start, query.filters.stop)
        rows = 0
        for split in split_source(source):
            for batch in read_messages(split, query, fails=not self._skips_damage, way_out=_WAY_OUT):
                rows += batch.num_rows
                yield batch
        # The log may have a topic that neither queues nor config name: only after reading is it a slip of the pen.
        for topic in query.filters.topics if not rows else ():
            if unknown := unknown_topic(self._snapshot, topic):
                warnings.warn(unknown, stacklevel=2)


def _message(row: dict[str, Any]) -> Message:
    row["keys"], row["properties"] = tuple(row["keys"] or ()), dict(row["properties"] or ())
    return Message(*(row.get(name) for name in _FIELDS))  # type: ignore[arg-type]


_FIELDS = tuple(field.name for field in fields(Message))


_BY: dict[str, By] = {
    "key": "key",
    "unique_key": "unique-key",
    "message_id": "msg-id",
    "offset": "offset",
    "queue_offset": "queue-offset",
    "body_contains": "scan",
}
_CHOOSING = ("key", "unique_key", "body_contains")


class Found(list[Message]):
    """Messages in the order of the log. `notes` say why there are none, or what there is beside them.

    `may_be_more`: whether damage was met that may hide more of them.
    """

    def __init__(self, messages: Iterable[Message], notes: Notes) -> None:
        super().__init__(messages)
        self.notes = tuple(notes.lines)
        self.may_be_more = notes.lossy


def lookup_of(wanted: Mapping[str, Any], filters: Filters, limit: int | None) -> Lookup:
    """The question for the one of `wanted` that is not None; raises UsageError for several, and for a wrong choice."""
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        *others, last = _BY
        raise UsageError(f"find one of {', '.join(others)} and {last}")
    [name] = given
    value = wanted[name]
    if name not in _CHOOSING and (filters != Filters() or limit is not None):
        raise UsageError(f"{name} names one message: no topic, time or limit goes with it")
    lookup = Lookup(_BY[name], filters=filters, limit=limit)
    match name:
        case "key":
            return replace(lookup, filters=replace(filters, keys=(value,)))
        case "offset":
            return replace(lookup, number=value)
        case "queue_offset":
            return replace(lookup, queue=(value[0], value[1]), number=value[2])
        case "body_contains":
            return replace(lookup, body_contains=value)
        case _:
            return replace(lookup, text=value.strip())
