"""Directories for partitions: ``by_topic=orders/by_date=2026-11-21``, with names that every file system takes.

The names begin with ``by_`` so that no reader takes them for the columns themselves, which stay in the files: a
reader guesses the types of directories, and takes the topic ``001`` for a number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.times import rfc3339
from rmqtool.export.options import PartitionKey

PARTITION_COLUMNS: dict[PartitionKey, str] = {
    "topic": "topic",
    "date": "store_timestamp",
    "hour": "store_timestamp",
    "queue": "queue_id",
}
"""The column that gives a partition; date and hour are those of the store timestamp in UTC."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_UNSAFE = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')  # as Spark, whose readers and others decode %25
_MAX_BYTES = 180  # of a name in UTF-8; file systems take 255


def directory_value(value: str) -> str:
    """A value as part of a directory's name; a long one is cut and gets its digest, which keeps it distinct."""
    if not value:
        return NO_VALUE
    escaped = _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", value)
    encoded = escaped.encode()
    if len(encoded) <= _MAX_BYTES:
        return escaped
    digest = hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
    start = encoded[: _MAX_BYTES - 2 * 8 - 1].decode(errors="ignore")
    return f"{re.sub('%[0-9A-F]?$', '', start)}~{digest}"


def partitions(batch: pa.RecordBatch, keys: Sequence[PartitionKey]) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Directory and rows, ascending, of each partition in a batch; no key: all rows in ``""``."""
    if not keys:
        yield "", np.arange(batch.num_rows)
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    names = [""]
    for key in keys:
        values, inverse = _coded(batch, key)
        combined = codes * len(values) + inverse
        present, codes = np.unique(combined, return_inverse=True)
        texts = [_directory(key, value) for value in values]
        names = [f"{names[code // len(values)]}{texts[code % len(values)]}/" for code in present.tolist()]
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for partition, name in enumerate(names):
        yield name, order[bounds[partition] : bounds[partition + 1]]


def _coded(batch: pa.RecordBatch, key: PartitionKey) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values of a key, and which of them each row has."""
    column = batch.column(PARTITION_COLUMNS[key])
    if key == "topic":
        dictionary_encoded = column.dictionary_encode()
        return dictionary_encoded.dictionary.to_pylist(), np.asarray(dictionary_encoded.indices).astype(np.int64)
    values = np.asarray(column).astype(np.int64)
    if key == "date":
        values = values // _DAY_MS
    elif key == "hour":
        values = values // _HOUR_MS % 24
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct.tolist(), inverse.astype(np.int64)


def _directory(key: PartitionKey, value: str | int) -> str:
    match key:
        case "topic":
            text = directory_value(str(value))
        case "date":
            time = rfc3339(int(value) * _DAY_MS)
            text = time[:10] if time else NO_VALUE
        case "hour":
            text = f"{value:02d}"
        case "queue":
            text = str(value)
    return f"by_{key}={text}"
