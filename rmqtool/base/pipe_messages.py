"""Messages through a pipe to another process: pickled, with the bytes of arrays behind that, which are copied seldom.

A message is its size, the number of its pieces, the size of each, and the pieces: the pickle and one for each array.
Whoever receives it gets arrays that lie in what was read. With `multiprocessing.Connection` the same bytes are copied
three times more.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_PROTOCOL = 5  # the first one that leaves the bytes of arrays to others
_SIZE = struct.Struct("=Q")
_ALIGNMENT = 16  # of each piece, as memory has it: arrays that begin anywhere are slow


def packed(message: object) -> bytes:
    """A message as it goes through a pipe; what becomes of its arrays later does not matter."""
    arrays: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(message, _PROTOCOL, buffer_callback=arrays.append))]
    pieces += [array.raw() for array in arrays]
    sizes = [len(piece) for piece in pieces]
    end = _head_size(len(pieces))
    filled: list[bytes | memoryview] = []
    for piece in pieces:
        filled += [bytes(-end % _ALIGNMENT), piece]
        end += -end % _ALIGNMENT + len(piece)
    return b"".join([*map(_SIZE.pack, (end, len(pieces), *sizes)), *filled])


def send(pipe: int, data: bytes) -> None:
    """Write a packed message to a pipe; raises BrokenPipeError when nobody reads it any more."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def receive(pipe: int) -> Any:
    """Read one message from a pipe; raises EOFError when nobody writes to it any more."""
    (size,) = _SIZE.unpack(_read(pipe, _SIZE.size))
    data = memoryview(_read(pipe, size))
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


def _read(pipe: int, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = os.readv(pipe, [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return data
