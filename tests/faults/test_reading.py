"""Some reads of golden stores that fail, end early, come in pieces or change; `make reads` tries all of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.commands.running import ROOT
from tests.faults.reading import MODES, Ended, Fault, problem_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler, and preloaded libraries of Linux"
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "every"), [("5.3.3-single", 30), ("more/5.5.0-rocksdb", 500)])
def test_some_reads(name: str, every: int) -> None:
    """Each ends with what it is owed; reads are met, so that it proves something."""
    command = [sys.executable, "-m", "tests.faults.reading", name, "--every", str(every), "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found["problems"] == []
    assert found["hits"] >= found["trials"] // 3 > 0


SOUND = Ended(0, '{"result": {"verdict": "clean"}}', "", None, 9, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_owed(mode: str) -> None:
    """A clean verdict, or a status of 0, where a read failed; a traceback, a status of no meaning, a mapped file."""
    fault = Fault("checkpoint", mode)  # type: ignore[arg-type]
    met = Ended(0, SOUND.out, "", None, 9, 1, 0)
    assert (problem_of("verify", fault, met, SOUND) is None) == (mode in ("pieces", "changes"))
    assert (problem_of("verify", fault, Ended(1, SOUND.out, "", None, 9, 1, 0), SOUND) is None) == (mode == "changes")
    assert problem_of("verify", fault, SOUND, SOUND) is None
    assert problem_of("inspect", fault, Ended(None, "", "", "IndexError", 9, 1, 0), SOUND)
    assert problem_of("inspect", fault, Ended(9, SOUND.out, "", None, 9, 1, 0), SOUND)
    assert problem_of("inspect", fault, Ended(0, SOUND.out, "", None, 9, 0, 1), SOUND)
    silent, told = (Ended(1, "", err, None, 9, 1, 0) for err in ("nothing", "checkpoint: cannot read"))
    assert (problem_of("query --scan", fault, silent, silent) is None) == (mode in ("pieces", "changes"))
    assert problem_of("query --scan", fault, told, told) is None
    beside = Ended(0, SOUND.out, "checkpoint: cannot read", None, 9, 1, 0)
    assert (problem_of("query --key", fault, beside, SOUND) is None) == (mode in ("pieces", "changes"))
