"""Timer messages of which the timer's files know nothing: never delivered, or twice, or none of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmqtool.findings.finding import Finding
from rmqtool.formats.file_name import file_name
from rmqtool.formats.timer_wheel import UNIT_DTYPE, UNIT_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unreadable import forbidden
from tests.verify.lost_parts import Loss, both, files_of, without, zero
from tests.verify.timer_store import (
    LOG_FILE_SIZE,
    PUT_OFF,
    READ_UNTIL,
    TIMERS,
    cut_log_before,
    due_of,
    size_of,
    store_with_timers,
    store_with_timers_put_off,
    write_check,
    write_wheel,
)
from tests.verify.verifying import codes_of, verify

SHOPS = ("5.1.4-shop", "5.3.3-shop", "5.5.0-shop")  # of three timer messages one is delivered
CHECK = "config/timercheck"
UNIT, AHEAD, TOO_LARGE, LOST = "timer.unit", "timer.ahead", "timer.too-large", "timer.lost"


def log_zeroed(store: Path) -> None:
    """The timer log holds only zeros."""
    for path in files_of(store, "timerlog"):
        zero(path)


def wheel_zeroed(store: Path) -> None:
    """So does the wheel."""
    zero(store / "timerwheel")


def of_timers(store: Path) -> list[Finding]:
    """The findings about timer messages."""
    return [finding for finding in verify(store).findings if finding.code in ("timer.lost", "timer.again")]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(without("timerlog"), id="no log"),
        pytest.param(without("timerlog", "timerwheel"), id="no log and wheel"),
        pytest.param(log_zeroed, id="zeroed log"),
        pytest.param(both(log_zeroed, wheel_zeroed), id="both zeroed"),
    ],
)
def test_what_waits_is_lost(name: str, lose: Loss, tmp_path: Path) -> None:
    """`timercheck` keeps the broker from reading the queue again (none of 30 came, seen with 5.3.3)."""
    store = stores.unpack(name, tmp_path)
    lose(store)
    (lost,) = of_timers(store)
    assert (lost.code, lost.severity, lost.count, lost.queue_offset) == ("timer.lost", "error", 2, 1)
    assert verify(store).verdict == "corrupt"


@pytest.mark.parametrize(("lost", "count"), [("*", PUT_OFF), (file_name(0), 0)], ids=["all", "oldest"])
def test_messages_that_were_put_off(tmp_path: Path, lost: str, count: int) -> None:
    """Each copy of one is a message of the queue, and only the newest waits: without the timer log it is lost once."""
    store = store_with_timers_put_off(tmp_path)
    for path in (store / "timerlog").glob(lost):
        path.unlink()
    expected = [("timer.lost", count, TIMERS - PUT_OFF)] if count else []
    assert [(each.code, each.count, each.queue_offset) for each in of_timers(store)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOPS)
def test_without_its_check_all_comes_twice(name: str, tmp_path: Path) -> None:
    """The broker begins again in its queue, and keeps the timer log (60 of 30 came, seen with 5.3.3)."""
    store = stores.unpack(name, tmp_path)
    without(CHECK)(store)
    (again,) = of_timers(store)
    assert (again.code, again.severity, again.count) == ("timer.again", "warning", 3)
    (store / "abort").touch()  # a kill takes no file away
    assert [finding.severity for finding in of_timers(store)] == ["warning"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOPS)
@pytest.mark.parametrize("lose", [without("timerwheel"), wheel_zeroed], ids=["no wheel", "zeroed wheel"])
def test_the_wheel_is_derived(name: str, lose: Loss, tmp_path: Path) -> None:
    """From the newest file of the timer log (30 of 30 came, seen with 5.3.3)."""
    store = stores.unpack(name, tmp_path)
    lose(store)
    assert "timer.wheel-size" not in codes_of(verify(store), info=True)
    assert of_timers(store) == []


@pytest.mark.slow
def test_the_end_of_the_timer_log(tmp_path: Path) -> None:
    """The broker reads the queue again from after the newest unit that is left."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    zero(files_of(store, "timerlog")[0], 52)
    assert of_timers(store) == []


@pytest.mark.slow
@pytest.mark.parametrize("lose", [without("timerlog"), without(CHECK)], ids=["lost", "again"])
def test_the_remedy_is_a_command(lose: Loss, tmp_path: Path) -> None:
    """It can be pasted, and afterwards a start reads the queue from its beginning: what was delivered comes again."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    lose(store)
    (found,) = of_timers(store)
    assert found.remedy
    subprocess.run(found.remedy, shell=True, capture_output=True, check=False)
    assert [finding.severity for finding in of_timers(store)] == ["info"]
    outcome = verify(store)
    assert outcome.clients is not None
    assert list(outcome.clients.parts()) == ["1 timer message again"]
    assert outcome.verdict == "corrupt"


@pytest.mark.slow
def test_a_wheel_without_its_older_messages(tmp_path: Path) -> None:
    """Only the newest files of the timer log are entered into it again: what waits in older ones is lost."""
    store = store_with_timers(tmp_path / "store")
    assert verify(store).verdict == "clean"
    assert of_timers(store) == []
    without("timerwheel")(store)
    (lost,) = of_timers(store)
    assert (lost.code, lost.count, lost.queue_offset) == ("timer.lost", 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [100, 200, 700])
def test_slots_of_another_length(precision: int, tmp_path: Path) -> None:
    """A broker with another timerPrecisionMs has them: the wheel and the timer log show it, and so does broker.conf."""
    store = store_with_timers(tmp_path / "store")
    write_wheel(store, precision=precision)
    assert of_timers(store) == []
    given = BrokerConf({"timerPrecisionMs": str(precision)})
    assert "timer.lost" not in codes_of(verify(store, conf=given))
    default = BrokerConf(path="broker.conf")
    assert "timer.chain" in codes_of(verify(store, conf=default))


def test_an_older_check(tmp_path: Path) -> None:
    """What it has not counted is in the timer log already."""
    store = store_with_timers(tmp_path / "store")
    write_check(store, queue_offset=TIMERS - 2, read_until=READ_UNTIL - 5000)
    (again,) = of_timers(store)
    assert (again.code, again.count, again.queue_offset) == ("timer.again", 2, TIMERS - 2)


def test_an_older_log(tmp_path: Path) -> None:
    """The queue is read again from after it; what was delivered of that comes again."""
    store = store_with_timers(tmp_path / "store")
    without(f"timerlog/{2 * LOG_FILE_SIZE:020}")(store)
    assert of_timers(store) == []
    write_check(store, queue_offset=TIMERS, read_until=due_of(TIMERS - 1))  # all but the last
    assert [(finding.code, finding.count) for finding in of_timers(store)] == [("timer.again", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("setting", [("timerWheelEnable", "false"), ("timerRocksDBEnable", "true")])
def test_timers_that_are_elsewhere(setting: tuple[str, str], tmp_path: Path) -> None:
    """Switched off, or kept in RocksDB: the files are not asked."""
    store = stores.unpack("5.5.0-shop", tmp_path)
    without("timerlog")(store)
    assert "timer.lost" not in codes_of(verify(store, conf=BrokerConf(dict([setting]))), info=True)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "severity"), [("5.1.4", "error"), ("5.3.3", "warning"), (None, "error")])
def test_a_check_ahead_of_the_queue(version: str | None, severity: str, tmp_path: Path) -> None:
    """Releases before 5.3.2 never read what comes before its offset (5 of 8 came, seen with 5.1.4)."""
    store = store_with_timers(tmp_path / "store")
    write_check(store, queue_offset=TIMERS + 3)
    assert [each.severity for each in verify(store, version="5.1.4").findings if each.code == AHEAD] == ["warning"]
    log_zeroed(store)  # whose newest unit led to the last message
    [ahead] = [each for each in verify(store, version=version).findings if each.code == AHEAD]
    assert (ahead.severity, ahead.queue_offset) == (severity, TIMERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "count"), [("5.1.4", 3), ("5.3.3", 3), ("5.4.0", 1), ("5.5.0", 1), ("5.5.1", 0), (None, 0)]
)
def test_a_message_that_the_timer_cannot_read(version: str | None, count: int, tmp_path: Path) -> None:
    """Before 5.4.0 it stands still there, then it passes over it: seen with real brokers. Nobody has read it yet."""
    store = store_with_timers(tmp_path / "store", large=6)
    log_zeroed(store)
    write_check(store, queue_offset=4)
    conf = BrokerConf({"maxMessageSize": str(size_of(store, 5))})
    found = [each for each in verify(store, version=version, conf=conf).findings if each.code == TOO_LARGE]
    assert [(each.severity, each.count, each.queue_offset) for each in found] == [("error", count, 6)] * (count > 0)
    needed = size_of(store, 6) - 100
    assert all(f"maxMessageSize={needed} is enough" in each.message for each in found)
    enough = BrokerConf({"maxMessageSize": str(needed)})
    assert TOO_LARGE not in codes_of(verify(store, version=version, conf=enough))


@pytest.mark.parametrize(
    ("version", "large", "count"),
    [("5.1.4", 6, 3), ("5.3.3", 6, 3), ("5.5.0", 6, 1), ("5.5.1", 6, 0), ("5.3.3", 0, 0), ("5.5.0", 0, 0)],
)
def test_a_message_of_the_timer_log_that_is_too_large(version: str, large: int, count: int, tmp_path: Path) -> None:
    """As when maxMessageSize is made smaller while it waits: the timer reads it again when it is due."""
    store = store_with_timers(tmp_path / "store", large)  # the first one was delivered
    conf = BrokerConf({"maxMessageSize": str(size_of(store, 5))})
    found = [each for each in verify(store, version=version, conf=conf).findings if each.code == TOO_LARGE]
    assert [(each.severity, each.count, each.queue_offset) for each in found] == [("error", count, 6)] * (count > 0)
    assert all(f"maxMessageSize={size_of(store, 6) - 100} is enough" in each.message for each in found)


@pytest.mark.parametrize(("large", "severity"), [(6, "error"), (0, "info")])
def test_a_message_that_was_passed_over(large: int, severity: str, tmp_path: Path) -> None:
    """Its files are not taken out for it: the next start would pass over it again. What was due is only noted."""
    store = store_with_timers(tmp_path / "store", large)
    log_zeroed(store)
    small = size_of(store, 5)
    findings = verify(store, version="5.5.0", conf=BrokerConf({"maxMessageSize": str(small)})).findings
    found = {each.code: (each.severity, each.count) for each in findings if each.code in (TOO_LARGE, LOST)}
    waiting = TIMERS - 1
    assert found == {TOO_LARGE: (severity, 1), LOST: ("error", waiting - (large > 0))}


@pytest.mark.parametrize("left", [0, 4])
def test_the_log_has_lost_its_end(left: int, tmp_path: Path) -> None:
    """No unit that is due leads after it; the queue counts to the end of the log, as a start cuts it."""
    store = store_with_timers(tmp_path / "store")
    cut_log_before(store, left)
    found = {each.code: each for each in verify(store, version="5.1.4").findings if each.code in (UNIT, AHEAD)}
    assert (found[UNIT].count, found[UNIT].severity) == (min(3, TIMERS - max(left, 1)), "error")
    assert found[AHEAD].queue_offset == left


def test_the_end_of_the_log_cannot_be_read(tmp_path: Path) -> None:
    """Nobody knows then what units of the timer log lead to."""
    store = store_with_timers(tmp_path / "store")
    with forbidden(*(store / "commitlog").iterdir()):
        assert codes_of(verify(store)).isdisjoint({UNIT, AHEAD, "timer.lost"})


@pytest.mark.slow
def test_a_unit_that_leads_to_another_message(tmp_path: Path) -> None:
    """The timer would try to deliver it for ever, once it is due (seen with 5.1.4, 5.3.3 and 5.5.0)."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    [log] = files_of(store, "timerlog")
    units = np.frombuffer(bytearray(log.read_bytes()), UNIT_DTYPE)
    waiting = int(np.flatnonzero(units["physical_offset"])[-1])
    units["physical_offset"][waiting] = 0  # the first order
    log.write_bytes(units.tobytes())
    assert [(each.code, each.offset) for each in verify(store).findings if each.code == UNIT] == [
        (UNIT, waiting * UNIT_SIZE)
    ]
    units["message_size"][waiting] = 0  # passed over
    log.write_bytes(units.tobytes())
    assert UNIT not in codes_of(verify(store))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["1000", "100"])
def test_the_wheel_has_one_size(precision: str, tmp_path: Path) -> None:
    """The number of slots is fixed, whatever the precision is; an empty file is made again."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    conf = BrokerConf({"timerPrecisionMs": precision})
    assert "timer.wheel-size" not in codes_of(verify(store, conf=conf))
    os.truncate(store / "timerwheel", 0)
    assert "timer.wheel-size" not in codes_of(verify(store, conf=conf))
    os.truncate(store / "timerwheel", 32)
    assert "timer.wheel-size" in codes_of(verify(store, conf=conf))


@pytest.mark.parametrize("with_library", [True, False])
def test_timers_in_rocksdb_are_not_missed(
    with_library: bool, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker.conf tells that they are there: the wheel's files are empty, and that is right."""
    if not with_library:
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert not {code for code in codes_of(verify(golden_store("more/5.5.0-rocksdb-side"))) if "timer." in code}
