"""The figures of the last run of each proof, as files that are committed with what they are of."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]
_PROGRAM = ("rmqtool", "formats")
_SHOWN = 8  # digits of a commit


@dataclass(frozen=True)
class Result:
    """One run: its command, the commit that it was of, when, how long in seconds, its seed, and a row for each part.

    `program` is the same for all commits that have the same `rmqtool/` and `formats/`; `note` is a sentence of whoever
    has run it.
    """

    command: str
    commit: str
    day: str
    seconds: int
    seed: str
    rows: Sequence[Mapping[str, Any]]
    program: str = ""
    note: str = ""


def commit() -> str:
    """The last commit that others have, too, with a plus sign where the program has been changed since."""
    base = _git("merge-base", "HEAD", "@{upstream}") or _git("rev-parse", "HEAD")
    return base[:_SHOWN] + ("+" if _git("diff", "--name-only", base, "--", *_PROGRAM) else "")


def program() -> str:
    """What `rmqtool/` and `formats/` are, as long as nothing in them is changed."""
    if _git("status", "--porcelain", "--", *_PROGRAM):
        return ""
    return _git("hash-object", "--stdin", given=_git("ls-tree", "HEAD", *_PROGRAM) + "\n")[:_SHOWN]


def record(name: str, command: str, seconds: float, seed: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep the figures of a run, in place of those of the last one of that name."""
    day = datetime.now(timezone.utc).date().isoformat()
    result = Result(command, commit(), day, round(seconds), seed, rows, program())
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def recorded(name: str) -> Result | None:
    """The last run of a name; None without one."""
    path = HERE / f"{name}.json"
    return Result(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _git(*arguments: str, given: str = "") -> str:
    """What git says of something; nothing where it fails."""
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, input=given).stdout.strip()
