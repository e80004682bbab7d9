"""Tables in RocksDB that are lost as a whole: how findings name them, so that others know them again."""

from __future__ import annotations

from rmqtool.findings.finding import Finding
from rmqtool.store.rocksdb_config import CONFIG_DATABASES, TABLES, Table
from rmqtool.store.store import CONFIG

MISSING = "config.missing"
"""The code of a table that the store proves to be lost, in a file or in RocksDB."""


def lost_in(database: str, table: Table, *, is_there: bool) -> str:
    """What is lost of a database: the message of a finding begins with it; `is_there` says that the rows alone are."""
    part = table.part_of(database)
    if not part:
        return "it is empty" if is_there else "the database is not there"
    return f"its {part} is empty" if is_there else f"it has no {part}"


def lost_table(finding: Finding) -> str | None:
    """The JSON file in whose place RocksDB had the lost table; None for other findings."""
    database = (finding.file or "").removeprefix(f"{CONFIG}/")
    if finding.code != MISSING or database not in CONFIG_DATABASES:
        return None
    for name, table in TABLES.items():
        beginnings = [f"{lost_in(database, table, is_there=each)}, " for each in (True, False)]
        if table.database == database or (table.part_of(database) and finding.message.startswith(tuple(beginnings))):
            return name
    return None


def lost_place(finding: Finding) -> str:
    """The file that is lost; for a part of a database its name, too."""
    name = lost_table(finding)
    part = TABLES[name].part_of((finding.file or "").removeprefix(f"{CONFIG}/")) if name else ""
    return f"{finding.file}, {part}" if part else str(finding.file)
