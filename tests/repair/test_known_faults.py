"""What docs/faults.md says a repair does about each fault is what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repair import known_faults_page
from tests.repair.checked_repair import planned_repair
from tests.repair.known_faults import Row, conf_of, rows
from tests.verify.small_store import small_store

WRITTEN = {line.what: line for line in known_faults_page.written()}
ROWS = rows()
FAULTS = [f"F{number:02}" for number in range(1, 60)]
QUICK = {row.fault: row for row in reversed(ROWS) if row.build is small_store}.values()


def test_the_page_has_every_fault() -> None:
    """Each row of today, and each number."""
    assert [line.what for line in known_faults_page.written()] == [row.name for row in ROWS]
    assert sorted({line.fault for line in WRITTEN.values()} - {"-"}) == FAULTS
    assert known_faults_page.PAGE.read_text(encoding="utf-8") == known_faults_page.page(WRITTEN.values())


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.fault)
def test_a_repair_does_what_the_page_says(row: Row, tmp_path: Path) -> None:
    """One row of each fault; `make repairs` does all, and asks brokers."""
    store = row.build(tmp_path / "store")
    row.apply(store)
    with row.meanwhile(store):
        repair = planned_repair(store, conf_of(row, tmp_path / "broker.conf"), row.version)
    line = WRITTEN[row.name]
    assert known_faults_page.answer_of(repair) == (line.repair, line.verdict)
