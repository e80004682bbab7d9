"""Tables in RocksDB that are lost as a whole: how findings name them, so that others know them again."""

from __future__ import annotations

from typing import Literal, get_args

from rmqtool.findings.finding import Finding
from rmqtool.store.rocksdb_config import CONFIG_DATABASES, TABLES, Table
from rmqtool.store.store import CONFIG

_GONE = "the database is not there"
MISSING = "config.missing"
"""The code of a table that the store proves to be lost, in a file or in RocksDB."""
BACKUP_IS_READ = "it is not there; a start reads its .bak, which is older by at least one change"
"""The message about a file of which the .bak is left."""


Lost = Literal["gone", "without", "empty"]
"""The database is gone, or it has no such table, or no row of it; a file counts as a database of its own."""


def lost_in(database: str, table: Table, lost: Lost) -> str:
    """What is lost: the message of a finding begins with it; `database` is its name, or that of the file."""
    part = table.part_of(database)
    if not part:
        return "it is empty" if lost == "empty" else _GONE
    return {"gone": f"{_GONE}, nor is its {part}", "without": f"it has no {part}", "empty": f"its {part} is empty"}[
        lost
    ]


def lost_table(finding: Finding) -> str | None:
    """The JSON file in whose place RocksDB had the lost table; None for other findings."""
    database = (finding.file or "").removeprefix(f"{CONFIG}/")
    if finding.code != MISSING or database not in CONFIG_DATABASES:
        return None
    for name, table in TABLES.items():
        beginnings = tuple(f"{lost_in(database, table, each)}, " for each in get_args(Lost))
        if table.database == database or (table.part_of(database) and finding.message.startswith(beginnings)):
            return name
    return None


def is_database_left(finding: Finding) -> bool:
    """Whether the database of a lost table is there, with other tables."""
    return lost_place(finding) != finding.file and not finding.message.startswith(_GONE)


def lost_place(finding: Finding) -> str:
    """The file that is lost; for a part of a database its name, too."""
    name = lost_table(finding)
    part = TABLES[name].part_of((finding.file or "").removeprefix(f"{CONFIG}/")) if name else ""
    return f"{finding.file}, {part}" if part else str(finding.file)
