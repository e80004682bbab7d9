"""The page is that of the recorded runs, and names tests that are there."""

from __future__ import annotations

from tests.faults.commands import NAMES
from tests.faults.reading import MODES
from tests.fuzz.targets import TARGETS
from tests.mutants.modules import MODULES
from tests.trust import page as trust
from tests.trust.history import FAULTS
from tests.trust.results import HERE, recorded

ROOT = HERE.parents[1]


def test_the_page_is_of_the_last_runs() -> None:
    """`make trust` writes it again."""
    assert trust.PAGE.read_text(encoding="utf-8") == trust.page()


def test_each_part_has_its_figures() -> None:
    """Every target was run, every kind of fault was met, and nothing that was found is left."""
    runs = {name: recorded(name) for name in ("fuzz", "reads", "writes", "mutants")}
    fuzz, reads, writes, mutants = (runs[name] for name in ("fuzz", "reads", "writes", "mutants"))
    assert fuzz is not None
    assert reads is not None
    assert writes is not None
    assert mutants is not None
    assert [row["target"] for row in fuzz.rows] == [*TARGETS]
    assert not any(row["found"] for row in fuzz.rows)
    assert all(row["problems"] == [] for row in reads.rows)
    assert {"fails", "ends"} <= {mode for mode, _ in trust._by_mode(reads.rows)} <= {*MODES}
    assert not [verdict for verdict in trust._by_mode(reads.rows) if verdict in (("fails", "clean"), ("ends", "clean"))]
    assert all(row["problems"] == [] for row in writes.rows)
    assert {*NAMES} <= {row["writer"] for row in writes.rows}
    assert {fault for row in writes.rows for fault in row["tried"]} == {
        name for names in trust._WRITE_FAULTS.values() for name in names
    }
    assert {row["module"] for row in mutants.rows} <= {each.path for each in MODULES.values()}


def test_each_fault_has_its_test() -> None:
    for fault in FAULTS:
        file, _, name = fault.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), fault.test
