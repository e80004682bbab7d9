"""Rules that depend on version and configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.base.errors import UsageError
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.broker.dispatcher import (
    KEY,
    REPEATED,
    TAGS,
    UNIQUE_KEY,
    Dispatched,
    Dispatcher,
    KeyTexts,
    bad_offset,
    interleaving,
    key_hashes,
    multi_dispatch_targets,
    split_keys,
)
from rmqtool.broker.proven_records import ProvenRecord, ProvenRecords
from rmqtool.formats.message import INNER_BATCH, TRANSACTION_PREPARED
from rmqtool.formats.properties import split_keys as split_one
from rmqtool.formats.properties import tags_code
from rmqtool.rules.broker_conf import DEFAULT_LEVELS, BrokerConf, delay_levels_of, parse_broker_conf, parse_delay_levels
from rmqtool.rules.versions import Version, parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.windows import Hashes, Texts
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder


def dispatch(
    builder: LogBuilder, tmp_path: Path, rules: DispatchRules, batch: frozenset[str] | None = None
) -> list[tuple[object, ...]]:
    """Topic, queue id, queue offset, tags code and batch size of each unit of a log of one file."""
    dispatcher = Dispatcher(rules, batch)
    events = scan_files(open_store(builder.write(tmp_path)).commit_log().files)
    units = [dispatcher.dispatch(event).units for event in events if isinstance(event, RecordRun)]
    found = QueueUnits.concatenate(units)
    names = [dispatcher.queues[number] for number in found.queues.tolist()]
    rows = zip(found.queue_offsets.tolist(), found.tags_codes.tolist(), found.batch_sizes.tolist(), strict=True)
    return [(*name, *row) for name, row in zip(names, rows, strict=True)]


def test_delay_levels() -> None:
    """The highest level stands for those above it; level 0 is none."""
    levels = parse_delay_levels(DEFAULT_LEVELS)
    assert levels.highest == 18
    assert levels.delivery_time(1, 1000) == 2000
    assert levels.delivery_time(18, 0) == levels.delivery_time(99, 0) == 7_200_000
    assert levels.delivery_time(0, 0) is None
    assert delay_levels_of(parse_broker_conf("messageDelayLevel=2s 1d")).delays == (2000, 86_400_000)


@pytest.mark.parametrize("text", ["1x", "s", "1s  2s", "one"])
def test_delay_levels_that_stop_a_broker(text: str) -> None:
    """Told as what they are."""
    with pytest.raises(UsageError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_delayed_messages(tmp_path: Path) -> None:
    """The time of delivery in the delay topic only; a level that is not a number makes the record none."""
    builder = LogBuilder()
    for topic, level in (
        ("SCHEDULE_TOPIC_XXXX", "3"),
        ("SCHEDULE_TOPIC_XXXX", "0"),
        ("orders", "3"),
        ("SCHEDULE_TOPIC_XXXX", "x"),
        ("SCHEDULE_TOPIC_XXXX", None),
    ):
        level_of = {} if level is None else {"DELAY": level}
        builder.add(topic=topic, properties={**level_of, "TAGS": "red"}, store_timestamp=START_TIME)
    codes = [row[3] for row in dispatch(builder, tmp_path, DispatchRules())]
    assert codes == [START_TIME + 10_000, *[tags_code("red")] * 3]


def test_values_with_a_separator(tmp_path: Path) -> None:
    """Before 4.9.1 such a property is none, but for one whose pieces after the first are empty (`String#split`)."""
    builder = LogBuilder()
    for value in (b"a\x01b", b"a\x01", b"a"):
        builder.add(properties=b"TAGS\x01" + value + b"\x02")
    new, old = (
        [row[3] for row in dispatch(builder, tmp_path, DispatchRules(version=version))]
        for version in (Version(4, 9, 1), Version(4, 9, 0))
    )
    assert new == [tags_code("a\x01b"), tags_code("a\x01"), tags_code("a")]
    assert old == [0, tags_code("a"), tags_code("a")]


def test_batches(tmp_path: Path) -> None:
    """First offset and size of topics with batch queues; without topics.json, of records with the bit."""
    builder = LogBuilder()
    properties = {"INNER_BASE": "40", "INNER_NUM": "3"}
    builder.add(topic="bulk", sys_flag=INNER_BATCH | 0x40, queue_offset=40, properties=properties)
    builder.add(topic="plain", properties={"INNER_BASE": "9", "INNER_NUM": "9"})
    expected = [("bulk", 0, 40, 0, 3), ("plain", 0, 0, 0, 1)]
    assert dispatch(builder, tmp_path, DispatchRules()) == expected
    assert dispatch(builder, tmp_path, DispatchRules(), frozenset({"bulk"})) == expected
    assert dispatch(builder, tmp_path, DispatchRules(), frozenset())[0] == ("bulk", 0, 40, 0, 1)
    plain = dispatch(builder, tmp_path, DispatchRules(), frozenset({"plain"}))
    assert plain == [("bulk", 0, 40, 0, 1), ("plain", 0, 9, 0, 9)]


@pytest.mark.parametrize(
    ("base", "count", "unit", "in_rocksdb"),
    [
        ("40", "3", (40, 3, 3), ...),
        ("0", "0", (0, 0, 0), ...),
        ("-4", "3", None, ...),
        ("40", "-3", None, ...),
        ("x", "3", None, ...),
        ("40", "x", None, ...),
        ("40", None, (4, 1, 1), ...),
        (None, None, (4, 1, 1), ...),
        (None, "3", (4, 1, 3), (4, 3, 3)),
        (None, "0", (4, 1, 1), (4, 0, 0)),
        (None, "x", (4, 1, 1), None),
    ],
)
def test_what_a_batch_says_of_its_messages(
    tmp_path: Path, base: str | None, count: str | None, unit: tuple[int, ...] | None, in_rocksdb: Any
) -> None:
    """First offset, and size of its unit and number of its messages; both properties are read, or none.

    A negative one is dropped (`BatchConsumeQueue#putMessagePositionInfoWrapper`), one that is no number ends the log.
    """
    properties = {name: text for name, text in (("INNER_BASE", base), ("INNER_NUM", count)) if text is not None}
    builder = LogBuilder()
    builder.add(topic="bulk", sys_flag=INNER_BATCH, queue_offset=4, properties=properties)
    builder.add(topic="plain", queue_offset=5, properties=properties)
    for rules, expected in ((DispatchRules(), unit), (DispatchRules(in_rocksdb=True), in_rocksdb)):
        units = dispatched(builder, tmp_path, rules).units
        columns = (units.queue_offsets, units.batch_sizes, units.message_counts)
        found = [*zip(*(column.tolist() for column in columns), strict=True)]
        of_batch = unit if expected is ... else expected
        assert found == [*([] if of_batch is None else [of_batch]), (5, 1, 1)]


def test_a_flag_makes_no_batch_of_a_topic_with_plain_queues(tmp_path: Path) -> None:
    """It is one bit that no CRC covers."""
    builder = LogBuilder()
    for topic in ("bulk", "plain"):
        builder.add(topic=topic, sys_flag=INNER_BATCH, properties={"INNER_BASE": "40", "INNER_NUM": "3"})
    (run,) = scan_files(open_store(builder.write(tmp_path)).commit_log().files)
    assert isinstance(run, RecordRun)
    for plain_topics, sizes in (((), [3, 3]), (("plain",), [3, 1]), (("other",), [3, 3])):
        units = Dispatcher(DispatchRules(), plain_topics=plain_topics).dispatch(run).units
        assert units.batch_sizes.tolist() == sizes


@pytest.mark.parametrize(
    ("version", "topic", "expected"),
    [
        ("4.7.1", "orders", False),
        ("4.9.7", "orders", True),
        ("4.9.7", "%RETRY%g", True),
        ("5.0.0", "%RETRY%g", True),
        ("5.1.1", "%RETRY%g", False),
        ("5.1.1", "SCHEDULE_TOPIC_XXXX", True),
        ("5.1.4", "SCHEDULE_TOPIC_XXXX", False),
        ("5.3.3", "%RETRY%g", False),
        ("5.3.3", "rmq_sys_x", False),
        ("5.3.3", "%DLQ%g", True),
        ("5.5.0", "%DLQ%g", False),
    ],
)
def test_multi_dispatch_by_version(version: str, topic: str, expected: bool) -> None:
    """Since 4.9.3; which topics are spared has changed three times."""
    rules = DispatchRules(parse_version(version), multi_dispatch=True, lmq=True)
    assert rules.multi_dispatches(topic) is expected
    assert not DispatchRules(parse_version(version)).multi_dispatches(topic)


def test_multi_dispatch_by_configuration() -> None:
    """broker.conf decides; without it, whether there are such queues."""
    conf = parse_broker_conf("enableMultiDispatch=TRUE\nenableLmq=false")
    levels = delay_levels_of(conf)
    rules = DispatchRules.of(Version(5, 3, 3), conf, levels, has_light_queues=False)
    assert (rules.multi_dispatch, rules.lmq) == (True, False)
    seen = DispatchRules.of(Version(5, 3, 3), BrokerConf(), levels, has_light_queues=True)
    assert (seen.multi_dispatch, seen.lmq) == (True, True)


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        (b"%LMQ%a,b", b"3,4", [("%LMQ%a", 0, 3), ("b", 7, 4)]),
        (b"%LMQ%a,b", b"3", []),
        (b"%LMQ%a,", b"3", [("%LMQ%a", 0, 3)]),
        (b"a/b,c", b"1,2", [("c", 7, 2)]),
        (b"a,b", b",2", [("b", 7, 2)]),
    ],
)
def test_more_queues(names: bytes, offsets: bytes, expected: list[tuple[str, int, int]]) -> None:
    """Lists of one length, as Java splits them."""
    assert list(multi_dispatch_targets(names, offsets, 7, lmq=True)) == expected


@pytest.mark.parametrize("text", ["a", " a", "a b", "a  b ", "   ", "a b c d"])
def test_keys_are_split_as_one_by_one(text: str) -> None:
    """With other texts around them."""
    data = f"x y{text}z z".encode() + bytes(64)
    starts, sizes = np.array([0, 3]), np.array([1, len(text)])
    found = split_keys(KeyTexts(np.array([0, 1]), Texts(np.frombuffer(data, np.uint8), starts, sizes)))
    pieces = [found.texts.text(row).decode() for row in range(len(found.rows))]
    assert pieces == ["x", *split_one(text)]


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1, 2], [0, 1, 2]],
        [[0, 0], [0, 0]],
        [[0, 1, 1], []],
        [[0, 2], [0, 0, 1, 2], [1]],
        [[70_000], [5_000]],
        [[], []],
    ],
)
def test_keys_are_put_in_the_order_of_the_records(rows: list[list[int]]) -> None:
    """Those of one record in the order of their kinds (`IndexService#buildIndex`)."""
    no_texts = Texts(np.empty(0, np.uint8), np.empty(0, np.intp), np.empty(0, np.intp))
    in_order = interleaving([KeyTexts(np.array(each, np.intp), no_texts) for each in rows])
    places = [(row, kind, number) for kind, each in enumerate(rows) for number, row in enumerate(each)]
    columns = [np.array([10 * kind + number for number in range(len(each))]) for kind, each in enumerate(rows)]
    assert in_order(columns).tolist() == [10 * kind + number for _, kind, number in sorted(places)]


def dispatched(
    builder: LogBuilder, root: Path, rules: DispatchRules, proven: ProvenRecords | None = None
) -> Dispatched:
    """What a log of one run of records gives."""
    events = scan_files(open_store(builder.write(root)).commit_log().files)
    (run,) = (event for event in events if isinstance(event, RecordRun))
    return Dispatcher(rules, proven=proven).dispatch(run)


@pytest.mark.parametrize(
    ("names", "offsets", "skips_paths", "expected"),
    [
        (b"a,b", b"1,x", True, "x"),
        (b"a,b", b"1,2", True, None),
        (b"a,b", b"1", True, None),  # lists of different lengths are not read
        (b"a/b", b"x", True, None),
        (b"a/b", b"x", False, "x"),
        (b",b", b",2", False, ""),
    ],
)
def test_offsets_that_are_no_numbers(names: bytes, offsets: bytes, skips_paths: bool, expected: str | None) -> None:
    assert bad_offset(names, offsets, skips_paths=skips_paths) == expected


@pytest.mark.parametrize(
    ("version", "properties", "why"),
    [
        ("4.9.3", b"", "it has no properties"),
        ("4.9.7", b"", None),
        ("4.9.7", {"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "x"}, "holds 'x'"),
        ("4.9.7", {"INNER_MULTI_DISPATCH": "a/b", "INNER_MULTI_QUEUE_OFFSET": "x"}, "holds 'x'"),
        ("5.1.3", {"INNER_MULTI_DISPATCH": "a/b", "INNER_MULTI_QUEUE_OFFSET": "x"}, None),
        ("4.9.7", {"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "7"}, None),
        ("4.9.7", {"INNER_MULTI_DISPATCH": "a"}, None),
        ("4.9.7", {"INNER_MULTI_QUEUE_OFFSET": "x"}, None),
    ],
)
def test_a_record_that_ends_a_dispatch(tmp_path: Path, version: str, properties: Any, why: str | None) -> None:
    """The first one past what is dispatched already, if it is dispatched at all, by a broker with such queues."""
    builder = LogBuilder()
    builder.add(properties={"TAGS": "t"})
    builder.add(properties=properties)
    builder.add(properties=properties)
    rules = DispatchRules(parse_version(version), multi_dispatch=True)
    found = dispatched(builder, tmp_path, rules)
    first, second = (int(found.units.physical_offsets[row]) for row in (1, 2))
    assert [found.failure(above) is not None for above in (first - 1, first, second)] == [why is not None] * 2 + [False]
    if why is not None:
        failures = [found.failure(above) for above in (-1, first)]
        assert [failure and failure[0] for failure in failures] == [1, 2]
        assert why in str(failures[0])
    assert dispatched(builder, tmp_path, replace(rules, multi_dispatch=False)).failure(-1) is None


@pytest.mark.parametrize("sys_flag", [TRANSACTION_PREPARED, 0])
def test_a_prepared_message_ends_no_dispatch(tmp_path: Path, sys_flag: int) -> None:
    builder = LogBuilder()
    builder.add(properties=b"", sys_flag=sys_flag)
    found = dispatched(builder, tmp_path, DispatchRules(parse_version("4.9.3"), multi_dispatch=True))
    assert (found.failure(-1) is None) == (sys_flag == TRANSACTION_PREPARED)


def test_proven_fields_count(tmp_path: Path) -> None:
    """Of a damaged record what its witnesses prove; of the others what they have."""
    properties = {"KEYS": "k", "TAGS": "t", "INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "7"}
    builder = LogBuilder()
    for number in range(3):
        builder.add(topic="wrong", queue_id=number, queue_offset=number, store_timestamp=number, properties=properties)
    rules = DispatchRules(multi_dispatch=True)
    plain = dispatched(builder, tmp_path, rules)
    middle = int(plain.units.physical_offsets[plain.units.rows == 1][0])
    proven = ProvenRecord(
        "right", queue_id=5, queue_offset=6, tags_code=99, key_hashes=(1, 2, 3), light_queues=(("b", 8, 9),)
    )
    found = dispatched(builder, tmp_path, rules, ProvenRecords({middle: proven}))
    places = [(*name, offset) for name, offset in found.places]
    assert places == [("wrong", 0, 0), ("a", 0, 7), ("right", 5, 6), ("b", 8, 9), ("wrong", 2, 2), ("a", 2, 7)]
    assert found.units.tags_codes.tolist()[::2] == [tags_code("t"), 99, tags_code("t")]
    assert found.keys.rows.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert found.keys.key_hashes.tolist()[2:5] == [1, 2, 3]
    assert found.keys.physical_offsets.tolist()[2:5] == [middle] * 3
    assert found.keys.kinds.tolist() == [KEY, TAGS, KEY, KEY, KEY, KEY, TAGS]
    assert found.keys.store_timestamps.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert [found.has_proven_unit(row) for row in range(3)] == [False, True, False]
    assert found.topics_of(np.array([2, 1, 0])) == ["wrong", "right"]
    assert [found.rows_of(topic).tolist() for topic in ("right", "wrong", "none")] == [[1], [0, 2], []]


def test_keys_of_the_kinds_that_the_record_has(tmp_path: Path) -> None:
    """Where the index has as many of them as the record."""
    builder = LogBuilder()
    builder.add(properties={"KEYS": "k", "TAGS": "t"})
    found = dispatched(builder, tmp_path, DispatchRules(), ProvenRecords({0: ProvenRecord(key_hashes=(1, 2))}))
    assert found.keys.kinds.tolist() == [KEY, TAGS]
    assert not found.has_proven_unit(0)


def test_a_damaged_record_with_a_proven_unit_is_one(tmp_path: Path) -> None:
    """A level that is no number makes a record none, unless its queue entry is there."""
    builder = LogBuilder()
    for _ in range(2):
        builder.add(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x", "KEYS": "k", "TAGS": "t"})
    plain = dispatched(builder, tmp_path, DispatchRules())
    assert (len(plain.units), len(plain.keys), plain.refused_rows.tolist()) == (0, 0, [0, 1])
    found = dispatched(builder, tmp_path, DispatchRules(), ProvenRecords({0: ProvenRecord(tags_code=7)}))
    assert (found.units.rows.tolist(), found.units.tags_codes.tolist()) == ([0], [7])
    assert {*found.keys.rows.tolist()} == {0}
    assert (found.malformed_rows.tolist(), found.refused_rows.tolist()) == ([0, 1], [0, 1])
    elsewhere = ProvenRecords({0: ProvenRecord("orders", tags_code=7)})
    assert dispatched(builder, tmp_path, DispatchRules(), elsewhere).malformed_rows.tolist() == [1]


def test_a_damaged_batch_with_a_proven_unit_does_not_end_the_log(tmp_path: Path) -> None:
    """One without is no record to a recovery: its first queue offset is no number."""
    builder = LogBuilder()
    for _ in range(2):
        builder.add(topic="bulk", sys_flag=INNER_BATCH, properties={"INNER_BASE": "x", "INNER_NUM": "2"})
    found = dispatched(builder, tmp_path, DispatchRules(), ProvenRecords({0: ProvenRecord(tags_code=7)}))
    assert (found.malformed_rows.tolist(), found.refused_rows.tolist()) == ([0, 1], [1])


@pytest.mark.parametrize(("topic", "is_optional"), [("%RETRY%g", True), ("orders", False)])
def test_units_that_only_older_releases_derive(tmp_path: Path, topic: str, is_optional: bool) -> None:
    """Where one of them may have written the store; the further queues of what is prepared are no units at all."""
    builder = LogBuilder()
    for sys_flag in (0, TRANSACTION_PREPARED):
        properties = {"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "7"}
        builder.add(topic=topic, sys_flag=sys_flag, properties=properties)
    rules = DispatchRules(parse_version("5.3.3"), multi_dispatch=True)
    for may_be_older in (True, False):
        found = dispatched(builder, tmp_path, replace(rules, may_be_older=may_be_older))
        assert len(found.units) == (1 if is_optional else 2)
        optional = found.optional_units
        assert (optional is not None and optional.queue_offsets.tolist() == [7]) == (is_optional and may_be_older)


@pytest.mark.parametrize(("topic", "sys_flag"), [("orders", 0), ("orders", TRANSACTION_PREPARED), ("%RETRY%g", 0)])
def test_proven_light_queues_are_those_of_a_record_that_has_any(tmp_path: Path, topic: str, sys_flag: int) -> None:
    builder = LogBuilder()
    for _ in range(2):
        builder.add(topic=topic, sys_flag=sys_flag, properties={"TAGS": "t"})
    rules = DispatchRules(parse_version("5.3.3"), multi_dispatch=True)
    proven = {0: ProvenRecord(light_queues=(("b", 8, 9),)), builder.offsets[1]: ProvenRecord(tags_code=7)}
    units = dispatched(builder, tmp_path, rules, ProvenRecords(proven)).units
    own = [] if sys_flag else [0, 0]
    assert units.queue_offsets.tolist() == ([0, 9, 0] if topic == "orders" and not sys_flag else own)


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("KEYS", b"a\x01b", True), ("UNIQ_KEY", b"a\x01b", True), ("TAGS", b"a\x01b", False), ("KEYS", b"a b", False),
])  # fmt: skip
def test_keys_that_releases_before_4_9_1_put_in_another_way(
    tmp_path: Path, name: str, value: bytes, expected: bool
) -> None:
    builder = LogBuilder()
    builder.add(properties=name.encode() + b"\x01" + value + b"\x02")
    assert dispatched(builder, tmp_path, DispatchRules()).has_optional_keys == expected


def test_the_hash_of_a_key_is_never_negative() -> None:
    """`Math.abs(Integer.MIN_VALUE)` is: 0 takes its place (`IndexFile#indexKeyHashMethod`)."""
    prefixes = np.array([1 << 31, 5, (1 << 32) - 1], np.uint32)
    nothing = Hashes(np.zeros(3, np.uint32), np.zeros(3, np.intp))
    assert key_hashes(prefixes, nothing).tolist() == [0, 5, 1]


@pytest.mark.parametrize(("apart", "kind"), [(255, REPEATED), (256, KEY)])
def test_keys_of_one_record_that_are_far_apart(tmp_path: Path, apart: int, kind: int) -> None:
    """They are not compared, which takes as long as there are keys."""
    builder = LogBuilder()
    builder.add(properties={"KEYS": " ".join(["a", *map(str, range(apart - 1)), "a"])})
    keys = dispatched(builder, tmp_path, DispatchRules()).keys
    assert keys.kinds.tolist()[-1] == kind
    assert keys[keys.kinds == REPEATED].key_hashes.tolist() == keys.key_hashes.tolist()[:1] * (kind == REPEATED)


def test_a_key_that_a_record_repeats(tmp_path: Path) -> None:
    """Found once, whether as the unique key or among the others; a tag of the same text is another key."""
    builder = LogBuilder()
    builder.add(properties={"UNIQ_KEY": "a", "KEYS": "a b c b", "TAGS": "a"})
    builder.add(properties={"KEYS": "a"})
    keys = dispatched(builder, tmp_path, DispatchRules()).keys
    assert keys.kinds.tolist() == [UNIQUE_KEY, REPEATED, KEY, KEY, REPEATED, TAGS, KEY]
    found = keys.key_hashes.tolist()
    assert keys.hashes_without_tags == [found[0], found[2], found[3], found[6]]


def test_a_delayed_message_keeps_the_hash_of_its_tag(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1", "TAGS": "red"}, store_timestamp=START_TIME)
    units = dispatched(builder, tmp_path, DispatchRules()).units
    assert (units.tags_codes.tolist(), units.tags_hashes.tolist()) == ([START_TIME + 1000], [tags_code("red")])


@pytest.mark.parametrize("code", [-(1 << 31), (1 << 31) - 1, 1 << 31, -(1 << 31) - 1])
def test_proven_tags_codes_that_are_hashes(tmp_path: Path, code: int) -> None:
    """Larger ones are times of delivery: the hash is that of the record then."""
    builder = LogBuilder()
    builder.add(properties={"TAGS": "red"})
    units = dispatched(builder, tmp_path, DispatchRules(), ProvenRecords({0: ProvenRecord(tags_code=code)})).units
    is_hash = -(1 << 31) <= code < 1 << 31
    assert units.tags_hashes.tolist() == [code if is_hash else tags_code("red")]


def test_topics_of_batches_are_known_by_their_records(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(topic="bulk", sys_flag=INNER_BATCH, properties={"INNER_BASE": "0", "INNER_NUM": "2"})
    files = open_store(builder.write(tmp_path)).commit_log().files
    (run,) = (event for event in scan_files(files) if isinstance(event, RecordRun))
    for batch_topics, is_known in ((None, True), ({"bulk"}, True), ({"other"}, False)):
        dispatcher = Dispatcher(DispatchRules(), batch_topics)
        assert len(dispatcher.dispatch(run).units) == 1
        assert (dispatcher.is_batch_topic("bulk"), dispatcher.is_batch_topic("plain")) == (is_known, False)
