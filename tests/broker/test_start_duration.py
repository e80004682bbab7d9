"""How long a start takes: by what it reads and derives, and how fast the disk is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.prediction import ScanFrom, StartPrediction, StartRefusal
from rmqtool.broker.start_duration import duration_of, measured_disk_rate

GIB = 1 << 30
LOG = [MappedFile(Path(f"/log/{number}"), number * GIB, GIB) for number in range(3)]
START = StartPrediction("normal", "5.3.3", ScanFrom("commitlog/2", 2 * GIB), max_offset_after=3 * GIB)


def seconds(
    start: StartPrediction = START, *, queues: int = 0, disk_rate: int = 4 * GIB, has_rows_only: bool = False
) -> float:
    found = duration_of(start, LOG, 1024, queues, disk_rate, has_rows_only=has_rows_only)
    assert found
    assert found.low < found.seconds < found.high
    return found.seconds


def test_what_makes_it_longer() -> None:
    """A slow disk, queues, and units that are derived again: 5.0.0 to 5.3.4 take longest for these."""
    crashed = replace(START, mode="abnormal", dispatched_from=2 * GIB)
    assert seconds(disk_rate=100 << 20) > 10 * 0.9
    assert seconds(queues=4000) > seconds() > 0
    older, newer = (seconds(replace(crashed, version=version)) for version in ("4.9.7", "5.5.0"))
    assert seconds(crashed) > older > newer > seconds()
    assert seconds(crashed, has_rows_only=True) == newer


def test_what_it_reads() -> None:
    found = duration_of(START, LOG, 1024, 12, 4 * GIB)
    assert found
    steps = {step.name: (step.files, step.bytes, step.records) for step in found.steps}
    assert steps == {"queues": (12, 0, 0), "log": (1, GIB, 1 << 20), "dispatch": (0, 0, 0)}


def test_what_makes_it_shorter() -> None:
    crashed = duration_of(replace(START, mode="abnormal"), LOG, 1024, 0, GIB)
    many = duration_of(START, LOG, 1024, 40_000, GIB)
    assert crashed
    assert many
    assert (crashed.shorter, many.shorter) == (("settle",), ("fewer-queues",))


def test_no_start_takes_no_time() -> None:
    assert duration_of(replace(START, refusal=StartRefusal("hang", "it waits")), LOG, 1024, 0, None) is None


def test_a_disk_is_measured_past_the_page_cache(tmp_path: Path) -> None:
    """None where the file system cannot do that, or there is no file."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8 << 20))
    rate = measured_disk_rate([MappedFile(path, 0, 8 << 20)])
    assert rate is None or rate > 0
    assert measured_disk_rate([]) is None
    assert measured_disk_rate([MappedFile(tmp_path / "gone", 0, 1)]) is None
