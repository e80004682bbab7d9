"""The files that a start loads, and the reasons to refuse (`DefaultMessageStore#load`, `MappedFileQueue#load`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.errors import note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.paths import entry_path, has_directory
from rmqtool.formats import timer_wheel
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE
from rmqtool.rules.recovery import RecoveryRules, loaded_configs
from rmqtool.rules.versions import BATCH_QUEUES
from rmqtool.store.config_json import load_config
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.index_files import IndexFile
from rmqtool.store.lock import LOCK_FILE
from rmqtool.store.queue_table import QueueTable
from rmqtool.store.rocksdb_config import is_unread
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, CONFIG, INDEX, Store
from rmqtool.store.topics import TOPICS, Topics

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_TIMER_WHEEL = "timerwheel"


@dataclass(frozen=True)
class Loaded:
    """What a start has loaded before it recovers.

    `refuses` is the reason why the broker does not start; `ignored` are commit log files that it leaves out, `deleted`
    empty files that it deletes. Of the store's queues the first `queue_count` are loaded; `with_fewer_files` are those
    of them that lack some then, by index. Sizes are those of a whole file, bytes.
    """

    files: tuple[MappedFile, ...]
    file_size: int
    queue_file_size: int
    batch_queue_file_size: int
    queue_count: int
    with_fewer_files: Mapping[int, Queue]
    ignored: tuple[MappedFile, ...] = ()
    deleted: tuple[Path, ...] = ()
    refuses: str | None = None


@dataclass(frozen=True)
class _Entry:
    """An entry of a directory of mapped files; `mapped` is None when its name is not a start offset."""

    path: Path
    size: int
    is_directory: bool
    mapped: MappedFile | None


@dataclass(frozen=True, slots=True)
class _LoadedFiles:
    files: tuple[MappedFile, ...]
    deleted: tuple[Path, ...]
    refuses: str | None


def load(snapshot: Snapshot, rules: RecoveryRules) -> Loaded:
    """Load as the broker does; the first obstacle ends it."""
    store, log = snapshot.store, snapshot.log
    size = rules.log_file_size or log.file_size or DEFAULT_LOG_FILE_SIZE
    log_files = _load_files(store, log, size, rules)
    ignored = tuple(file for file in log.files if file.size and file not in log_files.files)
    refuses = _config_refusal(store, rules) or log_files.refuses
    kinds = _loaded_kinds(snapshot, rules)
    count = sum(map(snapshot.queues.count_of, kinds))
    sizes = _queue_sizes(snapshot.queues, kinds, rules)
    fewer: dict[int, Queue] = {}
    deleted = list(log_files.deleted)
    is_unknown = is_unread(store, TOPICS)
    unusual = snapshot.queues.not_all_of(sizes)
    for index in sorted({*unusual, *snapshot.queues.firsts_of_topics}):
        if index >= count:
            break
        queue = snapshot.queues[index]
        refuses = refuses or (None if is_unknown else _kind_refusal(queue, snapshot.topics, rules))
        loaded = _load_files(store, queue.files, sizes[queue.kind], rules)
        if loaded.files is not queue.files.files:
            fewer[index] = replace(queue, files=MappedFiles(loaded.files))
        deleted += loaded.deleted
        refuses = refuses or loaded.refuses
    refuses = refuses or _directory_refusal(store) or _index_refusal(store, rules) or _timer_refusal(store, rules)
    return Loaded(log_files.files, size, sizes["simple"], sizes["batch"], count, fewer, ignored, tuple(deleted),
                  refuses)  # fmt: skip


def _loaded_kinds(snapshot: Snapshot, rules: RecoveryRules) -> tuple[Kind, ...]:
    """The kinds of queues that are loaded from files, the first ones of the snapshot."""
    if snapshot.store.layout == "rocksdb" and not snapshot.has_queues_twice:
        return ()
    return ("simple", "batch") if rules.version >= BATCH_QUEUES else ("simple",)


def _kind_refusal(queue: Queue, topics: Topics, rules: RecoveryRules) -> str | None:
    """`ConsumeQueueStore#queueTypeShouldBe`: a topic that is not configured counts as one of simple queues."""
    expected = "batch" if queue.topic in (topics.with_batch_queues or ()) else "simple"
    if rules.version < BATCH_QUEUES or queue.kind == expected:
        return None
    actual = f"topic {queue.topic} has {queue.kind} consume queues"
    if queue.topic not in topics.by_name:
        unconfigured = f"is not configured, for there is no {topics.place} that can be read"
        why = f"is not in {topics.place}" if topics.is_known else unconfigured
        return f"{actual}, but {why}: the broker expects simple ones"
    return f"{actual}, but is configured for {expected} ones"


def _queue_sizes(queues: QueueTable, loaded: Iterable[Kind], rules: RecoveryRules) -> dict[Kind, int]:
    """Sizes of the files of each kind of queue: as configured, as most have where they are loaded, or the default."""
    usual = {kind: queues.usual_file_size(kind) for kind in loaded}
    return {
        "simple": rules.queue_file_size or usual.get("simple") or DEFAULT_QUEUE_FILE_SIZE["simple"],
        "batch": rules.batch_queue_file_size or usual.get("batch") or DEFAULT_QUEUE_FILE_SIZE["batch"],
    }


def _load_files(store: Store, listed: MappedFiles, size: int, rules: RecoveryRules) -> _LoadedFiles:
    """`MappedFileQueue#load`: the files in name order up to the first obstacle."""
    if size and not listed.strays and all(file.size == size for file in listed.files):
        return _LoadedFiles(listed.files, (), None)
    files: list[MappedFile] = []
    entries = sorted(_entries(listed), key=lambda entry: entry.path.name)
    for index, entry in enumerate(entries):
        if entry.is_directory and rules.skips_directories:
            continue
        if entry.size == 0 and index == len(entries) - 1 and rules.deletes_empty_last_file:
            return _LoadedFiles(tuple(files), (entry.path,), None)
        if entry.is_directory or entry.size != size:
            if rules.ignores_wrong_sizes:
                break
            what = "a directory" if entry.is_directory else f"{entry.size} bytes instead of {size}"
            why = f"{what} (length not matched message store config value)"
            return _LoadedFiles(tuple(files), (), f"{store.relative(entry.path)}: {why}")
        if entry.mapped is None:
            why = "the name is not a start offset (NumberFormatException, load exception)"
            return _LoadedFiles(tuple(files), (), f"{store.relative(entry.path)}: {why}")
        files.append(entry.mapped)
    return _LoadedFiles(tuple(files), (), None)


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


def _config_refusal(store: Store, rules: RecoveryRules) -> str | None:
    """`ConfigManager#load`: neither the file nor its .bak can be decoded."""
    for name in loaded_configs(rules.version, store.conf):
        file = load_config(store.root / CONFIG / name, rules.version)
        if file.path is None and file.has_bad_backup and not file.is_forbidden:
            return f"{CONFIG}/{name}: neither the file nor its .bak can be decoded ({file.problem})"
    return None


def _directory_refusal(store: Store) -> str | None:
    """`StoreCheckpoint` and `DefaultMessageStore#<init>` open these with `RandomAccessFile`."""
    name = next((name for name in (LOCK_FILE, CHECKPOINT) if (store.root / name).is_dir()), None)
    return name and f"{name}: a directory where a file should be (FileNotFoundException: Is a directory)"


def _index_refusal(store: Store, rules: RecoveryRules) -> str | None:
    """`IndexService#load`: a directory whose name is a number cannot be mapped."""
    obstacle = next(_index_directories(store), None) if rules.refuses_index_directories else None
    if obstacle is None:
        return None
    return f"{INDEX}/{obstacle.name}: a directory where an index file should be (load file error)"


def _index_directories(store: Store) -> Iterator[Path]:
    """Directories among the index files whose names are numbers."""
    if has_directory(store.root / INDEX):
        for entry in list_directory(store.root / INDEX):
            if entry.is_dir() and _NUMBER.fullmatch(entry.name):
                yield entry_path(entry)


def loaded_index_files(snapshot: Snapshot, rules: RecoveryRules) -> Iterator[IndexFile]:
    """`IndexService#load`: before 5.0.0 a directory whose name is a number silently ends the loading."""
    obstacle = None
    if not rules.refuses_index_directories:
        obstacle = next((path.name for path in _index_directories(snapshot.store)), None)
    for file in snapshot.index_files:
        if obstacle is None or file.path.name < obstacle:
            yield file


def _timer_refusal(store: Store, rules: RecoveryRules) -> str | None:
    """`TimerWheel`: the file must have its size."""
    path = store.root / _TIMER_WHEEL
    size = _size_of(path) if rules.has_timer_wheel and path.is_file() else 0
    if size in (0, timer_wheel.FILE_SIZE):
        return None
    return f"{_TIMER_WHEEL}: {size} bytes instead of {timer_wheel.FILE_SIZE} (Timer wheel length)"
