"""``--redact``: what of messages is not shown, and what stands in its place."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from rmqtool.base.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_SALT_BYTES = 16


def _what(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    chosen = [item.strip() for value in values for item in value.split(",") if item.strip()]
    if chosen:
        from rmqtool.scan.redaction import REDACTABLE

        for item in chosen:
            if item not in REDACTABLE:
                raise click.BadParameter(f"{item!r} is none of {', '.join(REDACTABLE)}", ctx, param)
    return frozenset(chosen)


def redact_options(command: F) -> F:
    """Give a command the options of redaction as one argument, `redaction`: None without one."""

    @wraps(command)
    def with_redaction(*args: Any, **kwargs: Any) -> Any:
        what, how, salt = (kwargs.pop(name) for name in ("redact", "redact_as", "redact_salt"))
        return command(*args, redaction=_redaction(what, how, salt), **kwargs)

    decorated: Any = with_redaction
    for option in reversed(
        (
            click.option("--redact", multiple=True, callback=_what, metavar="WHAT",
                         help="Hide keys, properties, bodies, hosts (with commas): '***' stands in their place."),
            click.option("--redact-as", type=click.Choice(["hide", "hash"]), default="hide", show_default=True,
                         help="hash: a hash stands in their place, the same for the same value."),
            click.option("--redact-salt", metavar="TEXT",
                         help="Secret that keys the hash, to compare runs. Default: a random one for each run."),
        )
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _redaction(what: frozenset[str], how: Any, salt: str | None) -> Any:
    if salt is not None and (how != "hash" or not salt):
        raise UsageError("--redact-salt is for --redact-as hash, and not empty")
    if not what:
        if how == "hash":
            raise UsageError("--redact-as hash needs --redact", hint="such as: --redact keys,hosts")
        return None
    from rmqtool.scan.redaction import Redaction

    return Redaction(what, how, secrets.token_bytes(_SALT_BYTES) if salt is None else salt.encode("utf-8", "replace"))
