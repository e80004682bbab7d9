"""Each fault of the catalogue is caused, and told under its code; its healthy twin is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.rebuild.causes import CAUSES as REBUILD_CAUSES
from tests.unchanged import unchanged
from tests.verify.circumstances import Circumstance, circumstances
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store

CIRCUMSTANCES = list(circumstances())
CAUSED = {*(damage.code for damage in DAMAGES.values()), *(each.code for each in CIRCUMSTANCES)}
TESTS = Path(__file__).parents[1]
FAULTS = [f"F{number:02}" for number in range(1, 60)]
ELSEWHERE = {
    "commitlog.queue-offset-gap": "verify/test_parts.py::test_queue_offsets_that_jump_at_a_border",
    "commitlog.body-compression": "verify/test_what_clients_lose.py::test_a_flag_on_a_plain_body",
    "consumequeue.database": "verify/test_rocksdb.py::test_a_damaged_database_is_a_finding",
    "consumequeue.row": "verify/test_rocksdb.py::test_each_changed_row_is_told",
    "consumequeue.wrong-end": "verify/test_rocksdb.py::test_each_changed_row_is_told",
    "consumequeue.store-timestamp": "verify/test_rocksdb.py::test_each_changed_row_is_told",
    "consumequeue.copies-differ": "verify/test_rocksdb.py::test_files_and_rows_that_differ",
    "consumequeue.unread-batches": "verify/test_unread_batches.py::test_the_minimum_is_behind_batches",
    "consumequeue.stale-row": "verify/test_rocksdb.py::test_rows_behind_the_end_of_the_log_are_normal",
    "consumequeue.left-over-table": "verify/test_rocksdb.py::test_tables_that_are_left_over",
    "config.rocksdb-damaged": "verify/test_rocksdb_rows.py::test_damaged_tables_of_the_configuration",
    "config.row": "verify/test_rocksdb_rows.py::test_rows_of_the_configuration",
    "config.swapped-offset": "verify/test_rocksdb_rows.py::test_a_swapped_offset",
    "store.rocksdb-damaged": "verify/test_rocksdb_rows.py::test_damaged_tables_of_index_and_timers",
    "store.half-row": "verify/test_rocksdb_rows.py::test_rows_that_lead_to_no_message",
    "store.half-rows-missing": "verify/test_rocksdb_rows.py::test_rows_of_half_messages_that_are_gone",
    "store.pop-row": "verify/test_rocksdb_rows.py::test_rows_that_lead_to_no_message",
    "index.row": "verify/test_rocksdb_rows.py::test_rows_that_lead_to_no_message",
    "index.row-missing": "verify/test_rocksdb_rows.py::test_rows_that_are_missing",
    "start.keys-lost": "clients/test_start_losses.py::test_keys_that_a_start_after_a_kill_takes_away",
    "start.delay-times": "verify/test_delay_levels.py::test_shorter_levels",
    "config.delay-level": "verify/test_delay_levels.py::test_levels_that_are_gone",
    "timer.chain": "verify/test_timer_chains.py::test_what_is_left_out",
    "timer.read-time": "verify/test_timer_chains.py::test_what_is_left_out",
    "timer.aged": "verify/test_timer_chains.py::test_a_store_that_was_stopped_for_long",
    "timer.unit": "verify/test_timer_messages.py::test_the_log_has_lost_its_end",
    "timer.ahead": "verify/test_timer_messages.py::test_a_check_ahead_of_the_queue",
    "timer.too-large": "verify/test_timer_messages.py::test_a_message_that_the_timer_cannot_read",
    "timer.row": "verify/test_rocksdb_rows.py::test_rows_that_lead_to_no_message",
    "timer.row-missing": "verify/test_rocksdb_rows.py::test_rows_that_are_missing",
    "start.rows-lost": "broker/test_rocksdb_recovery.py::test_it_is_a_finding_with_its_setting",
    "store.unreadable": "verify/test_unreadable.py::test_each_place_is_named_and_nothing_else",
    "rebuild.rocksdb-unreadable": "rebuild/test_rocksdb.py::test_one_topic_of_a_damaged_database",
    "rebuild.version-needed": "scenarios/test_unnamed_releases.py::test_where_only_the_release_decides_a_rebuild_asks",
    "store.version-ambiguous": "clean/test_findings.py::test_versions_that_differ",
    "clean.delete-when": "clean/test_findings.py::test_delete_when",
    "clean.blocked-by-older-file": "clean/test_findings.py::test_a_younger_file_in_front",
    "clean.disk-full-nothing-deleted": "clean/test_findings.py::test_why_nothing_goes_from_a_full_disk",
    "clean.mtime-future": "clean/test_findings.py::test_modification_times_that_lie",
    "clean.mtime-later": "clean/test_findings.py::test_modification_times_that_lie",
    "clean.mtime-earlier": "clean/test_findings.py::test_modification_times_that_lie",
    "clean.overdue": "clean/test_findings.py::test_overdue",
    "clean.setting": "clean/test_findings.py::test_settings_that_do_not_count",
    "clean.topic-rows-dropped": "clean/test_rocksdb.py::test_topics_that_are_not_configured",
    "commitlog.entry-header": "scenarios/test_dledger.py::test_the_header_of_an_entry",
    "store.compacted-log": "verify/test_compaction.py::test_a_queue_that_was_compacted",
    "tiered.metadata": "verify/test_tiered.py::test_each_damage_is_found",
    "tiered.destroyed": "verify/test_tiered.py::test_what_the_next_dispatch_deletes",
    "tiered.broker-name": "verify/test_tiered.py::test_other_names_and_providers",
    "tiered.segment": "verify/test_tiered.py::test_each_damage_is_found",
    "tiered.unit": "verify/test_tiered.py::test_each_damage_is_found",
    "tiered.record": "verify/test_tiered.py::test_each_damage_is_found",
    "tiered.index": "verify/test_tiered.py::test_the_index",
    "tiered.ahead": "verify/test_tiered.py::test_a_tier_ahead",
    "tiered.hidden": "verify/test_tiered.py::test_a_tier_that_begins_later",
    "compaction.files": "verify/test_compacted_queues.py::test_each_damage_is_found",
    "compaction.unit": "verify/test_compacted_queues.py::test_each_damage_is_found",
    "compaction.record": "verify/test_compacted_queues.py::test_each_damage_is_found",
    "compaction.position": "verify/test_compacted_queues.py::test_each_damage_is_found",
    "compaction.missing": "verify/test_compacted_queues.py::test_messages_that_only_the_commit_log_has",
    "compaction.leftover": "verify/test_compacted_queues.py::test_what_no_broker_reads",
    "compaction.minimum": "verify/test_compacted_queues.py::test_messages_before_the_minimum",
    "store.dledger-checkpoint": "scenarios/test_dledger.py::test_the_checkpoint_of_a_node",
    "store.dledger-index": "scenarios/test_dledger.py::test_the_index_of_entries",
    "clean.file-size": "clean/test_findings.py::test_file_sizes_of_broker_conf",
    "export.file": "export/test_check.py::test_files_and_the_manifest",
    "export.sums": "export/test_check.py::test_sums_of_the_manifest",
    "export.missing": "export/test_check.py::test_a_changed_file_is_found",
    "export.extra": "export/test_check.py::test_a_row_of_no_message",
    "export.doubled": "export/test_check.py::test_a_changed_file_is_found",
    "export.differs": "export/test_check.py::test_a_changed_file_is_found",
}
"""The tests that cause what only other commands tell; those of rebuilds are in commands/test_rebuild_findings.py."""


def told(store: Path, each: Circumstance) -> Outcome:
    """What a verification tells under the circumstance."""
    conf = BrokerConf(dict(each.conf))
    version = parse_version(each.version) if each.version else None
    with each.while_verifying(store), unchanged(store):
        verification = Verification(open_store(store, conf), VerifyRequest(version=version))
        verification.run(lambda size: None)
        return outcome_of(verification)


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("each", CIRCUMSTANCES, ids=lambda each: each.code)
def test_what_is_caused_is_told(each: Circumstance, tmp_path: Path) -> None:
    """The store as made tells nothing under the code when it is the small store; as changed, it does."""
    if each.build is small_store and each.code not in ("commitlog.magic-code-v2", "upgrade.changed"):
        twin = each._replace(conf={}, while_verifying=Circumstance("").while_verifying)
        codes = {finding.code for finding in told(small_store(tmp_path / "twin"), twin).findings}
        assert each.code not in codes
    store = each.build(tmp_path / "store")
    each.apply(store)
    found = [finding for finding in told(store, each).findings if finding.code == each.code]
    assert found
    assert all(finding.fault == CATALOGUE[each.code].fault for finding in found)
    assert not any((finding.remedy or "").startswith("rmqtool verify") for finding in found)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caused(fault: str) -> None:
    """By a damage or a circumstance, and told by verify itself."""
    assert {code for code in CAUSED if CATALOGUE[code].fault == fault}


def test_each_code_is_caused() -> None:
    """Here, by a rebuild, or in a test of the command that tells it."""
    assert CATALOGUE.keys() == CAUSED | {cause.code for cause in REBUILD_CAUSES} | ELSEWHERE.keys()


@pytest.mark.parametrize("code", ELSEWHERE)
def test_the_other_tests_exist(code: str) -> None:
    """Under their names."""
    name, _, function = ELSEWHERE[code].partition("::")
    assert f"def {function}(" in (TESTS / name).read_text(encoding="utf-8")
