"""A store directory: its layout and the paths in it (`StorePathConfigHelper`, `MessageStoreConfig`)."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import NotAStoreError, UnreadableError, UnsupportedError, UsageError
from rmqtool.base.files import list_directory, names_in, unreadable
from rmqtool.base.mapped_files import MappedFiles, list_mapped_files
from rmqtool.base.paths import DirectoryEntry, absolute, has_directory, has_file, is_remote, path_of
from rmqtool.base.remote_path import RemotePath
from rmqtool.base.tolerant import ReadScope, skip_unreadable
from rmqtool.base.visible import quote
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.file_name import is_index_name, start_offset_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.lock import LOCK_FILE
from rmqtool.store.rocksdb import Databases, RocksDb

_NODE_SETTING = "enableDLegerCommitLog"
_DEFAULT_ROOT = "store"  # MessageStoreConfig.storePathRootDir, below the home directory


def other_root(root: Path, conf: BrokerConf) -> str | None:
    """What broker.conf says of its store, where that is another one than that at `root`; None where it is the same.

    Without `storePathRootDir` it is of the store in the home directory, or of the one in which a log path lies.
    """
    given = conf.text("storePathRootDir")
    named = given or os.path.join(os.path.expanduser("~"), _DEFAULT_ROOT)
    if is_remote(root) or os.path.realpath(named) == os.path.realpath(root):
        return None
    if given:
        return f"storePathRootDir={given}"
    logs = (log_directory(root, path) for path in (*conf.commit_log_paths, *conf.dledger_log_paths))
    is_own = any(path.resolve().is_relative_to(root.resolve()) for path in logs if not is_remote(path))
    return None if is_own else f"without storePathRootDir that of $HOME/{_DEFAULT_ROOT}"


def refuse_log_of_other(root: Path, conf: BrokerConf, own: Path, directories: Iterable[Path]) -> None:
    """Raise UsageError where the log of another store would be read in place of the `own` one."""
    other = other_root(root, conf)
    if other and os.path.realpath(own) not in map(os.path.realpath, map(str, directories)) and any(entries_of(own)):
        raise UsageError(
            f"broker.conf is of another store, {other}: {', '.join(map(str, directories))} would be read in place of "
            f"{own}",
            hint="give a copy of it with storePathRootDir and the log paths of this store, or without log paths",
        )


def may_be_node(conf: BrokerConf) -> bool:
    """Whether broker.conf does not say that the broker is no node: what is left of one does not count then."""
    return conf.is_on(_NODE_SETTING, default=True)


def refuse_two_logs(conf: BrokerConf, older: Iterable[Path], entries: Iterable[Path]) -> None:
    """Raise UsageError where a plain log goes on beside the entries: the broker was a node, or has become one again."""
    if conf.text(_NODE_SETTING):
        return
    of_node = [file for file in list_mapped_files(*entries, scope=skip_unreadable).files if file.size]
    plain = [file for file in list_mapped_files(*older, scope=skip_unreadable).files if file.size]
    if plain and of_node and plain[-1].end_offset > of_node[0].start_offset:
        raise UsageError(
            f"there are two logs, but the broker writes only one: {plain[-1].path} has offsets that {of_node[0].path} "
            "has, too",
            hint=f"choose one: give broker.conf with {_NODE_SETTING}=true or =false",
        )


def log_directory(root: Path, text: str) -> Path:
    """A directory of broker.conf, which may be relative to the store."""
    path = path_of(text)
    return path if is_remote(path) or (is_remote(root) and path.is_absolute()) else root / path


def entries_of(directory: Path) -> Sequence[DirectoryEntry]:
    """What is in a directory; nothing where it cannot be listed, which those who read it report."""
    with skip_unreadable():
        return list_directory(directory)
    return ()


Layout = Literal["default", "multi-path", "rocksdb", "dledger"]

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
INDEX = "index"
CHECKPOINT = "checkpoint"
CONFIG = "config"
SEPARATE_ROCKSDB_QUEUES = "consumequeue_rocksdb"  # since 5.5.0
ROCKSDB_CONFIGS = (f"{CONFIG}/consumerOffsets", f"{CONFIG}/metadata", f"{CONFIG}/rdb")
"""Where brokers with RocksDB keep committed offsets: since 5.2.0, 5.3.4 and 5.3.2."""

SIDE_STORE = "rocksdbstore"
"""Where brokers since 5.4.0 may keep index, timers and half messages in RocksDB; every one of them makes it."""

_CHECKPOINT_SIZE = 4096  # StoreCheckpoint: one page of the system, bytes
_DEEPEST = 4  # directories above a file of a consume queue, the store's included
_ROCKSDB_MARK, _ROCKSDB_IDENTITY = "CURRENT", "IDENTITY"
_DATABASE_FILE = re.compile(r"\d{6,}\.sst|MANIFEST-\d{6,}", re.ASCII)
DLEDGER_PREFIX = "dledger-"  # before the id of a node
DLEDGER_DATA = "data"
DLEDGER_INDEX = "index"


@dataclass(frozen=True)
class Store:
    """A store that is only read; `root` is the broker's `storePathRootDir`.

    `older_log_directories` hold the plain log of a broker that was converted to DLedger: it still serves the messages
    below the DLedger log (`DLedgerCommitLog#getData`). `dledger_directory` is that of a DLedger group's node.
    """

    root: Path
    layout: Layout
    conf: BrokerConf
    commit_log_directories: tuple[Path, ...]
    older_log_directories: tuple[Path, ...] = ()
    dledger_directory: Path | None = None
    databases: Databases | None = field(default=None, compare=False, repr=False)  # those that a snapshot has opened

    @contextmanager
    def opened(self, directory: Path) -> Iterator[RocksDb]:
        """A database of the store, open for reading; that of a snapshot stays open. Raises as `RocksDb` does."""
        if self.databases is not None:
            yield self.databases.opened(directory)
            return
        with RocksDb(directory) as database:
            yield database

    def commit_log(self, scope: ReadScope = nullcontext) -> MappedFiles:
        """The commit log files of all its directories, listed now; each is read in a `scope`.

        Those of DLedger entries have a `header_size`; plain ones from before a conversion to DLedger come first.
        """
        if not self.dledger_directory:
            return list_mapped_files(*self.commit_log_directories, scope=scope)
        entries = list_mapped_files(*self.commit_log_directories, scope=scope, header_size=ENTRY_HEADER_SIZE)
        return list_mapped_files(*self.older_log_directories, scope=scope).followed_by(entries)

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """All directories with files of the log."""
        return (*self.older_log_directories, *self.commit_log_directories)

    @property
    def has_ext_units(self) -> bool:
        """Whether there are ext units, which units may point to."""
        return (self.root / CONSUME_QUEUE_EXT).is_dir()

    @property
    def reads_only_rocksdb(self) -> bool:
        """Whether the broker's queues are in RocksDB, and files of queues, if there are any, left from before."""
        return self.layout == "rocksdb" and self.is_of_rocksdb_type

    @property
    def writes_queues_twice(self) -> bool:
        """Whether the broker writes queues into files and into RocksDB; light queues may be in RocksDB alone.

        `RocksDBMessageStore` does not look at the setting: its queues have rows only.
        """
        return self.conf.is_on("rocksdbCQDoubleWriteEnable") and not self.is_of_rocksdb_type

    def has_copy_of(self, topic: str) -> bool:
        """Whether rows of a topic stand beside files that consumers read: where these are gone, they get nothing."""
        return self.writes_queues_twice and not topic.startswith(LMQ_PREFIX)

    @property
    def is_of_rocksdb_type(self) -> bool:
        """Whether broker.conf has a broker keep its queues in RocksDB (`storeType`), whatever the store has."""
        return (self.conf.text("storeType") or "").lower() == "defaultrocksdb"

    @property
    def reads_rocksdb_first(self) -> bool:
        """Whether a broker that writes queues twice reads those in RocksDB (`CombineConsumeQueueStore`)."""
        preferred = (self.conf.text("combineCQPreferCQType") or "").lower()
        return self.writes_queues_twice and preferred == "defaultrocksdb"

    def relative(self, path: Path) -> str:
        """`path` as output shows it: relative to the store, absolute when outside."""
        return relative_to(path, self.root)


def open_store(root: Path, conf: BrokerConf | None = None) -> Store:
    """Open the store at `root`; raise NotAStoreError, UnsupportedError, UnreadableError or UsageError.

    A copy of a store has its log beside it, though broker.conf names a directory of another machine, or of the store
    that it is a copy of, which must not be taken for the copy's.
    """
    conf = conf or BrokerConf()
    names = {entry.name for entry in list_directory(_existing_directory(root))}
    dledger = _dledger_directory(root, names, conf) if may_be_node(conf) else None
    directories = tuple(log_directory(root, path) for path in conf.commit_log_paths) or (root / COMMIT_LOG,)
    if conf.commit_log_paths and COMMIT_LOG in names and all(map(_is_missing, directories)):
        raise UsageError(
            f"storePathCommitLog: {', '.join(map(str, directories))}: no such directory",
            hint=f"with a broker.conf without that setting {root / COMMIT_LOG} is read",
        )
    refuse_log_of_other(root, conf, root / COMMIT_LOG, directories)
    if dledger:
        older = tuple(path for path in directories if has_directory(path))
        layout: Layout = "rocksdb" if layout_of_queues(root) == "rocksdb" else "dledger"
        entries = _dledger_log(root, dledger, conf)
        refuse_log_of_other(root, conf, dledger / DLEDGER_DATA, entries)
        refuse_two_logs(conf, older, entries)
        return Store(root, layout, conf, entries, older, dledger)
    without_log = {CHECKPOINT, CONFIG} <= names  # the log of such a store is in another place, or lost
    store_folders = names & {COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE}
    if not (store_folders or _is_begun(root, names) or conf.commit_log_paths or without_log or _has_index(root)):
        message = "not a RocketMQ store: neither commitlog/ nor consumequeue/ is here"
        raise NotAStoreError(message, file=root, hint=_where_else(root, names))
    return Store(root, _layout(root, conf), conf, directories)


def conf_for(root: Path, conf: BrokerConf) -> BrokerConf:
    """`conf`, without the log paths of another store where the one at `root` has a log of its own."""
    return conf.without_log_paths() if other_root(root, conf) and any(entries_of(root / COMMIT_LOG)) else conf


def require_plain_log(store: Store, command: str) -> None:
    """Raise UnsupportedError for a DLedger store."""
    if store.dledger_directory:
        conf = f" --broker-conf {quote(store.conf.path)}" if store.conf.path else ""
        raise UnsupportedError(
            f"a DLedger store ({store.dledger_directory.name}/), which {command} does not take",
            file=store.root,
            hint=f"rmqtool convert {quote(str(store.root))} --output NEW{conf} converts it to a plain store",
        )


def relative_to(path: Path, root: Path) -> str:
    """`path` relative to `root`, or absolute when it is not below it."""
    if is_remote(root) and is_remote(path):  # one of them may be as an error names it, without its options
        return str(path).removeprefix(f"{root}/")
    try:
        return str(path.relative_to(root))
    except ValueError:
        return str(absolute(path))


def holds_rocksdb(directory: Path) -> bool:
    """Whether a directory is a RocksDB database."""
    return has_file(directory / _ROCKSDB_MARK)


def is_rocksdb_directory(directory: Path) -> bool:
    """Whether a directory is a RocksDB database, also one without the file that a broker looks for, or almost empty.

    False where that cannot be seen: those who read the directory report it.
    """
    if not is_remote(directory) and not has_directory(directory):  # most stores have none: one look is enough
        return False
    if any(has_file(directory / mark) for mark in (_ROCKSDB_MARK, _ROCKSDB_IDENTITY)):
        return True
    if is_remote(directory):
        return False
    with suppress(UnreadableError):
        # A directory of queues may have 100,000 entries, in no need of an order.
        return any(_DATABASE_FILE.fullmatch(name) and (directory / name).is_file() for name in names_in(directory))
    return False


def layout_of_queues(root: Path) -> Literal["default", "rocksdb"]:
    """Whether the consume queues are in files or in RocksDB."""
    in_rocksdb = is_rocksdb_directory(root / CONSUME_QUEUE) or is_rocksdb_directory(root / SEPARATE_ROCKSDB_QUEUES)
    return "rocksdb" if in_rocksdb else "default"


def rocksdb_configs(store: Store) -> list[str]:
    """The databases in which a broker keeps committed offsets instead of in files."""
    return [name for name in ROCKSDB_CONFIGS if is_rocksdb_directory(store.root / name)]


def _existing_directory(root: Path) -> Path:
    """`root`; raises UnreadableError when it does not exist, NotAStoreError for a file.

    Other errors show when it is listed.
    """
    if isinstance(root, RemotePath):
        return _existing_remote(root)
    try:
        os.stat(os.path.join(root, "."))  # a directory that may be listed and not entered shows names only
    except NotADirectoryError as error:
        message = "not a RocketMQ store: a file, not a directory"
        raise NotAStoreError(message, file=root, hint=_where_else(root, set())) from error
    except FileNotFoundError as error:
        raise UnreadableError("no such file or directory", file=root) from error
    except PermissionError as error:
        raise unreadable(root, None, error) from error
    except OSError:
        pass
    return root


def _dledger_directory(root: Path, names: set[str], conf: BrokerConf) -> Path | None:
    """The directory of the broker's node, None without DLedger; raises UsageError where it may be one of several."""
    nodes = [root / name for name in sorted(names) if name.startswith(DLEDGER_PREFIX)]
    # With storePathDLedgerCommitLog the data is in another place, and only the index beside the checkpoint.
    found = _with(nodes, DLEDGER_DATA) or _with(nodes, DLEDGER_INDEX)
    node = conf.text("dLegerSelfId")
    if len(found) > 1 and node:
        found = [path for path in found if path.name == f"{DLEDGER_PREFIX}{node}"]
    if len(found) > 1:
        several = ", ".join(path.name for path in found)
        hint = "name the broker's with dLegerSelfId, in the file that --broker-conf gives"
        raise UsageError(f"several nodes of DLedger have a log here: {several}", hint=hint)
    return found[0] if found else None


def _with(directories: Iterable[Path], name: str) -> list[Path]:
    return [path for path in directories if has_directory(path / name)]


def _dledger_log(root: Path, node: Path, conf: BrokerConf) -> tuple[Path, ...]:
    """The directories of a node's entries; a copy of a store has them beside it, though broker.conf names others."""
    named = tuple(log_directory(root, path) for path in conf.dledger_log_paths)
    return named if named and not all(map(_is_missing, named)) else (node / DLEDGER_DATA,)


def _existing_remote(root: RemotePath) -> Path:
    root.list_anew()
    try:
        is_directory_there, is_anything_there = root.is_dir(), root.exists()
    except OSError as error:
        raise unreadable(root, None, error) from error
    if is_directory_there:
        return root
    if is_anything_there:
        raise NotAStoreError("not a RocketMQ store: a file, not a directory", file=root, hint=_where_else(root, set()))
    raise UnreadableError("no such file or directory", file=root)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass  # which is raised when it is listed
    return False


def _layout(root: Path, conf: BrokerConf) -> Layout:
    layout = layout_of_queues(root)
    return "multi-path" if layout == "default" and len(conf.commit_log_paths) > 1 else layout


def _is_begun(root: Path, names: set[str]) -> bool:
    """Whether a broker has started here: before 4.9.2 its store makes nothing else before the first message."""
    return {CHECKPOINT, LOCK_FILE} <= names and (root / CHECKPOINT).stat().st_size == _CHECKPOINT_SIZE


def _has_index(root: Path) -> bool:
    index = root / INDEX
    return has_directory(index) and any(is_index_name(entry.name) for entry in list_directory(index))


def _where_else(root: Path, names: set[str]) -> str:
    for name in sorted(names):
        if has_directory(root / name / COMMIT_LOG):
            return f"the store seems to be {root / name}"
    above = root.resolve()
    for _ in range(_DEEPEST):
        above = above.parent
        if has_directory(above / COMMIT_LOG):
            return f"the store seems to be {above}"
    hint = "give the directory that broker.conf calls storePathRootDir"
    is_of_log = any(start_offset_of(name) is not None for name in names)
    return f"{hint}, and that file with --broker-conf: there are log files here, but no store" if is_of_log else hint


_DEFAULT_DIRECTORY = "store"  # the last part of storePathRootDir's default


@dataclass(frozen=True)
class NamedStore:
    """A store and the name that distinguishes its rows from those of others."""

    name: str
    store: Store

    @property
    def absolute(self) -> NamedStore:
        """The same for a process with another working directory."""
        store = self.store
        return NamedStore(
            self.name,
            replace(
                store,
                root=store.root.absolute(),
                commit_log_directories=tuple(each.absolute() for each in store.commit_log_directories),
                older_log_directories=tuple(each.absolute() for each in store.older_log_directories),
                dledger_directory=store.dledger_directory and store.dledger_directory.absolute(),
            ),
        )


def open_stores(arguments: Sequence[str], conf: BrokerConf, known: Mapping[str, str] | None = None) -> list[NamedStore]:
    """Open stores: directories, ``NAME=DIRECTORY``, and patterns; `known` are names by path from an earlier run.

    Log paths of broker.conf are of one of several stores. Raises UsageError when two stores have one name, and what
    `open_store` raises.
    """
    named_paths = [pair for argument in arguments for pair in _expand(argument)]
    is_alone = len(named_paths) == 1
    opened = [open_store(path, conf if is_alone else conf_for(path, conf)) for _, path in named_paths]
    names = _names([(name, path.resolve()) for name, path in named_paths], known or {})
    return [NamedStore(name, store) for name, store in zip(names, opened, strict=True)]


def may_be_several(argument: str) -> bool:
    """Whether an argument is a pattern of stores, however many fit it now."""
    path = path_of(argument)
    return glob.has_magic(str(path)) and (is_remote(path) or not path.exists())


def _expand(argument: str) -> list[tuple[str | None, Path]]:
    """The directories of an argument, each with the name that it gives or None."""
    name, separator, named = argument.partition("=")
    path = path_of(argument)
    if not is_remote(path) and path.exists():
        return [(None, path)]
    if separator and name and "/" not in name:
        return [(name, path_of(named))]
    if not glob.has_magic(str(path)):
        return [(None, path)]
    matches = [*path.matches()] if isinstance(path, RemotePath) else [Path(match) for match in glob.glob(str(path))]
    if not matches:
        raise UnreadableError("no directory matches this pattern", file=path)
    return [(None, match) for match in sorted(matches)]


def _names(named_paths: Sequence[tuple[str | None, Path]], known: Mapping[str, str]) -> list[str]:
    """A name for each path: the one that is given or was given before, else one derived from the path.

    That is the last directory not called `store`; where two stores have the same, the whole path.
    """
    short = [_short_name(path) for _, path in named_paths]
    names = []
    for (given, path), name in zip(named_paths, short, strict=True):
        usual = name if short.count(name) == 1 and name not in known.values() else str(path)
        names.append(given or known.get(str(path)) or usual)
    for name in names:
        if names.count(name) > 1:
            paths = {path for (_, path), other in zip(named_paths, names, strict=True) if other == name}
            if len(paths) == 1:
                raise UsageError("this store is given twice", file=paths.pop(), hint="give it once")
            raise UsageError(f"two stores are named {name!r}", hint="give each another name: NAME=STORE")
    return names


def _short_name(path: Path) -> str:
    parts = str(path).split("://")[-1].split("/") if is_remote(path) else path.parts[1:]
    names = [name for name in parts if name != _DEFAULT_DIRECTORY]
    return names[-1] if names else str(path)


_OTHER_WRITERS = 0o022


@dataclass(frozen=True)
class Owners:
    """The statuses of the log's files and of the store's own entries, as far as they exist."""

    statuses: dict[Path, os.stat_result]

    @cached_property
    def usual(self) -> tuple[int, int]:
        """The user that owns most of them, with the group that most of its files have."""
        uid = Counter(status.st_uid for status in self.statuses.values()).most_common(1)[0][0]
        groups = Counter(status.st_gid for status in self.statuses.values() if status.st_uid == uid)
        return uid, groups.most_common(1)[0][0]

    def of_others(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Those of other users, unless all may write them."""
        for path, status in self.statuses.items():
            if status.st_uid != self.usual[0] and not status.st_mode & _OTHER_WRITERS:
                yield path, status

    def not_writable(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Those that their owner may not write, unless no file may be written."""
        if any(status.st_mode & stat.S_IWUSR for status in self.statuses.values() if stat.S_ISREG(status.st_mode)):
            for path, status in self.statuses.items():
                if not status.st_mode & stat.S_IWUSR:
                    yield path, status


def owners_of(store: Store, log: MappedFiles) -> Owners:
    """The owners of a store's files."""
    names = (CHECKPOINT, "lock", CONFIG, CONSUME_QUEUE, INDEX)
    paths = [*(file.path for file in log.files), *store.commit_log_directories, *(store.root / name for name in names)]
    return Owners({path: status for path in paths if (status := _status_of(path))})


def _status_of(path: Path) -> os.stat_result | None:
    """The status of a file, None when it does not exist: a running broker deletes files."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
