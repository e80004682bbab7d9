"""What processes that share the work of one command have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_NUMBER_SIZE = 4  # bytes


def hand_out(writer: Connection, numbers: Iterable[int]) -> None:
    """Write the numbers of what is to be done, some thousands at most, and close the pipe: who reads one has it."""
    os.write(writer.fileno(), b"".join(number.to_bytes(_NUMBER_SIZE, "big") for number in numbers))
    writer.close()


def take_number(reader: Connection) -> int | None:
    """The number of what nobody has begun yet; None when there is no more."""
    found = os.read(reader.fileno(), _NUMBER_SIZE)
    return int.from_bytes(found, "big") if found else None


def keep_arrow_to_one_thread() -> None:
    """There is a process for each core: more threads of Arrow would only wait for each other."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
