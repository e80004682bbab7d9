"""The options of `rmqtool query`: the questions, and the options that go with each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from rmqtool.base.bounds import OFFSETS
from rmqtool.base.errors import UsageError
from rmqtool.commands.completion import complete_group
from rmqtool.commands.decoder_options import decoder_option
from rmqtool.commands.filter_options import filter_options, limit_option
from rmqtool.commands.options import time_of
from rmqtool.commands.redact_options import redact_options

if TYPE_CHECKING:
    from rmqtool.query.by_scan import Condition

F = TypeVar("F", bound=Callable[..., Any])

Question = Literal[
    "pull", "at", "group", "time", "scan", "offset", "msg-id", "unique-key", "key", "queue-offset",
]  # fmt: skip
"""A question, named as its option."""

_REDACT = {"redact", "redact-as", "redact-salt"}
_SHOWING = {"body", "body-format", "decoder", "save-body", "trace"} | _REDACT
_FILTERS = {
    "topic",
    "exclude-topic",
    "queue",
    "tag",
    "key",
    "unique-key",
    "transaction",
    "from",
    "to",
    "from-offset",
    "to-offset",
    "limit",
}
_CONTENT = {"where", "body-contains"}
_FITTING: dict[Question, set[str]] = {
    "pull": {"topic", "queue", "queue-offset", "max", "tag", "body", "body-format", "decoder"} | _REDACT,
    "at": {"topic", "queue"},
    "group": set(),
    "time": _SHOWING | _CONTENT | (_FILTERS - {"from"}),
    "scan": _SHOWING | _CONTENT | _FILTERS,
    "offset": _SHOWING,
    "msg-id": _SHOWING,
    "unique-key": _SHOWING | {"topic", "exclude-topic", "from", "to", "limit", "hash-matches"},
    "key": _SHOWING | {"topic", "exclude-topic", "from", "to", "limit", "hash-matches"},
    "queue-offset": _SHOWING | {"topic", "queue"},
}
"""The options that go with each question; of several questions the first one here is asked."""

_ALL = set().union(*_FITTING.values(), _FITTING)
_EXAMPLES = {"pull": "--pull --topic T --queue 0 --queue-offset 42", "at": "--at -2h --topic T --queue 0"}


def _conditions(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Condition, ...]:
    if not values:
        return ()
    from rmqtool.query.by_scan import parse_condition

    try:
        return tuple(map(parse_condition, values))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def query_options(command: F) -> F:
    """All options of query but those that other commands have too."""
    offset = click.IntRange(*OFFSETS)
    options = (
        click.option("--unique-key", metavar="KEY", help="By the unique key, which clients print as the message id."),
        click.option("--id", "--msg-id", "msg_id", metavar="ID",
                     help="By an id that a client or broker printed: offset message id or unique key."),
        click.option("--offset", type=offset, metavar="BYTES", help="By the physical offset in the commit log."),
        click.option("--queue-offset", type=offset, metavar="N", help="By the offset in --topic and --queue."),
        click.option("--time", callback=time_of, metavar="TIME", help="What was stored then and next, 10 messages."),
        click.option("--scan", is_flag=True, help="Look at every message of the log, without index and queues."),
        click.option("--where", multiple=True, callback=_conditions, metavar="NAME=TEXT",
                     help="Scan for a property: NAME=TEXT, NAME!=TEXT, NAME~TEXT (holds it). Repeatable."),
        click.option("--body-contains", metavar="TEXT", help="Scan for a text in the decompressed body."),
        click.option("--hash-matches", is_flag=True, help="With a key: one message for each index unit of its hash."),
        click.option("--trace", is_flag=True, help="Where each message stands, who has read it, what became of it."),
        click.option("--pull", is_flag=True, help="What a consumer gets that pulls from --queue-offset."),
        click.option("--max", "most", type=click.IntRange(1, 1 << 20), default=32, show_default=True, metavar="N",
                     help="Messages that the pull asks for."),
        click.option("--at", callback=time_of, metavar="TIME", help="The queue offset for a moment, for resetOffset."),
        click.option("--group", metavar="GROUP", shell_complete=complete_group,
                     help="What a consumer group has consumed."),
        filter_options(),
        limit_option,
        click.option("--body", type=click.Choice(["decompressed", "stored", "none"]), default="decompressed",
                     show_default=True, help="Which form of the body."),
        click.option("--body-format", type=click.Choice(["text", "hex", "json", "base64"]), default="text",
                     show_default=True, help="How text output shows a body; bytes that are not text are shown as hex."),
        click.option("--save-body", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="Write the body of the one message that is found to a new file."),
        redact_options,
        decoder_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def question_of(context: click.Context) -> Question:
    """The question of the command line; raises UsageError without one, or for options that do not go together."""
    given = {name for name in _ALL if _is_given(context, name)}
    asked = next((question for question in _FITTING if question in given), None)
    if given & _CONTENT and asked not in ("time", "scan"):
        given.add("scan")
        asked = "scan" if asked not in ("pull", "at", "group") else asked
    if asked is None:
        raise UsageError(
            "say which message: --key, --unique-key, --msg-id, --offset, --queue-offset, --time or --scan",
            hint="or what else: --pull, --at, --group; rmqtool query --help has examples",
        )
    unfit = sorted(given - _FITTING[asked] - {asked})
    if unfit:
        raise UsageError(f"--{asked} does not go with {', '.join(f'--{name}' for name in unfit)}")
    return asked


def one_queue(question: Question, topics: tuple[str, ...], queue_ids: tuple[int, ...]) -> tuple[str, int]:
    """The one topic and queue that a question needs; raises UsageError."""
    from rmqtool.scan.topic_choice import is_pattern

    if len(topics) != 1 or is_pattern(topics[0]) or len(queue_ids) != 1:
        example = _EXAMPLES.get(question, "--topic T --queue 0 --queue-offset 42")
        raise UsageError(f"--{question} needs one --topic and one --queue", hint=f"such as: {example}")
    return topics[0], queue_ids[0]


def _is_given(context: click.Context, option: str) -> bool:
    name = {"max": "most"}.get(option, option.replace("-", "_"))
    source = context.get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE
