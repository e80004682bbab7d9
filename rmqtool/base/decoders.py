"""Decoders of payloads: functions that a package brings, or commands; what they are asked, and what they answer."""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rmqtool.base.child_process import ChildProcess
from rmqtool.base.errors import UsageError
from rmqtool.base.late_modules import show_pandas
from rmqtool.base.signals import deferred_signals

MAX_TEXT = 16 << 20
"""A longer text is refused, bytes in UTF-8."""

Payload = tuple[bytes, Mapping[str, Any]]
"""The bytes, and what a function learns about them."""


class Decoded(NamedTuple):
    """The text of a payload, or why there is none."""

    text: str | None = None
    error: str | None = None


@dataclass(eq=False)
class Health:
    """What has gone wrong with a decoder so far; it is `given_up` for the reason that stands there."""

    silences: int = 0
    ends: int = 0
    given_up: str | None = None


@dataclass(frozen=True)
class Decoder:
    """A decoder as it was asked for with `text`; small, immutable but for its health, and picklable."""

    text: str
    kind: Literal["command", "lines", "function"]
    command: tuple[str, ...] = ()
    health: Health = field(default_factory=Health, compare=False, repr=False)

    @property
    def wants_details(self) -> bool:
        """Whether it is told more of a payload than its bytes."""
        return self.kind == "function"


class Decoding:
    """A decoder at work, until it is closed.

    It is `out_of_step` when it has given more answers than it was asked for: some may belong to other payloads.
    """

    out_of_step = False

    def decode(self, payloads: Iterable[Payload]) -> Iterator[Decoded]:
        """Each payload decoded, in their order. Raises UsageError for a command that cannot be started."""
        raise NotImplementedError

    def close(self, *, in_peace: bool) -> None:
        """End it; `in_peace` it may finish what it does."""


class UndecodedError(Exception):
    """A payload has no text; the message says why."""


def attempt(text_of: Callable[..., str], *arguments: Any) -> Decoded:
    """What `text_of` gives for these arguments, or why it gives nothing."""
    try:
        return Decoded(text_of(*arguments))
    except UndecodedError as error:
        return Decoded(error=str(error))


def check_size(size: int) -> None:
    """Raise UndecodedError for a text of more bytes than MAX_TEXT."""
    if size > MAX_TEXT:
        raise UndecodedError(f"more than {MAX_TEXT >> 20} MiB of text")


def utf8(data: bytes) -> str:
    """The text; raise UndecodedError where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UndecodedError("the decoder's text is not UTF-8") from error


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
            self._decoder.health.given_up = "stopped: the decoder wrote more lines than it was given"
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
            health.given_up = f"stopped: the decoder ended {health.ends} times without an answer: {how}"
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
        health.given_up = f"stopped: {health.silences} times {reason}"
    return UndecodedError(f"{reason}; the decoder was ended")


GROUP = "rmqtool.decoders"
"""The entry points of packages that bring decoders: callables that take the payload and what is known of it."""

LINES = "lines:"
"""Begins a decoder that is one process for many payloads."""

_MAX_REASON = 500  # characters of somebody else's error


def decoder_of(text: str) -> Decoder:
    """The decoder that `text` names: an entry point, ``lines:COMMAND``, or a command. Raises UsageError."""
    names = known_decoders()
    if text in names:
        _loaded(text)
        return Decoder(text, "function")
    kind: Literal["command", "lines"] = "lines" if text.startswith(LINES) else "command"
    command = _words(text.removeprefix(LINES))
    _check_command(command, names)
    return Decoder(text, kind, command)


def open_decoder(decoder: Decoder) -> Decoding:
    """Begin to decode; raises UsageError for a function that cannot be loaded."""
    if decoder.kind == "function":
        return _Function(_loaded(decoder.text))
    return LinesDecoding(decoder) if decoder.kind == "lines" else CommandDecoding(decoder)


def known_decoders() -> list[str]:
    """The names of the decoders that installed packages bring."""
    from importlib.metadata import entry_points

    return sorted({found.name for found in entry_points(group=GROUP)})


def _words(command: str) -> tuple[str, ...]:
    import shlex

    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"the decoder's command {command!r} cannot be split into words: {error}") from error
    if not words or "\0" in command:
        raise UsageError("a decoder is a command or a name", hint="for example: --decoder 'lines:python3 decode.py'")
    return words


def _check_command(command: Sequence[str], names: Sequence[str]) -> None:
    import shutil
    from difflib import get_close_matches

    if shutil.which(command[0]) is None:
        near = get_close_matches(command[0], names)
        hint = f"installed decoders: {', '.join(names) or 'none'}"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        raise UsageError(f"no decoder and no command is named {command[0]!r}", hint=hint)


def _loaded(name: str) -> Callable[[bytes, Mapping[str, Any]], Any]:
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UsageError(f"the decoder {name} is not installed here")
    try:
        show_pandas()
        function: Any = found.load()
    except Exception as error:
        raise UsageError(f"the decoder {name} cannot be loaded: {_shown(error)}") from error
    if not callable(function):
        raise UsageError(f"the decoder {name} cannot be loaded: it is not a function")
    return function  # type: ignore[no-any-return]


class _Function(Decoding):
    """A function of an installed package, in this process."""

    def __init__(self, function: Callable[[bytes, Mapping[str, Any]], Any]) -> None:
        self._function = function

    def decode(self, payloads: Iterable[Payload]) -> Iterator[Decoded]:
        for data, details in payloads:
            yield attempt(self._text_of, data, details)

    def _text_of(self, data: bytes, details: Mapping[str, Any]) -> str:
        try:
            answer = self._function(data, details)
            text = json.dumps(answer, ensure_ascii=False) if isinstance(answer, (dict, list)) else answer
        except (Exception, SystemExit) as error:
            raise UndecodedError(_shown(error)) from error
        if text is None:
            raise UndecodedError("the decoder returned None")
        if not isinstance(text, str):
            raise UndecodedError(f"the decoder returned neither text nor dict nor list: {type(answer).__name__}")
        try:
            check_size(len(text.encode()))
        except UnicodeEncodeError as error:
            raise UndecodedError("the decoder returned half of a surrogate pair, which is not text") from error
        return text


def _shown(error: BaseException) -> str:
    """An error of somebody else's code, in one line that is not long."""
    text = " ".join(str(error).split())[:_MAX_REASON]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
