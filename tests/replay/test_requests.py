"""What a broker takes: sizes, delays, compression, and which messages a batch may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmqtool.formats.message import COMPRESSED
from rmqtool.replay.cluster import BrokerFacts, Route, TargetQueue, Targets
from rmqtool.replay.journal import Outgoing
from rmqtool.replay.requests import Rewriting, can_share, fit, send_request, unpack
from rmqtool.rules.broker_conf import parse_delay_levels
from tests.replay.compressed import lz4
from tests.replay.rows import TIME, row

V4, V5 = BrokerFacts("4.9.7"), BrokerFacts("5.5.0")


def message(properties: dict[str, str] | None = None, **fields: Any) -> Outgoing:
    (found,) = Rewriting().messages(row(properties))
    assert isinstance(found, Outgoing)
    return replace(found, **fields)


def test_a_message_that_fits() -> None:
    assert fit(message(), V4, TIME) == message()


@pytest.mark.parametrize(("facts", "most"), [(V4, 3_700), (V5, 4_096), (BrokerFacts(), 3_700)])
def test_a_message_that_is_too_large(facts: BrokerFacts, most: int) -> None:
    """4.x counts the whole record, 5.x the body."""
    facts = replace(facts, max_message_size=4096)
    assert isinstance(fit(message(body=bytes(most)), facts, TIME), Outgoing)
    assert fit(message(body=bytes(4097)), facts, TIME) == "too-large"
    assert (fit(message(body=bytes(4090)), facts, TIME) == "too-large") is (
        facts is not V5 and facts.release != "5.5.0"
    )


def test_a_message_that_no_frame_holds() -> None:
    assert fit(message(body=bytes(16 << 20)), replace(V5, max_message_size=1 << 30), TIME) == "too-large"


def test_properties_that_are_too_long() -> None:
    assert isinstance(fit(message({"x": "y" * 32_000}), V5, TIME), Outgoing)
    assert fit(message({"x": "y" * 32_700}), V5, TIME) == "properties-too-large"


def test_lz4_is_plain_for_4() -> None:
    """Clients of 4.x decompress zlib only."""
    body, flag = lz4(b"text"), COMPRESSED | 0x100
    plain = fit(message(body=body, sys_flag=flag), V4, TIME)
    assert isinstance(plain, Outgoing)
    assert (plain.body, plain.sys_flag) == (b"text", 0)
    kept = fit(message(body=body, sys_flag=flag), V5, TIME)
    assert isinstance(kept, Outgoing)
    assert (kept.body, kept.sys_flag) == (body, flag)
    assert fit(message(body=b"no lz4", sys_flag=flag), V4, TIME) == "damaged-body"


def test_a_message_that_is_due_later() -> None:
    """By the timer where there is one, else by the least level that is long enough."""
    levels = replace(V4, delay_levels=parse_delay_levels("1s 10s 5s 1m"))
    timer = replace(V5, timer_max_ms=100_000)

    def added(facts: BrokerFacts, due: int) -> dict[str, str] | str:
        fitting = fit(message(due_timestamp=due), facts, TIME)
        if not isinstance(fitting, Outgoing):
            return fitting
        return {name: value for name, value in fitting.properties.items() if name not in message().properties}

    assert added(levels, TIME + 4_000) == {"DELAY": "3"}
    assert added(levels, TIME + 6_000) == {"DELAY": "2"}
    assert added(levels, TIME + 61_000) == "too-late"
    assert added(timer, TIME + 4_000) == {"TIMER_DELIVER_MS": str(TIME + 4_000)}
    assert added(timer, TIME + 100_001) == "too-late"
    assert added(timer, TIME) == added(levels, TIME - 1) == {}


def test_what_a_batch_may_hold() -> None:
    """What the header of a batch says once: flags, times, how often it was consumed."""
    one = message()
    assert can_share(one, message(body=b"other", flag=1), loose_born_time=False)
    for name, value in (("sys_flag", 1), ("reconsume_times", 1), ("born_timestamp", TIME + 1), ("due_timestamp", TIME)):
        assert not can_share(one, replace(one, **{name: value}), loose_born_time=False)  # type: ignore[arg-type]
    assert can_share(one, message(born_timestamp=TIME + 1), loose_born_time=True)
    retry = message(topic="%RETRY%billing")
    assert not can_share(retry, retry, loose_born_time=True)
    late = message(due_timestamp=TIME)
    assert not can_share(late, one, loose_born_time=True)


def test_requests() -> None:
    one = send_request([message({"KEYS": "k"})], "a", 3)
    assert (one.code, one.body) == (310, b"body")
    assert {name: one.fields[name] for name in "bcefghjmn"} == {
        "b": "orders", "c": "orders", "e": "3", "f": "0", "g": str(TIME), "h": "7", "j": "0", "m": "false", "n": "a",
    }  # fmt: skip
    assert "KEYS\x01k\x02" in one.fields["i"]
    two = send_request([message(), message(body=b"two", flag=9)], "a", 3)
    assert (two.code, two.fields["m"], two.fields["i"]) == (320, "true", "")
    assert [(part.body, part.flag) for part in unpack(two.body)] == [(b"body", 7), (b"two", 9)]


def route(*queues: tuple[int, str]) -> Route:
    return Route("orders", tuple(TargetQueue(*queue) for queue in queues), {"a": "h:1", "b": "h:2"}, {})


def test_queues_of_the_target() -> None:
    """The same one where there are as many; else one by the key, or one for each queue of the source."""
    four = route(*((number, "a") for number in range(4)))
    three = route(*((number, "a") for number in range(3)))
    pairs = route((0, "a"), (0, "b"), (1, "a"), (1, "b"))
    of_four, of_any = Targets(lambda _: 4), Targets(lambda _: None)
    for targets in (of_four, of_any):
        assert [targets.queue_of(message(queue_id=number), four).queue_id for number in range(4)] == [0, 1, 2, 3]
    assert [of_four.queue_of(message(queue_id=number), three).queue_id for number in range(5)] == [0, 1, 2, 0, 1]
    assert of_four.queue_of(message(queue_id=1), pairs) == TargetQueue(0, "b")
    keyed = [
        of_four.queue_of(message({"__SHARDINGKEY": "abc"}, queue_id=number), three).queue_id for number in range(4)
    ]
    assert keyed == [96354 % 3] * 4
