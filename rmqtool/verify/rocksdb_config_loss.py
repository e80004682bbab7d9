"""Topics, groups and committed offsets that RocksDB has lost as a whole, although the store shows some.

Brokers make a database when they start, before 5.3.4 with all its column families, later each family with its first
row. So a database that is gone was lost, as a file is; one without rows may never have had any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rmqtool.findings.report import Report
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET
from rmqtool.store.lost_tables import MISSING, Lost, lost_in
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_config import SECOND, TABLES, expected_database
from rmqtool.store.store import is_rocksdb_directory
from rmqtool.store.topics import TOPICS
from rmqtool.verify.config_loss import EFFECTS, PROOFS, doubt_offsets, may_be_unwritten
from rmqtool.verify.witnesses import GROUPS, Witnesses

_CONTENTS = {
    TOPICS: ("topicConfigTable",),
    GROUPS: ("subscriptionGroupTable",),
    CONSUMER_OFFSET: ("offsetTable", "lmqOffsetTable"),
}


@dataclass(frozen=True)
class _EmptyTable:
    """A table without entries: the JSON file of its `name`, and the `place` of the file or database with it.

    `has_place` says that the file or database is there, `is_made` that the table is.
    """

    name: str
    place: Path
    has_place: bool
    is_made: bool

    @property
    def lost(self) -> Lost:
        """What is lost of the place."""
        return "empty" if self.is_made else "without" if self.has_place else "gone"


def check_config_tables(witnesses: Witnesses, report: Report) -> None:
    """Report tables that are gone or empty; without the library, nothing.

    Version 2 has only those topics and groups that somebody has set.
    """
    if not witnesses.is_in_rocksdb or not is_readable():
        return
    for name in TABLES:
        table = _empty_table(witnesses, name)
        if table is None or (table.place.name == SECOND and name != CONSUMER_OFFSET):
            continue
        shown = _shown(table, witnesses)
        if not shown:
            continue
        if name == CONSUMER_OFFSET and may_be_unwritten(witnesses):
            doubt_offsets(f"there are none in {witnesses.store.relative(table.place)}", report)
        elif name == CONSUMER_OFFSET or not _is_unwritten(table, witnesses):
            what, part = lost_in(table.place.name, TABLES[name], table.lost), TABLES[name].part_of(table.place.name)
            details = {
                "problem": "table",
                "what": what,
                "proof": PROOFS[name],
                "table": name,
                "lost": table.lost,
                "shown": sorted(shown),
            } | ({"part": part} if part else {})
            report.add(MISSING, file=witnesses.store.relative(table.place),
                       severity="warning" if name == GROUPS else None, effect=EFFECTS[name],
                       details=details)  # fmt: skip


def _empty_table(witnesses: Witnesses, name: str) -> _EmptyTable | None:
    """The table if it has no entries; None also where it cannot be read, which is reported by others."""
    file = witnesses.snapshot.committed.file if name == CONSUMER_OFFSET else witnesses.table(name)
    place = file.path or expected_database(witnesses.store, name)
    if file.problem or place is None or any(map(file.content.get, _CONTENTS[name])):
        return None
    is_made = file.path is not None
    return _EmptyTable(name, place, is_made or is_rocksdb_directory(place), is_made)


def _shown(table: _EmptyTable, witnesses: Witnesses) -> Collection[str]:
    """The topics or groups that show what was in a table.

    Groups that are configured show offsets only where the database is gone: they may not have consumed yet.
    """
    if table.name == TOPICS:
        return witnesses.user_topics
    if table.name == GROUPS:
        return witnesses.known_groups()
    groups = witnesses.retrying_groups()
    is_brokers = witnesses.is_brokers or witnesses.table(GROUPS).path is not None
    return groups | witnesses.configured_groups() if is_brokers and not table.has_place else groups


def _is_unwritten(table: _EmptyTable, witnesses: Witnesses) -> bool:
    """Whether a table of topics or groups may never have been written: no broker has, or it was killed before.

    A broker writes the groups that each has when it stops.
    """
    if table.is_made and not witnesses.is_unclean:
        return False
    if table.name == GROUPS and table.has_place and witnesses.is_unclean:
        return True
    return not witnesses.is_brokers and (table.name == GROUPS or not witnesses.has_broker_topics)
