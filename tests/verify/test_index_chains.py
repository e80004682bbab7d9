"""Chains of index files whose units another check reads: what is found, and how much is held meanwhile."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.formats.index_file import UNIT_DTYPE
from rmqtool.rules.versions import Version
from rmqtool.store.index_files import Geometry, IndexFile
from rmqtool.store.store import open_store
from rmqtool.verify.index_chains import ChainChecks
from rmqtool.verify.index_sequence import FileUnits
from rmqtool.verify.task import VerifyTask

SLOTS, UNITS, FILES = 50_000, 1_000, 40


def index_files(directory: Path) -> list[FileUnits]:
    """Full files, none of which is there."""
    files = []
    for number in range(FILES):
        file = IndexFile(directory / str(number), 0, 1_000, 2_000, 0, 0, UNITS, UNITS + 1)
        files.append(FileUnits(file, Geometry(SLOTS, UNITS + 1), number * UNITS, UNITS))
    return files


def units_of(*, links: int = 0) -> NDArray[np.void]:
    """Units of different slots, with as many wrong links."""
    units = np.zeros(UNITS, UNIT_DTYPE)
    units["key_hash"] = np.arange(UNITS)
    units["previous"][:links] = UNITS
    return units


@pytest.mark.parametrize("links", [0, 3])
def test_a_growing_index_of_many_files(tmp_path: Path, links: int) -> None:
    """Each file is checked as soon as its last unit was read, and nothing of it but its findings stays."""
    (tmp_path / "commitlog").mkdir()
    task = VerifyTask(open_store(tmp_path), None, DispatchRules(Version(4, 9, 7)), live=True)
    checks, files, units = ChainChecks(task), index_files(tmp_path), units_of(links=links)
    tracemalloc.start()
    try:
        for index_file in files:
            for first in (0, UNITS // 2):
                checks.add(index_file, index_file.start + first, units[first : first + UNITS // 2])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * SLOTS * 6  # bytes, of four files
    report = task.report()
    for index_file in files:
        check = checks.take(index_file)
        report.merge(check.report)
    assert report.all_totals().get("index.chain", 0) == links * FILES
