"""Several stores at once: patterns of paths, and a name for each."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.paths import is_remote, path_of
from rmqtool.base.remote_path import RemotePath
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.store import Store, conf_for, open_store

_DEFAULT_DIRECTORY = "store"  # the last part of storePathRootDir's default


@dataclass(frozen=True)
class NamedStore:
    """A store and the name that distinguishes its rows from those of others."""

    name: str
    store: Store


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
        raise UnreadableError("no directory fits this pattern", file=path)
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
