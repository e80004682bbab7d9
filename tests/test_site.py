"""The site of docs/: every page is in its menu, links and anchors lead somewhere, and nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / ".mkdocs.yml"
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]+)", re.IGNORECASE)


def in_menu(entries: list[Any]) -> Iterator[str]:
    """The pages of a menu and of the menus in it."""
    for entry in entries:
        for each in entry.values() if isinstance(entry, dict) else [entry]:
            yield from in_menu(each) if isinstance(each, list) else [each]


def test_every_page_is_in_the_menu_once() -> None:
    menu = list(in_menu(load_config(str(CONFIG))["nav"]))
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(menu) == sorted(pages)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """With ``--quiet`` mkdocs counts no warning: its exit status would say nothing."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG), "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name in ("index", "README") else name
        html = (tmp_path / folder / "index.html").read_text(encoding="utf-8")
        assert LOADED.findall(html) == [], page
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {"Disk full"} <= {each["title"] for each in index["docs"] if "runbook" in each["location"]}
