"""Where a file of an export goes while it is written: to the disk, or to another machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtool.base.remote_path import RemotePath
from rmqtool.export.sink import begin_sync, file_crc32, sync

if TYPE_CHECKING:
    from rmqtool.export.remote_files import RemoteWriter


class LocalSink:
    """A file of this machine; `target` is its path, for a writer that opens it itself."""

    def __init__(self, path: Path) -> None:
        self.target = path
        self._begun = 0  # size of what is on its way to the disk, bytes

    def open(self) -> Any:
        """The file, opened for bytes."""
        return self.target.open("wb", buffering=0)

    def begin_sync(self) -> None:
        """Let the disk write what is written so far, and do not wait."""
        self._begun = begin_sync(self.target, self._begun)

    def finish(self) -> tuple[int, int]:
        """Sync the file, which its writer has closed; its size, bytes, and its CRC-32."""
        self.begin_sync()
        crc = file_crc32(self.target)  # while the disk is at work
        return sync(self.target), crc

    def abandon(self) -> None:
        """Nothing: the file goes with its directory."""


class RemoteSink:
    """A file of another machine; `target` is a writer of bytes."""

    def __init__(self, path: RemotePath) -> None:
        from rmqtool.export.remote_files import RemoteWriter

        self.target: RemoteWriter = RemoteWriter(path)

    def open(self) -> Any:
        """The file, opened for bytes."""
        return self.target

    def begin_sync(self) -> None:
        """Nothing: what is written is on its way."""

    def finish(self) -> tuple[int, int]:
        """Close the file, which is there then; its size, bytes, and its CRC-32."""
        self.target.close()
        return self.target.size, self.target.crc32

    def abandon(self) -> None:
        """Leave the file unfinished."""
        self.target.abandon()


def new_sink(path: Path) -> LocalSink | RemoteSink:
    """The sink of a new file; raises OSError."""
    return RemoteSink(path) if isinstance(path, RemotePath) else LocalSink(path)
