"""Databases of RocksDB on another machine: their files are copied to this one as long as a database is open."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import InputFile, list_directory

MOST_COPIED = 4 << 30
"""Bytes of the largest database that is copied."""

_AT_ONCE = 8 << 20


def require_room(directory: Path) -> None:
    """Raise UnsupportedError for a database on another machine that is too large to be copied, UnreadableError."""
    size = sum(entry.stat().st_size for entry in list_directory(directory) if entry.is_file())
    try:
        room = min(MOST_COPIED, shutil.disk_usage(tempfile.gettempdir()).free // 2)
    except OSError:
        return  # without such a directory nothing is copied, which is reported then
    if size > room:
        message = f"a RocksDB database of {byte_size(size)}, where {byte_size(room)} at most are copied to this machine"
        hint = "copy the store to this machine, or set TMPDIR to a directory with more space"
        raise UnsupportedError(message, file=directory, hint=hint)


def copy_database(directory: Path, names: Sequence[str], into: str) -> None:
    """Copy files of a database to a directory here; raises as `require_room`."""
    require_room(directory)
    for name in names:
        with InputFile(directory / name) as source, Path(into, name).open("wb") as target:
            target.writelines(source.read(position, _AT_ONCE) for position in range(0, source.size, _AT_ONCE))
