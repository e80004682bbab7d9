"""The files that records are taken from: those of the commit logs of stores, and loose files."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path

from rmqtool.base.errors import RmqtoolError, UnreadableError, UsageError
from rmqtool.base.files import UNLIMITED, InputFile, OpenFiles, ReadPolicy
from rmqtool.base.paths import Place
from rmqtool.base.tolerant import ReadErrors
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE, LOG_FILE_SIZE
from rmqtool.store.dledger_node import committed_index, current_term
from rmqtool.store.store import Store


@dataclass(frozen=True)
class Input:
    """One file; `source` is the number of its source, `start_offset` where its name says that it begins, bytes.

    Without a `start_offset` the name proves nothing: a stray file beside a log, or any file in which there may be
    anything between the records. Where it `may_have_headers` those of DLedger entries are looked for before records;
    `latest_term` is the last Raft term that its node knew, if anything says that.
    """

    number: int
    source: int
    path: Path
    size: int
    start_offset: int | None = None
    may_have_headers: bool = False
    latest_term: int | None = None
    doubtful: frozenset[int] = frozenset()  # physical offsets of records that its own store contradicts


@dataclass(frozen=True)
class Inputs:
    """All files, in the order of the sources; `names` are those of the sources, as they were given.

    `committed` is the greatest Raft index that a checkpoint of a DLedger node among them says is committed.
    """

    names: tuple[str, ...]
    files: tuple[Input, ...]
    errors: tuple[RmqtoolError, ...] = ()
    has_nodes: bool = False
    committed: int | None = None

    def with_doubts(self, doubts: Mapping[int, frozenset[int]]) -> Inputs:
        """The same; `doubts` are physical offsets, by source, of records that their own stores contradict."""
        files = tuple(replace(file, doubtful=doubts.get(file.source, frozenset())) for file in self.files)
        return replace(self, files=files)

    def of_source(self, source: int) -> list[Input]:
        """The files of one source."""
        return [file for file in self.files if file.source == source]


def list_inputs(stores: Sequence[Store], raw: Sequence[Path]) -> Inputs:
    """List the log files of `stores`, and the `raw` files, each of which is a source of its own.

    What of a store cannot be listed is among the errors; raises UnreadableError and WrongKindError for a raw file.
    """
    files: list[Input] = []
    errors = ReadErrors()
    nodes = [store.dledger_directory for store in stores if store.dledger_directory]
    for source, store in enumerate(stores):
        log, is_node = store.commit_log(errors.scope), bool(store.dledger_directory)
        term = current_term(store.dledger_directory) if store.dledger_directory else None
        named = [(file.path, file.size, file.start_offset, file.header_size > 0) for file in log.files]
        strays = [(stray.path, _size(stray.path), None, is_node) for stray in log.strays if stray.kind == "name"]
        for path, size, start_offset, has_headers in (*named, *strays):
            if size and not (start_offset is None and path.is_symlink()):
                files.append(Input(len(files), source, path, size, start_offset, has_headers, term))
    for source, path in enumerate(raw, len(stores)):
        with InputFile(path) as opened:
            files.append(Input(len(files), source, path, opened.size, None, len(nodes) == len(stores)))
    names = (*(str(store.root) for store in stores), *map(str, raw))
    committed = max((index for node in nodes if (index := committed_index(node)) is not None), default=None)
    return Inputs(names, tuple(files), tuple(errors.errors), bool(nodes), committed)


def require_one_kind(stores: Sequence[Store]) -> None:
    """Raise UsageError where some stores are DLedger ones and others are not: physical offsets differ."""
    nodes = [store for store in stores if store.dledger_directory]
    if 0 < len(nodes) < len(stores):
        hint = f"salvage from {nodes[0].root} alone, and compare with rmqtool diff"
        message = "some of the stores are of DLedger, others are not: their offsets cannot be compared"
        raise UsageError(message, hint=hint)


def log_file_size(inputs: Inputs, conf: BrokerConf) -> tuple[int, bool]:
    """The size of a file of the log, bytes, and whether it is known rather than the default.

    That of broker.conf, else the size that most files have of those by which all names can be divided: a file that was
    cut has another. Where there is none, the names show it.
    """
    configured = conf.size(*LOG_FILE_SIZE)
    if configured is not None:
        return configured, True
    named = [file for file in inputs.files if file.start_offset is not None]
    named = [file for file in named if not file.may_have_headers] or named  # those of entries may be larger
    starts = [file.start_offset for file in named if file.start_offset]
    sizes = Counter(file.size for file in named if all(start % file.size == 0 for start in starts))
    common = max(sizes, key=lambda size: (sizes[size], size), default=0)
    if common and (starts or common % _PAGE_SIZE == 0):
        return common, True
    divisor = gcd(*starts)
    return (divisor, True) if divisor >= _PAGE_SIZE else (DEFAULT_LOG_FILE_SIZE, False)


_PAGE_SIZE = 4096  # the broker maps files: it takes no other sizes in practice, bytes


def _size(path: Path) -> int:
    """The size of a regular file, bytes; 0 for what is none or is gone."""
    try:
        return os.stat(path).st_size if path.is_file() else 0
    except OSError:
        return 0


class SalvagedFiles(OpenFiles):
    """The open files of failing disks; `unread` has the positions of the pages that could not be read, by file."""

    def __init__(self, reading: ReadPolicy) -> None:
        super().__init__(reading)
        self.unread: defaultdict[Path, set[int]] = defaultdict(set)

    def opened(self, path: Place, listed: int = 0) -> InputFile:  # noqa: ARG002 - these are read as far as they go
        """A file, opened."""
        return SalvagedFile(path, self.unread[Path(path)], self._reading)


class SalvagedFile(InputFile):
    """A file of a failing disk: pages that cannot be read are zeros, and their positions go to `unread`, bytes."""

    def __init__(self, path: Place, unread: set[int], reading: ReadPolicy = UNLIMITED) -> None:
        super().__init__(path, reading)
        self._unread = unread

    def read(self, position: int, size: int) -> bytes:
        """As the base, but for bad pages."""
        target = memoryview(bytearray(max(0, min(size, self.size - position))))
        return bytes(target[: self.read_into(target, position)])

    def read_into(self, target: memoryview, position: int) -> int:
        """As the base, but for bad pages."""
        try:
            return super().read_into(target, position)
        except UnreadableError:
            done, wanted = 0, max(0, min(len(target), self.size - position))
            while done < wanted:
                at = position + done
                size = min(_PAGE_SIZE - at % _PAGE_SIZE, wanted - done)
                page = target[done : done + size]
                try:
                    super().read_into(page, at)
                except UnreadableError:
                    page[:] = bytes(size)
                    self._unread.add(at - at % _PAGE_SIZE)
                done += size
            return done
