"""Stores of DLedger nodes as they are: every command reads their log as it reads a plain one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import rmqtool as library
from rmqtool.base.errors import Exit, UnreadableError
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.findings.report import Report
from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, INDEX_DTYPE
from rmqtool.formats.layout import position_of
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.index_files import list_index_files
from rmqtool.store.store import open_store
from rmqtool.verify.entry_checks import EntryChecks, UnreadUnits
from tests.commands.running import inspect, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import NODE, entry_log
from tests.unchanged import unchanged
from tests.verify.damages import overwrite
from tests.verify.small_store import FILE_SIZE, finish
from tests.verify.verifying import facts, verify

STORES = ["more/4.9.7-dledger", "more/5.3.3-dledger", "more/5.3.3-converted"]
WHOLE = 1 << 40
INDEX_AT = position_of(ENTRY_DTYPE, "index")

pytestmark = pytest.mark.budget(1)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, golden_store: GoldenStore) -> Path:
    return golden_store(request.param)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A node with 120 messages, their queues and their index."""
    return finish(entry_log(120).write(tmp_path / "store"))


def listed(store: Path) -> list[dict[str, Any]]:
    """All messages of both logs, as inspect lists them."""
    parts = [part for part in ("commitlog", NODE) if (store / part).is_dir()]
    return [row for part in parts for row in inspect(store, "--json", part=part).of_kind("message")]


def queue_files(root: Path) -> dict[str, bytes]:
    folder = root / "consumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_verify(store: Path) -> None:
    """Nothing is wrong with what a real node wrote; only its start is not predicted, in one sentence."""
    with unchanged(store):
        document = rmqtool("verify", store, "--json").document
    result = document["result"]
    assert [each for each in document["findings"] if each["severity"] != "info"] == []
    assert {each["code"] for each in document["findings"]} == {"config.missing"}
    assert (result["verdict"], result["start"]) == ("unproven", None)
    assert [each["what"] for each in result["not_checked"]] == ["the start of a DLedger node"]
    assert result["start_not_predicted"].startswith("a node of a DLedger group recovers by Raft")
    assert result["messages"] == len(listed(store))
    assert rmqtool("verify", store, "--skip", "start").status == Exit.OK


def test_rebuilds(store: Path, tmp_path: Path) -> None:
    """Queues are those of the broker, byte for byte, and the index has all of its units: nothing is to be changed."""
    with unchanged(store):
        assert rmqtool("rebuild-cq", store, "--output", tmp_path / "queues").status == Exit.OK
        for command in ("rebuild-cq", "rebuild-index"):
            done = rmqtool(command, store, "--dry-run", "--json").document
            assert done["result"]["state"] == "nothing", command
    assert queue_files(tmp_path / "queues") == queue_files(store) != {}
    index = list_index_files(open_store(store))
    assert sum(file.keys for file in index) > 700


def test_rebuilds_of_what_is_lost(store: Path, tmp_path: Path) -> None:
    """Queues and index that are gone are made again in the store itself; undo takes it back."""
    root = copied(store, tmp_path / "store")
    log = {path: path.read_bytes() for path in (root / NODE).rglob("*") if path.is_file()}
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    assert rmqtool("rebuild-cq", root, "--yes").status == Exit.OK
    assert queue_files(root) == queue_files(store)
    for path in (root / "index").iterdir():
        path.unlink()
    (conf := tmp_path / "broker.conf").write_text("maxHashSlotNum=50\nmaxIndexNum=1000\n")
    options = ("--broker-conf", conf, "--broker-version", re.findall(r"[\d.]+", store.name)[0])
    assert rmqtool("rebuild-index", root, "--yes", *options).status == Exit.OK
    units = [sum(file.keys for file in list_index_files(open_store(each))) for each in (root, store)]
    assert units[0] == units[1]
    assert {path: path.read_bytes() for path in log} == log
    assert rmqtool("undo", root, "--yes").status == Exit.OK


@pytest.mark.slow
def test_query(store: Path) -> None:
    """By unique key, key, physical offset, queue offset and time, and by pulling as a consumer does."""
    messages = listed(store)
    for wanted in (messages[2], messages[217], messages[-1]):
        offset = wanted["physical_offset"]
        at = ("--topic", wanted["topic"], "--queue", str(wanted["queue_id"]))
        moment = str(wanted["store_timestamp"])
        for options in (
            ("--unique-key", wanted["unique_key"]),
            ("--key", wanted["keys"][0], *at[:2], "--limit", "1000"),
            ("--offset", str(offset)),
            ("--msg-id", wanted["message_id"]),
            ("--queue-offset", str(wanted["queue_offset"]), *at),
            ("--scan", "--from", moment, "--to", str(wanted["store_timestamp"] + 1)),
            ("--pull", "--queue-offset", str(wanted["queue_offset"]), *at),
        ):
            found = rmqtool("query", store, *options, "--json")
            assert found.status == Exit.OK, (options, found.err)
            rows = found.lines[0].get("messages", found.lines)
            assert offset in [row["physical_offset"] for row in rows], options
    traced = rmqtool("query", store, "--offset", str(messages[-1]["physical_offset"]), "--trace", "--json")
    assert traced.status == Exit.OK


def test_export(store: Path, tmp_path: Path) -> None:
    """Every message once, as inspect lists it; the check of what was exported agrees."""
    with unchanged(store):
        assert rmqtool("export", store, "--output", tmp_path / "out").status == Exit.OK
    rows = pq.read_table(tmp_path / "out").select(["physical_offset", "queue_offset", "unique_key"]).to_pylist()
    rows.sort(key=lambda row: row["physical_offset"])
    assert rows == [{name: message[name] for name in rows[0]} for message in listed(store)]
    assert rmqtool("export", store, "--check", tmp_path / "out").status == Exit.OK


@pytest.mark.slow
def test_library(store: Path) -> None:
    """Messages, units, and what verify says."""
    opened = library.open(store)
    found = [(message.physical_offset, message.queue_offset) for message in opened.messages()]
    assert found == [(message["physical_offset"], message["queue_offset"]) for message in listed(store)]
    assert opened.verify().verdict == "unproven"
    assert not opened.verify().plan


@pytest.mark.slow
def test_pending_and_report(store: Path, tmp_path: Path) -> None:
    """Nothing is owed; the page has all messages."""
    with unchanged(store):
        assert rmqtool("pending", store, "--json").status == Exit.OK
        assert rmqtool("report", store, "-o", tmp_path / "page.html").status in (Exit.OK, Exit.LOSSY)
        assert rmqtool("bundle", store, "-o", tmp_path / "bundle.tar.gz").status in (Exit.OK, Exit.LOSSY)
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_clean(store: Path) -> None:
    """A node keeps its files an hour longer; with plain files before it, nothing of it goes."""
    last = listed(store)[-1]["store_timestamp"]
    options = ("--dry-run", "--json", "--now", str(last + 72 * 3_600_000 + 1_800_000), "--time-zone", "UTC",
               "--delete-when", ";".join(map(str, range(24))))  # fmt: skip
    with unchanged(store):
        found = rmqtool("clean", store, *options)
    if (store / "commitlog").is_dir():
        reasons = [each["reason"] for each in found.document["result"]["kept"]]
        assert reasons == ["last-file", "plain-files", "plain-files", "plain-files"]
    assert found.document["result"]["passes"][0]["commit_log"] == []
    later = (*options[:3], str(last + 73 * 3_600_000 + 1_800_000), *options[4:])
    files = rmqtool("clean", store, *later).document["result"]["passes"][0]["commit_log"]
    assert [each["reason"] for each in files] == ([] if (store / "commitlog").is_dir() else ["expired", "expired"])


@pytest.mark.parametrize("start", [0, 500, 48, FILE_SIZE])
def test_damage(small: Path, start: int, tmp_path: Path) -> None:
    """It is found at its physical offset, and the plan does not name what would be refused."""
    overwrite(small, f"{NODE}/data/{start // FILE_SIZE * FILE_SIZE:020d}", start % FILE_SIZE, b"\xa5" * 300)
    document = rmqtool("verify", small, "--json").document
    assert document["result"]["verdict"] == "corrupt"
    damage = [each for each in document["findings"] if each["code"].startswith("commitlog.")]
    assert any(start - 600 < each["offset"] <= start + 48 for each in damage if each["severity"] == "error")
    [step] = document["result"]["plan"]["steps"]
    assert step["command"] == f"rmqtool salvage {small} --output NEW"
    remedies = [each["remedy"] for each in document["findings"] if each["remedy"]]
    assert not [remedy for remedy in remedies if remedy.startswith("rmqtool repair")]
    for remedy in remedies:
        if not remedy.startswith("rmqtool salvage"):
            assert rmqtool(*remedy.split()[1:]).status in (Exit.OK, Exit.FINDINGS, Exit.LOSSY), remedy


@pytest.mark.slow
def test_the_index_of_entries(small: Path) -> None:
    """One that is gone, cut, or leads elsewhere is a warning; a gap between its files is an error, with what to do."""

    def found() -> list[dict[str, Any]]:
        findings = rmqtool("verify", small, "--json").document["findings"]
        return [each for each in findings if each["code"] == "store.dledger-index"]

    index, units = small / NODE / "index", entry_log(120).entry_index()
    first = index / f"{0:020d}"
    assert found() == []
    first.write_bytes(units.ljust(8192, b"\0"))
    assert found() == []
    first.write_bytes(units[: 32 * 100])
    assert found()[0]["message"] == "no index entry points to 2 of 4 entries that are looked up"
    first.write_bytes(units[: 32 * 119])
    assert found()[0]["message"] == "no index entry points to 1 of 4 entries that are looked up"
    first.write_bytes(units[:1024])
    (index / f"{2048:020d}").write_bytes(units[2048:])
    [finding] = found()
    assert (finding["severity"], "does not start" in finding["effect"]) == ("error", True)
    assert finding["remedy"] == f"mv {index} {index}.old"
    for path in index.iterdir():
        path.unlink()
    [finding] = found()
    assert (finding["message"], finding["severity"]) == ("there is no file of the index", "warning")
    document = rmqtool("verify", small, "--json").document
    assert document["result"]["verdict"] in ("dirty", "unproven")


@pytest.mark.slow
@pytest.mark.parametrize("field", ["position", "size", "index", "term", ""])
def test_the_units_that_no_start_makes_anew(small: Path, field: str) -> None:
    """One before the third last file that does not point to its entry is an error, and what heals it is the plan."""
    log = entry_log(120)
    index = small / NODE / "index" / f"{0:020d}"
    in_file = [number for number, offset in enumerate(log.offsets) if offset // FILE_SIZE == 2]
    wrong, later = in_file[1], len(log.offsets) - 2
    units = np.frombuffer(log.entry_index(), INDEX_DTYPE).copy()
    for row in (wrong, later):  # a start makes the later one again
        if field:
            units[field][row] += 8
        else:
            units[row] = 0
    index.write_bytes(units.tobytes())
    result = rmqtool("verify", small, "--json")
    found = [each for each in result.document["findings"] if each["code"] == "store.dledger-index"]
    if field in ("index", "term"):  # which nobody reads there
        assert found == []
        return
    [finding] = found
    assert finding["message"] == f"the index entry of the Raft index {wrong} does not point to its entry"
    assert (finding["severity"], finding["offset"], finding["count"]) == ("error", log.offsets[wrong], 1)
    assert result.document["result"]["verdict"] == "corrupt"
    [step] = result.document["result"]["plan"]["steps"]
    assert step["command"] == finding["remedy"] == f"mv {index.parent} {index.parent}.old"


@pytest.mark.slow
@pytest.mark.parametrize("is_link", [True, False])
def test_an_index_of_entries_that_cannot_be_read(small: Path, is_link: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, and the log is verified."""
    index = small / NODE / "index" / f"{0:020d}"
    index.write_bytes(entry_log(120).entry_index())

    def broken(*_: object) -> None:
        raise UnreadableError("cannot read: input/output error", file=index)

    if is_link:
        index.unlink()
        index.symlink_to(index)
    else:
        monkeypatch.setattr(UnreadUnits, "read", broken)
    outcome = verify(small)
    [finding] = [each for each in outcome.findings if each.severity == "error"]
    assert (finding.code, finding.file) == ("store.unreadable", f"{NODE}/index/{0:020d}")
    assert outcome.total.totals.messages == 120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("position", 1, "gives the position {position}, and is at {place}"),
        ("body_size", -2, "gives its message {size} bytes, and that has {other}"),
        ("index", 1024, "has the Raft index 1124 after 99"),
        ("term", -1, "has the Raft term 0 after 1"),
        ("channel", 1, ""),
        ("body_crc", 1, ""),
    ],
)
def test_the_header_of_an_entry(small: Path, field: str, change: int, message: str) -> None:
    """A start cuts the log at what does not fit, though messages are served; what nobody reads may be anything."""
    offset = entry_log(120).offsets[100]
    place = offset - ENTRY_HEADER_SIZE
    name = f"{NODE}/data/{place // FILE_SIZE * FILE_SIZE:020d}"
    header = np.frombuffer((small / name).read_bytes(), ENTRY_DTYPE, 1, place % FILE_SIZE).copy()
    header[field] += change
    overwrite(small, name, place % FILE_SIZE, header.tobytes())
    [*found] = [each for each in rmqtool("verify", small, "--json").document["findings"] if each["severity"] == "error"]
    size = int(header["body_size"][0])
    told = message.format(position=place + 1, place=place, size=size, other=size + 2)
    expected = [("commitlog.entry-header", offset, f"the entry {told}")] if message else []
    assert [(each["code"], each["offset"], each["message"]) for each in found] == expected
    assert len(listed(small)) == 120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("committedIndex=3x9\nendIndex=399\n", "3x9"),
        ("committedIndex=\u00b9\n", "\u00b9"),
        ("committedIndex=9999\n", ""),
        ("committedIndex= 12 \n", ""),
        ("committedIndex=\nendIndex=399\n", ""),
        ("committedIndey=x\n", ""),
    ],
)
def test_the_checkpoint_of_a_node(small: Path, text: str, told: str) -> None:
    """No node starts where a number is none; it does without one."""
    (small / NODE / "checkpoint").write_text(text)
    findings = rmqtool("verify", small, "--json").document["findings"]
    found = [each for each in findings if each["code"] == "store.dledger-checkpoint"]
    expected = [(f"{NODE}/checkpoint", f"committedIndex={told} is not a number", "error")] if told else []
    assert [(each["file"], each["message"], each["severity"]) for each in found] == expected
    assert [each["remedy"] for each in found] == [f"mv {small / NODE}/checkpoint {small / NODE}/checkpoint.old"] * bool(
        told
    )


def test_headers_of_entries_in_several_runs(small: Path) -> None:
    """The first entry of a run is held against the last one before, where no byte lies between."""
    log = list_mapped_files(small / NODE / "data", header_size=ENTRY_HEADER_SIZE)
    first = next(event for event in scan_files(log.files) if isinstance(event, RecordRun))

    def found(*runs: RecordRun) -> list[str]:
        report = Report()
        checks = EntryChecks(report)
        for run in runs:
            checks.add(run)
        return [finding.message for finding in report.findings()]

    assert found(first[:1], first[1:4], first[4:]) == []
    assert found(first[:3], first[4:]) == []  # an extent of damage lies between: it is told apart
    first.block.data[int(first.positions[3]) - ENTRY_HEADER_SIZE + INDEX_AT] = 1
    assert found(first[:3], first[3:4], first[5:]) == [f"the entry has the Raft index {(1 << 56) + 3} after 2"]


@pytest.mark.parametrize("cut", [0, 3000])
def test_a_file_of_another_size(small: Path, cut: int) -> None:
    """No node starts with it, nor with files of another size than broker.conf says; nothing says otherwise."""
    os.truncate(small / NODE / "data" / f"{12288:020d}", cut)
    findings = rmqtool("verify", small, "--json").document["findings"]
    wrong = {each["code"]: each for each in findings if each["code"] in ("commitlog.file-size", "commitlog.empty-file")}
    [finding] = wrong.values()
    assert (finding["severity"], "the node does not start" in finding["effect"]) == ("error", True)
    [gap] = [each for each in findings if each["code"] == "commitlog.gap"]
    assert gap["effect"].startswith("the node does not start: `check data file order failed")


@pytest.mark.slow
def test_a_size_in_broker_conf(small: Path, tmp_path: Path) -> None:
    (conf := tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=8192\n")
    for command in ("verify", "inspect"):
        findings = rmqtool(command, small, "--json", "--broker-conf", conf).document["findings"]
        [finding] = [each for each in findings if each["code"] == "commitlog.file-size"]
        assert "4096 bytes, and broker.conf says mappedFileSizeCommitLog=8192" in finding["message"]
        assert "the node does not start" in finding["effect"]
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    findings = rmqtool("verify", small, "--json", "--broker-conf", conf).document["findings"]
    assert "commitlog.file-size" not in {each["code"] for each in findings}


@pytest.mark.slow
def test_a_loss_on_record(small: Path) -> None:
    """A rebuild of a node's queues has recorded it, verify reports it, and repair --acknowledge removes the record."""
    max((small / NODE / "data").iterdir()).unlink()
    assert rmqtool("rebuild-cq", small, "--yes").status == Exit.OK
    document = rmqtool("verify", small, "--json").document
    assert "store.recorded-loss" in {each["code"] for each in document["findings"]}
    command = document["result"]["plan"]["steps"][-1]["command"]
    assert command == f"rmqtool repair {small} --acknowledge"
    before = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    assert rmqtool(*command.split()[1:], "--yes").out.startswith("lost: rebuild-cq of ")
    after = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    assert {str(path) for path in before.keys() - after.keys() if "loss" not in path.name} == set()
    assert {path: data for path, data in before.items() if path in after} == after
    found = {each["code"] for each in rmqtool("verify", small, "--json").document["findings"]}
    assert "store.recorded-loss" not in found
    refused = rmqtool("repair", small, "--yes")
    assert (refused.status, "a DLedger store" in refused.err) == (Exit.FAILED, True)


@pytest.mark.slow
def test_damage_of_queues(small: Path) -> None:
    """The plan rebuilds them."""
    overwrite(small, f"consumequeue/orders/0/{0:020d}", 40, bytes(10))
    document = rmqtool("verify", small, "--json").document
    assert document["result"]["verdict"] == "corrupt"
    commands = [step["command"] for step in document["result"]["plan"]["steps"]]
    assert commands == [f"rmqtool rebuild-cq {small}"]
    assert rmqtool("rebuild-cq", small, "--yes").status == Exit.OK
    assert rmqtool("verify", small, "--json").document["result"]["verdict"] == "unproven"


@pytest.mark.slow
@pytest.mark.parametrize("is_damaged", [False, True])
def test_parts_give_the_same(small: Path, is_damaged: bool, tmp_path: Path) -> None:
    """The log in parts, and several processes: what one pass gives."""
    if is_damaged:
        overwrite(small, f"{NODE}/data/{FILE_SIZE:020d}", 700, b"\xa5" * 300)
    assert facts(verify(small, part_size=700)) == facts(verify(small, part_size=WHOLE))
    trees = []
    for jobs in ("1", "3"):
        output = tmp_path / jobs
        assert rmqtool("rebuild-cq", small, "--output", output, "--jobs", jobs).status in (Exit.OK, Exit.LOSSY)
        trees.append(queue_files(output))
    assert trees[0] == trees[1] != {}


def test_json_of_an_overview_is_as_before(store: Path) -> None:
    """The log's own numbers are those of the entries; what was before DLedger is named apart."""
    log = json.loads(inspect(store, "--json").out)["result"]["commit_log"]
    assert (log["before_dledger"] is not None) == (store / "commitlog").is_dir()
    assert log["files"] == 3
