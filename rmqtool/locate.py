"""What a path means by its place: a store, its commit log, or a file of that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rmqtool.broker_conf import BrokerConf
from rmqtool.errors import UnreadableError, UnsupportedError, WrongKindError
from rmqtool.files import InputFile
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.message import MAGIC_CODE_V1, MAGIC_CODE_V2, PREFIX_DTYPE
from rmqtool.mapped_files import MappedFile, list_mapped_files
from rmqtool.store import COMMIT_LOG, Store, open_store

Kind = Literal["store", "commitlog"]


@dataclass(frozen=True)
class LogPart:
    """Commit log files, all of a log or one of them, none in a new store; `root` is the store that they belong to."""

    root: Path
    files: tuple[MappedFile, ...]


def locate(path: Path, kind: Kind | None, conf: BrokerConf) -> Store | LogPart:
    """Find out what `path` is; `kind` overrules its place. Raises RmqtoolError."""
    try:
        is_directory, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise UnreadableError(f"cannot read: {(error.strerror or '').lower()}", file=path) from error
    if not exists:
        raise UnreadableError("no such file or directory", file=path)
    if kind == "store" or (
        kind is None and is_directory and not _is_commit_log(path) and path.resolve() not in _told(conf)
    ):
        if not is_directory:
            raise WrongKindError("a file where a store directory should be", file=path)
        return open_store(path, conf)
    if is_directory:
        return _whole_log(path, conf)
    in_place = _is_commit_log(path.parent) or _is_commit_log(path.resolve().parent)
    if kind is None and not (in_place and start_offset_of(path.name) is not None):
        raise UnsupportedError(
            "not shown by this version: neither a store nor a commit log file by its place",
            file=path,
            hint="inspect reads a store, its commitlog directory or a file in there; --as commitlog for a copied file",
        )
    directory = _own_name(path.parent)
    return LogPart(_root_of(directory), (_one_file(directory / path.name),))


def _told(conf: BrokerConf) -> list[Path]:
    return [Path(path).resolve() for path in conf.commit_log_paths]


def _whole_log(directory: Path, conf: BrokerConf) -> LogPart:
    """All of the log: of every directory that broker.conf tells when this is one of them."""
    own, told = _own_name(directory), _told(conf)
    listed = list_mapped_files(*(told if own.resolve() in told else [own]))
    if not listed.files and (listed.strays or not _is_commit_log(directory)):
        raise WrongKindError("no commit log file (a name of 20 digits) is in this directory", file=directory)
    return LogPart(_root_of(own), listed.files)


def _is_commit_log(directory: Path) -> bool:
    return _own_name(directory).name == COMMIT_LOG


def _own_name(directory: Path) -> Path:
    """A commit log by the name that says so: ``.`` and links from elsewhere do not, a link of that name does."""
    resolved = directory.resolve()
    return resolved if directory.name != COMMIT_LOG and resolved.name == COMMIT_LOG else directory


def _root_of(directory: Path) -> Path:
    """The store that a directory of commit log files belongs to; itself when it was copied elsewhere."""
    return directory.parent if directory.name == COMMIT_LOG else directory


def _one_file(path: Path) -> MappedFile:
    with InputFile(path) as file:
        start_offset = start_offset_of(path.name)
        if start_offset is None:
            start_offset = _told_by_first_record(file)
        return MappedFile(path, start_offset, file.size)


def _told_by_first_record(file: InputFile) -> int:
    """The physical offset that the first record tells as its own: for a file that has lost its name."""
    import numpy as np

    head = np.frombuffer(file.read(0, PREFIX_DTYPE.itemsize).ljust(PREFIX_DTYPE.itemsize, b"\0"), PREFIX_DTYPE)[0]
    if head["magic_code"] not in (MAGIC_CODE_V1, MAGIC_CODE_V2) or head["physical_offset"] < 0:
        raise WrongKindError(
            "neither the name nor the first record tells where in the commit log this file belongs",
            file=file.path,
            offset=0,
            hint="rename a copy to its start offset, in 20 digits",
        )
    return int(head["physical_offset"])
