"""Who owns the files of a store, and which of them their owner may not write."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rmqtool.base.mapped_files import MappedFiles
from rmqtool.store.store import CHECKPOINT, CONFIG, CONSUME_QUEUE, INDEX, Store

_OTHER_WRITERS = 0o022


@dataclass(frozen=True)
class Owners:
    """The statuses of the log's files and of the store's own entries, as far as they exist."""

    statuses: dict[Path, os.stat_result]

    @cached_property
    def usual(self) -> tuple[int, int]:
        """The user that owns most of them, with the group that most of its files have."""
        uid = Counter(status.st_uid for status in self.statuses.values()).most_common(1)[0][0]
        groups = Counter(status.st_gid for status in self.statuses.values() if status.st_uid == uid)
        return uid, groups.most_common(1)[0][0]

    def of_others(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Those of other users, unless all may write them."""
        for path, status in self.statuses.items():
            if status.st_uid != self.usual[0] and not status.st_mode & _OTHER_WRITERS:
                yield path, status

    def not_writable(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Those that their owner may not write, unless no file may be written."""
        if any(status.st_mode & stat.S_IWUSR for status in self.statuses.values() if stat.S_ISREG(status.st_mode)):
            for path, status in self.statuses.items():
                if not status.st_mode & stat.S_IWUSR:
                    yield path, status


def owners_of(store: Store, log: MappedFiles) -> Owners:
    """The owners of a store's files."""
    names = (CHECKPOINT, "lock", CONFIG, CONSUME_QUEUE, INDEX)
    paths = [*(file.path for file in log.files), *store.commit_log_directories, *(store.root / name for name in names)]
    return Owners({path: status for path in paths if (status := _status_of(path))})


def _status_of(path: Path) -> os.stat_result | None:
    """The status of a file, None when it does not exist: a running broker deletes files."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
