"""The JSON files of `config/`, their ``.bak`` files, and databases that hold the same or more (`ConfigManager`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import list_directory
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.clients.never_delivered import lacks_pop_store
from rmqtool.findings.finding import Severity, counted
from rmqtool.findings.report import Report
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rmqtool.rules.versions import FASTJSON_2, Releases, Version
from rmqtool.store.config_json import backup_problem_of, load_config, read_config_file
from rmqtool.store.consumer_groups import (
    CONSUMER_FILTER,
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    counting_file,
    load_filters,
)
from rmqtool.store.file_findings import offset_findings
from rmqtool.store.rocksdb_config import config_database
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.store.topics import READABLE, TOPICS, WRITABLE, Topics
from rmqtool.verify.witnesses import Witnesses

_CONFIG_NAME = re.compile(r"\w+\.json|timermetrics")
_SIDE_SETTINGS = ("indexRocksDBEnable", "timerRocksDBEnable", "transRocksDBEnable")
VERSIONED_FILES = (TOPICS, "subscriptionGroup.json")
"""Files whose data version grows with each change of their main table; offsets change without it."""


def check_config_files(snapshot: Snapshot, report: Report) -> None:
    """Check that the files can be read, and that two copies of the same data version agree."""
    store, version = snapshot.store, _version_of_reading(snapshot.releases)
    in_doubt = _doubt_which_offsets(snapshot, report)
    for each in () if in_doubt else offset_findings(store, snapshot.committed.file):
        if each.code != "config.rocksdb-damaged" or snapshot.holder is not None:  # `check_config_databases` reports it
            report.add_finding(each)
    _check_filters(snapshot, report)
    for name in _config_names(store):
        report.check("config.unreadable")
        if name not in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET):
            _check_readable(store, name, version, report)
        _check_backup(store, name, version, report)
        if version is None:
            _doubt_reading(snapshot, name, report)
    for name in VERSIONED_FILES:
        _check_sources(store, name, report)
    _check_side_store(store, report)
    report.check("store.pop-store-missing")
    if lacks_pop_store(snapshot):
        report.add("store.pop-store-missing", file=POP_STORE, details={"setting": "popConsumerKVServiceInit"})


def _doubt_which_offsets(snapshot: Snapshot, report: Report) -> bool:
    """Note that one of two files of offsets cannot be read, where nothing says which of them the broker reads.

    With `enableLmq` that is lmqConsumerOffset.json, for the offsets of all groups, and else consumerOffset.json.
    """
    store = snapshot.store
    if counting_file(store) is not None or config_database(store, CONSUMER_OFFSET):
        return False
    files = {name: load_config(store.root / CONFIG / name) for name in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)}
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
    report.check("config.filters-ignored", len(found.filters))
    wrong = found.contradicting
    if not wrong:
        return
    shown, path = wrong[0], f"{CONFIG}/{CONSUMER_FILTER}"
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
    report.add("config.filters-ignored", file=path, topic=shown.topic, details=details)


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
    file = load_config(store.root / CONFIG / name, version)
    if file.problem is None:
        return
    path, facts = f"{CONFIG}/{name}", {"problem": "no-backup", "why": file.problem}
    if file.has_bad_backup:
        facts["problem"] = "both"
        report.add(
            "config.unreadable", file=path, severity="error", effect="the broker refuses to start", details=facts
        )
        return
    if file.path:
        facts |= {"problem": "backup-read", "backup": store.relative(file.path)}
    effect = None if file.path else "the broker starts without what was in it"
    report.add("config.unreadable", file=path, effect=effect, details=facts)


def _check_backup(store: Store, name: str, version: Version | None, report: Report) -> None:
    """A ``.bak`` that cannot be read harms only when its file is lost."""
    path = store.root / CONFIG / name
    problem = backup_problem_of(path, version)
    if problem is not None and load_config(path, version).path == path:
        report.add("config.unreadable", severity="info", file=f"{CONFIG}/{name}.bak",
                   effect="none, as long as the file itself can be read",
                   details={"problem": "backup", "why": problem})  # fmt: skip


def _check_sources(store: Store, name: str, report: Report) -> None:
    """A file and its ``.bak`` of one data version should have the same values in all fields that both have."""
    path = store.root / CONFIG / name
    backup = path.with_name(f"{name}.bak")
    if not path.is_file() or not backup.is_file():
        return
    report.check("config.backup-differs")
    try:
        main, other = read_config_file(path), read_config_file(backup)
    except RmqtoolError:
        return  # reported already
    version = main.get("dataVersion")
    if not isinstance(version, dict) or version != other.get("dataVersion"):
        return
    differing = [*_differing(main_table(name, main) or {}, main_table(name, other) or {})]
    if differing:
        shown = ", ".join(differing[:4]) + (", ..." if len(differing) > 4 else "")
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


_ROUNDING_MS = 1_000
_OF_BROKER = (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)  # no operator sets their permission
_UNUSED = ("%RMQTOOL%", LMQ_PREFIX)  # never configured


def check_topic_lines(witnesses: Witnesses, report: Report) -> None:
    """Report topics that the store proves to have been configured, and permissions that stop consumers."""
    topics = witnesses.snapshot.topics
    for name in VERSIONED_FILES:
        _check_topics_backup(witnesses.store, name, report)
    if not topics.names_all or not topics.by_name:
        return
    missing = sorted({name.topic for name in witnesses.states} - topics.by_name.keys())
    report.check("config.topic-missing", len(witnesses.states))
    for topic in missing:
        if topic.startswith(_UNUSED):
            continue
        if topic.startswith(RETRY_PREFIX):
            effect = "the broker makes it again when a consumer of the group connects"
            severity: Severity | None = None if topic in witnesses.topics_with_units else "info"
            report.add(
                "config.topic-missing",
                severity=severity,
                effect=effect,
                topic=topic,
                details={"problem": "retry", **_details(topics)},
            )
        elif not is_system_topic(topic):
            proof = _proof(topic, witnesses)
            if proof:
                details = {**proof, **_details(topics)}
                report.add("config.topic-missing", file=topics.file_name, topic=topic, details=details)
    _check_permissions(topics, report)


def _details(topics: Topics) -> dict[str, str]:
    """What does not name a topic: a file, or a database."""
    return {"place": topics.place, "file" if topics.place == TOPICS else "database": topics.file_name}


def _changed(topics: Topics) -> int | None:
    """When topics.json was changed last, epoch ms; None when unknown."""
    version = topics.file.content.get("dataVersion")
    timestamp = version.get("timestamp") if isinstance(version, dict) else None
    return timestamp if type(timestamp) is int else None


def _proof(topic: str, witnesses: Witnesses) -> dict[str, str | int] | None:
    """Facts that show why a topic that is not configured was not deleted; None when it may have been."""
    states = (state for name, state in witnesses.states.items() if name.topic == topic)
    last = (witnesses.messages.at(state.last_physical_offset) for state in states)
    newest = max((message["store_timestamp"] for message in last if message), default=0)
    topics, committed = witnesses.snapshot.topics, witnesses.snapshot.committed
    changed = _changed(topics)
    if changed is not None and newest > changed + _ROUNDING_MS:
        return {"problem": "stored-since", "changed": changed, "newest": int(newest)}
    cleans_up = "groupTopicMap" in committed.file.content  # written since 5.0, whose deletion takes the offsets along
    groups = sorted({one.group for one in committed.offsets if one.topic == topic and one.offset > 0})
    if cleans_up and groups:
        return {"problem": "consumed", "group": groups[0]}
    return None


def _check_permissions(topics: Topics, report: Report) -> None:
    report.check("config.topic-permission", len(topics.by_name))
    for topic in topics.by_name.values():
        denied = [text for bit, text in ((READABLE, "read"), (WRITABLE, "written")) if not topic.perm & bit]
        if topic.name.startswith(DEAD_LETTER_PREFIX) or not denied or topic.name.startswith("rmq_sys_SYNC_"):
            continue
        is_brokers = topic.name.startswith(RETRY_PREFIX) or topic.name in _OF_BROKER
        facts = {"perm": topic.perm, "denied": " nor ".join(denied)}
        report.add("config.topic-permission", details=facts, severity=None if is_brokers else "info",
                   file=topics.file_name, topic=topic.name)  # fmt: skip


def _check_topics_backup(store: Store, name: str, report: Report) -> None:
    """A file against its .bak: it cannot have lost more entries than its data version has counted changes."""
    path = store.root / CONFIG / name
    report.check("config.older-copy")
    try:
        main, backup = read_config_file(path), read_config_file(path.with_name(f"{name}.bak"))
    except RmqtoolError:
        return  # reported with the files
    ours, theirs = (_version(content) for content in (main, backup))
    if ours is None or theirs is None:
        return
    if ours[0] < theirs[0] and ours[1] < theirs[1]:
        facts = {"problem": "version", "counter": ours[0], "backup_counter": theirs[0]}
        report.add("config.older-copy", file=f"{CONFIG}/{name}", details=facts)
        return
    before, after = set(main_table(name, backup) or ()), set(main_table(name, main) or ())
    if after and len(before - after) > ours[0] - theirs[0] >= 0:
        lost = {"problem": "entries", "counter": ours[0], "backup_counter": theirs[0]}
        lost["lost"] = sorted(before - after)[:4]
        report.add("config.older-copy", file=f"{CONFIG}/{name}", count=len(before - after), details=lost)


def _version(content: Mapping[str, Any]) -> tuple[int, int] | None:
    version = content.get("dataVersion")
    fields = version if isinstance(version, dict) else {}
    counter, timestamp = fields.get("counter"), fields.get("timestamp")
    return (counter, timestamp) if isinstance(counter, int) and isinstance(timestamp, int) else None
