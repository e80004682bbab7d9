"""Which log is that of a store, where broker.conf or what was left in there names another one, too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rmqtool.base.errors import UsageError
from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.paths import DirectoryEntry, is_remote, path_of
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.rules.broker_conf import BrokerConf

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
            f"two logs, of which the broker writes one: {plain[-1].path} has offsets that {of_node[0].path} has, too",
            hint=f"say which: give broker.conf with {_NODE_SETTING}=true or =false",
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
