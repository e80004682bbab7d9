"""The timer's files, the checkpoint, and files of another owner."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqtool.formats.layout import decode_units
from rmqtool.formats.timer_wheel import UNIT_DTYPE, is_written
from rmqtool.repair.log_files import log_file_changes
from rmqtool.repair.plan import permission_command
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.rules.versions import parse_version
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, read_checkpoint
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.losses import acknowledge, recorded_losses
from tests.building import START_TIME
from tests.commands.running import rmqtool
from tests.findings.made import made
from tests.repair.healing import carry_out, findings_of, heal, plan
from tests.rights import needs_root
from tests.verify.circumstances import closed_gap
from tests.verify.damages import log_file, overwrite, remove
from tests.verify.small_store import RECORDS, small_log, small_store
from tests.verify.timer_store import READ_UNTIL, TIMERS, cut_log_before, store_with_timers, write_check
from tests.verify.verifying import codes_of, verify

LAST_TIME = START_TIME + 400 * (RECORDS - 1)
ALL = {"timerwheel", "timerlog", "config/timercheck"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.fixture
def timers(tmp_path: Path) -> Path:
    return store_with_timers(tmp_path / "store")


# Timers


TIMER_LOSSES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "no timer log": (lambda store: remove(store / "timerlog"), ALL - {"timerlog"}),
    "no wheel": (lambda store: (store / "timerwheel").unlink(), ALL - {"timerwheel"}),
    "no check": (lambda store: (store / "config/timercheck").unlink(), set()),
    "an older check": (
        lambda store: write_check(store, queue_offset=2, read_until=READ_UNTIL - 10_000),
        {f"{name}_timer_queue_offset: 2 becomes {TIMERS}" for name in ("last", "master")},
    ),
    "a short wheel": (lambda store: os.truncate(store / "timerwheel", 64), ALL),
    "a timer log file cut": (lambda store: os.truncate(sorted((store / "timerlog").iterdir())[1], 50), ALL),
    "a stray": (lambda store: (store / "timerlog/x.bak").touch(), {"timerlog/x.bak"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", TIMER_LOSSES)
def test_the_timers_files_go_together(timers: Path, loss: str) -> None:
    """What is left of them is taken out, so that the broker reads its queue again; a stray goes alone.

    A check that is older than the timer log, which holds all of them, is brought up to it, a lost one written again:
    nothing is read again.
    """
    apply, names = TIMER_LOSSES[loss]
    apply(timers)
    [change] = heal(timers)
    assert set(change.details) == names
    assert (change.lost is None) == (loss in ("a stray", "an older check", "no check"))
    assert not {code for code in codes_of(verify(timers)) if code.startswith("timer.")}


@pytest.mark.slow
def test_a_check_ahead_of_the_queue(timers: Path) -> None:
    """The timer goes on at the end of its queue; nothing is delivered again."""
    write_check(timers, queue_offset=90)
    [change] = heal(timers)
    fields = ("last_timer_queue_offset", "master_timer_queue_offset")
    assert (change.details, change.lost) == (tuple(f"{field}: 90 becomes {TIMERS}" for field in fields), None)
    assert not codes_of(verify(timers))


def test_a_plan_with_the_timers_check(timers: Path) -> None:
    """What it writes into `config/` is no JSON."""
    write_check(timers, queue_offset=90)
    assert rmqtool("repair", timers, "--dry-run").status == 0


@pytest.mark.slow
def test_units_that_lead_to_no_message(timers: Path) -> None:
    """The timer passes them over; nothing else is lost by that, and nothing delivered again."""
    cut_log_before(timers, 4)
    changes = heal(timers)
    assert [change.lost for change in changes if change.codes & {"timer.unit", "timer.ahead"}] == [None] * 3
    assert {code for code in codes_of(verify(timers)) if code.startswith("timer.")} == set()


@pytest.mark.slow
def test_an_inert_record_in_place_of_a_timer_message(timers: Path) -> None:
    """The timer could not deliver it, and would stand still: it passes the entry over that leads there."""
    targets = timer_units(timers)["physical_offset"]
    with log_file(timers, 0).open("r+b") as log:
        log.seek(int(targets[5]) + 4)
        log.write(b"\1\2\3\4" * 2)  # its magic code, and the CRC of its body
    rmqtool("repair", timers, "--yes")
    units = timer_units(timers)
    assert units["physical_offset"].tolist() == targets.tolist()
    assert np.flatnonzero(units["message_size"] == 0).tolist() == [5]


def timer_units(store: Path) -> NDArray[np.void]:
    """The units of the timer log."""
    units = np.concatenate(
        [decode_units(UNIT_DTYPE, file.read_bytes()) for file in sorted((store / "timerlog").iterdir())]
    )
    return units[is_written(units)]


@pytest.mark.parametrize("kept", [None, *sorted(ALL - {"timerwheel"})])
def test_a_rebuilt_timer_queue_is_read_from_its_begin(timers: Path, kept: str | None) -> None:
    """Without log and check nothing knows what was delivered: the plan says so before the queue is rebuilt."""
    for name in (f"consumequeue/{TIMER_TOPIC}", *(ALL - {kept})):
        path = timers / name
        remove(path) if path.is_dir() else path.unlink()
    plan = rmqtool("verify", timers, "--json").document["result"]["plan"]
    assert ("which timer messages were delivered" in str(plan["steps"][0]["lost"])) == (kept is None)


@pytest.mark.slow
def test_a_wheel_alone_is_made_anew(store: Path) -> None:
    """Without timer messages that wait nothing else has to go."""
    (store / "timerwheel").write_bytes(bytes(64))
    [change] = heal(store)
    assert (change.details, change.lost) == (("timerwheel",), None)
    assert codes_of(verify(store)) == set()


def test_sound_timers_stay(timers: Path) -> None:
    """Also where an unclean stop lets a few come twice."""
    assert plan(timers) == []


# Checkpoint


CHECKPOINTS: dict[str, Callable[[Path], object]] = {
    "none": lambda store: (store / "checkpoint").unlink(),
    "in the future": lambda store: write_times(store, 1 << 42),
    "garbage": lambda store: (store / "checkpoint").write_bytes(b"\x12" * 48),
    "all bits": lambda store: (store / "checkpoint").write_bytes(b"\x7f" + b"\xff" * 47),
}


def write_times(store: Path, time: int) -> None:
    """Give the checkpoint these times."""
    (store / "checkpoint").write_bytes((time.to_bytes(8, "big") * 3).ljust(4096, b"\0"))


@pytest.mark.slow
@pytest.mark.parametrize(("position", "name", "beyond"), [(32, "confirm", 1), (40, "logics", 0)])
def test_offsets_behind_the_log_are_recorded_when_they_go(store: Path, position: int, name: str, beyond: int) -> None:
    """They prove that the log has lost its end, as times do."""
    end = small_log().end + beyond
    overwrite(store, "checkpoint", position, end.to_bytes(8, "big"))
    assert "commitlog.end-missing" in codes_of(verify(store))
    heal(store)
    [record] = recorded_losses(store)
    assert record.loss is not None
    assert record.loss.proofs == (f"checkpoint had {name}_physical_offset {end}",)
    assert codes_of(verify(store)) == {"store.recorded-loss"}


def test_units_that_are_only_shifted_do_not_keep_a_checkpoint_away(tmp_path: Path) -> None:
    store = closed_gap(tmp_path / "store")
    [change] = heal(store)
    assert change.codes == {"checkpoint.missing"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKPOINTS)
@pytest.mark.parametrize("abort", [False, True])
def test_a_checkpoint_that_fits_the_log(store: Path, case: str, abort: bool) -> None:
    """Times of the last record; a full page, as the broker maps it."""
    CHECKPOINTS[case](store)
    if abort:
        (store / "abort").touch()
    [change] = heal(store)
    assert (store / "checkpoint").stat().st_size == 4096
    fields = read_checkpoint(open_store(store)) or {}
    assert {fields[name] for name in CHECKPOINT_TIMES} == {LAST_TIME}
    assert fields["logics_physical_offset"] in (0, small_log().offsets[-1])
    assert codes_of(verify(store)) <= {"store.unclean-stop"}
    assert change.codes <= {
        *("checkpoint.missing", "checkpoint.future", "checkpoint.logics-offset", "commitlog.end-missing"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_proof_of_lost_messages_is_recorded(store: Path) -> None:
    """After a clean stop no checkpoint is newer than the log."""
    write_times(store, LAST_TIME + 1000)
    [change] = heal(store)
    assert "knew a message of" in str(change.lost)
    assert codes_of(verify(store)) == {"store.recorded-loss"}
    [recorded] = recorded_losses(store)
    assert recorded.loss
    assert len(recorded.loss.proofs) == 1
    acknowledge(store)
    assert codes_of(verify(store)) == set()


def test_only_a_wrong_offset_is_changed(store: Path) -> None:
    """Times that fit stay."""
    before = read_checkpoint(open_store(store)) or {}
    with (store / "checkpoint").open("r+b") as file:
        file.seek(40)
        file.write((small_log().offsets[3] + 1).to_bytes(8, "big"))
    [change] = heal(store)
    assert len(change.details) == 1
    after = read_checkpoint(open_store(store)) or {}
    assert after == {**before, "logics_physical_offset": small_log().offsets[-1]}


def test_release_5_5_gets_its_offset(store: Path) -> None:
    """Named by the user; before, the bytes are not used."""
    (store / "checkpoint").unlink()
    snapshot = Snapshot(open_store(store), parse_version("5.5.0"))
    carry_out(store, log_file_changes(snapshot, findings_of(store)))
    assert (read_checkpoint(open_store(store)) or {})["logics_physical_offset"] == small_log().offsets[-1]


def test_no_checkpoint_over_queues_that_lack_units(store: Path) -> None:
    """A start derives them from where the checkpoint says; the rebuild writes it."""
    (store / "checkpoint").unlink()
    remove(store / "consumequeue/orders/0")
    assert plan(store) == []


# Owners


@needs_root
def test_an_owner_is_told_by_a_command(store: Path) -> None:
    """That of most files, for all of the store."""
    os.chown(log_file(store, 1), 4711, 4711)
    (found,) = (each for each in findings_of(store) if each.code == "store.permission")
    status = store.stat()
    command = permission_command(Snapshot(open_store(store)), found)
    assert command == f"chown -R {status.st_uid}:{status.st_gid} {store}"
    assert plan(store) == []


def test_a_mode_is_told_by_a_command(store: Path) -> None:
    """Also of a log outside the store."""
    log_file(store, 1).chmod(0o444)
    (found,) = (each for each in findings_of(store) if each.code == "store.permission")
    snapshot = Snapshot(open_store(store))
    assert permission_command(snapshot, found) == f"chmod -R u+w {store}"
    log_file(store, 1).chmod(0o644)
    assert permission_command(Snapshot(open_store(store)), found) is None
    assert permission_command(snapshot, made("commitlog.gap", "x", file="commitlog")) is None


def test_the_command_reaches_a_log_elsewhere(store: Path, tmp_path: Path) -> None:
    """Its directories are named too, quoted for a shell."""
    (store / "commitlog").rename(tmp_path / "a log")
    path = min((tmp_path / "a log").iterdir())
    path.chmod(0o444)
    conf = BrokerConf({"storePathCommitLog": str(tmp_path / "a log")})
    (found,) = (each for each in findings_of(store, conf) if each.code == "store.permission")
    command = permission_command(Snapshot(open_store(store, conf)), found)
    assert command == f"chmod -R u+w {store} '{tmp_path}/a log'"
