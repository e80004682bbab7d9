"""What the real brokers did with damaged stores: recorded once, so that the comparison needs no Java."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "recorded.json.xz"
VERSIONS = ("4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
_OTHER_EVERY = 5
SCENARIOS = ("clean", "killed", "trimmed")

Answers = dict[str, dict[str, dict[str, Any]]]
"""By version and seed: what `Harness.judge` gives, and the files that are `deleted`."""


def name_of(version: str, seed: int) -> str:
    """The golden store that is damaged for a seed; every fifth is one of another release: an up- or downgrade."""
    writer = VERSIONS[seed // _OTHER_EVERY % len(VERSIONS)] if seed % _OTHER_EVERY == 0 else version
    return f"{writer}-{SCENARIOS[seed % len(SCENARIOS)]}"


def load() -> Answers:
    """All recorded answers."""
    answers: Answers = json.loads(lzma.decompress(FILE.read_bytes()))
    return answers


def save(answers: Answers) -> None:
    """Replace them."""
    text = json.dumps(answers, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
