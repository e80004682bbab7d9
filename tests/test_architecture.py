"""docs/architecture.md shows the house as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rooms import ROOT
from tests.rooms_picture import PAGE, with_picture, without_detours

DOCUMENTS = (PAGE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "decisions").glob("*.md")))
_FILE = re.compile(r"`((?!STORE/)(?:[\w.-]+/)+[\w*.-]*)`")


@pytest.mark.budget(1)
def test_the_picture_is_that_of_the_imports() -> None:
    """`python -m tests.rooms_picture` writes it again."""
    page = PAGE.read_text()
    assert with_picture(page) == page


def test_a_detour_makes_an_arrow_needless() -> None:
    imports: dict[str, set[str]] = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert list(without_detours(imports)) == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_are_there(document: Path) -> None:
    """In the tree or in a room; a name with a star stands for several."""
    for name in _FILE.findall(document.read_text()):
        assert any([*ROOT.glob(name.rstrip("/")), *(ROOT / "rmqtool").glob(name.rstrip("/"))]), name
