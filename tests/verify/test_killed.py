"""What a kill leaves is dirty, by the rules of the release; what a release refuses is corrupt, and said once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import CRC32_PROPERTY_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import refuses_empty_last_file
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.store import open_store
from tests.golden import stores
from tests.store.other_process import JAVA, another_process
from tests.verify.small_store import small_store
from tests.verify.verifying import codes_of, verify

REFUSING = ("4.7.1", "4.9.7")
STARTING = ("4.4.0", "5.1.4", "5.3.3", "5.5.0")


def empty_file_behind(directory: Path) -> Path:
    """A file of 0 bytes after the last one, as a broker has it between creating and sizing it."""
    last = max(path for path in directory.iterdir() if path.is_file())
    created = directory / file_name(int(last.name) + last.stat().st_size)
    created.touch()
    return created


def in_log(store: Path) -> Path:
    return empty_file_behind(store / "commitlog")


def in_queue(store: Path) -> Path:
    return empty_file_behind(store / "consumequeue" / "orders" / "0")


def in_batch_queue(store: Path) -> Path:
    return empty_file_behind(store / "batchconsumequeue" / "bulk-inner" / "0")


@pytest.fixture
def killed(tmp_path: Path) -> Callable[[str], Path]:
    return lambda version: stores.unpack(f"{version}-killed", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("place", [in_log, in_queue])
@pytest.mark.parametrize("version", [*REFUSING, *STARTING])
def test_an_empty_last_file(killed: Callable[[str], Path], version: str, place: Callable[[Path], Path]) -> None:
    """One finding, on the file; corrupt where every release that fits refuses to start, unproven where some do."""
    store = killed(version)
    created = str(place(store).relative_to(store))
    for named in (version, None):
        outcome = verify(store, version=named)
        found = [finding for finding in outcome.findings if finding.file == created]
        assert [finding.code.partition(".")[2] for finding in found] == ["empty-file"]
        fitting = outcome.snapshot.releases.fitting
        refusing = [each for each in fitting if refuses_empty_last_file(each)]
        refuses = len(refusing) == len(fitting)
        assert outcome.verdict == ("corrupt" if refuses else "unproven" if refusing else "dirty")
        assert ("start.refuses" in codes_of(outcome)) == refuses
        assert (str(refusing[0]) in found[0].message) if refusing and not refuses else True
        assert (found[0].remedy or "").startswith("find ") == refuses


@pytest.mark.slow
def test_an_empty_last_batch_queue_file(killed: Callable[[str], Path]) -> None:
    """The same of a batch queue."""
    store = killed("5.3.3")
    in_batch_queue(store)
    outcome = verify(store, version="5.3.3")
    assert outcome.verdict == "dirty"
    assert "consumequeue.empty-file" in codes_of(outcome)
    assert "consumequeue.zero-file" not in codes_of(outcome, info=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", STARTING)
def test_an_empty_index_file(killed: Callable[[str], Path], version: str) -> None:
    """Every release gives it its size when it loads it: nothing is wrong with it."""
    store = killed(version)
    (store / "index" / "20991121113608184").touch()
    assert verify(store, version=version).verdict == verify(store).verdict == "dirty"


@pytest.mark.parametrize(("version", "verdict"), [("5.1.2", "corrupt"), ("5.3.3", "dirty"), (None, "dirty")])
def test_an_empty_ext_file(tmp_path: Path, version: str | None, verdict: str) -> None:
    """As of a queue; a broker that has ext units switched off does not look there."""
    store = small_store(tmp_path / "store")
    directory = store / "consumequeue_ext" / "orders" / "0"
    directory.mkdir(parents=True)
    (directory / file_name(0)).touch()
    outcome = verify(store, version=version)
    assert codes_of(outcome) == {"consumequeue.empty-file"}
    assert outcome.verdict == verdict
    assert verify(store, version=version, conf=BrokerConf({"enableConsumeQueueExt": "false"})).verdict == "clean"


@pytest.mark.slow
def test_two_empty_files(killed: Callable[[str], Path]) -> None:
    """No kill leaves two: the first is in the way of every release that looks at it."""
    store = killed("5.3.3")
    in_log(store)
    (store / "commitlog" / file_name(1 << 30)).touch()
    outcome = verify(store, version="5.3.3")
    assert outcome.verdict == "corrupt"
    assert {finding.severity for finding in outcome.findings if finding.code == "commitlog.empty-file"} == {
        "error",
        "warning",
    }


@pytest.mark.parametrize(("version", "verdict"), [("5.3.3", "dirty"), ("4.9.7", "corrupt")])
def test_nothing_but_an_empty_log_file(tmp_path: Path, version: str, verdict: str) -> None:
    """A broker that was killed in its first moment."""
    (tmp_path / "commitlog").mkdir()
    for name in ("abort", "lock", f"commitlog/{file_name(0)}"):
        (tmp_path / name).touch()
    assert verify(tmp_path, version=version).verdict == verdict
    assert verify(tmp_path).verdict == "unproven"  # some releases that fit refuse it


@pytest.mark.slow
def test_a_file_that_a_running_broker_creates(killed: Callable[[str], Path]) -> None:
    """Its size comes next."""
    store = killed("5.3.3")
    in_log(store)
    in_queue(store)
    with another_process(store / "lock", JAVA):
        assert not {code for code in codes_of(verify(store), info=True) if code.endswith("empty-file")}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3"])
def test_a_queue_that_the_broker_had_not_made_yet(killed: Callable[[str], Path], version: str) -> None:
    """The start after a kill derives all of it: dirty. After a clean stop nobody does: corrupt."""
    store = killed(version)
    shutil.rmtree(store / "consumequeue" / "payments")
    outcome = verify(store, version=version)
    assert "consumequeue.missing-queue" in codes_of(outcome)
    assert outcome.verdict == "dirty"
    (store / "abort").unlink()
    assert verify(store, version=version).verdict == "corrupt"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3"])
def test_a_queue_file_without_a_unit(killed: Callable[[str], Path], version: str) -> None:
    """Made for a unit that the broker could not write any more; the next start does, but not after a clean stop."""
    store = killed(version)
    last = max((store / "consumequeue" / "orders" / "0").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    outcome = verify(store, version=version)
    assert "consumequeue.zero-file" not in codes_of(outcome)
    assert "consumequeue.zero-file" in codes_of(outcome, info=True)
    assert outcome.verdict == "dirty"
    (store / "abort").unlink()
    assert "consumequeue.zero-file" in codes_of(verify(store, version=version))


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kept", [1, 8, 12, CRC32_PROPERTY_SIZE - 1])
@pytest.mark.parametrize("version", ["5.5.0", None])
def test_a_record_that_lacks_the_end_of_its_crc(tmp_path: Path, version: str | None, kept: int) -> None:
    """Torn, and nothing else: `__CRC32#` cannot be right."""
    store = stores.unpack("5.5.0-crc32-property", tmp_path)
    (store / "abort").touch()
    zero_from(store, last_record(store)[1] - CRC32_PROPERTY_SIZE + kept)
    outcome = verify(store, version=version)
    assert "commitlog.torn" in codes_of(outcome)
    assert "commitlog.property-crc" not in codes_of(outcome, info=True)
    assert outcome.verdict == "dirty"


@pytest.mark.slow
def test_a_torn_record_with_others_behind_it(tmp_path: Path) -> None:
    """Is damaged: no kill leaves that."""
    store = stores.unpack("5.5.0-crc32-property", tmp_path)
    start, _ = last_record(store)
    zero_from(store, start - 1, start)
    outcome = verify(store)
    assert "commitlog.property-crc" in codes_of(outcome)
    assert "commitlog.torn" not in codes_of(outcome)
    assert [reason for _, _, reason in outcome.total.extents] == ["property-crc"]


@pytest.mark.slow
def test_batch_queues_of_a_topic_that_is_not_configured(tmp_path: Path) -> None:
    """The broker expects simple ones; nobody has configured that."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    start = verify(store, version="5.3.3").start
    assert start is not None
    assert start.refuses is not None
    assert "no readable topics.json" in start.refuses
    (store / "config" / "topics.json").write_text('{"topicConfigTable": {"orders": {"topicName": "orders"}}}')
    start = verify(store, version="5.3.3").start
    assert start is not None
    assert start.refuses is not None
    assert "is not in topics.json" in start.refuses
    assert "configured for" not in start.refuses


def last_record(store: Path) -> tuple[int, int]:
    """Where the last record of the log begins and ends, physical offsets."""
    runs = [event for event in scan_files(open_store(store).commit_log().files) if isinstance(event, RecordRun)]
    last = runs[-1]
    return last.physical_offset + int(last.positions[-1] - last.positions[0]), last.physical_offset + last.size


def zero_from(store: Path, start: int, stop: int | None = None) -> None:
    """Zero the log from a physical offset on, to the end of its file unless to `stop`."""
    mapped = next(file for file in open_store(store).commit_log().files if start < file.end_offset)
    with mapped.path.open("r+b") as file:
        file.seek(start - mapped.start_offset)
        file.write(bytes((mapped.end_offset if stop is None else stop) - start))
