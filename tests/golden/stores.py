"""The committed golden stores, for tests that need no Java."""

import json
import lzma
import os
import shutil
import tarfile
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_ARCHIVE = ".tar.xz"
_ORACLE = ".oracle.json.xz"
_LARGE = 1 << 20
_BLOCK = 1 << 16
_RARELY = ("4.7.1", "5.1.4")
"""Releases whose records, queues and index have the forms of those before and after them."""
_SHOWS_RELEASE = ("config", "index", "abort.bak", "compaction", "checkpoint", "rocksdbstore", "timerlog", "timerwheel")


class SparseArchive(tarfile.TarFile):
    """Unpacks large files with holes, as a broker has them; the archive holds 38 MB of zeros of a timer wheel."""

    def makefile(self, tarinfo: tarfile.TarInfo, targetpath: Any) -> None:
        source = self.extractfile(tarinfo)
        if source is None or tarinfo.size < _LARGE:
            super().makefile(tarinfo, targetpath)
            return
        with Path(targetpath).open("wb") as target:
            while block := source.read(_BLOCK):
                if block.count(0) < len(block):
                    target.write(block)
                else:
                    target.seek(len(block), os.SEEK_CUR)
            target.truncate()


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


def unpack(name: str, into: Path) -> Path:
    """Unpack a golden store below `into`, modification times included; its root directory."""
    root = into / name
    with SparseArchive.open(fileobj=BytesIO(_decompressed(name))) as archive:
        # Python before 3.10.12 and 3.11.4 has no filters, and its `extractall` no such argument.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(root)
    return root


@lru_cache(maxsize=1)
def _decompressed(name: str) -> bytes:
    """The archive, kept for the next test of the same store: that of a timer wheel takes a tenth of a second."""
    return lzma.decompress((HERE / f"{name}{_ARCHIVE}").read_bytes())


def without_signs(root: Path, into: Path) -> Path:
    """A copy without whatever shows the release but log and queues."""
    shutil.copytree(root, into)
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
