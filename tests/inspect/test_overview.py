"""A store at a glance: its last stop, what is to be told, lag, and how little is opened for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.findings.finding import Finding
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.index_file import HEADER_SIZE
from rmqtool.inspect.overview import Overview, overview_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.commit_log import LogRange
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.lock import Holder
from rmqtool.store.store import open_store
from tests.building import GIB, LOG, START_TIME, LogBuilder, message, write_large_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged
from tests.unreadable import bad_sectors


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two log files whose last broker stopped cleanly, with one queue of 12 messages from 3 on."""
    root = tmp_path / "store"
    builder = LogBuilder(start_offset=1 << 16).add_all({"body": bytes(300)} for _ in range(12))
    builder.write(root)
    units = [build_unit(0, 100, 0)] * 3 + [build_unit(offset, 410, 0) for offset in builder.offsets]
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / file_name(0)).write_bytes(b"".join(units).ljust(600, b"\0"))
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "lock").write_bytes(b"lock")
    return root


def seen(root: Path, version: Version | None = None, conf: BrokerConf | None = None) -> Overview:
    with unchanged(root):
        return overview_of(open_store(root, conf), version)


def codes(root: Path, version: Version | None = None) -> list[str]:
    return [finding.code for finding in seen(root, version).findings]


def the_finding(root: Path) -> Finding:
    (finding,) = seen(root).findings
    return finding


def test_a_clean_store(store: Path) -> None:
    """Nothing is found in a sound store, and the parts are there."""
    overview = seen(store)
    assert overview.findings == ()
    assert overview.last_exit == "clean"
    assert (
        overview.snapshot.holder,
        overview.snapshot.version,
        overview.signs,
        overview.snapshot.index_geometries,
    ) == (None, None, (), ())
    assert overview.log_range is not None
    assert overview.log_range.min_offset == 1 << 16
    assert overview.log_range.last_store_timestamp == START_TIME + 1
    assert [(queue.topic, found.min_offset, found.max_offset) for queue, found in overview.queues] == [
        ("orders", 3, 15)
    ]
    assert overview.checkpoint == dict.fromkeys(overview.checkpoint or (), 0) != {}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """Whatever release wrote them, sound stores have no finding above info, and killed ones only that they were."""
    for version in (None, parse_version(name.partition("-")[0])):
        overview = overview_of(open_store(golden_store(name)), version)
        killed = name.endswith("-killed")
        assert overview.last_exit == ("unclean" if killed else "clean")
        assert [finding.code for finding in overview.findings if finding.severity != "info"] == (
            ["store.unclean-stop"] if killed else []
        )
        assert overview.snapshot.holder is None
        assert all(geometry is not None for _, geometry in overview.snapshot.index_geometries)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), "unknown"),
        (("checkpoint",), "clean"),
        (("lock",), "clean"),
        (("abort",), "unclean"),
        (("abort", "lock", "checkpoint"), "unclean"),
    ],
)
def test_the_last_exit(store: Path, files: tuple[str, ...], expected: str) -> None:
    """The file abort stays behind a kill; without any trace of a broker nothing is known."""
    for name in ("checkpoint", "lock"):
        (store / name).unlink()
    for name in files:
        (store / name).touch()
    assert seen(store).last_exit == expected
    assert codes(store) == (["store.unclean-stop"] if expected == "unclean" else [])


_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print(flush=True)
sys.stdin.read()
"""


def test_a_running_broker(store: Path) -> None:
    """While one runs, abort is no sign of a crash, and how the last one ended is not known."""
    (store / "abort").touch()
    command = [sys.executable, "-c", _HOLD, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        overview = seen(store)
        process.kill()
    assert overview.snapshot.holder == Holder(process.pid, "lock")
    assert overview.last_exit == "unknown"
    assert overview.findings == ()
    assert seen(store).last_exit == "unclean"


def test_an_unclean_stop_is_explained(store: Path) -> None:
    """It names the file and what the next start does."""
    (store / "abort").touch()
    finding = the_finding(store)
    assert (finding.severity, finding.fault, finding.file) == ("warning", "F13", "abort")


def make_directory(path: Path) -> None:
    path.mkdir()


def make_file(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("backup", make_directory, ("commitlog.stray-directory", "warning", "F05")),
        (file_name(0), make_directory, ("commitlog.stray-directory", "warning", "F05")),
        ("notes.txt", make_file, ("commitlog.stray", "error", "F04")),
        ("core", make_file, ("commitlog.stray", "error", "F04")),
    ],
)
def test_strays_in_the_log(
    store: Path, name: str, make: Callable[[Path], None], expected: tuple[str, str, str]
) -> None:
    """What is not a commit log file is named, and the rest is shown nevertheless."""
    make(store / LOG / name)
    finding = the_finding(store)
    assert (finding.code, finding.severity, finding.fault) == expected
    assert finding.file == f"commitlog/{name}"
    assert "move it out of the directory" in finding.effect
    assert len(seen(store).snapshot.log.files) == 2


def test_an_empty_last_file(store: Path) -> None:
    """It is in the way of a start before 5.1.3 only; one in the middle always is."""
    (store / LOG / file_name((1 << 16) + 8192)).touch()
    finding = the_finding(store)
    assert (finding.code, finding.severity, finding.fault) == ("commitlog.empty-file", "warning", "F03")
    assert "a start deletes it (5.1.3 to " in finding.effect
    os.truncate(store / LOG / file_name(1 << 16), 0)
    severities = [finding.severity for finding in seen(store).findings if finding.fault == "F03"]
    assert severities == ["error", "warning"]


def test_a_missing_file(store: Path) -> None:
    """A hole in the log is told from the names alone, and that a broker must not rebuild its queues."""
    last = store / LOG / file_name((1 << 16) + 4096)
    last.rename(store / LOG / file_name((1 << 16) + 3 * 4096))
    finding = the_finding(store)
    assert (finding.code, finding.severity, finding.fault) == ("commitlog.gap", "error", "F08")
    assert finding.offset == (1 << 16) + 4096
    assert finding.message.startswith("8192 bytes ")
    assert "do not let a broker rebuild" in finding.effect


def test_a_file_off_the_grid(store: Path) -> None:
    """A file that begins within the one before it is an error."""
    last = store / LOG / file_name((1 << 16) + 4096)
    last.rename(store / LOG / file_name((1 << 16) + 4000))
    finding = the_finding(store)
    assert (finding.code, finding.severity, finding.fault) == ("commitlog.overlap", "error", "F11")
    assert "96 bytes before" in finding.message


@pytest.mark.parametrize(
    ("size", "fault", "text"),
    [
        (100, "F02", "100 bytes where the others have 4096"),
        (8192, "F02", "8192 bytes where the others have 4096"),
    ],
)
def test_files_of_another_size(store: Path, size: int, fault: str, text: str) -> None:
    """A file that has not the size of most is an error."""
    path = store / LOG / file_name((1 << 16) + 8192)
    path.write_bytes(bytes(size))
    finding = the_finding(store)
    assert (finding.code, finding.severity, finding.fault) == ("commitlog.file-size", "error", fault)
    assert (finding.file, finding.message) == (f"commitlog/{path.name}", text)


def test_nothing_but_an_empty_file(tmp_path: Path) -> None:
    """No broker starts on a file of no byte, though no other file is larger."""
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / file_name(0)).touch()
    finding = the_finding(tmp_path)
    assert (finding.code, finding.fault) == ("commitlog.empty-file", "F03")


def test_rocksdb_queues_are_told(store: Path) -> None:
    """That there are some is said, and that this database cannot be read."""
    make_directory(store / "consumequeue_rocksdb")
    make_file(store / "consumequeue_rocksdb" / "CURRENT")
    assert {(finding.code, finding.severity) for finding in overview_of(open_store(store)).findings} == {
        ("store.rocksdb-queues", "info"), ("store.unreadable", "error"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["consumerOffsets", "metadata", "rdb"])
def test_offsets_in_rocksdb_are_told(store: Path, name: str) -> None:
    """That committed offsets cannot be read is said, for a database and not for a directory of that name."""
    make_directory(store / "config")
    make_directory(store / "config" / name)
    assert not overview_of(open_store(store)).findings
    make_file(store / "config" / name / "CURRENT")
    findings = {finding.code: finding for finding in overview_of(open_store(store)).findings}
    assert set(findings) == {"config.rocksdb", "config.rocksdb-damaged"}
    assert (findings["config.rocksdb"].severity, findings["config.rocksdb"].file) == ("info", f"config/{name}")
    assert "RocksDB cannot read it" in findings["config.rocksdb-damaged"].message


def offsets(store: Path, content: object, name: str = "consumerOffset.json") -> None:
    (store / "config").mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps({"offsetTable": content})
    (store / "config" / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("bak", "shown", "effect"),
    [
        (None, "none are shown", "starts without any offset"),
        ("", "none are shown", "starts without any offset"),
        ("{}", "shown: config/consumerOffset.json.bak", "reads the .bak file"),
        ("{", "none are shown", "refuses to start"),
    ],
)
def test_broken_consumer_offsets(store: Path, bak: str | None, shown: str, effect: str) -> None:
    """What is wrong is told, which file is shown instead, and what a start makes of it (`ConfigManager#load`)."""
    offsets(store, "{")
    if bak is not None:
        offsets(store, bak, "consumerOffset.json.bak")
    finding = the_finding(store)
    assert (finding.code, finding.severity) == ("config.consumer-offset", "warning")
    assert "not JSON" in finding.message
    assert finding.message.endswith(f"; {shown}")
    assert effect in finding.effect
    assert finding.file == "config/consumerOffset.json"


def expire(store: Path) -> None:
    """Let the log begin after the queue's last unit."""
    for path in (store / LOG).iterdir():
        path.unlink()
    LogBuilder(start_offset=1 << 20).add_all([{}]).write(store)


def test_an_expired_queue_without_a_version(store: Path) -> None:
    """Where versions answer differently and nothing tells which it is, the newest one's answer is shown and said."""
    expire(store)
    overview = seen(store)
    ((_, found),) = overview.queues
    assert (found.min_offset, found.max_offset) == (15, 15)
    (finding,) = overview.findings
    assert (finding.code, finding.severity, finding.count) == ("store.version-ambiguous", "info", 1)
    assert finding.remedy == f"rmqtool inspect {store} --broker-version 4.9"


def test_an_expired_queue_with_a_version(store: Path) -> None:
    """A version that is given decides."""
    expire(store)
    for version, min_offset in ((Version(4, 9, 7), 0), (Version(5, 0, 0), 15)):
        overview = seen(store, version)
        assert overview.findings == ()
        assert [found.min_offset for _, found in overview.queues] == [min_offset]


def test_an_expired_queue_of_a_new_broker(store: Path) -> None:
    """A sign of 5.0 or later decides too; an older sign does not."""
    expire(store)
    offsets(store, {}, "lmqConsumerOffset.json")
    assert codes(store) == ["store.version-ambiguous"]
    make_file(store / "abort.bak")
    assert codes(store) == []


def test_a_path_with_blanks_can_be_copied(tmp_path: Path, store: Path) -> None:
    """A command that is shown works as it stands."""
    expire(store)
    store = store.rename(tmp_path / "a store")
    assert the_finding(store).remedy == f"rmqtool inspect '{store}' --broker-version 4.9"


def test_several_findings(store: Path) -> None:
    """One does not hide another."""
    make_file(store / "abort")
    make_file(store / LOG / "a")
    make_file(store / LOG / "b")
    offsets(store, "[]")
    expected = ["store.unclean-stop", "commitlog.stray", "commitlog.stray", "config.consumer-offset"]
    assert codes(store) == expected


def test_lag(store: Path) -> None:
    """It is what is left to consume, negative beyond the maximum, and unknown without the queue."""
    offsets(store, {"orders@g": {"0": 5, "1": 5}, "orders@h": {"0": 15}, "orders@i": {"0": 25}, "gone@g": {"0": 1}})
    overview = seen(store)
    lags = {(item.group, item.topic, item.queue_id): overview.lag(item) for item in overview.snapshot.committed.offsets}
    assert lags == {
        ("g", "orders", 0): 10,
        ("g", "orders", 1): None,
        ("h", "orders", 0): 0,
        ("i", "orders", 0): -10,
        ("g", "gone", 0): None,
    }


@pytest.mark.parametrize("name", ["4.4.0-clean", "5.3.3-trimmed", "5.5.0-clean"])
def test_golden_lag(name: str, golden_store: GoldenStore) -> None:
    """The group beyond has a lag of -10 everywhere, and the one after that of the whole queue."""
    overview = overview_of(open_store(golden_store(name)))
    maxima = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in stores.oracle(name)["queues"]}
    for item in overview.snapshot.committed.offsets:
        if item.group == "beyond":
            assert overview.lag(item) == -10
        elif item.group == "behind":
            assert overview.lag(item) == maxima[item.topic, item.queue_id]
    assert {item.group for item in overview.snapshot.committed.offsets} == {"beyond", "behind", "middle"}


def test_lag_is_looked_up(store: Path) -> None:
    """Ten thousand offsets of a thousand queues do not go through all queues each time."""
    overview = seen(store)
    passes = 0

    class Counting(list[object]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal passes
            passes += 1
            return super().__iter__()

    object.__setattr__(overview, "queues", Counting(overview.queues))
    for _ in range(100):
        assert overview.lag(CommittedOffset("g", "orders", 0, 1)) == 14
    assert passes == 1


def test_a_store_of_queues_only(tmp_path: Path) -> None:
    """Without a log there is no range and no finding, and queues keep theirs."""
    queue = tmp_path / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / file_name(600)).write_bytes(build_unit(7, 100, 0) + bytes(580))
    overview = seen(tmp_path)
    assert (overview.snapshot.log, overview.log_range) == (MappedFiles(), LogRange(-1, 0))
    assert [(found.min_offset, found.max_offset) for _, found in overview.queues] == [(30, 31)]
    assert (overview.findings, overview.last_exit, overview.checkpoint) == ((), "unknown", None)


def test_a_multi_path_store(store: Path, tmp_path: Path) -> None:
    """Files of all paths are one log."""
    (tmp_path / "second").mkdir()
    last = max((store / LOG).iterdir())
    expected = seen(store).log_range
    last.rename(tmp_path / "second" / last.name)
    conf = BrokerConf({"storePathCommitLog": f"{store / LOG},{tmp_path / 'second'}"})
    overview = seen(store, conf=conf)
    assert overview.log_range == expected
    assert overview.snapshot.store.layout == "multi-path"


def test_a_file_that_cannot_be_read_is_told_beside_the_rest(store: Path) -> None:
    """One file less in the log, and every other part as before."""
    path = store / LOG / file_name(10 << 16)
    path.symlink_to("nowhere")
    overview = seen(store)
    assert [(found.code, found.file) for found in overview.findings] == [
        ("store.unreadable", str(path.relative_to(store)))
    ]
    assert overview.log_range is not None
    assert [(found.min_offset, found.max_offset) for _, found in overview.queues] == [(3, 15)]


def test_a_log_whose_first_record_cannot_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no range then, which is told, and the queues are there."""
    log, read_into = store / LOG / file_name(1 << 16), InputFile.read_into

    def fail(file: InputFile, target: memoryview, offset: int) -> int:
        if file.path == log:
            raise UnreadableError("cannot read: input/output error", file=file.path, offset=0)
        return read_into(file, target, offset)

    monkeypatch.setattr(InputFile, "read_into", fail)
    overview = seen(store)
    assert overview.log_range is None
    assert [(found.code, found.offset) for found in overview.findings] == [("store.unreadable", 0)]
    assert len(overview.queues) == 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were opened, one for each time."""
    paths: list[Path] = []
    init = InputFile.__init__

    def counting(file: InputFile, path: Path, *rest: object) -> None:
        paths.append(path)
        init(file, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(InputFile, "__init__", counting)
    return paths


@pytest.mark.slow
def test_few_files_are_opened(tmp_path: Path, opened: list[Path]) -> None:
    """As many files of the log are opened for 100 as for 10, and no more than five times one of a queue."""
    counts: dict[tuple[int, int], tuple[int, int]] = {}
    for log_files, queues in ((10, 10), (100, 10), (100, 1000)):
        root = write_large_store(tmp_path / f"{log_files}-{queues}", log_files, queues)
        opened.clear()
        overview = overview_of(open_store(root))
        assert len(overview.queues) == queues
        assert {(found.min_offset, found.max_offset) for _, found in overview.queues} == {(0, 600_100)}
        assert overview.log_range is not None
        assert overview.log_range.max_offset == (log_files - 1) * GIB + 2 * len(message())
        in_log = sum(Path(path).parent.name == LOG for path in opened)
        counts[log_files, queues] = in_log, sum("consumequeue" in Path(path).parts for path in opened)
    assert counts[10, 10][0] == counts[100, 10][0] == counts[100, 1000][0] <= 20
    assert counts[10, 10][1] == counts[100, 10][1] <= 5 * 10
    assert counts[100, 1000][1] <= 5 * 1000


def test_a_queue_of_nothing_but_an_empty_file(store: Path) -> None:
    """Some brokers refuse to start on it, and no other file shows its size."""
    queue = store / "consumequeue" / "empty" / "0"
    queue.mkdir(parents=True)
    (queue / file_name(600)).touch()
    finding = the_finding(store)
    assert (finding.code, finding.topic) == ("consumequeue.empty-file", "empty")


@pytest.mark.slow
def test_bad_sectors_in_an_index_file_are_no_wrong_geometry(golden_store: GoldenStore) -> None:
    """What cannot be read says nothing about hash slots."""
    store = golden_store("5.3.3-clean")
    file = min((store / "index").iterdir())
    with bad_sectors(file, HEADER_SIZE):
        found = seen(store).findings
    assert [(each.code, each.file) for each in found if each.file and each.file.startswith("index/")] == [
        ("store.unreadable", f"index/{file.name}")
    ]
