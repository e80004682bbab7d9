"""Findings whose severity depends on what else there is, and what the verdict makes of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.mapped_files import MappedFile
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats.file_name import file_name
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.store import open_store
from rmqtool.verify.disk_and_time_checks import FirstRecord, check_hosts
from rmqtool.verify.outcome import outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.repair.damaged_fields import own_served
from tests.store.other_process import JAVA, another_process
from tests.verify.circumstances import both, committed, disk, killed, other_broker
from tests.verify.damages import DAMAGES, FILE, OTHER_FILE, QUEUE, copy_unit, keep_index, log_file, patch, tear
from tests.verify.small_store import FILE_SIZE, small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def severity_of(store: Path, code: str) -> Severity | None:
    """That of the first finding under a code."""
    return next((finding.severity for finding in verify(store).findings if finding.code == code), None)


@pytest.mark.slow
def test_offsets_beyond_a_queue(store: Path) -> None:
    """A tool may set any offset; where the log has lost its end, the offset tells of messages that are gone."""
    committed(500)(store)
    assert severity_of(store, "config.offset-out-of-range") == "info"
    tear(store)
    assert severity_of(store, "config.offset-out-of-range") == "warning"


def test_offsets_of_messages_that_the_next_start_dispatches(store: Path) -> None:
    """A queue that is behind its log has them soon: nothing is told."""
    committed(15)(store)
    killed(store)
    shutil.rmtree(store / QUEUE)
    assert "config.offset-out-of-range" not in codes_of(verify(store), info=True)


@pytest.mark.slow
def test_a_broker_that_moved(store: Path) -> None:
    """Another address in the log is information; where the queues do not fit, files of two brokers lie here."""
    other_broker(store)
    assert severity_of(store, "store.mixed") == "info"
    assert verify(store).verdict == "clean"
    copy_unit(OTHER_FILE, FILE, 2)(store)
    assert severity_of(store, "store.mixed") == "error"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["hash", "index offset", "index seconds"])
def test_an_address_that_changes_and_a_kill(store: Path, damage: str) -> None:
    """A kill leaves an index that does not fit the log: of brokers that contradict each other it shows nothing."""
    both(killed, tear, other_broker, DAMAGES[damage].apply)(store)
    assert "index.unit" in codes_of(verify(store), info=True)
    assert severity_of(store, "store.mixed") == "info"


@pytest.mark.parametrize(("offset", "severity"), [(4096 - 8, "info"), (4096 - 20, "error"), (8192, "error")])
def test_an_address_that_changes_and_half_a_queue_entry(tmp_path: Path, offset: int, severity: str) -> None:
    """A kill may keep one half of an entry that stands across the end of a page: nothing of another broker."""
    files = [MappedFile(tmp_path / file_name(start), start, FILE_SIZE) for start in (0, FILE_SIZE)]
    firsts = [
        FirstRecord(file, 1, host) for file, host in zip(files, ("10.0.0.1:10911", "10.0.0.2:10911"), strict=True)
    ]
    so_far, report = Report(), Report()
    (tmp_path / "commitlog").mkdir()
    facts = {"problem": "other-target", "found": 0, "expected": 400}
    so_far.add("consumequeue.wrong-record", offset=offset, topic="orders", queue_id=0, details=facts)
    check_hosts(open_store(tmp_path), firsts, so_far, report)
    assert [each.severity for each in report.findings()] == [severity]


@pytest.mark.slow
def test_queues_and_checkpoint_of_another_log(unpacked: GoldenStore, tmp_path: Path) -> None:
    """They prove no file of this log: a rebuild gives all of it, and nothing is to be restored."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    whole = own_served(store)
    for path in (path for path in (store / "consumequeue").rglob("0*") if path.is_file()):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data.rstrip(b"\0")), 20):
            data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + 40_000).to_bytes(8, "big")
        path.write_bytes(data)
    checkpoint = bytearray((store / "checkpoint").read_bytes())
    for at in (0, 8, 16):
        checkpoint[at : at + 8] = (int.from_bytes(checkpoint[at : at + 8], "big") + 7_000_000).to_bytes(8, "big")
    (store / "checkpoint").write_bytes(checkpoint)
    result = rmqtool("--json", "verify", store).document["result"]
    assert not any("estore" in step["text"] for step in result["plan"]["steps"])
    assert result["plan"]["clients"]["unreachable"]["messages"] == 0
    assert rmqtool("--json", "repair", store, "--yes").document["result"]["proof"]["more_lost"] == []
    assert own_served(store) == whole


@pytest.mark.slow
def test_index_files_in_another_order(tmp_path: Path) -> None:
    """Two that were swapped: queries that have a beginning do not find newer messages, others find all (with 5.5.0)."""
    store = stores.unpack("5.5.0-clean", tmp_path)
    one, other = sorted((store / "index").iterdir())[:2]
    one.rename(store / "spare")
    other.rename(one)
    (store / "spare").rename(other)
    outcome = verify(store)
    assert codes_of(outcome) == {"index.name"}
    assert outcome.clients is not None
    assert outcome.clients.keys_not_found == 0
    assert outcome.verdict == "corrupt"


@pytest.mark.slow
def test_a_full_disk(store: Path) -> None:
    """A warning only where a broker runs, and never about the store itself."""
    with disk(used=0.93):
        assert severity_of(store, "store.disk-full") == "info"
        with another_process(store / "lock", JAVA):
            outcome = verify(store)
    assert "store.disk-full" in codes_of(outcome)
    assert outcome.verdict == "clean"
    with disk(used=0.84):
        assert severity_of(store, "store.disk-full") is None


def test_a_power_failure_is_mended(store: Path) -> None:
    """The log's end is lost and the checkpoint is not: only dirty, for the next start cuts and goes on."""
    both(tear, killed, keep_index, patch("checkpoint", 0, (1 << 41).to_bytes(8, "big")))(store)
    outcome = verify(store)
    assert {"commitlog.torn", "checkpoint.future"} <= codes_of(outcome)
    assert outcome.verdict == "dirty"


def test_the_checkpoint_s_offset(store: Path) -> None:
    """It chooses a file, unless a setting makes the broker begin right there."""
    DAMAGES["checkpoint inside a record"].apply(store)
    assert verify(store).verdict == "dirty"
    conf = BrokerConf({"enableAcceleratedRecovery": "true"})
    assert verify(store, conf=conf).verdict == "corrupt"


def test_files_that_a_running_broker_deletes(store: Path) -> None:
    """Neither an error nor a finding."""
    gone: list[Path] = []

    def delete_first(size: int) -> None:
        if not gone:
            gone.append(log_file(store, 0))
            gone[0].unlink()

    with another_process(store / "lock", JAVA):
        verification = Verification(open_store(store), VerifyRequest())
        verification.run(delete_first)
    assert codes_of(outcome_of(verification)) == set()
    assert gone
