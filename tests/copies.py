"""Copies of stores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.building import LOG
from tests.unchanged import data_extents, tree
from tests.verify.small_store import small_log, small_store


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


_NOT_COPIED = {"lock", "abort", "abort.bak", "LOCK"}


def grown(store: Path, records: int) -> None:
    """Write a store again with more messages, as its broker does; files that stay as they were keep their inodes."""
    new = small_store(store.with_name("grown"), small_log(records))
    for name, content in tree(new).items():
        path = store / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if name.startswith(LOG):
                os.utime(path)
    shutil.rmtree(new)


def contents(store: Path) -> dict[str, bytes]:
    """The files of a store or copy that copies have."""
    files = tree(store).items()
    return {
        name: data for name, data in files if Path(name).name not in _NOT_COPIED and not name.startswith(".rmqtool/")
    }
