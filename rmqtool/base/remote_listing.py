"""What is there on another machine: types, sizes and times of files, listed with few requests.

A tree that was opened is listed once, each directory below its root as a whole, and answers from that listing. Anything
else is asked for when it is needed. Google's storage lists no directories: the names of files have them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from rmqtool.base.filesystems import file_system
from rmqtool.base.remote_calls import patiently


class Status(NamedTuple):
    """Type, size in bytes, and modification time, ns since the epoch, 0 where it is not known."""

    is_directory: bool
    size: int
    modified_ns: int


_FLAT = ("gs", "gcs")
"""Where a listing of one level has files only."""

Entries = dict[str, Status]
"""What is in a directory, by name."""


@dataclass
class _Tree:
    """A listing of one root: `directories` by key, of those folders of the root that are in `whole`.

    `number` tells it from other listings of the same root, made before or later.
    """

    root: str
    number: int
    directories: dict[str, Entries] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)


_numbers = count()
_trees: dict[tuple[int, str, str], dict[str, _Tree]] = {}


def forget(scheme: str, authority: str, key: str) -> None:
    """Begin a new listing for the tree at `key`."""
    _trees.setdefault((os.getpid(), scheme, authority), {})[key] = _Tree(key, next(_numbers))


def entries_of(scheme: str, authority: str, key: str) -> Entries | None:
    """The entries of a directory, None where there is none; raises OSError."""
    tree = _tree_of(scheme, authority, key)
    if tree is None:
        return _listed(scheme, authority, key).get(key)
    if key == tree.root:
        if key not in tree.directories:
            tree.directories.update(_listed(scheme, authority, key))
            tree.whole.update(tree.directories if scheme in _FLAT else ())
        return tree.directories.get(key)
    folder = _folder_of(tree, key)
    if folder not in tree.whole:
        tree.whole.add(folder)
        tree.directories.update(_listed(scheme, authority, folder, recursive=True))
    return tree.directories.get(key)


def listing_of(scheme: str, authority: str, key: str) -> int | None:
    """The number of the listing that answers for `key`; None without one."""
    tree = _tree_of(scheme, authority, key)
    return None if tree is None else tree.number


def status_of(scheme: str, authority: str, key: str) -> Status | None:
    """The status of a file or directory, None where there is nothing; raises OSError."""
    tree = _tree_of(scheme, authority, key)
    if tree is None or key == tree.root:
        return status_now(scheme, authority, key)
    folder, _, name = key.rpartition("/")
    entries = entries_of(scheme, authority, folder)
    return None if entries is None else entries.get(name)


def status_now(scheme: str, authority: str, key: str) -> Status | None:
    """The status as it is now, whatever was listed before."""
    system, prefix = file_system(scheme, authority)
    info = patiently(lambda: system.get_file_info(_path_of(prefix, key)))
    return _status(info) if info.type.name in ("File", "Directory") else None


def _tree_of(scheme: str, authority: str, key: str) -> _Tree | None:
    """The tree that holds a key, the innermost of several."""
    trees = _trees.get((os.getpid(), scheme, authority))
    if not trees:
        return None
    while key not in trees:
        if not key:
            return None
        key = key.rpartition("/")[0]
    return trees[key]


def _folder_of(tree: _Tree, key: str) -> str:
    """The folder of the tree's root in which a key is."""
    begin = len(tree.root) + 1 if tree.root else 0
    name = key[begin:].partition("/")[0]
    return f"{tree.root}/{name}" if tree.root else name


def _listed(scheme: str, authority: str, key: str, *, recursive: bool = False) -> dict[str, Entries]:
    """The entries of a directory, and where `recursive` of all below; nothing where there is no directory."""
    from pyarrow.fs import FileSelector

    system, prefix = file_system(scheme, authority)
    path = _path_of(prefix, key)
    if not _is_directory(system, path):
        return {}
    below = FileSelector(path, recursive=recursive or scheme in _FLAT)
    directories: dict[str, Entries] = {key: {}}
    for info in patiently(lambda: system.get_file_info(below)):
        own = info.path.removeprefix(prefix).strip("/")
        folder, _, name = own.rpartition("/")
        _add_directory(directories, folder)
        status = _status(info)
        directories[folder][name] = status
        if status.is_directory:
            directories.setdefault(own, {})
    return directories


def _add_directory(directories: dict[str, Entries], key: str) -> None:
    """Add a directory, and those above it up to one that is there."""
    if key not in directories:
        directories[key] = {}
        above, _, name = key.rpartition("/")
        _add_directory(directories, above)
        directories[above].setdefault(name, Status(True, 0, 0))


def _is_directory(system: Any, path: str) -> bool:
    return bool(patiently(lambda: system.get_file_info(path)).type.name == "Directory")


def _status(info: Any) -> Status:
    return Status(info.type.name == "Directory", info.size or 0, info.mtime_ns or 0)


def _path_of(prefix: str, key: str) -> str:
    return f"{prefix}{key}" if key else prefix.rstrip("/") or "/"
