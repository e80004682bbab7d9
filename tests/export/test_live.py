"""A log to which a broker appends: a record that is being copied into it is no damage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from rmqtool.base.mapped_files import MappedFiles
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.lock import Holder
from rmqtool.store.message_reader import Query, SplitReader
from rmqtool.store.splits import find_source, split_source, whole_records_end
from rmqtool.store.store import Store, open_stores
from tests.building import LOG, LogBuilder, write_log

BODY = b"b" * 50


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder(file_size=600).add_all([{"body": BODY}] * 7)


@pytest.fixture
def store(builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that a broker runs on; what it writes, all of `builder`, is there after a moment."""
    builder.write(tmp_path / "store")
    monkeypatch.setattr("rmqtool.store.splits.lock_holder", lambda _root: Holder(1, "lock"))

    def sleep(seconds: float) -> None:
        if seconds:  # 0 comes before another try to read what the broker has deleted
            builder.write(tmp_path / "store")

    monkeypatch.setattr("rmqtool.store.commit_log.time", SimpleNamespace(sleep=sleep))
    return tmp_path / "store"


@pytest.mark.parametrize("row", [0, 3, 5, 6])
@pytest.mark.parametrize("part", [slice(90, 110), slice(-20, None)])
def test_a_record_that_is_being_written(store: Path, builder: LogBuilder, row: int, part: slice) -> None:
    """Parts of it were not there yet when its end, or others after it, were: it comes whole, or later."""
    images = dict(builder.images())
    begin = max(start for start in images if start <= builder.offsets[row])
    image = np.frombuffer(bytearray(images[begin]), np.uint8)
    ends = [*builder.offsets, builder.end]
    image[builder.offsets[row] - begin : ends[row + 1] - begin][part] = 0
    write_log(store, {**images, begin: image.tobytes()})
    (named,) = open_stores([str(store)], BrokerConf())
    source = find_source(named)
    assert source.live
    rows = []
    for split in split_source(source):
        reader = SplitReader(split, Query())
        for event in reader.events():
            assert isinstance(event, pa.RecordBatch)
            rows += reader.to_messages(event).to_pylist()
        assert reader.counts.wrong_crc.count == 0
    assert [one["physical_offset"] for one in rows] in (builder.offsets, builder.offsets[:-1])
    assert {one["body"] for one in rows} == {BODY}


def test_the_end_of_a_stream_is_waited_for(store: Path, builder: LogBuilder) -> None:
    """What a stream reads next was whole before its end was told, also when a record near it is known."""
    (named,) = open_stores([str(store)], BrokerConf())
    file = max((store / LOG).iterdir())
    for near in (None, builder.offsets[-2]):
        with file.open("r+b") as log:
            log.seek(builder.offsets[-1] % builder.file_size + 90)
            log.write(bytes(20))
        assert whole_records_end(named, near) == builder.end
        assert file.read_bytes() == dict(builder.images())[int(file.name)]


def test_a_file_that_is_deleted_meanwhile(store: Path, builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has deleted the oldest file when it is to be read: the log begins with the next one."""
    (named,) = open_stores([str(store)], BrokerConf())
    listed = Store.commit_log
    starts = sorted(dict(builder.images()))

    def list_and_delete(self: Store) -> MappedFiles:
        files = listed(self)
        (store / LOG / f"{starts[0]:020d}").unlink(missing_ok=True)
        return files

    monkeypatch.setattr(Store, "commit_log", list_and_delete)
    monkeypatch.setattr("rmqtool.store.commit_log._RETRY_DELAY_S", 0)
    assert find_source(named).min_offset == starts[1]
    write_log(store, builder.images())
    assert whole_records_end(named) == builder.end
