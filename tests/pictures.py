"""Pictures of terminals in README and docs: ``python -m tests.pictures`` writes them, a test holds them.

Each is what a terminal of 100 columns shows of a command on a copy of the example store, as an SVG without fonts or
scripts from elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import html
import io
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich import _export_format as rich_format
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
_COLUMNS, _ROWS = 100, 40
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", rich_format.CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", _FONTS
)
_MODIFIED = 1795262400  # of all files, epoch s: 2026-11-21T12:00:00Z
_SECONDS = re.compile(r"(?<=; )\d[\d.]* m?s\b")  # how long a run took


class Scene(NamedTuple):
    """A command on a copy of the example store, what was done to the copy before, and how many last lines are shown."""

    name: str
    command: str
    damage: Callable[[Path], None] = lambda store: None
    last: int | None = None


def _crash(store: Path) -> None:
    """A kill, and a damaged page in the middle of the log."""
    (store / "abort").touch()
    with (store / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(20000)
        log.write(bytes(700))


SCENES = (
    Scene("verify", "rmqtool verify store --broker-version 5.3.3", _crash, 34),
    Scene("trace", "rmqtool query store --key ORD-1010 --topic payments --trace --time-zone UTC"),
    Scene("inspect", "rmqtool inspect store --time-zone UTC"),
)


def picture(scene: Scene, folder: Path) -> str:
    """The SVG of a scene that is played in an empty folder."""
    store = folder / "store"
    shutil.copytree(ROOT / "examples" / "store", store)
    for path in (store, *store.rglob("*")):
        os.utime(path, (_MODIFIED, _MODIFIED))
    scene.damage(store)
    shown = _SECONDS.sub("0.1 s", _in_terminal(scene.command, folder)).replace("\r\n", "\n").rstrip("\n").split("\n")
    lines = shown[-scene.last :] if scene.last else shown
    text = "\n".join([f"\x1b[1m$ {scene.command}\x1b[0m", *(["..."] if len(lines) < len(shown) else []), *lines])
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), soft_wrap=True)
    return console.export_svg(title="rmqtool", code_format=_FORMAT, unique_id=scene.name)


def _in_terminal(command: str, folder: Path) -> str:
    """What a terminal gets of a command: both outputs, with colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": str(_COLUMNS),
        "TZ": "UTC",
        "PYTHONPATH": str(ROOT),
    }
    for name in ("NO_COLOR", "FORCE_COLOR", "RMQTOOL_COLOR", "PAGER"):
        environment.pop(name, None)
    words = [sys.executable, "-m", "rmqtool", *shlex.split(command)[1:], "--no-pager", "--progress", "never"]
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        read = bytearray()
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError as end:  # Linux says so of a terminal that nobody has open
                if end.errno != errno.EIO:
                    raise
                break
            if not piece:
                break
            read += piece
    os.close(ours)
    return read.decode()


def words_of(svg: str) -> list[str]:
    """What stands in a picture, whatever the version of rich has made of it."""
    return "".join(html.unescape(text).replace("\xa0", " ") for text in re.findall(r">([^<]+)</text>", svg)).split()


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for scene in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            (FOLDER / f"{scene.name}.svg").write_text(picture(scene, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
