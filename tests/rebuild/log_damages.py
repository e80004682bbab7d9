"""Damage to the log of a golden store, of which `--neutralise` makes dummy records."""

from __future__ import annotations

from pathlib import Path

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files


def records(log: Path) -> list[tuple[int, int]]:
    """Position and size of each record of a commit log file."""
    with InputFile(log) as file:
        events = scan_files([MappedFile(log, int(log.name), file.size)])
        frames = [event for event in events if isinstance(event, RecordRun)]
    starts = [offset - int(log.name) for run in frames for offset in run.physical_offsets.tolist()]
    return list(zip(starts, [size for run in frames for size in run.message_sizes.tolist()], strict=True))


def change(log: Path, position: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip_a_body(log: Path) -> None:
    """In the first record, where a broker decides whether the file is one to begin with."""
    start, _ = records(log)[0]
    body = start + 88
    change(log, body, bytes([log.read_bytes()[body] ^ 0x55]))


def overwrite(log: Path) -> None:
    """From the middle of one record to the middle of another."""
    found = records(log)
    (first, size), (last, _) = found[len(found) // 2], found[len(found) // 2 + 3]
    change(log, first + size // 2, b"\xa5" * (last + 40 - first - size // 2))


def zero_the_end(log: Path) -> None:
    """The last records and the blank after them."""
    start, _ = records(log)[-3]
    change(log, start, bytes(log.stat().st_size - start))


DAMAGE = (flip_a_body, overwrite, zero_the_end)
