"""Records with the same names: what a few of them have in common is only a guess about the others."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.formats.properties import PROPERTY_SEPARATOR
from rmqtool.scan.hashing import WINDOW
from rmqtool.scan.properties import PropertyTable, positions_of
from rmqtool.scan.uniform_properties import find_uniform

USUAL = {"TRACE_ON": "true", "KEYS": "order-1", "UNIQ_KEY": "0A010203", "CLUSTER": "DefaultCluster", "WAIT": "true"}


def found(records: list[dict[str, str]]) -> list[list[tuple[str, str]]] | None:
    """The maps of records with these properties, when they have the same names; the table must say the same."""
    texts = ["".join(f"{name}\1{value}\2" for name, value in record.items()).encode() for record in records]
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    stops = positions_of(PROPERTY_SEPARATOR, data)
    expected = [list(record.items()) for record in records]
    assert PropertyTable(data, stops, ends).maps().to_pylist() == expected
    same = find_uniform(data, stops, ends)
    if same is None:
        return None
    maps = same.maps().to_pylist()
    assert maps == expected
    return expected


def test_same_names_and_constant_values() -> None:
    records = [{**USUAL, "KEYS": f"order-{number}", "TAGS": "Tag" * (number % 3 + 1)} for number in range(100)]
    assert found(records)


@pytest.mark.parametrize("row", [1, 49, 51, 98])
@pytest.mark.parametrize("name", list(USUAL))
@pytest.mark.parametrize("value", ["x", "true ", "other than all the rest, and longer than a window of bytes is" * 2])
def test_a_value_differs_where_no_sample_was_taken(row: int, name: str, value: str) -> None:
    records = [dict(USUAL) for _ in range(100)]
    records[row][name] = value
    assert found(records)


@pytest.mark.parametrize("row", [0, 1, 50, 51, 98, 99])
@pytest.mark.parametrize("name", list(USUAL))
def test_one_name_differs(row: int, name: str) -> None:
    records = [dict(USUAL) for _ in range(100)]
    other = name[:-1] + "x"
    records[row] = {other if key == name else key: value for key, value in USUAL.items()}
    assert found(records) is None


@pytest.mark.parametrize("row", [0, 1, 50, 98, 99])
def test_names_in_another_order(row: int) -> None:
    records = [dict(USUAL) for _ in range(100)]
    records[row] = dict(reversed(USUAL.items()))
    assert found(records) is None


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [1, WINDOW - 6, WINDOW - 5, WINDOW, 3 * WINDOW])
def test_few_records_with_long_names_and_values(count: int, size: int) -> None:
    records = [{"a": "b", "n" * size: "value", "KEYS": "k" * size} for _ in range(count)]
    assert found(records)
    records[-1] = {"a": "b", "n" * (size - 1) + "m": "value", "KEYS": "k" * size}
    assert (found(records) is None) is (count > 1)
