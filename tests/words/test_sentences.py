"""The words that users see stay as they were read."""

from __future__ import annotations

import pytest

from tests.words import sentences

pytestmark = pytest.mark.budget(3)  # all of the product is parsed


def test_the_sentences_are_those_of_the_file() -> None:
    """Read the difference, then write them: ``python -m tests.words.sentences``."""
    assert sentences.text() == sentences.FILE.read_text(encoding="utf-8")
