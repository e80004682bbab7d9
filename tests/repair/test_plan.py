"""The plan for the findings of a verification: its order, its commands, and what it says of what it cannot heal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartRefusal
from rmqtool.clients.losses import ClientLosses
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding, Treatment
from rmqtool.findings.report import to_be_treated
from rmqtool.repair.diagnosis import BODY_CRC, PROPERTIES, DamagedMessages, Diagnosis, Repairs, repairs_of
from rmqtool.repair.fields import RightField, RightFields
from rmqtool.repair.log_files import Renamed
from rmqtool.repair.not_healed import NotHealed
from rmqtool.repair.plan import Plan, PlanStep, _is_log_unmended, _may_start, moving_step, plan_of, start_text
from rmqtool.repair.proof import Difference
from rmqtool.store.lock import Holder
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.home import UnfinishedDeletion
from tests.building import message, write_log
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import EntryBuilder
from tests.findings.made import made
from tests.real_broker.client_damages import records_of
from tests.rights import needs_root

OF_OTHER_COMMANDS = ("clean.", "rebuild.", "export.", "commitlog.skipped", "commitlog.not-neutralised")
OPTIONS = ("--broker-version", "5.3.3")
TREATED = [code for code, page in CATALOGUE.items() if page.treatment]
FACTS: Mapping[str, Mapping[str, object]] = {
    "commitlog.end-missing": {"newest_timestamp": 0, "log_end": 0},
    "commitlog.head-missing": {"log_start": 0},
    "commitlog.missing": {"problem": "no-file", "directories": []},
    "upgrade.setting": {"setting": "one"},
}
"""Facts without which a finding of a code cannot be."""


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("5.3.3-clean")


def diagnosis(store: Path, *findings: Finding, mended: bool = False) -> Diagnosis:
    return Diagnosis(Snapshot(open_store(store)), findings, {"orders": 2}, mended, OPTIONS)


def plan(store: Path, *codes: str, mended: bool = False) -> Plan:
    findings = (made(code, f"message of {code}", store=store, details=FACTS.get(code)) for code in codes)
    of = diagnosis(store, *findings, mended=mended)
    return plan_of(of, repairs_of(of))


def test_every_code_above_information_has_a_treatment() -> None:
    """Whatever verify reports above information is treated."""
    reported = {code for code, entry in CATALOGUE.items()
                if entry.severity != "info" and not code.startswith(OF_OTHER_COMMANDS)}  # fmt: skip
    assert reported <= {*TREATED}


@pytest.mark.parametrize("code", TREATED)
def test_no_finding_is_left_without_a_word(store: Path, code: str) -> None:
    """Alone, each of them has a step or is said to stay."""
    of_code = plan(store, code)
    assert of_code.steps or of_code.remaining


def test_without_findings_there_is_nothing_to_do(store: Path) -> None:
    assert not plan(store)


def test_one_command_for_queues_index_and_log(store: Path) -> None:
    """A command that can be pasted, with the options that were given; what is lost is said; the broker comes last."""
    found = plan(store, "index.slot", "consumequeue.hole", "commitlog.zeroed", "start.data-loss")
    repair, start = found.steps
    assert shlex.split(repair.command or "") == ["rmqtool", "repair", str(store), *OPTIONS]
    assert repair.text == "Repair the store (rmqtool undo takes it back):"
    of = diagnosis(store, made("index.slot", store=store))
    (kept, _) = plan_of(of, repairs_of(of), keep_offsets=True).steps
    assert shlex.split(kept.command or "") == [*shlex.split(repair.command or ""), "--keep-offsets"]
    assert [change.split(" (")[0] for change in repair.changes] == [
        "put dummy records in place of damage in the log",
        "rebuild the consume queues",
        "rebuild the index",
    ]
    assert repair.lost == ("2 messages that cannot be read: orders 2",)
    assert start.text == "Start the broker."
    assert found.start_after == 1


def test_each_command_has_the_options_that_it_knows(store: Path) -> None:
    """How much memory may be taken is no option of all of them."""
    memory = ("--memory", "268435456")
    tier = ("--tiered-path", "/tier")
    of = replace(diagnosis(store), options=(*OPTIONS, "--jobs", "2", *memory, *tier))
    for name in ("verify", "repair", "rebuild-cq", "rebuild-index", "salvage"):
        words = shlex.split(of.command(name, "--last"))
        kept = (*(memory if name != "salvage" else ()), *(tier if name in ("verify", "repair") else ()))
        assert words == ["rmqtool", name, str(store), *OPTIONS, "--jobs", "2", *kept, "--last"]
    assert shlex.split(of.clean_command()) == ["rmqtool", "clean", str(store), *OPTIONS, "--dry-run"]


def test_the_proof_of_a_loss_is_not_rebuilt_over_before_it_is_restored(store: Path) -> None:
    """What must be restored comes before the repair, and names what is lost without it."""
    found = plan(store, "consumequeue.missing-unit", "commitlog.last-file-missing")
    restore, repair, _ = found.steps
    assert restore.text.startswith("Restore ")
    assert restore.lost == ("message of commitlog.last-file-missing",)
    assert restore.command is None
    assert repair.command is not None
    assert found.start_after == 2


def test_what_is_to_be_restored_is_named(store: Path, tmp_path: Path) -> None:
    """With its size, where it is known which files are missing."""
    write_log(tmp_path, {start: message(start).ljust(4096, b"\0") for start in (0, 8192)})
    found = plan(tmp_path, "commitlog.gap", "config.row")
    assert found.steps[0].text.startswith(f"Restore commitlog/{4096:020} (4096 bytes) from a backup or a replica")
    assert [stays.partition(":")[0] for stays in found.remaining] == ["config.row"]
    restore = plan(store, "commitlog.last-file-missing").steps[0]
    assert restore.text.startswith("Restore what is missing from a backup or a replica")


def test_what_a_start_mends_needs_no_repair(store: Path) -> None:
    found = plan(store, "store.unclean-stop", "consumequeue.behind", mended=True)
    assert [step.command for step in found.steps] == [None]
    assert found.start_after is None
    behind = made("consumequeue.behind", store=store)
    assert [bool(repairs_of(diagnosis(store, behind, mended=mended))) for mended in (True, False)] == [False, True]


def test_no_start_corrects_offsets(golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are repaired before, unless they are kept, or their directory is out of reach."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    behind = made("consumequeue.behind", store=store)
    offset = made("config.offset-out-of-range", store=store, topic="orders", queue_id=0, queue_offset=76)
    of = diagnosis(store, behind, offset, mended=True)
    repairs = repairs_of(of)
    assert not repairs.queues
    repair, start = plan_of(of, repairs).steps
    assert [change.partition(":")[0] for change in repair.changes] == ["config/consumerOffset.json"]
    assert start.text.startswith("Start the broker: its startup recovery")
    assert plan_of(of, repairs).remaining == ()
    (left,) = plan_of(of, Repairs()).remaining
    assert left == "config.offset-out-of-range: the queue could not be read, or there is none"
    kept = plan_of(of, repairs_of(of, keep_offsets=True), keep_offsets=True)
    assert [step.command for step in kept.steps] == [None]
    assert kept.remaining == ("config.offset-out-of-range: --keep-offsets does not change offsets",)
    with monkeypatch.context() as context:
        context.setattr("rmqtool.repair.diagnosis.config_changes", lambda *_, **__: 1 // 0)
        assert not repairs_of(diagnosis(store, behind, mended=True))  # of which nothing more has to be read
    (store / "config").rename(tmp_path / "config")
    (store / "config").symlink_to(tmp_path / "config")
    assert not repairs_of(diagnosis(store, behind, offset, mended=True))
    node = diagnosis(golden_store("more/5.3.3-dledger"), behind, offset, mended=True)
    assert not repairs_of(node)  # which no repair changes
    assert plan_of(node, repairs_of(node)).remaining == ()


def test_a_recorded_loss_is_shown_beside_what_a_start_mends(store: Path) -> None:
    found = plan(store, "store.unclean-stop", "store.recorded-loss", mended=True)
    start, acknowledge = found.steps
    assert start.command is None
    assert (acknowledge.command or "").endswith("--acknowledge")
    assert found.start_after is None


def test_damaged_bodies_that_are_served_are_a_step_of_their_own(store: Path) -> None:
    """Consumers get them until dummy records stand in their place; one that ends a start's scan is lost by it."""
    findings = [made("commitlog.body-crc", store=store, offset=at) for at in (100, 200, 9000)]
    of = replace(diagnosis(store, *findings), bodies=DamagedMessages(until=1000, served=2, others=1))
    repair, losing, _ = plan_of(of, repairs_of(of)).steps
    assert "1 message with a damaged body, at which a start ends the log" in repair.lost
    assert losing.lost == ("2 messages with a damaged body, which consumers get until then",)
    named = replace(of, lose=frozenset({"commitlog.body-crc"}))
    repair, _ = plan_of(named, repairs_of(named)).steps
    assert {*losing.lost, "1 message with a damaged body, at which a start ends the log"} <= {*repair.lost}
    assert shlex.split(repair.command or "") == shlex.split(losing.command or "")


@pytest.mark.parametrize("code", ["commitlog.property-crc", "commitlog.sys-flag"])
def test_what_no_rebuild_changes_is_not_promised(store: Path, code: str) -> None:
    found = plan(store, code)
    assert not found.steps
    [stays] = found.remaining
    assert stays.startswith(f"{code}: Restore the bytes")


def test_no_older_release_is_started_on_newer_records(store: Path) -> None:
    """It would destroy them, and dummy records do not help."""
    lost = made("start.data-loss", "lost", store=store)
    newer = made("commitlog.magic-code-v2", "version 2 of a record", store=store)
    of = diagnosis(store, newer, newer, lost, made("commitlog.last-file-missing", "", store=store))
    assert not repairs_of(of).neutralise
    texts = [step.text for step in plan_of(of, repairs_of(of)).steps]
    assert sum(text.startswith("version 2 of a record: Go back") for text in texts) == 1
    assert "Start the broker." not in texts
    assert texts[-1].startswith("Do not start a broker of the named release")


def test_a_broker_that_refuses_is_not_to_be_started(store: Path) -> None:
    """A file that has to come from elsewhere, or to be moved by hand, is not there yet."""
    found = plan(store, "start.refuses", "commitlog.gap")
    assert [step.text.split()[0] for step in found.steps] == ["Restore"]
    for codes in (["start.refuses"], ["start.refuses", "commitlog.sys-flag"]):
        assert "message of start.refuses" in plan(store, *codes).remaining


def test_a_repair_that_cuts_queues_says_that_it_goes_on(store: Path) -> None:
    """Offsets, timers and the checkpoint are held against the queues that are left."""
    (_, repair, _) = plan(store, "consumequeue.ahead", "commitlog.end-missing").steps
    assert repair.changes[-1] == "verifies again and repairs the rest"


def test_queues_and_index_of_a_lost_log_are_kept(store: Path) -> None:
    """There is nothing to rebuild them from, and they prove what is lost."""
    of = diagnosis(
        store,
        *(
            made(code, code, details=FACTS.get(code))
            for code in ("commitlog.missing", "consumequeue.ahead", "index.ahead")
        ),
    )
    assert not repairs_of(of)
    why = "the log has nothing from which a rebuild could fix it"
    assert {f"{code}: {why}" for code in ("consumequeue.ahead", "index.ahead")} <= {
        *plan_of(of, repairs_of(of)).remaining
    }
    unread = plan(store, "commitlog.unreadable", "consumequeue.hole")
    assert any(each.startswith("consumequeue.hole: it is fixed once the log") for each in unread.remaining)


def test_nothing_stands_in_the_place_of_a_missing_file(store: Path) -> None:
    """No start keeps what is behind it: it is saved first, and no broker is started."""
    save = "rmqtool export STORE --output D"
    lost = made("start.data-loss", "lost", store=store, remedy=save, details={"cause": "missing-file"})
    of = diagnosis(store, lost)
    assert not repairs_of(of)
    found = plan_of(of, repairs_of(of))
    assert found.steps[-1].command == "rmqtool export STORE --output D"
    assert not any(step.text == "Start the broker." for step in found.steps)


@pytest.mark.parametrize(
    ("refusal", "is_rebuilt"),
    [
        (StartRefusal("queue-file", "300 bytes", f"consumequeue/orders/0/{0:020}", "orders", 0), True),
        (StartRefusal("queue-end", "holds no unit", "consumequeue/orders/0", "orders", 0), True),
        (StartRefusal("log-file", "300 bytes", f"commitlog/{0:020}"), False),
    ],
)
def test_a_start_that_a_queue_file_spoils_is_mended_by_a_rebuild(
    store: Path, refusal: StartRefusal, *, is_rebuilt: bool
) -> None:
    """Whatever the sentence is."""
    of = diagnosis(store, made("start.refuses", "a sentence", details=refusal.details()))
    assert repairs_of(of).queues == is_rebuilt


def test_sizes_that_nothing_shows_are_asked_for(tmp_path: Path) -> None:
    """Queue files of another size than the broker's would keep it from starting."""
    (tmp_path / "commitlog").mkdir()
    (step, *_) = plan(tmp_path, "consumequeue.missing-queue").steps
    assert shlex.split(step.command or "")[-2:] == ["--broker-conf", "BROKER_CONF"]
    assert "with its broker.conf, because no file shows the size of" in step.text


def test_settings_are_changed_before_an_upgrade(store: Path) -> None:
    """No command does it, and a broker of the old release may be started meanwhile."""
    found = plan(store, "upgrade.refused", "upgrade.setting", "upgrade.changed")
    change, start, later = found.steps
    assert change.command is None
    assert change.text.endswith("starts (upgrade.refused).")
    assert start.text == "Start the broker."
    assert later.text.startswith("Later: ")
    assert found.start_after is None
    [stays] = found.remaining
    assert stays.startswith("upgrade.changed: ")


def test_settings_without_effect_keep_nobody_from_a_start(store: Path) -> None:
    """They are named once it is done, also where the start fixes the store."""
    ignored = [made("upgrade.setting", "a sentence", details={"setting": name}) for name in ("one", "other")]
    blocked = made("store.retention-blocked", "no hour", store=store)
    later = "Later: the named release does not read these settings of broker.conf: one, other."
    odd = made("upgrade.setting", "a sentence", details={"setting": "odd", "value": "x "})
    assert plan_of(of := diagnosis(store, *ignored, odd), repairs_of(of)).steps[-1].text.startswith("Later: a broker")
    for of in (diagnosis(store, *ignored), diagnosis(store, *ignored, blocked)):
        start, *_, last = (step.text for step in plan_of(of, repairs_of(of)).steps)
        assert (start, last) == ("Start the broker.", later)
    of = diagnosis(store, *ignored, made("store.unclean-stop", "", store=store), mended=True)
    start, last = (step.text for step in plan_of(of, repairs_of(of)).steps)
    assert (start.split(":")[0], last) == ("Start the broker", later)


def test_no_start_on_what_nothing_has_mended(store: Path) -> None:
    found = plan(store, "upgrade.setting", "store.mixed")
    assert "Start the broker." not in [step.text for step in found.steps]


def test_equal_findings_are_counted(store: Path) -> None:
    counts = {"consumequeue.behind": 28, "consumequeue.missing-unit": 2, "consumequeue.hole": 1}
    found = [made(code, "", store=store) for code, count in counts.items() for _ in range(count)]
    (step, _) = plan_of(of := diagnosis(store, *found), repairs_of(of)).steps
    codes = "consumequeue.behind 28, consumequeue.missing-unit 2, consumequeue.hole"
    assert step.changes == (f"rebuild the consume queues ({codes})",)
    step = plan_of(of, Repairs(queues=True, index=True)).steps[0]
    assert step.changes[1] == "rebuild the index"  # for another reason than what is found of it


def test_queues_in_rocksdb_are_not_rebuilt_without_the_library(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is put in place of damage to which they lead; the plan says why."""
    root = copied(store, tmp_path / "store")
    (root / "consumequeue" / "CURRENT").touch()
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)  # it is no real database
    found = plan(root, "commitlog.zeroed", "start.data-loss")
    assert not any(step.command for step in found.steps)
    assert found.remaining == (
        "commitlog.zeroed, start.data-loss: the queues are in RocksDB, which needs the package rocksdict: "
        "pip install 'rmqtool[rocksdb]'",
    )


def test_what_is_in_the_way_of_a_missing_queue_is_treated(store: Path) -> None:
    """Elsewhere it is information."""
    stray = made("consumequeue.stray", "no directory", store=store, severity="info")
    missing = made("consumequeue.missing-queue", "", store=store)
    assert to_be_treated([stray]) == ()
    assert to_be_treated([stray, missing]) == (stray, missing)


def test_topics_come_before_queues(store: Path, tmp_path: Path) -> None:
    """A rebuild reads in topics.json which queues are batch queues."""
    root = copied(store, tmp_path / "store")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text("{")
    unreadable = made("config.unreadable", "not JSON", file="config/topics.json")
    repairs = repairs_of(diagnosis(root, unreadable, made("consumequeue.missing-queue", "", store=root)))
    assert repairs.changes
    assert not repairs.queues
    assert repairs.goes_on


def test_the_cleaner_is_asked_as_the_broker_is_set(store: Path) -> None:
    """With the options of the broker; how fast and with how many processes verify reads is none of them."""
    of = diagnosis(store, made("store.retention-blocked", "never", store=store))
    of = replace(of, options=("--broker-conf", "b.conf", *OPTIONS, "--jobs", "4"))
    commands = [step.command for step in plan_of(of, repairs_of(of)).steps]
    assert f"rmqtool clean {store} --broker-conf b.conf --broker-version 5.3.3 --dry-run" in commands


@pytest.mark.parametrize("remedy", [None, "mqadmin topicList"])
def test_what_can_wait_for_a_running_broker_comes_last(store: Path, remedy: str | None) -> None:
    """With its command, if there is one."""
    of = diagnosis(store, made("config.topic-permission", "nobody may read it", remedy=remedy))
    later = plan_of(of, repairs_of(of)).steps[-1]
    assert (later.text, later.command) == ("Later: nobody may read it.", remedy)


@pytest.mark.parametrize("codes", [["config.consumer-offset"], ["config.consumer-offset", "consumequeue.hole"]])
def test_groups_without_offsets_are_set_before_clients_start(store: Path, codes: list[str]) -> None:
    """Nothing tells what they had read: the step to start says so, before a repair and after it."""
    assert any(step.text.startswith("Stop the clients, then start the broker") for step in plan(store, *codes).steps)


@pytest.mark.parametrize("code", ["config.consumer-offset", "config.missing"])
def test_groups_without_offsets_wait_for_theirs(store: Path, code: str) -> None:
    """Clients that connect before their groups are set begin again; other files that are missing are no such matter."""
    for name, alone in (("consumerOffset.json", True), ("subscriptionGroup.json", code != "config.missing")):
        of = diagnosis(store, made(code, f"no {name}", store=store, file=f"config/{name}"))
        texts = [step.text for step in plan_of(of, repairs_of(of)).steps]
        assert any(text.startswith("Stop the clients, then start") for text in texts) == alone


@pytest.mark.parametrize(
    ("lost", "tasks"),
    [
        ({"topics.json": "without"}, "create the lost topics again"),
        ({"consumerOffset.json": "empty"}, "reset each group to its former position"),
        (
            {"consumerOffset.json": "without", "topics.json": "without"},
            "create the lost topics again and reset each group to its former position",
        ),
    ],
)
def test_clients_wait_for_tables_that_rocksdb_has_lost(store: Path, lost: dict[str, str], tasks: str) -> None:
    """As for files; groups alone are made again by the broker."""
    found = [
        made("config.missing", table, file="config/metadata", details={"table": table, "lost": how, "part": table})
        for table, how in lost.items()
    ]
    of_groups = {"table": "subscriptionGroup.json", "lost": "empty"}
    groups = made("config.missing", "it is empty, and", file="config/subscriptionGroups", details=of_groups)
    after = plan_of(of := diagnosis(store, *found, groups), repairs_of(of))
    assert after.steps[-1].text == f"Stop the clients, then start the broker, and {tasks} (below) before they start."
    assert len(after.remaining) == len(lost) + 1
    alone = plan_of(of := diagnosis(store, groups), repairs_of(of))
    assert alone.steps[-1].text == "Start the broker."
    assert "mqadmin updateSubGroup" in alone.remaining[0]
    assert "Do not move the database" not in alone.remaining[0]


def test_a_step_for_people_names_each_place(store: Path) -> None:
    """Two databases with the same damage are two steps."""
    places = ("config/topics", "config/consumerOffsets")
    of = diagnosis(store, *(made("config.rocksdb-damaged", "CURRENT", store=store, file=place) for place in places))
    texts = [step.text for step in plan_of(of, repairs_of(of)).steps]
    assert [text.split(": CURRENT: Restore the whole directory")[0] for text in texts[:2]] == list(places)


def test_one_step_for_a_database(store: Path) -> None:
    """A damaged log, and tables that are left over, are healed by the same: the directory is put back."""
    found = [
        made("config.rocksdb-damaged", "000004.log is damaged", store=store, file="config/topics/000004.log"),
        made("config.rocksdb-damaged", "rows may be missing", store=store, file="config/topics"),
        made("config.row", "key ab: not JSON", store=store, file="config/topics"),
    ]
    of = diagnosis(store, *found)
    texts = [step.text for step in plan_of(of, repairs_of(of)).steps]
    assert texts[0].startswith("config/topics: 000004.log is damaged; rows may be missing: Restore the whole directory")
    assert texts[1].startswith("config/topics: key ab: not JSON: ")
    assert sum("rows may be missing" in text for text in texts) == 1


def test_settings_that_spoil_a_start_are_named(store: Path) -> None:
    """With those whose values are not read as they look, which are not named again later."""
    found = [
        made("upgrade.refused", "a sentence", details={"setting": "mappedFileSizeCommitLog"}),
        made("upgrade.setting", "a sentence", details={"setting": "brokerName", "value": "a "}),
        made("upgrade.setting", "a sentence", details={"setting": "fetchNamesrvAddrByDnsLookup"}),
    ]
    change, *_, later = plan_of(of := diagnosis(store, *found), repairs_of(of)).steps
    assert "starts: mappedFileSizeCommitLog, brokerName (upgrade.refused)." in change.text
    assert later.text.endswith("these settings of broker.conf: fetchNamesrvAddrByDnsLookup.")


@pytest.mark.parametrize("program", [None, "rmqtool repair"])
def test_whoever_works_on_the_store_comes_first(store: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A broker is stopped; a run of ours may wait for an answer."""
    monkeypatch.setattr(Snapshot, "holder", Holder(7, "lock", program))
    (step,) = plan(store, "index.slot").steps
    assert step.text.startswith("rmqtool repair (process 7) is working" if program else "Stop the broker that runs")
    assert shlex.split(step.command or "") == ["rmqtool", "verify", str(store), *OPTIONS]
    assert not repairs_of(diagnosis(store, made("index.slot", store=store)))


def test_a_recorded_loss_is_shown_after_a_repair(store: Path) -> None:
    """What the log has lost is no part of it where only the index is rebuilt, or files get their names again."""
    repair, _, acknowledge = plan(store, "index.slot", "store.recorded-loss").steps
    assert repair.lost == ()
    assert (acknowledge.command or "").endswith("--acknowledge")
    renamed = Renamed(codes=frozenset({"commitlog.overlap"}), what="a name", names=[("commitlog/1", "commitlog/0")])
    repair, *_ = plan_of(diagnosis(store, made("commitlog.overlap", store=store)), Repairs((renamed,))).steps
    assert repair.lost == ()


def test_what_is_put_right_is_not_lost(store: Path) -> None:
    """Once for each message, also of one that several queues serve."""
    queues = (QueueName("orders", 0), QueueName("%LMQ%a", 0))
    fields = (RightField(0, "queue_offset", 20, 8, 1, 0, queues=queues),)
    right = RightFields(
        codes=frozenset({"commitlog.field"}), what="", name="commitlog/0", path=store, writes=[], fields=fields
    )
    of = replace(diagnosis(store, made("consumequeue.hole", store=store)), lost={"orders": 2, "%LMQ%a": 1})
    repair, *_ = plan_of(of, Repairs((right,), queues=True)).steps
    assert repair.lost == ("2 messages that cannot be read: orders 1, %LMQ%a 1",)


@pytest.mark.parametrize("code", ["commitlog.file-size", "config.row"])
def test_a_log_on_which_no_repair_lets_a_broker_start(tmp_path: Path, code: str) -> None:
    """A new store is made of its messages; a file of config/ is no such matter."""
    write_log(tmp_path, {0: message().ljust(4096, b"\0"), 4096: bytes(4096), 8192: message().ljust(4097, b"x")})
    refusal = made("start.refuses", "a sentence", details={"cause": "log-file"})
    of = diagnosis(tmp_path, refusal, made(code, file="config/topics"))
    commands = [shlex.split(step.command or "") for step in plan_of(of, repairs_of(of)).steps]
    salvage = ["rmqtool", "salvage", str(tmp_path), *OPTIONS, "--output", "NEW"]
    assert (salvage in commands) == (code == "commitlog.file-size")


def test_what_a_repair_does_for_clients(store: Path) -> None:
    """The step shows it, and the plan what is left."""
    clients = ClientLosses(keys_not_found=5, keys_in_damage=2)
    of = replace(diagnosis(store, made("index.slot", store=store)), clients=clients)
    repaired = plan_of(of, repairs_of(of))
    assert [step.clients and step.clients.as_json() for step in repaired.steps] == [
        Difference(clients, replace(clients, keys_not_found=2)).as_json(), None
    ]  # fmt: skip
    assert repaired.clients == replace(clients, keys_not_found=2)
    assert repaired.as_json()["clients"] == repaired.clients.as_json()


def test_bodies_that_are_put_right_are_not_taken_away(tmp_path: Path) -> None:
    """What else clients get of damage is; sizes that no file shows are asked for."""
    names = {0: "body_crc", 9: "flag", 10: "flag", 1000: "body_crc", 3000: "body_crc"}
    fields = tuple(RightField(at, name, 8, 4, 1, 0) for at, name in names.items())
    right = RightFields(codes=frozenset({BODY_CRC}), what="", name="x", path=tmp_path, writes=[], fields=fields)
    (tmp_path / "commitlog").mkdir()
    served = DamagedMessages(until=1000, served=2)
    of = diagnosis(tmp_path, *(made(code, store=tmp_path, offset=4) for code in (BODY_CRC, PROPERTIES)))
    of_bodies = ("1 message with a damaged body, which consumers get until then",)
    of_properties = ("2 messages with damaged properties, which consumers get until then",)
    for bodies, lost in ((served, [of_bodies, of_properties]), (replace(served, served=1), [of_properties])):
        found = plan_of(replace(of, bodies=bodies, properties=served), Repairs((right,))).steps
        steps = [step for step in found if "--lose" in (step.command or "")]
        assert [step.lost for step in steps] == lost
        assert all("no file shows the size of an index file and a queue file" in step.text for step in steps)
        conf = ["--broker-conf", "BROKER_CONF"]
        assert [shlex.split(step.command or "")[-4:] for step in steps] == [
            ["--lose", code, *conf] for code in (BODY_CRC, PROPERTIES)[-len(lost) :]
        ]


@pytest.mark.parametrize(
    ("is_minimum", "lost"),
    [
        (False, "what 9 bytes of damage held; no queue points to a message there"),
        (True, "what 9 bytes of damage held, which nothing counts; possibly more: the queues that would show it are "
         "missing or damaged"),
    ],
)  # fmt: skip
def test_damage_of_which_no_message_is_known(store: Path, is_minimum: bool, lost: str) -> None:
    of = diagnosis(store, made("consumequeue.hole", store=store))
    of = replace(of, lost={}, damaged_bytes=9, lost_is_minimum=is_minimum)
    assert plan_of(of, repairs_of(of)).steps[0].lost == (lost,)
    for name, left in (("queue_offset", ()), ("body_crc", (lost,))):  # of a body nothing shows what it was
        fields = (RightField(0, name, 20, 8, 1, 0, damaged_bytes=9),)
        right = RightFields(codes=frozenset({"x"}), what="", name="x", path=store, writes=[], fields=fields)
        assert plan_of(of, Repairs((right,), queues=True)).steps[0].lost == left


def test_files_that_cannot_be_read_are_one_step(store: Path) -> None:
    for count, more in ((2, []), (3, []), (4, ["and 1 more"])):
        files = [f"commitlog/{number:020}" for number in range(count)]
        of = diagnosis(store, *(made("commitlog.unreadable", file=file) for file in files))
        step, *others = plan_of(of, repairs_of(of)).steps
        assert f"read and write {', '.join([*files[:3], *more])};" in step.text
        assert not any("read and write" in other.text for other in others)


def test_entries_that_only_a_scan_of_the_whole_log_keeps(store: Path) -> None:
    """The setting comes before the start."""
    of = diagnosis(store, made("start.rows-lost", count=3), made("start.rows-lost", count=4))
    setting, start = plan_of(of, repairs_of(of)).steps
    assert "commitLogRecoverMaxNum" in setting.text
    assert "queue entries of 7 messages are lost" in setting.text
    assert start.text == "Start the broker."


def test_what_people_decide_is_a_step_for_each(store: Path) -> None:
    """Also where the code is the same."""
    of = diagnosis(
        store, *(made("timer.row", f"row {number}", file="timerrocksdb", remedy="ls") for number in range(2))
    )
    steps = [(step.text.partition(":")[0], step.command) for step in plan_of(of, repairs_of(of)).steps]
    assert steps[:2] == [("row 0", None), ("row 1", None)]


def test_a_database_without_current_has_the_command_that_writes_it(store: Path) -> None:
    of = diagnosis(store, made("config.rocksdb-damaged", "no CURRENT", file="config/topics/", remedy="echo M"))
    step = plan_of(of, repairs_of(of)).steps[0]
    assert step.text.startswith("config/topics: no CURRENT: Write CURRENT again")
    assert step.command == "echo M"


def test_the_command_that_gives_rights_back(tmp_path: Path) -> None:
    """To the whole store, once a file is not as the others are."""
    write_log(tmp_path, {0: bytes(4096), 4096: bytes(4096)})
    name = f"commitlog/{4096:020}"
    of = diagnosis(tmp_path, made("store.permission", file=name))
    for mode, command in ((0o600, None), (0o400, f"chmod -R u+w {tmp_path}")):
        (tmp_path / name).chmod(mode)
        assert plan_of(of, repairs_of(of)).steps[0].command == command


@needs_root
def test_the_command_that_gives_a_store_to_one_user(tmp_path: Path) -> None:
    """To that of most files."""
    write_log(tmp_path, {start: bytes(4096) for start in (0, 4096, 8192)})
    name = f"commitlog/{8192:020}"
    os.chown(tmp_path / name, 7, 8)
    of = diagnosis(tmp_path, made("store.permission", file=name))
    assert plan_of(of, repairs_of(of)).steps[0].command == f"chown -R 0:0 {tmp_path}"


def test_a_group_of_transactions_that_is_ahead_is_set_back_first() -> None:
    """Unless somebody meant it."""
    early = made("config.half-messages-skipped")
    assert start_text([early]).startswith("Correct the offset of CID_RMQ_SYS_TRANS")
    assert start_text([]) == "Start the broker."


@pytest.mark.parametrize(
    ("treatments", "may"),
    [
        ("start", True),
        ("start refused", False),
        ("restore refused", False),
        ("whole-log", True),
        ("config", True),
        ("config files", False),
        ("lose none", True),
        ("none settings", False),
        ("settings ignored running acknowledge config none lose", True),
    ],
)
def test_whether_a_start_is_next_where_nothing_is_repaired(treatments: str, may: bool) -> None:
    """It fixes something, or all else can wait for it."""
    assert _may_start({each for each in get_args(Treatment) if each in treatments.split()}) == may


def test_what_shows_only_after_a_step_is_not_promised(store: Path) -> None:
    """What clients get of a store that another broker.conf makes."""
    setting = made("start.refuses", details={"cause": "setting", "setting": "storeType"})
    of = replace(diagnosis(store, made("index.slot", store=store), setting), clients=ClientLosses(keys_not_found=5))
    found = plan_of(of, repairs_of(of))
    assert (found.clients, {step.clients for step in found.steps}) == (None, {None})


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_broker_may_start_before_a_repair_of_what_it_does_not_need(store: Path, is_sound: bool) -> None:
    of = replace(diagnosis(store, made("index.slot", store=store)), sound=is_sound)
    assert plan_of(of, repairs_of(of)).start_after == (None if is_sound else 1)


def test_a_wrong_size_in_broker_conf_is_of_the_log() -> None:
    """As is the start that is refused for it; a step for people is no such note."""
    codes = frozenset({"commitlog.file-size", "start.refuses"})
    assert _is_log_unmended(NotHealed(codes, "why"))
    assert not _is_log_unmended(NotHealed(codes, "why", needed=("a file",)))


def test_the_plan_of_what_clients_lose_is_not_known(store: Path) -> None:
    """Without it the object of the contract has null."""
    document = plan(store, "index.slot").as_json()
    assert {name: document[name] for name in ("start_after", "remaining", "clients")} == {
        "start_after": 1, "remaining": [], "clients": None
    }  # fmt: skip
    assert [step["command"] is not None for step in document["steps"]] == [True, False]
    assert [bool(each) for each in (Plan(), Plan((PlanStep("x"),)), Plan(remaining=("x",)))] == [False, True, True]


@pytest.mark.parametrize("code", ["config.rocksdb-damaged", "config.row"])
def test_a_database_stays_for_reasons_of_its_own(store: Path, code: str) -> None:
    """No slave copies a database as a file."""
    of = diagnosis(store, made(code, "CURRENT", store=store, file="config/topics"))
    [remaining] = plan_of(of, repairs_of(of)).remaining
    assert "restore the whole directory from a backup from the same time" in remaining
    assert "slave" not in remaining


@pytest.mark.slow
def test_offsets_from_a_bak_are_no_reason_to_wait(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The repair puts the file back: nothing is left to be set by hand."""
    store = copied(golden_store("5.3.3-shop"), tmp_path / "store")
    for name in ("lmqConsumerOffset.json", "topics.json"):
        (store / "config" / name).unlink()
    outcome = rmqtool("verify", store, *OPTIONS)
    assert "Start the broker." in outcome.out
    assert "Stop the clients" not in outcome.out
    assert "without the contents" not in outcome.out


@pytest.mark.slow
def test_a_plan_that_keeps_offsets_counts_what_comes_again(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Delay offsets that are moved only once the queues are rebuilt: with --keep-offsets never."""
    store = copied(golden_store("4.9.7-shop"), tmp_path / "store")
    path = store / "config/delayOffset.json"
    path.write_text(re.sub(r":\d+", ":0", path.read_text()))
    shutil.rmtree(store / "consumequeue/orders/0")
    options = ("--dry-run", "--json", "--broker-version", "4.9.7", "--allow-older-release")
    again = [rmqtool("repair", store, *more, *options).document["result"]["plan"]["clients"]["delayed"]["again"]
             for more in ((), ("--keep-offsets",))]  # fmt: skip
    assert again == [0, 10]


@pytest.mark.slow
def test_a_plan_cannot_know_delays_that_only_broker_conf_has(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Without any delay queue their entries get the default delays, which decide what counts as delivered, too."""
    store = copied(golden_store("4.9.7-shop"), tmp_path / "store")
    shutil.rmtree(store / "consumequeue/SCHEDULE_TOPIC_XXXX")
    (store / "config/delayOffset.json").unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"enableMultiDispatch=true\nenableLmq=true\nmessageDelayLevel={'1s ' * 16}30m 2h\n")
    of = [rmqtool("verify", store, *more, "--json", "--broker-version", "4.9.7").document["result"]["plan"]
          for more in ((), ("--broker-conf", conf))]  # fmt: skip
    assert [each["clients"] and each["clients"]["delayed"]["again"] for each in of] == [None, 0]
    texts = [" ".join(step["text"] for step in each["steps"]) for each in of]
    assert ["follow from messageDelayLevel" in text for text in texts] == [True, False]


@pytest.mark.slow
def test_a_plan_that_keeps_offsets_knows_that_a_start_stays_refused(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A file of offsets that cannot be read stays where it is, whatever else is repaired."""
    store = copied(golden_store("4.7.1-shop"), tmp_path / "store")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text('{"x')
    shutil.rmtree(store / "consumequeue/orders/0")
    options = ("--dry-run", "--json", "--broker-version", "4.7.1", "--allow-older-release")
    refuses = [rmqtool("repair", store, *more, *options).document["result"]["plan"]["clients"]["refuses"]
               for more in ((), ("--keep-offsets",))]  # fmt: skip
    assert refuses[0] is None
    assert refuses[1]


def test_a_log_that_is_gone_may_be_elsewhere(store: Path) -> None:
    """That is said before anybody restores it."""
    (step,) = plan(store, "commitlog.missing").steps  # and no broker is started before
    assert step.text.startswith("Mount the disk of the log, or name its directory (--broker-conf, storePathCommitLog)")


@pytest.mark.slow
@pytest.mark.parametrize("field", ["size", "body"])
@pytest.mark.parametrize(("level", "number", "stays"), [(18, None, True), (17, None, True), (17, 1, False)])
def test_a_queue_whose_messages_are_all_in_damage_keeps_its_entries(
    field: str, level: int, number: int | None, stays: bool, tmp_path: Path, unpacked: GoldenStore
) -> None:
    """They lead into the dummy records in place of the damage, and the plan says so; others a rebuild leads past it."""
    store = copied(unpacked("5.3.3-shop"), tmp_path / "store")
    waiting = [each for each in records_of(store) if (each.topic, each.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)]
    for each in waiting if number is None else [waiting[number]]:
        with each.file.open("r+b") as log:
            log.seek(each.at + each.fields[field])
            log.write(bytes(each.size) if field == "size" else b"\x7f\x7f\x7f")
    planned = rmqtool("--json", "verify", store, *OPTIONS).document["result"]["plan"]
    rmqtool("repair", store, "--yes", *OPTIONS)
    left = {each["code"] for each in rmqtool("--json", "verify", store, *OPTIONS).document["findings"]}
    assert ("consumequeue.wrong-record" in left) == stays
    assert any("consumequeue.wrong-record" in text for text in planned["remaining"]) == stays


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A DLedger store, whose log only its group can fix."""
    log = EntryBuilder(file_size=1024)
    log.add()
    log.write(tmp_path)
    return tmp_path


def test_queues_and_index_of_a_node_are_rebuilt(node: Path) -> None:
    """They do not count for its group; sizes that no file shows are asked for."""
    found = plan(node, "consumequeue.hole", "index.slot", "timer.chain")
    commands = [shlex.split(step.command or "") for step in found.steps]
    conf = ["--broker-conf", "BROKER_CONF"]
    assert commands == [["rmqtool", f"rebuild-{what}", str(node), *OPTIONS, *conf] for what in ("cq", "index")]
    why = "with its broker.conf, because no file shows the size of"
    assert [step.text for step in found.steps] == [
        f"Rebuild the consume queues, {why} a queue file:", f"Rebuild the index, {why} an index file:"
    ]  # fmt: skip
    assert (found.start_after, bool(found)) == (2, True)
    assert [each.partition(":")[0] for each in found.remaining] == ["timer.chain"]
    queue = node / "consumequeue" / "orders" / "0" / f"{0:020}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(bytes(600))
    (alone,) = plan(node, "consumequeue.hole").steps
    assert alone.text == "Rebuild the consume queues (rmqtool undo takes it back):"
    assert shlex.split(alone.command or "") == ["rmqtool", "rebuild-cq", str(node), *OPTIONS]
    (alone,) = plan(node, "index.slot").steps
    assert "the index" in alone.text
    assert not plan(node, "timer.chain").steps
    assert plan(node, "timer.chain").start_after is None


def test_the_log_of_a_node_comes_from_its_group(node: Path) -> None:
    """Nothing is rebuilt from what is damaged."""
    found = plan(node, "commitlog.zeroed", "consumequeue.hole", "index.slot", "store.recorded-loss")
    copy, acknowledge = found.steps
    assert shlex.split(copy.command or "") == ["rmqtool", "salvage", str(node), *OPTIONS, "--output", "NEW"]
    assert (acknowledge.command or "").endswith("--acknowledge")
    assert (found.start_after, found.remaining) == (1, ())


def test_what_a_node_makes_again_is_moved_away(node: Path) -> None:
    found = [made(code, code, remedy=f"mv {code} ELSEWHERE") for code in ("store.dledger-index", "index.slot")]
    of = diagnosis(node, *found)
    index, rebuild = plan_of(of, repairs_of(of)).steps
    assert (index.command, "index of the entries" in index.text) == ("mv store.dledger-index ELSEWHERE", True)
    assert "rebuild-index" in (rebuild.command or "")
    assert plan_of(of, repairs_of(of)).remaining == ()


@pytest.mark.parametrize(("count", "them"), [(1, "it"), (2, "them"), (25, "them")])
def test_what_nobody_reaches_is_moved_by_people(count: int, them: str) -> None:
    """Twenty entries at once: the next verification has the rest."""
    paths = [Path(f"/store/{number}") for number in range(count)]
    notes = [NotHealed(frozenset(), "out of reach", moved=tuple(paths)), NotHealed(frozenset(), "something else")]
    (step,) = moving_step(notes)
    assert shlex.split(step.command or "") == ["mv", *map(str, paths[:20]), "DIRECTORY"]
    assert step.text.endswith(f"no repair reaches {them}:")
    assert [*moving_step(notes[1:])] == []


def test_a_run_without_a_journal_is_moved_out_of_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing shows how far it was; nothing else is done before."""
    run = made("store.interrupted-run", "a run", store=store, file=".rmqtool/7/journal.json")
    of = diagnosis(store, run, made("index.slot", "", store=store))
    found = plan_of(of, repairs_of(of))
    (step,) = found.steps
    assert shlex.split(step.command or "") == ["mv", f"{store}/.rmqtool/7", f"{store}-7"]
    assert found.start_after == 1
    monkeypatch.setattr("rmqtool.repair.plan.is_remote", lambda _: True)
    assert [each.command for each in plan_of(of, repairs_of(of)).steps] == [None]


def test_a_deletion_that_goes_on_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be taken back; other runs can."""
    of = diagnosis(store, made("store.interrupted-run", "a run", store=store, file=".rmqtool/7"))
    (undone,) = plan_of(of, repairs_of(of)).steps
    assert undone.text.endswith("(rmqtool undo takes it back):")
    deletion = UnfinishedDeletion("7", "clean", 2, 1 << 20)
    monkeypatch.setattr("rmqtool.repair.plan.unfinished_deletion", lambda root: deletion if root == store else None)
    (step,) = plan_of(of, repairs_of(of)).steps
    assert "clean 7 still has 2 files of 1.00 MiB to delete for good; to keep them, move .rmqtool/7" in step.text


def test_what_was_only_staged_is_ended_first(store: Path) -> None:
    """Nothing of the store was changed: a repair ends it, and only where nothing is repaired it is a step."""
    staged = made("store.interrupted-run", "a run", store=store, file=".rmqtool/staging")
    for more, count in (((), 1), ((made("index.slot", "", store=store),), 2)):
        of = diagnosis(store, staged, *more)
        steps = plan_of(of, repairs_of(of)).steps
        assert [*shlex.split(steps[0].command or "")][:2] == ["rmqtool", "repair"]
        assert sum("interrupted run" in step.text for step in steps) == 2 - count
    of = diagnosis(store, staged, made("store.unclean-stop", "", store=store), mended=True)
    ending, start = plan_of(of, repairs_of(of)).steps
    assert ("interrupted run" in ending.text, start.command) == (True, None)
