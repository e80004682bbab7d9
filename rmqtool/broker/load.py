"""The files that a start loads, and the reasons to refuse (`DefaultMessageStore#load`, `MappedFileQueue#load`)."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.errors import UnreadableError, UnsupportedError, note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files
from rmqtool.base.paths import entry_path, has_directory, has_file, has_pipe, is_remote
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.compaction import compaction_refusal
from rmqtool.broker.prediction import StartRefusal
from rmqtool.findings.finding import counted
from rmqtool.formats import timer_wheel
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import (
    DEFAULT_LOG_FILE_SIZE,
    DEFAULT_QUEUE_FILE_SIZE,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    unread_size,
)
from rmqtool.rules.recovery import RecoveryRules, loaded_configs
from rmqtool.rules.versions import BATCH_QUEUES, COMPACTION, POPS_IN_ROCKSDB, SINGLE_ROCKSDB_CONFIG, Version
from rmqtool.store import config_tables
from rmqtool.store.config_json import load_config
from rmqtool.store.config_tables import ConfigTable, Topics, expected_database, is_unread
from rmqtool.store.consume_queues import Kind, Queue, QueueTable
from rmqtool.store.consumer_filters import bloom_refusal
from rmqtool.store.index_files import IndexFile
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, CONFIG, INDEX, Store, is_rocksdb_directory, log_directory
from rmqtool.store.timer_wheel import newest_wheel

ROOT_SETTING, LOG_SETTING = "storePathRootDir", "storePathCommitLog"


def other_root_opened(store: Store, version: Version) -> str | None:
    """The root that a broker opens in place of the store's; None where it is the store's, or of another machine."""
    meant, read = _read_twice(store.conf, ROOT_SETTING, version)
    if read is None or meant is None or not _is_same(meant, store.root) or _is_same(read, store.root):
        return None
    return read


def other_log_opened(store: Store, version: Version) -> str | None:
    """The directory in which a broker looks for the log in place of the store's; None where it is the store's."""
    meant, read = _read_twice(store.conf, LOG_SETTING, version)
    if read is None or meant is None or "," in meant:
        return None
    own, opened = log_directory(store.root, meant), log_directory(store.root, read)
    is_own = any(_is_same(str(own), each) for each in store.commit_log_directories)
    is_filled = opened.is_dir() and any(opened.iterdir())
    return read if is_own and not _is_same(str(opened), own) and not is_filled else None


def _read_twice(conf: BrokerConf, name: str, version: Version) -> tuple[str | None, str | None]:
    """A path as it is meant, without blanks around it, and as a broker takes it; the latter None where they agree."""
    meant, read = (conf.settings.get(name) or "").strip() or None, conf.for_release(version).text(name)
    return meant, None if read == meant else read


def _is_same(path: str, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_AFTER_ALL = b"\xff" * 256  # no name of a topic or a group is as long


@dataclass(frozen=True)
class Loaded:
    """What a start has loaded before it recovers.

    `refusal` is the reason why the broker does not start, or `hangs`; `ignored` are commit log files that it leaves
    out, `deleted` empty files that it deletes. Of the store's queues the first `queue_count` are loaded;
    `with_fewer_files` are those of them that lack some then, by index. Sizes are those of a whole file, bytes.
    """

    files: tuple[MappedFile, ...]
    file_size: int
    queue_file_sizes: Mapping[Kind, int]
    queue_count: int
    with_fewer_files: Mapping[int, Queue]
    ignored: tuple[MappedFile, ...] = ()
    deleted: tuple[Path, ...] = ()
    refusal: StartRefusal | None = None
    hangs: bool = False


@dataclass(frozen=True)
class _Entry:
    """An entry of a directory of mapped files; `mapped` is None when its name is not a start offset."""

    path: Path
    size: int
    is_directory: bool
    mapped: MappedFile | None


@dataclass(frozen=True, slots=True)
class _LoadedFiles:
    files: tuple[MappedFile, ...] = ()
    deleted: tuple[Path, ...] = ()
    refusal: StartRefusal | None = None


def load(snapshot: Snapshot, rules: RecoveryRules) -> Loaded:
    """Load as the broker does; the first obstacle ends it."""
    store, log = snapshot.store, snapshot.log
    size = rules.log_file_size or log.file_size or DEFAULT_LOG_FILE_SIZE
    is_elsewhere = other_log_opened(store, rules.version) is not None
    log_files = _LoadedFiles() if is_elsewhere else _load_files(store, log, size, rules)
    ignored = tuple(file for file in log.files if file.size and file not in log_files.files)
    refusal = _first_refusal(snapshot, rules, log_files.refusal)
    kinds = _loaded_kinds(snapshot, rules)
    count = sum(map(snapshot.queues.count_of, kinds))
    sizes = _queue_sizes(snapshot.queues, kinds, rules)
    fewer: dict[int, Queue] = {}
    deleted = list(log_files.deleted)
    is_unknown = is_unread(store, config_tables.TOPICS)
    unusual = snapshot.queues.not_all_of(sizes)
    for index in sorted({*unusual, *snapshot.queues.firsts_of_topics}):
        if index >= count:
            break
        queue = snapshot.queues[index]
        refusal = refusal or (None if is_unknown else _kind_refusal(queue, snapshot.topics, rules))
        loaded = _load_files(store, queue.files, sizes[queue.kind], rules, queue)
        if loaded.files is not queue.files.files:
            fewer[index] = replace(queue, files=MappedFiles(loaded.files))
        deleted += loaded.deleted
        if loaded.refusal and not refusal:
            refusal = loaded.refusal.of_setting(unread_size(store.conf, QUEUE_FILE_SIZE[queue.kind]))
    if rules.version >= COMPACTION:
        refusal = refusal or compaction_refusal(store)
    refusal = refusal or _opened_refusal(store, rules) or _index_refusal(store, rules) or _timer_refusal(store, rules)
    refusal = refusal or _pop_refusal(store, rules)
    waits = _waits_for_ever(store, rules)
    return Loaded(log_files.files, size, sizes, count, fewer, ignored, tuple(deleted),
                  waits or refusal, hangs=waits is not None)  # fmt: skip


def _first_refusal(snapshot: Snapshot, rules: RecoveryRules, of_log: StartRefusal | None) -> StartRefusal | None:
    """Why a start ends with its settings, its configuration or its log."""
    store = snapshot.store
    if refuses := bloom_refusal(store.conf):
        return StartRefusal("setting", f"broker.conf: {refuses}", setting="expectConsumerNumUseFilter")
    refusal = _config_refusal(store, rules) or _database_refusal(snapshot, rules)
    return refusal or (of_log and of_log.of_setting(unread_size(store.conf, LOG_FILE_SIZE) or _wrong_size(snapshot)))


def _wrong_size(snapshot: Snapshot) -> str | None:
    """The size of log files in broker.conf when the files of the log show another one; None when they do not."""
    conf, right = snapshot.store.conf, snapshot.right_log_file_size
    configured = conf.size(*LOG_FILE_SIZE)
    if not right or configured in (None, right):
        return None
    return next((name for name in LOG_FILE_SIZE if name in conf.settings), LOG_FILE_SIZE[0])


def _loaded_kinds(snapshot: Snapshot, rules: RecoveryRules) -> tuple[Kind, ...]:
    """The kinds of queues that are loaded from files, the first ones of the snapshot."""
    if snapshot.has_rows_only:
        return ()
    return ("simple", "batch") if rules.version >= BATCH_QUEUES else ("simple",)


def _kind_refusal(queue: Queue, topics: Topics, rules: RecoveryRules) -> StartRefusal | None:
    """`ConsumeQueueStore#queueTypeShouldBe`: a topic that is not configured counts as one of simple queues."""
    expected = "batch" if queue.topic in (topics.with_batch_queues or ()) else "simple"
    if rules.version < BATCH_QUEUES or queue.kind == expected:
        return None
    actual = f"topic {queue.topic} has {queue.kind} consume queues"
    if queue.topic not in topics.by_name:
        unconfigured = f"is not configured: no readable {topics.place}"
        why = f"is not in {topics.place}" if topics.is_known else unconfigured
        why = f"{actual}, but {why}: the broker expects simple ones"
    else:
        why = f"{actual}, but is configured for {expected} ones"
    return StartRefusal("queue-type", why, topic=queue.topic)


def _queue_sizes(queues: QueueTable, loaded: Iterable[Kind], rules: RecoveryRules) -> dict[Kind, int]:
    """Sizes of the files of each kind of queue: as configured, as most have where they are loaded, or the default."""
    usual = {kind: queues.usual_file_size(kind) for kind in loaded}
    return {
        "simple": rules.queue_file_size or usual.get("simple") or DEFAULT_QUEUE_FILE_SIZE["simple"],
        "batch": rules.batch_queue_file_size or usual.get("batch") or DEFAULT_QUEUE_FILE_SIZE["batch"],
    }


def _load_files(
    store: Store, listed: MappedFiles, size: int, rules: RecoveryRules, queue: Queue | None = None
) -> _LoadedFiles:
    """`MappedFileQueue#load`: the files in name order up to the first obstacle; without a `queue` those of the log."""
    if size and not listed.strays and all(file.size == size for file in listed.files):
        return _LoadedFiles(listed.files)
    files: list[MappedFile] = []
    entries = sorted(_entries(listed), key=lambda entry: entry.path.name)
    for index, entry in enumerate(entries):
        if entry.is_directory and rules.skips_directories:
            continue
        if entry.size == 0 and index == len(entries) - 1 and rules.deletes_empty_last_file:
            return _LoadedFiles(tuple(files), (entry.path,))
        if entry.is_directory or entry.size != size:
            if rules.ignores_wrong_sizes:
                break
            what = "a directory" if entry.is_directory else f"{counted(entry.size, 'byte')}, expected {size}"
            why = f"{what} (length not matched message store config value)"
            return _LoadedFiles(tuple(files), (), _file_refusal(store.relative(entry.path), why, queue))
        if entry.mapped is None:
            why = "the name is not a start offset (NumberFormatException, load exception)"
            return _LoadedFiles(tuple(files), (), _file_refusal(store.relative(entry.path), why, queue))
        files.append(entry.mapped)
    return _LoadedFiles(tuple(files))


def _file_refusal(name: str, why: str, queue: Queue | None) -> StartRefusal:
    if queue is None:
        return StartRefusal("log-file", why, name)
    return StartRefusal("queue-file", why, name, queue.topic, queue.queue_id)


def _entries(listed: MappedFiles) -> Iterator[_Entry]:
    yield from (_Entry(file.path, file.size, False, file) for file in listed.files)
    for stray in listed.strays:
        size, name = _size_of(stray.path), stray.path.name
        # Java's Long.parseLong takes any number for a name, also one of other than 20 digits.
        is_number = stray.kind == "name" and _NUMBER.fullmatch(name) and abs(int(name)) <= MAX_OFFSET
        mapped = MappedFile(stray.path, int(name), size) if is_number else None
        yield _Entry(stray.path, size, stray.kind == "directory", mapped)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        note_failure(path, error)
        return 0  # as java.io.File#length does on any error


def _config_refusal(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """`ConfigManager#load`: neither the file nor its .bak can be decoded."""
    for name in loaded_configs(rules.version, store.conf):
        file = load_config(store.root / CONFIG / name, rules.version)
        if file.path is None and file.has_bad_backup and not file.is_forbidden:
            why = f"neither the file nor its .bak can be decoded ({file.problem})"
            return StartRefusal("config", why, f"{CONFIG}/{name}")
    return None


def _database_refusal(snapshot: Snapshot, rules: RecoveryRules) -> StartRefusal | None:
    """`RocksDBConfigManager#init`, `#loadDataVersion`, `#loadData`: a table in RocksDB that cannot be read."""
    if snapshot.topics.place == config_tables.TOPICS:
        return None
    tables = {
        config_tables.TOPICS: snapshot.topics.file,
        config_tables.GROUPS: snapshot.groups_file,
        config_tables.CONSUMER_OFFSET: snapshot.committed.file,
    }
    for name, file in tables.items():
        path = expected_database(snapshot.store, name)
        if path is None or is_remote(path):
            continue
        why = "a file where the directory of a database should be" if has_file(path) else None
        if file.path is None and file.problem and is_rocksdb_directory(path):
            why = _unloaded(snapshot, path, config_tables.TABLES[name], rules.version)
        if why:
            return StartRefusal("database", why, f"{CONFIG}/{path.name}")
    return None


def _unloaded(snapshot: Snapshot, path: Path, table: ConfigTable, version: Version) -> str | None:
    """Why a release does not load a table of a database; before 5.3.4 rows from a bad block on are passed over."""
    own, of_version = table.families(path.name)
    try:
        with snapshot.store.opened(path) as database:
            if own in database.families and (path.name == config_tables.SECOND or version >= SINGLE_ROCKSDB_CONFIG):
                database.some_rows(own, b"", _AFTER_ALL, sys.maxsize)
            if of_version in database.families:
                database.row(of_version, config_tables.VERSION_KEY)
    except DamagedDatabaseError as error:
        return error.message
    except UnsupportedError:
        return None
    return None


def _pop_refusal(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """`PopConsumerService#start`: RocksDB does not open kvStore; where that is gone or empty it makes one."""
    path = store.root / POP_STORE
    if not store.conf.is_on("popConsumerKVServiceInit") or rules.version < POPS_IN_ROCKSDB or is_remote(path):
        return None
    if has_file(path):
        return StartRefusal("database", "a file where the directory of a database should be", POP_STORE)
    try:
        with store.opened(path) if is_rocksdb_directory(path) else nullcontext():
            return None
    except DamagedDatabaseError as error:
        return StartRefusal("database", error.message, POP_STORE)
    except (UnsupportedError, UnreadableError):
        return None


def open_problem(path: Path) -> str | None:
    """Why `RandomAccessFile` in mode "rw" fails on a path, or the mapping of what it opens; None where both work.

    It follows links, and creates what is missing in a directory that is there, also where a link leads. Permissions are
    those of another user, and have findings of their own. A disk that fails is noted. Of a store elsewhere nothing is
    known of what is no plain file.
    """
    if is_remote(path):
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        target = Path(os.path.realpath(path))
        if not path.is_symlink() or has_directory(target.parent):
            return None
        what = f"a link to {target}, whose directory is missing: create it or remove the link"
        return f"{what} (FileNotFoundException: No such file or directory)"
    except PermissionError:
        return None
    except OSError as error:
        note_failure(path, error)
        return f"it cannot be opened (FileNotFoundException: {error.strerror})"
    if stat.S_ISDIR(mode):
        return "a directory where a file should be (FileNotFoundException: Is a directory)"
    return None if stat.S_ISREG(mode) else "neither a file nor a directory, which cannot be mapped (IOException)"


def _opened_refusal(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """`StoreCheckpoint`, `DefaultMessageStore#<init>`, `TimerCheckpoint` open these with `RandomAccessFile`."""
    names = [LOCK_FILE, CHECKPOINT]
    if _has_timer(store, rules):
        names.append(f"{CONFIG}/{TIMER_CHECK}")
    for name in names:
        problem = open_problem(store.root / name)
        if problem:
            return StartRefusal("directory", problem, name)
    return None


def _waits_for_ever(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """A pipe in the place of a file that is read as a whole (`MixAll#file2String`): nobody writes into it."""
    names = [f"{CONFIG}/{name}" for name in loaded_configs(rules.version, store.conf)]
    if rules.version >= BATCH_QUEUES:
        names.append(ABORT_FILE)  # since then it is written as these are, with a .bak of what was in it
    name = next((name for name in names if has_pipe(store.root / name)), None)
    return StartRefusal("hang", "a pipe: the broker would wait forever to read from it", name) if name else None


def _has_timer(store: Store, rules: RecoveryRules) -> bool:
    return rules.has_timer_wheel and store.conf.is_on("timerWheelEnable", default=True)


def _index_refusal(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """`IndexService#load`: a directory whose name is a number cannot be mapped, nor what else is no file."""
    obstacle = next(_index_obstacles(store), None) if rules.refuses_index_directories else None
    if obstacle is None:
        return None
    what = "a directory where an index file should be" if has_directory(obstacle) else open_problem(obstacle)
    return StartRefusal("index", f"{what} (load file error)", f"{INDEX}/{obstacle.name}")


def _index_obstacles(store: Store) -> Iterator[Path]:
    """What stands among the index files under a number and cannot be opened as a file."""
    if has_directory(store.root / INDEX):
        for entry in list_directory(store.root / INDEX):
            if _NUMBER.fullmatch(entry.name) and not entry.is_file() and open_problem(entry_path(entry)):
                yield entry_path(entry)


def loaded_index_files(snapshot: Snapshot, rules: RecoveryRules) -> Iterator[IndexFile]:
    """`IndexService#load`: before 5.0.0 a directory whose name is a number silently ends the loading."""
    obstacle = None
    if not rules.refuses_index_directories:
        obstacle = next((path.name for path in _index_obstacles(snapshot.store)), None)
    for file in snapshot.index_files:
        if obstacle is None or file.path.name < obstacle:
            yield file


def _timer_refusal(store: Store, rules: RecoveryRules) -> StartRefusal | None:
    """`TimerWheel`: the file must have its size, once it is opened; `TimerLog#load`: so must those of the log."""
    if not _has_timer(store, rules):
        return None
    path = newest_wheel(store)
    problem, size = open_problem(path), _size_of(path) if has_file(path) else 0
    if problem:
        return StartRefusal("timer", problem, path.name)
    if size not in (0, timer_wheel.WHEEL_SIZE):
        problem = f"{counted(size, 'byte')}, expected {timer_wheel.WHEEL_SIZE} (Timer wheel length)"
        return StartRefusal("timer", problem, path.name)
    log = list_mapped_files(store.root / TIMER_LOG, scope=skip_wrong_type)
    usual = store.conf.size("mappedFileSizeTimerLog") or log.file_size or 0
    return _load_files(store, log, usual, rules).refusal
