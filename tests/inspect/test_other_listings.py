"""Kinds that only some stores have: ext units, timer, compaction, DLedger, config files; chains, following, limits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.errors import ChangedError, UnreadableError, WrongKindError
from rmqtool.formats import dledger
from rmqtool.formats.file_name import file_name
from rmqtool.inspect.commit_log import follow_log, list_log
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.registry import LISTINGS, limited
from rmqtool.inspect.unit_files import chain_lengths
from rmqtool.scan.filters import Filters
from rmqtool.scan.rows import Rows, make_rows, one_row
from tests.building import LogBuilder, message, write_log
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.inspect.listings import location_of, objects
from tests.verify.timer_store import TIMERS, due_of, store_with_timers, write_wheel

MESSAGES = 60
EXTRAS = "more/5.5.0-extras"
GROUPS = ["more/5.3.3-dledger", "more/4.9.7-dledger"]


@pytest.fixture
def extras(golden_store: GoldenStore) -> Path:
    return golden_store(EXTRAS)


@pytest.mark.slow
def test_units_lead_to_ext_units(extras: Path) -> None:
    """The place in the ext files that a unit shows is where the ext unit is listed, with the tag's own hash."""
    units = objects(extras / "consumequeue/orders/0")
    found = objects(extras / "consumequeue_ext/orders/0")
    assert [unit["ext_offset"] for unit in units] == [unit["ext_offset"] for unit in found]
    assert [unit["tags_code"] for unit in units] == [unit["address"] for unit in found]
    assert {unit["kind"] for unit in found} == {"ext_unit"}
    assert objects(extras / "consumequeue_ext/orders/0", reverse=True) == found[::-1]
    tagged = objects(extras / "consumequeue_ext", filters=Filters(tags=("Tag1",), topics=("orders",)))
    assert len(tagged) == MESSAGES // 3
    later = found[3]["store_timestamp"]
    after = objects(extras / "consumequeue_ext/orders/0", filters=Filters(from_timestamp=later))
    assert after == [unit for unit in found if unit["store_timestamp"] >= later]


@pytest.mark.slow
def test_timer_log_and_wheel(extras: Path) -> None:
    """The wheel counts the units of the log by the time when they are due."""
    units = [unit for unit in objects(extras / "timerlog") if unit["kind"] == "timer_unit"]
    slots = objects(extras / "timerwheel")
    assert len(units) == sum(slot["count"] for slot in slots) == MESSAGES
    assert {unit["due_timestamp"] for unit in units} == {slot["due_timestamp"] for slot in slots}
    assert {slot["in_place"] for slot in slots} == {True}
    assert [slot["slot"] for slot in objects(extras / f"timerwheel.{MESSAGES * 52}")] == [
        slot["slot"] for slot in slots
    ]
    blanks = [unit for unit in objects(extras / "timerlog") if unit["kind"] == "timer_blank"]
    assert [unit["position"] for unit in blanks] == [1040, 2140]
    middle = sorted(slot["due_timestamp"] for slot in slots)[10]
    soon = Filters(to_timestamp=middle)
    assert len(objects(extras / "timerwheel", filters=soon)) == 10
    assert len(objects(extras / "timerlog", filters=soon)) == 30
    assert objects(extras / "timerlog", reverse=True) == objects(extras / "timerlog")[::-1]
    records = {found["physical_offset"]: found for found in objects(extras / "commitlog")}
    assert all(records[unit["physical_offset"]]["message_size"] == unit["message_size"] for unit in units)


@pytest.mark.parametrize("precision", [100, 1000])
def test_slots_of_any_length(precision: int, tmp_path: Path) -> None:
    """What a slot points to shows how long slots are, where no broker.conf gives timerPrecisionMs."""
    store = store_with_timers(tmp_path)
    write_wheel(store, precision=precision)
    assert {slot["due_timestamp"] for slot in objects(store / "timerwheel")} == set(map(due_of, range(TIMERS)))


def test_slots_without_a_timer_log(tmp_path: Path) -> None:
    """A file in its place does not hide the wheel."""
    store = store_with_timers(tmp_path)
    shutil.rmtree(store / "timerlog")
    (store / "timerlog").write_bytes(b"no directory")
    assert {slot["due_timestamp"] for slot in objects(store / "timerwheel")} == set(map(due_of, range(TIMERS)))


def test_timer_check_and_checkpoint(extras: Path) -> None:
    """Numbers by name, times beside timestamps."""
    [check] = objects(extras / "config/timercheck")
    assert (check["last_read_timestamp"], check["last_read_time"]) == (1_700_000_000_123, "2023-11-14T22:13:20.123Z")
    assert tuple(check)[1:] == LISTINGS["timercheck"].columns
    [found] = objects(extras / "checkpoint")
    assert tuple(found)[1:] == LISTINGS["checkpoint"].columns
    assert found["index_message_time"] is None


def test_compaction(extras: Path) -> None:
    """Each unit of a compaction's queue points to a message of its log; the end marks are told."""
    messages = {m["physical_offset"]: m for m in objects(extras / "compaction/compactionLog") if m["kind"] == "message"}
    units = objects(extras / "compaction/compactionCq/state/0")
    batches = [unit for unit in units if unit["kind"] == "batch"]
    assert [unit["kind"] for unit in units].count("end_mark") == 3
    assert [unit["physical_offset"] for unit in batches] == list(messages)
    assert [unit["queue_offset"] for unit in batches] == [m["queue_offset"] for m in messages.values()]
    assert all(m["body_crc_ok"] for m in messages.values())
    backwards = objects(extras / "compaction/compactionLog/state/0", reverse=True)
    assert backwards == objects(extras / "compaction/compactionLog/state/0")[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/5.5.0-compacted", "more/5.3.3-compacted"])
def test_after_a_compaction(golden_store: GoldenStore, name: str) -> None:
    """Of each key the last message up to where was compacted, and all after it: moved, and otherwise as they were."""
    store = golden_store(name)
    [entry] = [e for e in objects(store / "compaction/position-checkpoint") if e["table"]]
    assert entry["name"] == "state_0"
    compacted: int = entry["value"]
    written = [m for m in objects(store / "commitlog") if m.get("topic") == "state"]
    last = {m["keys"][0]: m["queue_offset"] for m in written if m["queue_offset"] <= compacted}
    expected = [m for m in written if m["queue_offset"] > compacted or last[m["keys"][0]] == m["queue_offset"]]
    assert len(expected) < len(written)
    lines = objects(store / "compaction/compactionLog")
    found = [line for line in lines if line["kind"] == "message"]
    assert {line["kind"] for line in lines} == {"message"}
    moved = {"physical_offset", "message_id", "file"}
    assert [{n: v for n, v in m.items() if n not in moved} for m in found] == [
        {n: v for n, v in m.items() if n not in moved} for m in expected
    ]
    units = [unit for unit in objects(store / "compaction/compactionCq/state/0") if unit["kind"] == "batch"]
    names = ("queue_offset", "physical_offset", "message_size", "store_timestamp")
    assert [[unit[n] for n in names] for unit in units] == [[m[n] for n in names] for m in found]
    assert objects(store / "compaction/compactionLog", reverse=True) == lines[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_dledger_messages(golden_store: GoldenStore, name: str) -> None:
    """The messages are those that the consume queues lead to, each with the Raft index that the index gives it."""
    store = golden_store(name)
    found = objects(store / "dledger-n0")
    messages = [m for m in found if m["kind"] == "message"]
    units = [unit for unit in objects(store / "consumequeue") if unit["kind"] == "message"]
    assert sorted((m["physical_offset"], m["message_size"]) for m in messages) == sorted(
        (unit["physical_offset"], unit["message_size"]) for unit in units
    )
    assert [m["dledger_index"] for m in messages] == list(range(400))
    assert {m["dledger_term"] for m in messages} == {0}
    assert all(m["body_crc_ok"] for m in messages)
    index = [unit for unit in objects(store / "dledger-n0/index") if unit["kind"] == "dledger_index_unit"]
    assert [(unit["index"], unit["position"] + 48) for unit in index] == [
        (m["dledger_index"], m["physical_offset"]) for m in messages
    ]
    assert [m["kind"] for m in found].count("blank") == 2
    assert {m["kind"] for m in found} == {"message", "blank"}
    assert objects(store / "dledger-n0", reverse=True) == found[::-1]
    key = Filters(keys=("key3",), from_offset=70_000)
    assert objects(store / "dledger-n0", filters=key) == [
        m for m in found if m["physical_offset"] >= 70_000 and (m["kind"] == "blank" or "key3" in m["keys"])
    ]


@pytest.mark.parametrize("at", [0, 4, 52, 200, 5000])
def test_damage_in_dledger_entries(golden_store: GoldenStore, tmp_path: Path, at: int) -> None:
    """Bytes that are no entry are told, and the next sound message is found."""
    source = golden_store(GROUPS[0]) / "dledger-n0/data" / file_name(0)
    copy = tmp_path / file_name(0)
    data = bytearray(source.read_bytes())
    expected = objects(source, "dledger")
    data[at : at + 4] = b"\xfe\xdc\xba\x98"
    copy.write_bytes(data)
    found = objects(copy, "dledger")
    lost = len(expected) - sum(m["kind"] == "message" for m in found) - 1
    assert lost in (0, 1)
    assert lost == sum(m["kind"] == "damage" for m in found) or any(not m.get("body_crc_ok", True) for m in found)
    covered = [m for m in found if m["kind"] != "message"]
    assert [m for m in expected if m["kind"] == "message"][-1]["physical_offset"] == found[-2]["physical_offset"]
    assert covered[-1]["kind"] == "blank"


@pytest.mark.slow
def test_a_dledger_file_backwards_in_parts(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that is read from its end only a part is kept at once: damage and blanks stand where they stood."""
    source = golden_store(GROUPS[0]) / "dledger-n0/data" / file_name(0)
    data = bytearray(source.read_bytes())
    for at in (300, 9000, 30_000, 30_400, 60_000):
        data[at : at + 60] = bytes(range(60))
    copy = tmp_path / file_name(0)
    copy.write_bytes(data)
    expected = objects(copy, "dledger")
    assert {line["kind"] for line in expected} == {"message", "damage", "blank"}
    for part in (1000, 3000, 20_000, 1 << 20):
        monkeypatch.setattr("rmqtool.inspect.commit_log._WINDOW", part)
        assert objects(copy, "dledger", reverse=True) == expected[::-1]
        assert objects(copy, "dledger", reverse=True, limit=3) == expected[-4:][::-1]


def test_ext_units_backwards_in_windows(extras: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is read from its end only a window is kept at once; a unit that does not fit is its last."""
    source = min((extras / "consumequeue_ext/orders/0").iterdir())
    data = bytearray(source.read_bytes())
    units = objects(source)
    for broken in (False, True):
        copy = tmp_path / f"broken-{broken}"
        if broken:
            data[units[5]["ext_offset"]] = 0x7F
        copy.write_bytes(data)
        expected = objects(copy, "consumequeue-ext")
        assert (expected[-1]["kind"] == "bad_unit") == broken
        for window in (1, 50, 100, 1 << 20):
            monkeypatch.setattr("rmqtool.inspect.unit_files._WINDOW", window)
            assert objects(copy, "consumequeue-ext") == expected
            assert objects(copy, "consumequeue-ext", reverse=True) == expected[::-1]


@pytest.mark.slow
def test_entries_that_are_known_as_committed(unpacked: GoldenStore, tmp_path: Path) -> None:
    """The checkpoint beside the data tells up to where; without it nothing does."""
    store = tmp_path / "store"
    copied(unpacked(GROUPS[0]), store)
    messages = objects(store / "dledger-n0/data" / file_name(0))[:-1]
    assert {message["dledger_committed"] for message in messages} == {True}
    checkpoint = store / "dledger-n0/checkpoint"
    for text, expected in (
        ("endIndex=399\ncommittedIndex=9\n", {index: index <= 9 for index in range(len(messages))}),
        ("committedIndex=-1", dict.fromkeys(range(len(messages)), False)),
        ("", dict.fromkeys(range(len(messages)))),
        ("committedIndex=" + "9" * 40, dict.fromkeys(range(len(messages)))),
        ("\xff" * 9000, dict.fromkeys(range(len(messages)))),
    ):
        checkpoint.write_text(text, encoding="utf-8")
        found = objects(store / "dledger-n0/data" / file_name(0))[:-1]
        assert {message["dledger_index"]: message["dledger_committed"] for message in found} == expected
    checkpoint.unlink()
    assert {line.get("dledger_committed") for line in objects(store / "dledger-n0")} == {None}
    shutil.copyfile(store / "dledger-n0/data" / file_name(0), tmp_path / file_name(0))
    assert {line.get("dledger_committed") for line in objects(tmp_path / file_name(0), "dledger")} == {None}


def test_dledger_entries_of_any_size(tmp_path: Path) -> None:
    """Larger than a block, and cut: the last is damage, nothing hangs."""
    bodies = [b"a", b"b" * (5 << 20), b"c"]
    data = bytearray()
    for number, body in enumerate(bodies):
        record = message(len(data) + 48, body=body)
        header = dledger.DLedgerEntryHeader.build(
            {"magic": 1, "size": 48 + len(record), "index": number, "term": 3, "position": len(data), "channel": 0,
             "chain_crc": 0, "body_crc": 0, "body_size": len(record)}
        )  # fmt: skip
        data += header + record
    whole = tmp_path / file_name(0)
    whole.write_bytes(data + bytes(1000))
    assert [m["dledger_index"] for m in objects(whole, "dledger")] == [0, 1, 2]
    whole.write_bytes(data[:-1])
    assert [m["kind"] for m in objects(whole, "dledger")] == ["message", "message", "damage"]


def test_config_files(extras: Path, tmp_path: Path) -> None:
    """Entries table by table; a file that is cut is told, and its backup is shown."""
    entries = objects(extras / "config/topics.json")
    assert {entry["name"]: entry["value"]["readQueueNums"] for entry in entries if entry["table"]} == {
        "orders": 2,
        "state": 1,
    }
    assert [entry["name"] for entry in entries if not entry["table"]] == ["dataVersion"]
    text = (extras / "config/topics.json").read_bytes()
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "topics.json.bak").write_bytes(text)
    for size in (0, 1, len(text) // 2, len(text) - 2):
        (folder / "topics.json").write_bytes(text[:size])
        found = objects(folder / "topics.json")
        assert found[0]["kind"] == "config_problem"
        assert [{**entry, "file": None} for entry in found[1:]] == [{**entry, "file": None} for entry in entries]
        assert {entry["file"] for entry in found[1:]} == {"config/topics.json.bak"}
    (folder / "topics.json").write_bytes(text)
    assert [entry["file"] for entry in objects(folder)] == ["config/topics.json"] * len(entries)
    (folder / "offsets.json").write_bytes(b'{"offsetTable":{"orders@g":{0:5,1:7}}}')
    assert objects(folder / "offsets.json")[0]["value"] == {"0": 5, "1": 7}


def naive_lengths(previous: list[int]) -> list[tuple[int, bool]]:
    """Follow each chain one link at a time."""
    found = []
    for number in range(len(previous)):
        length, broken, at = int(number > 0), False, number
        while at and (link := previous[at]):
            if not 0 < link < at:
                broken = True
                break
            length, at = length + 1, link
        found.append((length, broken))
    return found


@pytest.mark.slow
@given(st.lists(st.integers(-3, 14), max_size=14))
def test_chains_of_any_links(links: list[int]) -> None:
    """Lengths are those of a walk; cycles, links to newer entries and out of the file end a chain as broken."""
    previous = [0, *links]
    lengths, broken = chain_lengths(np.array(previous, dtype=np.int32))
    assert list(zip(lengths.tolist(), broken.tolist(), strict=True)) == naive_lengths(previous)


@pytest.mark.slow
def test_a_long_chain_takes_few_rounds() -> None:
    """A million units in one slot, each leading to the one before."""
    lengths, broken = chain_lengths(np.arange(-1, 1_000_000, dtype=np.int32).clip(0))
    assert lengths[-1] == 1_000_000
    assert not broken.any()


def test_pre_blank_and_empty_units(tmp_path: Path) -> None:
    """Filler before the first unit and holes between units are told; zeros at the end are left out."""
    from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, build_unit

    folder = tmp_path / "consumequeue" / "orders" / "0"
    folder.mkdir(parents=True)
    units = [build_unit(0, PRE_BLANK_MESSAGE_SIZE, 0)] * 2 + [build_unit(9, 100, 5), bytes(20), build_unit(200, 100, 6)]
    (folder / file_name(6000)).write_bytes(b"".join(units) + bytes(20 * 10))
    found = objects(folder)
    assert [unit["kind"] for unit in found] == ["pre_blank", "pre_blank", "message", "empty", "message"]
    assert [unit["queue_offset"] for unit in found] == [300, 301, 302, 303, 304]
    assert [unit["queue_offset"] for unit in objects(folder, filters=Filters(from_offset=9))] == [302, 304]
    shutil.copy(folder / file_name(6000), tmp_path / "copy")
    copied = objects(tmp_path / "copy", "consumequeue")
    assert {(unit["topic"], unit["queue_id"], unit["queue_offset"]) for unit in copied} == {(None, None, None)}


def test_limits_count_what_counts() -> None:
    """Blanks come along but use up nothing; what stands past the last row does not come."""
    part = make_rows("unit", {"a": np.arange(3)})
    blank = one_row("blank", {"size": 1}, counted=False)
    found = list(limited([blank, part, blank, part, blank], 4))
    assert [len(rows) for rows in found] == [1, 3, 1, 1]
    assert list(limited([part], 0)) == []
    assert list(limited([part, None, part], None)) == [part, None, part]


class Growing:
    """A log that grows each time when the follower pauses."""

    def __init__(self, store: Path, steps: Iterator[Any]) -> None:
        self.store, self.steps = store, steps

    def sleep(self, _seconds: float) -> None:
        next(self.steps)


def test_following_a_log_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New messages come as they are written, in the next file too; a half-written one is waited for."""
    builder = LogBuilder(file_size=600)
    builder.add_all([{"body": b"old"}] * 2).write(tmp_path)

    def steps() -> Iterator[None]:
        yield
        half = builder.images()
        builder.add(body=b"one")
        last = builder.images()
        whole = last[0]
        write_log(tmp_path, {**half, 0: whole[: builder.offsets[-1] + 50] + bytes(600 - builder.offsets[-1] - 50)})
        yield
        builder.write(tmp_path)
        yield
        builder.add_all([{"body": b"two"}, {"body": b"three"}]).write(tmp_path)
        yield
        images = builder.images()
        write_log(tmp_path, {start: data for start, data in images.items() if start > 0})
        builder.add_all([{"body": b"four"}] * 2)
        write_log(tmp_path, {start: data for start, data in builder.images().items() if start > 0})
        while True:
            yield

    monkeypatch.setattr("rmqtool.inspect.commit_log.time", SimpleNamespace(sleep=Growing(tmp_path, steps()).sleep))
    found = follow_log(location_of(tmp_path / "commitlog"), ListingOptions(), from_end=True)
    bodies = [
        row["body"] for rows in islice(found, 30) if isinstance(rows, Rows) for row in rows.dicts() if "body" in row
    ]
    assert bodies == ["one", "two", "three", "four", "four"]
    gone = ListingOptions(filters=Filters(from_offset=0, to_offset=100))
    assert list(follow_log(location_of(tmp_path / "commitlog"), gone, from_end=False)) == []
    builder.write(tmp_path)
    options = ListingOptions(filters=Filters(from_offset=builder.offsets[3], to_offset=builder.offsets[5]))
    every = [
        rows for rows in follow_log(location_of(tmp_path / "commitlog"), options, from_end=False) if rows is not None
    ]
    rows = [row for part in every for row in part.dicts() if row["kind"] == "message"]
    assert [row["physical_offset"] for row in rows] == builder.offsets[3:5]


def _gone(store: Path, builder: LogBuilder) -> None:
    shutil.rmtree(store / "commitlog")


def _shorter(store: Path, builder: LogBuilder) -> None:
    """As a start after a crash leaves it, before another message comes."""
    builder.files[-1] = builder.files[-1][: builder.offsets[-1] % builder.file_size]
    builder.write(store)


def _other(store: Path, builder: LogBuilder) -> None:
    """As long as before, or longer, when it is looked at again."""
    LogBuilder(file_size=600).add_all([{"body": b"other"}] * 9).write(store)


def _other_files(store: Path, builder: LogBuilder) -> None:
    """Its last files are gone, as where a start cuts the log in the file before."""
    for path in sorted((store / "commitlog").iterdir())[1:]:
        path.unlink()


@pytest.mark.parametrize(("change", "error", "text"), [
    (_gone, UnreadableError, "the log disappeared"), (_shorter, ChangedError, "cut before offset"),
    (_other, ChangedError, "cut before offset"), (_other_files, ChangedError, "cut before offset"),
])  # fmt: skip
@pytest.mark.parametrize("from_end", [True, False])
def test_a_log_that_is_cut_while_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, error: type[Exception], text: str, from_end: bool
) -> None:
    """What comes in the place of what was shown would be missed without a word; so ends it where nothing comes."""
    builder = LogBuilder(file_size=600).add_all([{"body": b"b" * 40}] * 7)
    builder.write(tmp_path)

    def steps() -> Iterator[None]:
        yield
        change(tmp_path, builder)
        while True:
            yield

    monkeypatch.setattr("rmqtool.inspect.commit_log.time", SimpleNamespace(sleep=Growing(tmp_path, steps()).sleep))
    with pytest.raises(error, match=text):
        list(islice(follow_log(location_of(tmp_path / "commitlog"), ListingOptions(), from_end=from_end), 50))


def test_the_end_of_a_record_that_comes_late_is_no_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may wait for a page of the file for longer than a reader."""
    builder = LogBuilder().add_all([{"properties": {"KEYS": "k" * 40}}] * 2)
    ((start, image),) = builder.images().items()
    stop = len(builder.files[0])
    write_log(tmp_path, {start: image[: stop - 20] + bytes(20) + image[stop:]})

    def steps() -> Iterator[None]:
        yield
        builder.write(tmp_path)
        yield
        builder.add(body=b"last")
        builder.write(tmp_path)
        while True:
            yield

    monkeypatch.setattr("rmqtool.inspect.commit_log.time", SimpleNamespace(sleep=Growing(tmp_path, steps()).sleep))
    found = islice(follow_log(location_of(tmp_path / "commitlog"), ListingOptions(), from_end=True), 12)
    assert [row["body"] for rows in found if isinstance(rows, Rows) for row in rows.dicts()] == ["last"]


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("row", [0, 1, 3, 5])
def test_a_record_that_is_read_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int, follow: bool
) -> None:
    """Parts of it were not there yet when its end, and others after it, were: it comes whole, and once."""
    builder = LogBuilder(file_size=600).add_all([{"body": b"b" * 50}] * 7)
    images = dict(builder.images())
    begin = max(start for start in images if start <= builder.offsets[row])
    image = bytearray(images[begin])
    at = builder.offsets[row] - begin + 90
    image[at : at + 20] = bytes(20)  # of the body
    write_log(tmp_path, {**images, begin: bytes(image)})
    monkeypatch.setattr(
        "rmqtool.store.commit_log.time", SimpleNamespace(sleep=lambda _seconds: builder.write(tmp_path))
    )
    place, options = location_of(tmp_path / "commitlog"), ListingOptions(live=True)
    found: Iterator[Rows | None] = list_log(place, options)
    if follow:
        start = replace(options, filters=Filters(from_offset=builder.offsets[row]))
        found = takewhile(lambda rows: rows is not None, follow_log(place, start, from_end=False))
    shown = [dict(one) for rows in found if rows for one in rows.dicts() if one["kind"] == "message"]
    assert [one["physical_offset"] for one in shown] == builder.offsets[row if follow else 0 :]
    assert {(one["body"], one["body_crc_ok"]) for one in shown} == {("b" * 50, True)}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("commitlog/" + file_name(0), "consumequeue"),
        ("config/topics.json", "index"),
        ("commitlog/" + file_name(0), "config"),
    ],
)
def test_a_wrong_kind_says_what_it_looks_like(extras: Path, part: str, kind: Any) -> None:
    """Told to be something else, a file is refused by its first bytes."""
    with pytest.raises(WrongKindError, match=r"this looks like (a commit log file|JSON)") as caught:
        objects(extras / part, kind)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("--as ")
