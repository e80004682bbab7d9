"""Every format against stores that real brokers wrote, and what those brokers said about them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.formats import checkpoint, consume_queue, index_file
from rmqtool.formats.file_name import is_index_name, start_offset_of
from rmqtool.formats.layout import decode_units, parse
from rmqtool.formats.message import (
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    Blank,
    body_crc,
    build_host,
    build_message,
    format_message_id,
    parse_message,
    parse_message_id,
    record_crc,
    stored_record_crc,
)
from rmqtool.formats.properties import decode_properties, tags_code
from tests.formats.unique_keys import parse_unique_key
from tests.golden.stores import names, oracle, unpack
from tests.real_broker.harness import GEOMETRY

STORES = [name for name in names() if name.endswith(("-clean", "-crc32-property"))]
MAGIC_CODES = {"v1": MAGIC_CODE_V1, "v2": MAGIC_CODE_V2}
SLOTS, UNITS = int(GEOMETRY["maxHashSlotNum"]), int(GEOMETRY["maxIndexNum"])
SAME_NAMES = (
    "message_size",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)


@dataclass(frozen=True)
class Golden:
    """A store and what its broker says about it."""

    root: Path
    says: dict[str, Any]

    def read_mapped_files(self, *folder: str) -> tuple[int, bytes]:
        """Read all files of a queue of mapped files: start offset of the first, and their bytes in a row."""
        files = sorted(self.root.joinpath(*folder).iterdir())
        starts = [start_offset_of(file.name) for file in files]
        data = [file.read_bytes() for file in files]
        assert starts[0] is not None
        assert starts == [starts[0] + sum(map(len, data[:number])) for number in range(len(files))]
        return starts[0], b"".join(data)

    def read_records(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Pair what the broker says about each record with the record's bytes."""
        start, data = self.read_mapped_files("commitlog")
        for record in self.says["records"]:
            position = record["physical_offset"] - start
            yield record, data[position : position + record["message_size"]]

    def read_index_files(self) -> list[bytes]:
        """Read the index files, oldest first."""
        return [file.read_bytes() for file in sorted((self.root / "index").iterdir()) if is_index_name(file.name)]


def test_there_are_golden_stores() -> None:
    """The tests below do not pass for want of a store."""
    assert {name.partition("-")[2] for name in STORES} == {"clean", "crc32-property"}


@pytest.fixture(scope="module", params=STORES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Each store of a broker that stored every kind of message and was stopped cleanly."""
    return Golden(unpack(request.param, tmp_path_factory.mktemp("golden")), oracle(request.param))


@pytest.mark.slow
def test_fields_of_messages(golden: Golden) -> None:
    """Every field of every record is what the broker reads from it."""
    for record, data in golden.read_records():
        message = parse_message(data)
        assert {name: message[name] for name in SAME_NAMES} == {name: record[name] for name in SAME_NAMES}
        assert message.magic_code == MAGIC_CODES[record["magic"]]
        assert message.topic.decode() == record["topic"]
        assert message.body == b64decode(record["body_stored_base64"])
        assert message.born_host == build_host(record["born_host_address"], record["born_host_port"])
        assert message.store_host == build_host(record["store_host_address"], record["store_host_port"])


@pytest.mark.slow
def test_messages_are_built_as_the_broker_builds_them(golden: Golden) -> None:
    """The fields of every record give its bytes back."""
    for _, data in golden.read_records():
        fields = {name: value for name, value in parse_message(data).items() if name[0] != "_" and name[-5:] != "_size"}
        assert build_message(**fields) == data


def test_headers_of_messages(golden: Golden) -> None:
    """The header dtype of a record's hosts reads the fields that construct reads."""
    for _, data in golden.read_records():
        message = parse_message(data)
        dtype = HEADER_DTYPES[message.sys_flag & HOST_BITS]
        [header] = np.frombuffer(data, dtype, count=1)
        assert [bytes(value) if dtype[number].kind == "V" else value for number, value in enumerate(header)] == [
            message[name] for name in dtype.names or ()
        ]


def test_properties_of_messages(golden: Golden) -> None:
    """The properties, keys and tags of every record are those that the broker reads."""
    for record, data in golden.read_records():
        properties = decode_properties(parse_message(data).properties)
        assert properties == record["properties"]
        shown = {"KEYS": record["keys"], "TAGS": record["tags"], "UNIQ_KEY": record["unique_key"]}
        assert {name: properties.get(name) for name in shown} == shown


def test_checksums_of_messages(golden: Golden) -> None:
    """The CRC of every body is the stored one, and so is that of every record where the broker appended it."""
    for _, data in golden.read_records():
        message = parse_message(data)
        assert message.body_crc == body_crc(message.body)
        appended = golden.says["scenario"] == "crc32-property"
        assert stored_record_crc(data) == (record_crc(data) if appended else None)


@pytest.mark.slow
def test_message_ids(golden: Golden) -> None:
    """The broker's id of every record is store host and position."""
    for record, data in golden.read_records():
        store_host = parse_message(data).store_host
        assert format_message_id(store_host, record["physical_offset"]) == record["message_id"]
        assert parse_message_id(record["message_id"]) == (store_host, record["physical_offset"])


def test_unique_keys(golden: Golden) -> None:
    """The unique keys of clients are decoded."""
    keys = {record["unique_key"] for record in golden.says["records"]} - {None}
    counters = [parse_unique_key(key).counter for key in sorted(keys)]
    assert len(counters) > 1
    assert len(set(counters)) > len(counters) // 2


def test_records_and_blanks_fill_the_log(golden: Golden) -> None:
    """Each record begins where the one before ends, or at the next file, after a blank that reaches to it."""
    start, data = golden.read_mapped_files("commitlog")
    expected = start
    for record in golden.says["records"]:
        if record["physical_offset"] != expected:
            blank = parse(Blank, data[expected - start :])
            assert blank.magic_code == MAGIC_CODE_BLANK
            assert blank.size == record["physical_offset"] - expected
        expected = record["physical_offset"] + record["message_size"]
    assert expected == golden.says["commit_log"]["max_offset"]


def test_consume_queue_units(golden: Golden) -> None:
    """Every unit is what the broker reads, with the record's tags code where it is not a delivery time."""
    tags = {record["physical_offset"]: record["tags"] for record in golden.says["records"]}
    for queue in golden.says["queues"]:
        if queue["kind"] == "simple":
            start, data = golden.read_mapped_files("consumequeue", queue["topic"], str(queue["queue_id"]))
            units = decode_units(consume_queue.UNIT_DTYPE, data)[
                queue["first_unit"] - start // consume_queue.UNIT_SIZE :
            ]
            count = len(queue["units"])
            assert [list(unit) for unit in units[:count].tolist()] == queue["units"]
            assert consume_queue.is_written(units[:count]).all()
            assert not consume_queue.is_written(units[count:]).any()
            if queue["topic"] != "SCHEDULE_TOPIC_XXXX":
                assert all(tags_code(tags[offset]) == code for offset, _, code in queue["units"])


def test_batch_consume_queue_units(golden: Golden) -> None:
    """Every unit of a batch queue is what the broker reads."""
    for queue in golden.says["queues"]:
        if queue["kind"] == "batch":
            _, data = golden.read_mapped_files("batchconsumequeue", queue["topic"], str(queue["queue_id"]))
            units = decode_units(consume_queue.BATCH_UNIT_DTYPE, data)
            count = len(queue["units"])
            assert [list(unit) for unit in units[:count].tolist()] == [[*unit, -1, 0] for unit in queue["units"]]
            assert consume_queue.is_batch_written(units[:count]).all()
            assert not consume_queue.is_batch_written(units[count:]).any()


def test_index_headers(golden: Golden) -> None:
    """Every header is what the broker reads, and the file has the size of its geometry."""
    files = golden.read_index_files()
    headers = [np.frombuffer(data, index_file.HEADER_DTYPE, count=1)[0].tolist() for data in files]
    assert headers == [tuple(said.values()) for said in golden.says["index"]["files"]]
    assert {len(data) for data in files} == {index_file.file_size(SLOTS, UNITS)}


def find_in_index(data: bytes, key_hash: int) -> Iterator[int]:
    """Follow the chain of a hash in one index file: the physical offsets of units with that hash."""
    slots = np.frombuffer(data, index_file.SLOT_DTYPE, count=SLOTS, offset=index_file.HEADER_SIZE)
    number = slots[key_hash % SLOTS]
    while number:
        [unit] = decode_units(
            index_file.UNIT_DTYPE, data[index_file.unit_position(SLOTS, number) :][: index_file.UNIT_SIZE]
        )
        if unit["key_hash"] == key_hash:
            yield int(unit["physical_offset"])
        number = unit["previous"]


@pytest.mark.slow
def test_index_queries(golden: Golden) -> None:
    """The chains of every key lead to the records that the broker finds."""
    files = golden.read_index_files()
    for query in golden.says["index"]["queries"]:
        key_hash = index_file.key_hash(query["topic"], query["key"])
        found = {offset for data in files for offset in find_in_index(data, key_hash)}
        assert found == set(query["physical_offsets"]), query


def test_checkpoint(golden: Golden) -> None:
    """The times of the checkpoint are those of records and of a full index file; after its numbers is nothing."""
    data = (golden.root / "checkpoint").read_bytes()
    fields = parse(checkpoint.Checkpoint, data)
    times = {record["store_timestamp"] for record in golden.says["records"]}
    full_index_files = [said for said in golden.says["index"]["files"] if said["index_count"] == UNITS]
    assert {fields.physic_message_timestamp, fields.logics_message_timestamp} <= times
    assert fields.index_message_timestamp in {said["end_timestamp"] for said in full_index_files}
    assert not any(data[checkpoint.CHECKPOINT_SIZE :])
    assert len(data) == checkpoint.CHECKPOINT_FILE_SIZE
