"""The pictures of terminals show what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pictures

pytestmark = pytest.mark.budget(4)  # a program of its own


@pytest.mark.parametrize("scene", pictures.SCENES, ids=lambda scene: scene.name)
def test_a_picture_is_what_the_program_prints(scene: pictures.Scene, tmp_path: Path) -> None:
    """``python -m tests.pictures`` writes them again; no font or script is loaded from elsewhere."""
    kept = (pictures.FOLDER / f"{scene.name}.svg").read_text(encoding="utf-8")
    assert pictures.words_of(kept) == pictures.words_of(pictures.picture(scene, tmp_path))
    assert "url(http" not in kept
    assert len(kept) < 32 << 10
