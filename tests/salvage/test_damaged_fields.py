"""Two copies of a log that differ in a field that no CRC covers: the one that its own store confirms is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.repair.damaged_fields import flip, records_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("damaged_first", [True, False])
@pytest.mark.parametrize(
    ("field", "mask"), [("sys_flag", 4), ("sys_flag", 1), ("topic", 1), ("queue_id", 1), ("KEYS", 1), ("TAGS", 16)]
)
def test_the_right_copy_is_taken(
    unpacked: GoldenStore, tmp_path: Path, field: str, mask: int, damaged_first: bool
) -> None:
    """Whatever comes first; nothing is lost by it, and the new store has nothing wrong."""
    damaged, right = (copied(unpacked("4.9.7-shop"), tmp_path / name) for name in ("damaged", "right"))
    fitting = [each for each in records_of(damaged) if field in each.fields and each.queue_offset]
    record = next(each for each in fitting[len(fitting) // 2 :] if not each.topic.startswith(("RMQ_", "SCHEDULE_")))
    flip(damaged, record, field, mask)
    sources = (damaged, right) if damaged_first else (right, damaged)
    new = tmp_path / "new"

    done = rmqtool("--json", "salvage", *sources, "--output", new)
    assert done.document["exit"]["code"] == 0
    left = done.document["result"]["left_behind"]
    assert [(each["reason"], each["physical_offset"]) for each in left] in (
        [("contradicted", record.physical_offset)],
        [],  # where logs end alike, those before the right one are not read
    )
    verified = rmqtool("--json", "verify", new).document
    of_log = ("commitlog.", "consumequeue.", "index.", "store.recorded-loss")
    found = [each for each in verified["findings"] if each["severity"] != "info" and each["code"].startswith(of_log)]
    assert found == []
    assert records_of(new)[0].fields  # it can be read as a whole
    saved = next(each for each in records_of(new) if each.physical_offset == record.physical_offset)
    was = next(each for each in records_of(right) if each.physical_offset == record.physical_offset)
    start, size = was.fields["queue_id"][0] - 12, was.size
    with (right / was.path).open("rb") as one, (new / saved.path).open("rb") as other:
        one.seek(start)
        other.seek(saved.fields["queue_id"][0] - 12)
        assert one.read(size) == other.read(size)
