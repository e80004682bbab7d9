"""`rmqtool clean`: what is shown, in JSON and in text, on sound stores and with bad input."""

from __future__ import annotations

import os
import shlex
import shutil
import threading
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.clean.planning import HOUR, aged_log, set_mtime
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.rights import NOBODY, needs_root
from tests.unchanged import unchanged

AT_FOUR = ("--now", "2026-11-25T04:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50")


def clean(store: Path, *options: str | Path) -> Result:
    """A dry run that leaves the store as it was."""
    with unchanged(store):
        return rmqtool("clean", store, "--dry-run", *options)


@pytest.fixture(params=stores.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.one_in(3)
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """The document is valid, and adds up: each file goes once or stays, each pass goes on where the last ended."""
    store = golden_store(name)
    options = ("--all-runs", "--delete-file-batch-max", "3", "--broker-version", "5.5")  # configured since 5.0.0
    result = clean(store, *AT_FOUR, "--json", *options).document["result"]
    gone = [file["file"] for run in result["passes"] for file in run["commit_log"]]
    kept = [file["file"] for file in result["kept"]]
    log = sorted(f"commitlog/{path.name}" for path in (store / "commitlog").iterdir())
    assert gone + kept == log
    assert all(len(run["commit_log"]) <= 3 for run in result["passes"])
    minimums = [run["min_offset"] for run in result["passes"]]
    assert minimums == sorted(minimums)
    assert result["min_offset"] == (int(kept[0].removeprefix("commitlog/")) if kept else -1)
    files = [path for run in result["passes"] for path in (*run["consume_queues"], *run["index"])]
    assert len(set(files)) == len(files)
    assert [path for path in files if not (store / path).is_file()] == []
    assert result["state"] == ("planned" if gone or files else "nothing")
    assert result["transaction"] is None


@pytest.mark.one_in(4)
def test_text_says_what_json_says(name: str, golden_store: GoldenStore) -> None:
    """The numbers of files, who loses how much, and nothing wider than a row."""
    store = golden_store(name)
    text = clean(store, *AT_FOUR).out
    result = clean(store, *AT_FOUR, "--json").document["result"]
    (first,) = result["passes"]
    gone, count = len(first["commit_log"]), len(first["commit_log"]) + len(result["kept"])
    sentence = text.splitlines()[0]
    assert (f"deletes {gone} of {count} log files" in sentence) == bool(gone)
    lost = sum(item["messages_lost"] for item in result["consumers"])
    assert (f"{lost} unread messages" in sentence) == bool(lost)
    rows = [line.split() for line in text.splitlines()]
    for group in {item["group"] for item in result["consumers"] if item["messages_lost"]}:
        of_orders = [i for i in result["consumers"] if (i["group"], i["topic"]) == (group, "orders")]
        total = sum(item["messages_lost"] for item in of_orders)
        if total:
            assert [group, "orders", str(sum(1 for i in of_orders if i["messages_lost"])), str(total)] in rows
    assert "next run deletes" in sentence or "Nothing to delete" in sentence


def test_verbose_shows_each_file_setting_and_queue(golden_store: GoldenStore) -> None:
    text = clean(golden_store("5.3.3-clean"), *AT_FOUR, "-v", "--file-reserved-time", "48").out
    assert text.count("delete: expired") == 9
    assert "00000000000000589824" in text
    runs = clean(golden_store("5.3.3-clean"), *AT_FOUR, "-v", "--all-runs", "--delete-file-batch-max", "4").out
    assert [runs.count(f"run {number}: expired") for number in (1, 2, 3)] == [4, 4, 1]
    assert "fileReservedTime" in text
    assert "'48'" in text
    assert any(line.split()[:3] == ["behind", "orders", "0"] for line in text.splitlines())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--now", "2026-11-22T04:00:00Z"), "no file that could be deleted has expired; the oldest expires in"),
        (("--now", "2026-11-25T03:00:00Z"), "9 files have expired, but it is not the hour"),
        (
            ("--now", "2026-11-22T03:00:00Z", "--disk-used-percent", "80"),
            "below the level at which age no longer matters",
        ),
        (("--now", "2026-11-25T04:00:00Z", "--first-file-in-use"), "still being read"),
        (("--now", "2026-11-25T03:00:00Z", "--manual"), "deletes 9 of 10 log files"),
        (("--now", "2026-11-22T03:00:00Z", "--disk-used-percent", "91"), "the disk is 91% full, whatever their age"),
        (("--now", "2026-11-25T05:00:00+01:00", "--time-zone", "+00:00"), "deletes 9 of 10 log files"),
        (("--now", "2026-11-25T04:00:00Z", "--time-zone", "Asia/Shanghai"), "it is not the hour"),
        (("--now", "2026-11-25T04:00:00Z", "--no-clean-file-forcibly-enable"), "they have expired"),
    ],
)
def test_the_sentence_on_top(golden_store: GoldenStore, options: tuple[str, ...], words: str) -> None:
    """It answers: what goes, or why nothing does."""
    common = ("--time-zone", "UTC", "--disk-used-percent", "50")
    assert words in clean(golden_store("5.3.3-clean"), *common, *options).out.splitlines()[0]


@pytest.mark.parametrize(
    ("delete_when", "words"), [("24", "deleteWhen matches no hour"), ("4; 5", "it fails at deleteWhen")]
)
def test_an_odd_hour_of_broker_conf(golden_store: GoldenStore, tmp_path: Path, delete_when: str, words: str) -> None:
    """It means what it means to the broker, though no command line may give it."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"deleteWhen={delete_when}\n")
    options = ("--now", "2026-11-25T03:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50")
    assert words in clean(golden_store("5.3.3-clean"), *options, "--broker-conf", conf).out.splitlines()[0]


def test_broker_conf(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Duplicates, blanks, unknown names, Chinese comments; options come first, and the next command keeps them."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# 保留时间\nfileReservedTime=1\nfileReservedTime = 60\nnonsense = x\ndeleteWhen = 06\n"
        "mapedFileSizeCommitLog=65536\nmapedFileSizeConsumeQueue=600\nmapperFileSizeBatchConsumeQueue=460\n"
        "maxHashSlotNum=50\nmaxIndexNum=1000\n",
        encoding="utf-8",
    )
    store = golden_store("5.3.3-clean")
    found = clean(store, "--broker-conf", conf, "--delete-when", "04", *AT_FOUR, "--json").document
    settings = {setting["name"]: setting for setting in found["result"]["settings"]}
    assert (settings["fileReservedTime"]["given"], settings["fileReservedTime"]["effective"]) == ("60", 60)
    assert settings["deleteWhen"]["effective"] == "04"
    assert {finding["code"] for finding in found["findings"]} <= {"clean.overdue"}
    notes = clean(store, "--broker-conf", conf, "--delete-when", "04;5", *AT_FOUR).err
    assert f"--broker-conf {conf}" in notes
    assert "--delete-when '04;5'" in notes


EVERY_OPTION = (
    *("--broker-version", "5.3.3", "--limit-rate", "500MiB", "--time-zone", "+08:00", "--manual"),
    *("--disk-used-percent", "50.25", "--file-reserved-time", "30", "--delete-when", "4;16"),
    *("--disk-max-used-space-ratio", "70", "--disk-space-warning-level-ratio", "89"),
    *("--disk-space-clean-forcibly-ratio", "80", "--no-clean-file-forcibly-enable", "--delete-file-batch-max", "2"),
    *("--clean-resource-interval", "20000", "--replicas-per-disk-partition", "2"),
    *("--logical-disk-space-clean-forcibly-threshold", "0.75"),
)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--first-file-in-use",), ("--all-runs",)])
def test_the_next_command_does_what_was_shown(golden_store: GoldenStore, more: tuple[str, ...]) -> None:
    """Each option that was given is in it, also a time of `--now` that counts from the present one."""
    store = golden_store("5.3.3-clean")
    shown = clean(store, *EVERY_OPTION, "--now", "+100h", *more, "--json").document["result"]
    notes = clean(store, *EVERY_OPTION, "--now", str(shown["now_timestamp"]), *more).err
    commands = [line.partition(": ")[2] for line in notes.splitlines() if ": rmqtool clean " in line]
    assert bool(commands) == ("--first-file-in-use" not in more), "a file that is read never goes"
    for command in commands:
        words = shlex.split(command)[1:]
        found = rmqtool(*words, "--json", *(() if "--dry-run" in words else ("--dry-run",))).document["result"]
        for name in ("settings", "time_zone", "broker_version"):
            assert found[name] == shown[name]
        assert found["passes"][0]["commit_log"] == shown["passes"][0]["commit_log"]
        assert words[words.index("--limit-rate") + 1] == str(500 << 20)


def test_the_remedy_for_a_doubt_has_the_options_too(tmp_path: Path) -> None:
    """What a 4.4.0 broker deletes is shown for the disk and the settings that were given."""
    options = (*AT_FOUR[:-1], "88", "--disk-max-used-space-ratio", "95", "--delete-when", "5")
    document = clean(aged_log(tmp_path / "store", 100, 90, 80, 3), *options, "--json").document
    [doubt] = [finding for finding in document["findings"] if finding["code"] == "store.version-ambiguous"]
    found = rmqtool(*shlex.split(doubt["remedy"])[1:], "--json").document["result"]
    assert (found["broker_version"], found["passes"][0]["commit_log"]) == ("4.4.0", [])
    assert found["settings"][2]["given"] == "95"
    assert found["now_timestamp"] == document["result"]["now_timestamp"]


def test_the_next_hour_takes_the_place_of_the_time_that_was_given(golden_store: GoldenStore) -> None:
    """One time stands in the command."""
    options = ("--now", "2026-11-25T03:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50")
    notes = clean(golden_store("5.3.3-clean"), *options).err
    assert notes.count("--now") == 1
    assert "--disk-used-percent 50 --dry-run --now 2026-11-25T04:00:00+00:00" in notes


def test_the_time_that_is_named_next_deletes(golden_store: GoldenStore) -> None:
    """Days before the oldest file goes the next hour of deleteWhen would delete nothing."""
    store = golden_store("5.3.3-clean")
    options = ("--time-zone", "UTC", "--disk-used-percent", "50", "--dry-run")
    notes = clean(store, "--now", "2026-11-21T23:00:00Z", *options).err
    assert "when the oldest file is deleted: " in notes
    then = notes.rsplit("--now ", 1)[1].split()[0]
    assert clean(store, "--now", then, *options, "--json").document["result"]["state"] == "planned"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--now", "last week"), Exit.USAGE, "is not a time"),
        (("--now", "2026-13-40T00:00:00Z"), Exit.USAGE, "is not a time"),
        (("--now", "-1"), Exit.USAGE, "1970"),
        (("--now", str((1 << 63) - 1)), Exit.USAGE, "1970"),
        (("--time-zone", "Mars/Olympus"), Exit.USAGE, "not a time zone"),
        (("--disk-used-percent", "101"), Exit.USAGE, "--disk-used-percent"),
        (("--disk-used-percent", "nan"), Exit.USAGE, "--disk-used-percent"),
        (("--broker-version", "3.2"), Exit.USAGE, "3.2"),
        (("--file-reserved-time", "3d"), Exit.USAGE, "'3d' is not a whole number from 0 to"),
        (("--file-reserved-time", "-5"), Exit.USAGE, "'-5' is not a whole number from 0 to"),
        (("--file-reserved-time", ""), Exit.USAGE, "'' is not a whole number from 0 to"),
        (("--file-reserved-time", "9" * 5000), Exit.USAGE, "is not a whole number from 0 to"),
        (("--delete-when", "24"), Exit.USAGE, "'24' is not hours from 0 to 23 such as 04 or 04;16"),
        (("--delete-when", "04; 16"), Exit.USAGE, "'04; 16' is not hours from 0 to 23"),
        (("--delete-when", "4,16"), Exit.USAGE, "is not hours from 0 to 23"),
        (("--disk-max-used-space-ratio", "750"), Exit.USAGE, "'750' is not a whole number from 0 to 100"),
        (("--disk-space-warning-level-ratio", "0,9"), Exit.USAGE, "'0,9' is not a number from 0 to 100"),
        (("--disk-space-clean-forcibly-ratio", "-1"), Exit.USAGE, "'-1' is not a number from 0 to 100"),
        (("--delete-file-batch-max", "0"), Exit.USAGE, "'0' is not a whole number from 1 to"),
        (("--clean-resource-interval", "10s"), Exit.USAGE, "'10s' is not a whole number from 1 to"),
        (("--replicas-per-disk-partition", "two"), Exit.USAGE, "'two' is not a whole number from 1 to"),
        (("--logical-disk-space-clean-forcibly-threshold", "80"), Exit.USAGE, "'80' is not a number from 0 to 1"),
        (("--broker-conf", "/nowhere/broker.conf"), Exit.FAILED, "no such file"),
    ],
)
def test_bad_options(golden_store: GoldenStore, options: tuple[str, ...], status: Exit, words: str) -> None:
    found = clean(golden_store("5.3.3-single"), *options)
    assert found.status == status
    assert words in found.err
    assert found.out == ""


@pytest.mark.parametrize("text", ["", "\0\xff\xfe", "fileReservedTime", "a" * 100_000, "deleteWhen=\\u00zz", "=\n:\n"])
def test_odd_broker_conf(golden_store: GoldenStore, tmp_path: Path, text: str) -> None:
    """Nothing crashes; what no broker could read is an error."""
    conf = tmp_path / "broker.conf"
    conf.write_bytes(text.encode("latin-1"))
    found = clean(golden_store("5.3.3-single"), "--broker-conf", conf, "--json")
    assert found.status == (Exit.USAGE if "\\u" in text or "\0" in text else Exit.OK)


@pytest.mark.parametrize("part", ["consumequeue", "index", "config", "checkpoint", "commitlog"])
@pytest.mark.parametrize("version", ["4.4", "5.5"])
def test_stores_without_a_part(unpacked: GoldenStore, tmp_path: Path, part: str, version: str) -> None:
    """A store without queues, index or even log answers too."""
    store = tmp_path / "store"
    copied(unpacked("5.3.3-clean"), store)
    if part == "checkpoint":
        (store / part).unlink()
    else:
        shutil.rmtree(store / part)
    found = clean(store, *AT_FOUR, "--json", "--broker-version", version)
    assert found.status == Exit.OK
    assert bool(found.document["result"]["passes"][0]["commit_log"]) == (part != "commitlog")


@pytest.mark.parametrize("mtime", [0, -HOUR, 4_102_444_800_000, 253_402_300_800_000, 1])
def test_odd_modification_times(tmp_path: Path, mtime: int) -> None:
    """Of 1970, before it, of 2100 and of the year 10000."""
    store = aged_log(tmp_path / "store", 90, 80, 5)
    set_mtime(min((store / "commitlog").iterdir()), mtime)
    found = clean(store, *AT_FOUR, "--json")
    assert found.status == clean(store, *AT_FOUR).status == Exit.OK
    assert bool(found.document["result"]["passes"][0]["commit_log"]) == (mtime <= 1)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["queue", "log", "index", "offsets"])
def test_damaged_stores(unpacked: GoldenStore, tmp_path: Path, damage: str) -> None:
    """Files of noise or of no bytes are answered for as the broker takes them."""
    store = tmp_path / "store"
    copied(unpacked("5.3.3-clean"), store)
    target = {
        "queue": min((store / "consumequeue" / "orders" / "0").iterdir()),
        "log": sorted((store / "commitlog").iterdir())[1],
        "index": min((store / "index").iterdir()),
        "offsets": store / "config" / "consumerOffset.json",
    }[damage]
    size = target.stat().st_size
    for content in (b"", b"\xff" * size, bytes(range(256)) * (size // 256)):
        target.write_bytes(content)
        set_mtime(target, 1_795_000_000_000)
        assert clean(store, *AT_FOUR, "--json", "--all-runs").status == Exit.OK


@needs_root
def test_files_that_may_not_be_read(public_path: Path) -> None:
    """Exit 4, and the file is named."""
    store = aged_log(public_path / "store", 90, 5)
    (store / "commitlog" / ("0" * 20)).chmod(0)
    store.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        found = rmqtool("clean", store, "--dry-run")
    finally:
        os.seteuid(0)
    assert found.status == Exit.FAILED
    assert "0" * 20 in found.err


def test_a_store_that_is_being_cleaned(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Files vanish while they are looked at: the answer is for what is left. Five looks outlast four deletions."""
    store = tmp_path / "store"
    copied(unpacked("5.3.3-clean"), store)
    files = sorted((store / "commitlog").iterdir())[:-1]
    files += sorted(path for path in (store / "consumequeue").rglob("*") if path.is_file())
    stop = threading.Event()

    def delete() -> None:
        for number in range(4):
            if stop.wait(0.05):
                return
            for file in files[number::4]:
                file.unlink()

    cleaner = threading.Thread(target=delete)
    cleaner.start()
    try:
        while cleaner.is_alive():
            assert rmqtool("clean", store, "--dry-run", "--json", *AT_FOUR).status == Exit.OK
    finally:
        stop.set()
        cleaner.join()


def test_not_a_store(tmp_path: Path) -> None:
    assert rmqtool("clean", tmp_path, "--dry-run").status == Exit.NOT_A_STORE
    assert rmqtool("clean", tmp_path / "nowhere", "--dry-run").status == Exit.FAILED


@pytest.mark.slow
def test_losses_of_some_topics(golden_store: GoldenStore) -> None:
    """--topic chooses whose losses are listed; what is deleted, the sums, and what waits stay those of all topics."""
    store = golden_store("5.3.3-trimmed")
    options = (*AT_FOUR, "--manual", "--file-reserved-time", "0", "--all-runs")
    whole = clean(store, *options, "--json").document["result"]
    assert {each["topic"] for each in whole["consumers"] if each["messages_lost"]} == {"orders"}
    for choice, topics in ((("--topic", "orders"), {"orders"}), (("--exclude-topic", "orders"), None)):
        some = clean(store, *options, *choice, "--json").document["result"]
        for name in ("queues", "topics", "consumers"):
            wanted = [each for each in whole[name] if (each["topic"] == "orders") is bool(topics)]
            assert whole[name] != wanted == some.pop(name)
        others = whole.keys() - {"queues", "topics", "consumers", "trigger"}  # which has the free bytes of the disk
        assert {name: some[name] for name in others} == {name: whole[name] for name in others}
    text = clean(store, *options, "--exclude-topic", "orders").out
    assert "2 groups lose 185 unread messages" in text
    assert "not shown    2 groups and 185 unread messages of other topics" in text
    assert "Who loses unread messages" not in text
    assert "16 delayed messages" in text
    assert "not shown" not in clean(store, *options, "--topic", "orders").out


def test_the_question_counts_all_topics(golden_store: GoldenStore) -> None:
    """Consent is to what is deleted, whatever was listed; a topic that is not there is named."""
    store = golden_store("5.3.3-trimmed")
    options = (*AT_FOUR, "--manual", "--file-reserved-time", "0", "--yes")
    refused = rmqtool("clean", store, *options, "--exclude-topic", "orders")
    assert refused.status == Exit.USAGE
    assert "unread messages" in refused.err.split("--yes is not enough: ")[1]
    unknown = clean(store, "--topic", "oders")
    assert unknown.status == Exit.USAGE
    assert "there is no topic oders (did you mean orders?)" in unknown.err
