"""Read a store both ways, as lists of plain values that can be compared; every read asserts that nothing changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.scan import block, frames, reader, single_record
from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.frames import RecordRun
from tests.building import LOG
from tests.scan import reference_reader
from tests.unchanged import unchanged

Event = reference_reader.Event
WHOLE = (0, (1 << 63) - 1)


def files_of(store: Path) -> tuple[MappedFile, ...]:
    return list_mapped_files(store / LOG).files


def fast(store: Path, columns: Sequence[str] = tuple(COLUMNS), span: tuple[int, int] = WHOLE) -> list[Event]:
    """What `scan_files` gives for a span of physical offsets. Values are taken from the batches after the scan."""
    with unchanged(store):
        return list(_rows(files_of(store), columns, span))


def _rows(files: Sequence[MappedFile], columns: Sequence[str], span: tuple[int, int]) -> Iterator[Event]:
    found: list[Any] = []
    for event in reader.scan_files(files, *span):
        found += record_batches(event, columns) if isinstance(event, RecordRun) else [event]
    for part in found:
        if isinstance(part, Blank | Damage):
            yield part
        else:
            part.validate(full=True)
            yield from part.to_pylist()


def slow(store: Path) -> list[Event]:
    """What the reference reader gives; properties as Arrow shows a map."""
    with unchanged(store):
        events = list(reference_reader.read_log(files_of(store)))
    return [
        {**event, "properties": list(event["properties"].items())} if isinstance(event, dict) else event
        for event in events
    ]


def others(events: Sequence[Event]) -> list[Blank | Damage]:
    return [event for event in events if not isinstance(event, dict)]


def damages(events: Sequence[Event]) -> list[Damage]:
    return [event for event in events if isinstance(event, Damage)]


def messages(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [event for event in events if isinstance(event, dict)]


def offsets(events: Sequence[Event]) -> list[int]:
    """Physical offsets of the messages."""
    return [event["physical_offset"] for event in messages(events)]


def assert_same(found: Sequence[Event], expected: Sequence[Event]) -> None:
    """Assert that two readings are equal; the first difference is what fails."""
    for one, other in zip(found, expected, strict=False):
        if isinstance(one, dict) and isinstance(other, dict):
            assert one.keys() == other.keys()
            differ = [name for name in one if one[name] != other[name]]
            assert {name: one[name] for name in differ} == {name: other[name] for name in differ}
        else:
            assert one == other
    assert len(found) == len(expected)


def agree(store: Path, columns: Sequence[str] = tuple(COLUMNS)) -> list[Event]:
    """Read both ways, assert that they agree in `columns`, and return what the reference reader found."""
    expected = slow(store)
    assert_same(
        fast(store, columns),
        [{name: event[name] for name in columns} if isinstance(event, dict) else event for event in expected],
    )
    return expected


@contextmanager
def small_blocks(size: int, longest_blank: int = reader.LONGEST_BLANK) -> Iterator[None]:
    """Scan with blocks, reads and lanes of about `size` bytes, so that small logs cross their borders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "block_size", lambda: size)
        patch.setattr(reader, "LONGEST_BLANK", longest_blank)
        patch.setattr(reader, "RECORDS_AFTER_DAMAGE", 1)
        patch.setattr(reader, "_SMALL_REST", size // 64)
        patch.setattr(frames, "block_size", lambda: 4 * size)
        patch.setattr(single_record, "BLOCK_SIZE", size)
        patch.setattr(single_record, "_FIRST_READ", min(single_record._FIRST_READ, max(16, size // 4)))
        patch.setattr(block, "_FEW", 1)
        patch.setattr(block, "_MIN_STRIDE", min(block._MIN_STRIDE, max(250, size // 8)))
        patch.setattr(block, "_MAX_STRIDE", min(block._MAX_STRIDE, max(250, size // 2)))
        yield
