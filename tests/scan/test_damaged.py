"""Whatever is done to a log: the scan says what the plain reader says, and splits of it lose and double nothing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.scan.block import Blank, Damage
from rmqtool.scan.columns import COLUMNS
from tests.building import LogBuilder, message, write_log
from tests.sampling import examples, one_in
from tests.scan.damaging import FILE_SIZE, FILES, LONGEST, damaged_logs, deterministic, whole_log
from tests.scan.reading import agree, assert_same, damages, fast, offsets, others, small_blocks

END = (FILES + 3) * FILE_SIZE
FEW_COLUMNS = ("physical_offset", "message_size", "topic", "body_crc_ok")
block_sizes = st.sampled_from((120, 300, 1000, 4 << 20))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each example writes its store again."""
    return tmp_path_factory.mktemp("damaged")


def test_the_log_is_whole_before_it_is_damaged(place: Path) -> None:
    """The log that the examples start from has all its records, three blanks and no damage."""
    found = agree(write_log(place, whole_log().images()))
    assert offsets(found) == whole_log().offsets
    assert len(others(found)) == FILES - 1
    assert not damages(found)


@pytest.mark.slow
@settings(deterministic, max_examples=examples(150))
@given(images=damaged_logs(), block_size=block_sizes)
def test_a_damaged_log_is_read_as_the_plain_reader_does(
    place: Path, images: Mapping[int, bytes], block_size: int
) -> None:
    """Events, reasons and columns agree, wherever the borders of blocks are, and nothing raises."""
    write_log(place, images)
    with small_blocks(block_size):
        agree(place, FEW_COLUMNS if block_size < 1000 else tuple(COLUMNS))


@pytest.mark.slow
@settings(deterministic, max_examples=examples(150))
@given(
    images=damaged_logs(),
    block_size=block_sizes,
    longest=st.sampled_from((LONGEST, 8 << 20)),
    cuts=st.lists(st.integers(0, END), min_size=1, max_size=4),
)
def test_splits_of_a_damaged_log_give_each_event_once(
    place: Path, images: Mapping[int, bytes], block_size: int, longest: int, cuts: list[int]
) -> None:
    """Whatever the bytes at which a log is split, the splits together give what the whole scan gives."""
    write_log(place, images)
    spans = list(pairwise([0, *sorted(cuts), END]))
    with small_blocks(block_size, longest):
        together = [event for span in spans for event in fast(place, ("physical_offset",), span)]
        assert_same(together, fast(place, ("physical_offset",)))


@pytest.mark.slow
def test_a_split_at_any_byte_gives_each_event_once(place: Path) -> None:
    """Two splits that meet give the whole, whichever byte of a file with damage and a filled blank they meet at."""
    log = LogBuilder(1300, filler=message(1 << 40)).add_all({"body": b"b" * 50} for _ in range(9))
    image = bytearray(log.images()[0])
    image[230:240] = bytes(10)
    image[600:800] = b"\xda\xa3\x20\xa7" * 50
    write_log(place, {0: bytes(image)})
    whole = fast(place, ("physical_offset",))
    assert [type(event) for event in whole] == [dict, Damage, dict, dict, Damage, dict, dict, Blank]
    starts = [event["physical_offset"] if isinstance(event, dict) else event.physical_offset for event in whole]
    near = {start + side for start in starts for side in (-1, 0, 1) if start + side >= 0}
    with small_blocks(300, LONGEST):
        for cut in sorted({*one_in(3, range(len(image) + 1), "split"), *near}):
            parts = [fast(place, ("physical_offset",), span) for span in ((0, cut), (cut, END))]
            assert_same(parts[0] + parts[1], whole)
