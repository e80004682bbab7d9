"""Reading changes nothing: the state of a directory before and after."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_CHUNK = 1 << 20
_PAGE = 1 << 12  # extents begin and end with pages
_ZEROS = bytes(_CHUNK)


class Entry(NamedTuple):
    """What must stay as it is; `content` is a digest of a file, the target of a link, empty for what is neither."""

    mode: int
    owner: tuple[int, int]
    links: int
    size: int
    mtime_ns: int
    ctime_ns: int
    content: bytes


def tree(root: Path) -> dict[str, bytes]:
    """The bytes of all files below `root`, by relative path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def snapshot(root: Path) -> dict[str, Entry]:
    """Every entry at and below `root`, itself included, by relative path; symlinks are not followed."""
    return dict(_entries(str(root), "."))


@contextmanager
def unchanged(root: Path) -> Iterator[Path]:
    """Assert that the block leaves listing, bytes, times and modes below `root` as they were."""
    before = snapshot(root)
    yield root
    after = snapshot(root)
    assert after.keys() == before.keys(), sorted(map(str, after.keys() ^ before.keys()))
    changed = {name: (before[name], after[name]) for name in before if after[name] != before[name]}
    assert not changed, changed


def _entries(path: str, name: str) -> Iterator[tuple[str, Entry]]:
    """An entry and those below it; as text, for a run of all tests looks at millions of them."""
    status = os.lstat(path)
    yield name, _entry_of(path, status)
    if stat.S_ISDIR(status.st_mode):
        for below in sorted(os.listdir(path)):
            yield from _entries(f"{path}/{below}", below if name == "." else f"{name}/{below}")


def _entry_of(path: str, status: os.stat_result) -> Entry:
    content = b""
    if stat.S_ISREG(status.st_mode):
        content = _digest_of_page(path) if status.st_size <= _PAGE else digest(path)
    elif stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))
    return Entry(
        status.st_mode,
        (status.st_uid, status.st_gid),
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        content,
    )


def _digest_of_page(path: str) -> bytes:
    """A digest of a file of one page, as most are: nobody looks for its holes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return hashlib.blake2b(os.pread(descriptor, _PAGE, 0)).digest()
    finally:
        os.close(descriptor)


def digest(path: str | Path) -> bytes:
    """A digest of the pages that are not all zeros, and of where they stand; reading may make a page of a hole."""
    digested = hashlib.blake2b()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for start, stop in data_extents(descriptor, os.fstat(descriptor).st_size):
            for position in range(start, stop, _CHUNK):
                data = os.pread(descriptor, min(_CHUNK, stop - position), position)
                for at in _pages(data):
                    digested.update(b"%d:" % (position + at))
                    digested.update(data[at : at + _PAGE])
    finally:
        os.close(descriptor)
    return digested.digest()


def _pages(data: bytes) -> Iterator[int]:
    """Where the pages of `data` begin that are not all zeros."""
    if data == _ZEROS[: len(data)]:
        return
    for at in range(0, len(data), _PAGE):
        page = data[at : at + _PAGE]
        if page != _ZEROS[: len(page)]:
            yield at


def data_extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each stretch of a file that is no hole; all of it where the system knows of no holes."""
    if not hasattr(os, "SEEK_DATA"):
        yield 0, size
        return
    stop = 0
    while stop < size:
        try:
            start = os.lseek(descriptor, stop, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole behind
            return
        stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, stop
