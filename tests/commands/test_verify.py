"""`rmqtool verify`: options, text, JSON and JUnit, exit statuses, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from xmlschema import XMLSchema

from tests.benchmarks.logs import make_log, message_count
from tests.commands.running import Result, environment, finish, rmqtool, spawn, wait_until_it_reads
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.rights import NOBODY, needs_root
from tests.unchanged import unchanged
from tests.verify.damages import DAMAGES, OFFSETS, log_file, overwrite
from tests.verify.small_store import TOPICS, small_store

LOG = f"commitlog/{0:020}"
WIDTH = 80

DOCUMENTED = [
    pytest.param(name, marks=pytest.mark.slow if number % 8 else []) for number, name in enumerate(DAMAGES)
]  # tests/verify/test_damages.py has all of them in a quick run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def damaged(store: Path, *names: str) -> Path:
    for name in names:
        DAMAGES[name].apply(store)
    return store


def verify(store: Path, *options: str | Path) -> Result:
    """Run verify, and assert that the store is as before."""
    with unchanged(store):
        return rmqtool("verify", store, *options)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """Exit status, verdict and findings agree, and the document is valid."""
    result = verify(golden_store(name), "--json")
    document = result.document
    killed = name.endswith("-killed")
    assert result.status == document["exit"]["code"] == (1 if killed else 0)
    assert document["result"]["verdict"] == ("dirty" if killed else "clean")
    assert document["result"]["messages"] == len(stores.oracle(name)["records"])
    assert document["result"]["bad_extents"] == []
    assert document["result"]["start"]["messages_lost"] == 0


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_documents_of_damaged_stores_are_valid(name: str, store: Path) -> None:
    """Whatever is wrong, and text says it too."""
    result = verify(damaged(store, name), "--json")
    assert result.status == 1
    assert DAMAGES[name].code in {finding["code"] for finding in result.document["findings"]}
    assert DAMAGES[name].code in verify(store).out


def test_a_finding_has_all_of_its_page(store: Path) -> None:
    """Place, effect and the next command."""
    found = verify(damaged(store, "body"), "--json", "--only", "commitlog").document["findings"]
    assert [(finding["code"], finding["fault"], finding["offset"]) for finding in found] == [
        ("commitlog.body-crc", "F16", OFFSETS[10])
    ]
    assert found[0]["effect"]
    assert str(store) in found[0]["remedy"]


def test_extents_and_map(store: Path) -> None:
    """The map covers the log without a gap, and bad where the extents are."""
    result = verify(damaged(store, "body", "zeros"), "--json").document["result"]
    assert [extent["physical_offset"] for extent in result["bad_extents"]] == [OFFSETS[10]]
    stretches = result["map"]
    assert [stretch["state"] for stretch in stretches][:2] == ["good", "bad"]
    ends = [stretch["physical_offset"] + stretch["size"] for stretch in stretches]
    assert [0, *ends] == [*(stretch["physical_offset"] for stretch in stretches), result["commit_log"]["max_offset"]]
    assert result["messages_lost"] == [{"topic": TOPICS[2], "messages": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("gone", [None, "consumequeue/orders", "consumequeue"])
def test_damage_is_counted_without_its_queues(tmp_path: Path, unpacked: GoldenStore, gone: str | None) -> None:
    """The queue offsets around damage tell what it held, as the queues do; it may be more where they are gone."""
    store = copied(unpacked("5.1.4-shop"), tmp_path / "store")
    overwrite(store, LOG, 10_000, bytes(range(250)) * 16)
    if gone:
        shutil.rmtree(store / gone)
    found = verify(store, "--json").document["result"]
    assert {"topic": "orders", "messages": 16} in found["messages_lost"]
    assert ("how many messages are damaged: at least" in str(found["unproven"])) is (gone is not None)
    [lost, *_] = [line for line in verify(store).out.splitlines() if "messages that cannot be read" in line]
    assert ("at least" in lost) is (gone is not None)


@pytest.mark.slow
def test_damage_that_nothing_leads_to_is_said_to_be_replaced(tmp_path: Path, unpacked: GoldenStore) -> None:
    """Before the first message of a queue nothing tells what it held."""
    store = copied(unpacked("5.1.4-shop"), tmp_path / "store")
    overwrite(store, LOG, 0, bytes(range(100)))
    shutil.rmtree(store / "consumequeue")
    plan = verify(store, "--json").document["result"]["plan"]
    [lost] = [text for step in plan["steps"] for text in step["lost"] if "damage" in text or "cannot be read" in text]
    assert "possibly more" in lost


@pytest.mark.slow
def test_data_loss_by_a_start_comes_first(store: Path) -> None:
    """The most valuable sentence stands before all others, and the map shows what a start would cut off."""
    damaged(store, "zeros", "abort")
    (store / "checkpoint").write_bytes(bytes(4096))
    result = verify(store)
    first = next(line for line in result.out.splitlines() if line.startswith(("error", "warning")))
    assert first.startswith("error: start.data-loss")
    assert "!" in result.out
    start = verify(store, "--json").document["result"]["start"]
    assert start["max_offset_after"] == OFFSETS[10]
    assert start["messages_lost"] == len(OFFSETS) - 11
    assert start["files_deleted"]


@pytest.mark.slow
def test_whose_messages_are_lost_is_named(tmp_path: Path, unpacked: GoldenStore) -> None:
    """The topics, those with the most messages first, and the groups with the offsets that they would have."""
    store = copied(unpacked("5.3.3-shop"), tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "orders")
    text = verify(store, "-v").out
    assert re.search(r"^lost     orders \d+ messages of \d queues$", text, re.MULTILINE)
    assert re.search(r"^groups   [^ ]+ at orders queue [0-9]: [0-9]+ instead of [0-9]+", text, re.MULTILINE)


def test_only_and_skip(store: Path) -> None:
    """By code, by prefix, several, and with commas."""
    damaged(store, "body", "slot", "hole")

    def codes(*options: str) -> set[str]:
        findings = verify(store, "--json", "--skip", "start", *options).document["findings"]
        return {finding["code"] for finding in findings}

    assert codes() == {"commitlog.body-crc", "index.slot", "consumequeue.hole"}
    assert codes("--only", "commitlog") == {"commitlog.body-crc"}
    assert codes("--only", "commitlog", "--only", "index.slot") == {"commitlog.body-crc", "index.slot"}
    assert codes("--only", "commitlog,index.slot") == {"commitlog.body-crc", "index.slot"}
    assert codes("--skip", "index,consumequeue.hole") == {"commitlog.body-crc"}
    assert verify(store, "--only", "commitlog.torn").status == 0


def test_an_unknown_code_is_refused(store: Path) -> None:
    """With those that may have been meant."""
    result = verify(store, "--only", "commitlog.bodycrc")
    assert result.status == 2
    assert "commitlog.body-crc" in result.err


@pytest.mark.slow
def test_examples_are_capped_and_counts_are_not(store: Path) -> None:
    """The last example stands for all that are not shown."""
    damaged(store, "no queue")
    every = verify(store, "--json", "--only", "index,commitlog,consumequeue").document["findings"]
    (store / "index" / "20231114221320001").write_bytes(bytes(40 + 160 + 8000))
    damaged(store, "body", "property crc")
    for name in ("body crc", "sys flag"):
        DAMAGES[name].apply(store)
    some = verify(store, "--json", "--max-examples", "1").document
    codes = [finding["code"] for finding in some["findings"]]
    assert len(codes) == len(set(codes))
    assert sum(finding["count"] for finding in every) >= len(every)
    found = {check["code"]: check["found"] for check in some["result"]["checks"]}
    for finding in some["findings"]:
        assert finding["count"] == found[finding["code"]]


def test_fast_reads_no_body(store: Path) -> None:
    """A damaged body is not seen then, and that is said."""
    result = verify(damaged(store, "body"), "--fast", "--json")
    assert result.status == 0
    assert any("--fast" in text for text in result.document["result"]["unproven"])


@pytest.mark.slow
def test_processes_find_the_same(store: Path) -> None:
    """Several processes give the findings of one."""
    damaged(store, "body", "zeros", "hole", "slot", "hash", "queue behind")
    options = ("--json", "--broker-version", "5.3.3")
    one, two = (verify(store, *options, "-j", jobs).document for jobs in ("1", "2"))
    assert one["findings"] == two["findings"]
    commands = [[step.pop("command") for step in each["result"]["plan"]["steps"]] for each in (one, two)]
    assert one["result"] == two["result"]
    assert [command and command.replace("--jobs 1", "--jobs 2") for command in commands[0]] == commands[1]


def test_the_plan_keeps_the_memory(store: Path) -> None:
    """What a verification may take, the commands that follow may take, too."""
    plan = verify(damaged(store, "hole"), "--json", "--memory", "256MiB").document["result"]["plan"]
    [command] = [step["command"] for step in plan["steps"] if step["command"]]
    assert command == f"rmqtool repair {store} --memory {256 << 20}"


AFTER = "  after: 1 message of 1 queue out of consumers' reach, 3 keys not found"


def test_a_plan_comes_last(store: Path) -> None:
    """Verdict and plan stand together at the end; without findings there is none, but the next command."""
    assert verify(store).err.splitlines()[-1] == f"next: rmqtool inspect {store}"
    found = verify(damaged(store, "hole", "body"), "--broker-version", "5.3.3")
    last = found.out.rpartition("\n\n")[2].splitlines()
    assert last[0].startswith("verdict  corrupt - see the findings; after a start now: 10 messages of 2 queues")
    assert last[1] == "What to do  Do not start a broker until step 1 is done"
    assert last[3].strip() == f"rmqtool repair {store} --broker-version 5.3.3"
    assert last[-2:] == ["  3. Start the broker.", AFTER]
    assert found.err == ""


@pytest.mark.slow
def test_the_verdict_says_what_a_start_would_lose(store: Path) -> None:
    """Above and below the findings; and what cannot be checked is told from what is wrong."""
    damaged(store, "zeros")
    now = verify(store, "--broker-version", "5.3.3").out
    (store / "abort").touch()
    (store / "checkpoint").unlink(missing_ok=True)
    found = verify(store, "--broker-version", "5.3.3").out
    (cut,) = re.findall(r"lost: (\d+) messages", found)
    first = found.partition("\n")[0]
    (lost,) = re.findall(r"corrupt - see the findings; after a start now: (\d+) messages of ", first)
    assert found.count(f"\n{first}\n") == 1
    assert int(lost) > int(cut)  # one is damaged, and light queues have some twice
    assert "after a start now: 1 message of 1 queue out of consumers' reach" in now
    assert re.search(r"^limits   not verified: topic, properties and header of ", found, re.MULTILINE)


def test_a_start_that_settings_prevent_is_said_to_be_none(store: Path, tmp_path: Path) -> None:
    """The line on the start, the finding, and the step of the plan agree."""
    conf = tmp_path / "broker.conf"
    conf.write_text("rocksdbCQDoubleWriteEnable=true\n")
    done = rmqtool("verify", store, "--broker-version", "5.5.0", "--broker-conf", conf)
    assert done.status == 1
    shown = " ".join(done.out.split())
    assert "start a broker 5.5.0 would not start with this broker.conf; without that it would recover" in shown
    assert "error: upgrade.refused" in shown
    assert "Change broker.conf before a broker of the named release starts (upgrade.refused)." in shown


@pytest.mark.slow
def test_findings_of_one_code_stand_together(store: Path) -> None:
    """The first three of them, and once what the broker does; all that are kept with -v."""
    shutil.rmtree(store / "consumequeue")
    found, all_of_them = verify(store).out, verify(store, "-v").out
    assert found.count("consumequeue.missing-queue (") == all_of_them.count("consumequeue.missing-queue (") == 1
    of_code = found[found.index("consumequeue.missing-queue (") :].partition("\n\n")[0]
    assert (of_code.count("  what: "), of_code.count("  broker: ")) == (3, 1)
    assert "-v shows more of them" in of_code
    assert all_of_them.count("  what: ") > found.count("  what: ")


@pytest.mark.slow
def test_text_fits_a_terminal(store: Path) -> None:
    """Facts and map in 80 columns; what to do comes last."""
    damaged(store, "body", "hole")
    process = spawn("verify", store, "--broker-version", "5.3.3", env=environment(COLUMNS=str(WIDTH)))
    result = finish(process)
    picture = [line for line in result.out.splitlines() if re.match(r" +\d+  [=X~!.]+$", line)]
    assert picture
    assert result.out.startswith("verdict  corrupt - see the findings; after a start now: ")
    assert max(map(len, picture)) <= WIDTH
    assert "  3. Start the broker.\n" in result.out
    assert "error: commitlog.body-crc (F16)" in result.out


def test_what_was_not_looked_at_is_in_the_first_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And why no start is predicted, further down."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    only = verify(store, "--only", "index").out.splitlines()
    assert only[0] == "verdict  unproven - no problems in the parts read; not checked: all but index (--only)"
    assert "start    not predicted: --only leaves it out; --only start predicts it" in only
    assert verify(store, "--only", "index").err.splitlines()[-1] == f"next: rmqtool verify {store}"
    (store / "consumequeue" / "CURRENT").touch()
    result = verify(store, "--fast", "--skip", "timer")
    assert result.out.splitlines()[0] == (
        "verdict  unproven - no problems in the parts read; not read: queues in RocksDB, bodies (--fast); "
        "not checked: timer (--skip)"
    )
    assert result.status == 3
    assert "start    not predicted: queues are in RocksDB, which needs the package rocksdict" in result.out


def test_a_clean_store_needs_no_more_words(store: Path) -> None:
    """Nothing was left out, and nothing would be lost."""
    lines = verify(store).out.splitlines()
    assert lines[0] == "verdict  clean"
    assert any(line.endswith("log intact; clients lose nothing") for line in lines)


def test_not_checked_in_json(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the codes that it may hide."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    (store / "consumequeue" / "CURRENT").touch()
    result = verify(store, "--json")
    assert (result.status, result.document["exit"]["name"]) == (3, "lossy")
    (gap,) = result.document["result"]["not_checked"]
    assert (gap["what"], gap["why"]) == ("queues in RocksDB", "not-supported")
    assert {"consumequeue.", "start."} <= set(gap["codes"])
    assert result.document["result"]["verdict"] == "unproven"
    assert "RocksDB" in result.document["result"]["start_not_predicted"]


@pytest.mark.slow
def test_quiet_and_verbose(golden_store: GoldenStore) -> None:
    """Quiet leaves the notes out, verbose shows what is only information."""
    store = golden_store("5.3.3-clean")
    assert verify(store, "-q").err == ""
    assert verify(store, "-q").out == "clean: clients lose nothing; nothing to do\n"
    assert "config.offset-out-of-range" not in verify(store).out
    assert "config.offset-out-of-range" in verify(store, "-v").out


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", DAMAGES)
def test_one_line(name: str, store: Path) -> None:
    """With -q verdict, loss and next step are one line, the same as those of the whole text."""
    damaged(store, name)
    document, quiet = verify(store, "--json").document["result"], verify(store, "-q")
    assert (quiet.err, quiet.out.count("\n")) == ("", 1)
    verdict, _, rest = quiet.out.rstrip("\n").partition(": ")
    loss, _, step = rest.partition("; next: ")
    assert verdict == document["verdict"]
    first = next(iter(document["plan"]["steps"]), None)
    assert step == ((first["command"] or first["text"]) if first else f"rmqtool inspect {store}")
    start = document["start"]
    if start is None:
        assert loss.startswith("what clients would lose is not predicted: ")
    else:
        assert loss.startswith("no broker starts: ") == bool(start["refuses"])
        told = re.search(r"after a start now: (.*)", verify(store).out)
        assert told is None or told[1].partition("; ")[0] in loss


def test_one_line_of_a_part(store: Path) -> None:
    """What was not looked at is told, and the next command looks at all."""
    assert verify(store, "-q", "--only", "index").out == (
        "unproven: what clients would lose is not predicted: --only leaves it out; --only start predicts it; "
        f"not checked: all but index (--only); next: rmqtool verify {store}\n"
    )
    assert verify(store, "-q", "-v").out.startswith("verdict  clean")


def test_one_line_of_what_a_start_is_without(store: Path) -> None:
    """It is told beside what clients lose."""
    (store / "config/topics.json").unlink()
    line = verify(store, "-q").out
    assert "a broker starts without the contents of config/topics.json; " in line
    assert line.count("\n") == 1


JUNIT = XMLSchema(Path(__file__).with_name("junit.xsd"))


def junit(store: Path, *options: str) -> tuple[Result, ElementTree.Element]:
    """A JUnit report, which is valid, and its one suite."""
    result = verify(store, "--format", "junit", *options)
    JUNIT.validate(result.out)
    (suite,) = ElementTree.fromstring(result.out)
    return result, suite


def test_junit(store: Path) -> None:
    """One test case for each check, a failure for each code that was found above information."""
    result, suite = junit(damaged(store, "body", "slot"))
    assert result.status == 1
    cases = suite.findall("testcase")
    failed = {case.get("name") for case in cases if case.find("failure") is not None}
    assert {"commitlog.body-crc", "index.slot"} <= failed
    assert int(suite.get("tests", "")) == len(cases) > 20
    assert int(suite.get("failures", "")) == len(failed)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_junit_is_valid(name: str, store: Path) -> None:
    """Whatever is found."""
    _, suite = junit(damaged(store, name))
    assert DAMAGES[name].code in {case.get("name") for case in suite.findall("testcase[failure]")}


def test_junit_of_names_that_xml_does_not_allow(store: Path) -> None:
    """Control characters in a file's name are replaced."""
    (store / "commitlog" / "a\x1b[31m\udcff<&").touch()
    _, suite = junit(store)
    assert "commitlog.stray" in {case.get("name") for case in suite.findall("testcase[failure]")}


def test_junit_of_a_healthy_store(store: Path) -> None:
    """No failure, and exit status 0."""
    result, suite = junit(store)
    assert result.status == 0
    assert not suite.findall("testcase[failure]")


def test_junit_of_what_was_left_out(store: Path) -> None:
    """A skipped case for each check that was not made, and for what hides none."""
    result, suite = junit(store, "--only", "commitlog", "--fast")
    assert result.status == 0
    cases = suite.findall("testcase")
    skipped = {case.get("name") for case in cases if case.find("skipped") is not None}
    assert {"consumequeue.hole", "index.slot", "start.refuses", "commitlog.body-crc"} <= skipped
    assert not {"commitlog.gap", "clean.blocked-by-older-file"} & skipped
    assert len({case.get("name") for case in cases}) == len(cases) == int(suite.get("tests", ""))
    assert int(suite.get("skipped", "")) == len(skipped)
    (store / "consumequeue_ext" / "orders" / "0").mkdir(parents=True)
    (store / "consumequeue_ext" / "orders" / "0" / "00000000000000000000").write_text("x")
    _, suite = junit(store)
    assert [case.get("name") for case in suite.findall("testcase[skipped]")] == ["ext units of consume queues"]


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted(jobs: int, tmp_path: Path) -> None:
    """Ctrl-C: it ends with what is known so far, of files that are half done too."""
    store = make_log(tmp_path / "store", "A", size=64 << 20, file_size=32 << 20)

    def interrupted(pause: float) -> Any:
        process = spawn("verify", store, "--json", "--limit-rate", "4M", "-j", str(jobs), "--skip", "index")
        wait_until_it_reads(process, store / "commitlog", jobs)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        result = finish(process)
        assert result.status == 130
        if not result.out:
            return {"messages": 0}  # the log is opened for a look before it is verified
        document = json.loads(result.out)
        assert document["exit"]["name"] == "interrupted"
        return document["result"]

    # All of it takes 16 s. Where others use the machine, it may not have come to a message yet.
    found = next(found for found in map(interrupted, (1, 2, 4, 8)) if found["messages"])
    assert found["messages"] < message_count(store)
    assert (found["complete"], found["verdict"]) == (False, "unproven")
    assert "not-reached" in {stretch["state"] for stretch in found["map"]}
    assert {"checked": found["messages"], "code": "commitlog.body-crc", "found": 0} in found["checks"]


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_log_file_that_may_not_be_read(jobs: str, public_path: Path) -> None:
    """It is named, the rest is verified, and the picture shows it."""
    store = small_store(public_path / "store")
    path = log_file(store, 1)
    path.chmod(0)
    verify(store, "-j", jobs)  # loads modules that nobody else may read
    for directory in (store, store / "commitlog", store / "consumequeue", store / "index"):
        directory.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        text, document = (rmqtool("verify", store, "-j", jobs, *options) for options in ((), ("--json",)))
    finally:
        os.seteuid(0)
    assert (text.status, document.status) == (1, 1)
    assert text.out.splitlines()[0].endswith(f"not read: commitlog/{path.name}, what a start would do")
    assert "error: commitlog.unreadable" in text.out
    assert "? unreadable" in text.out
    codes = {found["code"] for found in document.document["findings"] if found["severity"] != "info"}
    assert codes <= {"commitlog.unreadable", "store.permission"}
    assert "commitlog.unreadable" in codes
    assert document.document["result"]["messages"] > 10


def test_no_store(tmp_path: Path) -> None:
    """Exit status 6, and a valid document."""
    (tmp_path / "empty").mkdir()
    assert rmqtool("verify", tmp_path / "empty", "--json").status == 6


@pytest.mark.slow
def test_a_start_without_configuration(tmp_path: Path) -> None:
    """The sentence about the next start names the config files that are lost."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    assert "without the contents" not in rmqtool("verify", store).out
    (store / "config" / "delayOffset.json").unlink()
    (store / "config" / "lmqConsumerOffset.json").unlink()
    result = rmqtool("verify", store)
    assert result.status == 1
    names = "config/consumerOffset.json, config/delayOffset.json"
    assert f"it would start without the contents of {names}" in " ".join(result.out.split())
