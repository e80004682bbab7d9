"""What a command loads before it does anything: counted, for times depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.logs import make_one_message_store
from tests.commands.running import ROOT, environment

ARRAYS = {"numpy", "pyarrow"}
DATA_SETS = {"pyarrow.dataset", "pyarrow.parquet", "pyarrow.fs", "pandas.core", "pyspark"}
"""What only exports and other machines need."""

COMPUTING = "pyarrow._compute"
DOCUMENTING = "pyarrow.vendored.docscrape"  # loaded by `pyarrow.compute`, when that is filled
DRAWING = "rich.progress"
WRITING = {"rmqtool.transaction", "rmqtool.broker.recovery", "rmqtool.rebuild.saved_plan"}
"""What a store is written with, and the start of a broker on a damaged one."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_one_message_store(tmp_path_factory.mktemp("start") / "store", file_size=1 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--help", "rebuild-cq --help", "completion bash", "version"])
def test_help_and_completion_load_no_library(command: str) -> None:
    """Neither arrays nor what draws."""
    found = loaded(*command.split())
    assert not found & {*ARRAYS, *DATA_SETS, COMPUTING, "rich", "construct", "ctypes"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_overview_loads_no_computing(store: Path, options: tuple[str, ...]) -> None:
    """Arrays and their functions, of which it calls none, are imported, but only the former are loaded."""
    found = loaded("inspect", str(store), *options)
    assert found >= ARRAYS
    assert not found & {*DATA_SETS, COMPUTING, DRAWING, "numpy.ma", "subprocess"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rebuild-cq", "rebuild-index"])
def test_a_small_rebuild_draws_nothing(store: Path, command: str) -> None:
    """No bar is on a terminal, no array is made in the way that loads masked arrays, and nothing is written."""
    found = loaded(command, str(store), "--dry-run")
    assert not found & {*DATA_SETS, *WRITING, DOCUMENTING, DRAWING, "numpy.ma", "concurrent.futures"}


@pytest.mark.slow
def test_a_small_verification_loads_no_documentation(store: Path) -> None:
    """Neither do the few functions of Arrow that it may need."""
    found = loaded("verify", str(store))
    assert DOCUMENTING not in found


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "rebuild-cq --dry-run"])
def test_json_loads_nothing_that_draws(store: Path, command: str) -> None:
    name, *options = command.split()
    assert "rich" not in loaded(name, str(store), *options, "--json")


@pytest.mark.slow
def test_a_verification_makes_no_array_of_python_objects() -> None:
    """Arrow loads another library with the first of them; masked arrays come with NumPy's search for distinct values.

    The store has index units, tags and messages of delay levels.
    """
    found = loaded("verify", str(ROOT / "examples" / "store"))
    assert COMPUTING in found
    assert not found & {DOCUMENTING, "numpy.ma", "dateutil.relativedelta"}


@pytest.mark.slow
def test_a_late_module_is_whole_in_each_thread() -> None:
    """All threads that ask for its first attribute get it."""
    code = (
        "from rmqtool.base.late_modules import load_late; load_late()\n"
        "import sys, threading, pyarrow.compute as pc\n"
        "assert 'pyarrow._compute' not in sys.modules\n"
        "assert pc.call_function is sys.modules['pyarrow._compute'].call_function\n"
        "assert 'pyarrow.vendored.docscrape' not in sys.modules\n"
        "ready, found = threading.Barrier(8), []\n"
        "def ask(): ready.wait(); found.append(pc.sum([1, 2]).as_py())\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "assert found == [3] * 8, found\n"
        "assert not hasattr(pc, 'no_such_function')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment())


def loaded(*arguments: str) -> set[str]:
    """The modules that a command loads."""
    command = [sys.executable, "-X", "importtime", "-m", "rmqtool", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment())
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
