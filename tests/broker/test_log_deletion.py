"""Which log files one run deletes."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import UnreadableError, failed_reads
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.broker.cleaner import (
    Cleaner,
    LogFile,
    LogRun,
    QueueCleaner,
    Rules,
    allocated_bytes,
    compacts,
    first_state,
    run_before_entries,
    run_over,
    stat_log_file,
)
from rmqtool.broker.trigger import Disk, Disks, Trigger
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.retention import settings_of
from rmqtool.rules.versions import NEWEST, Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.index_files import IndexFile

HOUR = 3_600_000
NOW = 1000 * HOUR
SIZE = 1000


def log(*ages: float) -> list[LogFile]:
    """Files of these ages in hours; the log's end is in the last."""
    return [
        LogFile(MappedFile(Path(f"{number * SIZE:020}"), number * SIZE, SIZE), NOW - round(age * HOUR), SIZE, 1)
        for number, age in enumerate(ages)
    ]


def run(
    *ages: float, trigger: Trigger | None = None, max_offset: int | None = None, in_use: bool = False, **settings: str
) -> LogRun:
    files = log(*ages)
    end = len(files) * SIZE - 1 if max_offset is None else max_offset
    found = trigger or Trigger(time=True)
    return run_over(files, end, found, settings_of(settings, {}, NEWEST), NOW, first_in_use=in_use)


def reasons(found: LogRun) -> list[str]:
    return [fate.reason for fate in found.decisions]


def test_expired_files_go_and_the_last_stays() -> None:
    found = run(90, 80, 72, 71.9, 10)
    assert reasons(found) == ["expired", "expired", "expired", "not-expired", "last-file"]
    assert [fate.deleted for fate in found.decisions] == [True, True, True, False, False]
    assert found.min_offset == 3 * SIZE
    assert found.decisions[3].expires == NOW + HOUR // 10


def test_a_young_file_shields_older_ones() -> None:
    """Nothing after it goes, however old; one from the future most of all."""
    assert reasons(run(90, 10, 90, 90)) == ["expired", "not-expired", "shielded", "last-file"]
    assert reasons(run(-500, 72, 90)) == ["not-expired", "shielded", "last-file"]


def test_forced() -> None:
    """Regardless of age, up to the last."""
    found = run(90, 10, -500, 5, trigger=Trigger(space=True, forced=True))
    assert reasons(found) == ["expired", "forced", "forced", "last-file"]
    assert found.min_offset == 3 * SIZE


def test_forced_needs_a_trigger() -> None:
    """Before 5.0.0 forced may be set though it is not time to delete."""
    assert reasons(run(90, 10, 5, trigger=Trigger(forced=True))) == ["no-trigger", "not-expired", "last-file"]


def test_at_most_a_batch() -> None:
    assert reasons(run(90, 90, 90, 90, deleteFileBatchMax="2")) == ["expired", "expired", "next-run", "last-file"]
    assert reasons(run(90, 90, 90, deleteFileBatchMax="0")) == ["expired", "next-run", "last-file"]


@pytest.mark.parametrize(("trigger", "reason"), [(Trigger(), "no-trigger"), (Trigger(failure=" 4"), "cleaner-fails")])
def test_without_a_trigger(trigger: Trigger, reason: str) -> None:
    """Also a file that expires just now, and what is behind it."""
    found = run(72, 90, 90, trigger=trigger)
    assert reasons(found) == [reason, reason, "last-file"]
    assert found.min_offset == 0


def test_files_that_are_allocated_ahead() -> None:
    """The store does not count them: the one that the log ends in is the last."""
    assert reasons(run(90, 90, 90, 90, max_offset=SIZE + 1)) == ["expired", "last-file", "ahead", "ahead"]
    assert reasons(run(90, 90, 90, max_offset=SIZE)) == ["expired", "last-file", "ahead"]


def test_a_first_file_in_use() -> None:
    """The run ends with it, and the log begins after it; one that would be kept anyway changes nothing."""
    found = run(90, 90, 90, in_use=True)
    assert reasons(found) == ["in-use", "next-run", "last-file"]
    assert (found.deleted, found.min_offset) == ([], SIZE)
    assert (found.decisions[0].log_file.start_offset, found.decisions[0].expires) == (0, NOW - 18 * HOUR)
    assert run(90, 80, 70, in_use=True).decisions[0].expires == NOW - 18 * HOUR
    assert run(10, 10, in_use=True).min_offset == 0


@pytest.mark.parametrize(("ages", "min_offset"), [((), -1), ((500,), 0)])
def test_one_file_or_none(ages: tuple[float, ...], min_offset: int) -> None:
    found = run(*ages, trigger=Trigger(space=True, forced=True))
    assert found.deleted == []
    assert found.min_offset == min_offset


def test_a_file_that_has_just_gone(tmp_path: Path) -> None:
    assert stat_log_file(MappedFile(tmp_path / "gone", 0, 0)) is None
    assert allocated_bytes(tmp_path / "gone") == 0


def test_what_a_file_takes_of_its_disk(tmp_path: Path) -> None:
    """Not its length: holes take nothing."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(bytes(range(256)) * 64)
        file.truncate(1 << 24)
    blocks = path.stat().st_blocks
    assert 0 < blocks < 1 << 12
    found = stat_log_file(MappedFile(path, 0, 1 << 24))
    assert found is not None
    assert (found.allocated, allocated_bytes(path)) == (512 * blocks, 512 * blocks)
    assert found.mtime == path.stat().st_mtime_ns // 1_000_000


def test_a_file_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a queue file takes is no matter of deciding: it counts as nothing, and the failure is told."""
    with pytest.raises(UnreadableError):
        stat_log_file(MappedFile(tmp_path / ("x" * 300), 0, 0))

    def failing(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "stat", failing)
    with failed_reads() as failed:
        assert allocated_bytes(tmp_path / "bad") == 0
    assert [*failed] == [str(tmp_path / "bad")]


@pytest.mark.parametrize(("is_node", "is_plain", "runs"), [(False, True, 20), (True, True, 20), (True, False, 0)])
def test_the_cleaner_of_a_node_knows_no_manual_runs(is_node: bool, is_plain: bool, runs: int) -> None:
    """While plain files are there, that of all brokers runs (`CleanCommitLogService`)."""
    rules = Rules(settings_of({}, {}, NEWEST), NEWEST, manual=True, is_node=is_node)
    (file,) = log(1)
    entries = replace(file, file=MappedFile(file.file.path, 0, SIZE, 4096))
    disks: Any = None
    cleaner = Cleaner(rules, [file if is_plain else entries], 0, disks, (), QueueCleaner((), NEWEST))
    assert cleaner.manual_runs == runs


@pytest.mark.parametrize(("is_manual", "filters"), [(True, [False, False]), (False, [True, False])])
def test_queues_are_cleaned_for_a_new_minimum_only(tmp_path: Path, is_manual: bool, filters: list[bool]) -> None:
    """A run at the hour that moves the minimum no further leaves their rows, too (`lastPhysicalMinOffset`)."""
    disk = Disk(tmp_path, total=9, free=5, usable=5)
    rules = Rules(settings_of({}, {}, NEWEST), NEWEST, timezone.utc, is_manual)
    cleaner = Cleaner(
        rules, log(90, 80, 1), 2 * SIZE, Disks([disk], disk), (), QueueCleaner((), NEWEST), has_row_filter=True
    )
    four = NOW + 12 * HOUR
    runs = [cleaner.run(now) for now in (NOW if is_manual else four, four)]
    assert [(run.log.min_offset, run.filters_rows) for run in runs] == [(2 * SIZE, each) for each in filters]


@pytest.mark.parametrize(("ratio", "is_full"), [(-1.0, True), (0.0, False), (0.5, False), (0.75, False), (0.76, True)])
@pytest.mark.parametrize(("trigger", "is_time"), [(Trigger(manual=True), False), (Trigger(time=True), True)])
def test_when_rows_are_compacted(trigger: Trigger, is_time: bool, ratio: float, is_full: bool) -> None:
    """At the hour, or above `diskMaxUsedSpaceRatio`, which a broker sees where it knows no ratio, too."""
    disk = Disk(Path("consumequeue"), fixed_ratio=ratio)
    assert compacts(trigger, disk, settings_of({}, {}, NEWEST), NEWEST) == (is_time or is_full)
    assert not compacts(Trigger(failure="x"), disk, settings_of({}, {}, NEWEST), NEWEST)


def queue_files(directory: Path, *files: list[int]) -> Queue:
    """A queue with files of one unit for each of these physical offsets."""
    for number, offsets in enumerate(files):
        data = b"".join(build_unit(offset, 100, 0) for offset in offsets)
        (directory / file_name(number * len(data))).write_bytes(data)
    return Queue("orders", 0, "simple", list_mapped_files(directory))


def test_what_a_run_frees(tmp_path: Path) -> None:
    """All that it deletes, on the disks of log and queues, whose ratios change for the next run."""
    (tmp_path / "queue").mkdir()
    queue = queue_files(tmp_path / "queue", [0, 100], [SIZE, 9 * SIZE])
    path = tmp_path / "index"
    path.write_bytes(bytes(range(256)) * 40)
    index = [IndexFile(path, 0, 0, 0, 0, end, 0, 0) for end in (100, 9 * SIZE)]
    taken, of_index = allocated_bytes(queue.files.files[0].path), allocated_bytes(path)
    settings = settings_of({"deleteFileBatchMax": "1", "cleanResourceInterval": "1"}, {}, NEWEST)
    of_log, of_queues = (Disk(tmp_path, device, total=1 << 20, free=0, usable=0) for device in (1, 2))
    states = [first_state(queue, 0, NEWEST)]
    cleaner = Cleaner(
        Rules(settings, NEWEST, timezone.utc, manual=True), log(90, 90, 90, 1), 3 * SIZE + 1,
        Disks([of_log], of_queues, 1 << 20), index, QueueCleaner(states, NEWEST),
    )  # fmt: skip
    runs = [*cleaner.runs(NOW)]
    assert [run.time - NOW for run in runs] == [0, 1, 2, 3]
    assert [run.freed_bytes for run in runs] == [SIZE + taken + of_index, SIZE, SIZE, 0]
    assert [(len(run.queue_files), len(run.index_files)) for run in runs] == [(1, 1), (0, 0), (0, 0), (0, 0)]
    assert cleaner.freed == {1: 3 * SIZE, 2: taken + of_index}
    left = cleaner._disks_now()
    assert [disk.free for disk in (*left.log, left.queues)] == [3 * SIZE, taken + of_index]
    assert left.major_file_size == (1 << 20) - 3 * SIZE - taken - of_index


@pytest.mark.parametrize(
    ("is_node", "plain", "entries", "deleted", "is_manual"),
    [
        (False, 3, 0, 0, True),
        (False, 0, 0, 0, True),
        (True, 3, 0, 0, True),
        (True, 2, 1, 0, True),
        (True, 0, 3, 2, False),
    ],
)
def test_whose_settings_count(is_node: bool, plain: int, entries: int, deleted: int, is_manual: bool) -> None:
    """Those of broker.conf, until a node has entries alone, whose own cleaner keeps them less long here."""
    settings, of_node = (settings_of({"fileReservedTime": hours}, {}, NEWEST) for hours in ("90", "70"))
    files = log(*[75] * plain, *[75] * entries)
    files[plain:] = [replace(each, file=each.file.with_header(4096)) for each in files[plain:]]
    disk = Disk(Path("x"), total=9, free=5, usable=5)
    rules = Rules(settings, Version(4, 9, 7), timezone.utc, True, is_node=is_node, node_settings=of_node)
    cleaner = Cleaner(rules, files, len(files) * SIZE - 1, Disks([disk], disk), (), QueueCleaner((), NEWEST))
    run = cleaner.run(NOW + 12 * HOUR if not is_manual else NOW)
    assert len(run.log.deleted) == deleted
    assert run.trigger.manual == is_manual


@pytest.mark.parametrize(("version", "deleted"), [(Version(4, 9, 8), 1), (Version(5, 0, 0), 0)])
def test_since_5_0_0_the_last_plain_file_of_a_node_stays(version: Version, deleted: int) -> None:
    """The cleaner calls a method that `DLedgerCommitLog` does not have as its own."""
    disk = Disk(Path("x"), total=9, free=5, usable=5)
    rules = Rules(settings_of({}, {}, version), version, timezone.utc, True, is_node=True)
    cleaner = Cleaner(rules, log(90), 1, Disks([disk], disk), (), QueueCleaner((), version))
    assert len(cleaner.run(NOW).log.deleted) == deleted


@pytest.mark.parametrize(("hour", "runs"), [("04", 20), ("x", 22)])
def test_an_administrator_has_files_deleted_for_twenty_runs(tmp_path: Path, hour: str, runs: int) -> None:
    """`MAX_MANUAL_DELETE_FILE_TIMES`; a run that ends with an exception is none of them."""
    disk = Disk(tmp_path, total=9, free=5, usable=5)
    rules = Rules(settings_of({"deleteWhen": hour}, {}, NEWEST), NEWEST, timezone.utc, manual=True)
    cleaner = Cleaner(rules, log(1, 1), SIZE, Disks([disk], disk), (), QueueCleaner((), NEWEST))
    assert [cleaner.run(NOW).trigger.manual for _ in range(22)] == [True] * runs + [False] * (22 - runs)


TIME, FORCED = Trigger(time=True), Trigger(space=True, forced=True)


@pytest.mark.parametrize(
    ("ages", "trigger", "expected", "min_offset"),
    [
        ((10, 90), TIME, ["not-expired", "shielded"], 0),
        ((72, 90), TIME, ["expired", "next-run"], SIZE),
        ((72, 72), TIME, ["expired", "next-run"], SIZE),
        ((72, 72), Trigger(), ["no-trigger", "no-trigger"], 0),
        ((72, 10), FORCED, ["expired", "next-run"], SIZE),
        ((90,), TIME, ["expired"], None),
        ((72,), TIME, ["expired"], None),
        ((72,), Trigger(), ["no-trigger"], 0),
        ((72,), Trigger(failure="x"), ["cleaner-fails"], 0),
        ((10,), TIME, ["not-expired"], 0),
        ((10,), FORCED, ["forced"], None),
        ((90,), FORCED, ["expired"], None),
        ((10,), Trigger(forced=True), ["not-expired"], 0),
    ],
)
@pytest.mark.parametrize("has_entries", [True, False])
def test_the_last_plain_file_of_a_node(
    ages: tuple[float, ...], trigger: Trigger, expected: list[str], min_offset: int | None, has_entries: bool
) -> None:
    """It goes alone, in a run of its own, after which the entries are the log (`DLedgerCommitLog#deleteExpiredFile`).

    Those stay, however old they are; `min_offset` None is that of the entries.
    """
    files = log(*ages, *[500] * has_entries)
    if has_entries:
        files[-1] = replace(files[-1], file=files[-1].file.with_header(4096))
    for deletes_last in (True, False):
        found = run_before_entries(files, trigger, settings_of({}, {}, NEWEST), NOW, deletes_last=deletes_last)
        of_entries = ["plain-files"] * has_entries
        assert reasons(found) == (expected if deletes_last else [*expected[:-1], "last-file"]) + of_entries
        assert [each.deleted for each in found.decisions] == [each in ("expired", "forced") for each in reasons(found)]
        after = (SIZE if has_entries else -1) if deletes_last else 0
        assert found.min_offset == (after if min_offset is None else min_offset)
