"""Copies of stores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.unchanged import data_extents


def copied(source: Path, target: Path) -> Path:
    """Copy a file, or a directory with all below it, with modes and times; a directory must not be there before.

    Links are followed. Holes stay holes: a timer wheel has 39 MB of them, which whoever reads a copy would read.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy(str(source), str(target))
    return target


def _copy(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.mkdir(target)
        for name in os.listdir(source):
            _copy(f"{source}/{name}", f"{target}/{name}")
    else:
        _copy_file(source, target)
    shutil.copystat(source, target)


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb", buffering=0) as file, open(target, "wb", buffering=0) as into:
        size = os.fstat(file.fileno()).st_size
        for start, stop in data_extents(file.fileno(), size):
            data = os.pread(file.fileno(), stop - start, start)
            assert os.pwrite(into.fileno(), data, start) == stop - start
        into.truncate(size)
