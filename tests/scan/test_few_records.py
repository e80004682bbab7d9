"""A file with few records: what is behind them is not searched."""

from __future__ import annotations

import pytest

from rmqtool.scan import block as under_test
from rmqtool.scan.block import Block, Positions, chain
from tests.building import LogBuilder


@pytest.mark.parametrize(("count", "searched"), [(0, 0), (1, 0), (7, 0), (8, 1), (40, 1)])
def test_no_lane_is_begun_behind_few_records(monkeypatch: pytest.MonkeyPatch, count: int, searched: int) -> None:
    """With as many records as before, and the same."""
    calls: list[int] = []
    original = under_test._lane_starts

    def counted(block: Block, start: int, stride: int) -> Positions:
        calls.append(start)
        return original(block, start, stride)

    monkeypatch.setattr(under_test, "_lane_starts", counted)
    builder = LogBuilder(file_size=1 << 20).add_all({} for _ in range(count))
    data = bytes(builder.files[0]) + bytes(100_000)
    block = Block(len(data))
    block.view[: len(data)] = data
    block.length = len(data)
    assert len(chain(block, 0)) == count
    assert len(calls) == searched
