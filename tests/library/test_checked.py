"""Arguments of wrong types and numbers out of range: one sentence, where they come in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqtool
from rmqtool.base.errors import UsageError
from rmqtool.library.checked import checked
from rmqtool.library.store import Store
from tests.commands.running import command_named

EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
METHODS = ("queue", "messages", "find", "verify", "clean_plan")
PARAMETERS = [
    (method, name) for method in METHODS for name in list(inspect.signature(getattr(Store, method)).parameters)[1:]
]


@pytest.fixture(scope="module")
def store() -> Store:
    return rmqtool.open(EXAMPLE)


@pytest.mark.parametrize(("method", "name"), PARAMETERS)
def test_each_parameter_of_a_store(store: Store, method: str, name: str) -> None:
    """Is checked, and named in the sentence with what is expected and found."""
    given = {"topic": "orders", "queue_id": 0} if method == "queue" else {}
    with pytest.raises(UsageError, match=rf"^{name} is [^|\[\]]+, not \{{\}} \(dict\)$|^settings is "):
        getattr(store, method)(**{**given, name: {} if name != "settings" else []})


@pytest.mark.parametrize("name", list(inspect.signature(rmqtool.open).parameters))
def test_each_parameter_of_open(name: str) -> None:
    """As those of a store."""
    given: dict[str, Any] = {"path": EXAMPLE, name: []}
    with pytest.raises(UsageError, match=rf"^{name} is .*, not \[\] \(list\)$"):
        rmqtool.open(**given)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda store: store.find(key=3), "key is a text, not 3 (int)"),
        (lambda store: store.find(queue_offset=("orders", 0)),
         "queue_offset is a topic, a queue id and a queue offset, not ('orders', 0) (tuple)"),
        (lambda store: store.verify(jobs="2"), "jobs is a whole number from 1 to 256, not '2' (str)"),
        (lambda store: store.verify(jobs=300), "jobs is a whole number from 1 to 256, not 300"),
        (lambda store: store.verify(jobs=True), "jobs is a whole number from 1 to 256, not True (bool)"),
        (lambda store: store.verify(time_limit=float("nan")), "time_limit is a number of at least 0, not nan"),
        (lambda store: store.messages(topic=["orders", 3]),
         "topic is a text or a list of strings, not ['orders', 3] (list)"),
        (lambda store: store.messages(from_offset=-1), "from_offset is a whole number of at least 0, not -1"),
        (lambda store: store.messages(queue_id=[1 << 40]),
         "queue_id is a whole number from -2147483648 to 2147483647 or a list of whole numbers, not [1099511627776]"),
        (lambda store: store.messages(include=["half"]), "include has prepared and rolled-back, not 'half'"),
        (lambda store: store.messages(on_damage="stop"), "on_damage is 'raise' or 'skip', not 'stop' (str)"),
        (lambda store: store.messages(body="text"), "body is 'decompressed', 'stored' or 'none', not 'text' (str)"),
        (lambda store: store.clean_plan(disk_used_percent=300), "disk_used_percent is a number from 0 to 100, not 300"),
        (lambda store: store.clean_plan(settings={"deleteWhen": 4}),
         "settings is a mapping of strings to strings, not {'deleteWhen': 4} (dict)"),
    ],
)  # fmt: skip
def test_sentences(store: Store, call: Callable[[Store], Any], sentence: str) -> None:
    """Parameter, expected, found."""
    with pytest.raises(UsageError) as raised:
        call(store)
    assert str(raised.value) == sentence


@pytest.mark.slow
def test_what_fits(store: Any) -> None:
    """Numbers of NumPy, any collection, and all kinds of times."""
    assert store.messages(topic={"orders"}, queue_id=np.array([0, 1])).count() == 40
    assert store.messages(queue_id=np.int64(0), to_offset=np.int64(1000)).count()
    assert len(store.find(offset=np.int64(0))) == 1
    for since in (0, "2020-01-01", datetime(2020, 1, 1, tzinfo=timezone.utc)):
        assert store.messages(since=since).count() == 181
    store.clean_plan(disk_used_percent=Fraction(1, 2))
    assert store.verify(fast=np.bool_(True)).verdict == store.verify(fast=True).verdict


@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.int16])
def test_numbers_of_numpy(kind: Callable[[int], Any]) -> None:
    """They come as Python's own: one without a sign, or with few bits, would wrap around."""
    store: Any = rmqtool.open(EXAMPLE, limit_rate=kind(1 << 14))
    assert store.snapshot.bytes_per_second == 1 << 14
    store = rmqtool.open(EXAMPLE)
    assert store.messages(from_offset=kind(100)).count() == 180
    assert store.messages(queue_id=np.array([kind(0), kind(1)])).count() == 131
    assert store.messages(since=kind(0)).count() == 181
    assert len(store.find(offset=kind(0))) == 1
    assert len(store.find(queue_offset=("orders", kind(0), kind(3)))) == 1
    assert store.queue("orders", kind(0)).queue_id == 0


@pytest.mark.parametrize("columns", ["queue_id", ["queue_id", 3], 5])
@pytest.mark.parametrize("method", ["batches", "to_arrow", "to_pandas"])
def test_columns_of_messages(store: Store, method: str, columns: Any) -> None:
    """A list, as everywhere; it says so before anything is read."""
    with pytest.raises(UsageError, match=r"^columns is a list of strings, not "):
        getattr(store.messages(), method)(columns)


def test_a_name_that_there_is_not(store: Store) -> None:
    """Python says so itself, with the name of the method."""
    with pytest.raises(TypeError, match=r"messages\(\) got an unexpected keyword argument 'limit'"):
        store.messages(limit=3)  # type: ignore[call-arg]


def test_what_a_decorated_function_is() -> None:
    """It keeps its name, its text and its parameters; what has no annotation is not checked."""

    @checked()
    def sample(number: int, other=None):  # type: ignore[no-untyped-def]
        """Text."""
        return number, other

    assert (sample.__name__, sample.__doc__) == ("sample", "Text.")
    assert sample(1, []) == (1, [])
    with pytest.raises(UsageError):
        sample("1", [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "option", "method", "name"),
    [("verify", "jobs", "verify", "jobs"), ("verify", "max_examples", "verify", "max_examples"),
     ("query", "limit", "find", "limit"), ("export", "from_offset", "messages", "from_offset"),
     ("export", "queue", "messages", "queue_id"), ("clean", "disk_used_percent", "clean_plan", "disk_used_percent")],
)  # fmt: skip
def test_commands_have_the_same_bounds(store: Store, command: str, option: str, method: str, name: str) -> None:
    """The least number and the one below it."""
    kind: Any = next(each.type for each in command_named(command).params if each.name == option)
    assert kind.min is not None
    with pytest.raises(UsageError):
        getattr(store, method)(**{name: kind.min - 1})
    assert kind.convert(str(kind.min), None, None) == kind.min
    if method != "verify":
        more = {"key": "x"} if method == "find" else {}
        getattr(store, method)(**{name: kind.min, **more})
