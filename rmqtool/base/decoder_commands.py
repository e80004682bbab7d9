"""Decoders that are commands: a process for each payload, or one that answers many line by line.

None of them can stop or hang a run: what is not decoded has a reason instead of a text.
"""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Iterable, Iterator

from rmqtool.base.child_process import ChildProcess
from rmqtool.base.decoding import (
    MAX_TEXT,
    Decoded,
    Decoder,
    Decoding,
    Health,
    Payload,
    UndecodedError,
    attempt,
    check_size,
    utf8,
)
from rmqtool.base.errors import UsageError
from rmqtool.base.signals import deferred_signals

ANSWER_SECONDS = 30.0
"""A command that has not answered by then is ended."""

_MOST_SILENCES = 3  # payloads without an answer in time, before a decoder is given up
_MOST_ENDS = 10  # ends of a process in a row, without an answer in between, before it is given up
_AHEAD = 64 << 10  # bytes that are sent ahead of the answers


class CommandDecoding(Decoding):
    """One process for each payload."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._child: ChildProcess | None = None

    def decode(self, payloads: Iterable[Payload]) -> Iterator[Decoded]:
        """Each payload by a process of its own, one after the other."""
        health = self._decoder.health
        for data, _ in payloads:
            if health.given_up:
                yield Decoded(error=health.given_up)
                continue
            with deferred_signals():  # until `close` would end it
                self._child = _started(self._decoder)
            answer = attempt(self._text_of, self._child, data)
            self._child.kill()
            yield answer

    def close(self, *, in_peace: bool) -> None:
        """End a process that an error or a signal has left behind."""
        if self._child is not None:
            self._child.kill()

    def _text_of(self, child: ChildProcess, data: bytes) -> str:
        child.send(data)
        child.end_input()
        until = time.monotonic() + ANSWER_SECONDS
        while not child.closed_output:
            if not child.exchange(until):
                raise _silent(self._decoder.health)
            check_size(len(child.output))
        status = child.status(until)
        if status is None:
            raise _silent(self._decoder.health)
        if status:
            raise UndecodedError(child.ending(status))
        return utf8(bytes(child.output)).removesuffix("\n")


class LinesDecoding(Decoding):
    """One process, which gets a line of base64 for each payload and answers each with a line of text.

    Payloads are sent ahead, so that it need not wait for us; one that ends is started again for the next payload.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._child: ChildProcess | None = None
        self._unanswered: deque[bytes] = deque()  # lines, which were sent if there is a process
        self._bytes = 0  # of these lines

    def decode(self, payloads: Iterable[Payload]) -> Iterator[Decoded]:
        """The answer to each payload; all payloads have theirs before this is at its end."""
        lines = (base64.b64encode(data) + b"\n" for data, _ in payloads)
        is_last = False
        while True:
            if self._bytes <= _AHEAD // 2 and not is_last:
                is_last = self._send_ahead(lines)
            if not self._unanswered:
                return
            yield attempt(self._answer)

    def close(self, *, in_peace: bool) -> None:
        """End the process; `in_peace` it gets the end of its input first."""
        child, self._child = self._child, None
        if child is None:
            return
        if not in_peace:
            child.kill()
            return
        child.finish()
        self.out_of_step |= bool(child.output)

    def _send_ahead(self, lines: Iterator[bytes]) -> bool:
        """Send payloads until enough are on their way; returns whether there are no more."""
        if not self._unanswered and self._child is not None and self._child.output:
            self._decoder.health.given_up = "given up: the decoder wrote more lines than it was asked for"
        while self._bytes < _AHEAD:
            line = next(lines, None)
            if line is None:
                return True
            self._unanswered.append(line)
            self._bytes += len(line)
            if self._child is not None:
                self._child.send(line)
        return False

    def _answer(self) -> str:
        """The text of the first payload that has no answer yet; that is not the first any more, whatever comes."""
        health = self._decoder.health
        try:
            if health.given_up:
                raise UndecodedError(health.given_up)
            line = self._line()
        finally:
            self._bytes -= len(self._unanswered.popleft())
        health.ends = 0
        if not line:
            raise UndecodedError("the decoder answered with an empty line")
        return utf8(line)

    def _line(self) -> bytes:
        """The next line of its output."""
        child = self._running()
        until, seen = 0.0, 0
        while (end := child.output.find(b"\n", seen)) < 0:
            seen = len(child.output)
            until = until or time.monotonic() + ANSWER_SECONDS
            if child.closed_output:
                raise self._ended(child, until)
            if seen > MAX_TEXT or not child.exchange(until):
                self.close(in_peace=False)
                check_size(seen)
                raise _silent(self._decoder.health)
        line = bytes(child.output[:end])
        del child.output[: end + 1]
        check_size(len(line))
        return line

    def _running(self) -> ChildProcess:
        """The process, which knows all payloads without an answer."""
        if self._child is not None:
            return self._child
        with deferred_signals():  # until `close` would end it
            self._child = _started(self._decoder)
        for line in self._unanswered:
            self._child.send(line)
        return self._child

    def _ended(self, child: ChildProcess, until: float) -> UndecodedError:
        """The reason that there is no answer: the process has ended."""
        status = child.status(until)
        self.close(in_peace=False)
        how = "it has closed its output" if status is None else child.ending(status)
        health = self._decoder.health
        health.ends += 1
        if health.ends >= _MOST_ENDS:
            health.given_up = f"given up: the decoder ended {health.ends} times without an answer: {how}"
        return UndecodedError(f"the decoder ended before it answered: {how}")


def _started(decoder: Decoder) -> ChildProcess:
    try:
        return ChildProcess(decoder.command)
    except OSError as error:
        if error.filename is None:  # no more processes or memory: not the command's fault
            raise
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"the decoder {decoder.command[0]} cannot be started: {reason}") from error


def _silent(health: Health) -> UndecodedError:
    """The reason that there is no answer in time."""
    health.silences += 1
    reason = f"no answer within {ANSWER_SECONDS:g} s"
    if health.silences >= _MOST_SILENCES:
        health.given_up = f"given up: {health.silences} times {reason}"
    return UndecodedError(f"{reason}; the decoder was ended")
