"""Hashes of many texts at once are those of Java, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.java import decode_text, string_hash
from rmqtool.scan.windows import WINDOW, Texts, hash_texts


def hashes_of(texts: list[bytes]) -> tuple[list[int], list[int]]:
    data = np.frombuffer(b"".join(texts) + bytes(WINDOW), np.uint8)
    sizes = np.array([len(text) for text in texts], dtype=np.intp)
    found = hash_texts(Texts(data, np.cumsum(sizes) - sizes, sizes))
    return found.values.tolist(), found.lengths.tolist()


def expected(texts: list[bytes]) -> tuple[list[int], list[int]]:
    decoded = [decode_text(text) for text in texts]
    lengths = [len(text.encode("utf-16-be", "surrogatepass")) // 2 for text in decoded]
    return [string_hash(text) % (1 << 32) for text in decoded], lengths


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
def test_any_bytes(texts: list[bytes]) -> None:
    """Text of every length, and what is no text."""
    assert hashes_of(texts) == expected(texts)


@pytest.mark.slow
@given(st.lists(st.text(max_size=80), min_size=1, max_size=8))
def test_any_text(texts: list[str]) -> None:
    """Characters of one, two and four bytes."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    assert hashes_of(encoded) == expected(encoded)


def test_the_longest_property() -> None:
    """As long as a property can be."""
    texts = [bytes(range(32, 127)) * 344, b"polygenelubricants", b""]
    assert hashes_of(texts) == expected(texts)


def test_what_is_not_ascii_stands_behind_the_first_window() -> None:
    """Of the other texts one is as long and ASCII, one not ASCII and short."""
    texts = [b"a" * 3 * WINDOW, b"a" * 2 * WINDOW + "é".encode(), "订单".encode(), b"a" * WINDOW + b"\xff" * WINDOW]
    assert hashes_of(texts) == expected(texts)
