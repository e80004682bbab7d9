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
    """Of random messages, some of them lost, repeated, or with another body, in random order.

    Of a broker.conf with several commit log paths the other store takes none, which has a log of its own.
    """
    require_spark()
    chance = random.Random(7)
    first = messages_of(chance, 150)
    second = changed(first, chance)
    a, b = store_of(tmp_path / "a", first, chance), store_of(tmp_path / "b", second, chance)
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    for number, file in enumerate(sorted((a / "commitlog").iterdir())):
        disks[number % 2].mkdir(exist_ok=True)
        file.rename(disks[number % 2] / file.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={a}\nstorePathCommitLog={disks[0]},{disks[1]}\n")
    options = "--broker-conf", conf, "--exclude-topic", "pay*", "--limit", "10"
    on_spark = compared(a, b, *options, "--engine", "spark")
    here = compared(a, b, *options, "--engine", "local")
    assert on_spark.pop("engine") == "spark"
    assert here.pop("engine") == "local"
    for result in (on_spark, here):
        for side, messages in (("a", first), ("b", second)):
            assert result[side]["messages"] == sum(each.topic != "payments" for each in messages)
            result[side].pop("left_out")
            only = result[f"only_{side}"]
            assert only["messages"] > len(only["listed"]) == 10
            assert only["other_body"] > 0
    assert on_spark["only_b"]["repeated"] > 0
    assert on_spark == here


def compared(*arguments: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "rmqtool", "diff", *map(str, arguments), "--by-message", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result
