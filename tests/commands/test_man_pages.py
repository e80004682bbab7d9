"""The man pages say what the help says, and roff understands them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.commands import man_pages


def test_the_pages_are_those_of_the_help() -> None:
    """``python -m tests.commands.man_pages`` writes them."""
    there = {path.name: path.read_text(encoding="utf-8") for path in man_pages.FOLDER.iterdir()}
    assert there == man_pages.pages()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in man_pages.FOLDER.iterdir()))
def test_roff_has_no_warning(name: str) -> None:
    """Neither an unknown request nor a line that cannot be set."""
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(man_pages.FOLDER / name)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
