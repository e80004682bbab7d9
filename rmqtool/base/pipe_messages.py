"""Messages through a pipe to another process: pickled, with the bytes of arrays after that, which are not copied.

A message is its size, the number of its pieces, the size of each, and the pieces: the pickle and one for each array.
Whoever receives it gets arrays that lie in what was read. With `multiprocessing.Connection` the same bytes are copied
four times more.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

_PROTOCOL = 5  # the first one that leaves the bytes of arrays to others
_SIZE = struct.Struct("=Q")
_ALIGNMENT = 16  # of each piece, as memory has it: arrays that begin anywhere are slow
_ZEROS = memoryview(bytes(_ALIGNMENT))
_MOST_PIECES = 1024  # that systems take at once


def packed(message: object) -> list[memoryview]:
    """A message as `send` takes it; its arrays lie in it, and must not be changed before they are sent."""
    arrays: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(message, _PROTOCOL, buffer_callback=arrays.append))]
    pieces += [array.raw() for array in arrays]
    sizes = [len(piece) for piece in pieces]
    end = _head_size(len(pieces))
    filled: list[memoryview] = []
    for piece in pieces:
        filled += [_ZEROS[: -end % _ALIGNMENT], piece]
        end += -end % _ALIGNMENT + len(piece)
    return [memoryview(struct.pack(f"={2 + len(sizes)}Q", end, len(sizes), *sizes)), *filled]


def packed_size(pieces: Iterable[memoryview]) -> int:
    """The bytes of a packed message."""
    return sum(map(len, pieces))


def send(pipe: int, pieces: Iterable[memoryview]) -> None:
    """Write a packed message to a pipe; raises BrokenPipeError when nobody reads it any more."""
    left = list(pieces)
    while left:
        sent, number = os.writev(pipe, left[:_MOST_PIECES]), 0
        while number < len(left) and sent >= len(left[number]):
            sent -= len(left[number])
            number += 1
        left = left[number:]
        if sent:
            left[0] = left[0][sent:]


def receive(pipe: int) -> Any:
    """Read one message from a pipe; raises EOFError when nobody writes to it any more."""
    (size,) = _SIZE.unpack(_read(pipe, _SIZE.size))
    data = _read(pipe, size)
    (count,) = _SIZE.unpack_from(data)
    position = _head_size(count)
    pieces = []
    for number in range(count):
        (size,) = _SIZE.unpack_from(data, _SIZE.size * (number + 1))
        position += -position % _ALIGNMENT
        pieces.append(data[position : position + size])
        position += size
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _head_size(count: int) -> int:
    """Bytes of the number of pieces and their sizes."""
    return _SIZE.size * (1 + count)


def _read(pipe: int, size: int) -> memoryview:
    data = rest = np.empty(size, np.uint8).data
    while rest:
        count = os.readv(pipe, [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return data
