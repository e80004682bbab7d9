"""Logs that a broker can have written, and what verify makes of them: restarts, gaps, topics, times, ghosts."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import MAGIC_CODE_V2, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import DEFAULT_LEVELS, parse_broker_conf
from rmqtool.store.store import open_store
from rmqtool.transaction.transaction import Transaction
from rmqtool.verify import queue_check, queue_leftovers
from tests.building import START_TIME, message
from tests.verify.damages import overwrite
from tests.verify.small_store import (
    FILE_SIZE,
    GEOMETRY,
    QUEUE_FILE_SIZE,
    RECORDS,
    StoreBuilder,
    finish,
    small_log,
    write_topics,
)
from tests.verify.verifying import codes_of, only, verify


def log(count: int = 0, **fields: Any) -> StoreBuilder:
    """A log of some plain messages."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for _ in range(count):
        builder.put(**fields)
    return builder


def write_queue(store: Path, topic: str, units: list[bytes], queue_id: int = 0) -> None:
    """Write one consume queue file."""
    folder = store / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name(0)).write_bytes(b"".join(units).ljust(QUEUE_FILE_SIZE, b"\0"))


def unit(builder: StoreBuilder, number: int, tags_code: int = 0) -> bytes:
    """The unit of one record."""
    offset = builder.offsets[number]
    base = offset % builder.file_size
    size = int.from_bytes(builder.files[offset // builder.file_size][base : base + 4], "big")
    return build_unit(offset, size, tags_code)


def test_a_topic_made_again(tmp_path: Path) -> None:
    """The old messages have no units, the queue offsets begin again: told once, and nothing is missing."""
    builder = log(5)
    builder.next_offsets.clear()
    for _ in range(3):
        builder.put()
    store = builder.write(tmp_path / "store")
    write_queue(store, "orders", [unit(builder, number) for number in (5, 6, 7)])
    write_topics(store, ("orders",))
    outcome = verify(store)
    assert codes_of(outcome) == {"commitlog.queue-offset-restart", "checkpoint.missing"}


def test_a_gap_that_the_queue_has_closed(tmp_path: Path) -> None:
    """A broker appends after a gap: units then stand before their queue offset."""
    builder = log(3)
    builder.put(queue_offset=7)
    builder.put()
    store = builder.write(tmp_path / "store")
    write_queue(store, "orders", [unit(builder, number) for number in range(5)])
    outcome = verify(store)
    assert codes_of(outcome) >= {"commitlog.queue-offset-gap", "consumequeue.shifted"}
    assert not codes_of(outcome) & {"consumequeue.missing-unit", "consumequeue.behind", "consumequeue.wrong-record"}
    shifted = next(finding for finding in outcome.findings if finding.code == "consumequeue.shifted")
    assert shifted.count == 2


def test_a_deleted_topic(tmp_path: Path) -> None:
    """Messages of a topic that is not configured and has no queues are information."""
    store = finish(small_log().write(tmp_path / "store"), topics=("orders", "t" * 140))
    shutil.rmtree(store / "consumequeue" / "payments")
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) == {"commitlog.deleted-topic"}


def test_a_queue_without_a_topic(tmp_path: Path) -> None:
    """And one with a number that its topic does not have."""
    store = finish(log(3).write(tmp_path / "store"), topics=("other",))
    assert codes_of(verify(store), info=True) >= {"consumequeue.orphan"}


@pytest.mark.slow
def test_a_delay_level_that_is_no_number(tmp_path: Path) -> None:
    """To a broker that is not a record: it ends the log there in a recovery."""
    builder = log(2)
    builder.put("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "soon"})
    builder.put()
    store = finish(builder.write(tmp_path / "store"))
    outcome = verify(store)
    assert "commitlog.properties" in codes_of(outcome)
    assert [reason for _, _, reason in outcome.total.extents] == ["properties"]


@pytest.mark.slow
def test_delay_queues_hold_times(tmp_path: Path) -> None:
    """Delivery times by the levels now or before; the hash in their place is the mark of a known bug, and no fault."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "3", "TAGS": "TagA"}, store_timestamp=START_TIME)
    store = builder.write(tmp_path / "store")
    given = parse_broker_conf(f"messageDelayLevel={DEFAULT_LEVELS}")
    wrong = "consumequeue.tags-code"
    for code, conf, found, info in (
        (START_TIME + 10_000, given, False, False),
        (2598919, given, False, True),
        (START_TIME + 5_000, given, False, False),  # an earlier setting may have been so
        (START_TIME + 5_001, given, True, True),
        (START_TIME - 5_000, given, True, True),
        (START_TIME + 5_000, parse_broker_conf("messageDelayLevel=1s 2s 5s"), False, False),
        (START_TIME + 5_000, None, False, False),  # the level may be configured so: the queue itself tells
        (START_TIME + 5_001, None, True, True),
    ):
        write_queue(store, "SCHEDULE_TOPIC_XXXX", [unit(builder, 0, code)], 2)
        outcome = verify(store, conf=conf)
        assert (wrong in codes_of(outcome), wrong in codes_of(outcome, info=True)) == (found, info)


@pytest.mark.slow
def test_prepared_and_rolled_back_messages_have_no_unit(tmp_path: Path) -> None:
    """And a unit that points to one is wrong."""
    builder = log(2)
    builder.put(sys_flag=TRANSACTION_PREPARED, queue_offset=0)
    builder.put(sys_flag=TRANSACTION_ROLLBACK, queue_offset=0)
    store = finish(builder.write(tmp_path / "store"))
    assert codes_of(verify(store)) == set()
    write_queue(store, "orders", [unit(builder, number) for number in (0, 1, 2)])
    assert "consumequeue.wrong-record" in codes_of(verify(store))


def test_light_queues(tmp_path: Path) -> None:
    """The record of another topic is theirs when it names them, and only then."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    lists = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    builder.put(properties=lists)
    builder.put()
    store = builder.write(tmp_path / "store")
    write_queue(store, "orders", [unit(builder, 0), unit(builder, 1)])
    write_queue(store, "%LMQ%a", [unit(builder, 0)])
    write_queue(store, "%LMQ%b", [unit(builder, 0)])
    assert codes_of(verify(store)) == {"checkpoint.missing"}
    write_queue(store, "%LMQ%b", [unit(builder, 1)])
    assert codes_of(verify(store)) & {"consumequeue.lmq-mismatch", "consumequeue.wrong-record"}


@pytest.mark.parametrize("offsets", [(0, 1, 4, 5), (0, 1, 2, 0, 1, 2)], ids=["a gap", "begun again"])
def test_light_queues_as_a_rebuild_leaves_them(tmp_path: Path, offsets: Sequence[int]) -> None:
    """Units for lost messages, and messages that share their offset with later ones, are no foreign units."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for offset in offsets:
        builder.put(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)})
    store = builder.write(tmp_path / "store")
    (store / "consumequeue" / "%LMQ%a").mkdir(parents=True)
    conf = parse_broker_conf("enableLmq=true\nenableMultiDispatch=true\nmappedFileSizeConsumeQueue=160\n")
    with Transaction(open_store(store, conf), "rebuild-cq") as transaction:
        made = RebuildOptions(frozenset(["queues"]))
        apply_plan(make_plan(open_source(open_store(store, conf), made)), transaction)
    found = codes_of(verify(store, conf=conf, selection=only("consumequeue")), info=True)
    assert found <= {"consumequeue.neutral-unit"}


def light_log(root: Path, offsets: Sequence[int], led_to: Sequence[int], size: int = 1) -> Path:
    """A store whose messages have offsets in a light queue; its units lead to some of them."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number, offset in enumerate(offsets):
        lists = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        builder.put(properties=lists, body=bytes(size + number))
    store = builder.write(root)
    write_queue(store, "orders", [unit(builder, number) for number in range(len(offsets))])
    write_queue(store, "%LMQ%a", [unit(builder, number) for number in led_to])
    return store


_LIVES = (0, 1, 0, 1, 2, 3, 0, 1), (0, 1, 2, 5, 6)
"""What 4.9.4 was seen to write: a start lets the offsets begin again, and the queue takes the first one at its end."""


@pytest.mark.parametrize("part_size", [50, 150, 250, 350, 450, 1 << 20])
@pytest.mark.parametrize("version", [None, "4.9.4", "5.3.3"])
def test_a_light_queue_that_starts_let_begin_again(version: str | None, part_size: int, tmp_path: Path) -> None:
    """4.9.3, 4.9.4 and 5.0.0 write it so, and no later release changes it: its consumers never had three messages."""
    store = light_log(tmp_path / "store", *_LIVES)
    outcome = verify(store, version=version, part_size=part_size)
    assert codes_of(outcome) - {"upgrade.changed"} == {"checkpoint.missing"}
    found = [each for each in outcome.findings if each.code == "commitlog.queue-offset-restart"]
    assert [(each.severity, each.topic, each.queue_offset, each.details) for each in found] == [
        ("info", "%LMQ%a", 1, {"problem": "light", "messages": 3})
    ]


@pytest.mark.parametrize(("number", "lost"), [(2, 3), (4, 1), (None, 5)])
def test_damage_of_a_light_queue_that_began_again(number: int | None, lost: int, tmp_path: Path) -> None:
    """What its consumers had is counted, and a rebuild gives back just that."""
    store = light_log(tmp_path / "store", *_LIVES)
    (path,) = (store / "consumequeue" / "%LMQ%a" / "0").iterdir()
    before = path.read_bytes()
    if number is None:
        shutil.rmtree(path.parent)
    else:
        path.write_bytes(before[: 20 * number] + bytes(20) + before[20 * number + 20 :])
    conf = parse_broker_conf("enableLmq=true\nenableMultiDispatch=true\nmappedFileSizeConsumeQueue=160\n")
    clients = verify(store, conf=conf, version="4.9.4").clients
    assert clients is not None
    assert clients.unreachable.messages == lost
    with Transaction(open_store(store, conf), "rebuild-cq") as transaction:
        plan = make_plan(open_source(open_store(store, conf), RebuildOptions(frozenset(["queues"]))))
        apply_plan(plan, transaction)
    assert path.read_bytes() == before
    assert {each.severity for each in plan.findings} <= {"info"}


@pytest.mark.parametrize(("expired", "dropped"), [(1, 3), (2, 2), (3, 1)])
def test_a_light_queue_that_began_again_in_an_expired_log(expired: int, dropped: int, tmp_path: Path) -> None:
    """The log begins with messages that got no entry, or with the one that got the next: the entries before show it."""
    store = light_log(tmp_path / "store", *_LIVES, size=1300)  # two messages in a file
    for path in sorted((store / "commitlog").iterdir())[:expired]:
        path.unlink()
    outcome = verify(store, version="4.9.4")
    assert codes_of(outcome) == {"checkpoint.missing"}
    (found,) = (each for each in outcome.findings if each.code == "commitlog.queue-offset-restart")
    assert found.details == {"problem": "light", "messages": dropped}
    conf = parse_broker_conf("enableLmq=true\nenableMultiDispatch=true\nmappedFileSizeConsumeQueue=160\n")
    assert make_plan(open_source(open_store(store, conf), RebuildOptions(frozenset(["queues"])))).is_empty


def test_a_crash_after_which_a_start_derives_a_light_queue(tmp_path: Path) -> None:
    """It puts the messages where they were, whatever their offsets say."""
    store = light_log(tmp_path / "store", *_LIVES)
    shutil.rmtree(store / "consumequeue" / "%LMQ%a")
    (store / "abort").touch()
    conf = parse_broker_conf("enableLmq=true\nenableMultiDispatch=true\nmappedFileSizeConsumeQueue=160\n")
    clients = verify(store, conf=conf, version="4.9.4").clients
    assert clients is not None
    assert clients.unreachable.messages == 0


@pytest.mark.parametrize(
    ("offsets", "version", "codes"),
    [
        ((0, 1, 0), None, set()), ((0, 1, 0), "5.0.0", set()), ((0, 1, 0), "5.3.3", {"commitlog.field"}),
        ((0, 1, 0, 0), "5.3.3", set()), ((0, 1, 0, 3), "5.0.0", {"commitlog.field"}),
    ],
)  # fmt: skip
def test_an_offset_of_a_light_queue_that_is_0(
    offsets: Sequence[int], version: str | None, codes: set[str], tmp_path: Path
) -> None:
    """After a start it is; where the next one goes on as if it were not, or no release does so, it is damaged."""
    store = light_log(tmp_path / "store", offsets, range(len(offsets)))
    found = codes_of(verify(store, version=version, selection=only("commitlog", "consumequeue")))
    assert found == codes


@pytest.mark.parametrize(
    ("name", "code"),
    [("%LMQ%a", "consumequeue.missing-queue"), ("%LMQ%$parent$child", "commitlog.deleted-topic")],
    ids=["light", "lite"],
)
def test_a_light_queue_that_is_gone(tmp_path: Path, name: str, code: str) -> None:
    """Only those of lite topics expire, since 5.5.0."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    builder.put(properties={"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": "0"})
    store = builder.write(tmp_path / "store")
    conf = parse_broker_conf("enableLmq=true\nenableMultiDispatch=true\n")
    findings = verify(store, conf=conf, version="5.5.0").findings
    assert {each.code for each in findings if each.topic == name} == {code}


@pytest.mark.slow
def test_batch_queues(tmp_path: Path) -> None:
    """Units of 46 bytes with the batch's first offset and size."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(4):
        properties = {"INNER_BASE": str(5 * number), "INNER_NUM": "5"}
        builder.put("bulk", sys_flag=0xC0, queue_offset=5 * number, properties=properties)
    store = builder.write(tmp_path / "store")
    folder = store / "batchconsumequeue" / "bulk" / "0"
    folder.mkdir(parents=True)
    units = b"".join(_batch_unit(builder, number) for number in range(4))
    (folder / file_name(0)).write_bytes(units.ljust(460, b"\0"))
    write_topics(store, ("bulk",), {"queue.type": "BatchCQ"})
    assert codes_of(verify(store)) == {"checkpoint.missing"}
    overwrite(store, f"batchconsumequeue/bulk/0/{file_name(0)}", 46 + 36, b"\0\7")
    assert "consumequeue.batch-unit" in codes_of(verify(store))
    (folder / file_name(0)).write_bytes((units[:46] + units[92:]).ljust(460, b"\0"))
    assert "consumequeue.missing-unit" in codes_of(verify(store))


def _batch_unit(builder: StoreBuilder, number: int) -> bytes:
    plain = unit(builder, number)
    found = plain + struct.pack(">qqhii", START_TIME + 1, 5 * number, 5, -1, 0)
    assert len(found) == BATCH_UNIT_DTYPE.itemsize
    return found


def test_version_two_and_old_brokers(tmp_path: Path) -> None:
    """A broker before 5.1 cannot read such a record; whoever asks about one is told."""
    builder = log(1)
    builder.put("t" * 130, magic_code=MAGIC_CODE_V2)
    store = finish(builder.write(tmp_path / "store"), topics=("orders", "t" * 130))
    assert codes_of(verify(store)) == set()
    assert "commitlog.magic-code-v2" in codes_of(verify(store, version="5.0"))


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """Information, with the largest step."""
    builder = log(1, store_timestamp=START_TIME + 7_200_000)
    builder.put(store_timestamp=START_TIME)
    store = finish(builder.write(tmp_path / "store"), geometry=None)
    outcome = verify(store)
    assert codes_of(outcome) <= {"checkpoint.future"}
    step = next(finding for finding in outcome.findings if finding.code == "commitlog.time-order")
    assert "7200 s" in step.message
    assert step.offset == builder.offsets[1]


def test_old_records_behind_the_end(tmp_path: Path) -> None:
    """A start has cut the log, and new messages have grown over what stood there: no damage."""
    builder = log(3, store_timestamp=START_TIME + 60_000)
    store = finish(builder.write(tmp_path / "store"))
    ghost = builder.end + 50
    old = message(ghost, store_timestamp=START_TIME, queue_offset=9)
    overwrite(store, f"commitlog/{file_name(0)}", builder.end, b"old bytes".ljust(50, b"o") + old)
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) - {"start.depends-on-release"} == {"commitlog.stale-records"}
    assert outcome.log_end == builder.end


def test_new_records_behind_damage_are_no_ghosts(tmp_path: Path) -> None:
    """The same, but newer: that is a damaged log."""
    builder = log(3, store_timestamp=START_TIME)
    store = finish(builder.write(tmp_path / "store"))
    later = message(builder.end + 50, store_timestamp=START_TIME + 60_000, queue_offset=3)
    overwrite(store, f"commitlog/{file_name(0)}", builder.end, b"bad bytes".ljust(50, b"o") + later)
    assert "commitlog.magic-code" in codes_of(verify(store))


def test_files_that_were_allocated_ahead(tmp_path: Path) -> None:
    """Zeros past the end are information."""
    store = finish(log(3).write(tmp_path / "store"))
    (store / "commitlog" / file_name(FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) == {"commitlog.preallocated"}


def test_a_blank_that_is_too_short(tmp_path: Path) -> None:
    """No broker reads its size."""
    builder = small_log()
    store = finish(builder.write(tmp_path / "store"))
    first = bytes(builder.files[0])
    at = max(offset for offset in builder.offsets if offset < FILE_SIZE)
    end = at + int.from_bytes(first[at : at + 4], "big")
    overwrite(store, f"commitlog/{file_name(0)}", end, struct.pack(">i", 8))
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) == {"commitlog.blank"}


def test_an_index_that_lacks_messages(tmp_path: Path) -> None:
    """Queries by key do not find them."""
    store = finish(small_log().write(tmp_path / "store"))
    (store / "index" / "20231114221320001").unlink()
    outcome = verify(store)
    assert codes_of(outcome) == {"index.missing"}
    assert sum(finding.count for finding in outcome.findings if finding.code == "index.missing") == 3 * RECORDS


def test_messages_stored_twice_in_the_index(tmp_path: Path) -> None:
    """The broker puts the last record again after a start: information."""
    store = finish(small_log().write(tmp_path / "store"), geometry=(GEOMETRY[0], 300))
    index = store / "index" / "20231114221320001"
    data = bytearray(index.read_bytes())
    count = struct.unpack(">i", data[36:40])[0]
    units_at = 40 + 4 * GEOMETRY[0]
    last = data[units_at + 20 * (count - 1) : units_at + 20 * count]
    slot = 40 + 4 * (struct.unpack(">i", last[:4])[0] % GEOMETRY[0])
    again = last[:16] + data[slot : slot + 4]
    data[units_at + 20 * count : units_at + 20 * (count + 1)] = again
    data[slot : slot + 4] = struct.pack(">i", count)
    data[36:40] = struct.pack(">i", count + 1)
    index.write_bytes(data)
    outcome = verify(store)
    assert codes_of(outcome) == set()
    assert codes_of(outcome, info=True) == {"index.duplicate-unit"}


def test_offsets_outside_their_queue(tmp_path: Path) -> None:
    """Information: a group may lag behind retention, or wait for messages."""
    store = finish(small_log().write(tmp_path / "store"))
    content = {"offsetTable": {"orders@group": {"0": 500}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(content))
    assert codes_of(verify(store), info=True) == {"config.offset-out-of-range"}


def test_topics_that_lead_elsewhere(tmp_path: Path) -> None:
    """A topic from the log never becomes a path outside its directory."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for topic in ("../../outside", "..", "a/b", "x" * 127):
        builder.put(topic)
    store = finish_log_only(builder, tmp_path)
    outcome = verify(store)
    assert "consumequeue.missing-queue" in codes_of(outcome)
    assert outcome.total.totals.messages == 4


def finish_log_only(builder: StoreBuilder, tmp_path: Path) -> Path:
    """A store of nothing but a log."""
    return builder.write(tmp_path / "store")


def test_a_queue_of_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit is wrong: all are counted, and only some are looked up."""
    builder = log(8)
    store = finish(builder.write(tmp_path / "store"), geometry=None)
    looks: list[int] = []

    def look(lookups: Lookups, physical_offset: int) -> dict[QueueName, int]:
        looks.append(physical_offset)
        return {}

    monkeypatch.setattr(Lookups, "queues_of", look)
    for module in (queue_check, queue_leftovers):
        monkeypatch.setattr(module, "MAX_LOOKUPS", 3)
    write_queue(store, "orders", [build_unit(offset + 1, 200, 0) for offset in builder.offsets])
    outcome = verify(store, selection=only("consumequeue"))
    assert sum(finding.count for finding in outcome.findings) == 8
    assert len(looks) == 3


@pytest.mark.slow
def test_a_log_file_with_another_name(tmp_path: Path) -> None:
    """Its records are whole and tell where they belong: nothing is torn, though no sound record follows."""
    store = log(5).write(tmp_path / "store")
    path = store / "commitlog" / file_name(0)
    path.rename(path.with_name(file_name(FILE_SIZE)))
    outcome = verify(store)
    found = [(finding.code, finding.offset) for finding in outcome.findings if finding.code.startswith("commitlog.")]
    assert ("commitlog.physical-offset", FILE_SIZE) in found
    assert "commitlog.torn" not in {code for code, _ in found}
    assert outcome.verdict == "corrupt"


@pytest.mark.slow
def test_what_a_buffer_held_is_no_fault(tmp_path: Path) -> None:
    """Since 5.5.0 a broker without mmap fills a record's page with what its buffer held: perhaps a whole record."""
    for page, expected in ((0, "stale-bytes"), (4096, "physical-offset")):
        builder = StoreBuilder(file_size=3 * 4096)
        for _ in range(3):
            builder.put()
        end = builder.end
        builder.files[-1] += builder.files[-1][builder.offsets[1] : end].ljust(page, b"x")
        outcome = verify(builder.write(tmp_path / expected))
        found = [(finding.code, finding.offset) for finding in outcome.findings if finding.code.startswith("commitlog")]
        assert found == [(f"commitlog.{expected}", end)]
