"""Decoders by what they are asked for as: a function that a package brings, or a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from rmqtool.base.decoder_commands import CommandDecoding, LinesDecoding
from rmqtool.base.decoding import Decoded, Decoder, Decoding, Payload, UndecodedError, attempt, check_size
from rmqtool.base.errors import UsageError
from rmqtool.base.hidden_pandas import show_pandas

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
        raise UsageError("a decoder is a command or a name", hint="such as: --decoder 'lines:python3 decode.py'")
    return words


def _check_command(command: Sequence[str], names: Sequence[str]) -> None:
    import shutil
    from difflib import get_close_matches

    if shutil.which(command[0]) is None:
        near = get_close_matches(command[0], names)
        hint = f"decoders that installed packages bring: {', '.join(names) or 'none'}"
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
