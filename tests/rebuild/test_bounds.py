"""Many queues: memory and descriptors stay bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.base.files import InputFile
from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.commands.running import ROOT

_QUEUES = 10_000
_MOST_MEMORY = 192 << 10  # KiB
_MOST_DESCRIPTORS = 256
_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
from rmqtool.cli import run
status = run(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_many_queues(tmp_path_factory: pytest.TempPathFactory) -> None:
    """10,000 queues, two messages each with others between them: less than 192 MiB and 256 descriptors."""
    tmp_path = tmp_path_factory.mktemp("many")  # in memory
    log = LogBuilder(1 << 24)
    for offset in range(2):
        log.add_all(
            {"topic": f"t{number // 4}", "queue_id": number % 4, "queue_offset": offset} for number in range(_QUEUES)
        )
    store = log.write(tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=6000\n")
    words = ["rebuild-cq", str(store), "--output", str(tmp_path / "out"), "--broker-conf", str(conf), "-q"]
    program = _PROGRAM.format(descriptors=_MOST_DESCRIPTORS)
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < _MOST_MEMORY
    assert sum(1 for _ in (tmp_path / "out" / "consumequeue").glob("*/*/*")) == _QUEUES


def test_holes_behind_the_units_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 6,000,000 bytes each with some units: to compare thousands of them must not take minutes."""
    log = LogBuilder(1 << 20).add_all({"queue_id": number} for number in range(50))
    store = open_store(log.write(tmp_path / "store"))
    options = RebuildOptions(frozenset(["queues"]))
    write_output(open_source(store, options), tmp_path / "out")
    (tmp_path / "out" / "consumequeue").rename(store.root / "consumequeue")
    sizes: list[int] = []
    read = InputFile.read

    def counted(file: InputFile, position: int, size: int) -> bytes:
        data = read(file, position, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(InputFile, "read", counted)
    plan = make_plan(open_source(open_store(store.root), options))
    assert plan.is_empty
    assert len(plan.queues) == 50
    assert sum(sizes) < 50 * 100_000
