"""How much of a file is stored: the holes of a sparse file, which read as zeros, take no room and are not counted."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.paths import Place
from rmqtool.base.remote_path import RemotePath


def stored_sizes(path: Place, ranges: Sequence[tuple[int, int]], enough: int) -> list[int]:
    """Bytes that are stored in each range of positions from and to, counted no further than to `enough`.

    All of a range is, as far as is known, in a file of another machine or one that cannot be opened.
    """
    if not isinstance(path, RemotePath) and hasattr(os, "SEEK_HOLE"):
        try:
            with InputFile(path) as file:
                return [_stored_size(file.fileno(), start, stop, enough) for start, stop in ranges]
        except UnreadableError:
            pass  # whoever reads it reports it
    return [min(stop - start, enough) for start, stop in ranges]


def stored_end(file: InputFile, position: int, end: int) -> int:
    """Where what is stored from `position` on ends, when nothing but a hole follows it up to `end`; else `end`."""
    if file.fileno() < 0 or not hasattr(os, "SEEK_HOLE"):
        return end
    hole = end
    try:
        hole = os.lseek(file.fileno(), position, os.SEEK_HOLE)
        return end if hole >= end or os.lseek(file.fileno(), hole, os.SEEK_DATA) < end else hole
    except OSError as error:
        return min(hole, end) if error.errno == errno.ENXIO else end


def _stored_size(descriptor: int, start: int, stop: int, enough: int) -> int:
    stored = 0
    try:
        while start < stop and stored < enough:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
            start = os.lseek(descriptor, data, os.SEEK_HOLE)
            stored += max(0, min(start, stop) - data)
    except OSError as error:
        if error.errno != errno.ENXIO:  # nothing but a hole after the position; else the file system knows no holes
            stored += stop - start
    return min(stored, enough)
