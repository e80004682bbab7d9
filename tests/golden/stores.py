"""The committed golden stores, for tests that need no Java."""

import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from tests.copies import copied

HERE = Path(__file__).parent
_ARCHIVE = ".tar.xz"
_ORACLE = ".oracle.json.xz"
_LARGE = 1 << 20
_BLOCK = 1 << 16
_KEPT = 32
"""Stores of which the content is kept in memory, half a MB each."""
_RARELY = ("4.7.1", "5.1.4")
"""Releases whose records, queues and index have the forms of those before and after them."""
_SHOWS_RELEASE = ("config", "index", "abort.bak", "compaction", "checkpoint", "rocksdbstore", "timerlog", "timerwheel")


@dataclass(frozen=True)
class _Entry:
    """A file of a store with what of it is not all zeros, by position; a directory has None."""

    path: str
    mode: int
    mtime: float
    size: int
    data: tuple[tuple[int, bytes], ...] | None

    def write(self, root: Path) -> None:
        """Make it; a large file has holes, as a broker's has."""
        path = f"{root}/{self.path}"
        if self.data is None:
            os.makedirs(path, exist_ok=True)
            return
        with open(path, "wb", buffering=0) as file:
            for position, data in self.data:
                file.seek(position)
                file.write(data)
            file.truncate(self.size)

    def finish(self, root: Path) -> None:
        """Give it mode and time, when all is in it."""
        path = f"{root}/{self.path}"
        os.chmod(path, self.mode)
        os.utime(path, (self.mtime, self.mtime))


def names() -> list[str]:
    """Names of all golden stores, ``<version>-<scenario>``."""
    return sorted(path.name.removesuffix(_ARCHIVE) for path in HERE.glob(f"*{_ARCHIVE}"))


def samples() -> list[Any]:
    """Parameters of tests that hold two of our own ways against each other: some releases always, the others rarely.

    The stores of all releases are held against what these say themselves.
    """
    return [pytest.param(name, marks=pytest.mark.rare if name.startswith(_RARELY) else ()) for name in names()]


def driven_names() -> list[str]:
    """Names of those for which the store classes were driven directly: all but the shops."""
    return [name for name in names() if not name.endswith("-shop")]


def version_of(name: str) -> str:
    """The release that wrote a golden store."""
    return name.removeprefix("more/").partition("-")[0]


def unpack(name: str, into: Path) -> Path:
    """Unpack a golden store below `into`, modification times included; its root directory."""
    unpack_archive(HERE / f"{name}{_ARCHIVE}", into / name)
    return into / name


def unpack_archive(file: Path, root: Path) -> None:
    """Unpack what `pack` has packed."""
    root.mkdir(parents=True, exist_ok=True)
    entries = _entries(file)
    for entry in entries:
        entry.write(root)
    for entry in reversed(entries):
        entry.finish(root)


@lru_cache(maxsize=_KEPT)
def _entries(file: Path) -> tuple[_Entry, ...]:
    """All below the root, each after what it is in; without the zeros, of which a timer wheel has 38 MB."""
    with tarfile.open(fileobj=BytesIO(lzma.decompress(file.read_bytes()))) as archive:
        return tuple(_entry(archive, member) for member in archive)


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> _Entry:
    file = archive.extractfile(member)
    data = None if file is None else tuple(_pieces(file, member.size))
    return _Entry(member.name, member.mode, member.mtime, member.size, data)


def _pieces(file: IO[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a large file that are not all zeros, with their positions; a small file as it is."""
    position = 0
    while block := file.read(_BLOCK):
        if size < _LARGE or block.count(0) < len(block):
            yield position, block
        position += len(block)


def without_signs(root: Path, into: Path) -> Path:
    """A copy without whatever shows the release but log and queues."""
    copied(root, into)
    for name in _SHOWS_RELEASE:
        path = into / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return into


@cache
def oracle(name: str) -> dict[str, Any]:
    """What the release that wrote the store says about it, to be read only; README.md explains the fields."""
    found: dict[str, Any] = json.loads(lzma.decompress((HERE / f"{name}{_ORACLE}").read_bytes()))
    return found


def save(name: str, root: Path, oracle: dict[str, Any]) -> None:
    """Make `root` a golden store."""
    with lzma.open(HERE / f"{name}{_ARCHIVE}", "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        pack(root, file)
    text = json.dumps(oracle, ensure_ascii=False, separators=(",", ":"))
    (HERE / f"{name}{_ORACLE}").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def pack(root: Path, file: lzma.LZMAFile) -> None:
    """Write what is below `root` as an archive, modification times included, owners not."""
    # PAX keeps fractions of a second: the broker's retention clock is the modification time.
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
