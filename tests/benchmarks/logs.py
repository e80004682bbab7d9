"""Synthetic commit logs for speed measurements: valid as a broker's, made in seconds, kept for the next run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from numpy.typing import NDArray

from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE
from rmqtool.formats.checkpoint import FILE_SIZE as CHECKPOINT_FILE_SIZE
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.crc import CRC_MASK, body_crc
from rmqtool.formats.file_name import file_name
from rmqtool.formats.host import build_host
from rmqtool.formats.layout import dtype_of
from rmqtool.formats.message import (
    BLANK_SIZE,
    HEADER_DTYPES,
    MAGIC_CODE_V1,
    MIN_MESSAGE_SIZE,
    build_blank,
    build_message,
)
from rmqtool.formats.properties import encode_properties, tags_code
from rmqtool.formats.unique_key import UniqueKeyV4

GENERATOR = 1
"""Raised whenever other bytes come out for the same parameters, so that kept logs are made anew."""

BODY_SIZES = {"A": (768, 1280), "B": (96, 160), "T": (768, 1280)}
"""Smallest and largest body by kind, bytes. Those of T are text, which zstd makes 2.5 times smaller, others noise."""

FIELDS = ("orderId", "customer", "amount", "currency", "status", "createdAt", "warehouse", "sku", "quantity",
          "discount", "channel", "region", "traceId", "version", "note", "address")  # fmt: skip

TOPICS = (
    "payments",
    "order-event",
    "Audit_Trail_01",
    "inventory-updates",
    "CustomerNotification",
    "shipping-label-requested",
    "fulfilment_warehouse_return",
    "recommendation-click-stream-v2",
)
TAGS = ("TagA", "TagB", "paid", "created", "shipped", "returned", "cancelled", "refunded", "EU", "US", "retry", "bulk")
QUEUES_PER_TOPIC = 8
QUEUES = len(TOPICS) * QUEUES_PER_TOPIC

START_TIME = 1_700_000_000_000
START_OF_MONTH = 1_698_796_800_000
MESSAGES_PER_MS = 4
CHUNK_BYTES = 8 << 20
CONSUME_QUEUE_FILE_SIZE = 6_000_000
BORN_HOST = build_host("10.1.2.3", 52180)
STORE_HOST = build_host("10.9.8.7", 10911)

_HEADER_DTYPE = HEADER_DTYPES[0]
_UNIQUE_KEY_DTYPE = dtype_of(UniqueKeyV4)
_HEX = np.array([f"{value:02X}".encode() for value in range(256)], dtype="V2")
_SIZED_TOPICS = pa.array([bytes([len(topic)]) + topic.encode() for topic in TOPICS])
_TAGS = pa.array([tag.encode() for tag in TAGS])


@dataclass(frozen=True)
class LogParameters:
    """All that decides the bytes of a log; sizes in bytes."""

    kind: str
    size: int
    file_size: int
    seed: int
    generator: int = GENERATOR


@dataclass
class _Position:
    """Where the next message goes: its commit log position, its number in the log, the next offset of each queue."""

    physical_offset: int
    number: int
    queue_offsets: NDArray[np.int64]


@dataclass(frozen=True)
class _Messages:
    """Columns of some messages, all but what depends on their place in the log."""

    queue: NDArray[np.int64]
    body_size: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]
    sized_topic: Any
    properties: Any

    def __len__(self) -> int:
        return len(self.queue)

    def sizes(self) -> NDArray[np.int64]:
        """Size of each whole record, bytes."""
        total: NDArray[np.int64] = MIN_MESSAGE_SIZE - 1 + self.body_size + _lengths(self.sized_topic)
        return total + _lengths(self.properties)

    def first(self, count: int) -> _Messages:
        """Return the first `count` of them."""
        return _Messages(*(column[:count] for column in vars(self).values()))


def make_log(directory: Path, kind: str, size: int = 1 << 30, file_size: int = 1 << 30, seed: int = 5) -> Path:
    """Write a store whose commit log, of a kind of BODY_SIZES, ends at or just before `size`; keep one already there.

    Each file has `file_size` bytes; a full one ends with a blank, what is left of the last one is zeros.
    """
    parameters = LogParameters(kind, size, file_size, seed)
    if _is_made(directory, parameters):
        return directory
    _note_of(directory).unlink(missing_ok=True)
    folder = directory / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    count = _write_files(folder, parameters)
    _note_of(directory).write_text(json.dumps({**asdict(parameters), "messages": count}) + "\n")
    return directory


def message_count(directory: Path) -> int:
    """Return the number of messages that `make_log` wrote into `directory`."""
    return int(json.loads(_note_of(directory).read_text())["messages"])


def log_files(directory: Path) -> list[Path]:
    """List the files of a store's commit log, in order."""
    return sorted((directory / "commitlog").iterdir())


def make_one_message_store(directory: Path, file_size: int = 1 << 30) -> Path:
    """Write a store of one message, its consume queue unit and a checkpoint; the files are sparse, as a broker's."""
    record = build_message(
        body_crc=body_crc(b"hello"),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=START_TIME,
        born_host=BORN_HOST,
        store_timestamp=START_TIME + 1,
        store_host=STORE_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"hello",
        topic=TOPICS[0].encode(),
        properties=encode_properties({"WAIT": "true", "TAGS": TAGS[0]}),
    )
    unit = build_unit(0, len(record), tags_code(TAGS[0]))
    checkpoint = np.zeros(1, CHECKPOINT_DTYPE)
    checkpoint["physic_message_timestamp"] = checkpoint["logics_message_timestamp"] = START_TIME + 1
    _write_sparse(directory / "commitlog" / file_name(0), record, file_size)
    _write_sparse(directory / "consumequeue" / TOPICS[0] / "0" / file_name(0), unit, CONSUME_QUEUE_FILE_SIZE)
    _write_sparse(directory / "checkpoint", checkpoint.tobytes(), CHECKPOINT_FILE_SIZE)
    return directory


def _note_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.json")


def _is_made(directory: Path, parameters: LogParameters) -> bool:
    try:
        note = json.loads(_note_of(directory).read_text())
        sizes = [file.stat().st_size for file in log_files(directory)]
    except (OSError, ValueError):
        return False
    wanted = [parameters.file_size] * math.ceil(parameters.size / parameters.file_size)
    return asdict(parameters).items() <= note.items() and sizes == wanted


def _write_sparse(path: Path, data: bytes, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


def _write_files(folder: Path, parameters: LogParameters) -> int:
    """Write all files; return the number of messages."""
    rng = np.random.default_rng(parameters.seed)
    position = _Position(0, 0, np.zeros(QUEUES, np.int64))
    for start in range(0, parameters.size, parameters.file_size):
        position.physical_offset = start
        end = start + parameters.file_size
        with (folder / file_name(start)).open("wb") as file:
            _append_messages(file, rng, parameters.kind, position, min(end, parameters.size))
            if end <= parameters.size:
                file.write(build_blank(end - position.physical_offset))
            file.truncate(parameters.file_size)
    return position.number


def _append_messages(file: BinaryIO, rng: np.random.Generator, kind: str, position: _Position, end: int) -> None:
    """Append messages until the next one and a blank would not fit before `end`; chunks stay in the cache."""
    body_sizes = BODY_SIZES[kind]
    chunk = CHUNK_BYTES // (sum(body_sizes) // 2 + 250)
    fitting = chunk
    while fitting == chunk:
        messages = _draw_messages(rng, chunk, body_sizes, position.number)
        ends = position.physical_offset + messages.sizes().cumsum()
        fitting = int(np.searchsorted(ends, end - BLANK_SIZE, side="right"))
        if fitting:
            file.write(_encode(rng, kind, messages.first(fitting), position))


def _draw_messages(rng: np.random.Generator, count: int, body_sizes: tuple[int, int], number: int) -> _Messages:
    """Draw `count` messages, the first of which is message `number` of the log."""
    queue = rng.integers(0, QUEUES, count)
    store_timestamp = START_TIME + np.arange(number, number + count) // MESSAGES_PER_MS
    return _Messages(
        queue=queue,
        body_size=rng.integers(body_sizes[0], body_sizes[1] + 1, count),
        store_timestamp=store_timestamp,
        sized_topic=_SIZED_TOPICS.take(pa.array(queue // QUEUES_PER_TOPIC)),
        properties=_join(
            b"TRACE_ON\x01true\x02KEYS\x01order-",
            _as_text((10 ** rng.uniform(6, 12, count)).astype(np.int64)),
            b"\x02UNIQ_KEY\x01",
            _unique_keys(number, store_timestamp),
            b"\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01",
            _TAGS.take(pa.array(rng.integers(0, len(TAGS), count))),
            b"\x02",
        ),
    )


def _unique_keys(number: int, store_timestamp: NDArray[np.int64]) -> Any:
    """Make one unique key per message, of 32 hex digits."""
    count = len(store_timestamp)
    keys = np.zeros(count, _UNIQUE_KEY_DTYPE)
    keys["address"] = np.void(BORN_HOST[:4])
    keys["process_id"] = 4711
    keys["class_loader_hash"] = 0x18B4AAC2
    keys["ms_in_month"] = store_timestamp - START_OF_MONTH
    keys["counter"] = np.arange(number, number + count) & 0xFFFF
    return _fixed_width(_HEX[keys.view(np.uint8)].reshape(count, -1))


def _encode(rng: np.random.Generator, kind: str, messages: _Messages, position: _Position) -> Any:
    """Encode `messages` at `position`, which moves behind them."""
    ends = messages.body_size.cumsum()
    data = _text(rng, int(ends[-1])) if kind == "T" else rng.bytes(int(ends[-1]))
    sizes = messages.sizes()
    property_sizes = _lengths(messages.properties)

    header = np.zeros(len(messages), _HEADER_DTYPE)
    header["message_size"] = sizes
    header["magic_code"] = MAGIC_CODE_V1
    header["body_crc"] = _body_crcs(data, ends - messages.body_size, ends)
    header["queue_id"] = messages.queue % QUEUES_PER_TOPIC
    header["queue_offset"] = _queue_offsets(messages.queue, position.queue_offsets)
    header["physical_offset"] = position.physical_offset + sizes.cumsum() - sizes
    header["born_timestamp"] = messages.store_timestamp - rng.integers(0, 20, len(messages))
    header["born_host"] = np.void(BORN_HOST)
    header["store_timestamp"] = messages.store_timestamp
    header["store_host"] = np.void(STORE_HOST)
    header["body_size"] = messages.body_size

    position.number += len(messages)
    position.physical_offset += int(sizes.sum())
    bodies = _slices(data, ends)
    records = _join(
        _fixed_width(header),
        bodies,
        messages.sized_topic,
        _fixed_width(property_sizes.astype(">i2")),
        messages.properties,
    )
    return records.buffers()[2]


def _text(rng: np.random.Generator, size: int) -> bytes:
    """Make `size` bytes of what looks like JSON."""
    count = size // 20 + 1  # no piece is shorter
    names = pa.array([f'"{field}":' for field in FIELDS]).take(pa.array(rng.integers(0, len(FIELDS), count)))
    values = (10 ** rng.uniform(13, 18, count)).astype(np.int64)
    text: bytes = pc.binary_join_element_wise(names, pa.array(values).cast(pa.string()), ",", "").buffers()[2]
    return memoryview(text)[:size].tobytes()


def _body_crcs(data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    view = memoryview(data)
    crcs = [isal_zlib.crc32(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(crcs, np.uint32) & np.uint32(CRC_MASK)


def _queue_offsets(queue: NDArray[np.int64], next_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count each queue's messages on from `next_offsets`, which moves behind them."""
    counts = np.bincount(queue, minlength=QUEUES)
    order = np.argsort(queue, kind="stable")
    first_of_queue = counts.cumsum() - counts
    offsets = np.empty_like(queue)
    offsets[order] = np.arange(len(queue)) + (next_offsets - first_of_queue)[queue[order]]
    next_offsets += counts
    return offsets


def _fixed_width(rows: NDArray[Any]) -> Any:
    """View the rows, at least one, as Arrow binary values."""
    width = rows.nbytes // len(rows)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])
    return values.cast(pa.binary())


def _slices(data: bytes, ends: NDArray[np.int64]) -> Any:
    """View what follows one another in `data`, up to each of `ends`, as Arrow binary values."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _as_text(numbers: NDArray[np.int64]) -> Any:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, b"")


def _lengths(values: Any) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.binary_length(values).to_numpy().astype(np.int64)
    return lengths
