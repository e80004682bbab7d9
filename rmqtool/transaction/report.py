"""Errors of the system as ours, with hints what to do about them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.base.errors import UnwritableError

_HINTS = {
    errno.EISDIR: "move it away, and run this again",
    errno.ENOSPC: "make room on the file system of the store and run the command again",
    errno.EDQUOT: "raise the quota of this user and run the command again",
    errno.EROFS: "mount it for writing, or work on a copy; after errors of the disk (dmesg) copy it first",
    errno.EACCES: "run as root or as the broker's user",
    errno.EPERM: "run as root or as the broker's user",
    errno.EIO: "the disk reports an error: copy the store to a sound disk first",
    errno.EXDEV: "the file system can't rename this: work on a copy on ext4, xfs or another local file system",
}


@contextmanager
def reported(path: str, doing: str = "cannot write") -> Iterator[None]:
    """Turn an `OSError` into an UnwritableError that names the file, `path` where the system names none."""
    try:
        yield
    except OSError as error:
        file = error.filename if isinstance(error.filename, (str, bytes)) else path
        reason = (error.strerror or str(error)).lower()
        raise UnwritableError(
            f"{doing}: {reason}", file=os.fsdecode(file), hint=_HINTS.get(error.errno or 0)
        ) from error
