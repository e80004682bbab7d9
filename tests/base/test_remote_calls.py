"""Calls to other machines: made again, given up in time, and left at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rmqtool.base import filesystems
from rmqtool.base.filesystems import answer_of, has_left_calls, in_background, patiently


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What a call waits for that gets no answer."""
    monkeypatch.setattr(filesystems, "_running", set())
    event = threading.Event()
    yield event
    event.set()


class Server:
    """Fails some times, then answers."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = [*failures]
        self.calls = 0

    def ask(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


def test_a_connection_that_is_cut() -> None:
    """The call is made again, in as many times as there are pauses."""
    assert patiently(Server(OSError("cut"), OSError("cut")).ask, (0, 0)) == "answer"
    server = Server(*[OSError("cut")] * 5)
    with pytest.raises(OSError, match="cut"):
        patiently(server.ask, (0, 0))
    assert server.calls == 3


@pytest.mark.parametrize("error", [FileNotFoundError(), PermissionError(), TimeoutError()])
def test_an_answer_that_stays(error: OSError) -> None:
    """What is not there, or not allowed, is asked for once."""
    server = Server(error)
    with pytest.raises(type(error)):
        patiently(server.ask, (0, 0))
    assert server.calls == 1


def test_a_library_that_has_tried_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tries are not made four times."""
    monkeypatch.setattr(filesystems, "_PATIENCE", 0)
    server = Server(*[OSError("cut")] * 5)
    with pytest.raises(OSError, match="cut"):
        patiently(server.ask, (0, 0))
    assert server.calls == 1


def test_no_answer(silence: threading.Event) -> None:
    """It is given up; the process has to end without it until it comes."""
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        answer_of(silence.wait, 0.05)
    assert has_left_calls()
    silence.set()
    wait_for_calls()


def wait_for_calls() -> None:
    """Until none is left: whoever waits for one may know its result a moment before."""
    while has_left_calls():
        time.sleep(0.01)


def test_a_signal(silence: threading.Event) -> None:
    """It ends the waiting at once."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        time.sleep(0.1)  # until somebody waits
        signal.pthread_kill(main, signal.SIGINT)
        silence.wait()

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        answer_of(interrupt, 60)
    assert time.monotonic() - begin < 30
    assert has_left_calls()


def test_a_signal_that_does_not_interrupt_a_wait_is_heard(silence: threading.Event) -> None:
    """As one that comes just before the wait; here another thread gets it, which has the same effect."""

    def interrupt() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        silence.wait()

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        answer_of(interrupt, 60)
    assert time.monotonic() - begin < 30


def test_a_signal_while_the_call_begins(silence: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread works already: the process has to end without it."""
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_background(silence.wait)
    assert has_left_calls()


def test_errors_of_pyarrow() -> None:
    """Those of Azure are none of Python's; what the caller did wrong stays as it is."""
    with pytest.raises(OSError, match="Unknown error: no token"):
        answer_of(Server(pa.ArrowException("Unknown error:\nno token")).ask)
    with pytest.raises(pa.ArrowInvalid):
        answer_of(Server(pa.ArrowInvalid("no such option")).ask)


def test_in_background(silence: threading.Event) -> None:
    """Others work meanwhile; the process has to end without it, though nobody has waited for it yet."""
    call = in_background(silence.wait)
    assert not call.done()
    assert has_left_calls()
    silence.set()
    assert call.result(60)
    wait_for_calls()


def test_a_call_that_fails_is_over(silence: threading.Event) -> None:
    """It holds up nothing."""
    call = in_background(Server(OSError("cut")).ask)
    assert isinstance(call.exception(60), OSError)
    wait_for_calls()
