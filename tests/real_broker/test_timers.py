"""Timers of a log that has lost its end, and of one too large: a real broker delivers what `verify` says it does."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from rmqtool.formats import timer_wheel
from rmqtool.formats.layout import decode_units
from rmqtool.rules.system_topics import TIMER_TOPIC
from tests.commands.running import rmqtool
from tests.real_broker.client_damages import lose_destination
from tests.real_broker.served import served, wait_for
from tests.real_broker.timers import delivered, logged, send
from tests.verify.timer_store import cut_log_before
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LONG_TOPIC = "t" * 110
SMALL_QUEUES = {"mappedFileSizeConsumeQueue": "2000"}
SENT, KEPT = 6, 3  # timers, and those of them that the log still has
PLAIN = 8
NEW = 4
DUE_MS = 20_000  # for a stop, a repair and a start
AFTER_MS = 2000
MANY = 20


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_the_log_has_lost_its_end(version: str, tmp_path: Path) -> None:
    """Without the repair all stand still at the plain message in place of a timer message that is lost, once it is due.

    5.1.4 also loses the first timers that are sent then.
    """
    root = tmp_path / "store"
    with served(version, root, SMALL_QUEUES) as broker:
        due = send(broker, SENT, DUE_MS)
        wait_for("the timer to read them", lambda: logged(root) >= SENT)
        broker.stop()
        cut_log_before(root, KEPT)
        assert {"timer.unit", "timer.ahead"} <= codes_of(verify(root, version=version))
        rmqtool("repair", root, "--yes", "--broker-version", version)
        assert not {code for code in codes_of(verify(root, version=version)) if code.startswith("timer.")}

        broker.start()
        send(broker, PLAIN, -1000)  # at once
        send(broker, NEW, max(0, int((due - time.time()) * 1000)) + AFTER_MS)
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT + PLAIN + NEW)
        broker.stop()
    assert delivered(root) == KEPT + PLAIN + NEW


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("name", [b"REAL_QID", b"REAL_TOPIC"])
def test_a_message_without_a_destination(version: str, name: bytes, tmp_path: Path) -> None:
    """It stops the timer: those of its second are delivered, later ones are not."""
    root = tmp_path / "store"
    with served(version, root, SMALL_QUEUES) as broker:
        for count, seconds in ((1, 0), (KEPT, 4), (2, 8)):
            send(broker, count, DUE_MS + seconds * 1000)
        wait_for("the timer to read them", lambda: logged(root) >= SENT)
        broker.stop()
        lose_destination(root, 0, 2, name, TIMER_TOPIC)
        clients = rmqtool("verify", root, "--json", "--broker-version", version).document["result"]["start"]["clients"]
        assert clients["timers"] == {"early": 0, "late": 0, "never": 3, "again": 0}
        broker.start()
        wait_for("timers to be delivered", lambda: delivered(root) >= SENT - 3)
        time.sleep(10)  # the last ones are due
        broker.stop()
    assert delivered(root) == SENT - 3


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_start_makes_the_queue_and_the_timer_log_is_gone(version: str, tmp_path: Path) -> None:
    """What waits is never delivered."""
    root = tmp_path / "store"
    with served(version, root, SMALL_QUEUES) as broker:
        due = send(broker, KEPT, DUE_MS)
        wait_for("the timer to read them", lambda: logged(root) >= KEPT)
        broker.stop()
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "timerlog")
        clients = rmqtool("verify", root, "--json", "--broker-version", version).document["result"]["start"]["clients"]
        assert clients["timers"] == {"early": 0, "late": 0, "never": KEPT, "again": 0}
        broker.start()
        time.sleep(max(0.0, due - time.time()) + 4)
        broker.stop()
    assert delivered(root) == 0


@pytest.mark.rare
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_all_of_the_timer_is_gone(version: str, tmp_path: Path) -> None:
    """With its queue, which a repair makes again: what was delivered is delivered once more, as the plan says."""
    root = tmp_path / "store"
    with served(version, root, SMALL_QUEUES) as broker:
        send(broker, KEPT, 4000)
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT)
        send(broker, 1, 1000 * DUE_MS)
        broker.stop()
        for path in (*root.glob("timerwheel*"), *root.glob("config/timercheck*")):
            path.unlink()
        shutil.rmtree(root / "timerlog")
        shutil.rmtree(root / "consumequeue" / TIMER_TOPIC)
        options = ("--broker-version", version)
        [step, _] = rmqtool("verify", root, "--json", *options).document["result"]["plan"]["steps"]
        assert step["clients"]["takes"] == {"timers_again": KEPT}
        rmqtool("repair", root, "--yes", *options)
        broker.start()
        wait_for("timers to be delivered again", lambda: delivered(root) >= 2 * KEPT)
        time.sleep(3)
        broker.stop()
    assert delivered(root) == 2 * KEPT


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_a_message_that_is_too_large(version: str, tmp_path: Path) -> None:
    """5.1.4 and 5.3.3 stand still at it, 5.5.0 passes over it; what is printed brings all of them."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    with served(version, root, {**SMALL_QUEUES, "maxMessageSize": "260"}) as broker:
        send(broker, 1, DUE_MS, LONG_TOPIC)
        send(broker, KEPT, DUE_MS)
        if version == "5.5.0":
            wait_for("the timer to read them", lambda: logged(root) >= KEPT)
        else:
            time.sleep(2)  # it stands still
        broker.stop()
    conf.write_text("maxMessageSize=260\n")
    options = ("--broker-version", version, "--broker-conf", conf)
    found = rmqtool("verify", root, "--json", *options).document["findings"]
    [too_large] = [each for each in found if each["code"] == "timer.too-large"]
    assert too_large["count"] == (1 if version == "5.5.0" else 1 + KEPT)
    needed = too_large["message"].rpartition("maxMessageSize=")[2].split()[0]
    conf.write_text(f"maxMessageSize={needed}\n")
    found = rmqtool("verify", root, "--json", *options).document["findings"]
    assert ("timer.lost" in {each["code"] for each in found}) == (version == "5.5.0")
    rmqtool("repair", root, "--yes", *options)

    with served(version, root, {**SMALL_QUEUES, "maxMessageSize": needed}) as broker:
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT and delivered(root, LONG_TOPIC) >= 1)
        broker.stop()
    assert (delivered(root), delivered(root, LONG_TOPIC)) == (KEPT, 1)


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_a_smaller_max_message_size(version: str, tmp_path: Path) -> None:
    """One of the timer log does not fit: 5.1.4 and 5.3.3 deliver none until it does, 5.5.0 all others, it never."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    with served(version, root, SMALL_QUEUES) as broker:
        send(broker, 1, DUE_MS, LONG_TOPIC)
        due = send(broker, KEPT, DUE_MS)
        wait_for("the timer to read them", lambda: logged(root) >= 1 + KEPT)
        broker.stop()
    conf.write_text("maxMessageSize=260\n")
    found = rmqtool("verify", root, "--json", "--broker-version", version, "--broker-conf", conf).document["findings"]
    [too_large] = [each for each in found if each["code"] == "timer.too-large"]
    lost = too_large["count"]
    assert lost == (1 if version == "5.5.0" else 1 + KEPT)
    with served(version, root, {**SMALL_QUEUES, "maxMessageSize": "260"}) as broker:
        time.sleep(max(0.0, due - time.time()) + 4)
        if lost > 1:
            broker.kill()  # a timer that stands still takes minutes to stop
        else:
            broker.stop()
    assert (delivered(root), delivered(root, LONG_TOPIC)) == (1 + KEPT - lost, 0)

    needed = too_large["message"].rpartition("maxMessageSize=")[2].split()[0]
    with served(version, root, {**SMALL_QUEUES, "maxMessageSize": needed}) as broker:
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT)
        time.sleep(1)
        broker.stop()
    assert (delivered(root), delivered(root, LONG_TOPIC)) == (KEPT, int(lost > 1))


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("damage", ["chain", "read time"])
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_what_the_wheel_leaves_out(version: str, damage: str, tmp_path: Path) -> None:
    """So many of them do not come as `verify` says; after the repair of a copy all of them do, once."""
    root, repaired = tmp_path / "store", tmp_path / "repaired"
    with served(version, root, SMALL_QUEUES) as broker:
        due = send(broker, MANY, DUE_MS)
        wait_for("the timer to read them", lambda: logged(root, MANY) >= MANY)
        broker.stop()
    if damage == "chain":
        cut_chain(root)
    else:
        with (root / "config" / "timercheck").open("r+b") as check:
            ahead = int.from_bytes(check.read(8), "big") + 180_000
            check.seek(0)
            check.write(ahead.to_bytes(8, "big"))
    found = rmqtool("verify", root, "--json", "--broker-version", version).document["findings"]
    lost = sum(each["count"] for each in found if each["code"] in ("timer.chain", "timer.read-time"))
    assert lost
    shutil.copytree(root, repaired)
    rmqtool("repair", repaired, "--yes", "--broker-version", version)
    for store, expected in ((root, MANY - lost), (repaired, MANY)):
        with served(version, store, SMALL_QUEUES) as broker:
            time.sleep(max(0.0, due - time.time()))
            wait_for("timers to be delivered", lambda store=store, expected=expected: delivered(store) >= expected)
            time.sleep(3)
            broker.stop()
        assert delivered(store) == expected


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_a_lost_timercheck(version: str, tmp_path: Path) -> None:
    """Written again: those that were delivered do not come again, and those that wait come once."""
    root = tmp_path / "store"
    with served(version, root, SMALL_QUEUES) as broker:
        send(broker, KEPT, AFTER_MS)
        due = send(broker, SENT, DUE_MS)
        wait_for("the first timers to be delivered", lambda: delivered(root) >= KEPT)
        wait_for("the timer to read the others", lambda: logged(root) >= SENT)
        broker.stop()
        for path in (root / "config").glob("timercheck*"):
            path.unlink()
        document = rmqtool("verify", root, "--json", "--broker-version", version).document["result"]
        assert document["start"]["clients"]["timers"]["again"] >= SENT
        assert not any(document["plan"]["clients"]["timers"].values())
        rmqtool("repair", root, "--yes", "--broker-version", version)
        broker.start()
        time.sleep(max(0.0, due - time.time()))
        wait_for("timers to be delivered", lambda: delivered(root) >= KEPT + SENT)
        time.sleep(AFTER_MS / 1000)
        broker.stop()
    assert delivered(root) == KEPT + SENT


def cut_chain(root: Path) -> None:
    """The unit in the middle of the longest chain points to none before it."""
    [path] = sorted((root / "timerlog").glob("*"))[:1]
    data = bytearray(path.read_bytes()[: MANY * timer_wheel.UNIT_SIZE])
    units = decode_units(timer_wheel.UNIT_DTYPE, data)
    slots = timer_wheel.dues(units) // 1000
    rows = np.flatnonzero(slots == np.bincount(slots - slots.min()).argmax() + slots.min())
    with path.open("r+b") as file:
        file.seek(int(rows[len(rows) // 2]) * timer_wheel.UNIT_SIZE + timer_wheel.PREVIOUS_POSITION)
        file.write((-1).to_bytes(8, "big", signed=True))
