"""A file on another machine, read in ranges: a little at a time where it is read here and there, ahead where in order.

It is never copied as a whole. A range that a connection lost is asked for again. Files of a tree that is listed stay
open for a while, since each opening is a request.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rmqtool.base.errors import ChangedError
from rmqtool.base.filesystems import file_system
from rmqtool.base.remote_calls import answer_of, in_background, patiently
from rmqtool.base.remote_listing import Status, status_now, status_of
from rmqtool.base.remote_path import RemotePath

_FIRST_RANGE = 64 << 10  # bytes: a request costs as much as reading a few more
_LARGEST_RANGE = 8 << 20  # bytes, of which two are held: the one that is read, and the next
_NOWHERE = -1
_AT_ONCE = 10  # seconds
_IDLE_FILES = 512
_IDLE_DATA = 64 << 10  # bytes that a file keeps while nobody reads it

_idle: OrderedDict[tuple[int, RemotePath, int], RemoteFile] = OrderedDict()


def open_remote(path: RemotePath) -> RemoteFile:
    """A file, open; raises OSError, IsADirectoryError for a directory."""
    listing = path.listing()
    file = None if listing is None else _idle.pop((os.getpid(), path, listing), None)
    return RemoteFile(path, listing) if file is None else file


def put_back(file: RemoteFile) -> None:
    """Let go of a file, which may stay open for the next who reads it."""
    if file.listing is None:
        file.close()
        return
    file.rest()
    _idle[os.getpid(), file.path, file.listing] = file
    if len(_idle) > _IDLE_FILES:
        _idle.popitem(last=False)[1].close()


def replaced(path: Path) -> ChangedError:
    """The error for a file that is not the one that was listed."""
    hint = "run it again: it begins with what is there now"
    return ChangedError("the file was replaced or removed while it was read", file=path, hint=hint)


class RemoteFile:
    """A file that is open, `size` in bytes; `listing` is the listing of its tree, None without one."""

    def __init__(self, path: RemotePath, listing: int | None = None) -> None:
        self.path = path
        self.listing = listing
        self._ahead: Future[bytes] | None = None
        self._ahead_at = _NOWHERE
        self._data = memoryview(b"")
        self._position = 0  # of the data in the file
        self._range = _FIRST_RANGE
        self._file = self._open()
        self.size: int = patiently(self._file.size)
        listed = self._listed()
        if listed is not None and listed.size != self.size:
            self._file.close()
            raise replaced(path)

    def _listed(self) -> Status | None:
        """What the listing of the tree says of the file; None without one."""
        return None if self.listing is None else status_of(self.path.scheme, self.path.authority, self.path.key)

    def _open(self) -> Any:
        system, prefix = file_system(self.path.scheme, self.path.authority)
        name = f"{prefix}{self.path.key}"
        try:
            return patiently(lambda: system.open_input_file(name))
        except OSError:
            status = status_now(self.path.scheme, self.path.authority, self.path.key)
            if status is None and self._listed() is not None:
                raise replaced(self.path) from None
            if status is None:
                raise FileNotFoundError(2, os.strerror(2), str(self.path)) from None
            if status.is_directory:
                raise IsADirectoryError(21, os.strerror(21), str(self.path)) from None
            raise

    def close(self) -> None:
        """Close it; where a range is on its way, the thread that waits for it does."""
        self.rest()
        if self._ahead is None:
            self._file.close()

    def rest(self) -> None:
        """Let go of what was read ahead, and of all but a little data."""
        if self._ahead is not None and (self._ahead.cancel() or self._ahead.done()):
            self._ahead = None
        self._ahead_at = _NOWHERE
        if len(self._data) > _IDLE_DATA:
            self._data = memoryview(b"")

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from `position`; the bytes read, fewer only at the end of the file."""
        done, end = 0, min(len(target), self.size - position)
        while done < end:
            data = self._data_at(position + done, end - done)
            count = min(len(data), end - done)
            target[done : done + count] = data[:count]
            done += count
        return max(0, done)

    def _data_at(self, position: int, wanted: int) -> memoryview:
        """Some bytes from `position` on, at least one."""
        end = self._position + len(self._data)
        if self._position <= position < end:
            return self._data[position - self._position :]
        in_order = position == end and end > 0
        self._range = min(max(2 * self._range, wanted), _LARGEST_RANGE) if in_order else _FIRST_RANGE
        if self._ahead is not None and position == self._ahead_at:
            data, self._ahead = self._ahead.result(), None
        else:
            data = self._read(position, min(max(wanted, self._range), _LARGEST_RANGE))
        self._data, self._position = memoryview(data), position
        behind = position + len(data)
        is_waiting = self._ahead is not None and not self._ahead.done()  # for a range that nobody wants any more
        if in_order and behind < self.size and not is_waiting:
            size = self._range
            self._ahead, self._ahead_at = in_background(lambda: self._read(behind, size)), behind
        return self._data

    def _read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        try:
            data: bytes = patiently(lambda: self._read_once(position, size))
        except OSError as error:
            if self._is_replaced():
                raise replaced(self.path) from error
            raise
        return data

    def _is_replaced(self) -> bool:
        """Whether it is gone, or has another size; False where that machine does not answer at once."""
        try:
            status = answer_of(lambda: status_now(self.path.scheme, self.path.authority, self.path.key), _AT_ONCE)
        except OSError:
            return False
        return status is None or status.size != self.size

    def _read_once(self, position: int, size: int) -> bytes:
        data: bytes = self._file.read_at(size, position)
        if len(data) != size:
            raise replaced(self.path)
        return data
