"""A single message has the fields that the same message has among many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.message import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_COMMIT, TRANSACTION_PREPARED
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.single_messages import message_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores


def _compare(files: Sequence[MappedFile], every: int) -> int:
    """Hold each so-many-th message against its row of the scan; their count."""
    count = 0
    for event in scan_files(files):
        for row in islice(message_dicts(event, ""), 0, None, every) if isinstance(event, RecordRun) else ():
            record = single_record_at(files, row["physical_offset"])
            assert record is not None
            message = message_of(record)
            assert message == {name: row[name] for name in message}
            count += 1
    return count


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*stores.samples(), "more/4.9.7-dledger", "more/5.3.3-converted"])
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    assert _compare(Snapshot(open_store(golden_store(name))).log.files, 20) > 0 or name.endswith("-empty")


def test_hosts_keys_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    fields = [
        {"sys_flag": bits | transaction, "topic": topic, "properties": properties, "body": bytes(bits)}
        for bits in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
        for transaction in (0, TRANSACTION_PREPARED, TRANSACTION_COMMIT)
        for topic in (b"", b"T", b"\xff\xc3(")
        for properties in (
            b"",
            b"KEYS\x01a  b \x02TAGS\x01t\x02UNIQ_KEY\x01u\x02",
            b"TAGS\x01old\x02TAGS\x01n\xe2w\x02KEYS\x01\x02UNIQ_KEY\x01\xff",
        )
    ]
    log = LogBuilder(file_size=1 << 20).add_all(fields)
    root = log.write(tmp_path)
    assert _compare(Snapshot(open_store(root)).log.files, 1) == len(fields)
