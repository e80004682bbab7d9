"""Files of an export as they are stored, here or on another machine: opened, listed and summed up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from zlib_ng import zlib_ng

from rmqtool.base.filesystems import file_system
from rmqtool.base.remote_calls import patiently
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.sink import file_crc32

_READ_AT_ONCE = 4 << 20


def open_stored(path: Path) -> pa.NativeFile:
    """A file, open to be read at any position; raises OSError."""
    if not isinstance(path, RemotePath):
        return pa.OSFile(str(path))
    system, prefix = file_system(path.scheme, path.authority)
    return patiently(lambda: system.open_input_file(f"{prefix}{path.key}"))


def size_and_crc32(path: Path) -> tuple[int, int]:
    """Size of a file, bytes, and its CRC-32; raises OSError."""
    if not isinstance(path, RemotePath):
        return path.stat().st_size, file_crc32(path)
    size = crc = 0
    with open_stored(path) as file:
        while piece := file.read(_READ_AT_ONCE):
            size, crc = size + len(piece), zlib_ng.crc32(piece, crc)
    return size, crc


def stored_names(output: Path) -> list[str]:
    """The paths of all files below an output; raises OSError."""
    if isinstance(output, RemotePath):
        from rmqtool.export.remote_files import files_in

        return sorted(name for name, _ in files_in(output))
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
