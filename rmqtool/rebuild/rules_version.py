"""Whose rules count when nobody says which version wrote the store: the newest, unless its index tells otherwise."""

from __future__ import annotations

from rmqtool.catalogue import finding
from rmqtool.errors import UnsupportedError
from rmqtool.findings import Finding
from rmqtool.index import Geometry, IndexFile, geometry_of, list_index_files
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.record_signs import index_signs
from rmqtool.store import Store
from rmqtool.versions import NEWEST, Version

_LAST_WITHOUT_TAGS = Version(5, 3, 4)
_LAST_THAT_COUNTS_PUTS = Version(4, 7, 0)


def rules_version(store: Store, options: RebuildOptions) -> tuple[Version, list[Finding]]:
    """The version whose rules count, and a finding where that is a choice."""
    if options.version:
        return options.version, []
    if "index" not in options.parts:
        return NEWEST, []
    file, geometry = _newest_index(store)
    if file is None or geometry is None:
        return NEWEST, [_assumed()]
    if "index-of-tags" in set(index_signs(file, geometry, store.commit_log().files)):
        return NEWEST, []
    counts_puts = file.hash_slot_count == file.keys > geometry.slots
    return (_LAST_THAT_COUNTS_PUTS if counts_puts else _LAST_WITHOUT_TAGS), [_told(file, store)]


def _newest_index(store: Store) -> tuple[IndexFile | None, Geometry | None]:
    file = next((file for file in reversed(list(list_index_files(store))) if file.keys), None)
    if file is None:
        return None, None
    try:
        return file, geometry_of(file, store.conf.index_geometry)
    except UnsupportedError:
        return None, None


def _assumed() -> Finding:
    message = (
        f"no index file tells which version writes the store: the rules of {NEWEST} are taken, which also index tags"
    )
    return finding("rebuild.version-assumed", f"{message}; --broker-version says otherwise")


def _told(file: IndexFile, store: Store) -> Finding:
    message = "the newest keys are no tags, so a broker before 5.4.0 wrote this file: tags are not indexed"
    place = store.relative(file.path)
    return finding("rebuild.version-assumed", f"{message}; --broker-version says otherwise", file=place)
