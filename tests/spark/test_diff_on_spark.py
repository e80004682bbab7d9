"""`rmqtool diff --by-message --engine spark` says what this machine says without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import ROOT
from tests.spark.comparing import assert_same, compared_stores
from tests.spark.sessions import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.rare
def test_the_same_answer(tmp_path: Path) -> None:
    """With a JVM of its own; that of spark-submit gives it in `test_submit`."""
    require_spark()
    command, stores = compared_stores(tmp_path)
    assert_same(compared(command, "spark"), compared(command, "local"), stores)


def compared(command: list[str], engine: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "rmqtool", *command, "--engine", engine]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result
