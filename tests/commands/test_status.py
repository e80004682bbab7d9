"""`rmqtool status`: five lines, JSON, --watch, and no pass over the log, however large the store is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.files import InputFile
from rmqtool.broker.trigger import Disk
from rmqtool.clean.forecast import forecast
from rmqtool.clean.plan import next_deletions
from rmqtool.report import status as status_module
from rmqtool.report.status import status_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.store import open_store
from tests.benchmarks.logs import make_log
from tests.clean.planning import FOUR, aged_log
from tests.commands.many_queues import many_queues
from tests.commands.running import ROOT, Result, environment, finish, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.golden.stores import unpack
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store

SHOP = "5.3.3-shop"
NOW = 1_800_000_000_000
LABELS = ["broker", "checks", "disk", "lag", "waiting"]
HOUR = 3_600_000


def status(store: Path, *options: str | Path) -> Result:
    """Run status, and assert that the store is as before."""
    with unchanged(store):
        return rmqtool("status", store, *options)


def lines_of(text: str) -> dict[str, str]:
    """What stands after each label."""
    found = [line.split(maxsplit=1) for line in text.splitlines()]
    return dict(found)


def test_five_lines(golden_store: GoldenStore) -> None:
    """Each answer is one line."""
    found = status(golden_store(SHOP))
    assert (found.status, found.err) == (Exit.OK, "")
    lines = lines_of(found.out)
    assert [*lines] == LABELS
    assert lines["broker"].startswith("not running, last stop clean; last message ")
    assert lines["checks"].startswith("not verified; names and sizes show no problem; next: rmqtool verify ")
    assert lines["disk"].count("%") >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-shop", SHOP, "5.5.1-shop", "5.5.1-killed"])
def test_it_says_what_inspect_says(name: str, golden_store: GoldenStore) -> None:
    """The lags of a store that was stopped, what waits, and the last message."""
    store = golden_store(name)
    document, overview = status(store, "--json").document, rmqtool("inspect", store, "--json").document["result"]
    result = document["result"]
    lags = Counter[tuple[str, str]]()
    for each in overview["consumers"]:
        lags[each["group"], each["topic"]] += max(each["lag"] or 0, 0)
    is_killed = name.endswith("killed")  # then the lag of inspect has messages that the next start puts into queues
    assert (result["lag"]["messages"] == sum(lags.values())) != is_killed
    assert result["lag"]["groups"] == len({group for group, _ in lags})
    if result["lag"]["largest"] and not is_killed:
        assert result["lag"]["largest"]["messages"] == max(lags.values())
    waiting = overview["waiting"]
    assert result["waiting"]["delayed"] == sum(each["messages"] for each in waiting["delayed"])
    assert result["waiting"]["timers"] == waiting["timer_messages"]
    assert result["waiting"]["halves"] == waiting["half_messages"]
    assert result["waiting"]["retries"] == sum(each["retry_messages"] for each in overview["groups"])
    assert result["waiting"]["dead_letters"] == sum(each["dead_letter_messages"] for each in overview["groups"])
    assert result["last_message_timestamp"] == overview["commit_log"]["last_store_timestamp"]
    assert result["broker"]["last_exit"] == overview["broker"]["last_exit"]
    assert document["exit"]["code"] == (Exit.FINDINGS if is_killed else Exit.OK)
    assert result["checks"]["verdict"] == ("dirty" if is_killed else "unproven")


def test_what_names_and_sizes_show(tmp_path: Path) -> None:
    """A file that is too short is told, with the command that checks all."""
    store = small_store(tmp_path / "store")
    DAMAGES["short file"].apply(store)
    found = status(store)
    assert found.status == Exit.FINDINGS
    line = lines_of(found.out)["checks"]
    assert line == f"corrupt: commitlog.file-size, commitlog.gap; next: rmqtool verify {store}"
    document = status(store, "--json").document
    assert "commitlog.file-size" in {each["code"] for each in document["findings"]}
    assert document["result"]["checks"]["verdict"] == "corrupt"


@pytest.mark.parametrize("name", ["consumerOffsets/000009.sst", "topics/000012.sst"])
def test_damaged_configuration_in_rocksdb(name: str, tmp_path: Path) -> None:
    """What cannot be read is no store without a problem; found where reads of a table fail."""
    store = unpack("more/5.5.0-rocksdb", tmp_path)
    table = store / "config" / name
    table.write_bytes(table.read_bytes()[:600])
    found = status(store)
    lines = lines_of(found.out)
    assert found.status == Exit.FINDINGS
    assert lines["checks"] == f"corrupt: config.rocksdb-damaged; next: rmqtool verify {store}"
    assert (lines["lag"] == "committed offsets cannot be read") == name.startswith("consumerOffsets")


def test_nothing_is_known_of_an_empty_store(tmp_path: Path) -> None:
    """Neither messages nor groups."""
    (tmp_path / "store/commitlog").mkdir(parents=True)
    lines = lines_of(status(tmp_path / "store").out)
    assert lines["broker"].endswith("no message found")
    assert (lines["lag"], lines["waiting"]) == ("no committed offsets", "nothing")


def test_a_running_broker(golden_store: GoldenStore, tmp_path: Path) -> None:
    """It holds the lock."""
    store = tmp_path / "store"
    shutil.copytree(golden_store(SHOP), store)
    with another_process(store / "lock", JAVA):
        assert lines_of(rmqtool("status", store).out)["broker"].startswith("running")


def test_what_takes_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And told: the lag is at least that of the queues that were looked at."""
    store = many_queues(tmp_path / "store", 20)
    assert lines_of(status(store).out)["lag"] == "readers 1 on topic-0; 20 messages of 1 group"
    monkeypatch.setattr(status_module, "SECONDS", 0)
    monkeypatch.setattr(status_module, "_ALWAYS", 12)
    found = status(store)
    assert found.status == Exit.LOSSY
    assert lines_of(found.out)["lag"].endswith("; at least 9 messages of 1 group")
    assert status(store, "--json").document["result"]["not_looked_at"] == ["lags"]
    monkeypatch.setattr(status_module, "_MOST_OFFSETS", 100)
    monkeypatch.setattr(status_module, "_MOST_CONFIG", 100)
    lines = lines_of(status(store).out)
    assert lines["lag"] == "not read: too many committed offsets"
    assert "files in config/ not read" in lines["checks"]


def test_a_queue_that_the_newest_messages_miss(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden_store(SHOP), store)
    shutil.rmtree(store / "consumequeue" / "orders" / "0")
    document = status(store, "--json").document
    assert [each["code"] for each in document["findings"]] == ["consumequeue.missing-queue"]
    assert document["result"]["checks"]["verdict"] == "corrupt"


@pytest.mark.slow
def test_no_pass_over_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log, a full one or one that ends in zeros that are written, only the ends are read."""
    store = make_log(tmp_path / "store", "B", 96 << 20, 32 << 20)
    last = max((store / "commitlog").iterdir())
    following = last.with_name(f"{int(last.name) + (32 << 20):020}")
    following.write_bytes(bytes(32 << 20))
    read = Counter[str]()
    read_into = InputFile.read_into

    def counting(file: InputFile, target: memoryview, position: int) -> int:
        read["bytes"] += len(target)
        return read_into(file, target, position)

    monkeypatch.setattr(InputFile, "read_into", counting)
    found = status_of(open_store(store, BrokerConf()), None, NOW)
    assert 0 < read["bytes"] < 48 << 20
    assert (
        found.last_message
        == rmqtool("inspect", store, "--json").document["result"]["commit_log"]["last_store_timestamp"]
    )


def test_when_the_disk_is_full(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how fast the log grew, above the level from which on a broker refuses messages."""
    store = golden_store("5.3.3-clean")
    result = status(store, "--json").document["result"]["disk"]
    per_hour = result["log_bytes_per_hour"]
    assert per_hour is None or per_hour > 0
    space = os.statvfs_result((4096, 4096, 1000, 50, 50, 1000, 900, 900, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda path: space)
    full = status(store)
    assert lines_of(full.out)["disk"].endswith("full: above 90% a broker refuses messages")
    assert status(store, "--json").document["result"]["disk"]["refuses_timestamp"] is not None


def test_when_a_growing_log_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As clean forecasts it, and in words; a disk with more room is not filled before files expire."""
    store, file = aged_log(tmp_path, *range(20, -1, -1)), 1024
    for used, fills in ((170, True), (40, False)):
        disk = Disk(store, 0, 200 * file, (200 - used) * file, (200 - used) * file)
        monkeypatch.setattr("rmqtool.clean.plan.disk_of", lambda *_, disk=disk: disk)
        opened = open_store(store, BrokerConf())
        found = status_of(opened, None, FOUR).disk
        outlook = forecast(next_deletions(opened, None, FOUR)).at(72)
        assert found
        assert outlook
        assert found.refuses_at == outlook.reached["diskSpaceWarningLevelRatio"]
        assert (found.refuses_at is not None) == fills
        monkeypatch.setattr("time.time_ns", lambda: FOUR * 10**6)
        line = lines_of(rmqtool("status", store).out)["disk"]
        assert re.search(r"; full \(90%\) in \d+ h \d+ min at .* an hour$" if fills else r"; stays below 90% at ", line)


@pytest.mark.slow
def test_watching(golden_store: GoldenStore) -> None:
    """Blocks of five lines, or a document a line, until Ctrl-C."""
    store = golden_store(SHOP)
    for options, count in (((), 11), (("--json",), 2)):
        process = spawn("status", store, "--watch", "--interval", "100ms", *options, env=environment())
        assert process.stdout
        lines = [process.stdout.readline().decode() for _ in range(count)]
        process.send_signal(signal.SIGINT)
        assert finish(process).status == Exit.INTERRUPTED
        if options:
            assert [json.loads(line)["schema"] for line in lines] == ["rmqtool.status/1"] * 2
        else:
            assert [line.split()[0] for line in lines if line.strip()] == [*LABELS, *LABELS]


@pytest.mark.parametrize("value", ["0s", "-1s", "soon"])
def test_bad_intervals(value: str) -> None:
    """A usage error that says what is wrong."""
    found = rmqtool("status", ROOT / "examples/store", "--watch", "--interval", value)
    assert found.status == Exit.USAGE
    assert repr(value) in found.err
