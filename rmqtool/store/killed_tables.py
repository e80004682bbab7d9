"""Tables that a broker was writing to RocksDB when it was killed: their rows are still in logs of the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rmqtool.base.files import read_all
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_log import first_damage
from rmqtool.formats.rocksdb_manifest import oldest_log

_TABLE, _LOG, _CURRENT, _MANIFEST = ".sst", ".log", "CURRENT", "MANIFEST-"
_NUMBER = re.compile("[0-9]{1,19}")
_MAX_CURRENT = 64  # bytes
_MAX_MANIFEST = 4 << 20  # bytes
_MAX_LOG = 32 << 20  # bytes


def tables_in_logs(directory: Path, tables: Collection[str], names: Collection[str]) -> set[str]:
    """Those of `tables`, which the MANIFEST does not name, of which a killed broker has left all rows in the logs.

    `names` are the files of the database. The next log is begun before a table is written, and the one before is
    deleted once the MANIFEST names the table: so a MANIFEST that has lost its end asks for a log that is gone. Where
    anything is in doubt, as with a damaged or long MANIFEST, no table is given. Raises UnreadableError.
    """
    numbers = sorted(_number(name, _LOG) for name in names if name.endswith(_LOG))
    first = _first_log(directory, numbers)
    if first is None:
        return set()
    found = set()
    for table in tables:
        logs = [number for number in numbers if first <= number < _number(table, _TABLE)]
        if len(logs) > 1 and logs[0] == first and _are_whole(directory, logs[:-1]):
            found.add(table)
    return found


def _first_log(directory: Path, logs: Sequence[int]) -> int | None:
    """The oldest of the `logs` that the database needs; None where one that it needs may be gone."""
    current = read_all(directory / _CURRENT, _MAX_CURRENT).decode(errors="replace").strip()
    content = read_all(directory / current, _MAX_MANIFEST + 1) if current.startswith(_MANIFEST) else b""
    if not content or len(content) > _MAX_MANIFEST:
        return None
    try:
        oldest = oldest_log(content)
    except FormatError:
        return None
    # A start reads all logs, asks for the number after them, then takes two: for its first log and its MANIFEST.
    begun = _number(current.removeprefix(_MANIFEST)) - 1
    first = oldest if oldest in logs else begun
    return first if first in logs and first >= oldest else None


def _number(name: str, ending: str = "") -> int:
    """The number of a file, -1 for a name without one."""
    stem = name.removesuffix(ending)
    return int(stem) if _NUMBER.fullmatch(stem) else -1


def _are_whole(directory: Path, logs: Sequence[int]) -> bool:
    """Whether logs that are no longer written to are whole, and the first has rows."""
    contents = [read_all(directory / f"{log:06}{_LOG}", _MAX_LOG + 1) for log in logs]
    return bool(contents[0]) and all(len(data) <= _MAX_LOG and first_damage(data) is None for data in contents)
