"""Databases of RocksDB on another machine: their files are copied to this one as long as a database is open."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.base.files import InputFile, list_directory, reason_of
from rmqtool.base.notices import notice

MOST_COPIED = 4 << 30
"""Bytes of the largest database that is copied."""

_AT_ONCE = 8 << 20
_OTHER_PLACE = "set TMPDIR to a directory with more space, or copy the store to this machine"


_WORTH_A_NOTE = 1 << 20  # bytes; of smaller ones only the first is noted
_noted: set[Path] = set()  # a database is opened again and again


def require_room(directory: Path) -> int:
    """The size in bytes of a database on another machine; raises UnsupportedError, UnreadableError.

    UnsupportedError where it is too large to be copied, or the disk here has too little room for it.
    """
    size = sum(entry.stat().st_size for entry in list_directory(directory) if entry.is_file())
    if size > MOST_COPIED:
        message = f"a RocksDB database of {byte_size(size)}, where {byte_size(MOST_COPIED)} at most are copied to here"
        raise UnsupportedError(message, file=directory, hint="copy the store to this machine, and name the copy")
    try:
        place = tempfile.gettempdir()
        room = shutil.disk_usage(place).free // 2
    except OSError:
        return size  # without such a directory nothing is copied, which is reported then
    if size > room:
        message = (
            f"a RocksDB database of {byte_size(size)} would be copied to {place}, where {byte_size(room)} at most "
        )
        raise UnsupportedError(f"{message}may be used: half of what is free", file=directory, hint=_OTHER_PLACE)
    return size


def copy_database(directory: Path, names: Sequence[str], into: str) -> None:
    """Copy files of a database to a directory here; raises as `require_room`, UnwritableError on a full disk."""
    size = require_room(directory)
    if directory not in _noted and (size >= _WORTH_A_NOTE or not _noted):
        notice(f"RocksDB is read from a copy: {directory}, {byte_size(size)}, copied to {Path(into).parent} meanwhile")
    _noted.add(directory)
    for name in names:
        with InputFile(directory / name) as source:
            blocks = (source.read(position, _AT_ONCE) for position in range(0, source.size, _AT_ONCE))
            try:
                with Path(into, name).open("wb") as target:
                    target.writelines(blocks)
            except OSError as error:
                message = f"cannot be copied to {into}: {reason_of(error)}"
                raise UnwritableError(message, file=directory / name, hint=_OTHER_PLACE) from error
