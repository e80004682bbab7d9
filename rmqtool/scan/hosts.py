"""Hosts and message ids of a run of records."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.formats.host import HOST_V4_SIZE, format_host
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.text import constant_strings

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
