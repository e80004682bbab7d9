"""The rows of topics in an overview: many light queues are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.inspect.overview import overview_of
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.show.overview import TopicRow, topic_rows
from rmqtool.store.store import open_store
from tests.building import LogBuilder


def store_with(root: Path, light: int) -> Path:
    """A store of one message, whose topic has two queues, and so many light queues with a unit each."""
    LogBuilder(1 << 16).add_all([{"body": b"hello"}]).write(root)
    for topic, queue_id in [("orders", 0), ("orders", 1), *((f"{LMQ_PREFIX}{number}", 0) for number in range(light))]:
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        (directory / file_name(0)).write_bytes(build_unit(0, 100, 0).ljust(6000, b"\0"))
    return root


@pytest.mark.parametrize("light", [40, 41])
def test_many_light_queues_are_one_row(tmp_path: Path, light: int) -> None:
    """Each has a row of its own as long as they are few; nothing is left out of the sums."""
    rows = topic_rows(overview_of(open_store(store_with(tmp_path / "store", light))))
    assert rows["orders"] == TopicRow(1, 2, 2, 2)
    if light == 40:
        assert len(rows) == 41
    else:
        name = f"{LMQ_PREFIX}... (41 light queues, each with -v)"
        assert rows == {"orders": rows["orders"], name: TopicRow(41, 41, 41, 41)}
    assert sum(row.topics for row in rows.values()) == light + 1
