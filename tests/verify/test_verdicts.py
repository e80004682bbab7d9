"""A verdict claims no more than was looked at."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.report import Selection
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.repair.damaged_fields import flip, records_of
from tests.unchanged import unchanged
from tests.verify.circumstances import Circumstance, circumstances, database
from tests.verify.damages import DAMAGES, keep_index, log_file, tear
from tests.verify.small_store import FILE_SIZE, small_store
from tests.verify.verifying import codes_of, only, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def claim(outcome: Outcome) -> tuple[str, Exit, list[str]]:
    """Verdict, exit status, and what it says was not looked at."""
    return outcome.verdict, outcome.status, [gap.what for gap in outcome.gaps]


def test_all_was_looked_at(store: Path) -> None:
    """Nothing is missing, and the start is predicted."""
    outcome = verify(store)
    assert claim(outcome) == ("clean", Exit.OK, [])
    assert outcome.start_not_predicted is None


@pytest.mark.parametrize(
    ("selection", "what"),
    [
        (Selection(("index",)), ["all but index (--only)"]),
        (Selection(("commitlog", "index.slot")), ["all but commitlog, index.slot (--only)"]),
        (Selection((), ("index",)), ["index (--skip)"]),
        (Selection(("index",), ("index.slot",)), ["all but index (--only)", "index.slot (--skip)"]),
        (Selection((), ("clean", "rebuild")), []),  # which no verification reports
        (Selection((), ("store.disk-full",)), []),  # which says nothing about the store
    ],
)
def test_what_the_user_leaves_out(selection: Selection, what: list[str], store: Path) -> None:
    """A verdict about a part is none about the whole; it was asked for, so the exit status is 0."""
    assert claim(verify(store, selection=selection)) == ("unproven" if what else "clean", Exit.OK, what)


def test_fast_reads_no_body(store: Path) -> None:
    """A body may be anything then."""
    DAMAGES["body"].apply(store)
    assert claim(verify(store, bodies=False)) == ("unproven", Exit.OK, ["bodies (--fast)"])


@pytest.mark.slow
def test_a_store_that_no_broker_starts_on(store: Path) -> None:
    """With ``--only index`` it is not clean, and it is said that no start was predicted."""
    (store / "commitlog" / "nohup.out").write_text("not a log file")
    outcome = verify(store, selection=only("index"))
    assert claim(outcome) == ("unproven", Exit.OK, ["all but index (--only)"])
    assert outcome.start_not_predicted == "--only leaves it out; --only start predicts it"
    assert any(text.startswith("what a start would do: --only leaves it out") for text in outcome.unproven)
    assert verify(store, selection=only("start")).verdict == "corrupt"
    assert verify(store, selection=Selection((), ("start",))).start_not_predicted == "--skip leaves it out"


_CONF = {"indexRocksDBEnable": "true", "timerRocksDBEnable": "true"}


@pytest.mark.parametrize(
    ("names", "conf", "what"),
    [
        (["rocksdbstore/CURRENT"], {}, []),
        (["rocksdbstore/CURRENT", "rocksdbstore/000012.sst"], {}, ["index, timers or transactions in rocksdbstore"]),
        (["rocksdbstore/CURRENT"], _CONF, ["index and timers in rocksdbstore"]),
        (["rocksdbstore/CURRENT"], {"transRocksDBEnable": "true"}, ["transactions in rocksdbstore"]),
        (["compaction/position-checkpoint"], {}, []),
        (["consumequeue_ext/orders/0/00000000000000000000"], {}, ["ext units of consume queues"]),
    ],
)
def test_what_is_not_read(
    names: list[str], conf: Mapping[str, str], what: list[str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formats that this version does not read, or not without the library: an empty database holds nothing."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda _: None)
    for name in names:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("x")
    outcome = verify(store, conf=BrokerConf(dict(conf)))
    assert claim(outcome) == ("unproven", Exit.LOSSY, what) if what else ("clean", Exit.OK, [])
    assert codes_of(outcome) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "database"), [("5.1.4-rocksdb", "consumerOffsets"), ("5.3.3-rocksdb-second-config", "rdb")]
)
def test_configuration_in_rocksdb(
    name: str, database: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics and offsets are those of the database: a start is predicted with them, and no topic is missing."""
    outcome = verify(golden_store(f"more/{name}"), version=name.partition("-")[0])
    assert claim(outcome)[::2] == ("clean", [])
    assert not any(code.startswith(("config.topic", "start.")) for code in codes_of(outcome))
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda _: None)
    unread = claim(verify(golden_store(f"more/{name}"), version=name.partition("-")[0]))
    assert unread[::2] == ("unproven", [f"configuration in RocksDB (config/{database})"])


def test_a_log_of_a_database_that_is_in_no_table(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed broker leaves what it has put there last in RocksDB's own log; without the library it is not read."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda _: None)
    database("rocksdbstore")(store)
    (store / "rocksdbstore" / "000004.log").touch()
    assert verify(store).verdict == "clean"
    (store / "rocksdbstore" / "000004.log").write_bytes(b"x")
    assert verify(store).verdict == "unproven"


@pytest.mark.slow
def test_a_store_of_which_nothing_is_there(tmp_path: Path) -> None:
    """New, or lost as a whole; a broker's first start leaves more than empty directories."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").touch()
    assert claim(verify(tmp_path)) == ("unproven", Exit.LOSSY, ["anything: the store is empty"])
    for written in (b"", b"lock", b"\x7f" * 4096):  # no broker wrote that
        (tmp_path / "checkpoint").write_bytes(written)
        assert claim(verify(tmp_path)) == ("unproven", Exit.LOSSY, ["anything: the store is empty"])
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    assert claim(verify(tmp_path)) == ("clean", Exit.OK, [])


@pytest.mark.slow
def test_offsets_that_a_killed_broker_may_not_have_written(tmp_path: Path) -> None:
    """Within its first ten seconds; nothing shows whether there were any."""
    store = stores.unpack("4.7.1-killed", tmp_path)
    assert verify(store).verdict == "dirty"
    (store / "config" / "consumerOffset.json").unlink()
    assert claim(verify(store)) == ("unproven", Exit.FINDINGS, ["committed offsets"])
    shutil.rmtree(store / "consumequeue" / "orders")
    assert rmqtool("rebuild-cq", store, "--yes", "--broker-version", "4.7.1").status == Exit.OK
    assert not (store / "abort").exists()
    assert claim(verify(store)) == ("unproven", Exit.LOSSY, ["committed offsets"])
    (store / "lock").write_bytes(b"lock")  # as a start does, whose end writes the file
    assert verify(store).verdict == "corrupt"


@pytest.mark.slow
@pytest.mark.parametrize(("further", "doubts"), [((), ["committed offsets"]), (("orders@middle",), [])])
def test_offsets_that_are_all_0(further: tuple[str, ...], doubts: list[str], tmp_path: Path) -> None:
    """Several groups of which none has begun are hardly so; one that has shows that the others have not."""
    store = stores.unpack("4.7.1-clean", tmp_path)
    path = store / "config" / "consumerOffset.json"
    text = re.sub(r'("[^"]+@[^"]+"):\{([^}]*)\}', lambda found: _at_0(found, further), path.read_text())
    path.write_text(text)
    assert claim(verify(store))[2] == doubts


def _at_0(found: re.Match[str], further: tuple[str, ...]) -> str:
    offsets = found[2] if found[1].strip('"') in further else re.sub(r":\d+", ":0", found[2])
    return f"{found[1]}:{{{offsets}}}"


@pytest.mark.slow
def test_topics_that_may_be_deleted_or_lost(tmp_path: Path) -> None:
    """A topic without a queue was deleted where other queues are left; where none is, or its own is, nobody knows."""
    store = stores.unpack("4.7.1-killed", tmp_path)
    topics = store / "config" / "topics.json"
    topics.write_text(topics.read_text().replace('"orders"', '"others"'))
    (whether,) = verify(store).gaps
    assert "lacks orders, and the queues have entries" in whether.text
    assert verify(store, conf=BrokerConf({"brokerRole": "SLAVE"})).gaps == ()
    shutil.rmtree(store / "consumequeue" / "orders")
    assert verify(store).gaps == ()
    shutil.rmtree(store / "consumequeue")
    doubts = ["whether topics were deleted"]
    assert claim(verify(store, version="4.7.1")) == ("unproven", Exit.FINDINGS, doubts)
    of_newer = verify(store)  # 4.9.2 and later derive delayed messages without their delay
    assert claim(of_newer) == ("corrupt", Exit.FINDINGS, doubts)
    assert [each.code for each in of_newer.findings if each.severity == "error"] == ["start.delay-times"]


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that for RocksDB."""
    monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)


@pytest.mark.usefixtures("no_library")
def test_queues_that_were_not_asked_for(store: Path) -> None:
    """Without them it matters nothing that they are in RocksDB; with them it does."""
    database("consumequeue_rocksdb")(store)
    without = verify(store, selection=Selection(("checkpoint", "index")))
    assert without.status == Exit.OK
    assert "queues in RocksDB" not in [gap.what for gap in without.gaps]
    assert verify(store, selection=only("consumequeue")).status == Exit.LOSSY


@pytest.mark.usefixtures("no_library")
def test_findings_decide_first(store: Path) -> None:
    """What was not looked at is said beside them."""
    database("consumequeue_rocksdb")(store)
    DAMAGES["body"].apply(store)
    assert claim(verify(store)) == ("corrupt", Exit.FINDINGS, ["queues in RocksDB"])
    assert claim(verify(store, bodies=False))[0] == "unproven"


def test_a_dirty_store(store: Path) -> None:
    """Torn at its end, whatever was left out."""
    tear(store)
    (store / "abort").touch()
    keep_index(store)
    assert claim(verify(store, selection=Selection((), ("index",)))) == ("dirty", Exit.FINDINGS, ["index (--skip)"])


def interrupted(store: Path, events: int) -> Outcome:
    """A verification that Ctrl-C ends when so many things of the log are done."""
    left = [events]

    def stop(size: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    no_index = BrokerConf({"messageIndexEnable": "false"})
    verification = Verification(open_store(store, no_index), VerifyRequest(part_size=350))
    with pytest.raises(KeyboardInterrupt):
        verification.run(stop)
    return outcome_of(verification)


@pytest.mark.slow
def test_an_interrupted_verification(store: Path) -> None:
    """Its map shows what was reached, and not that the rest is empty; more is reached with each step."""
    (store / "index").rename(store / "away")
    sizes = []
    for events in range(1, 12, 2):
        outcome = interrupted(store, events)
        assert claim(outcome) == ("unproven", Exit.INTERRUPTED, ["the rest (interrupted)"])
        assert outcome.start_not_predicted == "interrupted"
        extents = [*outcome.log_map]
        ends = [extent.physical_offset + extent.size for extent in extents]
        assert [0, *ends[:-1]] == [extent.physical_offset for extent in extents]
        assert ends[-1] == len([*(store / "commitlog").iterdir()]) * FILE_SIZE
        assert {extent.state for extent in extents} == {"good", "not-reached"}
        assert extents[0].state == "good"
        sizes.append(sum(extent.size for extent in extents if extent.state == "good"))
    assert sizes == sorted(set(sizes))


def test_an_interrupted_verification_of_a_damaged_store(store: Path) -> None:
    """Findings count that were made until then."""
    DAMAGES["zeros"].apply(store)
    outcome = interrupted(store, 11)
    assert outcome.verdict == "corrupt"
    assert {"good", "bad"} <= {extent.state for extent in outcome.log_map}


EACH = [
    *(Circumstance(damage.code, damage.apply) for damage in DAMAGES.values()),
    *(each for each in circumstances() if each.code.partition(".")[0] not in ("clean", "rebuild", "export")),
]


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize("each", EACH, ids=lambda each: each.code)
def test_only_finds_what_all_find(each: Circumstance, tmp_path: Path) -> None:
    """Narrowed to one code, that code is found as often: what is asked for is looked at."""
    store = each.build(tmp_path / "store")
    each.apply(store)
    counts = []
    with each.while_verifying(store), unchanged(store), nullcontext():
        for selection in (Selection(), only(each.code)):
            version = parse_version(each.version) if each.version else None
            verification = Verification(
                open_store(store, BrokerConf(dict(each.conf))), VerifyRequest(version, selection)
            )
            verification.run(lambda size: None)
            counts.append(outcome_of(verification).report.totals().get(each.code))
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_only_finds_fields_that_the_index_shows(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A damaged key, which no queue tells."""
    store = copied(golden_store("5.3.3-clean"), tmp_path / "store")
    flip(store, next(record for record in records_of(store) if "KEYS" in record.fields), "KEYS")
    assert codes_of(verify(store, selection=only("commitlog.field"))) == {"commitlog.field"}


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.5.0-shop"])
def test_golden_stores_are_looked_at_wholly(name: str, golden_store: GoldenStore) -> None:
    """Stores of whole brokers, with an empty database and no compacted log beside the queues."""
    outcome = verify(golden_store(name))
    assert claim(outcome) == ("clean", Exit.OK, [])


def test_an_unreadable_file_is_named_once(store: Path) -> None:
    """Under its path in the store."""
    from tests.unreadable import forbidden

    with forbidden(log_file(store, 1)):
        gaps = [gap for gap in verify(store).gaps if gap.why == "unreadable"]
    assert [gap.what for gap in gaps] == [f"commitlog/{log_file(store, 1).name}", "what a start would do"]
