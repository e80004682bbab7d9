"""What a newer release would refuse, and what it would do otherwise, for this store and this broker.conf.

A start on the store's files is predicted apart (`broker.prediction`); here are the settings, and what changed between
releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqtool.broker.rocksdb_recovery import SETTING, selects_rows
from rmqtool.rules import file_sizes
from rmqtool.rules.broker_conf import UNUSED, BrokerConf, broker_settings, is_known
from rmqtool.rules.file_sizes import leaves_out_wrong_sizes
from rmqtool.rules.recovery import RecoveryRules, chosen_queues
from rmqtool.rules.versions import (
    COMBINED_QUEUES,
    CONTROLLER_EXCLUDES_DLEDGER,
    DISK_RATIO_AS_DF,
    INDEX_OF_TAGS,
    LIGHT_OFFSETS_READ,
    LITE_TOPICS,
    MULTI_DISPATCH,
    MULTI_DISPATCH_SPARES_DEAD_LETTERS,
    MULTI_DISPATCH_SPARES_RETRIES,
    MULTI_DISPATCH_SPARES_SYSTEM_TOPICS,
    PULL_OFFSETS_KEPT,
    PULL_OFFSETS_KEPT_NO_MORE,
    RECOVERED_FILES_LIMITED,
    ROCKSDB_QUEUES,
    SECOND_CONFIG,
    SLAVE_TAKES_ATTRIBUTES,
    SLAVE_TAKES_NO_ATTRIBUTES,
    Version,
)
from rmqtool.store.config_json import load_config
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    counting_file,
    offsets_in,
    reads_no_offsets,
)
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.lock import has_abort
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, Store, holds_rocksdb

_FILES, _ROCKSDB = "default", "defaultrocksdb"  # StoreType, in any case
_DECIDING = ("combineAssignOffsetCQType", "combineCQPreferCQType")
_OF_PLUG_IN = ("tiered", "readAhead", "commitLogRolling")  # beginnings of settings of the tiered store
_IGNORED_FILES = "starts with an empty log or empty queues, and overwrites the existing files"


class Refusal(NamedTuple):
    """Why a release does not start; `instead` what it does where that is worse."""

    why: str
    instead: str | None = None


class ReleaseChange(NamedTuple):
    """What a release does otherwise than those before it."""

    since: Version
    what: str


def refusals(snapshot: Snapshot, version: Version) -> Iterator[Refusal]:
    """Why a broker of `version` would not start on the store with its broker.conf."""
    store, conf = snapshot.store, snapshot.store.conf
    twice = store.writes_queues_twice
    if version >= LITE_TOPICS and twice and not conf.is_on("combineCQUseRocksdbForLmq"):
        yield Refusal("rocksdbCQDoubleWriteEnable=true needs combineCQUseRocksdbForLmq=true: the start is aborted")
    if version >= COMBINED_QUEUES and twice and any(queue.kind == "batch" for queue in list_queues(store)):
        yield Refusal(
            "rocksdbCQDoubleWriteEnable=true, and the store has batch queues, which the broker cannot load then"
        )
    if version >= COMBINED_QUEUES and twice:
        yield from _wrong_combinations(conf, version)
    if version >= LITE_TOPICS and (store.is_of_rocksdb_type or twice):
        is_separate = conf.is_on("useSeparateStorePathForRocksdbCQ")
        other = CONSUME_QUEUE if is_separate else SEPARATE_ROCKSDB_QUEUES
        if holds_rocksdb(store.root / other):
            given = "true" if is_separate else "false"
            yield Refusal(f"useSeparateStorePathForRocksdbCQ={given}, but {other}/ holds queues in RocksDB")
    if version >= LITE_TOPICS and conf.is_on("enableAcceleratedRecovery") and has_abort(store.root):
        checkpoint = snapshot.checkpoint or {}
        if checkpoint.get("physic_message_timestamp", 0) > 0 >= checkpoint.get("logics_physical_offset", 0):
            yield Refusal("enableAcceleratedRecovery=true needs an offset in the checkpoint, which only a broker of "
                          f"{LITE_TOPICS} or later writes, and the last broker was killed")  # fmt: skip
    modes = conf.is_on("enableControllerMode") and conf.is_on("enableDLegerCommitLog")
    if modes and version >= CONTROLLER_EXCLUDES_DLEDGER:
        yield Refusal("enableControllerMode and enableDLegerCommitLog are both true")
    yield from _wrong_sizes(snapshot, version)


def _wrong_combinations(conf: BrokerConf, version: Version) -> Iterator[Refusal]:
    """Settings of queues in files and in RocksDB that `CombineConsumeQueueStore` does not take together."""
    chosen = chosen_queues(conf)
    types = {text.strip() for text in chosen["combineCQLoadingCQTypes"].split(";")} & {_FILES, _ROCKSDB}
    for name in _DECIDING:
        if chosen[name] not in types:
            yield Refusal(f"{name}={chosen[name]} is not one of the queues that combineCQLoadingCQTypes loads")
    needed = [(SETTING, name) for name in _DECIDING] if selects_rows(conf, version) else []
    if version >= LITE_TOPICS and conf.is_on("combineCQUseRocksdbForLmq"):
        needed.append(("combineCQUseRocksdbForLmq", _DECIDING[0]))
        if _ROCKSDB not in types:
            yield Refusal("combineCQUseRocksdbForLmq=true, and combineCQLoadingCQTypes loads no queues in RocksDB")
    for setting, name in needed:
        if chosen[name] != _FILES:
            yield Refusal(f"{setting}=true needs {name}=default: the start is aborted")


def _wrong_sizes(snapshot: Snapshot, version: Version) -> Iterator[Refusal]:
    """Sizes under a name that the release does not read, where the files are not of its default."""
    sizes: tuple[tuple[str, tuple[str, ...], Callable[[], int], int], ...] = (
        ("commit log", file_sizes.LOG_FILE_SIZE, lambda: snapshot.log.file_size, file_sizes.DEFAULT_LOG_FILE_SIZE),
        ("consume queue", file_sizes.QUEUE_FILE_SIZE["simple"], lambda: snapshot.queues.usual_file_size("simple"),
         file_sizes.DEFAULT_QUEUE_FILE_SIZE["simple"]),
    )  # fmt: skip
    for what, names, size_of, default in sizes:
        given = [name for name in names if snapshot.store.conf.text(name)]
        if not given or any(is_known(name, version) for name in given):
            continue
        size = size_of()  # the queues are listed for this alone: a running broker makes more of them
        if size not in (0, default):
            message = f"{given[0]} is not read: {what} files have {default} bytes then, and the store's have {size}"
            yield Refusal(message, _IGNORED_FILES if leaves_out_wrong_sizes(version) else None)


def changes(snapshot: Snapshot, version: Version) -> Iterator[ReleaseChange]:
    """What releases up to `version` have changed that concerns the store, oldest first."""
    conf = snapshot.store.conf
    rules = RecoveryRules.of(version, conf)
    files, read = len(snapshot.log.files), rules.recovered_files
    has_slave = conf.text("brokerRole") in ("SLAVE", "SYNC_MASTER")  # of an ASYNC_MASTER, the default, nobody knows
    found = (
        (DISK_RATIO_AS_DF, True,
         "the disk is measured as df does: diskMaxUsedSpaceRatio is reached sooner, and files are deleted sooner"),
        (MULTI_DISPATCH_SPARES_RETRIES, snapshot.has_light_queues,
         "light queues get no entries of retry topics any more"),
        (MULTI_DISPATCH_SPARES_SYSTEM_TOPICS, snapshot.has_light_queues,
         "light queues get no entries of delayed messages any more, before these are delivered"),
        (INDEX_OF_TAGS, bool(snapshot.index_files),
         "tags are also keys of the index: its files fill sooner, and a query by tag finds only messages stored from "
         "then on"),
        (RECOVERED_FILES_LIMITED, files > read,
         f"after a crash only the last {read} of the {files} commit log files are read: messages that were not in the "
         f"queues before are never added. commitLogRecoverMaxNum={files} reads all"),
        (MULTI_DISPATCH_SPARES_DEAD_LETTERS, snapshot.has_light_queues,
         "light queues get no entries of dead letter topics any more"),
        (SLAVE_TAKES_NO_ATTRIBUTES, version < SLAVE_TAKES_ATTRIBUTES and has_slave,
         "a slave does not copy topics with attributes, such as message.type, from its master: if it becomes master, "
         "they are missing. Copy topics.json before, or take 5.3.4"),
        (PULL_OFFSETS_KEPT, version < PULL_OFFSETS_KEPT_NO_MORE and has_slave,
         "a slave cannot read its master's committed offsets (pullOffsetTable): if it becomes master, it has none. "
         "Copy consumerOffset.json before, or take 5.5.1"),
    )  # fmt: skip
    return (ReleaseChange(since, message) for since, concerns, message in found if concerns and since <= version)


def switches(snapshot: Snapshot, version: Version) -> Iterator[str]:
    """What settings move to another place in a release, so that it does not read what the store has."""
    store, conf = snapshot.store, snapshot.store.conf
    if version >= ROCKSDB_QUEUES and store.is_of_rocksdb_type and store.layout != "rocksdb" and snapshot.queues:
        yield "storeType=defaultRocksDB keeps the consume queues in RocksDB: the queue files are not read"
    is_second = (conf.text("configManagerVersion") or "").lower() == "v2"
    if version >= SECOND_CONFIG and is_second and not holds_rocksdb(store.root / CONFIG / "rdb"):
        yield (
            "configManagerVersion=v2 keeps topics, groups and committed offsets in its own database and does not "
            "import the existing ones: the broker starts without them"
        )
    if version >= MULTI_DISPATCH and not (is_second or store.is_of_rocksdb_type):
        yield from _moved_offsets(store)
    if reads_no_offsets(store, version) and snapshot.committed.offsets:
        yield (
            f"enableLmq=true, and {version} reads no committed offsets at a start, neither from {LMQ_CONSUMER_OFFSET} "
            f"nor from {CONSUMER_OFFSET}: each group begins again by its own policy. {LIGHT_OFFSETS_READ} reads them"
        )
    lights = all(map(conf.is_on, ("enableLmq", "combineCQUseRocksdbForLmq")))
    if store.writes_queues_twice and lights and selects_rows(conf, version):
        yield (
            f"{SETTING}=true puts messages of topics without message.type=LITE into no light queue, since "
            "combineCQUseRocksdbForLmq=true keeps these in RocksDB alone: their consumers do not get them"
        )


def _moved_offsets(store: Store) -> Iterator[str]:
    """Committed offsets in the file that the broker does not read (`BrokerController`, `LmqConsumerOffsetManager`)."""
    read = counting_file(store)
    if read is None:
        return
    given = f"enableLmq={'true' if read == LMQ_CONSUMER_OFFSET else 'false'}"
    left = CONSUMER_OFFSET if read == LMQ_CONSUMER_OFFSET else LMQ_CONSUMER_OFFSET
    found = [load_config(store.root / CONFIG / name) for name in (left, read)]
    there, used = (each.path.stat().st_mtime_ns if each.path else 0 for each in found)
    if there > used and offsets_in(found[0].content):
        why = "which is older" if used else "which does not exist"
        yield (
            f"{given} reads the committed offsets of all groups from {read}, {why}, and nothing from {left}: the "
            "broker starts without those. A copy of the file under the other name gives it those of ordinary groups"
        )


def changed_defaults(conf: BrokerConf, before: Version, version: Version) -> Iterator[ReleaseChange]:
    """Settings that broker.conf leaves out, and whose default in `version` is another one than in `before`."""
    has_plug_in = conf.text("messageStorePlugIn") is not None
    for setting in broker_settings().values():
        old, new = setting.default(before), setting.default(version)
        if {None, UNUSED} & {old, new} or old == new or setting.name in conf.settings:
            continue
        if has_plug_in or not setting.name.startswith(_OF_PLUG_IN):
            shown = f"{setting.name} {setting.shown_default(before)} -> {setting.shown_default(version)}"
            yield ReleaseChange(setting.changed(version), shown)
