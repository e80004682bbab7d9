"""The columns of a message: name, Arrow type, and how a run of records gives it; each is declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.message import (
    COMPRESSED,
    COMPRESSION_NAMES,
    COMPRESSION_TYPE_MASK,
    HOST_V4_SIZE,
    MAGIC_CODE_V2,
    TRANSACTION_MASK,
    TRANSACTION_NAMES,
    format_host,
)
from rmqtool.formats.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from rmqtool.scan.bodies import stored_bodies, with_plain_bodies
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.json_fields import json_fields
from rmqtool.scan.properties import PropertyTable, UniformProperties, read_properties
from rmqtool.scan.windows import constant_strings, to_strings

_HEX = np.array([f"{value:02X}".encode() for value in range(256)]).view("<u2")


def host_column(
    frames: RecordRun, name: str, *, dictionary_encoded: bool = False
) -> pa.StringArray | pa.DictionaryArray:
    """A host as ``ip:port``; each distinct one is formatted once. `dictionary_encoded`: as a dictionary."""
    groups = frames.headers.hosts(name)
    if len(groups) == 1:
        return _format_group(groups[0][1], dictionary_encoded=dictionary_encoded)
    shown = np.empty(len(frames), dtype=object)
    for rows, hosts in groups:
        shown[rows] = _format_group(hosts).to_pylist()
    hosts_as_text = pa.array(shown, pa.string())
    return hosts_as_text.dictionary_encode() if dictionary_encoded else hosts_as_text


def _format_group(hosts: NDArray[np.void], *, dictionary_encoded: bool = False) -> pa.StringArray | pa.DictionaryArray:
    if hosts.dtype.itemsize == HOST_V4_SIZE:
        hosts_as_integers = hosts.view(np.int64)
        if (hosts_as_integers == hosts_as_integers[0]).all():
            return constant_strings(
                _format(hosts_as_integers[:1].tobytes()), len(hosts_as_integers), dictionary_encoded=dictionary_encoded
            )
        encoded = pa.array(np.ascontiguousarray(hosts_as_integers)).dictionary_encode()
        distinct = [host.tobytes() for host in np.asarray(encoded.dictionary)]
    else:
        width, stored = hosts.dtype.itemsize, pa.py_buffer(np.ascontiguousarray(hosts))
        encoded = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(hosts), [None, stored]).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
    texts = pa.array([_format(host) for host in distinct], pa.string()).take(encoded.indices)
    return texts.dictionary_encode() if dictionary_encoded else texts


@lru_cache(maxsize=1 << 12)
def _format(host: bytes) -> str:
    return format_host(host)


def message_id_column(frames: RecordRun) -> pa.StringArray:
    """The offset message id as the broker prints it: store host and physical offset in hex."""
    groups = frames.headers.hosts("store_host")
    offsets = frames.physical_offsets
    if len(groups) == 1:
        return _ids_of_group(groups[0][1], offsets)
    ids = np.empty(len(frames), dtype=object)
    for rows, hosts in groups:
        ids[rows] = _ids_of_group(hosts, offsets[rows]).to_pylist()
    return pa.array(ids, pa.string())


def _ids_of_group(hosts: NDArray[np.void], offsets: NDArray[np.int64]) -> pa.StringArray:
    """The ids of records whose store hosts have one form, as `format_message_id` gives them."""
    if hosts.dtype.itemsize == HOST_V4_SIZE:
        return _hex_ids(hosts, offsets)
    pairs = np.empty(len(hosts), dtype=[("host", hosts.dtype), ("offset", ">i8")])
    pairs["host"], pairs["offset"] = hosts, offsets
    text, width = _HEX.take(pairs.view(np.uint8)), 2 * pairs.itemsize
    ends = np.arange(0, (len(hosts) + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(hosts), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _hex_ids(hosts: NDArray[np.void], offsets: NDArray[np.int64]) -> pa.StringArray:
    count = len(hosts)
    hosts_as_integers = hosts.view(np.int64)
    same = (hosts_as_integers == hosts_as_integers[0]).all() and offsets[0] >> 32 == offsets[-1] >> 32
    text = np.empty((count, 4), dtype=np.uint64)
    if same:  # offsets ascend: only their lower half differs
        for word, digits in enumerate(_hex(_pairs(hosts_as_integers[:1], offsets[:1]))[:3]):
            text[:, word] = digits
        text[:, 3] = _hex(offsets.astype(">u4"))
    else:
        text[:] = _hex(_pairs(hosts_as_integers, offsets)).reshape(count, 4)
    ends = np.arange(0, (count + 1) * 32, 32, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _pairs(hosts: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.void]:
    pairs = np.empty(len(hosts), dtype=[("host", np.int64), ("offset", ">i8")])
    pairs["host"], pairs["offset"] = hosts, offsets
    return pairs


def _hex(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The bytes of `values` in hex, eight digits to a number."""
    return _HEX.take(values.view(np.uint8)).view(np.uint64)


DICTIONARY_STRING = pa.dictionary(pa.int32(), pa.string())
"""Dictionary-encoded strings: the Parquet writer takes codes and dictionary as they are and reads no string again.

The strings of a dictionary must be distinct: with duplicates Arrow's writer gives the encoding up.
"""


BODY_TEXT = "body_text"
"""The column of decompressed bodies as text; bytes that are not UTF-8 become U+FFFD."""

PROPERTY_COLUMN = "properties."
"""Begins the name of a column that holds one property, such as ``properties.TRACE_ON``."""

JSON_COLUMN = "body."
"""Begins the name of a column that holds one field of JSON bodies, such as ``body.order.id``."""

MESSAGE_WISHES = (BODY_TEXT, f"{PROPERTY_COLUMN}NAME", f"{JSON_COLUMN}PATH")
"""How users write the columns that `is_wished` knows."""


@dataclass(eq=False)
class ColumnRun:
    """A run of records, and its properties and JSON, which several columns share and which are read at most once.

    `dictionary_encoded` is that of `record_batches`, `names` are the columns that are read.
    """

    frames: RecordRun
    plain_bodies: pa.BinaryArray | None = None
    whole_properties: bool = False
    names: Sequence[str] = ()
    dictionary_encoded: bool = False

    @cached_property
    def properties(self) -> UniformProperties | PropertyTable:
        """The properties of all records."""
        return read_properties(self.frames, whole=self.whole_properties)

    @cached_property
    def json(self) -> dict[str, pa.StringArray]:
        """The fields of JSON bodies that columns are made of, by their paths."""
        paths = [name.removeprefix(JSON_COLUMN) for name in self.names if name.startswith(JSON_COLUMN)]
        return {} if self.plain_bodies is None else json_fields(self.plain_bodies, paths)

    def field(self, name: str) -> NDArray[Any]:
        """An integer field of all records."""
        return self.frames.headers.field(name)


@dataclass(frozen=True)
class Column:
    """One column; `read` gives its values for a run, as long as the run.

    `dictionary_encoded` is the type of a column of few distinct strings where it is dictionary-encoded.
    """

    type: pa.DataType
    read: Callable[[ColumnRun], pa.Array]
    dictionary_encoded: pa.DataType | None = None


def record_batches(
    frames: RecordRun, names: Sequence[str], *, dictionary_encoded: bool = False
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of a run as Arrow record batches: one, or several where bodies are large.

    Types are those of COLUMNS; where they are `dictionary_encoded`, columns of few distinct strings are dictionaries,
    which may differ from batch to batch. The batches own their memory and may outlive the run.
    """
    schema = message_schema(tuple(names), dictionary_encoded=dictionary_encoded)
    pieces: Iterator[tuple[RecordRun, pa.BinaryArray | None]] = iter([(frames, None)])
    if any(map(needs_plain_body, names)):
        pieces = with_plain_bodies(frames)
    for piece, bodies in pieces:
        run = ColumnRun(piece, bodies, "properties" in names, names, dictionary_encoded)
        yield pa.RecordBatch.from_arrays([column_of(name).read(run) for name in names], schema=schema)


_MAY_BE_NULL = ("message_id", "unique_key", "tags")


@lru_cache(maxsize=16)
def message_schema(names: tuple[str, ...], *, dictionary_encoded: bool = False) -> pa.Schema:
    """The Arrow schema of the columns `names`."""
    columns = [column_of(name) for name in names]
    types = [(dictionary_encoded and column.dictionary_encoded) or column.type for column in columns]
    nullable = [name in _MAY_BE_NULL or (is_wished(name) and name != BODY_TEXT) for name in names]
    return pa.schema([pa.field(*item) for item in zip(names, types, nullable, strict=True)])


def column_of(name: str) -> Column:
    """The column of a name, one of COLUMNS or one that `is_wished`."""
    if name == BODY_TEXT:
        return Column(_STRING, lambda run: to_strings(run.plain_bodies))
    if name.startswith(PROPERTY_COLUMN):
        return Column(_STRING, partial(_property, name.removeprefix(PROPERTY_COLUMN).encode()))
    if name.startswith(JSON_COLUMN):
        return Column(_STRING, lambda run: run.json[name.removeprefix(JSON_COLUMN)])
    return COLUMNS[name]


def is_wished(name: str) -> bool:
    """Whether this is a column only where it is asked for: text of the body, one property, one field of JSON."""
    return name == BODY_TEXT or any(
        name.startswith(prefix) and name != prefix for prefix in (PROPERTY_COLUMN, JSON_COLUMN)
    )


def needs_plain_body(name: str) -> bool:
    """Whether a column is made from the decompressed body."""
    return name in ("body", BODY_TEXT) or name.startswith(JSON_COLUMN)


def _integer(name: str, run: ColumnRun) -> pa.Array:
    return pa.array(run.field(name))


def _property(name: bytes, run: ColumnRun) -> pa.Array:
    return run.properties.column(name)


def _host(name: str, run: ColumnRun) -> pa.Array:
    return host_column(run.frames, name, dictionary_encoded=run.dictionary_encoded)


def _topic(run: ColumnRun) -> pa.Array:
    topics = to_strings(_stored_topic(run))
    return topics.dictionary_encode() if run.dictionary_encoded else topics


def _stored_topic(run: ColumnRun) -> pa.Array:
    return run.frames.block.slices(run.frames.topic_positions, run.frames.topic_sizes)


def _keys(run: ColumnRun) -> pa.Array:
    """Each record's keys: the pieces of KEYS between single spaces that are not empty (`IndexService#buildIndex`)."""
    values = run.properties.column(KEYS.encode())
    if KEY_SEPARATOR.encode() not in _bytes_of(values):
        if values.null_count:
            return _lists(values.drop_null(), np.asarray(values.is_valid()))
        return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
    split = pc.split_pattern(values.fill_null(""), KEY_SEPARATOR)
    pieces = split.flatten()
    kept = np.asarray(pc.not_equal(pieces, ""))
    counts = np.add.reduceat(kept.astype(np.intp), np.asarray(split.offsets)[:-1])
    return _lists(pieces.filter(pa.array(kept)), counts)


def _bytes_of(values: pa.StringArray) -> bytes:
    _, _, data = values.buffers()
    return data.to_pybytes() if data is not None else b""


def _lists(values: pa.StringArray, counts: NDArray[Any]) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _named(run: ColumnRun, names: Sequence[str], codes: NDArray[Any]) -> pa.Array:
    """The name with the number ``codes[i]`` for each record; mostly all are the first."""
    if not codes.any():
        return constant_strings(names[0], len(codes), dictionary_encoded=run.dictionary_encoded)
    values = pa.array(names).take(pa.array(codes.astype(np.int32)))
    return values.dictionary_encode() if run.dictionary_encoded else values


def _compression(run: ColumnRun) -> pa.Array:
    flags = run.field("sys_flag")
    codes = flags & COMPRESSED
    if codes.any():
        codes *= ((flags & COMPRESSION_TYPE_MASK) >> 8) + 1
    return _named(run, ("none", *COMPRESSION_NAMES), codes)


_STRING = pa.string()

COLUMNS = {
    "topic": Column(_STRING, _topic, DICTIONARY_STRING),
    "queue_id": Column(pa.int32(), partial(_integer, "queue_id")),
    "queue_offset": Column(pa.int64(), partial(_integer, "queue_offset")),
    "physical_offset": Column(pa.int64(), lambda run: pa.array(run.frames.physical_offsets)),
    "message_size": Column(pa.int32(), partial(_integer, "message_size")),
    "message_id": Column(_STRING, lambda run: message_id_column(run.frames)),
    "unique_key": Column(_STRING, partial(_property, UNIQUE_KEY.encode())),
    "keys": Column(pa.list_(_STRING), _keys),
    "tags": Column(_STRING, partial(_property, TAGS.encode())),
    "properties": Column(
        pa.map_(_STRING, _STRING),
        lambda run: run.properties.maps(dictionary_encoded=run.dictionary_encoded),
        pa.map_(DICTIONARY_STRING, _STRING),
    ),
    "born_timestamp": Column(pa.int64(), partial(_integer, "born_timestamp")),
    "store_timestamp": Column(pa.int64(), partial(_integer, "store_timestamp")),
    "born_host": Column(_STRING, partial(_host, "born_host"), DICTIONARY_STRING),
    "store_host": Column(_STRING, partial(_host, "store_host"), DICTIONARY_STRING),
    "flag": Column(pa.int32(), partial(_integer, "flag")),
    "sys_flag": Column(pa.int32(), partial(_integer, "sys_flag")),
    "reconsume_times": Column(pa.int32(), partial(_integer, "reconsume_times")),
    "body_crc": Column(pa.int32(), partial(_integer, "body_crc")),
    "transaction": Column(
        _STRING,
        lambda run: _named(run, TRANSACTION_NAMES, (run.field("sys_flag") & TRANSACTION_MASK) >> 2),
        DICTIONARY_STRING,
    ),
    "compression": Column(_STRING, _compression, DICTIONARY_STRING),
    "prepared_transaction_offset": Column(pa.int64(), partial(_integer, "prepared_transaction_offset")),
    "body_size": Column(pa.int32(), partial(_integer, "body_size")),
    "body": Column(pa.binary(), lambda run: run.plain_bodies),
    "stored_body": Column(pa.binary(), lambda run: stored_bodies(run.frames)),
    "stored_topic": Column(pa.binary(), _stored_topic),
    "stored_properties": Column(
        pa.binary(),
        lambda run: run.frames.block.slices(run.frames.properties_positions, run.frames.properties_sizes),
    ),
    "magic_code": Column(
        _STRING, lambda run: _named(run, ("v1", "v2"), run.field("magic_code") == MAGIC_CODE_V2), DICTIONARY_STRING
    ),
    "body_crc_ok": Column(pa.bool_(), lambda run: pa.array(~run.frames.wrong_bodies)),
}
"""Every column of a scan. Timestamps are epoch ms; `body` is decompressed, `stored_body` as on disk."""
