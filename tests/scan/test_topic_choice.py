"""Topics by name and by pattern: the choice itself, and what commands find with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rmqtool.scan.filters import TopicChoice

TOPICS = ["orders", "orders_eu", "%RETRY%orders", "payments", "a.b", "aXb", "two\nlines"]


@pytest.mark.parametrize(
    ("wanted", "excluded", "chosen"),
    [
        ((), (), TOPICS),
        (("orders",), (), ["orders"]),
        (("orders*",), (), ["orders", "orders_eu"]),
        (("*orders*",), ("%RETRY%*",), ["orders", "orders_eu"]),
        ((), ("*orders*", "a.b"), ["payments", "aXb", "two\nlines"]),
        (("a.b",), (), ["a.b"]),
        (("*",), ("payments",), [topic for topic in TOPICS if topic != "payments"]),
        (("orders", "pay*"), ("orders",), ["payments"]),
        (("two*",), (), ["two\nlines"]),
        (("order",), (), []),
    ],
)
def test_choice(wanted: tuple[str, ...], excluded: tuple[str, ...], chosen: list[str]) -> None:
    """One by one, in a column, and of the topics of a store."""
    choice = TopicChoice(wanted, excluded)
    assert [topic for topic in TOPICS if topic in choice] == chosen
    column = pa.array([*TOPICS, *reversed(TOPICS)])
    assert np.asarray(column)[choice.mask(column)].tolist() == [*chosen, *reversed(chosen)]
    assert [topic for topic in choice.among(TOPICS) if topic in TOPICS] == chosen


def test_a_missing_topic_is_none_of_those_that_are_wanted() -> None:
    """But it is no excluded one either."""
    column = pa.array([None, "orders"])
    assert TopicChoice(("orders",)).mask(column).tolist() == [False, True]
    assert TopicChoice((), ("orders",)).mask(column).tolist() == [True, False]


def test_names() -> None:
    """Hashes and keys of a database need whole names."""
    assert TopicChoice(("b", "a", "b")).names == ("b", "a")
    assert TopicChoice(("b", "a"), ("a*",)).names == ("b",)
    assert TopicChoice(("b*",)).names is None
    assert TopicChoice((), ("a",)).names is None


def test_many_patterns_are_one_expression() -> None:
    """So the topics of 40,000 queues are not compared with each pattern in turn."""
    choice = TopicChoice(tuple(f"topic{number}*" for number in range(1000)))
    assert "topic999-x" in choice
    assert "topi" not in choice
