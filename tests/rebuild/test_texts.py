"""What a rebuild says, of one thing and of many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.store.store import open_store
from tests.building import LogBuilder


@pytest.mark.parametrize(
    ("offsets", "code", "text"),
    [
        ((0, 1, 3, *range(4, 20)), "rebuild.neutral-units", "1 message is lost: "),
        ((0, 1, 4, *range(5, 20)), "rebuild.neutral-units", "2 messages are lost: "),
        ((*range(20), *range(19, 40)), "rebuild.superseded", "1 entry is left out: "),
        ((*range(20), 99, *range(21, 40)), "rebuild.queue-offset", "1 stored queue offset is contradicted "),
    ],
)
def test_numbers_agree_with_what_they_count(tmp_path: Path, offsets: Sequence[int], code: str, text: str) -> None:
    log = LogBuilder()
    for offset in offsets:
        log.add(queue_offset=offset)
    store = open_store(log.write(tmp_path / "store"))
    found = make_plan(open_source(store, RebuildOptions(frozenset(["queues"])))).findings
    assert [finding.message[: len(text)] for finding in found if finding.code == code] == [text]
