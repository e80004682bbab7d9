"""Starts whose outcome is known from experiments with the real store classes, and what an operator is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.recovery import NO_CHECKPOINT, Recovery
from rmqtool.broker.start_findings import start_findings
from rmqtool.findings.finding import Finding
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE, build_blank
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LOG, LogBuilder, message
from tests.query.making import INDEX, index_image
from tests.unchanged import unchanged

FILE_SIZE = 1024
QUEUE_FILE_SIZE = 200
RECORD = len(message())
VERSIONS = ("4.4.0", "4.9.8", "5.3.1", "5.3.3", "5.4.0", "5.5.0")
CUT_CLEAN = ("5.3.3", "5.4.0", "5.5.0")  # these scan all of the log when there are no consume queues


@pytest.fixture
def log() -> LogBuilder:
    """Six files of messages of one queue."""
    return LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(60))


@pytest.fixture
def store(tmp_path: Path, log: LogBuilder) -> Path:
    """The log and its consume queue, stopped cleanly."""
    log.write(tmp_path)
    write_queue(tmp_path, log.offsets)
    return tmp_path


def write_queue(store: Path, offsets: list[int], topic: str = "orders", queue_id: int = 0) -> None:
    directory = store / "consumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    units = b"".join(build_unit(offset, RECORD, 0) for offset in offsets)
    for start in range(0, len(units), QUEUE_FILE_SIZE):
        data = units[start : start + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0")
        (directory / file_name(start)).write_bytes(data)


def recovery(store: Path, version: str, **settings: str) -> Recovery:
    opened = open_store(store, BrokerConf(settings))
    return Recovery(Snapshot(opened), RecoveryRules.of(parse_version(version), opened.conf))


def predict(store: Path, version: str, **settings: str) -> StartPrediction:
    with unchanged(store):
        return recovery(store, version, **settings).predict()


def findings(store: Path, version: str) -> list[Finding]:
    with unchanged(store):
        found = recovery(store, version)
        return list(start_findings(found, found.predict()))


def codes(store: Path, version: str) -> list[str]:
    return [finding.code for finding in findings(store, version)]


def flip(store: Path, offset: int, where: int = 90) -> None:
    """A flipped bit in the body of the record at a physical offset."""
    path = store / LOG / file_name(offset // FILE_SIZE * FILE_SIZE)
    data = bytearray(path.read_bytes())
    data[offset % FILE_SIZE + where] ^= 1
    path.write_bytes(data)


def crash(store: Path) -> None:
    (store / "abort").touch()


def move_record(store: Path, at: int, offset: int) -> None:
    """Another physical offset in the record at one."""
    path = store / LOG / file_name(at // FILE_SIZE * FILE_SIZE)
    position = at % FILE_SIZE + position_of(PREFIX_DTYPE, "physical_offset")
    data = bytearray(path.read_bytes())
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


def remove_queues(store: Path) -> None:
    for path in sorted((store / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sound_store(store: Path, log: LogBuilder, version: str) -> None:
    """Nothing changes, after a clean stop and after a crash."""
    for mode in ("normal", "abnormal"):
        start = predict(store, version)
        assert start.mode == mode
        assert (start.refuses, start.max_offset_after, start.messages_lost) == (None, log.end, 0)
        assert (start.commit_log_bytes_cut, start.files_deleted, start.queues) == (0, [], [])
        assert codes(store, version) == []
        crash(store)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flip_in_the_oldest_record_costs_everything_after_a_crash(store: Path, log: LogBuilder, version: str) -> None:
    """E2b: no effect after a clean stop; after a crash without a checkpoint the whole log is deleted."""
    flip(store, 0)
    assert predict(store, version).messages_lost == 0
    [warning] = findings(store, version)
    assert (warning.code, warning.severity) == ("start.other-mode-data-loss", "warning")
    assert "end the commit log at offset 0 (a record with a body CRC mismatch) and lose 59" in warning.message
    assert warning.remedy == f"rmqtool repair {store} --lose commitlog.body-crc"  # clients get it until then
    crash(store)
    start = predict(store, version)
    assert (start.max_offset_after, start.messages_lost, start.mode) == (0, 59, "abnormal")
    assert start.commit_log_bytes_cut == log.end
    assert [path for path in start.files_deleted if path.startswith(LOG)] == [
        f"{LOG}/{file_name(FILE_SIZE * number)}" for number in range(1, len(log.files))
    ]
    assert [(queue.max_offset_before, queue.max_offset, queue.truncated) for queue in start.queues] == [(60, 0, 60)]
    [loss] = findings(store, version)
    assert (loss.code, loss.severity) == ("start.data-loss", "error")
    assert "59 readable messages after it would be lost, 5 commit log files deleted" in loss.message
    assert "ends the commit log at offset 0 (a record with a body CRC mismatch)" in loss.message
    assert loss.remedy == f"rmqtool repair {store}"


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_that_were_deleted(store: Path, log: LogBuilder, version: str) -> None:
    """E1, E2c: a clean start builds them again in some versions, and some of those then cut the log at a bad record."""
    remove_queues(store)
    start = predict(store, version)
    rebuilt = version == "4.9.8" or version in CUT_CLEAN
    assert [(queue.max_offset, queue.dispatched) for queue in start.queues] == ([(60, 60)] if rebuilt else [])
    assert all((queue.min_offset_before, queue.max_offset_before) == (0, 0) for queue in start.queues)
    flip(store, log.offsets[1])
    start = predict(store, version)
    cut = version in CUT_CLEAN
    assert start.max_offset_after == (RECORD if cut else log.end)
    assert start.messages_lost == (58 if cut else 0)
    crash(store)
    assert [(queue.max_offset, queue.dispatched) for queue in predict(store, version).queues] == [(1, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_more_than_ten_files(tmp_path: Path, version: str) -> None:
    """Since 5.4.0 what is before the last ten files is not looked at: there a flip is harmless."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(200))
    log.write(tmp_path)
    write_queue(tmp_path, log.offsets)
    crash(tmp_path)
    flip(tmp_path, log.offsets[3])
    limited = version in ("5.4.0", "5.5.0")
    start = predict(tmp_path, version)
    assert start.max_offset_after == (log.end if limited else log.offsets[3])
    assert (start.messages_lost > 0) is not limited
    first = next(offset for offset in log.offsets if offset >= (len(log.files) - 10) * FILE_SIZE)
    assert start.scan_from is not None
    assert start.scan_from.physical_offset == (first if limited else 0)
    if limited:
        flip(tmp_path, first)
        assert predict(tmp_path, version).max_offset_after == first
        assert predict(tmp_path, version, commitLogRecoverMaxNum="1000").max_offset_after == log.offsets[3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flip_in_the_third_last_file(store: Path, log: LogBuilder, version: str) -> None:
    """E3: before 5.3.2 every clean start scans the last three files."""
    offset = next(offset for offset in log.offsets if offset >= (len(log.files) - 3) * FILE_SIZE)
    flip(store, offset)
    cut = version not in CUT_CLEAN
    start = predict(store, version)
    assert start.max_offset_after == (offset if cut else log.end)
    assert len([path for path in start.files_deleted if path.startswith(LOG)]) == (2 if cut else 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [None, FILE_SIZE, 8])
def test_blanks(store: Path, log: LogBuilder, version: str, length: int | None) -> None:
    """E14: a zeroed blank ends the log, one too long since 5.3.2, one too short never."""
    crash(store)
    path = store / LOG / file_name(0)
    at = path.read_bytes().index(build_blank(0)[4:]) - 4
    data = path.read_bytes()
    path.write_bytes(data[:at] + (build_blank(length) if length else bytes(8)) + data[at + 8 :])
    cut = length is None or (length == FILE_SIZE and version in CUT_CLEAN)
    assert predict(store, version).max_offset_after == (at if cut else log.end)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_file_in_the_middle(store: Path, log: LogBuilder, version: str) -> None:
    """E4, E4b: all start; without consume queues 4.5.1 to 4.9.8 wait for ever."""
    (store / LOG / file_name(2 * FILE_SIZE)).unlink()
    assert predict(store, version).refuses is None
    remove_queues(store)
    start = predict(store, version)
    assert start.hangs is (version == "4.9.8")
    assert codes(store, version) == (["start.hangs"] if start.hangs else [])


@pytest.mark.parametrize("version", CUT_CLEAN)
def test_a_file_that_reaches_behind_the_end(tmp_path: Path, version: str) -> None:
    """A renamed file is scanned to its end, though the log ends in the next one before that."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(53))
    log.write(tmp_path)
    last = (len(log.files) - 1) * FILE_SIZE
    (tmp_path / LOG / file_name(last - FILE_SIZE)).rename(tmp_path / LOG / file_name(last - 100))
    assert log.end < last - 100 + FILE_SIZE
    start = predict(tmp_path, version)
    assert [queue.max_offset for queue in start.queues] == [53]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_file_is_missing(store: Path, log: LogBuilder, version: str) -> None:
    """E4c: log and queue are cut to the last record of the file before."""
    last = (len(log.files) - 1) * FILE_SIZE
    (store / LOG / file_name(last)).unlink()
    kept = [offset for offset in log.offsets if offset < last]
    start = predict(store, version)
    assert start.max_offset_after == kept[-1] + RECORD
    assert start.end == "no file follows"
    assert [queue.max_offset for queue in start.queues] == [len(kept)]


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_sizes(store: Path, log: LogBuilder, version: str) -> None:
    """E8: most refuse; 4.4.0 starts without the file and all later ones."""
    last = store / LOG / file_name((len(log.files) - 1) * FILE_SIZE)
    last.write_bytes(last.read_bytes()[:-1])
    start = predict(store, version)
    if version == "4.4.0":
        lost = sum(offset >= (len(log.files) - 1) * FILE_SIZE for offset in log.offsets)
        assert (start.refuses, start.messages_lost) == (None, lost)
        [loss] = findings(store, version)
        assert loss.remedy == f"rmqtool export {store} --output DIRECTORY"  # no place for dummy records
    else:
        assert start.refuses is not None
        assert f"{LOG}/{last.name}: {FILE_SIZE - 1} bytes, expected {FILE_SIZE}" in start.refuses
        assert start.max_offset_after is None
        assert codes(store, version) == ["start.refuses"]


def test_a_short_queue_file_that_4_4_0_leaves_out(store: Path) -> None:
    """The queue ends before it."""
    path = store / "consumequeue" / "orders" / "0" / file_name(5 * QUEUE_FILE_SIZE)
    path.write_bytes(path.read_bytes()[:100])
    found = predict(store, "4.4.0").queues
    assert [(queue.max_offset_before, queue.max_offset) for queue in found] == [(55, 50)]


@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("notes.txt", bytes(FILE_SIZE), VERSIONS),
        ("notes.txt", b"", ("4.9.8",)),
        (file_name(1 << 20), b"", ("4.9.8",)),
        ("backup", None, ("4.9.8",)),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_strays(store: Path, version: str, name: str, content: bytes | None, refused: tuple[str, ...]) -> None:
    """E8b to E8d: by size, name and version."""
    if content is None:
        (store / LOG / name).mkdir()
    else:
        (store / LOG / name).write_bytes(content)
    start = predict(store, version)
    assert (start.refuses is not None) is (version in refused)
    deleted = content == b"" and version not in ("4.4.0", "4.9.8")
    assert start.files_deleted == ([f"{LOG}/{name}"] if deleted else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_unit_of_zeros(store: Path, version: str) -> None:
    """E19: the queue ends there for good, and its later files are deleted."""
    path = store / "consumequeue" / "orders" / "0" / file_name(4 * QUEUE_FILE_SIZE)
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes(20) + data[80:])
    write_queue(store, LogBuilder(FILE_SIZE).add_all({} for _ in range(60)).offsets, topic="others")
    start = predict(store, version)
    assert [queue.max_offset for queue in start.queues if queue.topic == "orders"] in ([], [43])
    assert start.files_deleted == [f"consumequeue/orders/0/{file_name(5 * QUEUE_FILE_SIZE)}"]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_queues_behind(store: Path, log: LogBuilder, version: str) -> None:
    """E23: 4.9.8 catches up; 5.3.2 and later leave out the first record, and shift what follows; others do nothing."""
    write_queue(store, log.offsets[:55])
    start = predict(store, version)
    expected = {"4.4.0": 55, "4.9.8": 60, "5.3.1": 55}.get(version, 59)
    assert [queue.max_offset for queue in start.queues] == ([] if expected == 55 else [expected])
    shifted = {59: [(4, 4, 1)], 60: [(5, 0, 0)]}.get(expected, [])
    assert [(queue.dispatched, queue.misplaced, queue.shift) for queue in start.queues] == shifted
    begins = {55: None, 60: log.offsets[55], 59: log.offsets[55] + 1}
    assert start.dispatched_from == begins[expected]
    found = recovery(store, version)
    told = [finding.code for finding in start_findings(found, found.predict(), {("orders", 0): 60})]
    assert told == (["start.queue-loss"] if expected == 59 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_last_queue_file_of_zeros(store: Path, log: LogBuilder, version: str) -> None:
    """E5: the zeros count as a unit since 4.5.1; where nothing is cut, 5.0 to 5.4 cannot load the queue at all."""
    directory = store / "consumequeue" / "orders" / "0"
    (directory / file_name(6 * QUEUE_FILE_SIZE)).write_bytes(bytes(QUEUE_FILE_SIZE))
    start = predict(store, version)
    expected = {"4.4.0": [], "4.9.8": None}.get(version, [61])
    if expected is not None:
        assert [queue.max_offset for queue in start.queues] == expected
    write_queue(store, log.offsets[:50], topic="others")
    write_queue(store, log.offsets[:50])
    (directory / file_name(5 * QUEUE_FILE_SIZE)).write_bytes(bytes(QUEUE_FILE_SIZE))
    refuses = predict(store, version).refuses or ""
    assert ("the last file holds no entry" in refuses) is (version == "5.3.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_log(store: Path, version: str) -> None:
    """E16b: all queues are deleted, but by a clean start of 4.4.0."""
    for path in (store / LOG).iterdir():
        path.unlink()
    start = predict(store, version)
    assert (start.max_offset_after, start.scan_from) == (0, None)
    assert (start.end, start.setting) == ("there is no commit log file", None)
    assert len(start.files_deleted) == (0 if version == "4.4.0" else 6)
    crash(store)
    assert len(predict(store, version).files_deleted) == 6


@pytest.mark.parametrize("version", VERSIONS)
def test_a_huge_size(store: Path, log: LogBuilder, version: str) -> None:
    """E7: OutOfMemoryError before 5.3.2, else the end of the log."""
    crash(store)
    path = store / LOG / file_name(0)
    data = bytearray(path.read_bytes())
    data[log.offsets[1] : log.offsets[1] + 4] = (0x7FFFFFF0).to_bytes(4, "big")
    path.write_bytes(data)
    start = predict(store, version)
    if version in CUT_CLEAN:
        assert (start.refuses, start.max_offset_after) == (None, log.offsets[1])
    else:
        assert "OutOfMemoryError" in str(start.refuses)
        assert codes(store, version) == ["start.refuses"]


def test_empty_files_ahead(store: Path, log: LogBuilder) -> None:
    """E33: a start deletes them."""
    for number in (1, 2):
        name = file_name((len(log.files) - 1 + number) * FILE_SIZE)
        (store / LOG / name).write_bytes(bytes(FILE_SIZE))
    start = predict(store, "5.3.3")
    assert (start.max_offset_after, len(start.files_deleted), start.messages_lost) == (log.end, 2, 0)
    assert start.commit_log_bytes_cut == 0


def test_a_torn_record(tmp_path: Path) -> None:
    """It is cut, and nothing readable is lost."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(48))
    store = log.write(tmp_path)
    write_queue(store, log.offsets)
    crash(store)
    path = store / LOG / file_name((len(log.files) - 1) * FILE_SIZE)
    at = log.end % FILE_SIZE
    data = path.read_bytes()
    path.write_bytes(data[:at] + message(log.end)[:-10] + data[at + RECORD - 10 :])
    assert path.stat().st_size == FILE_SIZE
    start = predict(store, "5.5.0")
    assert (start.max_offset_after, start.messages_lost, start.commit_log_bytes_cut) == (log.end, 0, RECORD - 10)
    assert codes(store, "5.5.0") == []


def test_configuration_that_cannot_be_read(store: Path) -> None:
    """A config file and its .bak both bad."""
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{", encoding="utf-8")
    assert predict(store, "5.3.3").refuses is None
    (store / "config" / "topics.json.bak").write_text("{", encoding="utf-8")
    assert "config/topics.json" in str(predict(store, "5.3.3").refuses)


def test_settings_that_are_not_followed_are_told(store: Path) -> None:
    """The prediction says what it does not know."""
    assert predict(store, "5.3.3").unsure == []
    [said] = predict(store, "5.3.3", duplicationEnable="true").unsure
    assert "duplicationEnable" in said


def test_queues_that_cannot_be_read_are_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package for RocksDB is not installed."""
    (store / "consumequeue" / "CURRENT").touch()
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    [said] = predict(store, "5.3.3").unsure
    assert "the consume queues are in RocksDB, which is not read" in said


def test_a_single_file_may_have_any_size(tmp_path: Path) -> None:
    """Without broker.conf nothing says that its size is right."""
    store = LogBuilder(FILE_SIZE).add_all([{}]).write(tmp_path)
    [said] = predict(store, "5.3.3").unsure
    assert "1024 bytes" in said
    assert predict(store, "5.3.3", mappedFileSizeCommitLog="1024").unsure == []
    assert "expected 2048" in str(predict(store, "5.3.3", mappedFileSizeCommitLog="2048").refuses)


@pytest.mark.parametrize("minor", ["4.4", "4.9", "5.0", "5.3", "5.5"])
def test_versions_without_a_patch(store: Path, log: LogBuilder, minor: str) -> None:
    """5.3 is the last of 5.3, and the answer names it so."""
    start = predict(store, minor)
    assert (start.version, start.max_offset_after) == (minor, log.end)
    assert Version(5, 3, 4) <= parse_version("5.3")


def test_json(store: Path, log: LogBuilder) -> None:
    """The object of the contract."""
    flip(store, log.offsets[-1])
    found = predict(store, "5.3.1").as_json()
    assert found["scan_from"] == {"file": f"{LOG}/{file_name(3 * FILE_SIZE)}", "physical_offset": 3 * FILE_SIZE}
    assert found["queues"][0]["max_offset"] == 59
    assert {"mode", "version", "max_offset_after", "commit_log_bytes_cut", "messages_lost", "refuses"} <= found.keys()


def test_the_log_alone(store: Path, log: LogBuilder) -> None:
    """The same cut, without what becomes of the queues."""
    flip(store, 0)
    crash(store)
    found = recovery(store, "5.3.3")
    whole, alone = found.predict(), found.predict(log_only=True)
    assert whole.queues
    assert alone == replace(whole, queues=[], files_deleted=[], dispatched_from=None)


@pytest.mark.parametrize("is_on", [True, False, None])
def test_an_offset_of_a_light_queue_that_is_no_number(tmp_path: Path, is_on: bool | None) -> None:
    """The dispatch ends with an exception, and so does the start; without light queues nobody reads it.

    Without broker.conf such a queue beside others says that there are some.
    """
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "x"}
    LogBuilder(FILE_SIZE).add_all([{"properties": properties}]).write(tmp_path)
    crash(tmp_path)
    settings = {} if is_on is None else {"enableMultiDispatch": str(is_on).lower()}
    for topic in ("orders", "%LMQ%b") if is_on is None else ():
        write_queue(tmp_path, [0], topic)
    start = predict(tmp_path, "4.9.7", **settings)
    is_on = is_on is not False
    assert start.setting == ("enableMultiDispatch" if is_on else None)
    assert ("NumberFormatException" in (start.refuses or "")) == is_on
    assert start.is_up != is_on
    assert start.scan_from is not None
    assert start.scan_from.physical_offset == 0


@pytest.mark.parametrize("moved", [0, 1 << 40])
def test_a_record_that_says_another_offset_is_dispatched_by_it(store: Path, log: LogBuilder, moved: int) -> None:
    """After a clean stop, too, and though the queues reach the end of the log: the files before it have none."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "x"}
    log.roll()
    at = log.add(properties=light)
    write_queue(store, [*log.offsets[:60], log.add(queue_offset=60)])
    move_record(log.write(store), at, at + moved)
    start = predict(store, "5.5.0", enableMultiDispatch="true")
    assert ("NumberFormatException" in (start.refuses or "")) == (moved > 0)


@pytest.mark.parametrize(("version", "max_offset"), [("5.3.3", 10), ("5.3.4", 9)])
def test_queues_are_cut_by_what_the_scan_has_made_of_them(tmp_path: Path, version: str, max_offset: int) -> None:
    """Since 5.3.4; before, by what they were (`ConsumeQueueStore#truncateDirty`)."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(10))
    write_queue(log.write(tmp_path), log.offsets[:5])
    move_record(tmp_path, log.offsets[-1], 1 << 40)
    crash(tmp_path)
    assert [queue.max_offset for queue in predict(tmp_path, version).queues] == [max_offset]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_without_a_record(tmp_path: Path, version: str) -> None:
    """Nothing is cut of it, and nothing dispatched."""
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / file_name(0)).write_bytes(bytes(FILE_SIZE))
    for _ in range(2):
        start = predict(tmp_path, version)
        assert (start.commit_log_bytes_cut, start.max_offset_after, start.dispatched_from) == (0, 0, None)
        crash(tmp_path)


@pytest.mark.parametrize("is_killed", [True, False])
def test_either_start_can_be_asked_for(store: Path, is_killed: bool) -> None:
    """Whatever the store says of its last stop."""
    if is_killed:
        crash(store)
    found = recovery(store, "5.3.3")
    modes = [found.predict(unclean=unclean).mode for unclean in (True, False, None)]
    assert modes == ["abnormal", "normal", "abnormal" if is_killed else "normal"]


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_entries_that_a_start_cuts_with_those_that_it_has_made(tmp_path: Path, version: str) -> None:
    """An entry that leads far past the log ends the queue: five that were there go, and none is made for good."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(10))
    log.write(tmp_path)
    write_queue(tmp_path, [*log.offsets[:2], 1 << 50, *log.offsets[3:7]])
    crash(tmp_path)
    start = predict(tmp_path, version)
    (queue,) = start.queues
    assert (queue.max_offset_before, queue.max_offset) == (7, 2)
    assert (queue.truncated, queue.dispatched) == (5, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_that_a_record_ends(tmp_path: Path, version: str) -> None:
    """No broker fills a file without a blank; the cut leaves such a file as it is, so that the next one begins."""
    log = LogBuilder(RECORD * 4 + 8).add_all({"queue_offset": number} for number in range(4))
    log.write(tmp_path)
    path = tmp_path / LOG / file_name(0)
    path.write_bytes(path.read_bytes()[: RECORD * 4])
    write_queue(tmp_path, log.offsets)
    start = predict(tmp_path, version)
    assert (start.max_offset_after, start.messages_lost, start.queues) == (RECORD * 4, 0, [])


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4"])
@pytest.mark.parametrize(
    ("root", "log_path", "setting", "is_lost"),
    [
        (" ", " ", "storePathRootDir", True),
        (" ", None, "storePathRootDir", True),
        (" ", "", "storePathRootDir", False),
        ("", " ", "storePathCommitLog", True),
        ("", "", None, False),
    ],
)
def test_paths_that_are_not_read_as_they_look(
    store: Path, log: LogBuilder, version: str, root: str, log_path: str | None, setting: str | None, is_lost: bool
) -> None:
    """Before 5.2.0 a blank behind a path is part of it: the broker begins in an empty directory.

    Where that is not so of the log, releases that dispatch what is in no queue make the queues again.
    """
    paths = {"storePathRootDir": f"{store}{root}"}
    if log_path is not None:
        paths["storePathCommitLog"] = f"{store}/{LOG}{log_path}"
    start = predict(store, version, **paths)
    lost, end = (60, 0) if is_lost else (0, log.end)
    assert (start.setting, start.messages_lost, start.max_offset_after) == (setting, lost, end)
    is_gone = is_lost or (root and version == "5.1.4")
    assert [queue.max_offset for queue in start.queues] == ([0] if is_gone else [])
    assert ("opens another directory" in str(start.end)) == (setting is not None)
    assert predict(store, "5.2.0", **paths).setting is None


def test_queues_without_a_log_begin_at_their_files(store: Path, log: LogBuilder) -> None:
    """Where a release leaves them alone, what led below the log counts again."""
    (store / LOG / file_name(0)).unlink()
    write_queue(store, log.offsets[3:])
    below = sum(offset < FILE_SIZE for offset in log.offsets[3:])
    (queue,) = predict(store, "4.4.0", storePathCommitLog=f"{store}/{LOG} ").queues
    assert (queue.min_offset_before, queue.min_offset, queue.truncated, queue.dispatched) == (below, 0, 0, 0)


@pytest.mark.parametrize(("kind", "dispatched_from"), [("default", 0), ("defaultRocksDB", 1)])
def test_a_database_that_a_start_makes(store: Path, kind: str, dispatched_from: int) -> None:
    """It has dispatched up to 0, and a start takes only what is past that: not the first record of all."""
    remove_queues(store)
    assert predict(store, "5.5.0", storeType=kind).dispatched_from == dispatched_from


@pytest.mark.parametrize("said", [[], [0], [0, 1], [0, None]])
def test_records_of_a_copy_are_dispatched_from_where_they_say(
    store: Path, log: LogBuilder, said: list[int | None]
) -> None:
    """A single record with another offset than its own is damage."""
    crash(store)
    last = (len(log.files) - 1) * FILE_SIZE
    for number, other in enumerate(said):
        move_record(store, last + number * RECORD, last if other is None else log.offsets[other])
    start = predict(store, "5.5.0", commitLogRecoverMaxNum="1")
    assert start.dispatched_from == (0 if said == [0, 1] else last)


@pytest.mark.parametrize(("is_killed", "limit", "is_kept"), [(True, 7999, False), (True, 8000, True), (False, 0, True)])
def test_an_index_file_that_the_checkpoint_does_not_know(
    store: Path, is_killed: bool, limit: int, is_kept: bool
) -> None:
    """After a crash a start deletes what was put in after its time (`IndexService#load`)."""
    (store / "index").mkdir()
    (store / "index" / INDEX).write_bytes(index_image([(1, 0, 7000), (2, RECORD, 8000)]))
    start = recovery(store, "5.3.3").predict(
        unclean=is_killed, checkpoint={**NO_CHECKPOINT, "index_message_timestamp": limit}
    )
    assert start.files_deleted == ([] if is_kept else [f"index/{INDEX}"])


def test_a_queue_that_stays_hides_no_other(store: Path, log: LogBuilder) -> None:
    """Of those whose records are dispatched again only the ones that change are named."""
    log.add(queue_offset=60)
    for topic in ("basket", "return"):  # of one length, as all records are
        write_queue(store, [log.add(topic=topic)], topic)
    log.write(store)
    crash(store)
    assert [(queue.topic, queue.max_offset) for queue in predict(store, "5.5.0").queues] == [("orders", 61)]


def test_queues_are_named_in_their_order(tmp_path: Path) -> None:
    """By topic, and queue ids as numbers."""
    log = LogBuilder(FILE_SIZE)
    names = [("beta", 0), ("alpha", 10), ("alpha", 9)]
    for topic, queue_id in names:
        log.add(topic=topic, queue_id=queue_id)
    crash(log.write(tmp_path))
    assert [(queue.topic, queue.queue_id) for queue in predict(tmp_path, "5.5.0").queues] == names[::-1]


def test_a_queue_that_is_made_of_a_file_with_a_wrong_name(tmp_path: Path) -> None:
    """Its records say offsets before the log: no consumer gets their entries."""
    log = LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(5))
    log.write(tmp_path)
    (tmp_path / LOG / file_name(0)).rename(tmp_path / LOG / file_name(FILE_SIZE))
    (queue,) = predict(tmp_path, "5.5.0").queues
    assert (queue.min_offset, queue.max_offset) == (5, 5)
