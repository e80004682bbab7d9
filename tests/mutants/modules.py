"""The modules that decide what is said of a store or done to it, with the tests that are theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Decides:
    """A module, or some `functions` of it, and its tests; those with a mark that makes them long only where `slow`.

    `same` are changes that mean the same, and why, by statement and change.
    """

    what: str
    path: str
    tests: tuple[str, ...]
    functions: tuple[str, ...] = ()
    same: Mapping[tuple[str, str], str] = field(default_factory=dict)
    slow: tuple[str, ...] = ()


_DAMAGED_FIELDS = tuple(
    f"tests/repair/test_damaged_fields.py::test_witnesses_count_against_a_damaged_field[4.9.7-shop-{field}"
    for field in ("topic", "queue_id-queue_id-1", "queue_offset-queue_offset-1", "sys_flag-sys_flag-4", "KEYS-KEYS-1")
)
_SEARCHED = "if self.min_position >= self.end or low > high or (start >= 0 and self.offsets[low] >= log_min_offset):"

MODULES: Mapping[str, Decides] = {
    "verdict": Decides("the verdict", "rmqtool/findings/report.py", ("tests/findings",)),
    "minimum": Decides(
        "the minimum offset of a queue",
        "rmqtool/store/queue_units.py",
        ("tests/store/test_queue_minimum.py", "tests/store/test_queue_range.py"),
        (
            "queue_range",
            "_range_in_files",
            "moved_range",
            "_rocksdb_range",
            "_simple_range",
            "_batch_range",
            "is_expired",
            "min_offset",
            "_search",
            "batch_min_offset",
            "end_of_batch",
            "rows_min_offset",
            "_first_at",
        ),
        {
            ("if written <= 0:", "0  ->  1"): "a queue of one unit is read again",
            ("if written <= 0:", "written <= 0  ->  written < 0"): "a queue of no unit is read by the other way",
            (_SEARCHED, "0  ->  1"): "the first unit is found, and is where the minimum was",
            (
                _SEARCHED,
                "self.offsets[low] >= log_min_offset  ->  self.offsets[low] > log_min_offset",
            ): "the unit at the minimum so far is found, and is where it was",
            ("while high - low > 1:", "1  ->  2"): "the last three units are read one by one",
            (
                "if physical_offset is None or physical_offset < log_min_offset:",
                "physical_offset < log_min_offset  ->  physical_offset <= log_min_offset",
            ): "where it is equal, it has been returned before",
            (
                "if queue.kind == 'simple' and files and (known.last_physical_offset is not None):",
                "known.last_physical_offset is not None  ->  known.last_physical_offset is None",
            ): "the end is read again, and is the same",
        },
    ),
    "retention": Decides(
        "what the cleaner's settings are",
        "rmqtool/rules/retention.py",
        ("tests/rules/test_retention.py", "tests/clean"),
        same={("return round(fraction * 100, 6)", "6  ->  7"): "no percentage is given to seven places"},
    ),
    "recovery": Decides(
        "what a start recovers",
        "rmqtool/broker/recovery.py",
        ("tests/broker", "tests/verify/test_settings.py"),
        slow=("tests/verify/test_settings.py::test_blanks_behind_paths",),
    ),
    "queues": Decides("which queue entries a start cuts", "rmqtool/broker/queue_recovery.py", ("tests/broker",)),
    "dispatch": Decides(
        "which entries and keys a record gives",
        "rmqtool/broker/dispatcher.py",
        ("tests/broker", "tests/rebuild", "tests/repair/test_damaged_fields.py"),
        slow=_DAMAGED_FIELDS,
    ),
    "plan": Decides(
        "what a repair does",
        "rmqtool/repair/plan.py",
        ("tests/repair", "tests/scenarios/test_dledger.py"),
        slow=("tests/scenarios/test_dledger.py::test_the_index", "tests/scenarios/test_dledger.py::test_the_units"),
    ),
    "diagnosis": Decides(
        "which repair treats a finding", "rmqtool/repair/diagnosis.py", ("tests/repair",), slow=_DAMAGED_FIELDS
    ),
    "clean": Decides("which files the cleaner deletes", "rmqtool/broker/cleaner.py", ("tests/clean", "tests/broker")),
    "transaction": Decides(
        "how files change",
        "rmqtool/transaction/transaction.py",
        ("tests/transaction",),
        same={
            ("self._journaled = True", "True  ->  False"): "nothing is left of what was staged",
            (
                "if self._staging and (not self._journaled):",
                "self._staging and (not self._journaled)  ->  self._staging or not self._journaled",
            ): "nothing is left of what was staged, or nothing was",
            (
                "after = manifest_of(self._system, staging.path(name)) if staged else None",
                "manifest_of(self._system, staging.path(name)) if staged else None  ->  "
                "manifest_of(self._system, staging.path(name))",
            ): "nothing is staged in the place of what is removed",
        },
        slow=(
            "tests/transaction/test_faults.py::test_fault_at_the_calls_of_a_transaction[kill-before-repair-all]",
            "tests/transaction/test_faults.py::test_fault_at_the_calls_of_an_undo[kill-before-repair-all]",
            "tests/transaction/test_faults.py::test_fault_at_the_calls_of_a_deletion[kill-before]",
            "tests/transaction/test_power.py::test_power_fails_during_a_transaction_and_its_undo[repair-one-all]",
        ),
    ),
    "clients": Decides(
        "what consumers get of a queue",
        "rmqtool/clients/queue_view.py",
        ("tests/query/test_holes.py", "tests/clients"),
        slow=("tests/query/test_holes.py",),
    ),
}
