"""The site of docs/: every page is in its menu, and every link and anchor leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    names = ["--strict", "--quiet", "-f", str(ROOT / ".mkdocs.yml"), "-d", str(tmp_path)]
    command = [sys.executable, "-m", "mkdocs", "build", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name in ("index", "README") else name
        assert (tmp_path / folder / "index.html").is_file()
