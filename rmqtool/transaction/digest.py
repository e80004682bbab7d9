"""What a file or directory holds, as one comparable value: it outlives copies, clocks and holes.

A manifest is None where nothing is, ``{"size": bytes, "digest": hex}`` for a file, ``{"entries": {name: manifest}}``
for a directory, ``{"other": text}`` for what is neither.
"""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from typing import Any

from rmqtool.files import InputFile
from rmqtool.transaction.system import System

Manifest = dict[str, Any] | None

_BLOCK = 1 << 20  # bytes
_DIGEST_SIZE = 16


def manifest_of(system: System, path: str) -> Manifest:
    """The manifest of what is at `path`; links are not followed."""
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
    """BLAKE2b-128 over the size and, with their positions, the blocks of 1 MiB that are not all zero.

    Holes are not read, yet a file has the same digest with holes and without.
    """
    digest = blake2b(file.size.to_bytes(8, "big"), digest_size=_DIGEST_SIZE)
    position = 0
    while (found := file.next_data(position, file.size)) < file.size:
        position = found // _BLOCK * _BLOCK
        digest.update(position.to_bytes(8, "big"))
        digest.update(file.read(position, min(_BLOCK, file.size - position)))
        position += _BLOCK
    return digest.hexdigest()


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
