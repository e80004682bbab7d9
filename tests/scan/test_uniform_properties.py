"""Records with the same names: what a few of them have in common is only a guess about the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.properties import PROPERTY_SEPARATOR
from rmqtool.scan.properties import PropertyTable, find_uniform
from rmqtool.scan.windows import WINDOW, positions_of

USUAL = {"TRACE_ON": "true", "KEYS": "order-1", "UNIQ_KEY": "0A010203", "CLUSTER": "DefaultCluster", "WAIT": "true"}


def found(records: list[dict[str, str]]) -> list[list[tuple[str, str]]] | None:
    """The maps of records with these properties, when they have the same names; the table must say the same."""
    texts = ["".join(f"{name}\1{value}\2" for name, value in record.items()).encode() for record in records]
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    expected = [list(record.items()) for record in records]
    table = PropertyTable(data, positions_of(PROPERTY_SEPARATOR, data), ends)
    assert table.maps().to_pylist() == expected
    starts = np.append(0, ends[:-1])
    same = find_uniform(data, starts, ends)
    without_last = find_uniform(data, starts, ends - 1)  # as brokers of 5.x write it
    assert (same is None) is (without_last is None)
    if same is None or without_last is None:
        return None
    for uniform in (same, without_last):
        assert uniform.maps().to_pylist() == expected
        for name in expected[0]:
            assert uniform.column(name[0].encode()).equals(table.column(name[0].encode()))
            values = uniform.texts(name[0].encode())
            assert [values.text(row).decode() for row in range(len(expected))] == [
                dict(record)[name[0]] for record in expected
            ]
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


@pytest.mark.parametrize("row", [0, 1, 50, 98, 99])
@pytest.mark.parametrize("others_end", [True, False])
def test_only_some_records_have_a_separator_at_their_end(row: int, others_end: bool) -> None:
    """In a table each has its own."""
    texts = [b"KEYS\1k\2TAGS\1a" + (b"\2" if (number == row) is not others_end else b"") for number in range(100)]
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    assert find_uniform(data, np.append(0, ends[:-1]), ends) is None


@pytest.mark.parametrize("row", [1, 49, 98])
@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "TAGS"])
@pytest.mark.parametrize("inside", [b"\2", b"\2X\1", b"\1"])
def test_a_separator_inside_a_value(row: int, name: str, inside: bytes) -> None:
    """A value of the usual size that ends early: then there is one piece more; 0x01 is part of the value."""
    values = [{"KEYS": b"%06d" % n, "UNIQ_KEY": b"%032d" % n, "TAGS": b"t" * (n % 5 + 5)} for n in range(100)]
    value = values[row][name]
    values[row][name] = value[:2] + inside + value[2 + len(inside) :]
    texts = [b"".join(key.encode() + b"\1" + each + b"\2" for key, each in record.items()) for record in values]
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    uniform = find_uniform(data, np.append(0, ends[:-1]), ends)
    assert (uniform is None) is (inside != b"\1")
    if uniform is not None:
        assert uniform.column(name.encode())[row].as_py().encode() == values[row][name]


@pytest.mark.parametrize("row", [0, 1, 49, 98])
@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "TAGS"])
def test_a_value_is_empty(row: int, name: str) -> None:
    """Then it is no property, and the record has other names."""
    values = [{"KEYS": "k" * (n % 3 + 1), "UNIQ_KEY": f"{n:032}", "TAGS": "t" * (n % 5 + 5)} for n in range(100)]
    values[row][name] = ""
    texts = ["".join(f"{key}\1{each}\2" for key, each in record.items()).encode() for record in values]
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    assert find_uniform(data, np.append(0, ends[:-1]), ends) is None


CRC = "__CRC32#\x019876543210\x02"


def compared(texts: list[bytes], *, with_crc: bool) -> bool:
    """Whether the properties in `texts` are found to be uniform; then the table of properties must say the same."""
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    starts = np.append(0, ends[:-1])
    uniform = find_uniform(data, starts, ends, with_crc=with_crc)
    if uniform is None:
        return False
    assert (
        uniform.maps().to_pylist()
        == PropertyTable(data, positions_of(PROPERTY_SEPARATOR, data), ends).maps().to_pylist()
    )
    return True


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 90), min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from(b"\x01\x02ae")), max_size=2),
    st.booleans(),
)
def test_any_damage_of_values_between_others(sizes: list[int], changes: list[tuple[int, int]], with_crc: bool) -> None:
    """What stands past the last value of open size is compared from where it ends, not from where it should begin."""
    usual = [
        f"KEYS\x01{'k' * size}\x02TAGS\x01{'t' * (size % 7 + 1)}\x02WAIT\x01true\x02R\x01{size:02}\x02"
        for size in sizes
    ]
    records = [bytearray(text.encode()) for text in usual]
    for at, byte in changes:
        record = records[at % len(records)]
        record[at // len(records) % len(record)] = byte
    ends = all(record.endswith(b"\x02") for record in records)
    texts = [bytes(record) + CRC.encode() * with_crc for record in records]
    assert compared(texts, with_crc=with_crc) or changes
    assert ends or not compared(texts, with_crc=with_crc)


@pytest.mark.parametrize("name", ["__CRC32#", "KEYS"])
def test_a_crc_that_is_known_to_stand_at_the_end(name: str) -> None:
    texts = [f"{name}\x01key-{number}\x02{CRC}".encode() for number in range(50)]
    assert compared(texts, with_crc=True) is (name == "KEYS")
    assert not compared([text.replace(b"\x02__", b"__", 1) for text in texts], with_crc=True)  # a part of the value
