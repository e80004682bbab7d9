"""The content of a file or directory as one comparable value, whatever its times and holes.

A manifest is None where nothing is, ``{"size": bytes, "digest": hex}`` for a file, ``{"entries": {name: manifest}}``
for a directory, ``{"other": text}`` for links and special files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.transaction.system import System

Manifest = dict[str, Any] | None

_BLOCK = 4 << 10  # bytes; a mapped file is mostly a hole, and what it holds begins with a few blocks
_FIRST_READ, _LARGEST_READ = 16 << 10, 1 << 20  # bytes
_DIGEST_SIZE = 16


def manifest_of(system: System, path: str) -> Manifest:
    """The manifest of the file or directory at `path`; links are not followed."""
    status = system.lstat(path)
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode):
        with system.open_input(path) as file:
            return {"size": file.size, "digest": file_digest(file)}
    if stat.S_ISDIR(status.st_mode):
        return {"entries": {entry.name: manifest_of(system, entry.path) for entry in system.list(path)}}
    if stat.S_ISLNK(status.st_mode):
        return {"other": f"link to {system.read_link(path)}"}
    return {"other": f"type {stat.S_IFMT(status.st_mode):o}"}


def file_digest(file: InputFile) -> str:
    """BLAKE2b-128 over the size and the data: each run of blocks of 4 KiB that are not all zero, after its position.

    Holes are not read, yet a file has the same digest with holes and without. Numbers are 8 bytes, big-endian.
    """
    digest = blake2b(file.size.to_bytes(8, "big"), digest_size=_DIGEST_SIZE)
    for position, data in _runs(file):
        if position is not None:
            digest.update(position.to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _runs(file: InputFile) -> Iterator[tuple[int | None, memoryview]]:
    """Data in blocks, with the position where a run begins and None where it goes on; long runs in larger reads."""
    position, run_end, size = 0, -1, _FIRST_READ
    while position < file.size:
        if position != run_end:
            position, size = file.next_data(position, file.size) // _BLOCK * _BLOCK, _FIRST_READ
        data = memoryview(file.read(position, min(size, file.size - position)))
        if not data:
            return  # it has become shorter
        for start, stop in _filled(data):
            yield None if position + start == run_end else position + start, data[start:stop]
            run_end = position + stop
        position += len(data)
        size = min(2 * size, _LARGEST_READ)


def _filled(data: memoryview) -> list[tuple[int, int]]:
    """The runs of blocks that are not all zero, as start and stop."""
    whole = len(data) // _BLOCK * _BLOCK
    filled = np.frombuffer(data[:whole], np.uint64).reshape(-1, _BLOCK // 8).any(axis=1)
    if whole < len(data):
        filled = np.append(filled, any(data[whole:]))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], filled, [False])).astype(np.int8)))
    return [(int(start) * _BLOCK, min(int(stop) * _BLOCK, len(data))) for start, stop in edges.reshape(-1, 2)]


def text_digest(text: bytes) -> str:
    """BLAKE2b-128 of a text."""
    return blake2b(text, digest_size=_DIGEST_SIZE).hexdigest()


def size_of(manifest: Manifest) -> int:
    """All files' sizes together, bytes."""
    if manifest is None:
        return 0
    return int(manifest.get("size", 0)) + sum(map(size_of, manifest.get("entries", {}).values()))


def same_entry(system: System, one: str, other: str) -> bool:
    """Whether two paths are the same file, or two of the same content."""
    first, second = system.lstat(one), system.lstat(other)
    if first is None or second is None:
        return first is second
    return os.path.samestat(first, second) or manifest_of(system, one) == manifest_of(system, other)
