"""Files that are made again: whole length from the start, holes where nothing is written. Functions raise OSError."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtool.base.files import InputFile
from rmqtool.base.times import file_time

_COPY_SIZE = 1 << 20


def create_file(path: Path, size: int) -> int:
    """Open a file for writing, made with its directories and at its whole length when it is not there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o644)
    if os.fstat(descriptor).st_size != size:
        os.ftruncate(descriptor, size)
    return descriptor


def write_all(descriptor: int, data: memoryview | bytes, position: int) -> None:
    """Write all of `data` at `position`; the system may take less at once."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, position)
        view, position = view[done:], position + done


def copy_range(source: InputFile, position: int, size: int, descriptor: int, to: int) -> int:
    """Copy bytes of a file inside the system, which costs a fifth of reading and writing them.

    Returns how many were copied from `position` on: fewer at the end of the source, and 0 where the system cannot do it
    or an error is met, which reading then shows.
    """
    done = 0
    while done < size and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source.fileno(), descriptor, size - done, position + done, to + done)
        except OSError:
            break
        if count == 0:
            break
        done += count
    return done


def set_time(descriptor: int, timestamp: int) -> None:
    """Set access and modification time, epoch ms."""
    nanoseconds = file_time(timestamp)
    os.utime(descriptor, ns=(nanoseconds, nanoseconds))


def copy_file(path: Path, to: Path) -> None:
    """Copy a file, holes as holes, with its modification time; raises UnreadableError and WrongKindError."""
    with InputFile(path) as source:
        descriptor = create_file(to, source.size)
        try:
            position = 0
            while (position := source.next_data(position, source.size)) < source.size:
                data = source.read(position, _COPY_SIZE)
                write_all(descriptor, data, position)
                position += len(data)
            set_time(descriptor, os.fstat(source.fileno()).st_mtime_ns // 1_000_000)
        finally:
            os.close(descriptor)
