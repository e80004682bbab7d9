"""The messages of the synthetic logs, as a broker stores them, drawn and encoded many at once."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.formats.layout import dtype_of
from rmqtool.formats.message import (
    COMPRESSED,
    CRC32_PROPERTY_SIZE,
    CRC_MASK,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    PROPERTIES_SIZE_WIDTH,
    build_crc32_property,
    build_host,
    topic_size_width,
)
from tests.formats.unique_keys import UniqueKeyV4

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


@dataclass(frozen=True)
class Kind:
    """What the messages of a log have: smallest and largest body, bytes, before compression; and what is special."""

    body_sizes: tuple[int, int]
    text: bool = False  # bodies of text, which zstd makes 2.5 times smaller; else noise
    record_crc: bool = False  # the property `__CRC32#`
    ipv6: bool = False
    v2: bool = False  # records of version 2
    keys: int = 1
    more_properties: int = 0  # beside the usual six
    chinese: bool = False  # keys, tags and text bodies
    compressed: bool = False  # bodies, by the client
    topics: int = len(TOPICS)
    queues_per_topic: int = 8
    light_queues: int = 0  # each message is in one of so many, which take turns

    @property
    def queues(self) -> int:
        """Queues of all topics, but for light ones."""
        return self.topics * self.queues_per_topic


KINDS = {
    "A": Kind((768, 1280)),
    "B": Kind((96, 160)),
    "T": Kind((768, 1280), text=True),
    "A-crc": Kind((768, 1280), record_crc=True),
    "B-crc": Kind((96, 160), record_crc=True),
    "B-ipv6": Kind((96, 160), ipv6=True),
    "B-v2": Kind((96, 160), v2=True),
    "B-keys": Kind((96, 160), keys=4),
    "B-properties": Kind((96, 160), more_properties=34),
    "B-chinese": Kind((96, 160), text=True, chinese=True),
    "D": Kind((192, 320), topics=10_000, queues_per_topic=4),
    "D-half": Kind((192, 320), topics=5_000, queues_per_topic=4),
    "D-quarter": Kind((192, 320), topics=2_500, queues_per_topic=4),
    "L": Kind((192, 320), light_queues=200_000),
    "A-zlib": Kind((4096, 8192), text=True, compressed=True),
}
"""The logs that can be made."""

FIELDS = ("orderId", "customer", "amount", "currency", "status", "createdAt", "warehouse", "sku", "quantity",
          "discount", "channel", "region", "traceId", "version", "note", "address")  # fmt: skip

TAGS = ("TagA", "TagB", "paid", "created", "shipped", "returned", "cancelled", "refunded", "EU", "US", "retry", "bulk")
CHINESE_TAGS = ("已支付", "已创建", "已发货", "已退回", "已取消", "已退款", "华东", "华南", "重试", "批量")
CHINESE_FIELDS = ("订单", "客户", "金额", "币种", "状态", "时间", "仓库", "商品", "数量", "折扣", "渠道", "地区")
START_TIME = 1_700_000_000_000
START_OF_MONTH = 1_698_796_800_000
MESSAGES_PER_MS = 4
BORN_HOST = build_host("10.1.2.3", 52180)
STORE_HOST = build_host("10.9.8.7", 10911)
BORN_HOST_V6 = build_host("2001:db8::1:2:3", 52180)
STORE_HOST_V6 = build_host("2001:db8::9:8:7", 10911)

_UNIQUE_KEY_DTYPE = dtype_of(UniqueKeyV4)
_HEX = np.array([f"{value:02X}".encode() for value in range(256)], dtype="V2")
_KEY_NAMES = ("order", "item", "basket", "invoice")


@dataclass
class Position:
    """Where the next message goes: its commit log position, its number in the log, the next offset of each queue."""

    physical_offset: int
    number: int
    queue_offsets: NDArray[np.int64]


@dataclass(frozen=True)
class Messages:
    """Columns of some messages of one kind, all but what depends on their place in the log."""

    kind: Kind
    queue: NDArray[np.int64]
    bodies: Any
    store_timestamp: NDArray[np.int64]
    sized_topic: Any
    properties: Any

    def __len__(self) -> int:
        return len(self.queue)

    def sizes(self) -> NDArray[np.int64]:
        """Size of each whole record, bytes."""
        variable = _lengths(self.bodies) + _lengths(self.sized_topic) + self.properties_sizes()
        return _header_dtype(self.kind).itemsize + PROPERTIES_SIZE_WIDTH + variable

    def properties_sizes(self) -> NDArray[np.int64]:
        """Size of the properties of each record, that of its CRC included, bytes."""
        return _lengths(self.properties) + (CRC32_PROPERTY_SIZE if self.kind.record_crc else 0)

    def first(self, count: int) -> Messages:
        """Return the first `count` of them."""
        columns = {name: column[:count] for name, column in vars(self).items() if name != "kind"}
        return Messages(self.kind, **columns)


def draw_messages(rng: np.random.Generator, count: int, kind: Kind, number: int) -> Messages:
    """Draw `count` messages, the first of which is message `number` of the log."""
    queue = rng.integers(0, kind.queues, count)
    store_timestamp = START_TIME + np.arange(number, number + count) // MESSAGES_PER_MS
    sizes = rng.integers(kind.body_sizes[0], kind.body_sizes[1] + 1, count)
    return Messages(
        kind=kind,
        queue=queue,
        bodies=_bodies(rng, kind, sizes),
        store_timestamp=store_timestamp,
        sized_topic=_sized_topics(kind).take(pa.array(queue // kind.queues_per_topic)),
        properties=_join(
            b"TRACE_ON\x01true\x02KEYS\x01",
            *_keys(rng, kind, count),
            b"\x02UNIQ_KEY\x01",
            _unique_keys(number, store_timestamp),
            b"\x02CLUSTER\x01DefaultCluster\x02",
            b"".join(b"attribute-%02d\x01value-%d\x02" % (index, index) for index in range(kind.more_properties)),
            *_light_queues(kind.light_queues, np.arange(number, number + count)),
            b"WAIT\x01true\x02TAGS\x01",
            _tags(rng, kind, count),
            b"\x02",
        ),
    )


def encode(rng: np.random.Generator, messages: Messages, position: Position) -> Any:
    """Encode `messages` at `position`, which moves after them."""
    kind, sizes = messages.kind, messages.sizes()
    header = np.zeros(len(messages), _header_dtype(kind))
    header["message_size"] = sizes
    header["magic_code"] = MAGIC_CODE_V2 if kind.v2 else MAGIC_CODE_V1
    header["body_crc"] = _crcs(messages.bodies)
    header["queue_id"] = messages.queue % kind.queues_per_topic
    header["queue_offset"] = _queue_offsets(messages.queue, position.queue_offsets)
    header["physical_offset"] = position.physical_offset + sizes.cumsum() - sizes
    header["sys_flag"] = (HOST_BITS if kind.ipv6 else 0) | (COMPRESSED if kind.compressed else 0)
    header["born_timestamp"] = messages.store_timestamp - rng.integers(0, 20, len(messages))
    header["born_host"] = np.void(BORN_HOST_V6 if kind.ipv6 else BORN_HOST)
    header["store_timestamp"] = messages.store_timestamp
    header["store_host"] = np.void(STORE_HOST_V6 if kind.ipv6 else STORE_HOST)
    header["body_size"] = _lengths(messages.bodies)

    position.number += len(messages)
    position.physical_offset += int(sizes.sum())
    records = _join(
        _fixed_width(header),
        messages.bodies,
        messages.sized_topic,
        _fixed_width(messages.properties_sizes().astype(">i2")),
        messages.properties,
    )
    if kind.record_crc:
        properties = b"".join(map(build_crc32_property, _crcs(records).tolist()))
        ends = np.arange(1, len(records) + 1) * CRC32_PROPERTY_SIZE
        records = _join(records, _slices(properties, ends))
    return records.buffers()[2]


def _header_dtype(kind: Kind) -> np.dtype[np.void]:
    return HEADER_DTYPES[HOST_BITS if kind.ipv6 else 0]


def _sized_topics(kind: Kind) -> Any:
    width = topic_size_width(MAGIC_CODE_V2 if kind.v2 else MAGIC_CODE_V1)
    names = TOPICS if kind.topics == len(TOPICS) else [f"{TOPICS[n % 8]}-{n}" for n in range(kind.topics)]
    return pa.array([len(topic).to_bytes(width, "big") + topic.encode() for topic in names])


def _tags(rng: np.random.Generator, kind: Kind, count: int) -> Any:
    tags = pa.array([tag.encode() for tag in (CHINESE_TAGS if kind.chinese else TAGS)])
    return tags.take(pa.array(rng.integers(0, len(tags), count)))


def _keys(rng: np.random.Generator, kind: Kind, count: int) -> list[Any]:
    """What is joined to the text of the property KEYS."""
    pieces: list[Any] = []
    for name in _KEY_NAMES[: kind.keys]:
        prefix = f"订单-{name}-" if kind.chinese else f"{name}-"
        numbers = (10 ** rng.uniform(6, 12, count)).astype(np.int64)
        pieces += [f" {prefix}" if pieces else prefix, _as_text(numbers)]
    return [piece.encode() if isinstance(piece, str) else piece for piece in pieces]


def _light_queues(queues: int, numbers: NDArray[np.int64]) -> list[Any]:
    """What is joined to the properties of the messages with these numbers, which are in one light queue each."""
    if not queues:
        return []
    names = [b"INNER_MULTI_DISPATCH\x01%LMQ%device-", _as_text(numbers % queues)]
    return [*names, b"\x02INNER_MULTI_QUEUE_OFFSET\x01", _as_text(numbers // queues), b"\x02"]


def _bodies(rng: np.random.Generator, kind: Kind, sizes: NDArray[np.int64]) -> Any:
    ends = sizes.cumsum()
    fields = CHINESE_FIELDS if kind.chinese else FIELDS
    data = _text(rng, int(ends[-1]), fields) if kind.text else rng.bytes(int(ends[-1]))
    if not kind.compressed:
        return _slices(data, ends)
    view = memoryview(data)
    return pa.array([zlib.compress(view[end - size : end], 5) for size, end in zip(sizes, ends, strict=True)])


def _text(rng: np.random.Generator, size: int, fields: Sequence[str]) -> bytes:
    """Make `size` bytes of what looks like JSON."""
    count = size // 20 + 1  # no piece is shorter
    names = pa.array([f'"{field}":' for field in fields]).take(pa.array(rng.integers(0, len(fields), count)))
    values = (10 ** rng.uniform(13, 18, count)).astype(np.int64)
    text: bytes = pc.binary_join_element_wise(names, pa.array(values).cast(pa.string()), ",", "").buffers()[2]
    return memoryview(text)[:size].tobytes()


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


def _crcs(values: Any) -> NDArray[np.uint32]:
    """CRC-32 of each value, sign bit cleared as the broker does."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].tolist()
    view = memoryview(data)
    crcs = [zlib_ng.crc32(view[start:end]) for start, end in pairwise(ends)]
    return np.array(crcs, np.uint32) & np.uint32(CRC_MASK)


def _queue_offsets(queue: NDArray[np.int64], next_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count each queue's messages on from `next_offsets`, which moves after them."""
    counts = np.bincount(queue, minlength=len(next_offsets))
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
