"""pandas beside the program: no command loads it, though pyarrow would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import ROOT, environment, finish, spawn
from tests.decoding import install_decoders

pytest.importorskip("pandas")

STORE = "examples/store"
COMMANDS = (
    f"inspect {STORE} --scan --json", f"verify {STORE}", f"verify {STORE} -j 2", f"clean {STORE} --dry-run",
    f"rebuild-cq {STORE} --dry-run", f"query {STORE} --key ORD-1001 --body-format json", f"pending {STORE}",
    f"report {STORE} -o OUT/report.html", f"export {STORE} --engine local -o OUT/messages",
    f"export {STORE} --engine local --format csv -o OUT/csv",
)  # fmt: skip
RUN_EACH = """
import sys
from rmqtool.__main__ import main
for command in sys.argv[1:]:
    sys.argv = ["rmqtool", *command.split()]
    try:
        main()
    except SystemExit as end:
        if end.code not in (0, 1) or "pandas.core" in sys.modules:
            sys.exit(f"{command}: {end.code}")
"""


@pytest.mark.slow
def test_no_command_loads_pandas(tmp_path: Path) -> None:
    """One after the other in one process; those that two processes share in both."""
    commands = [each.replace("OUT", str(tmp_path)) for each in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", RUN_EACH, *commands],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    assert "pyarrow.lib" in modules(done.stderr)
    assert "pandas.core" not in modules(done.stderr)  # of pandas itself pyarrow is told that it is not there


@pytest.mark.slow
def test_a_decoder_may_use_it(tmp_path: Path) -> None:
    variables = environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(install_decoders(tmp_path))]))
    asked = ("query", STORE, "--key", "ORD-1001", "--decoder", "data-frame", "--json")
    message, *_ = finish(spawn(*asked, env=variables)).out.splitlines()
    assert json.loads(message)["body_decoded"] == "DataFrame"


@pytest.mark.slow
def test_without_hiding_it_is_loaded() -> None:
    """What the test above sees of a pyarrow that finds it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import pyarrow; pyarrow.array([1])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "pandas.core" in modules(done.stderr)


def modules(report: str) -> set[str]:
    return {line.rsplit("|", 1)[1].strip() for line in report.splitlines() if line.startswith("import time:")}
