"""What the records of a log add up to."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.inspect import log_statistics
from rmqtool.inspect.log_statistics import LogStatistics, LogTotals
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.reader import scan_files
from tests.building import LOG, START_TIME, LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.sampling import examples
from tests.unchanged import unchanged


def scan(store: Path, live: bool = False) -> LogStatistics:
    statistics = LogStatistics(live=live)
    with unchanged(store):
        for event in scan_files(list_mapped_files(store / LOG).files):
            statistics.add(event)
    return statistics


def test_nothing() -> None:
    """Without a message there are no sizes and no times."""
    empty = LogStatistics()
    assert (empty.total, empty.queues, empty.topics) == (LogTotals(), {}, {})
    assert (empty.smallest, empty.largest, empty.first_store_timestamp, empty.last_store_timestamp) == (None,) * 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_logs(name: str, golden_store: GoldenStore) -> None:
    """Every number is the sum over the records that the release told."""
    records = stores.oracle(name)["records"]
    sizes = [record["message_size"] for record in records]
    times = [record["store_timestamp"] for record in records]
    messages = Counter((record["topic"], record["queue_id"]) for record in records)
    bytes_by_queue: Counter[tuple[str, int]] = Counter()
    for record in records:
        bytes_by_queue[record["topic"], record["queue_id"]] += record["message_size"]
    found = scan(golden_store(name))
    assert found.total == LogTotals(len(records), sum(sizes))
    assert found.queues == {queue: LogTotals(count, bytes_by_queue[queue]) for queue, count in messages.items()}
    assert sum(totals.messages for totals in found.topics.values()) == len(records)
    assert list(found.topics) == sorted({record["topic"] for record in records})
    assert found.body_bytes == sum(len(body) for body in stored_bodies(name))
    assert (found.smallest, found.largest) == ((min(sizes), max(sizes)) if sizes else (None, None))
    assert (found.first_store_timestamp, found.last_store_timestamp) == (
        (min(times), max(times)) if times else (None, None)
    )
    ends = [(record["physical_offset"], record["physical_offset"] + record["message_size"]) for record in records]
    blanks = [start - end for (_, end), (start, _) in pairwise(ends) if start != end]
    assert found.blanks == LogTotals(len(blanks), sum(blanks))
    assert found.damaged.messages == len(found.damage)
    assert all(damage.tail for damage in found.damage)


def stored_bodies(name: str) -> Iterator[bytes]:
    for record in stores.oracle(name)["records"]:
        yield b64decode(record["body_stored_base64"])


queue_ids = st.integers(-(1 << 31), (1 << 31) - 1) | st.sampled_from([0, 1, -1, (1 << 31) - 1, -(1 << 31)])


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b", "%RETRY%a", "数据", "a" * 127]), queue_ids, st.integers(0, 300)),
        min_size=1,
        max_size=40,
    )
)
def test_any_topics_and_queues(tmp_path: Path, messages: list[tuple[str, int, int]]) -> None:
    """Totals are kept apart by topic and queue, whatever their numbers are."""
    builder = LogBuilder(file_size=1 << 16)
    expected: dict[tuple[str, int], LogTotals] = {}
    for number, (topic, queue_id, size) in enumerate(messages):
        before = builder.end
        builder.add(topic=topic, queue_id=queue_id, body=b"x" * size, store_timestamp=START_TIME - number)
        totals = expected.setdefault((topic, queue_id), LogTotals())
        totals.messages += 1
        totals.bytes += builder.end - before
    found = scan(builder.write(tmp_path))
    assert found.queues == expected
    assert found.total == LogTotals(len(messages), builder.end)
    assert found.body_bytes == sum(size for _, _, size in messages)
    assert found.first_store_timestamp == START_TIME - len(messages) + 1
    assert found.last_store_timestamp == START_TIME


def test_topics_add_up_their_queues(tmp_path: Path) -> None:
    """A topic has the messages and bytes of all its queues, and topics are in name order."""
    builder = LogBuilder()
    for topic, queue_id in (("b", 1), ("a", 0), ("b", 0), ("b", 1)):
        builder.add(topic=topic, queue_id=queue_id)
    found = scan(builder.write(tmp_path))
    size = builder.end // 4
    assert found.queues[("b", 1)] == LogTotals(2, 2 * size)
    assert found.topics == {"a": LogTotals(1, size), "b": LogTotals(3, 3 * size)}
    assert list(found.topics) == ["a", "b"]


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4])
def test_damage_is_counted_beyond_what_is_kept(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Every extent counts; only the first ones are kept."""
    monkeypatch.setattr(log_statistics, "MAX_EXTENTS", most)
    extents = [Damage(1000 * number, 10 + number, "lengths") for number in range(3)]
    found = LogStatistics()
    for extent in extents:
        found.add(extent)
        found.add(Blank(extent.physical_offset + 500, 100))
    assert found.damage == extents[:most]
    assert found.damaged == LogTotals(3, 33)
    assert found.blanks == LogTotals(3, 300)


def test_a_live_tail_is_no_damage() -> None:
    """While a broker writes, the end of the log may be torn; elsewhere damage is damage."""
    tail, inside = Damage(900, 5, "torn", tail=True), Damage(100, 7, "zeroed")
    for live, expected in ((True, [inside]), (False, [inside, tail])):
        found = LogStatistics(live=live)
        found.add(inside)
        found.add(tail)
        assert found.damage == expected
        assert found.damaged == LogTotals(len(expected), sum(extent.size for extent in expected))


def test_a_damaged_log(tmp_path: Path) -> None:
    """Messages before and after damage are counted, those inside are not."""
    builder = LogBuilder().add_all([{}] * 5)
    store = builder.write(tmp_path)
    (path,) = (store / LOG).iterdir()
    data = bytearray(path.read_bytes())
    data[builder.offsets[2] + 4] ^= 0xFF
    path.write_bytes(data)
    size = builder.offsets[1]
    found = scan(store)
    assert found.total == LogTotals(4, 4 * size)
    assert found.damaged == LogTotals(1, size)
    assert [(extent.physical_offset, extent.reason) for extent in found.damage] == [(builder.offsets[2], "magic-code")]


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.3.3-crc32-property", "4.4.0-clean"])
def test_signs_of_the_version(name: str, golden_store: GoldenStore) -> None:
    """Records show signs wherever in the log they stand."""
    since_4_9 = {"ipv6-host", "inner-batch", "compression-type", "magic-code-v2"}
    expected = {"5.3.3-clean": since_4_9, "5.3.3-crc32-property": since_4_9 | {"crc32-property"}, "4.4.0-clean": set()}
    assert scan(golden_store(name)).signs == expected[name]


def test_wrong_bodies_are_counted(tmp_path: Path) -> None:
    """A body without its CRC is no damage of the log, but told with the place of its record."""
    log = LogBuilder()
    log.add_all([{"body": b"a body"}] * 5)
    store = log.write(tmp_path / "store")
    (file,) = (store / LOG).iterdir()
    data = bytearray(file.read_bytes())
    for number in (1, 3):
        data[data.index(b"a body", log.offsets[number])] ^= 1
    file.write_bytes(data)
    found = scan(store)
    assert (found.wrong_bodies, found.wrong_body_offsets) == (2, [log.offsets[1], log.offsets[3]])
    assert found.is_lossy
    assert not found.damaged.messages
