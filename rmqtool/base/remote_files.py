"""Files of other machines, written as a whole, listed and removed; a file is there when it is closed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from zlib_ng import zlib_ng

from rmqtool.base.filesystems import patiently
from rmqtool.base.remote_path import RemotePath, located

WITH_DIRECTORIES = ("hdfs", "viewfs")
"""Schemes whose files are there in part while they are written, and can be renamed; elsewhere a directory is the
beginning of a name, and a file is there when it is closed."""


class RemoteSink(io.RawIOBase):
    """A file of another machine, there when it is closed; `target` is itself, to be written to.

    `size`, bytes, and `crc32` are those of what is written so far.
    """

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self.size = 0
        self.crc32 = 0
        self._is_abandoned = False
        system, name = located(path)
        if path.scheme in WITH_DIRECTORIES:
            patiently(lambda: system.create_dir(name.rpartition("/")[0], recursive=True))
        self._file: Any = patiently(lambda: system.open_output_stream(name, compression=None))

    @property
    def target(self) -> RemoteSink:
        """What a writer writes to."""
        return self

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes; raises OSError."""
        view = memoryview(data)
        self._file.write(view)
        self.size += view.nbytes
        self.crc32 = zlib_ng.crc32(view, self.crc32)
        return view.nbytes

    def flush_sent(self) -> None:
        """Wait until what is written is not in memory any more, as far as the file system does; raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Finish it; raises OSError. Nothing after `abandon`."""
        if not self.closed:
            super().close()
            if not self._is_abandoned:
                self._file.close()

    def open(self) -> Any:
        """The file, opened for bytes."""
        return self

    def begin_sync(self) -> None:
        """Nothing: what is written is on its way."""

    def finish(self) -> tuple[int, int]:
        """Close the file, which is there then; its size, bytes, and its CRC-32."""
        self.close()
        return self.size, self.crc32

    def abandon(self) -> None:
        """Leave it unfinished, as far as the file system allows."""
        self._is_abandoned = True


def write_remote(path: RemotePath, data: bytes) -> None:
    """Write a small file, over the one that is there; raises OSError."""

    def write() -> None:
        with RemoteSink(path) as file:
            file.write(data)

    patiently(write)


def read_remote(path: RemotePath) -> bytes:
    """The content of a small file as it is now; raises FileNotFoundError and other OSError."""
    system, place = located(path)

    def read() -> bytes:
        with system.open_input_stream(place, compression=None) as file:
            data: bytes = file.read()
            return data

    try:
        return patiently(read, ())
    except OSError:
        path.stat_now()  # FileNotFoundError, however the file system says it
    return patiently(read)


def remove_remote(path: RemotePath) -> None:
    """Remove a file that may be gone already; raises OSError."""
    system, place = located(path)
    try:
        patiently(lambda: system.delete_file(place), ())
    except OSError:
        with suppress(FileNotFoundError):
            path.stat_now()
            patiently(lambda: system.delete_file(place))


def files_in(path: RemotePath) -> Iterator[tuple[str, int]]:
    """Names below `path`, and sizes in bytes, of all files there now; none where nothing is. Raises OSError."""
    from pyarrow.fs import FileSelector

    system, root = located(path)
    for info in patiently(lambda: system.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))):
        if info.type.name == "File":
            yield info.path[len(root) :].lstrip("/"), info.size
