"""What an interrupted deletion has not deleted yet; the next run that writes deletes it. Reads only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.byte_size import byte_size
from rmqtool.base.remote_path import RemotePath
from rmqtool.transaction.home import STAGING, interrupted
from rmqtool.transaction.journal import read_journal
from rmqtool.transaction.paths import HOME, StorePaths
from rmqtool.transaction.system import SYSTEM


@dataclass(frozen=True)
class UnfinishedDeletion:
    """An interrupted transaction, and the files that it would still delete."""

    id: str
    command: str
    files: int
    size: int

    @property
    def text(self) -> str:
        """What it is, for people; the beginning of a sentence."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.command} {self.id} still has {files} of {byte_size(self.size)} to delete for good"

    @property
    def comes_first(self) -> str:
        """What is done before anything else, for a question."""
        return f"The interrupted {self.text}: that is done first ({self.to_keep_them})."

    @property
    def to_keep_them(self) -> str:
        """What keeps those files."""
        return f"to keep {'it' if self.files == 1 else 'them'}, move {HOME}/{self.id} out of the store first"


def unfinished_deletion(root: Path) -> UnfinishedDeletion | None:
    """The interrupted run that would still delete files; None without one."""
    if isinstance(root, RemotePath):
        return None  # nobody writes there
    name = interrupted(root)
    if name is None or name == STAGING:
        return None
    journal = read_journal(root / HOME / name, StorePaths(os.path.realpath(root), SYSTEM))
    left = [each for each in journal.deletions if each.is_still(SYSTEM.lstat(str(root / each.path)))]
    if not left:
        return None
    return UnfinishedDeletion(name, journal.command, len(left), sum(deletion.size for deletion in left))
