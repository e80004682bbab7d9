"""Bytes found in many texts at once are where they are found in one text at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan.windows import WINDOW, WORD, Texts, positions_of, texts_before

BYTE = 2
TEXTS = st.lists(st.text("\0\1\2\3\x82", max_size=3 * WINDOW).map(lambda text: text.encode("latin-1")), max_size=6)


@given(TEXTS, st.integers(1, 2 * WINDOW))
def test_a_byte_in_texts(texts: list[bytes], usual: int) -> None:
    """Neighbours of the byte, and texts of more than a window; what stands after a text does not count."""
    data = np.frombuffer(b"\2".join(texts) + b"\2" * WINDOW, np.uint8)
    sizes = np.array([len(text) for text in texts], dtype=np.intp)
    starts = np.cumsum(sizes + 1) - sizes - 1
    whole = Texts(data, starts, sizes)
    assert whole.hold(BYTE) is any(BYTE in text for text in texts)
    found = texts_before(BYTE, data, starts, sizes, usual)
    assert [found.text(row) for row in range(len(texts))] == [text.partition(b"\2")[0] for text in texts]
    for each in (whole, found):
        width = each.words.shape[1] * WORD
        windows = [bytes(row)[:WINDOW] for row in each.words.view(np.uint8)]
        assert windows == [each.text(row)[:WINDOW].ljust(width, b"\0") for row in range(len(texts))]


@given(st.lists(st.sampled_from([0, 1, 2, 3, 130]), max_size=40))
def test_all_positions_of_a_byte(values: list[int]) -> None:
    """Also several in one word."""
    data = np.array([*values, 0, 0, 0], dtype=np.uint8)
    assert positions_of(BYTE, data).tolist() == [at for at, value in enumerate(values) if value == BYTE]
