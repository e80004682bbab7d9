"""A model of a disk that loses what was not synced: which stores a power failure may leave.

A run on a real file system is recorded call by call, then played on the model. What a crash keeps: the bytes of a file
as of its last sync, or as written since; a change of names as soon as every directory that it touches was synced after
it, before that maybe. Changes of names are all or nothing, and one is kept only with those before it that touched the
same name or moved the same file or directory, as in every journalling file system.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.transaction.system import System

Contents = dict[str, tuple[bytes, int] | None]
"""Files with bytes and time, directories with None, by relative path; parents first."""


def write_contents(contents: Contents, target: Path) -> None:
    """Write a store."""
    for name, file in contents.items():
        path = target / name
        if file is None:
            path.mkdir()
        else:
            path.write_bytes(file[0])
            os.utime(path, ns=(file[1], file[1]))


@dataclass
class Node:
    """A file (`data` as written, `durable` as synced) or a directory (`names`)."""

    names: dict[str, int] | None = None
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    mtime_ns: int = 0


@dataclass
class Change:
    """One change of names: directory and name -> node, None where the name goes; `synced` are directories.

    `needs` are the numbers of those before it that it cannot be without.
    """

    entries: dict[tuple[int, str], int | None]
    nodes: set[int]
    needs: set[int]
    synced: set[int] = field(default_factory=set)

    @property
    def is_durable(self) -> bool:
        """Whether every directory that it touches was synced since."""
        return {directory for directory, _ in self.entries} <= self.synced


class Recorder:
    """Wraps a system and writes down what changes something."""

    def __init__(self, system: System) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._system = system
        self._paths: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._system, name)

        def recorded(*arguments: Any, **options: Any) -> Any:
            answer = call(*arguments, **options)
            if name in ("open_to_write", "open_to_sync"):
                self._paths[answer] = arguments[0]
                if options.get("create"):
                    self.calls.append(("create", arguments))
            elif name in ("write", "set_size", "sync"):
                self._add(name, arguments, answer)
            elif name == "sync_all" and answer:
                self.calls.append(("sync_all", ()))
            elif name in ("make_directory", "link", "rename", "exchange", "unlink", "remove_directory", "set_mtime"):
                self.calls.append((name, arguments))
            return answer

        return recorded

    def _add(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        path = self._paths[arguments[0]]
        if name == "write":
            self.calls.append(("write", (path, bytes(arguments[1][:answer]), arguments[2])))
        else:
            self.calls.append((name, (path, *arguments[1:])))


class Disk:
    """The tree below `root` as it was, and what happens to it."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._nodes: list[Node] = []
        self._first = self._load(root)
        self._start = {number: dict(node.names) for number, node in enumerate(self._nodes) if node.names is not None}
        self._changes: list[Change] = []

    def play(self, name: str, arguments: tuple[Any, ...]) -> None:
        """One recorded call; one on what lies outside is left out."""
        getattr(self, "_write_bytes" if name == "write" else f"_{name}")(*arguments)

    def crashes(self, chance: random.Random) -> Iterator[tuple[set[int], bool]]:
        """What may be kept of the changes that are not durable: none, all, all but one, one, some; new bytes or not."""
        maybe = [number for number, change in enumerate(self._changes) if not change.is_durable]
        sets = [set(), set(maybe)]
        sets += [{number} for number in maybe] + [set(maybe) - {number} for number in maybe]
        sets += [{number for number in maybe if chance.random() < 0.5} for _ in range(2)]
        seen = []
        for chosen in sets:
            for with_bytes in (False, True):
                kept = (self._closed(chosen), with_bytes)
                if kept not in seen:
                    seen.append(kept)
                    yield kept

    def states(
        self, calls: Iterable[tuple[str, tuple[Any, ...]]], chance: random.Random, share: int = 1
    ) -> Iterator[Contents]:
        """What a power failure may leave behind each of the calls, or one of so many; each store once."""
        seen = set()
        for name, arguments in calls:
            self.play(name, arguments)
            if chance.random() * share > 1:
                continue
            for kept, with_bytes in self.crashes(chance):
                contents = self.after(kept, with_bytes=with_bytes)
                digest = hash(tuple(sorted(contents.items(), key=lambda entry: entry[0])))
                if digest not in seen:
                    seen.add(digest)
                    yield contents

    def after(self, kept: set[int], *, with_bytes: bool) -> Contents:
        """The store that such a crash leaves."""
        names = {number: dict(entries) for number, entries in self._start.items()}
        for number, change in enumerate(self._changes):
            if change.is_durable or number in kept:
                for (directory, name), node in change.entries.items():
                    names.setdefault(directory, {})
                    if node is None:
                        names[directory].pop(name, None)
                    else:
                        names[directory][name] = node
        return dict(self._contents(self._first, "", names, with_bytes=with_bytes))

    def _closed(self, chosen: set[int]) -> set[int]:
        """`chosen` with all that it cannot be without."""
        closed = set(chosen)
        for number in sorted(chosen, reverse=True):
            closed |= {earlier for later in closed for earlier in self._changes[later].needs if earlier < number}
        return {number for number in closed if not self._changes[number].is_durable}

    def _contents(
        self, number: int, path: str, names: dict[int, dict[str, int]], *, with_bytes: bool
    ) -> Iterator[tuple[str, tuple[bytes, int] | None]]:
        node = self._nodes[number]
        if node.names is None:
            yield path, (bytes(node.data) if with_bytes else node.durable, node.mtime_ns)
            return
        yield path, None
        for name, child in names.get(number, {}).items():
            yield from self._contents(child, f"{path}/{name}" if path else name, names, with_bytes=with_bytes)

    def _load(self, path: Path) -> int:
        status = path.lstat()
        node = Node(mtime_ns=status.st_mtime_ns)
        self._nodes.append(node)
        number = len(self._nodes) - 1
        if stat.S_ISDIR(status.st_mode):
            node.names = {child.name: self._load(child) for child in sorted(path.iterdir())}
        else:
            node.durable = path.read_bytes()
            node.data = bytearray(node.durable)
        return number

    def _at(self, path: str) -> int:
        number = self._first
        for name in os.path.relpath(path, self._root).split("/"):
            if name != ".":
                number = self._names(number)[name]
        return number

    def _names(self, number: int) -> dict[str, int]:
        names = self._nodes[number].names
        if names is None:
            raise NotADirectoryError
        return names

    def _place(self, path: str) -> tuple[int, str]:
        return self._at(os.path.dirname(path)), os.path.basename(path)

    def _change(self, entries: dict[tuple[int, str], int | None], *nodes: int) -> None:
        for (directory, name), node in entries.items():
            if node is None:
                self._names(directory).pop(name)
            else:
                self._names(directory)[name] = node
        needs = {
            number
            for number, earlier in enumerate(self._changes)
            if earlier.entries.keys() & entries.keys() or earlier.nodes & set(nodes)
        }
        self._changes.append(Change(entries, set(nodes), needs))

    def _new(self, path: str, node: Node) -> None:
        self._nodes.append(node)
        self._change({self._place(path): len(self._nodes) - 1}, len(self._nodes) - 1)

    def _create(self, path: str) -> None:
        self._new(path, Node())

    def _make_directory(self, path: str) -> None:
        self._new(path, Node(names={}))

    def _link(self, source: str, target: str) -> None:
        self._change({self._place(target): self._at(source)}, self._at(source))

    def _rename(self, source: str, target: str) -> None:
        node = self._at(source)
        self._change({self._place(source): None, self._place(target): node}, node)

    def _exchange(self, one: str, other: str) -> None:
        first, second = self._at(one), self._at(other)
        self._change({self._place(one): second, self._place(other): first}, first, second)

    def _unlink(self, path: str) -> None:
        self._change({self._place(path): None}, self._at(path))

    _remove_directory = _unlink

    def _set_mtime(self, path: str, mtime_ns: int) -> None:
        self._nodes[self._at(path)].mtime_ns = mtime_ns

    def _set_size(self, path: str, size: int) -> None:
        data = self._nodes[self._at(path)].data
        del data[size:]
        data.extend(bytes(size - len(data)))

    def _write_bytes(self, path: str, written: bytes, position: int) -> None:
        data = self._nodes[self._at(path)].data
        data.extend(bytes(max(0, position + len(written) - len(data))))
        data[position : position + len(written)] = written

    def _sync_all(self) -> None:
        for node in self._nodes:
            if node.names is None:
                node.durable = bytes(node.data)
        for change in self._changes:
            change.synced |= {directory for directory, _ in change.entries}

    def _sync(self, path: str) -> None:
        number = self._at(path)
        node = self._nodes[number]
        if node.names is None:
            node.durable = bytes(node.data)
            return
        for change in self._changes:
            if number in {directory for directory, _ in change.entries}:
                change.synced.add(number)
