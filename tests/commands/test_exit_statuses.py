"""What a command exits with, and what it says when it cannot go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import ROOT, Result, check_json, environment, inspect, listing, rmqtool
from tests.conftest import GoldenStore
from tests.rights import NOBODY, needs_root
from tests.unchanged import unchanged


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log of three messages and nothing else."""
    return LogBuilder().add_all({"queue_offset": number} for number in range(3)).write(tmp_path / "store")


def assert_says(found: Result, status: Exit, *words: str) -> None:
    """Assert status and words of an error, on standard error alone."""
    assert found.status == status
    assert found.out == ""
    assert found.err.startswith("rmqtool: ")
    assert [word for word in words if word not in found.err] == []


def assert_tells(found: Result, *words: str) -> None:
    """Assert that an overview is there, and in it what could not be read."""
    assert found.status == Exit.LOSSY
    assert found.out.startswith("store ")
    assert [word for word in ("error: ", *words) if word not in found.out] == []


def test_done(store: Path) -> None:
    """A sound store gives 0, with a scan too."""
    assert [inspect(store).status, inspect(store, "--scan").status, listing(store).status] == [Exit.OK] * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["inspect"], "PATH"),
        (["inspect", "{store}", "--nonsense"], "--nonsense"),
        (["inspect", "{store}", "extra"], "extra"),
        (["inspect", "{store}/commitlog", "--limit", "-1"], "--limit"),
        (["inspect", "{store}/commitlog", "--limit", "many"], "'many' is not a whole number"),
        (["inspect", "{store}/commitlog", "--limit", str(1 << 63)], "--limit"),
        (["query", "{store}", "--key", "k", "--topic", "t", "--limit", str(1 << 63)], "--limit"),
        (["inspect", "{store}/commitlog", "--body", "some"], "--body"),
        (["inspect", "{store}/commitlog", "--from-offset", "-1"], "--from-offset"),
        (["inspect", "{store}/commitlog", "--scan"], "--scan is for a whole store"),
        (["inspect", "{store}", "--limit", "1"], "--limit: for a part of a store only"),
        (["inspect", "{store}", "--to-offset", "1"], "--to-offset: for a part of a store only"),
        (["inspect", "{store}", "--body", "none"], "--body: for a part of a store only"),
        (["inspect", "{store}", "--broker-version", "3.2"], "3.2"),
        (["inspect", "{store}", "--broker-version", "newest"], "newest"),
        (["inspect", "{store}", "--limit-rate", "fast"], "fast"),
        (["inspect", "{store}", "--limit-rate", "0"], "0"),
        (["inspect", "{store}", "--color", "blue"], "blue"),
    ],
)
def test_usage(store: Path, arguments: list[str], words: str) -> None:
    """A command line that is wrong gives 2 and says which word of it; under --json on standard output."""
    with unchanged(store):
        line = [argument.format(store=store) for argument in arguments]
        assert_says(rmqtool(*line), Exit.USAGE, words)
        found = rmqtool("--json", *line)
    assert (found.status, found.err) == (Exit.USAGE, "")
    assert words in found.document["error"]["message"]
    assert found.document["exit"] == {"code": 2, "name": "usage"}


def test_usage_names_what_helps(store: Path) -> None:
    """The hint is a command line that works."""
    found = inspect(store, "--limit", "1")
    assert found.err.splitlines()[-1] == f"  rmqtool inspect {store}/commitlog --limit ..."
    assert inspect(store, "--nope").err.splitlines()[-1] == "  rmqtool inspect --help"


def test_damage(store: Path) -> None:
    """Bytes that are no message give 3, in a scan and in a listing, and 0 where nobody looked at them."""
    file = store / "commitlog" / "0".zfill(20)
    data = bytearray(file.read_bytes())
    data[200:204] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    assert inspect(store).status == Exit.OK
    scanned = inspect(store, "--scan", "--json")
    assert scanned.status == scanned.document["exit"]["code"] == Exit.LOSSY
    assert scanned.document["result"]["scan"]["damage"]["count"] == 1
    assert inspect(store, "--scan").status == Exit.LOSSY
    assert "damage" in inspect(store, "--scan").out
    assert listing(store).status == Exit.LOSSY
    assert listing(store, "--limit", "1").status == Exit.OK


def test_findings_of_an_overview_show_their_code(store: Path) -> None:
    """For `explain`; they are no judgement, which is that of verify: the status is 0."""
    (store / "abort").touch()
    found = inspect(store)
    assert found.status == Exit.OK
    assert "(store.unclean-stop)" in found.out


def test_not_a_store(tmp_path: Path) -> None:
    """A directory without a store gives 6 and says where one is."""
    LogBuilder().add_all([{}]).write(tmp_path / "rocketmq" / "store")
    assert_says(inspect(tmp_path), Exit.NOT_A_STORE, str(tmp_path), "not a RocketMQ store", "storePathRootDir")
    parent = tmp_path / "rocketmq"
    assert_says(inspect(parent), Exit.NOT_A_STORE, f"the store seems to be {parent / 'store'}")
    inside = parent / "store" / "lost+found"
    inside.mkdir()
    assert_says(inspect(inside), Exit.NOT_A_STORE, f"the store seems to be {parent / 'store'}")
    assert inspect(tmp_path, "--json").document["error"]["kind"] == "not-a-store"


def test_dledger(tmp_path: Path) -> None:
    """A DLedger store is named as such; commands that do not take it name the one that makes another of it."""
    store = tmp_path / "store"
    (store / "dledger-n0" / "data").mkdir(parents=True)
    (store / "commitlog").mkdir()
    assert inspect(store, "--json").document["result"]["broker"]["layout"] == "dledger"
    refused: tuple[tuple[str | Path, ...], ...] = (
        ("repair", store),
        ("rebuild-cq", store, "--neutralise"),
        ("clean", store, "--yes"),
    )
    for command in refused:
        result = rmqtool(*command)
        assert result.status == Exit.FAILED, command
        assert "a DLedger store (dledger-n0/), which " in result.err
        assert f"rmqtool convert {store} --output NEW" in result.err
    assert rmqtool("diff", store, store).status == Exit.OK
    assert rmqtool("salvage", store, "--output", tmp_path / "new").status == Exit.FINDINGS


@pytest.mark.parametrize("part", ["nowhere", "commitlog/00000000000000004096"])
def test_missing(store: Path, part: str) -> None:
    """A path that is not there gives 4 and is named."""
    assert_says(inspect(store, part=part), Exit.FAILED, str(store / part), "no such file")


@pytest.mark.parametrize("part", ["commitlog/readme", "notes", "config/notes.txt"])
def test_unknown_kind(store: Path, part: str) -> None:
    """A file whose place says nothing gives 4 and the way out."""
    (store / part).parent.mkdir(exist_ok=True)
    (store / part).write_bytes(b"?")
    assert_says(inspect(store, part=part), Exit.FAILED, str(store / part), "--as KIND")


def test_a_file_as_store(store: Path) -> None:
    """A file is no store, even when asked to be one."""
    file = "commitlog/00000000000000000000"
    assert_says(inspect(store, "--as", "store", part=file), Exit.FAILED, file, "store directory should be")


@pytest.mark.parametrize("command", ["verify", "inspect", "clean", "rebuild-cq", "query", "pending", "report", "undo"])
def test_a_file_given_by_mistake_may_stay(tmp_path: Path, command: str) -> None:
    """A path that is given by mistake may be any file of the system."""
    (tmp_path / "passwd").write_bytes(b"root:x:0:0\n")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path / 'passwd'}\n")
    options = {
        "clean": ["--dry-run"],
        "rebuild-cq": ["--dry-run"],
        "query": ["--offset", "0"],
        "report": ["-o", str(tmp_path.parent / "report.html")],
    }.get(command, [])
    alone = rmqtool(command, tmp_path / "passwd", *options)
    assert alone.status == (Exit.FAILED if command == "inspect" else Exit.NOT_A_STORE)
    as_log = rmqtool(command, tmp_path, *options, "--broker-conf", conf)
    assert "move" not in alone.err + as_log.out + as_log.err


@pytest.mark.parametrize("part", ["checkpoint", "index/20240101000000000", "commitlog"])
def test_wrong_sort_of_entry(store: Path, part: str) -> None:
    """A directory in place of a file, or a file in place of a directory, is told beside the rest of the store."""
    path = store / part
    if part == "commitlog":
        shutil.rmtree(path)
        path.write_bytes(b"")
        assert_tells(inspect(store), part, "not a directory")
        assert_says(inspect(store, part=part), Exit.FAILED, str(path))
        return
    path.mkdir(parents=True)
    if part == "checkpoint":
        assert_tells(inspect(store), part, "a directory where a file should be")
    else:
        assert inspect(store, "--json").document["result"]["index"] == []


def test_a_fifo_in_the_log(store: Path) -> None:
    """A named pipe among the files is a finding and never waited for; asked for alone it gives 4."""
    pipe = store / "commitlog" / "00000000000000004096"
    os.mkfifo(pipe)
    found = inspect(store, "--scan", "--json")
    assert found.status == Exit.OK
    assert [(finding["code"], finding["file"]) for finding in found.document["findings"]] == [
        ("commitlog.stray", f"commitlog/{pipe.name}")
    ]
    assert len(listing(store).of_kind("message")) == 3
    assert_says(inspect(store, part=f"commitlog/{pipe.name}"), Exit.FAILED, str(pipe), "not a regular file")


@pytest.fixture
def open_store() -> Iterator[Path]:
    """A store that everybody may read, outside of pytest's own directories, which nobody else may enter."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield LogBuilder(file_size=320).add_all([{}] * 4).write(Path(directory) / "store")


@pytest.mark.slow
@needs_root
def test_no_permission(open_store: Path) -> None:
    """A store that this user may not read gives 4, is named, and the hint says who may."""
    open_store.chmod(0)
    with unchanged(open_store):
        found = as_nobody("inspect", open_store)
    assert_says(found, Exit.FAILED, str(open_store), "permission denied", "run as the broker's user")


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("part", ["commitlog", "commitlog/00000000000000000000"])
def test_no_permission_for_a_part(open_store: Path, part: str) -> None:
    """A part that this user may not read is told beside the rest, with who may."""
    (open_store / part).chmod(0)
    with unchanged(open_store):
        found = as_nobody("inspect", open_store)
    assert_tells(found, part, "permission denied", "run as the broker's user")


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize(("number", "messages"), [(0, 1), (1, 3)])
def test_a_scan_passes_over_what_it_may_not_read(open_store: Path, number: int, messages: int) -> None:
    """The other file's messages are counted, and the status says that not all are."""
    sorted((open_store / "commitlog").iterdir())[number].chmod(0)
    with unchanged(open_store):
        found = as_nobody("inspect", open_store, "--scan", "--json")
    assert found.status == Exit.LOSSY
    assert found.document["result"]["commit_log"]["messages"] == messages
    assert {finding["code"] for finding in found.document["findings"]} == {"store.unreadable"}


@pytest.mark.slow
@needs_root
def test_an_error_after_lines_is_a_line(open_store: Path) -> None:
    """Once JSON lines have begun, an error is the last of them, and the status says so too."""
    second = open_store / "commitlog" / "00000000000000000320"
    second.chmod(0)
    with unchanged(open_store):
        found = as_nobody("inspect", open_store / "commitlog", "--json")
    check_json(found.out)
    assert (found.status, found.err) == (Exit.FAILED, "")
    assert [line["kind"] for line in found.lines] == ["message", "message", "message", "blank", "error"]
    error = found.lines[-1]
    assert (error["error"], error["file"]) == ("unreadable", str(second))
    assert "permission denied" in error["message"]


def as_nobody(*arguments: str | Path) -> Result:
    """Run the command line as a user who owns nothing; modules are loaded before the change."""
    code = (
        "import os, sys; import rmqtool.show.overview, rmqtool.show.overview, rmqtool.inspect.overview;"
        "import rmqtool.inspect.registry, multiprocessing.connection;"
        "import rmqtool.inspect.commit_log, rmqtool.scan.rows, rmqtool.show.messages;"
        "import rmqtool.inspect.log_statistics, rmqtool.inspect.locate, rmqtool.commands.inspect;"
        f"from rmqtool.cli import run; os.seteuid({NOBODY});"
        "sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, check=False)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_an_empty_log(golden_store: GoldenStore) -> None:
    """A store without a message is sound; its listing is empty, and a person is told so."""
    store = golden_store("5.3.3-empty")
    assert inspect(store).status == inspect(store, "--scan").status == Exit.OK
    assert (listing(store).status, listing(store).out) == (Exit.OK, "")
    assert "nothing is stored" in inspect(store, part="commitlog").err
    assert inspect(store, "-q", part="commitlog").err == ""
