"""Bodies compressed as clients of RocketMQ do it."""

from __future__ import annotations

import pyarrow as pa

_LZ4_HEAD = bytes.fromhex("04224d18604082")  # blocks of up to 64 KiB, each by itself


def zstd(body: bytes) -> bytes:
    """A stream of Zstandard."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue().to_pybytes())


def lz4(body: bytes) -> bytes:
    """A frame of LZ4 with one block, as of `LZ4FrameOutputStream`.

    Arrow writes blocks that refer to those before them, which lz4-java refuses: no client of Java could read them.
    """
    block = bytes(pa.compress(body, codec="lz4_raw", asbytes=True))
    return _LZ4_HEAD + len(block).to_bytes(4, "little") + block + bytes(4)
