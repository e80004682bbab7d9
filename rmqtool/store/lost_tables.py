"""Tables in RocksDB that are lost as a whole, as findings have them."""

from __future__ import annotations

from typing import Literal

from rmqtool.findings.finding import Finding
from rmqtool.store.rocksdb_config import Table

_GONE = "the database is not there"
MISSING = "config.missing"
"""The code of a table that the store proves to be lost, in a file or in RocksDB.

Its details have `lost`, and of a database `table`, the JSON file in whose place RocksDB had the table.
"""


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
    return finding.details.get("table") if finding.code == MISSING else None


def is_database_left(finding: Finding) -> bool:
    """Whether the database of a lost table is there, with other tables."""
    return "part" in finding.details and finding.details["lost"] != "gone"


def lost_place(finding: Finding) -> str:
    """The file that is lost; for a part of a database its name, too."""
    part = finding.details.get("part")
    return f"{finding.file}, {part}" if part else str(finding.file)
