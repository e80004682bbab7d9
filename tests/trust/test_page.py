"""The page is that of the recorded runs, and names tests that are there."""

from __future__ import annotations

from tests.faults.commands import BESIDE, NAMES, POWER
from tests.faults.reading import MODES
from tests.faults.watch import FAULTS as FAULTS_OF_WRITES
from tests.fuzz.targets import TARGETS
from tests.mutants.modules import MODULES
from tests.real_broker.live_runs import FORMS
from tests.trust import page as trust
from tests.trust.history import FAULTS
from tests.trust.results import HERE, recorded

ROOT = HERE.parents[1]


def test_the_page_is_of_the_last_runs() -> None:
    """`make trust` writes it again."""
    assert trust.PAGE.read_text(encoding="utf-8") == trust.page()


def test_each_part_has_its_figures() -> None:
    """Every target was run, every kind of fault was met, and nothing that was found is left."""
    runs = {name: recorded(name) for name in ("fuzz", "reads", "mutants")}
    fuzz, reads, mutants = runs["fuzz"], runs["reads"], runs["mutants"]
    assert fuzz is not None
    assert reads is not None
    assert mutants is not None
    assert [row["target"] for row in fuzz.rows] == [*TARGETS]
    assert not any(row["found"] for row in fuzz.rows)
    assert all(row["problems"] == [] for row in reads.rows)
    assert {"fails", "ends"} <= {mode for mode, _ in trust._by_mode(reads.rows)} <= {*MODES}
    assert not [verdict for verdict in trust._by_mode(reads.rows) if verdict in (("fails", "clean"), ("ends", "clean"))]
    assert {row["module"] for row in mutants.rows} <= {each.path for each in MODULES.values()}


def test_failing_writes() -> None:
    """Each command was tried with each fault, once a run is recorded, and the table of the page has each fault."""
    known = {name for names in trust._WRITE_FAULTS.values() for name in names}
    assert known == {*FAULTS_OF_WRITES, BESIDE, POWER}
    writes = recorded("writes")
    for row in writes.rows if writes else ():
        assert row["problems"] == []
        assert {*row["tried"]} <= known
    assert writes is None or {*NAMES} <= {row["writer"] for row in writes.rows}


def test_running_brokers() -> None:
    """No command reports anything of a sound store, whatever the broker is."""
    live = recorded("live")
    assert live is not None
    assert [row["problems"] for row in live.rows] == [[]] * len(FORMS)


def test_each_fault_has_its_test() -> None:
    for fault in FAULTS:
        file, _, name = fault.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), fault.test
