"""A log with the consume queues and the index that a broker derives from it, for what reads all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.deriving import derive


def make_derived(store: Path) -> Path:
    """A store beside the one that `make_log` wrote, with its log and all that is derived; kept for the next run."""
    directory = store.with_name(f"{store.name}-derived")
    made, wanted = directory.with_name(f"{directory.name}.json"), store.with_name(f"{store.name}.json")
    if directory.exists() and made.exists() and made.read_bytes() == wanted.read_bytes():
        return directory
    made.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "commitlog").symlink_to(store / "commitlog")
    derive(directory, light_queues=True)
    shutil.copyfile(wanted, made)
    return directory
