"""What a run has copied so far, for the next one that goes on with it: lines of JSON beside a copy."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from rmqtool.copy.manifest import CopiedFile, copied_file
from rmqtool.store.store import Store

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """What tells this start of the machine from others; empty where the system does not say."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def name_of(store: Store) -> dict[str, object]:
    """What tells a store from others on its machine."""
    return {"store": os.path.realpath(store.root), "inode": os.stat(store.root).st_ino}


def note_lines(head: dict[str, object], files: list[CopiedFile]) -> bytes:
    """Notes of some files."""
    return "".join(json.dumps(each) + "\n" for each in (head, *map(asdict, files))).encode()


def noted_files(data: bytes, head: dict[str, object]) -> dict[str, CopiedFile] | None:
    """The files in notes; None in those of another copy. The last line may be cut."""
    lines = data.splitlines()
    with suppress(ValueError, KeyError, TypeError, IndexError):
        if json.loads(lines[0]) != head:
            return None
        found: dict[str, CopiedFile] = {}
        for line in lines[1:]:
            with suppress(ValueError, TypeError, KeyError):
                each = copied_file(json.loads(line))
                found[each.path] = each
        return found
    return None


class Notes:
    """Notes on this machine: a process that was killed has left them, a machine that fell has not.

    The data of a file may be in memory when it is noted: what another start of the machine has noted does not count.
    """

    def __init__(self, path: Path, head: dict[str, object]) -> None:
        self._path = path
        self._head = {**head, "boot": boot()}
        self._descriptor = -1

    def read(self) -> dict[str, CopiedFile] | None:
        """What an earlier run has copied; None without one."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        return noted_files(data, self._head) if self._head["boot"] else None

    def open(self, *, is_new: bool) -> None:
        """Begin to write."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if is_new else 0)
        self._descriptor = os.open(self._path, flags, 0o600)
        os.write(self._descriptor, note_lines(self._head, []) if is_new else b"\n")

    def add(self, file: CopiedFile) -> None:
        """Note a file that is copied."""
        os.write(self._descriptor, (json.dumps(asdict(file)) + "\n").encode())

    def close(self) -> None:
        """Write no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
