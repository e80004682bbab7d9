"""The options of `rmqtool replay`, and what they mean together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rmqtool.base.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?", re.ASCII)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_PATH = click.Path(path_type=Path)


def _name_servers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    from rmqtool.replay.connection import parse_address

    addresses = tuple(each.strip() for each in re.split("[;,]", value or "") if each.strip())
    try:
        for address in addresses:
            parse_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if not addresses and value is not None:
        raise click.BadParameter("no address is given", ctx, param)
    return addresses


def _topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """New names by old ones; that of all is under the empty name."""
    names: dict[str, str] = {}
    for value in values:
        old, separator, new = value.rpartition("=")
        if not new or (separator and not old) or old in names or (names and "" in {old, *names}):
            raise click.BadParameter(f"{value!r} is not one TOPIC, or OLD=NEW, once for each OLD", ctx, param)
        names[old] = new
    return names


def _rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    match = None if value is None else _RATE.fullmatch(value.strip())
    rate = float(match[1]) if match else 0.0
    if value is not None and rate <= 0:
        raise click.BadParameter(f"{value!r} is not a rate; example: 200/s (messages a second)", ctx, param)
    return rate if value is not None else None


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    match = _SECONDS.fullmatch(value.strip())
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if not 0 < seconds <= 86_400:
        raise click.BadParameter(f"{value!r} is not a length of time; examples: 10s, 2m", ctx, param)
    return seconds


_OPTIONS = (
    click.option("--nameserver", "name_servers", callback=_name_servers, metavar="HOST:PORT",
                 help="Name server of the target; several with ';' between them. --dry-run counts without it, too."),
    click.option("--unconsumed-by", metavar="GROUP",
                 help="Only what this consumer group has not consumed, by its committed offsets."),
    click.option("--dead-letters-of", metavar="GROUP",
                 help="The dead letters of this consumer group; --topic is then where they came from."),
    click.option("--delays", type=click.Choice(["leave-out", "keep", "now"]), default="leave-out", show_default=True,
                 help="Delayed messages that still wait: not sent, delivered at their time, or now."),
    click.option("--include-replays", is_flag=True, help="Also messages that a replay has sent to this store."),
    click.option("--to-topic", "to_topics", multiple=True, callback=_topics, metavar="[OLD=]NEW",
                 help="Send to this topic, or what was in OLD to NEW. Repeatable."),
    click.option("--to-retry-topic", is_flag=True,
                 help="Send retries and dead letters to %RETRY%GROUP, which only their group consumes."),
    click.option("--keep-dispatch", is_flag=True, help="Keep the properties that put a message into light queues too."),
    click.option("--empty-bodies", type=click.Choice(["refuse", "blank"]), default="refuse", show_default=True,
                 help="Messages without a body, which brokers refuse: left out, or sent with one blank."),
    click.option("--look-up/--no-look-up", default=True, show_default=True,
                 help="Look for each message on the target by its unique key before it is sent."),
    click.option("--send-again", is_flag=True,
                 help="Also send what is there under the same key and not from this replay: to its own cluster."),
    click.option("--send", is_flag=True, help="Send the messages; without it they are counted only."),
    click.option("--journal", type=_PATH, metavar="FILE",
                 help="What was sent, with a receipt for each message. Default: beside the source."),
    click.option("--rate", callback=_rate, metavar="N/s", help="Send at most this many messages a second."),
    click.option("--batch", type=click.IntRange(1, 4096), default=64, show_default=True, metavar="N",
                 help="Send up to N messages of a queue together, where they may be."),
    click.option("--loose-born-time", is_flag=True,
                 help="Let batches hold messages of several born times: all get that of the first."),
    click.option("--keep-going", is_flag=True, help="Go on after a message was refused."),
    click.option("--timeout", callback=_seconds, default="10s", show_default=True, metavar="TIME",
                 help="How long to wait for a connection, and for each answer."),
    click.option("--patience", callback=_seconds, default="1m", show_default=True, metavar="TIME",
                 help="How long brokers may be away while messages are sent."),
    click.option("--acl-file", type=_PATH, metavar="FILE",
                 help="File with accessKey and secretKey, such as tools.yml."),
    click.option("--tls", is_flag=True, help="Connect with TLS."),
    click.option("--tls-ca", type=_PATH, metavar="FILE",
                 help="Certificates that sign those of the target, instead of the system's; implies --tls."),
    click.option("--tls-cert", type=_PATH, metavar="FILE",
                 help="Our certificate, with or without its key; implies --tls."),
    click.option("--tls-key", type=_PATH, metavar="FILE", help="Private key of the client certificate."),
    click.option("--tls-no-verify", is_flag=True, help="Take any certificate; implies --tls."),
)  # fmt: skip


def replay_options(command: F) -> F:
    """The options that only `replay` has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def security_of(given: dict[str, Any]) -> Any:
    """How to connect (`Security`), from the options, which are taken out of `given`; raises UsageError."""
    from rmqtool.replay.connection import Security, tls_context
    from rmqtool.replay.signing import read_credentials

    files = {name: given.pop(f"tls_{name}") for name in ("ca", "cert", "key")}
    no_verify, wants = given.pop("tls_no_verify"), given.pop("tls")
    acl_file, timeout = given.pop("acl_file"), given.pop("timeout")
    if files["key"] is not None and files["cert"] is None:
        raise UsageError("--tls-key is the key of a certificate: name it with --tls-cert")
    tls = None
    if wants or no_verify or files["ca"] or files["cert"]:
        authority, certificate, key = (None if path is None else str(path) for path in files.values())
        tls = tls_context(authority, certificate, key, verifies=not no_verify)
    return Security(timeout, tls, None if acl_file is None else read_credentials(acl_file))


def check_options(given: dict[str, Any]) -> None:
    """Raise UsageError for options that do not fit each other."""
    if given["send"] and given["dry_run"]:
        raise UsageError("--send and --dry-run: one of them")
    if given["unconsumed_by"] and given["dead_letters_of"]:
        raise UsageError("--unconsumed-by and --dead-letters-of: one of them")
    if given["yes"] and not given["send"]:
        raise UsageError("--yes answers the question of --send, which is missing")
