"""A synthetic log with one record in a hundred damaged, made once and kept for the next run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files

SHARE = 0.01
SEED = 5

_DAMAGES = (
    (0, bytes(8)),  # neither size nor magic code
    (0, b"\0\1\2\3"),  # a size that leads into another record
    (4, b"\xda\xa3\x20\xaf"),  # one bit of the magic code
    (28, b"\xff" * 8),  # another physical offset
)
"""Where in a record, and the bytes put there."""


def make_damaged_log(store: Path) -> Path:
    """Copy the log of a store that `make_log` wrote and damage the copy; keep the one already there."""
    directory = store.with_name(f"{store.name}-damaged")
    made, wanted = directory.with_name(f"{directory.name}.json"), store.with_name(f"{store.name}.json")
    if directory.exists() and made.exists() and made.read_bytes() == wanted.read_bytes():
        return directory
    made.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(store / "commitlog", directory / "commitlog")
    rng = np.random.default_rng(SEED)
    for mapped in list_mapped_files(directory / "commitlog").files:
        _damage(mapped, rng)
    shutil.copyfile(wanted, made)
    return directory


def _damage(mapped: MappedFile, rng: np.random.Generator) -> None:
    runs = [event.physical_offsets for event in scan_files([mapped]) if isinstance(event, RecordRun)]
    positions = np.concatenate(runs) - mapped.start_offset
    with mapped.path.open("r+b") as file:
        for position in positions[rng.random(len(positions)) < SHARE].tolist():
            place, data = _DAMAGES[rng.integers(len(_DAMAGES))]
            file.seek(position + place)
            file.write(data)
