"""`rmqtool clean` without --dry-run: what it takes when unread messages go, and plans that are saved."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.times import parse_time
from rmqtool.store.config_json import load_config
from tests.commands.cleaning import OPTIONS, files, planned
from tests.commands.running import answered, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

OFFSETS = "config/consumerOffset.json"


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """Its groups `behind` and `middle` lose 444 unread messages, and 33 delayed ones wait."""
    copied(unpacked("5.3.3-clean"), tmp_path / "store")
    return tmp_path / "store"


def all_is_read(store: Path) -> None:
    """All groups have read all, and nothing waits for its delivery."""
    offsets = load_config(store / OFFSETS).content["offsetTable"]
    read = {name: dict.fromkeys(queues, 1 << 40) for name, queues in offsets.items()}
    (store / OFFSETS).write_text(json.dumps({"offsetTable": read}))
    levels = {str(level): 1 << 40 for level in range(1, 19)}
    (store / "config/delayOffset.json").write_text(json.dumps({"offsetTable": levels}))


def only_delayed(store: Path) -> None:
    """All groups have read all, but delayed messages wait."""
    all_is_read(store)
    (store / "config/delayOffset.json").unlink()


def without_offsets(store: Path) -> None:
    """Nobody knows what the groups have read."""
    all_is_read(store)
    (store / OFFSETS).write_text("{")
    (store / f"{OFFSETS}.bak").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda store: None, "2 groups lose 444 unread messages, 33 undelivered messages are lost"),
        (only_delayed, "33 undelivered messages are lost"),
        (without_offsets, "what groups have not read is not known"),
    ],
    ids=["unread", "delayed", "unknown"],
)
def test_unread_messages_need_more_than_yes(store: Path, change: Callable[[Path], None], words: str) -> None:
    """--yes is refused, also in JSON; with --allow-unread the files go."""
    change(store)
    with unchanged(store):
        found = rmqtool("clean", store, *OPTIONS, "--yes")
        error = rmqtool("clean", store, *OPTIONS, "--yes", "--json").document
    assert found.status == Exit.USAGE
    assert words in found.out.splitlines()[0]
    assert words in found.err
    assert (error["error"]["kind"], error["exit"]["code"], error["result"]) == ("usage", Exit.USAGE, None)
    assert "--allow-unread" in error["error"]["hint"]
    assert "nothing was changed" in error["error"]["hint"]
    doomed, before = planned(store), files(store)
    assert rmqtool("clean", store, *OPTIONS, "--yes", "--allow-unread").status == Exit.OK
    assert files(store) == before - doomed


def test_read_messages_need_a_yes(store: Path) -> None:
    all_is_read(store)
    found = rmqtool("clean", store, *OPTIONS, "--yes")
    assert (found.status, len(list((store / "commitlog").iterdir()))) == (Exit.OK, 1)
    assert "for good: they have expired, and it is the hour; no group loses unread messages." in found.out
    assert "this deletes by the time or the disk usage that you gave" in found.err


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("answer", "options", "deletes"),
    [
        (b"y\n", (), False),
        (b"\n", (), False),
        (b"Store\n", (), False),
        (b"\x03", (), False),
        (b"\x04", (), False),
        (b"store\n", (), True),
        (b"y\n", ("--allow-unread",), True),
        (b"n\n", ("--allow-unread",), False),
    ],
)
def test_the_name_of_the_store_is_typed(store: Path, answer: bytes, options: tuple[str, ...], deletes: bool) -> None:
    """Only that agrees; and where nothing was changed, this is said."""
    before = files(store)
    found = answered(answer, "clean", store, *OPTIONS, *options)
    assert ("2 groups lose 444 unread messages" in found.err) == (not options)
    if deletes:
        assert (found.status, "deleted for good" in found.out) == (Exit.OK, True)
        assert len(list((store / "commitlog").iterdir())) == 1
    else:
        assert (found.status, found.err.splitlines()[-1]) == (Exit.INTERRUPTED, "nothing was changed")
        assert files(store) == before


def saved(store: Path, *options: str) -> Path:
    """A plan of the next run."""
    plan = store.parent / "plan.json"
    with unchanged(store):
        assert rmqtool("clean", store, *options, "--save-plan", plan).status == Exit.OK
    return plan


@pytest.mark.slow
def test_a_saved_plan(store: Path) -> None:
    """It deletes what it names, by the settings that it was made with; then it is outdated."""
    plan = saved(store, *OPTIONS, "--delete-file-batch-max", "4", "--broker-version", "5.3.3")
    doomed, before = planned(store, "--delete-file-batch-max", "4", "--broker-version", "5.3.3"), files(store)
    document = json.loads(plan.read_text())
    assert (document["schema"], document["command"]) == ("rmqtool.clean-plan/1", "clean")
    assert len(document["result"]["passes"][0]["commit_log"]) == 4
    with unchanged(store):
        assert rmqtool("clean", store, "--plan", plan, "--yes").status == Exit.USAGE  # for messages are unread
    done = rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread", "--json").document
    assert (done["result"]["state"], done["result"]["broker_version"]) == ("done", "5.3.3")
    assert files(store) == before - doomed
    with unchanged(store):
        again = rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread", "--json")
    assert (again.status, again.document["error"]["kind"]) == (Exit.FAILED, "changed")


@pytest.mark.slow
def test_the_command_that_carries_a_plan_out_is_printed(store: Path) -> None:
    plan = store.parent / "a plan.json"
    notes = rmqtool("clean", store, *OPTIONS, "--save-plan", plan).err
    [command] = [line.partition(": ")[2] for line in notes.splitlines() if line.startswith("delete it for good")]
    words = shlex.split(command)[1:]
    assert words == ["clean", str(store), "--plan", str(plan)]
    assert rmqtool(*words, "--yes", "--allow-unread").status == Exit.OK


def test_a_plan_is_no_file_of_the_store(store: Path) -> None:
    """Least of all one that is there already."""
    with unchanged(store):
        found = rmqtool("clean", store, *OPTIONS, "--save-plan", min((store / "commitlog").iterdir()))
    assert found.status == Exit.USAGE


def expires_later(store: Path) -> None:
    """A file of the plan was written to: it stays longer."""
    os.utime(sorted((store / "commitlog").iterdir())[3])


def written_again(store: Path) -> None:
    """The same files would go, but one is another file than it was."""
    status = (file := min((store / "commitlog").iterdir())).stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 1))


def queue_gone(store: Path) -> None:
    """Fewer files would go."""
    shutil.rmtree(store / "consumequeue" / "orders" / "0")


@pytest.mark.parametrize("change", [expires_later, written_again, queue_gone])
def test_a_plan_for_other_files_is_refused(store: Path, change: Callable[[Path], None]) -> None:
    plan = saved(store, *OPTIONS)
    change(store)
    with unchanged(store):
        found = rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread", "--json")
    assert (found.status, found.document["error"]["kind"]) == (Exit.FAILED, "changed")


@pytest.mark.parametrize(
    ("options", "time", "status"),
    [
        ((), "2026-11-25T04:59:00Z", Exit.OK),
        ((), "2026-11-25T05:00:00Z", Exit.FAILED),
        (("--manual",), "2026-11-25T05:00:00Z", Exit.OK),
    ],
)
def test_a_plan_by_the_clock(
    store: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], time: str, status: Exit
) -> None:
    """Without --now it holds in the hours of deleteWhen, with --manual at any hour."""
    clocks = [parse_time(each) * 1_000_000 for each in ("2026-11-25T04:00:00Z", time)]
    monkeypatch.setattr("time.time_ns", lambda: clocks[0])
    plan = saved(store, "--disk-used-percent", "50", "--time-zone", "UTC", *options)
    monkeypatch.setattr("time.time_ns", lambda: clocks[1])
    assert rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread").status == status


def test_a_plan_of_another_store_is_refused(store: Path, unpacked: GoldenStore) -> None:
    """Names and sizes are the same in many stores: times are looked at, too."""
    plan = saved(store, *OPTIONS)
    other = copied(unpacked("5.3.3-crc32-property"), store.parent / "other")
    with unchanged(other):
        assert rmqtool("clean", other, "--plan", plan, "--yes", "--allow-unread").status == Exit.FAILED


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "rmqtool.clean-plan/1"}', '{"schema": "rmqtool.rebuild-plan/1"}', "\0"]
)
def test_what_is_no_plan(store: Path, text: str) -> None:
    plan = store.parent / "plan.json"
    plan.write_text(text)
    with unchanged(store):
        assert rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread").status == Exit.USAGE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("now", "yesterday"), ("zone", 5), ("zone", "Mars/Olympus"), ("disk_used_percent", "full"), ("options", [])),
        *(("options", {"maxMessageSize": "1"}), ("options", {"fileReservedTime": 5}), ("broker_version", "x")),
    ],
)
def test_odd_options_of_a_plan(store: Path, name: str, value: Any) -> None:
    """A plan that somebody has written to is a usage error."""
    plan = saved(store, *OPTIONS)
    document = json.loads(plan.read_text())
    document["options"][name] = value
    plan.write_text(json.dumps(document))
    with unchanged(store):
        assert rmqtool("clean", store, "--plan", plan, "--yes", "--allow-unread").status == Exit.USAGE


@pytest.mark.parametrize(
    "options",
    [
        ["--plan", "plan", "--dry-run"],
        ["--plan", "plan", "--save-plan", "other"],
        ["--plan", "plan", "--now", "2026-11-25T04:00:00Z"],
        ["--plan", "plan", "--manual"],
        ["--plan", "plan", "--disk-used-percent", "0"],
        ["--plan", "plan", "--file-reserved-time", "24"],
        ["--plan", "plan", "--broker-version", "5.3"],
        ["--save-plan", "plan", "--all-runs"],
    ],
)
def test_options_that_do_not_fit(store: Path, options: list[str]) -> None:
    with unchanged(store):
        found = rmqtool("clean", store, *options)
    assert found.status == Exit.USAGE
    assert found.err.startswith("rmqtool: --")


def test_why_it_deletes_at_any_hour(store: Path) -> None:
    """Since it was asked to, and that stands below the answer, too."""
    options = ("--now", "2026-11-25T03:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50", "--manual")
    found = rmqtool("clean", store, "--dry-run", *options)
    answer, *facts = found.out.splitlines()
    assert "(576 KiB) for good: they have expired, and --manual deletes at any hour; " in answer
    assert [line for line in facts if line.startswith("manual  ")] == [
        "manual       yes, as after mqadmin deleteExpiredCommitLog: expired files are deleted at any hour"
    ]
