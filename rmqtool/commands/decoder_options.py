"""``--decoder``: what turns a body into text, and how it is told which bodies it could not decode."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqtool.base.errors import UsageError
from rmqtool.base.visible import visible
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.base.decoding import Decoder
    from rmqtool.scan.decoding import DecodeFailures
    from rmqtool.scan.redaction import Redaction

F = TypeVar("F", bound=Callable[..., Any])


def decoder_option(command: F) -> F:
    """``--decoder DECODER``, the argument `decoder`: None without one. Stands below `redact_options`."""

    @wraps(command)
    def with_decoder(*args: Any, decoder: str | None, redaction: Redaction | None, **kwargs: Any) -> Any:
        return command(*args, decoder=_decoder(decoder, redaction), redaction=redaction, **kwargs)

    text = "Show the text that a command, lines:COMMAND or an installed decoder makes of a body."
    return click.option("--decoder", metavar="DECODER", help=text)(with_decoder)  # type: ignore[return-value]


def _decoder(text: str | None, redaction: Redaction | None) -> Decoder | None:
    if text is None:
        return None
    from rmqtool.base.decoders import decoder_of

    if redaction is not None and redaction.hides("body"):
        raise UsageError("--decoder shows what --redact bodies leaves out")
    return decoder_of(text)


def note_failures(style: Style, failures: DecodeFailures) -> None:
    """Say on standard error which bodies could not be decoded."""
    if not style.quiet:
        for sentence in failures.sentences():
            note(visible(sentence))
