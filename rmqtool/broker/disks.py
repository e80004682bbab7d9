"""How full a disk is, as the broker of each version computes it (`UtilAll#getDiskPartitionSpaceUsedPercent`)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.files import unreadable
from rmqtool.rules.versions import DISK_RATIO_AS_DF, STORE_CREATES_DIRECTORIES, Version


@dataclass(frozen=True)
class Disk:
    """The disk below `path`, bytes: `total`, `free` for root, `usable` for others; `device` as `stat` gives it.

    `missing` is set when `path` does not exist: the broker then computes a ratio of -1. `fixed_ratio` replaces the
    ratio that would be computed.
    """

    path: Path
    device: int = 0
    total: int = 0
    free: int = 0
    usable: int = 0
    missing: bool = False
    fixed_ratio: float | None = None

    def ratio(self, version: Version) -> float:
        """The used part as a fraction; -1 where the broker cannot compute it."""
        if self.missing:
            return -1.0
        if self.fixed_ratio is not None:
            return self.fixed_ratio
        if self.total <= 0:
            return -1.0
        used = self.total - self.free
        if version < DISK_RATIO_AS_DF:
            return used / self.total
        entire = used + self.usable
        return -(-used * 100 // entire) / 100.0 if entire else -1.0

    def after(self, freed: int) -> Disk:
        """The disk once files of `freed` bytes on it are deleted."""
        fixed = self.fixed_ratio
        if fixed is not None and self.total > 0:
            fixed -= freed / self.total
        return replace(self, free=self.free + freed, usable=self.usable + freed, fixed_ratio=fixed)


def disk_of(path: Path, version: Version, fixed_ratio: float | None = None) -> Disk:
    """The disk below `path`, which later releases create when it is missing; raises UnreadableError."""
    existing = path.absolute()
    while version >= STORE_CREATES_DIRECTORIES and not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        status, space = os.stat(existing), os.statvfs(existing)
    except FileNotFoundError:
        return Disk(path, missing=True, fixed_ratio=fixed_ratio)
    except OSError as error:
        raise unreadable(path, None, error) from error
    unit = space.f_frsize
    return Disk(
        path,
        status.st_dev,
        space.f_blocks * unit,
        space.f_bfree * unit,
        space.f_bavail * unit,
        fixed_ratio=fixed_ratio,
    )
