"""What examples/monitoring has: a script for a collector, units of systemd, commands of Nagios; all of it runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from rmqtool.show.monitoring import PluginStatus
from tests.benchmarks.logs import make_log
from tests.commands.running import ROOT, environment, finish, rmqtool, spawn, wait_until_it_reads
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store

MONITORING = ROOT / "examples/monitoring"
SCRIPT = MONITORING / "textfile_collector.sh"
STORE = ROOT / "examples/store"
KINDS = {"counter", "gauge", "histogram", "summary", "untyped"}  # what node exporter's parser knows
UNITS = sorted(path.name for path in MONITORING.glob("rmqtool-*"))
SAMPLE = re.compile(r"([a-z_]+\{[^}]*\}) [0-9.e+-]+")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which rmqtool is this one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rmqtool").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rmqtool "$@"\n')
    (programs / "rmqtool").chmod(0o755)
    return os.pathsep.join([str(programs), os.environ["PATH"]])


def collect(path: str, *words: str | Path) -> int:
    """The exit status of the script."""
    return subprocess.run([SCRIPT, *words], env=environment(PATH=path), cwd=ROOT, check=False).returncode


@pytest.mark.slow
def test_a_textfile_collector(path: str, tmp_path: Path) -> None:
    """Two files that a node exporter reads together: no sample is in both, and all kinds are its own."""
    texts = tmp_path / "texts"
    texts.mkdir()
    store = small_store(tmp_path / "store")
    DAMAGES["hole"].apply(store)
    assert [collect(path, "inspect", store, texts), collect(path, "verify", store, texts, "-j", "2")] == [0, 0]
    assert sorted(os.listdir(texts)) == ["rmqtool-inspect.prom", "rmqtool-verify.prom"]
    read = [(texts / name).read_text() for name in sorted(os.listdir(texts))]
    assert {kind for text in read for kind in re.findall(r"^# TYPE \S+ (\S+)$", text, re.MULTILINE)} <= KINDS
    samples = [found[1] for text in read for line in text.splitlines() if (found := SAMPLE.fullmatch(line))]
    assert len(samples) == len({*samples}) > 20
    families = [re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE) for text in read]
    told = dict(families[0])
    assert all(told.get(name, text) == text for name, text in families[1])


@pytest.mark.slow
def test_the_old_file_stays_where_there_are_no_figures(path: str, tmp_path: Path) -> None:
    """With the status of the command, and nothing beside it."""
    assert collect(path, "inspect", STORE, tmp_path) == 0
    before = (tmp_path / "rmqtool-inspect.prom").read_text()
    assert collect(path, "inspect", tmp_path / "nowhere", tmp_path) == 4
    assert (tmp_path / "rmqtool-inspect.prom").read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["bin", "rmqtool-inspect.prom"]


@pytest.mark.parametrize("name", UNITS)
def test_units(name: str) -> None:
    """Each timer has its service, which runs the script with options that the command has."""
    unit = ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(MONITORING / name)
    if name.endswith(".timer"):
        assert name.replace(".timer", ".service") in UNITS
        assert unit["Timer"]["OnCalendar"]
        assert unit["Install"]["WantedBy"] == "timers.target"
        return
    script, command, store, directory, *options = shlex.split(unit["Service"]["ExecStart"])
    assert Path(script).name == SCRIPT.name
    assert (unit["Service"]["Type"], unit["Service"]["ReadWritePaths"]) == ("oneshot", directory)
    assert unit["Unit"]["RequiresMountsFor"] == store
    assert rmqtool(command, STORE, "--format", "openmetrics", *options).status == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units() -> None:
    """But for the places of script and manual, which are not on this machine."""
    command = ["systemd-analyze", "verify", *(str(MONITORING / name) for name in UNITS)]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    assert [
        line for line in told if "rmqtool" in line and " is not executable" not in line and "'man " not in line
    ] == []


def nagios(name: str) -> str:
    """The line of a command of Nagios, with the arguments that the service gives."""
    text = (MONITORING / "nagios.cfg").read_text()
    line = re.search(rf"command_name +{name}\n +command_line +(.+)", text)
    given = re.search(rf"check_command +{name}!(.+)", text)
    assert line
    assert given
    found = line[1]
    for number, value in enumerate(given[1].split("!"), 1):
        found = found.replace(f"$ARG{number}$", str(STORE) if number == 1 else value)
    assert "$" not in found
    return found


@pytest.mark.parametrize("name", ["check_rocketmq_store", "verify_rocketmq_store"])
def test_commands_of_nagios(name: str) -> None:
    """One line with figures, and a status of a plug-in: the last message of the example is old."""
    found = rmqtool(*shlex.split(nagios(name))[1:])
    assert found.status == (PluginStatus.CRITICAL if name.startswith("check") else PluginStatus.OK)
    assert re.fullmatch(r"RMQTOOL (CRITICAL|OK) - [^|\n]+ \| [^|\n]+\n", found.out)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_plug_in_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    """Says so in one line: a monitoring server ends what takes too long."""
    store = make_log(tmp_path / "store", "A", 64 << 20, 64 << 20)
    process = spawn("verify", store, "--format", "nagios", "--limit-rate", "1MiB", env=environment())
    wait_until_it_reads(process, store / "commitlog")
    process.send_signal(number)
    found = finish(process)
    assert found.status in (PluginStatus.UNKNOWN, PluginStatus.CRITICAL)
    [line] = found.out.splitlines()
    assert line.startswith(("RMQTOOL UNKNOWN - ", "RMQTOOL CRITICAL - "))
