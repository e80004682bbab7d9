"""The filters of every command, spelt once: ``--topic``, ``--queue``, ``--tag``, ``--key``, ``--from``, ``--to`` ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqtool.base.bounds import OFFSETS, QUEUE_IDS
from rmqtool.base.errors import UsageError
from rmqtool.base.times import rfc3339
from rmqtool.commands.completion import complete_queue, complete_topic
from rmqtool.commands.options import time_of

if TYPE_CHECKING:
    from rmqtool.scan.filters import Filters

F = TypeVar("F", bound=Callable[..., Any])

QUEUE_ID = click.IntRange(*QUEUE_IDS)
"""The type of an option for a queue's number, which is a Java int."""

_TAG_SEPARATOR = "||"  # as consumers subscribe: `TagA || TagB`
_ANY_TAG = "*"


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of subscription expressions; none when one of them is ``*`` (`FilterAPI#buildSubscriptionData`)."""
    tags = tuple(tag for value in values for alternative in value.split(_TAG_SEPARATOR) if (tag := alternative.strip()))
    if values and not tags:
        raise click.BadParameter("an empty tag matches nothing", ctx, param)
    return () if _ANY_TAG in tags else tags


_OPTIONS: Mapping[str, tuple[str, Callable[[F], F]]] = {
    "topic": ("topics", click.option("--topic", multiple=True, metavar="TOPIC", shell_complete=complete_topic,
                                        help="Of this topic; 'order*' for several. Repeatable.")),
    "exclude-topic": (
        "excluded_topics",
        click.option("--exclude-topic", multiple=True, metavar="TOPIC", shell_complete=complete_topic,
                     help="Not of this topic, or 'order*'. Repeatable."),
    ),
    "queue": (
        "queue_ids",
        click.option("--queue", type=QUEUE_ID, multiple=True, metavar="N",
                     shell_complete=complete_queue, help="Of the queue of this number. Repeatable."),
    ),
    "tag": (
        "tags",
        click.option("--tag", multiple=True, callback=_tags, metavar="TAG",
                     help="With this tag, or one of 'A || B'. Repeatable."),
    ),
    "key": (
        "keys",
        click.option("--key", multiple=True, metavar="KEY", help="With this key or unique key. Repeatable."),
    ),
    "transaction": (
        "transactions",
        click.option("--transaction", type=click.Choice(["none", "prepared", "commit", "rollback"]), multiple=True,
                     help="Records of this type: of no transaction, half, committed, rolled back. Repeatable."),
    ),
    "from": (
        "from_timestamp",
        click.option("--from", callback=time_of, metavar="TIME",
                     help="Stored then or later: '2026-11-21 10:52', yesterday, -2h, with Z in UTC, epoch s or ms."),
    ),
    "to": (
        "to_timestamp",
        click.option("--to", callback=time_of, metavar="TIME", help="Stored before then."),
    ),
    "from-offset": (
        "from_offset",
        click.option("--from-offset", type=click.IntRange(*OFFSETS), default=0, metavar="BYTES",
                     help="First physical offset (of a queue: to which units lead)."),
    ),
    "to-offset": (
        "to_offset",
        click.option("--to-offset", type=click.IntRange(*OFFSETS), metavar="BYTES",
                     help="Stop before this physical offset."),
    ),
}  # fmt: skip


def filter_options(*names: str) -> Callable[[F], F]:
    """Give a command the filters `names` (``"topic"``, ``"from"`` ...; default: all) as one argument, `filters`.

    Stands anywhere between ``@click.command`` and the function: ``@filter_options()``. ``limit_option`` is apart.
    """
    chosen = names or tuple(_OPTIONS)

    def decorate(command: F) -> F:
        @wraps(command)
        def with_filters(*args: Any, **kwargs: Any) -> Any:
            from rmqtool.scan.filters import Filters

            given = {_OPTIONS[name][0]: kwargs.pop(name.replace("-", "_")) for name in chosen}
            filters = Filters(**given)
            _check_times(filters.from_timestamp, filters.to_timestamp)
            _check_offsets(filters.from_offset, filters.to_offset)
            return command(*args, filters=filters, **kwargs)

        decorated: Any = with_filters
        for name in reversed(chosen):
            decorated = _OPTIONS[name][1](decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def filter_words(filters: Filters) -> list[str]:
    """The options that give `filters`, as words of a command line."""
    words: list[str] = []
    for name, (field, _) in _OPTIONS.items():
        value = getattr(filters, field)
        if value == getattr(type(filters)(), field):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{name}", str((name in ("from", "to") and rfc3339(each)) or each)]
    return words


def limit_option(command: F) -> F:
    """``--limit N``, the argument `limit`: at most so many messages or units, None without a limit."""
    count = click.IntRange(*OFFSETS)
    return click.option("--limit", type=count, metavar="N", help="Stop after N of them.")(command)


def _check_times(start: int | None, stop: int | None) -> None:
    if start is not None and stop is not None and start > stop:
        shown = [rfc3339(each) or each for each in (start, stop)]
        raise UsageError(f"--from is later than --to: {shown[0]} and {shown[1]}; nothing lies between")


def _check_offsets(start: int, stop: int | None) -> None:
    if stop is not None and start > stop:
        raise UsageError(f"--from-offset {start} is larger than --to-offset {stop}: nothing lies between")
