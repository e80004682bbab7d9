"""Some calls of commands that write fail, are killed, or lose what was not synced; `make faults` tries all of them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.commands.running import ROOT
from tests.faults.watch import CALLS, Call, calls_in, places
from tests.faults.watch import FAULTS as WATCHED
from tests.faults.writing import try_writer
from tests.transaction.faults import FAULTS


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler, and preloaded libraries of Linux"
)
@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy --update", "cut", "export --mode overwrite"])
def test_some_calls(name: str) -> None:
    """What must be true is true; runs are killed and fail, so that it proves something."""
    command = [sys.executable, "-m", "tests.faults.writing", name, "--every", "300", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found["problems"] == []
    assert {"killed", "failed"} <= found["ended"].keys()


class _Writer:
    """Goes wrong at one of its calls."""

    name = "copy"

    def names(self) -> list[str]:
        return ["write", "sync"]

    def places(self, fault: str) -> list[int]:
        return places(self.names(), WATCHED[fault])

    def trial(self, fault: str, at: int) -> str:
        assert at == 0, "a file without its end"
        return fault

    def without_power(self, chance: random.Random, every: int) -> Iterator[object]:
        return iter(())


def test_what_goes_wrong_is_told() -> None:
    """With the fault and the call; each fault comes at the calls that it is for."""
    tally = try_writer(_Writer(), ["short-once", "fail-once"], 1, random.Random(1))  # type: ignore[arg-type]
    assert tally.tried == {"short-once": 1, "fail-once": 2}
    assert tally.problems == ["copy, fail-once at call 1, sync: a file without its end"]


def test_the_faults_of_transactions_come_to_all_that_writes() -> None:
    assert {*FAULTS} <= {*WATCHED}


def test_calls_that_were_written_down() -> None:
    """A head of 24 bytes: number, kind, and the sizes of two paths and of the data."""
    head = (7).to_bytes(8, "little") + b"".join(
        number.to_bytes(4, "little") for number in (CALLS.index("write"), 2, 0, 3)
    )
    assert [*calls_in(head + b"/a" + b"xyz")] == [Call("write", "/a", "", 7, b"xyz")]
