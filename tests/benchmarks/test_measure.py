"""The runner measures what it says, and tells when a target is missed."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import tests.benchmarks.__main__ as runner
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.message import CRC_MASK, body_crc
from rmqtool.scan.block import Damage
from rmqtool.scan.columns import COLUMNS
from rmqtool.scan.reader import scan_files
from tests.benchmarks import cold, files, jobs
from tests.benchmarks.cases import ALL_COLUMNS, BASE, CASES, read_with_crc
from tests.benchmarks.commands import Table, measure_rows, run_command
from tests.benchmarks.damage import make_damaged_log
from tests.benchmarks.jobs import Speedup, measure_jobs, process_counts
from tests.benchmarks.logs import log_files, make_log, message_count
from tests.benchmarks.measure import Case, Program, Run, measure_cases, measure_programs
from tests.benchmarks.messages import KINDS
from tests.benchmarks.queues import FEW, MANY_QUEUES

pytestmark = pytest.mark.slow

MIB = 1 << 20


def sleep_and_note(store: Path, output: Path) -> None:
    """Take some time, leave something behind, and tell the time."""
    assert not list(output.iterdir())
    (output / "left").touch()
    with (store / "times").open("a") as file:
        file.write(f"{time.monotonic()}\n")
    time.sleep(0.05)


def take_memory(_store: Path, _output: Path) -> None:
    """Use 64 MiB."""
    assert bytearray(b"x" * (64 * MIB))[-1]


def fail(_store: Path, _output: Path) -> None:
    """Do what a broken case does."""
    raise SystemExit("broken")


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured that needs more than one core, unless a test wants it."""
    monkeypatch.setattr(runner, "usable_cores", lambda: 1)
    monkeypatch.setattr(runner, "use_one_core", lambda: None)
    monkeypatch.setattr(runner, "TABLES", ())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the stores that the runner makes once and keeps."""
    directory = tmp_path_factory.mktemp("made")
    make_log(directory / "A", "A", MIB, MIB)
    return directory


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A small log."""
    shutil.copy(made / "A.json", tmp_path)
    return Path(shutil.copytree(made / "A", tmp_path / "A"))


def test_cases_take_turns(tmp_path: Path) -> None:
    """Each case runs once untimed and once in each round, in an empty directory that is gone afterwards."""
    store = tmp_path / "store"
    store.mkdir()
    results = measure_cases([Case("slow", sleep_and_note), Case("large", take_memory)], store, runs=2)
    assert len((store / "times").read_text().split()) == 3
    assert [len(runs) for runs in results] == [2, 2]
    assert all(run.seconds >= 0.05 > run.cpu_seconds for run in results[0])
    assert results[1][0].peak_rss - results[0][0].peak_rss > 100 * MIB
    assert list(tmp_path.iterdir()) == [store]


def test_a_case_that_fails_is_named(tmp_path: Path) -> None:
    """A broken case ends the measurement."""
    with pytest.raises(RuntimeError, match="'broken'"):
        measure_cases([Case("broken", fail)], tmp_path, runs=1)


def test_the_base_reads_every_byte(store: Path, tmp_path: Path) -> None:
    """The base case computes the CRC of the whole log."""
    assert read_with_crc(store, tmp_path) & CRC_MASK == body_crc(
        b"".join(file.read_bytes() for file in log_files(store))
    )


def test_cases_read_every_message(store: Path, tmp_path: Path) -> None:
    """Every case that is no base gives all messages, the one on the damaged copy a hundredth less."""
    count = message_count(store)
    *whole, resync = [case.run(store, tmp_path) for case in CASES["A"][1:]]
    assert whole == [count] * len(whole)
    assert isinstance(resync, int)
    assert count * 0.95 < resync < count


def test_a_damaged_log_is_kept(store: Path) -> None:
    """The copy has damage of every kind, the original has none; it is made once."""
    damaged = make_damaged_log(store)
    [file] = log_files(damaged)
    made = file.stat().st_mtime_ns
    events = [type(event) for event in scan_files(list_mapped_files(damaged / "commitlog").files)]
    assert events.count(Damage) >= 4
    assert Damage not in [type(event) for event in scan_files(list_mapped_files(store / "commitlog").files)]
    assert make_damaged_log(store) == damaged
    assert file.stat().st_mtime_ns == made


def test_all_columns_are_read() -> None:
    """Nothing but the forms as stored is left out."""
    assert set(COLUMNS) - set(ALL_COLUMNS) == {"stored_body", "stored_topic", "stored_properties"}


def test_programs(tmp_path: Path) -> None:
    """A program gets the path of the store that it names; one that fails has no time, one that waits has little."""
    stores = {"store": tmp_path, "large": tmp_path / "large"}
    waits = Program("waits", ("-c", f"import time; assert {str(tmp_path)!r} == '{{store}}'; time.sleep(1)"))
    works = Program("works", ("-c", "import time\nwhile time.process_time() < 1: pass"))
    broken = Program("broken", ("-c", "raise SystemExit(3)"))
    waiting, working, none = measure_programs([waits, works, broken], stores, 1)
    assert waiting is not None
    assert working is not None
    assert 0 < waiting < 1 <= working
    assert none is None


@pytest.mark.parametrize(
    ("text", "expected"), [("1GiB", 1 << 30), ("64MiB", 64 * MIB), ("2048 KiB", 2 * MIB), ("3GiB", 3 << 30)]
)
def test_sizes(text: str, expected: int) -> None:
    """Sizes are read with their unit."""
    assert runner.size_in_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "1", "1GB", "-1MiB", "1500MiB", "512KiB"])
def test_other_sizes_are_refused(text: str) -> None:
    """Unknown units, too little, and a last file that is not full are no sizes."""
    with pytest.raises(argparse.ArgumentTypeError):
        runner.size_in_bytes(text)


@pytest.mark.parametrize(
    ("targets", "missed"),
    [
        ({"max_ratio": 1e9, "min_rate": 1}, False),
        ({"max_ratio": 0.001}, True),
        ({"max_peak": 50 * MIB}, True),
        ({"min_rate": 1e12}, True),
        ({}, False),
    ],
)
def test_a_missed_target_is_told(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    targets: dict[str, Any],
    missed: bool,
) -> None:
    """The table and the exit status say that a case is too slow."""
    monkeypatch.setattr(runner, "CASES", {"A": (BASE, Case("slow", take_memory, **targets))})
    monkeypatch.setattr(runner, "PROGRAMS", ())
    monkeypatch.setattr(runner, "measure_cases", lambda *_: [[Run(1.0, 1.0, MIB)], [Run(2.0, 2.0, 100 * MIB)]])
    assert runner.main(["--size", "1MiB", "--dir", str(made)]) == missed
    assert ("MISSED" in capsys.readouterr().out) == missed


@pytest.mark.parametrize(("seconds", "disturbed"), [((1.0, 1.1, 3.0), False), ((1.0, 1.3, 1.3), True)])
def test_a_disturbed_base_is_told(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: tuple[float, ...],
    disturbed: bool,
) -> None:
    """Figures of a core that something else used are marked; one slow run is not enough."""
    monkeypatch.setattr(runner, "CASES", {"A": (BASE,)})
    monkeypatch.setattr(runner, "PROGRAMS", ())
    monkeypatch.setattr(runner, "measure_cases", lambda *_: [[Run(wall, 1.0, MIB) for wall in seconds]])
    runner.main(["--size", "1MiB", "--dir", str(made)])
    assert ("Do not quote" in capsys.readouterr().out) == disturbed


@pytest.mark.parametrize(("max_seconds", "missed"), [(60, False), (0.001, True), (None, False)])
def test_a_slow_program_is_told(
    made: Path, monkeypatch: pytest.MonkeyPatch, max_seconds: float | None, missed: bool
) -> None:
    """The exit status says that a program is too slow."""
    monkeypatch.setattr(runner, "CASES", {})
    monkeypatch.setattr(runner, "PROGRAMS", (Program("python", ("-c", ""), max_seconds),))
    assert runner.main(["--runs", "1", "--dir", str(made)]) == missed


def figures_of(table: Table, directory: Path) -> dict[str, float]:
    """Each row's figure, measured once with a small log."""
    figures = measure_rows(table, table.rows, directory, MIB, 1)
    return dict(zip((row.name for row in table.rows), figures, strict=True))


@pytest.mark.rare
def test_many_queues_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole commands, whose cost is theirs alone; a rebuild leaves nothing behind. Of fewer queues than rows say."""
    monkeypatch.setitem(KINDS, FEW, replace(KINDS[FEW], topics=100))
    once = {run: cache(run) for row in MANY_QUEUES.rows for run, _ in row.commands}  # in the untimed round
    rows = tuple(replace(row, commands=tuple((once[run], FEW) for run, _ in row.commands)) for row in MANY_QUEUES.rows)
    figures = figures_of(replace(MANY_QUEUES, rows=rows), tmp_path)
    assert 0.1 < figures["verify: the log alone, CPU s"] < 20
    assert 0.1 < figures["rebuild-cq of 20,000 queues: CPU s"] < 20
    assert figures["rebuild-cq of 20,000 queues: wall / CPU"] > 0.5
    assert {path.name for path in tmp_path.iterdir() if "without" in path.name} == set()


@pytest.mark.rare
def test_many_files_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written goes with each run; the store stays for the next."""
    monkeypatch.setattr(files, "FILES", 10)
    figures = figures_of(files.MANY_FILES, tmp_path)
    assert 0.05 < figures["inspect: CPU s"] < 20
    assert 0.05 < figures["export --dry-run: CPU s"] < 20
    assert 5 < figures["export: CPU ms for each file"] < 2000
    [store] = tmp_path.iterdir()
    assert len(list((store / "commitlog").iterdir())) == 10


def test_a_command_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_command("verify", tmp_path / "nothing")


@pytest.mark.parametrize(("figure", "missed"), [(5.9, False), (6.1, True)])
def test_a_missed_goal_of_many_queues_is_told(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], figure: float, missed: bool
) -> None:
    """And nothing else is printed where only these rows are wanted."""
    monkeypatch.setattr(runner, "TABLES", (MANY_QUEUES,))
    monkeypatch.setattr(runner, "measure_rows", lambda _table, rows, *_: iter([figure] * len(rows)))
    assert runner.main(["--only", "many queues: verify: above", "--dir", str(made)]) == missed
    out = capsys.readouterr().out
    assert ("MISSED" in out) == missed
    assert [line[:7] for line in out.splitlines()] == ["many qu", "  verif", ""]


def test_a_special_kind_of_log_has_the_limit_of_the_plain_one() -> None:
    """A target of its own stays, the base has none."""
    assert runner.with_plain_limit(Case("verify", fail), 4.0).max_ratio == 10.0
    assert runner.with_plain_limit(Case("verify", fail, max_ratio=5.0), 4.0).max_ratio == 5.0
    assert runner.with_plain_limit(Case("verify", fail), None).max_ratio is None
    assert runner.with_plain_limit(BASE, 1.0).max_ratio is None
    sizes = [runner.size_of(kind, 1 << 30) for kind in ("A", "A-crc", "B-ipv6")]
    assert sizes == [1 << 30, 1 << 30, runner.SPECIAL_SIZE]


@pytest.mark.parametrize(("ratio", "missed"), [(1.85, False), (1.75, True)])
def test_processes_that_are_too_slow_are_told(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ratio: float,
    missed: bool,
) -> None:
    """The ratio is shown, and the exit status tells when two processes are not enough faster than one."""
    monkeypatch.setattr(runner, "CASES", {})
    monkeypatch.setattr(runner, "PROGRAMS", ())
    monkeypatch.setattr(runner, "usable_cores", lambda: 4)
    monkeypatch.setattr(runner, "make_derived", lambda store: store)
    monkeypatch.setattr(runner, "measure_jobs", lambda *_: Speedup(ratio, 1.0, ratio, 2.0))
    assert runner.main(["--size", "1MiB", "--dir", str(made)]) == missed
    out = capsys.readouterr().out
    assert out.count("MISSED") == missed * len(jobs.COMMANDS)  # with two processes: four have no target
    assert out.count("-j 4 ") == len(jobs.COMMANDS)


@pytest.mark.parametrize(("cores", "counts"), [(1, [2]), (2, [2]), (3, [2, 3]), (4, [2, 4]), (12, [2, 4, 8, 12])])
def test_all_cores_are_measured(cores: int, counts: list[int]) -> None:
    """Doubled each time, and all of them at last."""
    assert process_counts(cores) == counts


def test_jobs_are_measured_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once untimed, then round by round, each at once on a store of its own; the time for one message is subtracted."""
    ran = []
    seconds = {"big1": 7.0, "copy1": 7.0, "one1": 1.0, "big2": 4.5, "one2": 0.5}

    def time_command(command: Sequence[str]) -> float:
        _, path, output, quiet, _, count = command
        assert quiet == "--quiet"
        ran.append((Path(path).name + count, Path(output).relative_to(tmp_path).name))
        return 100.0 if len(ran) <= 8 else seconds[ran[-1][0]] + 2.5 * (ran[-1] == ("copy1", "1"))

    monkeypatch.setattr(jobs, "time_command", time_command)
    stores = [tmp_path / "big", tmp_path / "copy"]
    command = ["verify", "{store}", "{output}"]
    assert measure_jobs(command, stores, tmp_path / "one", tmp_path, 2, 2) == Speedup(6.0, 4.0, 1.5, 2 * 6.0 / 8.5)
    assert sorted(ran[:4]) == [("big1", "0"), ("big2", "0"), ("one1", "0"), ("one2", "0")]
    assert sorted(ran[4:8]) == [("big1", "0"), ("copy1", "1"), ("one1", "0"), ("one1", "1")]
    assert len(ran) == 3 * 8


@pytest.mark.parametrize(("seconds", "missed"), [({"copy": 2.4}, 0), ({"verify, -j 1": 4.5, "copy": 2.6}, 2)])
def test_cold_runs(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: Mapping[str, float],
    missed: int,
) -> None:
    """Each command takes its turn, warm and cold; what is written in one is gone in the next."""
    cold_seconds = {"cat": 2.0, "cp": 2.0, "verify, -j 1": 4.0, "verify, -j 2": 3.0, **seconds}
    dropped: list[bool] = []

    def command(name: str, _store: Path, output: Path) -> float:
        output.mkdir()
        is_cold = bool(dropped and dropped.pop())
        return cold_seconds[name] if is_cold else 0.5 if name == "cat" else 2.5

    monkeypatch.setattr(runner, "CASES", {})
    monkeypatch.setattr(runner, "usable_cores", lambda: 2)
    monkeypatch.setattr(runner, "make_derived", lambda store: store)
    monkeypatch.setattr(cold, "drop", lambda store: dropped.append(True))
    monkeypatch.setattr(cold, "can_drop", lambda store: True)
    monkeypatch.setattr(cold, "warm", lambda store: dropped.clear())
    monkeypatch.setattr(cold, "COMMANDS", {name: partial(command, name) for name in cold.COMMANDS})
    assert runner.main(["--size", "1MiB", "--runs", "2", "--only", "cold", "--dir", str(made)]) == bool(missed)
    out = capsys.readouterr().out
    assert out.count("MISSED") == missed
    assert "1.00  <= 1.1" in out or missed


def test_cold_runs_that_cannot_be(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A memory file system has nothing but its cache."""
    monkeypatch.setattr(runner, "usable_cores", lambda: 2)
    monkeypatch.setattr(runner, "make_derived", lambda store: store)
    monkeypatch.setattr(cold, "can_drop", lambda store: False)
    assert runner.main(["--size", "1MiB", "--only", "cold", "--dir", str(made)]) == 0
    assert "not measured" in capsys.readouterr().out
