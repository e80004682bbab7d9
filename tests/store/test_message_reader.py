"""The messages of a split: small runs share a batch, whatever stands between them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.block import Damage
from rmqtool.scan.columns import COLUMNS
from rmqtool.store import message_reader
from rmqtool.store.message_reader import INCLUDABLE, Query, SplitReader, read_messages
from rmqtool.store.splits import Split, find_source, split_source
from rmqtool.store.store import open_stores
from tests.building import LOG, LogBuilder, write_log
from tests.sampling import examples
from tests.scan.damaging import FILE_SIZE, damaged_logs, deterministic
from tests.scan.reading import damages, messages, slow, small_blocks

COUNT = 90
QUERY = Query()
EVERYTHING = Query(include=tuple(INCLUDABLE))


def split_of(store: Path) -> Split:
    """All of a log of small files."""
    [named] = open_stores([str(store)], BrokerConf())
    [split] = split_source(find_source(named))
    return split


def builder() -> LogBuilder:
    return LogBuilder(FILE_SIZE).add_all({"queue_offset": number} for number in range(COUNT))


def with_flips(log: LogBuilder, *rows: int) -> dict[int, bytes]:
    """The files of a log with a wrong size of the body in some records."""
    images = {start: bytearray(image) for start, image in log.images().items()}
    for row in rows:
        start, position = divmod(log.offsets[row], FILE_SIZE)
        images[start * FILE_SIZE][position + 84] ^= 0x40
    return {start: bytes(image) for start, image in images.items()}


def test_files_share_a_batch(tmp_path: Path) -> None:
    """Columns are made once for all of them; what was counted is that of each file together."""
    log = builder()
    reader = SplitReader(split_of(log.write(tmp_path)), QUERY)
    [batch] = reader.events()
    assert len(log.files) > 1
    assert reader.to_messages(batch).column("physical_offset").to_pylist() == log.offsets
    assert (reader.counts.messages, reader.counts.end) == (COUNT, log.end)
    assert reader.counts.last_record is not None
    assert reader.counts.last_record.physical_offset == log.offsets[-1]


def test_damage_does_not_part_them(tmp_path: Path) -> None:
    """It may come first, and each extent comes once; `in_order` it comes where it stands."""
    log = builder()
    lost = [10, 45, 46]
    split = split_of(write_log(tmp_path, with_flips(log, *lost)))
    kept = [offset for row, offset in enumerate(log.offsets) if row not in lost]
    reader = SplitReader(split, QUERY)
    *damaged, batch = reader.events()
    extents = [event.physical_offset for event in damaged if isinstance(event, Damage)]
    assert extents == [log.offsets[10], log.offsets[45]]
    assert isinstance(batch, pa.RecordBatch)
    assert reader.to_messages(batch).column("physical_offset").to_pylist() == kept
    reader, found = SplitReader(split, QUERY, in_order=True), []
    for event in reader.events():
        if isinstance(event, Damage):
            found.append(event.physical_offset)
        else:
            found += reader.to_messages(event).column("physical_offset").to_pylist()
    assert found == sorted([*kept, *extents])


@pytest.mark.parametrize(("lost", "reason"), [(30, "lengths"), (50, "body")])
def test_the_first_fault_ends_a_reading(tmp_path: Path, lost: int, reason: str) -> None:
    """A wrong body in front of damage, or damage in front of a wrong body."""
    log = LogBuilder(FILE_SIZE)
    log.add_all({"body_crc": 7} if number == 40 else {} for number in range(COUNT))
    split = split_of(write_log(tmp_path, with_flips(log, lost)))
    with pytest.raises(RmqtoolError, match=reason) as caught:
        list(read_messages(split, QUERY, fails=True, way_out="--mend"))
    assert caught.value.offset == log.offsets[min(lost, 40)]


def test_what_was_read_before_a_file_that_is_gone(tmp_path: Path) -> None:
    """It is given before the error."""
    log = builder()
    split = split_of(log.write(tmp_path))
    (tmp_path / LOG / f"{2 * FILE_SIZE:020}").unlink()
    reader = SplitReader(split, QUERY)
    events = reader.events()
    batch = next(events)
    assert isinstance(batch, pa.RecordBatch)
    offsets = [offset for offset in log.offsets if offset < 2 * FILE_SIZE]
    assert reader.to_messages(batch).column("physical_offset").to_pylist() == offsets
    with pytest.raises(UnreadableError):
        next(events)


def test_large_runs_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is small in front of one comes first."""
    monkeypatch.setattr(message_reader, "USUAL_RECORDS", 40)  # a run of 11 is large
    log = LogBuilder(1 << 14)
    for count in (3, 4, 40, 5, 30):
        log.add_all({} for _ in range(count)).roll()
    reader = SplitReader(split_of(log.write(tmp_path)), QUERY)
    batches = [event for event in reader.events() if isinstance(event, pa.RecordBatch)]
    assert [batch.num_rows for batch in batches] == [7, 40, 5, 30]
    rows = [row for batch in batches for row in reader.to_messages(batch).column("physical_offset").to_pylist()]
    assert rows == log.offsets


@pytest.mark.slow
@settings(deterministic, max_examples=examples(60))
@given(images=damaged_logs())
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, images: dict[int, bytes]) -> None:
    """Every column of every message, and all damage, as the reference reader has them."""
    store = write_log(tmp_path_factory.mktemp("damaged"), images)
    with small_blocks(FILE_SIZE, longest_blank=1 << 10):
        expected = slow(store)
        [named] = open_stores([str(store)], BrokerConf())
        rows, found = [], []
        for split in split_source(find_source(named)):
            for event in SplitReader(split, EVERYTHING, tuple(COLUMNS)).events():
                if isinstance(event, Damage):
                    found.append(event)
                else:
                    rows += event.select(list(COLUMNS)).to_pylist()
    assert rows == messages(expected)
    assert found == damages(expected)
