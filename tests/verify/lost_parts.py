"""Parts of a store that are lost: files of real stores deleted, emptied or zeroed, as people and disks do it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

Loss = Callable[[Path], object]


def both(*losses: Loss) -> Loss:
    """One after the other."""
    return lambda store: [lose(store) for lose in losses]


def without(*names: str) -> Loss:
    """Files and directories that are gone."""

    def lose(store: Path) -> None:
        for name in names:
            path = store / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    return lose


def emptied(directory: str) -> Loss:
    """A directory whose entries are gone."""

    def lose(store: Path) -> None:
        shutil.rmtree(store / directory)
        (store / directory).mkdir()

    return lose


def files_of(store: Path, directory: str) -> list[Path]:
    """The files of a directory in the order of their names."""
    return sorted((store / directory).iterdir())


def zero(path: Path, start: int = 0, stop: int | None = None) -> None:
    """Make bytes of a file zero; its size and its times stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    end = len(data) if stop is None else stop
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def last_log_file_gone(store: Path) -> None:
    """The newest file of the commit log is deleted."""
    files_of(store, "commitlog")[-1].unlink()


def last_log_file_zeroed(store: Path) -> None:
    """The newest file of the commit log holds only zeros."""
    zero(files_of(store, "commitlog")[-1])
