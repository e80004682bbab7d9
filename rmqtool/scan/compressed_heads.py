"""Whether bodies begin as their compression does (`CompressorFactory`): a few bytes show it, nothing is inflated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK
from rmqtool.scan.frames import RecordRun

_ZLIB, _LZ4, _ZSTD, _ZLIB_TOO = 0x000, 0x100, 0x200, 0x300
_LZ4_MAGIC = 0x04224D18
_ZSTD_MAGIC = 0x28B52FFD
_DEFLATE, _MAX_WINDOW, _DICTIONARY, _CHECK = 8, 7, 0x20, 31
_STORED, _FIXED, _DYNAMIC, _RESERVED = range(4)  # types of a block of DEFLATE
_MOST_LENGTHS, _MOST_DISTANCES = 29, 29  # codes in a dynamic block, less what is added to them
_HEAD = np.dtype([("magic", ">u4"), ("rest", "u1", 3)])


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


def compressed_but_not_flagged(frames: RecordRun) -> NDArray[np.intp]:
    """Rows of bodies that begin as something compressed, while their sys flags call them plain."""
    flags = frames.headers.field("sys_flag")
    rows = np.flatnonzero(((flags & COMPRESSED) == 0) & (frames.body_sizes > _HEAD.itemsize))
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
    fits = ((first & 0xF) == _DEFLATE) & (first >> 4 <= _MAX_WINDOW) & (head % _CHECK == 0)
    fits &= (second & _DICTIONARY) == 0
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
