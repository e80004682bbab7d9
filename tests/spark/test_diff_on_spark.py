"""`rmqtool diff --by-message --engine spark` says what this machine says without Spark."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import ROOT
from tests.diff.message_pairs import changed, messages_of, store_of
from tests.spark.sessions import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_same_answer(tmp_path: Path) -> None:
    """Of random messages, some of them lost, repeated, or with another body, in random order."""
    require_spark()
    chance = random.Random(7)
    first = messages_of(chance, 150)
    second = changed(first, chance)
    a, b = store_of(tmp_path / "a", first, chance), store_of(tmp_path / "b", second, chance)
    options = "--exclude-topic", "pay*", "--limit", "10"
    on_spark, here = (compared(a, b, *options, "--engine", engine) for engine in ("spark", "local"))
    assert on_spark.pop("engine") == "spark"
    assert here.pop("engine") == "local"
    for result in (on_spark, here):
        assert result["only_a"]["messages"] > len(result["only_a"]["listed"])
        result["a"].pop("left_out")
        result["b"].pop("left_out")
    assert on_spark == here


def compared(*arguments: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "rmqtool", "diff", *map(str, arguments), "--by-message", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result
