"""What a decoder of payloads is, whatever its kind: what it was asked for as, its answers, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MAX_TEXT = 16 << 20
"""A longer text is refused, bytes in UTF-8."""

Payload = tuple[bytes, Mapping[str, Any]]
"""The bytes, and what a function is told of them."""


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
