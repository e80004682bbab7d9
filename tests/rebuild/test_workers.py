"""The log read by several processes: the same bytes as by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rebuild import source
from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.log_pass import (
    Dropping,
    Item,
    PartsDoNotMeetError,
    PassNumbers,
    Recording,
    RunResult,
    RunTask,
    items_of,
)
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rebuild.source import open_source
from rmqtool.scan.reader import scan_files
from rmqtool.store.splits import log_parts
from rmqtool.store.store import open_store
from tests.building import LogBuilder, message
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.rebuild.log_damages import flip_a_body
from tests.rebuild.plans import contents

STORES = ("5.3.3-shop", "5.5.0-killed", "4.9.7-trimmed")


def write(root: Path, output: Path, jobs: int) -> RebuildPlan:
    options = RebuildOptions(frozenset(["queues", "index"]), jobs=jobs)
    return write_output(open_source(open_store(root), options), output)


def told(plan: RebuildPlan) -> object:
    """What a plan says, but for the store that it was made from."""
    return plan.queues, plan.index, plan.lost.listed, plan.last_record, plan.findings


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STORES if name in stores.names()])
def test_every_number_of_processes_writes_the_same(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = golden_store(name)
    monkeypatch.setattr(source, "log_parts", partial(log_parts, least=1000))
    one = write(root, tmp_path / "one", jobs=1)
    two = write(root, tmp_path / "two", jobs=2)

    assert len(log_parts(open_store(root).commit_log().files, least=1000)) > 10
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert told(two) == told(one)


@pytest.mark.one_in(9)
@pytest.mark.slow
@pytest.mark.parametrize(("position", "size"), [(3000, 9000), (5990, 20), (4000, 4), (3999, 1)])
def test_damage_across_parts(
    unpacked: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, size: int
) -> None:
    """Extents that cover whole parts, and such that begin, lie or end at a border."""
    root = copied(unpacked("5.3.3-clean"), tmp_path / "store")
    log = open_store(root).commit_log()
    with log.files[0].path.open("r+b") as file:
        file.seek(position)
        file.write(b"\x55" * size)
    parts = list(pairwise([*range(0, 20_000, 2000), MAX_OFFSET]))
    monkeypatch.setattr(source, "log_parts", lambda *_, **__: parts)

    one, two = (write(root, tmp_path / str(jobs), jobs) for jobs in (1, 3))

    assert told(two) == told(one)
    assert one.lost.count + sum(finding.code == "commitlog.body-crc" for finding in one.findings) >= 1
    assert contents(tmp_path / "3") == contents(tmp_path / "1")


@pytest.mark.slow
def test_parts_that_do_not_meet_are_read_again_in_one(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one part takes for a record the one before it may hold in a body: nothing of that is believed."""
    root = golden_store("5.3.3-clean")
    log = open_store(root).commit_log()
    wrong = [(0, 6000), (0, log.files[-1].end_offset)]
    with pytest.raises(PartsDoNotMeetError):
        list(items_of(RunTask(log.files, DispatchRules()), PassNumbers(), wrong, 2))

    one = write(root, tmp_path / "one", jobs=1)
    monkeypatch.setattr(source, "log_parts", lambda *_, **__: wrong)
    again = write(root, tmp_path / "again", jobs=2)

    assert told(again) == told(one)
    assert contents(tmp_path / "again") == contents(tmp_path / "one")


@pytest.mark.slow
def test_a_part_that_begins_with_a_record_inside_a_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks back too little to know; the part before it has the whole message."""
    builder = LogBuilder(file_size=12 << 20)
    builder.add_all({"queue_offset": number} for number in range(20))
    size, inside = 300_000, 200_000
    body_at = builder.end + message(body=b"body" * 9).index(b"body")
    held = message(physical_offset=body_at + inside, queue_offset=7)
    builder.add(queue_offset=20, body=bytes(inside) + held + bytes(size - inside - len(held)))
    builder.add_all({"queue_offset": number} for number in range(21, 40))
    root = builder.write(tmp_path / "store")
    parts = [(0, body_at + inside - 10), (body_at + inside - 10, MAX_OFFSET)]
    with pytest.raises(PartsDoNotMeetError):
        list(items_of(RunTask(open_store(root).commit_log().files, DispatchRules()), PassNumbers(), parts, 2))

    one = write(root, tmp_path / "one", jobs=1)
    monkeypatch.setattr(source, "log_parts", lambda *_, **__: parts)
    again = write(root, tmp_path / "again", jobs=2)

    assert [queue.units for queue in one.queues] == [40]
    assert told(again) == told(one)
    assert contents(tmp_path / "again") == contents(tmp_path / "one")


@pytest.mark.parametrize("drops_from", [None, 0, MAX_OFFSET])
def test_what_is_recorded_is_what_is_read(unpacked: GoldenStore, tmp_path: Path, drops_from: int | None) -> None:
    """Which records with wrong bodies are left out is decided afterwards; other rules and another log do not fit."""
    root = copied(unpacked("5.3.3-clean"), tmp_path / "store")
    flip_a_body(root / "commitlog" / "00000000000000000000")
    files = open_store(root).commit_log().files
    task = RunTask(files, DispatchRules(), drops_bodies_from=drops_from)
    with TemporaryFile() as file:
        recording = Recording(replace(task, drops_bodies_from=None, drops_later=True), file.fileno())
        make = recording.reader(ProvenRecords())
        for part, (start, stop) in reversed([*enumerate([(0, 9000), (9000, MAX_OFFSET)])]):
            reader = make()
            of_part = [reader.add(event) for event in scan_files(files, start, stop)]
            for derived in filter(None, [*of_part, reader.rest()]):
                recording.add(part, derived)
        assert not recording.fits(task)
        recording.is_whole = True
        assert recording.fits(task)
        numbers, expected = PassNumbers(), PassNumbers()
        found = [*items_of(task, numbers, (), 1, recording)]
        wanted = [*items_of(task, expected, (), 1)]
        assert numbers.names == expected.names
        assert units_in(found) == units_in(wanted)
        otherwise = replace(task, drops_bodies_from=None if drops_from == 0 else 0)
        assert units_in(found) != units_in([*items_of(otherwise, PassNumbers(), (), 1)])
        assert not recording.fits(replace(task, rules=DispatchRules(multi_dispatch=True)))
        os.utime(files[0].path)
        assert not recording.fits(task)


def test_a_run_of_which_some_bodies_are_dropped_is_read_again() -> None:
    nothing = RunResult(0, 0, 0, 0, None, None, False, None, None, [], frozenset(), [])
    dropping = Dropping([100, 200], [300], replace(nothing, size=1), replace(nothing, size=2))
    run, task = replace(nothing, dropping=dropping), RunTask((), DispatchRules())
    tasks = [replace(task, drops_bodies_from=offset) for offset in (None, 100, 201)]
    assert [run.dropped_by(each).size for each in tasks] == [0, 2, 1]
    assert run.dropped_by(replace(tasks[1], drops_refused_from=300)).size == 2
    for between in (replace(task, drops_bodies_from=150), replace(tasks[1], drops_refused_from=301)):
        with pytest.raises(PartsDoNotMeetError):
            run.dropped_by(between)


def units_in(items: Sequence[Item]) -> list[tuple[int, bytes]]:
    units = [item.units for item in items if isinstance(item, RunResult) and item.units is not None]
    return [each for run in units for each in zip(run.queues.tolist(), map(bytes, run.units), strict=True)]


@pytest.mark.slow
def test_topics_with_batch_queues_are_learnt(
    unpacked: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied(unpacked("5.3.3-clean"), tmp_path / "store")
    (root / "config" / "topics.json").unlink()
    monkeypatch.setattr(source, "log_parts", partial(log_parts, least=20_000))

    one, two = (write(root, tmp_path / str(jobs), jobs) for jobs in (1, 2))

    assert any(queue.kind == "batch" for queue in one.queues)
    assert told(two) == told(one)
