"""Messages between processes: what comes out of the pipe is what went in, whatever its arrays are like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pickle import PickleBuffer
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from rmqtool.base.parallel import packed, receive, send

STRUCTURED = np.array([(1, 2), (3, 4)], dtype=[("place", ">i8"), ("size", "<i4")])
ARRAYS: dict[str, NDArray[Any]] = {
    "numbers": np.arange(5),
    "odd bytes before the next": np.frombuffer(b"abc", np.uint8),
    "every second": np.arange(20)[::2],
    "columns": np.arange(12).reshape(3, 4).T,
    "none": np.empty(0, np.int64),
    "raw": np.zeros(3, "V20"),
    "structured": STRUCTURED,
}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def through(pipe: tuple[int, int], message: object) -> Any:
    """Send a message that may be larger than the pipe, and receive it."""
    sender = Thread(target=send, args=(pipe[1], packed(message)))
    sender.start()
    received = receive(pipe[0])
    sender.join()
    return received


def test_arrays_of_every_kind(pipe: tuple[int, int]) -> None:
    found = through(pipe, ARRAYS)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tolist() == array.tolist(), name
        assert found[name].flags.aligned, name


def test_columns_of_arrow_and_what_is_no_array(pipe: tuple[int, int]) -> None:
    batch = pa.RecordBatch.from_pydict({"name": ["a", None, "c"], "size": [1, 2, 3]})
    assert through(pipe, (batch, "text", None, [1.5])) == (batch, "text", None, [1.5])


def test_messages_larger_than_a_pipe_one_after_the_other(pipe: tuple[int, int]) -> None:
    for count in (1 << 20, 3, 1 << 18):
        assert (through(pipe, np.arange(count)) == np.arange(count)).all()


def test_a_message_of_more_pieces_than_the_system_takes_at_once(pipe: tuple[int, int]) -> None:
    pieces = [bytes([number % 256]) for number in range(1100)]
    send(pipe[1], packed([PickleBuffer(piece) for piece in pieces]))
    assert [bytes(piece) for piece in receive(pipe[0])] == pieces


def test_whoever_receives_an_array_may_change_it(pipe: tuple[int, int]) -> None:
    send(pipe[1], packed(np.arange(4)))
    found = receive(pipe[0])
    found[0] = 9
    assert found.tolist() == [9, 1, 2, 3]


@pytest.mark.parametrize("left_out", [1, 300])
def test_a_sender_that_ends_within_a_message(left_out: int) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"".join(packed(np.arange(40)))[:-left_out])
    os.close(writer)
    with pytest.raises(EOFError):
        receive(reader)
    os.close(reader)


def test_a_receiver_that_is_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        send(writer, packed("anything"))
    os.close(writer)
