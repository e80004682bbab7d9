"""Decoders of bodies for tests: packages that bring functions, commands, and whether their processes have ended."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """import base64, sys, zlib
for line in sys.stdin:
    body = base64.b64decode(line)
    print(len(body), zlib.crc32(body))"""
DIGESTS = f"lines:{sys.executable} -ISuc '{_PROGRAM}'"
"""The size and the CRC of each body, see `digest`."""


def digest(body: bytes) -> str:
    """What DIGESTS makes of a body."""
    return f"{len(body)} {zlib.crc32(body)}"


SOURCE = """
import json

def decode_order(body, message):
    return f"{message['topic']} {message['queue_offset']} {message['properties'].get('KEYS')}: {len(body)}"

def as_dict(body, message):
    return {"size": len(body), "tags": message["tags"], "état": [None]}

def as_list(body, message):
    return [len(body)]

def nothing(body, message):
    return None

def number(body, message):
    return 7

def data_frame(body, message):
    import pandas
    return pandas.DataFrame.__name__

def half(body, message):
    return "\\ud800"

def long(body, message):
    return "é" * (9 << 20)

def failing(body, message):
    raise ValueError("first line\\n  second line" + "x" * 2000)

def ending(body, message):
    raise SystemExit(3)

def not_json(body, message):
    return {"size": {1, 2}}

constant = 4711
"""


def install_decoders(folder: Path) -> Path:
    """A package in `folder` whose decoders are named as the functions of SOURCE, as if installed; for `sys.path`."""
    names = [line.split("(")[0].removeprefix("def ") for line in SOURCE.splitlines() if line.startswith("def ")]
    (folder / "shop_decoding.py").write_text(SOURCE)
    info = folder / "shop_decoding-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-decoding\nVersion: 1.0\n")
    points = [f"{name.replace('_', '-')} = shop_decoding:{name}" for name in (*names, "constant", "missing")]
    (info / "entry_points.txt").write_text("\n".join(("[rmqtool.decoders]", *points, "absent = not_installed:decode")))
    return folder


def assert_gone(pids: Sequence[int]) -> None:
    """Soon none of these processes runs any more; nobody may have waited for them yet."""
    deadline = time.monotonic() + 10
    while (running := list(filter(_is_running, pids))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running == []


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_in(path: Path) -> list[int]:
    """The numbers that decoders have left in a file."""
    return [int(line) for line in path.read_text().split()]
