"""The synthetic logs are what a broker would have written."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.formats.layout import decode_units, parse
from rmqtool.formats.message import (
    BLANK_SIZE,
    HOST_BITS,
    MAGIC_CODE_BLANK,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    Blank,
    body_crc,
    build_blank,
    parse_message,
    record_crc,
    stored_record_crc,
)
from rmqtool.formats.properties import decode_properties, split_keys, tags_code
from tests.benchmarks.logs import log_files, make_log, make_one_message_store, message_count
from tests.benchmarks.messages import CHINESE_TAGS, KINDS, TAGS, TOPICS
from tests.formats.unique_keys import parse_unique_key

FILE_SIZE = 1 << 18
SIZE = 5 * FILE_SIZE // 2
_LONGEST = 6000  # record, bytes


def messages_of(data: bytes) -> Iterator[tuple[int, Any]]:
    """Position and fields of each message, up to a blank, which must reach to the end, or to zeros."""
    position = 0
    while any(data[position : position + BLANK_SIZE]):
        blank = parse(Blank, data[position:])
        if blank.magic_code == MAGIC_CODE_BLANK:
            assert blank.size == len(data) - position
            assert not any(data[position + BLANK_SIZE :])
            return
        yield position, parse_message(data[position : position + blank.size])
        position += blank.size
    assert not any(data[position:])


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A store of each kind with two full files and half of a third."""
    return request.param, make_log(tmp_path_factory.mktemp("logs") / "log", request.param, SIZE, FILE_SIZE)


@pytest.mark.slow
@pytest.mark.one_in(3)
def test_every_record_is_valid(store: tuple[str, Path]) -> None:
    """Sizes, positions, checksums, queue offsets, times, keys and tags are a broker's."""
    kind, directory = store
    form = KINDS[kind]
    next_offsets: Counter[tuple[bytes, int]] = Counter()
    tags: set[str] = set()
    count = newest = 0
    for number, file in enumerate(log_files(directory)):
        data = file.read_bytes()
        for position, message in messages_of(data):
            properties = decode_properties(message.properties)
            record = data[position : position + message.message_size]
            assert message.magic_code == (MAGIC_CODE_V2 if form.v2 else MAGIC_CODE_V1)
            assert bool(message.sys_flag & HOST_BITS) == form.ipv6
            assert stored_record_crc(record) == (record_crc(record) if form.record_crc else None)
            assert message.physical_offset == number * FILE_SIZE + position
            assert message.body_crc == body_crc(message.body)
            body = zlib.decompress(message.body) if form.compressed else message.body
            assert form.body_sizes[0] <= len(body) <= form.body_sizes[1]
            assert message.queue_offset == next_offsets[message.topic, message.queue_id]
            assert message.born_timestamp <= message.store_timestamp >= newest
            usual = ["TRACE_ON", "KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS", *["__CRC32#"] * form.record_crc]
            light = ["INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"] if form.light_queues else []
            if light:
                assert properties[light[0]] == f"%LMQ%device-{count % form.light_queues}"
                assert properties[light[1]] == str(count // form.light_queues)
            usual[4:4] = light
            assert [name for name in properties if not name.startswith("attribute-")] == usual
            assert len(properties) == len(usual) + form.more_properties
            assert len(split_keys(properties["KEYS"])) == form.keys
            assert parse_unique_key(properties["UNIQ_KEY"]).counter == count & 0xFFFF
            count += 1
            assert message.properties.endswith(b"\x02")
            next_offsets[message.topic, message.queue_id] += 1
            newest = message.store_timestamp
            tags.add(properties["TAGS"])
    assert count == message_count(directory)
    assert min(60, form.queues) < len(next_offsets) <= form.queues
    topics = {topic.decode() for topic, _ in next_offsets}
    assert {topic if topic in TOPICS else topic.rpartition("-")[0] for topic in topics} == set(TOPICS)
    assert tags == set(CHINESE_TAGS if form.chinese else TAGS)


@pytest.mark.slow
@pytest.mark.one_in(2)
def test_files_are_filled(store: tuple[str, Path]) -> None:
    """Full files end with a blank no larger than a message, the last file with zeros from where `size` is reached."""
    *full, last = [file.read_bytes() for file in log_files(store[1])]
    for data in full:
        position, message = list(messages_of(data))[-1]
        assert BLANK_SIZE <= len(data) - position - message.message_size < _LONGEST
    position, message = list(messages_of(last))[-1]
    assert 0 <= SIZE - 2 * FILE_SIZE - position - message.message_size < _LONGEST
    assert len(full) == 2
    assert {len(data) for data in (*full, last)} == {FILE_SIZE}


def test_a_file_without_room_is_a_blank(tmp_path: Path) -> None:
    """A file that cannot take one message is blank from its start."""
    directory = make_log(tmp_path / "log", "A", 600, 600)
    [file] = log_files(directory)
    assert not list(messages_of(file.read_bytes()))
    assert file.read_bytes() == build_blank(600).ljust(600, b"\x00")
    assert message_count(directory) == 0


def test_a_log_is_kept_until_parameters_change(tmp_path: Path) -> None:
    """The same parameters reuse the files, another seed or a missing file makes them again."""
    directory = make_log(tmp_path / "log", "B", FILE_SIZE, FILE_SIZE, seed=1)
    [file] = log_files(directory)
    first, made = file.read_bytes(), file.stat().st_mtime_ns
    make_log(directory, "B", FILE_SIZE, FILE_SIZE, seed=1)
    assert file.stat().st_mtime_ns == made
    make_log(directory, "B", FILE_SIZE, FILE_SIZE, seed=2)
    assert file.read_bytes() != first
    file.unlink()
    make_log(directory, "B", FILE_SIZE, FILE_SIZE, seed=1)
    assert file.read_bytes() == first


def test_one_message_store(tmp_path: Path) -> None:
    """The consume queue unit of the small store points at its message."""
    directory = make_one_message_store(tmp_path / "one", FILE_SIZE)
    [file] = log_files(directory)
    [(position, message)] = messages_of(file.read_bytes())
    [queue] = (directory / "consumequeue" / message.topic.decode() / str(message.queue_id)).iterdir()
    unit = decode_units(UNIT_DTYPE, queue.read_bytes())[message.queue_offset]
    tag = decode_properties(message.properties)["TAGS"]
    assert unit.tolist() == (position, message.message_size, tags_code(tag))
    assert message.body_crc == body_crc(message.body)
