"""What stands wrongly among a store's files is put right, and nothing else is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import MAGIC_CODE_BLANK
from rmqtool.repair.log_files import BEFORE_REBUILDS, log_file_changes
from rmqtool.repair.not_healed import not_healed
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.losses import recorded_losses
from rmqtool.verify.read_errors import UnreadFiles
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.repair.healing import findings_of, heal, left, plan
from tests.transaction.small import tree
from tests.verify.damages import OFFSETS, QUEUE, blank_offset, log_file, patch_log
from tests.verify.small_store import FILE_SIZE, StoreBuilder, small_log, small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def make(name: str, data: bytes = b"notes") -> Callable[[Path], object]:
    """Write a file that does not belong there."""
    return lambda store: (store / name).write_bytes(data)


def make_directory(name: str) -> Callable[[Path], object]:
    """Make a directory with a file, which does not belong there."""

    def apply(store: Path) -> None:
        (store / name).mkdir()
        (store / name / "notes").write_bytes(b"notes")

    return apply


STRAYS: dict[str, Callable[[Path], object]] = {
    "commitlog/nohup.out": make("commitlog/nohup.out"),
    "commitlog/" + file_name(0) + ".bak": make("commitlog/" + file_name(0) + ".bak", bytes(FILE_SIZE)),
    "commitlog/pipe": lambda store: os.mkfifo(store / "commitlog/pipe"),
    "commitlog/old": make_directory("commitlog/old"),
    f"{QUEUE}/x.bak": make(f"{QUEUE}/x.bak"),
    f"{QUEUE}/old": make_directory(f"{QUEUE}/old"),
    "index/20231114221320002": make_directory("index/20231114221320002"),
    "abort": make_directory("abort"),
    f"commitlog/{file_name(1 << 20)}": lambda store: (store / "commitlog" / file_name(1 << 20)).touch(),
}


@pytest.mark.slow
def test_a_sound_store_needs_nothing(store: Path) -> None:
    """Neither does one with files in places where a broker does not look."""
    assert plan(store) == []
    (store / "consumequeue/notes.txt").write_bytes(b"notes")
    (store / "notes.txt").write_bytes(b"notes")
    assert plan(store) == []
    assert left(store) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STRAYS)
def test_what_does_not_belong_is_taken_out(store: Path, name: str) -> None:
    """The rest stays byte for byte, and the verdict is that of the store before."""
    before = tree(store)
    STRAYS[name](store)
    [change] = heal(store)
    assert name in change.details
    assert change.codes <= BEFORE_REBUILDS
    assert tree(store) == before
    assert codes_of(verify(store)) == set()
    assert list((store / ".rmqtool").glob(f"*/old/{name}"))


@pytest.mark.slow
def test_many_strays_are_one_change(store: Path) -> None:
    """More than a verification shows one by one."""
    for number in range(30):
        (store / "commitlog" / f"copy {number}").touch()
    [change] = heal(store)
    assert len(change.details) == 30
    assert codes_of(verify(store)) == set()


@pytest.mark.slow
def test_a_file_for_a_queue_is_taken_out_where_the_queue_is_missing(store: Path) -> None:
    """Then a rebuild can write the queue."""
    before = tree(store)
    (store / QUEUE).rename(store / "aside")
    (store / QUEUE).write_bytes(b"notes")
    [change] = plan(store)
    assert change.details == (QUEUE,)
    heal(store)
    (store / "aside").rename(store / QUEUE)
    assert tree(store) == before


# Sizes


@pytest.mark.slow
def test_a_last_file_that_is_short_is_filled_up(store: Path) -> None:
    """What is there stays; what is not there are zeros, and take no space."""
    path = log_file(store, -1)
    data = path.read_bytes()
    os.truncate(path, 1000)
    [change] = heal(store)
    assert change.lost is not None
    assert path.read_bytes() == data[:1000].ljust(FILE_SIZE, b"\0")
    assert "commitlog.file-size" not in codes_of(verify(store))


@pytest.mark.slow
def test_a_last_file_whose_zeros_were_cut_is_whole_again(store: Path) -> None:
    """As a tool leaves it that cuts trailing zeros."""
    before = tree(store)
    path = log_file(store, -1)
    status = path.stat()
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")))
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    heal(store)
    assert tree(store) == before


@pytest.mark.slow
def test_files_allocated_ahead_do_not_make_it_a_middle_one(store: Path) -> None:
    """After the short file are only zeros."""
    (store / "commitlog" / file_name(len(list((store / "commitlog").iterdir())) * FILE_SIZE)).write_bytes(
        bytes(FILE_SIZE)
    )
    os.truncate(log_file(store, -2), 1000)
    heal(store)
    assert log_file(store, -2).stat().st_size == FILE_SIZE


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, FILE_SIZE - 8])
def test_a_short_file_in_the_middle_is_filled_up(store: Path, size: int) -> None:
    """No broker starts on it; the plan asks for the file first, and says what is lost without it."""
    path = log_file(store, 1)
    data = path.read_bytes()
    os.truncate(path, size)
    [needed] = [each.needed for each in left(store)]
    assert needed == (f"commitlog/{file_name(FILE_SIZE)} ({FILE_SIZE} bytes; keep the present one as well)",)
    [change] = heal(store)
    assert change.lost == f"what commitlog/{path.name} had after its first {size} bytes, unless it is restored first"
    assert path.read_bytes() == data[:size].ljust(FILE_SIZE, b"\0")
    assert not codes_of(verify(store)) & {"commitlog.file-size", "commitlog.gap", "start.refuses"}


@pytest.mark.slow
def test_an_empty_file_in_the_middle_is_taken_out(store: Path) -> None:
    """No broker starts on it; on the gap that it leaves one does, and the file has to be restored."""
    os.truncate(log_file(store, 1), 0)
    [change] = heal(store)
    assert change.details == (f"commitlog/{file_name(FILE_SIZE)}",)
    assert codes_of(verify(store)) == {"commitlog.gap", "store.recorded-loss"}
    [one] = left(store)
    assert one.needed == (f"commitlog/{file_name(FILE_SIZE)} ({FILE_SIZE} bytes)",)


@pytest.mark.slow
def test_an_empty_first_file_is_recorded(store: Path) -> None:
    """Once it is out, and the queues begin after it, nothing else tells that there was such a file."""
    os.truncate(log_file(store, 0), 0)
    heal(store)
    [recorded] = recorded_losses(store)
    assert recorded.loss is not None
    assert recorded.loss.files == (f"commitlog/{file_name(0)} ({FILE_SIZE} bytes)",)


@pytest.mark.slow
def test_an_empty_last_file_is_not_recorded(store: Path) -> None:
    """A broker that was killed before it gave the file its size leaves one."""
    (store / "commitlog" / file_name(sum(path.stat().st_size for path in (store / "commitlog").iterdir()))).touch()
    heal(store)
    assert recorded_losses(store) == []


def test_the_first_file_is_empty(store: Path) -> None:
    """The queues know which messages were in there: the plan says that they are lost, and not that nothing was."""
    os.truncate(log_file(store, 0), 0)
    step = rmqtool("verify", store, "--json").document["result"]["plan"]["steps"][0]
    assert "of 0 bytes of the log: removed" in str(step["changes"])
    assert "messages that cannot be read" in str(step["lost"])


def test_all_files_of_a_log_that_goes_on_are_empty(store: Path) -> None:
    """Their names are all that is left of it."""
    log_file(store, 0).unlink()
    for path in (store / "commitlog").iterdir():
        os.truncate(path, 0)
    assert not [change for change in plan(store) if "commitlog.empty-file" in change.codes]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 20, -16])
def test_a_blank_of_a_wrong_size_gets_its_own(store: Path, size: int) -> None:
    """The rest of the file stays as it is: a broker may leave any bytes after a blank."""
    path = log_file(store, 0)
    before = path.read_bytes()
    patch_log(blank_offset(), size.to_bytes(4, "big", signed=True))(store)
    [change] = heal(store)
    assert change.codes == {"commitlog.blank"}
    assert path.read_bytes() == before
    assert codes_of(verify(store)) == set()


@pytest.mark.slow
def test_a_blank_before_records_is_damage(store: Path) -> None:
    """With a size that points to the end of the file it would hide them."""
    patch_log(OFFSETS[3], (1 << 20).to_bytes(4, "big") + MAGIC_CODE_BLANK.to_bytes(4, "big", signed=True))(store)
    assert "commitlog.blank" in codes_of(verify(store))
    assert plan(store) == []


@pytest.mark.slow
def test_a_file_that_has_grown_by_zeros_is_cut(store: Path) -> None:
    """In any place of the log; the bytes are beyond what a file holds."""
    before = tree(store)
    path = log_file(store, 1)
    status = path.stat()
    os.truncate(path, FILE_SIZE + 100)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    heal(store)
    assert tree(store) == before


def test_a_file_that_has_grown_by_data_is_left(store: Path) -> None:
    """Somebody has to look at it."""
    path = log_file(store, 1)
    path.write_bytes(path.read_bytes() + b"data")
    assert not [change for change in plan(store) if "commitlog.file-size" in change.codes]
    assert [each for each in left(store) if "commitlog.file-size" in each.codes]


@pytest.mark.slow
def test_a_wrong_broker_conf_changes_no_file(store: Path) -> None:
    """All files share one size, so broker.conf is wrong, whatever else is."""
    conf = BrokerConf({"mappedFileSizeCommitLog": str(2 * FILE_SIZE)})
    assert plan(store, conf) == []
    [one] = left(store, conf)
    assert f"put {FILE_SIZE}" in one.why
    os.truncate(log_file(store, -1), 1000)
    assert not [change for change in plan(store, conf) if "commitlog.file-size" in change.codes]


_ONE_FILE = 1 << 13
_ONE = BrokerConf({"mappedFileSizeCommitLog": str(_ONE_FILE)})


def one_file(store: Path, *, full: bool) -> StoreBuilder:
    """Write a store with a log of one file, which its blank ends or zeros."""
    builder = small_log(15, _ONE_FILE)
    small_store(store, builder)
    if full:
        builder.roll()
        log_file(store, 0).write_bytes(builder.files[0])
    return builder


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["in a record", "after a record", "in the size of a record", "in the blank"])
def test_the_only_file_is_filled_up_where_it_was_cut(tmp_path: Path, cut: str) -> None:
    """Its own size shows nothing then, and no broker leaves a file that ends so: broker.conf is right."""
    store = tmp_path / "one"
    builder = one_file(store, full=cut == "in the blank")
    at = {"in a record": 50, "after a record": 0, "in the size of a record": 4}
    size = builder.offsets[10] + at[cut] if cut in at else _ONE_FILE - 8
    path = log_file(store, 0)
    data = path.read_bytes()
    os.truncate(path, size)
    assert {"commitlog.file-size", "start.refuses"} <= codes_of(verify(store, conf=_ONE))
    needed = {name for each in left(store, _ONE) for name in each.needed}
    assert needed <= {f"commitlog/{path.name} ({_ONE_FILE} bytes; keep the present one as well)"}
    [change] = [each for each in heal(store, _ONE) if "commitlog.file-size" in each.codes]
    assert change.lost == f"what commitlog/{path.name} had after its first {size} bytes, unless it is restored first"
    assert path.read_bytes() == data[:size].ljust(_ONE_FILE, b"\0")
    assert not codes_of(verify(store, conf=_ONE)) & {"commitlog.file-size", "start.refuses"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.7.1-shop", "4.9.7-shop", "5.1.4-shop"])
def test_a_broker_starts_after_the_only_file_was_filled_up(
    golden_store: GoldenStore, tmp_path: Path, name: str
) -> None:
    """What clients lose by it is known once it is: where the log ends shows only then."""
    store, conf = copied(golden_store(name), tmp_path / "store"), tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmapedFileSizeCommitLog=65536\n")
    options = ("--broker-conf", str(conf), "--broker-version", name.partition("-")[0], "--json")
    os.truncate(log_file(store, 0), 32768)
    found = rmqtool("verify", str(store), *options).document["result"]
    assert found["start"]["refuses"] is not None
    assert found["plan"]["clients"] is None
    assert sum(bool(step["changes"]) for step in found["plan"]["steps"]) == 1
    repaired = rmqtool("repair", str(store), "--yes", "--allow-older-release", *options).document["result"]
    assert repaired["proof"]["clients"]["refuses"] is None
    assert rmqtool("verify", str(store), *options).document["result"]["start"]["refuses"] is None


@pytest.mark.parametrize("full", [True, False], ids=["full", "with zeros"])
def test_the_only_file_that_is_whole_is_left(tmp_path: Path, full: bool) -> None:
    """It ends as a broker ends it: then broker.conf is wrong, and a step of the plan says so."""
    store = tmp_path / "one"
    one_file(store, full=full)
    conf = BrokerConf({"mappedFileSizeCommitLog": str(2 * _ONE_FILE)})
    assert plan(store, conf) == []
    [one] = left(store, conf)
    assert f"put {_ONE_FILE}" in one.why
    [finding] = findings_of(store, conf)
    assert finding.details["setting"] == "mappedFileSizeCommitLog"
    assert CATALOGUE["start.refuses"].treatment_of(finding) == "settings"


# What has to come from elsewhere


def test_a_missing_file_is_named(store: Path) -> None:
    """With its size; nothing is changed for it."""
    log_file(store, 1).unlink()
    assert not [change for change in plan(store) if "commitlog.gap" in change.codes]
    [one] = [each for each in left(store) if "commitlog.gap" in each.codes]
    assert one.needed == (f"commitlog/{file_name(FILE_SIZE)} ({FILE_SIZE} bytes)",)


def test_missing_last_files_are_named(store: Path) -> None:
    """As far as queues and index lead."""
    names = [log_file(store, number).name for number in (-2, -1)]
    for name in names:
        (store / "commitlog" / name).unlink()
    [one] = [each for each in left(store) if "commitlog.last-file-missing" in each.codes]
    assert one.needed == tuple(f"commitlog/{name} ({FILE_SIZE} bytes)" for name in names)


def test_what_lies_outside_the_store_is_left_to_people(store: Path, tmp_path: Path) -> None:
    """A transaction changes one file system and one directory."""
    (store / "commitlog").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "nohup.out").touch()
    conf = BrokerConf({"storePathCommitLog": str(tmp_path / "elsewhere")})
    assert plan(store, conf) == []
    [one] = left(store, conf)
    assert one.moved == (tmp_path / "elsewhere" / "nohup.out",)


def test_an_unreadable_file_is_named(store: Path) -> None:
    """Nothing is judged by contents while some are not known; strays go all the same."""
    log_file(store, 1).unlink()
    log_file(store, 1).parent.joinpath(file_name(FILE_SIZE)).symlink_to(store / "nowhere")
    (store / "commitlog" / "nohup.out").touch()
    snapshot = Snapshot(open_store(store), scope=UnreadFiles().scope)
    findings = findings_of(store)
    changes = log_file_changes(snapshot, findings)
    assert [change.details for change in changes] == [("commitlog/nohup.out",)]
    [one] = not_healed(snapshot, findings, changes)
    assert one.needed == (f"commitlog/{file_name(FILE_SIZE)}",)
