"""Stores written by real brokers: the scan, the plain reader and the broker's own decoder say the same."""

from __future__ import annotations

import base64
from functools import lru_cache
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.properties import split_keys
from rmqtool.scan.columns import COLUMNS
from tests.golden import stores
from tests.scan.reading import Event, agree, assert_same, damages, fast, files_of, messages, slow, small_blocks

SPLITS = 7
SAME_NAMES = (
    *("physical_offset", "message_size", "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc", "message_id"),
    *("unique_key", "tags"),
)


@lru_cache(maxsize=1)
def expected(golden: Path) -> list[Event]:
    return slow(golden)


@lru_cache(maxsize=1)
def records(golden: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stores.oracle(golden.name)["records"]
    return found


@pytest.mark.slow
@pytest.mark.one_in(6)
def test_the_scan_agrees_with_the_plain_reader(golden: Path) -> None:
    """Events, their order and every column are those of the plain reader."""
    assert_same(fast(golden), expected(golden))


@pytest.mark.slow
@pytest.mark.parametrize("size", [200, 1000, 5000, 33_000])
def test_borders_of_blocks_and_lanes_change_nothing(tmp_path: Path, size: int) -> None:
    """Blocks smaller than the files, and smaller than some records, give the same."""
    store = stores.unpack("5.3.3-trimmed", tmp_path)
    with small_blocks(size):
        agree(store)


@pytest.mark.one_in(3)
def test_the_plain_reader_gives_every_column(golden: Path) -> None:
    """A message of the plain reader has the names of the scan's columns, no more and no fewer."""
    for message in messages(expected(golden)):
        assert message.keys() == COLUMNS.keys()


@pytest.mark.one_in(3)
def test_messages_are_those_of_the_broker(golden: Path) -> None:
    """Every value that the release's decoder shows is in the columns, for every record of the log."""
    found = messages(fast(golden))
    assert len(found) == len(records(golden))
    for message, record in zip(found, records(golden), strict=True):
        assert {name: message[name] for name in SAME_NAMES} == {name: record[name] for name in SAME_NAMES}
        assert message["magic_code"] == record["magic"]
        assert dict(message["properties"]) == record["properties"]
        assert message["keys"] == split_keys(record["keys"])
        assert message["born_host"] == host(record, "born_host")
        assert message["store_host"] == host(record, "store_host")
        assert message["stored_body"] == base64.b64decode(record["body_stored_base64"])
        assert message["body"] == base64.b64decode(record["body_base64"])
        assert message["body_size"] == len(message["stored_body"])
        assert message["body_crc_ok"]


def host(record: dict[str, Any], name: str) -> str:
    address, port = str(ip_address(record[f"{name}_address"])), record[f"{name}_port"]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@pytest.mark.slow
@pytest.mark.one_in(3)
def test_nothing_but_messages_and_blanks(golden: Path) -> None:
    """A broker's own log has no damage but what a kill leaves at its end, and events follow one another without gap."""
    found = expected(golden)
    assert all(damage.tail for damage in damages(found))
    extents = [
        (event["physical_offset"], event["message_size"])
        if isinstance(event, dict)
        else (event.physical_offset, event.size)
        for event in found
    ]
    assert all(start + size == after for (start, size), (after, _) in pairwise(extents))
    assert not extents or extents[0][0] == files_of(golden)[0].start_offset


@pytest.mark.slow
def test_splits_of_a_broker_s_log(golden: Path) -> None:
    """Splits that meet, at bytes inside of records, blanks and between them, give each event once."""
    files = files_of(golden)
    first, last = (files[0].start_offset, files[-1].end_offset) if files else (0, 0)
    cuts = [first + (last - first) * number // SPLITS + number for number in range(1, SPLITS)]
    spans = list(pairwise([0, *cuts, 1 << 62]))
    with small_blocks(4096, longest_blank=64 << 10):
        assert_same([event for span in spans for event in fast(golden, span=span)], expected(golden))
