"""Timed messages and pending transactions that go with their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.clean import losses
from rmqtool.clean.losses import Undelivered, losses_of
from rmqtool.formats.consume_queue import UNIT_SIZE, build_unit
from tests.building import LogBuilder
from tests.clean.planning import FOUR, HOUR, planned, set_mtime

HALF, OP, TIMER = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer"
GROUP = "CID_RMQ_SYS_TRANS"
AGE = 100 * HOUR


def store_of(root: Path, old: list[dict[str, Any]], young: list[dict[str, Any]]) -> Path:
    """A log of an expired and a young file, and the queues of its messages."""
    log = LogBuilder(file_size=8192)
    queues: dict[str, list[int]] = {}
    for age, messages in ((AGE, old), (0, young)):
        for fields in messages:
            topic = fields["topic"]
            units = queues.setdefault(topic, [])
            units.append(log.add(queue_offset=len(units), **{"store_timestamp": FOUR - age, **fields}))
        if age:
            log.roll()
    log.write(root)
    for topic, offsets in queues.items():
        folder = root / "consumequeue" / topic / "0"
        folder.mkdir(parents=True)
        data = b"".join(build_unit(offset, 100, 7) for offset in offsets)
        (folder / ("0" * 20)).write_bytes(data.ljust(100 * UNIT_SIZE, b"\0"))
    first, second = sorted((root / "commitlog").iterdir())
    set_mtime(first, FOUR - AGE)
    set_mtime(second, FOUR)
    return root


def commit(root: Path, **offsets: int) -> None:
    """Commit offsets of the transaction service, by topic."""
    table = {f"{topic}@{GROUP}": {"0": offset} for topic, offset in offsets.items()}
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def found_in(root: Path) -> Undelivered | None:
    """What waits and goes: of one kind at most."""
    plan = planned(root)
    assert len(plan.deleted) == 1
    found = losses_of(plan).undelivered
    assert len(found) <= 1
    return found[0] if found else None


def half(number: int) -> list[dict[str, Any]]:
    return [{"topic": HALF} for _ in range(number)]


def op(*bodies: bytes) -> list[dict[str, Any]]:
    return [{"topic": OP, "body": body} for body in bodies]


@pytest.mark.parametrize(
    ("old", "young", "committed", "lost"),
    [
        (half(4), half(1), {}, 4),
        (half(4), [*half(1), *op(b"1", b"3")], {}, 2),
        ([*half(4), *op(b"0")], [*half(1), *op(b"1,2,", b"4,")], {}, 1),  # since 5.0 one op message for many
        (half(4), [*half(1), *op(b"0", b"1", b"2", b"3")], {}, None),
        (half(4), half(1), {HALF: 3}, 1),
        (half(4), [*half(1), *op(b"3", b"2")], {HALF: 2, OP: 1}, 1),  # the op message of 3 was worked off before
        (half(4), [*half(1), *op(b"\xff no number")], {}, 4),
    ],
)
def test_pending_transactions(
    tmp_path: Path,
    old: list[dict[str, Any]],
    young: list[dict[str, Any]],
    committed: dict[str, int],
    lost: int | None,
) -> None:
    """Half messages from the committed offset on that no op message names."""
    root = store_of(tmp_path, old, young)
    commit(root, **committed)
    found = found_in(root)
    assert (found.messages_lost if found else None) == lost
    assert found is None or (found.kind, found.topic, found.exact) == ("transaction", HALF, True)


def timed(*hours: float) -> list[dict[str, Any]]:
    """Messages that are due so many hours from now."""
    return [
        {
            "topic": TIMER,
            "properties": {"TIMER_OUT_MS": str(FOUR + round(h * HOUR))},
            "store_timestamp": FOUR - 60 * HOUR,
        }
        for h in hours
    ]


def test_timed_messages(tmp_path: Path) -> None:
    """Those that are due later than now, and when."""
    found = found_in(store_of(tmp_path, timed(-1, 5, 2, -0.5), timed(9)))
    assert found == Undelivered("timer", TIMER, 0, 2, first_due=FOUR + 2 * HOUR, last_due=FOUR + 5 * HOUR)


def test_timed_messages_of_long_ago(tmp_path: Path) -> None:
    """None is later than timerMaxDelaySec; properties that are no number are none."""
    old = [{**fields, "store_timestamp": FOUR - 73 * HOUR} for fields in timed(5)]
    assert found_in(store_of(tmp_path / "a", old, timed(9))) is None
    odd = [{"topic": TIMER, "properties": {"TIMER_OUT_MS": "soon"}, "store_timestamp": FOUR - HOUR}]
    assert found_in(store_of(tmp_path / "b", odd, timed(9))) is None


def test_more_than_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is then the most that it may be."""
    monkeypatch.setattr(losses, "_MAX_RECORDS", 3)
    found = found_in(store_of(tmp_path / "a", timed(1, 2, 3, 4), timed(9)))
    assert found
    assert (found.messages_lost, found.exact) == (4, False)


def test_op_messages_that_cannot_be_read(tmp_path: Path) -> None:
    """What they ended is not known: the number is then the most that it may be."""
    root = store_of(tmp_path, half(4), [*half(1), *op(b"0", b"1")])
    path = root / "consumequeue" / OP / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[UNIT_SIZE : UNIT_SIZE + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    pending = found_in(root)
    assert pending
    assert (pending.messages_lost, pending.exact) == (3, False)
