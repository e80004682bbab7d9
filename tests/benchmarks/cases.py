"""What is measured: the base, what has to keep up with it, and the programs that users wait for."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from tests.benchmarks.logs import log_files
from tests.benchmarks.measure import Case, Program

BLOCK_SIZE = 4 << 20


def read_with_crc(store: Path, _output: Path) -> int:
    """Read the whole commit log in blocks into one buffer, with the standard library's CRC-32 of every byte."""
    buffer = memoryview(bytearray(BLOCK_SIZE))
    crc = 0
    for file in log_files(store):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            position = 0
            while size := os.preadv(descriptor, [buffer], position):
                crc = zlib.crc32(buffer[:size], crc)
                position += size
        finally:
            os.close(descriptor)
    return crc


BASE = Case("base: read + zlib.crc32", read_with_crc)

CASES: tuple[Case, ...] = (BASE,)
"""The base comes first: the others are measured against it."""

_RMQTOOL = ("-c", "from rmqtool.cli import main; main()")

PROGRAMS = (
    Program("python, for comparison", ("-c", "")),
    Program("rmqtool --help", (*_RMQTOOL, "--help"), max_seconds=0.3),
    Program("rmqtool inspect, one message", (*_RMQTOOL, "inspect", "{store}")),
)
