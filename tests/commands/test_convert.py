"""`rmqtool convert`: a store that verify finds clean, what is refused, JSON and text, runs that are killed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.consume_queue import UNIT_DTYPE, is_written
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LOG
from tests.commands.running import Result, killed_at_a_call, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import NODE, entry_log
from tests.sampling import one_in
from tests.store.other_process import JAVA, another_process
from tests.unchanged import tree, unchanged
from tests.verify.small_store import FILE_SIZE, finish

GOLDEN = ["more/4.9.7-dledger", "more/5.3.3-dledger", "more/5.3.3-converted"]
TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return finish(entry_log(60).write(tmp_path / "store"))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def convert(store: Path, new: Path, *options: str | Path) -> Result:
    """Convert a store, and assert that it is as before."""
    with unchanged(store):
        return rmqtool("convert", store, "--output", new, *options)


def messages(directory: Path) -> list[bytes]:
    """The messages of a log, without their physical offsets, in order."""
    header_size = ENTRY_HEADER_SIZE if directory.name == "data" else 0
    found = []
    for event in scan_files(list_mapped_files(directory, header_size=header_size).files):
        if isinstance(event, RecordRun):
            rows = zip(event.positions.tolist(), event.message_sizes.tolist(), strict=True)
            records = [bytes(event.block.view[position : position + size]) for position, size in rows]
            found += [record[:28] + record[36:] for record in records]
    return found


def queue_of(store: Path, queue_id: int) -> list[tuple[int, int]]:
    """Size and tags code of the units of a queue, by queue offset from 0 on."""
    data = b"".join(path.read_bytes() for path in sorted((store / "consumequeue" / TOPIC / str(queue_id)).iterdir()))
    units = np.frombuffer(data, UNIT_DTYPE)
    return [(int(unit["message_size"]), int(unit["tags_code"])) for unit in units[is_written(units)]]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stores(name: str, golden_store: GoldenStore, new: Path) -> None:
    """What real nodes wrote: all messages in order, the same queue offsets, and verify finds nothing."""
    root = golden_store(name)
    found = convert(root, new, "--json")
    assert (found.status, found.document["result"]["left_out"]) == (Exit.OK, [])
    assert found.document["result"]["layout"] == "dledger"
    assert messages(new / LOG) == messages(root / LOG) + messages(root / NODE / "data")
    for queue_id in (0, 1):
        assert queue_of(new, queue_id) == queue_of(root, queue_id)
    assert rmqtool("verify", new, "--json").document["result"]["verdict"] == "clean"
    assert not (new / "abort").exists()
    assert not (new / NODE).exists()


@pytest.mark.slow
def test_the_index_is_of_the_old_release(golden_store: GoldenStore, new: Path, tmp_path: Path) -> None:
    """Also where the first entries are gone: units of the index lead to messages of the old log alone."""
    root = copied(golden_store("more/5.3.3-dledger"), tmp_path / "cut")
    min(root.glob("dledger-*/data/0*")).unlink()
    shown = rmqtool("verify", root, "--json").document["result"]["releases"]
    assert convert(root, new).status == Exit.FINDINGS
    assert "index-without-tags" in shown["evidence"]
    releases = rmqtool("verify", new, "--json").document["result"]["releases"]
    assert (releases["oldest"], releases["newest"]) == (shown["oldest"], shown["newest"])


def test_answers(store: Path, new: Path) -> None:
    """A dry run writes nothing; the text names what was made and what to do next."""
    planned = convert(store, new, "--json", "--dry-run")
    assert (planned.status, planned.document["result"]["state"]) == (Exit.OK, "planned")
    assert not new.exists()
    dry = convert(store, new, "--dry-run")
    assert dry.out.startswith("new log: 3 files of 4.00 KiB, offsets 0 to ")
    assert f"next: rmqtool convert {store} --output {new}" in dry.err
    done = convert(store, new)
    assert "from entries: 60 messages" in done.out
    assert f"next: rmqtool verify {new}" in done.err
    assert set(os.listdir(new.parent)) == {"store", "new"}
    assert tree(new / "config") == tree(store / "config")


def test_a_store_in_use(store: Path, new: Path) -> None:
    """It ends with the status that all commands have for it."""
    (store / "lock").write_bytes(b"lock")
    with another_process(store / "lock", JAVA):
        found = convert(store, new)
    assert (found.status, "in use by process" in found.err) == (Exit.IN_USE, True)
    assert not new.exists()


@pytest.mark.slow
def test_uncommitted(store: Path, new: Path) -> None:
    """A queue offset that the new store does not have may be given to another message: nothing points to it."""
    (store / NODE / "checkpoint").write_text("committedIndex=44\nendIndex=59\n")
    found = convert(store, new, "--json")
    assert found.status == Exit.FINDINGS
    assert [(each["reason"], each["messages"]) for each in found.document["result"]["left_out_totals"]] == [
        ("uncommitted", 15)
    ]
    assert [len(queue_of(new, queue_id)) for queue_id in (0, 1)] == [23, 22]
    document = rmqtool("verify", new, "--json").document
    assert document["result"]["verdict"] == "clean"
    text = convert(store, new.parent / "text")
    assert "left out: 15 messages" in text.out
    assert "--uncommitted" in text.err
    assert convert(store, new.parent / "all", "--uncommitted").status == Exit.OK


@pytest.mark.slow
def test_a_topic_of_uncommitted_messages(new: Path, tmp_path: Path) -> None:
    """Its queue points to where no message is in the new log: it is not carried over."""
    log = entry_log(20)
    log.put("payments", 0)
    store = finish(log.write(tmp_path / "store", committed=19))
    assert convert(store, new).status == Exit.FINDINGS
    assert os.listdir(new / "consumequeue") == [TOPIC]
    assert rmqtool("verify", new, "--json").document["result"]["verdict"] == "clean"


@pytest.mark.slow
def test_lost_entries(store: Path, new: Path) -> None:
    """A file with more than 64 messages is gone: the others keep their queue offsets, and the loss is on record."""
    shutil.rmtree(store)
    log = entry_log(400)
    finish(log.write(store))
    for number in range(1, 10):
        (store / NODE / "data" / f"{number * FILE_SIZE:020d}").unlink()
    found = convert(store, new, "--json")
    result = found.document["result"]
    assert (found.status, result["missing_entries"]) == (Exit.FINDINGS, 400 - len(messages(store / NODE / "data")))
    assert result["missing_entries"] > 2 * 64
    assert {queue["max_offset"] for queue in result["queues"]} == {200}
    document = rmqtool("verify", new, "--json").document
    assert [each for each in document["findings"] if each["severity"] == "error"] == []
    [loss] = [each["message"] for each in document["findings"] if each["code"] == "store.recorded-loss"]
    assert loss.startswith("convert of ")
    assert f"missing: {result['missing_entries']} committed messages" in loss
    assert document["result"]["start"]["messages_lost"] == 0


def test_what_is_refused(store: Path, new: Path, tmp_path: Path) -> None:
    """An ordinary store, an output that is not free, no entries, no space."""
    (new / "something").mkdir(parents=True)
    for output in (new, store, store / "new", new.parent / "none" / "new"):
        assert convert(store, output).status == Exit.USAGE
    (ordinary := tmp_path / "ordinary" / LOG).mkdir(parents=True)
    found = convert(ordinary.parent, tmp_path / "other")
    assert found.status == Exit.FAILED
    assert "a plain store already" in found.err
    for path in (store / NODE / "data").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert "there is no message to take" in convert(store, tmp_path / "other").err
    assert not (tmp_path / "other").exists()


def test_no_space(store: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for before anything is written, and nothing is left of the try."""
    monkeypatch.setattr("rmqtool.transaction.system.System.free_bytes", lambda self, path: 1 << 20)
    assert convert(store, new).status == Exit.FAILED
    assert os.listdir(new.parent) == ["store"]


def test_timers_are_not_carried_over(store: Path, new: Path) -> None:
    """They lead to messages by physical offset, which is another one now; what has a problem is named."""
    (store / "timerwheel").write_bytes(bytes(100))
    (store / "timerlog").mkdir()
    (store / "config" / "timercheck").write_bytes(bytes(100))
    (store / "config" / "topics.json").write_text("{")
    result = convert(store, new, "--json").document["result"]
    assert result["not_carried_over"] == ["config/timercheck", "timerlog", "timerwheel"]
    carried = {each["name"]: bool(each["problem"]) for each in result["carried_over"]}
    assert carried == {"config/consumerOffset.json": False, "config/topics.json": True}
    assert os.listdir(new / "config") == ["consumerOffset.json"]


@pytest.mark.slow
def test_several_paths(new: Path, tmp_path: Path, golden_store: GoldenStore) -> None:
    """The same store as when all of its log had been in one directory, but for the names of the index files."""
    root = copied(golden_store("5.3.3-clean"), tmp_path / "several")
    before = tree(root)
    (root / "b").mkdir()
    for path in sorted((root / LOG).iterdir())[::2]:
        path.rename(root / "b" / path.name)
    (conf := tmp_path / "broker.conf").write_text(f"storePathCommitLog={LOG},b\n")
    found = convert(root, new, "--json", "--broker-conf", conf)
    assert (found.status, found.document["result"]["layout"]) == (Exit.OK, "multi-path")
    for name in (LOG, "consumequeue", "batchconsumequeue", "config"):
        prefix = f"{name}/"
        assert {path: data for path, data in tree(new).items() if path.startswith(prefix)} == {
            path: data for path, data in before.items() if path.startswith(prefix)
        }
    assert json.loads(rmqtool("verify", new, "--json").out)["result"]["verdict"] == "clean"


@pytest.mark.slow
def test_killed_anywhere(store: Path, new: Path) -> None:
    """There is no new store, or a complete one; the next run makes it, and leaves nothing else behind.

    Of the calls `make test` tries every eighth, and all of the last ones, which put the store in its place.
    """
    convert(store, new)
    expected = tree(new)
    shutil.rmtree(new)
    with killed_at_a_call("convert", store, "--output", new) as run_until:

        def end_of(number: int) -> int:
            with unchanged(store):
                status = run_until(number)
            if new.exists():
                assert tree(new) == expected, number
                shutil.rmtree(new)
            return status

        many = one_in(8, range(1000), "convert")
        calls = next(number for number in many if end_of(number) != 9)
        assert calls > 20
        assert end_of(calls) == Exit.OK
        for number in range(calls - 16, calls):
            end_of(number)
        end_of(calls // 2)
    assert convert(store, new).status == Exit.OK
    assert tree(new) == expected
    assert set(os.listdir(new.parent)) == {"store", "new"}


@pytest.mark.slow
def test_first_files_that_no_retention_has_deleted(tmp_path: Path, new: Path) -> None:
    """Queues that begin with files of messages before the log prove that these are lost; deleted ones are no loss."""
    store = finish(entry_log(120).write(tmp_path / "store"))
    min((store / NODE / "data").iterdir()).unlink()
    for options in (("--dry-run",), ()):
        done = convert(store, new, "--json", *options)
        assert (done.status, done.document["result"]["queues_before_log"]) == (Exit.FINDINGS, 2)
    codes = {each["code"] for each in rmqtool("verify", new, "--json").document["findings"]}
    assert "commitlog.head-missing" in codes
    assert "missing: the log begins at 4096, but 2 queues still begin with files" in convert(store, tmp_path / "b").out
    for queue in (store / "consumequeue" / TOPIC).iterdir():
        for path in sorted(queue.iterdir())[:-1]:
            path.unlink()
    done = convert(store, tmp_path / "c", "--json")
    assert (done.status, done.document["result"]["queues_before_log"]) == (Exit.OK, 0)


@pytest.mark.slow
def test_a_body_with_another_crc(store: Path, new: Path) -> None:
    """It is taken as it is, which the status says, also of a dry run, and no path leads into the old store."""
    offset = entry_log(60).offsets[30]
    path = store / NODE / "data" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[offset % FILE_SIZE + 90] ^= 1
    path.write_bytes(data)
    for options in (("--dry-run",), ()):
        done = convert(store, new, "--json", *options)
        assert (done.status, done.document["result"]["wrong_bodies"]) == (Exit.FINDINGS, 1)
        assert done.document["findings"] == []
    assert messages(new / LOG) == messages(store / NODE / "data")
    assert len(messages(new / LOG)) == 60
    text = convert(store, new.with_name("other")).out
    assert "damaged: 1 message with a damaged body, copied unchanged" in text
    assert str(store) not in text
