"""The rows of index and timers in RocksDB against the log, in blocks: what differs is found wherever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rmqtool.formats.rocksdb_rows import INDEX_HOUR, INDEXED_TO, TIMELINE, TIMERS_INDEXED_TO, index_prefix
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.verify import rocksdb_side
from tests.building import START_TIME, LogBuilder
from tests.changed_rocksdb import changed
from tests.verify.verifying import verify

MESSAGES = 60
EVERY = 400_000  # ms between two messages: nine in each hour
DELAY = 7_200_000  # ms

Rows = dict[str, dict[bytes, bytes]]


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_side, "_BLOCK", 7)


def side_log(root: Path) -> Rows:
    """Write a log of orders and timer messages; every row that they have."""
    log, rows = LogBuilder(file_size=1 << 20), Rows(default={}, timer={}, trans={})
    for message in range(MESSAGES):
        stored = START_TIME + EVERY * message
        keys = ["k", f"key-{message}", "a@b", "k"][: message % 5]
        due = stored // 1000 * 1000 + DELAY
        is_timer = message % 3 == 0
        properties = {"UNIQ_KEY": f"U{message:04}", "KEYS": " ".join(keys), "TAGS": "T" if message % 2 else ""}
        properties |= {"TIMER_OUT_MS": str(due)} if is_timer else {}
        properties = {name: value for name, value in properties.items() if value}
        topic = TIMER_TOPIC if is_timer else "orders"
        offset = log.add(topic=topic, queue_offset=message // 3 if is_timer else message - message // 3 - 1,
                         store_timestamp=stored, properties=properties)  # fmt: skip
        words = {*(("K", f"{key}@U{message:04}") for key in keys), ("U", f"U{message:04}")}
        words |= {("T", f"T@U{message:04}")} if message % 2 else set()
        for kind, word in words:
            key = index_prefix(stored - stored % INDEX_HOUR, topic, kind, word) + number(offset)
            rows["default"][key] = number(stored)
        if is_timer:
            rows["timer"][number(due) + f"U{message:04}".encode()] = bytes(4) + number(offset)
    rows["default"][INDEXED_TO] = number(log.offsets[-1])
    rows["timer"] |= {TIMELINE: number(0), TIMERS_INDEXED_TO: number(MESSAGES)}
    ends = dict(zip(log.offsets, [*log.offsets[1:], log.end], strict=True))
    for key, value in rows["timer"].items():
        if len(value) == 12:
            offset = int.from_bytes(value[4:], "big")
            rows["timer"][key] = (ends[offset] - offset).to_bytes(4, "big") + value[4:]
    log.write(root)
    return rows


def write_rows(database: Path, rows: Rows) -> None:
    opened = Rdict(str(database), Options(raw_mode=True))
    for family in ("timer", "trans"):
        opened.create_column_family(family, Options(raw_mode=True))
    opened.close()
    with changed(database) as families:
        for family, wanted in rows.items():
            for key, value in wanted.items():
                families[family][key] = value


def found(root: Path) -> Counter[str]:
    """Counts of the findings of these rows by code."""
    counts: Counter[str] = Counter()
    for finding in verify(root).findings:
        if finding.code in ("index.row", "index.row-missing", "timer.row", "timer.row-missing"):
            counts[finding.code] += finding.count
    return counts


@pytest.mark.slow
def test_sound_rows(tmp_path: Path) -> None:
    """None is wrong, and none is missing; each is counted."""
    rows = side_log(tmp_path)
    write_rows(tmp_path / "rocksdbstore", rows)
    outcome = verify(tmp_path)
    assert found(tmp_path) == Counter()
    assert outcome.report.checked["index.row-missing"] == len(rows["default"]) - 1 > 150
    assert outcome.report.checked["index.row"] == len(rows["default"])
    assert outcome.report.checked["timer.row-missing"] == MESSAGES // 3


def index_key(rows: Rows, place: int = 100) -> bytes:
    """The key of a row of the index, not the last in its hour."""
    return sorted(key for key in rows["default"] if key != INDEXED_TO)[place]


def timer_key(rows: Rows) -> bytes:
    return sorted(key for key in rows["timer"] if b"U00" in key)[4]


def another_time(rows: Rows) -> None:
    rows["default"][index_key(rows)] = number(START_TIME)


def swapped_times(rows: Rows) -> None:
    index, first, second = rows["default"], index_key(rows), index_key(rows, 101)
    assert first[:8] == second[:8]
    assert index[first] != index[second]
    index[first], index[second] = index[second], index[first]


def a_row_less(rows: Rows) -> None:
    del rows["default"][index_key(rows)]


def another_hour(rows: Rows) -> None:
    key = index_key(rows)
    rows["default"][number(int.from_bytes(key[:8], "big") + INDEX_HOUR) + key[8:]] = rows["default"].pop(key)


def another_unique_key(rows: Rows) -> None:
    key = index_key(rows)
    rows["default"][key.replace(b"@U0", b"@V0")] = rows["default"].pop(key)


def another_form(rows: Rows) -> None:
    rows["default"][b"\0short"] = b""


def a_longer_time(rows: Rows) -> None:
    rows["default"][index_key(rows)] += b"\0"


def behind_the_progress(rows: Rows) -> None:
    last = max(rows["default"], key=lambda key: key[-8:] if key != INDEXED_TO else b"")
    rows["default"][last.replace(b"@U0", b"@V0")[:-8] + number(1 << 40)] = number(START_TIME)


def another_size(rows: Rows) -> None:
    rows["timer"][timer_key(rows)] = (7).to_bytes(4, "big") + rows["timer"][timer_key(rows)][4:]


def another_offset(rows: Rows) -> None:
    rows["timer"][timer_key(rows)] = rows["timer"][timer_key(rows)][:4] + number(1)


def a_timer_less(rows: Rows) -> None:
    del rows["timer"][timer_key(rows)]


def another_timer(rows: Rows) -> None:
    key = timer_key(rows)
    rows["timer"][key[:8] + b"V" + key[9:]] = rows["timer"].pop(key)


def no_timer(rows: Rows) -> None:
    rows["timer"][bytes(9)] = b"\1"


@pytest.mark.parametrize(
    ("change", "index_rows", "index_missing", "timer_rows", "timers_missing"),
    [
        (another_time, 1, 0, 0, 0),
        (swapped_times, 2, 0, 0, 0),
        (a_row_less, 0, 1, 0, 0),
        (another_hour, 1, 1, 0, 0),
        (another_unique_key, 1, 1, 0, 0),
        (another_form, 1, 0, 0, 0),
        (a_longer_time, 1, 0, 0, 0),
        (behind_the_progress, 1, 0, 0, 0),
        (another_size, 0, 0, 1, 0),
        (another_offset, 0, 0, 1, 0),
        (a_timer_less, 0, 0, 0, 1),
        (another_timer, 0, 0, 1, 1),
        (no_timer, 0, 0, 1, 0),
    ],
)
def test_each_change_is_found(
    change: Callable[[Rows], None],
    index_rows: int,
    index_missing: int,
    timer_rows: int,
    timers_missing: int,
    tmp_path: Path,
) -> None:
    """Neither more nor fewer findings than rows that are wrong or missing."""
    rows = side_log(tmp_path)
    change(rows)
    write_rows(tmp_path / "rocksdbstore", rows)
    counts = found(tmp_path)
    assert (counts["index.row"], counts["index.row-missing"]) == (index_rows, index_missing)
    assert (counts["timer.row"], counts["timer.row-missing"]) == (timer_rows, timers_missing)


@pytest.mark.slow
def test_a_timer_that_is_cancelled_needs_no_row(tmp_path: Path) -> None:
    """By a later message that names its unique key."""
    rows = side_log(tmp_path)
    key = timer_key(rows)
    log = LogBuilder(file_size=1 << 20)
    assert key[8:].startswith(b"U")
    due, stored = int.from_bytes(key[:8], "big"), START_TIME
    for queue_offset, more in enumerate([{}, {"TIMER_DEL_UNIQKEY": "U7"}]):
        properties = {"UNIQ_KEY": "U7" if not more else "U8", "TIMER_OUT_MS": str(due), **more}
        log.add(topic=TIMER_TOPIC, queue_offset=queue_offset, store_timestamp=stored, properties=properties)
        root = tmp_path / str(queue_offset)
        log.write(root)
        write_rows(root / "rocksdbstore", {"default": {}, "timer": {TIMELINE: number(0), TIMERS_INDEXED_TO: number(9)}})
        assert found(root)["timer.row-missing"] == (0 if more else 1)
