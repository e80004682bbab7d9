"""The configuration: its JSON files and their ``.bak`` (`ConfigManager`), and the rows of it that RocksDB has."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.files import list_directory, read_all
from rmqtool.base.paths import is_remote
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.base.visible import quote
from rmqtool.clients.never_delivered import lacks_pop_store
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_log import first_damage, goes_on
from rmqtool.formats.rocksdb_rows import config_entry
from rmqtool.rules.versions import FASTJSON_2, SINGLE_ROCKSDB_CONFIG, Releases, Version
from rmqtool.store.config_json import (
    ConfigFile,
    backup_of,
    backup_problem_of,
    is_damaged_name,
    load_config,
    read_config_file,
)
from rmqtool.store.config_tables import (
    CONFIG_DATABASES,
    CONSUMER_FILTER,
    CONSUMER_OFFSET,
    DEFAULT_FAMILY,
    FORBIDDEN,
    GROUPS,
    LMQ_CONSUMER_OFFSET,
    OFFSETS,
    SECOND,
    SINGLE,
    TABLES,
    TOPICS,
    VERSION_FAMILY,
    ConfigTable,
    config_database,
    counting_file,
    entries_in,
    main_table,
)
from rmqtool.store.config_text import damaged_names
from rmqtool.store.consumer_filters import load_filters
from rmqtool.store.file_findings import offset_findings
from rmqtool.store.rocksdb import DamagedDatabaseError, RocksDb, holds_rows, is_readable
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.transaction.undo import was_killed

_CONFIG_NAME = re.compile(r"\w+\.json|timermetrics")
_SHOWN = 4  # names
_SIDE_SETTINGS = ("indexRocksDBEnable", "timerRocksDBEnable", "transRocksDBEnable")
VERSIONED_FILES = (TOPICS, GROUPS)
"""Files whose data version grows with each change of their main table; offsets change without it."""


def check_config_files(snapshot: Snapshot, report: Report, *, is_alone: bool = False) -> None:
    """Check that the files can be read, and that two copies of the same data version agree.

    `is_alone` where no `check_config_databases` follows, which says more of a damaged database.
    """
    store, version = snapshot.store, _version_of_reading(snapshot.releases)
    in_doubt = _doubt_which_offsets(snapshot, report)
    for each in () if in_doubt else offset_findings(store, snapshot.committed.file):
        if each.code != "config.rocksdb-damaged" or is_alone or snapshot.holder is not None:
            report.add_finding(each)
    if is_alone and not report.all_totals().get("config.rocksdb-damaged"):
        _check_topics_in_rocksdb(snapshot, report)
    _check_filters(snapshot, report)
    for name in _config_names(store):
        _check_readable(store, name, version, report)
        if version is None:
            _doubt_reading(snapshot, name, report)
    for name in VERSIONED_FILES:
        _check_sources(store, name, report)
    _check_side_store(store, report)
    report.check("store.pop-store-missing")
    if lacks_pop_store(snapshot):
        report.add("store.pop-store-missing", file=POP_STORE, details={"setting": "popConsumerKVServiceInit"})


def _check_topics_in_rocksdb(snapshot: Snapshot, report: Report) -> None:
    database, why = config_database(snapshot.store, TOPICS), snapshot.topics.file.problem
    if database and why:
        report.add("config.rocksdb-damaged", file=snapshot.store.relative(database), details={"why": why})


def _doubt_which_offsets(snapshot: Snapshot, report: Report) -> bool:
    """Note that one of two files of offsets cannot be read, where nothing says which of them the broker reads.

    With `enableLmq` that is lmqConsumerOffset.json, for the offsets of all groups, and else consumerOffset.json.
    """
    store = snapshot.store
    if counting_file(store) is not None or config_database(store, CONSUMER_OFFSET):
        return False
    files = {name: load_config(store.root / CONFIG / name) for name in OFFSETS}
    bad = [name for name, file in files.items() if file.problem is not None]
    if len(bad) != 1 or not all(file.path or file.problem for file in files.values()):
        return False
    name, file = bad[0], files[bad[0]]
    effect = "starts with its older .bak" if file.path else "starts without any offset"
    effect = "refuses to start" if file.has_bad_backup else effect
    setting = f"enableLmq={'true' if name == LMQ_CONSUMER_OFFSET else 'false'}"
    text = f"committed offsets: {CONFIG}/{name} cannot be read ({file.problem}), and a broker with {setting} {effect}"
    report.doubt("committed offsets", f"{text}; --broker-conf says whether it is of such a broker")
    return True


def _check_filters(snapshot: Snapshot, report: Report) -> None:
    """Report filters that a start ignores, all of them for the sake of one (`ConsumerFilterManager#decode`)."""
    found = load_filters(snapshot.store)
    report.check("config.filters-ignored", len(found.filters) + found.misplaced)
    file = f"{CONFIG}/{CONSUMER_FILTER}"
    if found.misplaced:
        facts = {"problem": "key", "filters": len(found.filters), "contradicting": found.misplaced}
        report.add("config.filters-ignored", file=file, details=facts)
    wrong = found.contradicting
    if not wrong:
        return
    shown = wrong[0]
    if found.may_be_of_broker:
        text = f"filters of {counted(len(found.filters), 'group')}: they are for a Bloom filter of {shown.bloom}, and "
        report.doubt(
            "filters of groups", f"{text}the broker's has {found.expected} unless broker.conf sets another size"
        )
        return
    details = {"problem": "other" if shown.bloom else "none",
               "filters": len(found.filters), "contradicting": len(wrong), "group": shown.group,
               "expected_bits": found.expected.bits, "expected_positions": found.expected.positions,
               "found_bits": shown.bloom and shown.bloom.bits,
               "found_positions": shown.bloom and shown.bloom.positions}  # fmt: skip
    report.add("config.filters-ignored", file=file, topic=shown.topic, details=details)


def _config_names(store: Store) -> list[str]:
    """Names of the JSON files, also of those of which only the ``.bak`` is left."""
    names: set[str] = set()
    with skip_wrong_type():
        names.update(entry.name.removesuffix(".bak") for entry in list_directory(store.root / CONFIG))
    return sorted(name for name in names if _CONFIG_NAME.fullmatch(name))


def _version_of_reading(releases: Releases) -> Version | None:
    """The release as which files are read; None where those that fit read JSON by two libraries."""
    is_same = (releases.oldest >= FASTJSON_2) == (releases.newest >= FASTJSON_2)
    return releases.oldest if is_same else None


def _doubt_reading(snapshot: Snapshot, name: str, report: Report) -> None:
    """Note that only some of the releases that fit can read a file, which is more than JSON."""
    path, releases = snapshot.store.root / CONFIG / name, snapshot.releases
    before, since = load_config(path, releases.oldest), load_config(path, releases.newest)
    if before.path != since.path:
        who = f"before {FASTJSON_2}" if before.path is None else f"since {FASTJSON_2}"
        text = f"{CONFIG}/{name}: brokers {who} cannot read it ({(before.problem or since.problem)})"
        report.doubt(f"{CONFIG}/{name}", f"{text}; --broker-version says whether it is of such a broker")


def _check_readable(store: Store, name: str, version: Version | None, report: Report) -> None:
    """A ``.bak`` that cannot be read harms only when its file is lost; `offset_findings` is about offsets."""
    report.check("config.unreadable")
    file, path = load_config(store.root / CONFIG / name, version), f"{CONFIG}/{name}"
    if file.problem is not None and name not in OFFSETS:
        facts, severity, effect = {"problem": "no-backup", "why": file.problem}, None, None
        if file.has_bad_backup:
            facts["problem"], severity, effect = "both", "error", "the broker refuses to start"
        elif file.path:
            facts |= {"problem": "backup-read", "backup": store.relative(file.path)}
        else:
            effect = "the broker starts without its contents"
        report.add("config.unreadable", file=path, severity=severity, effect=effect, details=facts)
        return
    if name not in OFFSETS or counting_file(store) in (name, None):
        _check_names(store, name, file, report)
    if file.path and not file.is_backup and (why := backup_problem_of(file.path, version)):
        report.add("config.unreadable", severity="info", file=f"{path}.bak",
                   effect="none, as long as the file itself can be read",
                   details={"problem": "backup", "why": why})  # fmt: skip


def _check_names(store: Store, name: str, file: ConfigFile, report: Report) -> None:
    """A broker reads a name that damage has changed as another one."""
    names = damaged_names(name, file.content, file.path) if file.path else []
    if file.path is None or not names:
        return
    effect = "the broker knows what they name as something else"
    if name in OFFSETS:
        effect = "groups of these names begin again by their own policy"
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    facts = {"problem": "names", "names": len(names), "shown": shown}
    report.add("config.unreadable", file=store.relative(file.path), severity="error" if name in OFFSETS else None,
               effect=effect, details=facts)  # fmt: skip


def copies_of(store: Store, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """A file and its ``.bak``; None where one of them is not there, or cannot be read, which is reported with it."""
    path = store.root / CONFIG / name
    try:
        return read_config_file(path), read_config_file(backup_of(path))
    except RmqtoolError:
        return None


def _check_sources(store: Store, name: str, report: Report) -> None:
    """A file and its ``.bak`` of one data version should have the same values in all fields that both have."""
    path = store.root / CONFIG / name
    if not path.is_file() or not backup_of(path).is_file():
        return
    report.check("config.backup-differs")
    main, other = copies_of(store, name) or ({}, {})
    version = entries_in(main, "dataVersion")
    if not version or version != other.get("dataVersion"):
        return
    differing = [*_differing(main_table(name, main) or {}, main_table(name, other) or {})]
    if differing:
        shown = ", ".join(differing[:_SHOWN]) + (", ..." if len(differing) > _SHOWN else "")
        facts = {"counter": version.get("counter"), "shown": shown}
        report.add("config.backup-differs", file=f"{CONFIG}/{name}", count=len(differing), details=facts)


def _differing(main: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Entries of both tables in which a common field has different values."""
    for name in main.keys() & other.keys():
        ours, theirs = main[name], other[name]
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        if any(ours[field] != theirs[field] for field in ours.keys() & theirs.keys()):
            yield str(name)


def _check_side_store(store: Store, report: Report) -> None:
    """`rocksdbstore` counts only when index, timer or transactions are kept in it."""
    if not is_rocksdb_directory(store.root / SIDE_STORE):
        return
    report.check("store.rocksdb-side-store")
    used = [name for name in _SIDE_SETTINGS if store.conf.is_on(name)]
    tables = [entry for entry in list_directory(store.root / SIDE_STORE) if entry.name.endswith(".sst")]
    if used:
        report.add("store.rocksdb-side-store", file=SIDE_STORE, details={"problem": "used", "settings": used})
    elif tables:
        counted_tables = {"problem": "tables", "tables": len(tables)}
        report.add("store.rocksdb-side-store", file=SIDE_STORE, details=counted_tables)


_MAX_LOG = 256 << 20  # bytes of a write-ahead log that are read
_LOG = ".log"
_MANIFEST = re.compile("MANIFEST-[0-9]+")
_CURRENT = "CURRENT"  # names the MANIFEST
_MAX_CURRENT = 64  # bytes


def is_database(directory: Path) -> bool:
    """Whether a directory is a database, or was one before files of it were lost."""
    return is_rocksdb_directory(directory) or (
        directory.is_dir() and any(holds_rows(entry) for entry in list_directory(directory))
    )


@contextmanager
def reported_database(
    snapshot: Snapshot, name: str, code: str, report: Report, families: Collection[str] = ()
) -> Iterator[RocksDb | None]:
    """The opened database of a store, None where it cannot be opened; damage, then or later, is reported as `code`.

    `families` are the only column families with which brokers open it; none where they open all that there are. A
    broker that was `killed` may leave the end of the log that it wrote to, the last with rows, that is not whole.
    """
    report.check(code)
    directory, killed = snapshot.store.root / name, was_killed(snapshot.store.root)
    logs = [entry for entry in list_directory(directory) if entry.name.endswith(_LOG)]
    with_rows = [directory / entry.name for entry in logs if entry.stat().st_size]
    for path in with_rows:
        data = read_all(path, _MAX_LOG)
        damage = first_damage(data)
        if damage is not None and not (killed and path == with_rows[-1] and not goes_on(data, damage)):
            facts = {"problem": "log", "name": path.name, "damaged_from": damage}
            report.add(code, file=f"{name}/{path.name}", offset=damage, details=facts)
    database = None
    try:
        database = snapshot.databases.opened(directory)
        yield database
        database.check_tables()
        if families:
            database.check_families(families)
    except DamagedDatabaseError as error:
        manifest = None if database else _unnamed_manifest(directory)
        again = f"echo {manifest} > {quote(str(directory / _CURRENT))}" if manifest else None
        details = {"why": error.message} | ({"manifest": manifest} if manifest else {})
        report.add(code, file=name, remedy=again, details=details)
        if database is None:
            yield None


def _unnamed_manifest(directory: Path) -> str | None:
    """The file that a lost CURRENT named; None where it is right, or several files may be what it named."""
    manifests = [entry.name for entry in list_directory(directory) if _MANIFEST.fullmatch(entry.name)]
    current = directory / _CURRENT
    if len(manifests) != 1 or is_remote(directory):
        return None
    with suppress(UnreadableError):
        if read_all(current, _MAX_CURRENT) == f"{manifests[0]}\n".encode():
            return None
    return manifests[0]


_MAX_OFFSET = (1 << 63) - 1


def check_config_databases(snapshot: Snapshot, report: Report) -> None:
    """Check every row of every database in `config/`; without the library, or while a broker writes, nothing.

    A row that a broker cannot decode ends its start.
    """
    store = snapshot.store
    if snapshot.holder is not None or not is_readable():
        return
    for name in CONFIG_DATABASES:
        if not is_database(store.root / CONFIG / name):
            continue
        path = f"{CONFIG}/{name}"
        families = _families_of(name, snapshot.releases.newest)
        with reported_database(snapshot, path, "config.rocksdb-damaged", report, families) as database:
            for family in database.families if database else ():
                for key, value in database.rows(family) if database else ():
                    report.check("config.row")
                    why = _why_bad(name, family, key, value)
                    if why:
                        report.add("config.row", file=path, details={"key": decode_text(key), "why": why})
    _check_swapped(snapshot, report)


def _families_of(database: str, release: Version) -> tuple[str, ...]:
    """The column families with which a release opens a database; none where it opens all: version 1 since 5.3.4."""
    if database == SECOND:
        return (DEFAULT_FAMILY,)
    opens_all = database == SINGLE or release >= SINGLE_ROCKSDB_CONFIG
    return () if opens_all else (DEFAULT_FAMILY, VERSION_FAMILY, FORBIDDEN)


def _why_bad(database: str, family: str, key: bytes, value: bytes) -> str | None:
    """Why a broker does not read a row as what it must be; None for a sound one."""
    if database == SECOND:
        try:
            row = config_entry(key, value)
        except FormatError as error:
            return str(error)
        table = next((each for each in TABLES.values() if each.family == row.key["table"]), None)
        return None if row.json is None else _why_bad_json(table, family, row.key["name"], row.json)
    own = (
        each
        for each in TABLES.values()
        if family == each.family or (family, database) == (DEFAULT_FAMILY, each.database)
    )
    table = next(own, None)
    if table is None and family not in (FORBIDDEN, VERSION_FAMILY) and not family.endswith("Version"):
        return "a row where there is none"
    return _why_bad_json(table, family, decode_text(key), decode_text(value))


def _why_bad_json(table: ConfigTable | None, family: str, name: str, text: str) -> str | None:
    """The same of a row of JSON, of a table or else of what groups may not read, or of a version."""
    try:
        content = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(content, dict):
        return "not JSON: not a JSON object"
    if table is None:
        is_sound = family == FORBIDDEN or type(content.get("counter")) is int
        return None if is_sound else "a version without a counter"
    if table.named_by:
        found = content.get(table.named_by)
        return None if found == name else f"its {table.named_by} is {found!r}"
    if "@" not in name or is_damaged_name(name):
        return "no topic and group"
    queues = content.get(table.name)
    offsets = queues.items() if isinstance(queues, dict) else [("", None)]
    bad = [queue for queue, offset in offsets
           if not queue.isdecimal() or type(offset) is not int or abs(offset) > _MAX_OFFSET]  # fmt: skip
    return f"no offset of queue {bad[0]!r}" if bad else None


def _check_swapped(snapshot: Snapshot, report: Report) -> None:
    """Report rows of version 2 with topic and group in each other's place (`ConsumerOffsetManagerV2`)."""
    topics, committed = snapshot.topic_names, snapshot.committed
    if committed.file.path is None or committed.file.path.name != SECOND:
        return
    for one in committed.offsets:
        if one.group in topics and one.topic not in topics:
            names = {"topic_name": one.topic, "group": one.group}
            report.add("config.swapped-offset", file=f"{CONFIG}/{SECOND}", details=names)
