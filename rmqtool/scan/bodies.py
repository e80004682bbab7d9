"""Bodies: as stored, and decompressed by the sys flag (`CompressorFactory`, `UtilAll#uncompress`)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib
from numpy.typing import NDArray

from rmqtool.base.limits import sized
from rmqtool.formats.message import COMPRESSED, COMPRESSION_TYPE_MASK, compression
from rmqtool.scan.frames import RecordRun

MAX_BODY_SIZE = 64 << 20
"""Decompressed bodies above this are kept as stored, bytes: a client refuses to send more than 4 MiB."""

BATCH_BODY_BYTES = 32 << 20
"""A batch is cut when its decompressed bodies together reach this, bytes; earlier where memory is limited."""

_LEAST_SHARE = 8

_FAST_ERROR = cast("type[Exception]", isal_zlib.error)
_MAX_WINDOW = 7  # as a stream's first byte has it: 32 KiB
_PIECE_SIZE = 1 << 20  # of a body that is read, bytes
_NO_MEMORY = ("Error -4 ", "ERROR_allocation_failed", "Allocation error")
"""How zlib, LZ4 and zstd say that they got no memory, in errors that are those of damage otherwise."""


class BodyError(ValueError):
    """A body that its sys flag calls compressed and that does not decompress; the message says why."""


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as the producer gave it; raise BodyError when it is not what the sys flag says, or too large.

    MemoryError where there is too little memory: that says nothing about the body.
    """
    kind = compression(sys_flag)
    if kind == "none":
        return body
    if kind == "unknown":
        raise BodyError("unknown compression type")
    try:
        plain = _inflate(body) if kind == "zlib" else _read_stream(body, kind)
    except (zlib.error, OSError) as error:
        if any(sign in str(error) for sign in _NO_MEMORY):
            raise MemoryError(str(error)) from error
        raise BodyError(str(error)) from error
    if len(plain) > MAX_BODY_SIZE:
        raise BodyError(f"more than {MAX_BODY_SIZE} bytes when decompressed")
    return plain


def _inflate(body: bytes) -> bytes:
    """Twice as fast as zlib, by ISA-L; zlib decides on what that refuses, and on windows that are too large for it."""
    if not body or body[0] >> 4 > _MAX_WINDOW:
        return _inflate_by_zlib(body)
    fast = isal_zlib.decompressobj()
    try:
        plain = fast.decompress(body, MAX_BODY_SIZE + 1)
    except _FAST_ERROR:
        return _inflate_by_zlib(body)
    return plain if fast.eof or len(plain) > MAX_BODY_SIZE else _inflate_by_zlib(body)


def _inflate_by_zlib(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(body, MAX_BODY_SIZE + 1)
    if not inflater.eof and len(plain) <= MAX_BODY_SIZE:
        raise BodyError("truncated zlib stream")
    return plain


def _read_stream(body: bytes, codec: str) -> bytes:
    # Arrow's "lz4" is the frame format, which is what `LZ4FrameOutputStream` writes.
    # Buffers, not `read`: of a stream with an error, `read` never gives back the memory that it was asked to fill.
    pieces: list[pa.Buffer] = []
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while len(pieces) * _PIECE_SIZE <= MAX_BODY_SIZE:
            pieces.append(stream.read_buffer(_PIECE_SIZE))
            if pieces[-1].size < _PIECE_SIZE:
                break
    return b"".join(pieces)


def stored_bodies(frames: RecordRun) -> pa.BinaryArray:
    """The bodies as stored."""
    return frames.block.slices(frames.body_positions, frames.body_sizes)


def with_plain_bodies(frames: RecordRun) -> Iterator[tuple[RecordRun, pa.BinaryArray]]:
    """The run with its bodies as the producers gave them, in pieces whose bodies fit in memory.

    Sizes are known only after decompression, so a run is cut where its bodies reach BATCH_BODY_BYTES. A body that
    does not decompress stays as stored.
    """
    flags = frames.headers.field("sys_flag")
    stored = stored_bodies(frames)
    if not (flags & COMPRESSED).any():
        yield frames, stored
        return
    start, total, limit = 0, 0, sized(BATCH_BODY_BYTES, BATCH_BODY_BYTES // _LEAST_SHARE)
    bodies: list[bytes] = []
    for row, (body, sys_flag) in enumerate(zip(stored.to_pylist(), flags.tolist(), strict=True), 1):
        bodies.append(_decompress_or_keep(body, sys_flag))
        total += len(bodies[-1])
        if total >= limit or row == len(frames):
            yield frames[start:row], pa.array(bodies, pa.binary())
            start, total, bodies = row, 0, []


def _decompress_or_keep(body: bytes, sys_flag: int) -> bytes:
    try:
        return decompress(body, sys_flag)
    except BodyError:
        return body


_ZLIB, _LZ4, _ZSTD, _ZLIB_TOO = 0x000, 0x100, 0x200, 0x300
_LZ4_MAGIC = 0x04224D18
_ZSTD_MAGIC = 0x28B52FFD
_DEFLATE, _MAX_WINDOW_LOG, _DICTIONARY, _CHECK = 8, 7, 0x20, 31
_STORED, _FIXED, _DYNAMIC, _RESERVED = range(4)  # types of a block of DEFLATE
_MOST_LENGTHS, _MOST_DISTANCES = 29, 29  # codes in a dynamic block, less what is added to them
_HEAD = np.dtype([("magic", ">u4"), ("rest", "u1", 3)])
_MAY_BEGIN = np.isin(
    np.arange(256),
    [_LZ4_MAGIC >> 24, _ZSTD_MAGIC >> 24, *(size << 4 | _DEFLATE for size in range(_MAX_WINDOW_LOG + 1))],
)
"""By the first byte, whether a body may be compressed: of most plain ones nothing else is read."""


def begins_as_flagged(frames: RecordRun) -> NDArray[np.bool_]:
    """Which bodies begin as what their sys flags call them; also those that are empty, or called plain.

    The others may be right, too: a zlib stream with the fixed codes of DEFLATE, which only small bodies have, may as
    well be text.
    """
    flags = frames.headers.field("sys_flag")
    fits: NDArray[np.bool_] = ((flags & COMPRESSED) == 0) | (frames.body_sizes == 0)
    rows = np.flatnonzero(~fits)
    if len(rows):
        kinds, heads = flags[rows] & COMPRESSION_TYPE_MASK, _heads(frames, rows)
        fits[rows] = (
            (np.isin(kinds, (_ZLIB, _ZLIB_TOO)) & _are_zlib(heads) & (_block_types(heads) != _FIXED))
            | ((kinds == _LZ4) & (heads["magic"] == _LZ4_MAGIC))
            | ((kinds == _ZSTD) & (heads["magic"] == _ZSTD_MAGIC))
        )
    return fits


def may_be_of(body: bytes, kind: int) -> bool:
    """Whether a body may be of a compression type (`COMPRESSION_TYPE_MASK`), by the magic of those that have one."""
    magic = {_LZ4: _LZ4_MAGIC, _ZSTD: _ZSTD_MAGIC}.get(kind)
    return magic is None or int.from_bytes(body[:4], "big") == magic


def compressed_but_not_flagged(frames: RecordRun) -> NDArray[np.intp]:
    """Rows of bodies that begin as something compressed, while their sys flags call them plain."""
    flags = frames.headers.field("sys_flag")
    rows = np.flatnonzero(((flags & COMPRESSED) == 0) & (frames.body_sizes > _HEAD.itemsize))
    firsts = frames.block.gather("u1", frames.body_positions[rows])
    rows = rows[_MAY_BEGIN[firsts]]
    heads = _heads(frames, rows)
    magics = heads["magic"]
    found: NDArray[np.intp] = rows[(magics == _LZ4_MAGIC) | (magics == _ZSTD_MAGIC) | _are_zlib(heads)]
    return found


def _heads(frames: RecordRun, rows: NDArray[np.intp]) -> NDArray[np.void]:
    heads: NDArray[np.void] = frames.block.gather(_HEAD, frames.body_positions[rows])
    return heads


def _block_types(heads: NDArray[np.void]) -> NDArray[np.int64]:
    kinds: NDArray[np.int64] = (heads["magic"].astype(np.int64) >> 9) & 3
    return kinds


def _are_zlib(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which are the head of a zlib stream and of its first block."""
    head = (heads["magic"] >> 16).astype(np.int32)
    first, second = head >> 8, head & 0xFF
    fits: NDArray[np.bool_] = ((first & 0xF) == _DEFLATE) & (first >> 4 <= _MAX_WINDOW_LOG) & (head % _CHECK == 0)
    fits &= (second & _DICTIONARY) == 0
    if not fits.any():  # as nearly always of plain bodies
        return fits
    byte, after = ((heads["magic"] >> 8) & 0xFF).astype(np.int32), (heads["magic"] & 0xFF).astype(np.int32)
    kind = _block_types(heads)
    size = after | (heads["rest"][:, 0].astype(np.int32) << 8)
    complement = heads["rest"][:, 1].astype(np.int32) | (heads["rest"][:, 2].astype(np.int32) << 8)
    fits &= kind != _RESERVED
    fits &= (kind != _STORED) | (size ^ complement == 0xFFFF)
    result: NDArray[np.bool_] = fits & (
        (kind != _DYNAMIC) | ((byte >> 3 <= _MOST_LENGTHS) & (after & 0x1F <= _MOST_DISTANCES))
    )
    return result
