"""Options that several commands share, spelt once: filters, decoders, redaction, memory, and the argument STORE."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

import rmqtool
from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.base.limits import MemoryNeed, holding, processes_within
from rmqtool.base.numbers import OFFSETS, QUEUE_IDS
from rmqtool.base.paths import is_remote, path_of
from rmqtool.base.times import parse_duration, rfc3339
from rmqtool.base.visible import visible
from rmqtool.commands.completion import complete_queue, complete_topic
from rmqtool.commands.options import (
    OnStores,
    argument,
    flag,
    joined,
    option,
    parsed,
    rate_option,
    size_of_at_least,
    time_of,
)
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.base.decoders import Decoder
    from rmqtool.library.store import Store as OpenedStore
    from rmqtool.rules.broker_conf import BrokerConf
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import DecodeFailures
    from rmqtool.store.store import Store

QUEUE_ID = click.IntRange(*QUEUE_IDS)
"""The type of an option for a queue's number, which is a Java int."""

_TAG_SEPARATOR = "||"  # as consumers subscribe: `TagA || TagB`
_ANY_TAG = "*"


@parsed
def _tags(values: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of subscription expressions; none when one of them is ``*`` (`FilterAPI#buildSubscriptionData`)."""
    tags = tuple(tag for value in values for alternative in value.split(_TAG_SEPARATOR) if (tag := alternative.strip()))
    if values and not tags:
        raise ValueError("an empty tag matches nothing")
    return () if _ANY_TAG in tags else tags


_FILTERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "topic": ("topics", {"multiple": True, "metavar": "TOPIC", "shell_complete": complete_topic,
                         "help": "Of this topic; 'order*' for several. Repeatable."}),
    "exclude-topic": ("excluded_topics", {"multiple": True, "metavar": "TOPIC", "shell_complete": complete_topic,
                                          "help": "Not of this topic, or 'order*'. Repeatable."}),
    "queue": ("queue_ids", {"type": QUEUE_ID, "multiple": True, "metavar": "N", "shell_complete": complete_queue,
                            "help": "Only this queue. Repeatable."}),
    "tag": ("tags", {"multiple": True, "callback": _tags, "metavar": "TAG",
                     "help": "With this tag, or one of 'A || B'. Repeatable."}),
    "key": ("keys", {"multiple": True, "metavar": "KEY", "help": "With this key or unique key. Repeatable."}),
    "transaction": ("transactions", {
        "type": click.Choice(["none", "prepared", "commit", "rollback"]), "multiple": True,
        "help": "Only this transaction state. Repeatable."}),
    "from": ("from_timestamp", {
        "callback": time_of, "metavar": "TIME",
        "help": "Stored at or after this time: '2026-11-21 10:52' (with Z in UTC), yesterday, -2h, epoch s or ms."}),
    "to": ("to_timestamp", {"callback": time_of, "metavar": "TIME", "help": "Stored before this time."}),
    "from-offset": ("from_offset", {"type": click.IntRange(*OFFSETS), "default": 0, "metavar": "BYTES",
                                    "help": "From this physical offset on (of a queue: where its entries point)."}),
    "to-offset": ("to_offset", {"type": click.IntRange(*OFFSETS), "metavar": "BYTES",
                                "help": "Stop before this physical offset."}),
}  # fmt: skip
"""For each filter its field in Filters, and its option."""


def filter_options(*names: str) -> Any:
    """The filters `names` (``"topic"``, ``"from"`` ...; default: all) as one field; `limit_option` is apart."""
    chosen = names or tuple(_FILTERS)

    def made(given: Mapping[str, Any], _: object) -> Filters:
        from rmqtool.scan.filters import Filters

        filters = Filters(**{_FILTERS[name][0]: given[name.replace("-", "_")] for name in chosen})
        begin, end = filters.from_timestamp, filters.to_timestamp
        if begin is not None and end is not None and begin > end:
            shown = [rfc3339(each) or each for each in (begin, end)]
            raise UsageError(f"--from is later than --to: {shown[0]} and {shown[1]}; nothing is in between")
        start, stop = filters.from_offset, filters.to_offset
        if stop is not None and start > stop:
            raise UsageError(f"--from-offset {start} is larger than --to-offset {stop}: nothing is in between")
        return filters

    return joined([click.Option([f"--{name}"], **_FILTERS[name][1]) for name in chosen], made, filter_words)


def filter_words(filters: Filters) -> list[str]:
    """The options that give `filters`, as words of a command line."""
    words: list[str] = []
    for name, (field, _) in _FILTERS.items():
        value = getattr(filters, field)
        if value == getattr(type(filters)(), field):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{name}", str((name in ("from", "to") and rfc3339(each)) or each)]
    return words


def limit_option() -> Any:
    """``--limit N``: at most so many messages or units, None without a limit."""
    return option("Stop after N.", type=click.IntRange(*OFFSETS), metavar="N")


def body_option() -> Any:
    """``--body``: which form of it."""
    kinds = click.Choice(["decompressed", "stored", "none"])
    return option("Show the body decompressed, as stored, or not at all.", type=kinds, default="decompressed")


BODY_FORMAT = click.Choice(["text", "hex", "json", "base64"])


def body_format_option() -> Any:
    """``--body-format``, of text output."""
    text = "How text output shows a body; bytes that are not text are shown as hex."
    return option(text, type=BODY_FORMAT, default="text")


def decoder_option() -> Any:
    """``--decoder DECODER``, of field `decoder`: None without one. Stands below `redact_options`, field `redaction`."""
    text = "Show the text that a command, lines:COMMAND or an installed decoder makes of a body."
    parameter = click.Option(["--decoder"], metavar="DECODER", help=text)

    def made(given: Mapping[str, Any], above: Mapping[str, Any]) -> Decoder | None:
        if given["decoder"] is None:
            return None
        from rmqtool.base.decoders import decoder_of

        if above["redaction"] is not None and above["redaction"].hides("body"):
            raise UsageError("--decoder would show what --redact bodies hides")
        return decoder_of(given["decoder"])

    return joined([parameter], made)


def note_failures(style: Style, failures: DecodeFailures) -> None:
    """Say on standard error which bodies could not be decoded."""
    if not style.quiet:
        for sentence in failures.sentences():
            note(visible(sentence))


_SALT_BYTES = 16


@parsed
def _what(values: tuple[str, ...]) -> frozenset[str]:
    chosen = [item.strip() for value in values for item in value.split(",") if item.strip()]
    if chosen:
        from rmqtool.scan.redaction import REDACTABLE

        for item in chosen:
            if item not in REDACTABLE:
                raise ValueError(f"{item!r} is not one of {', '.join(REDACTABLE)}")
    return frozenset(chosen)


def redact_options() -> Any:
    """The options of redaction as one field: None without one."""
    parameters = (
        click.Option(["--redact"], multiple=True, callback=_what, metavar="WHAT",
                     help="Hide keys, properties, bodies, hosts (with commas): '***' is shown instead."),
        click.Option(["--redact-as"], type=click.Choice(["hide", "hash"]), default="hide", show_default=True,
                     help="hash: a hash is shown instead, the same for the same value."),
        click.Option(["--redact-salt"], metavar="TEXT",
                     help="Secret that keys the hash, to compare runs. Default: a random one for each run."),
    )  # fmt: skip
    return joined(parameters, lambda given, _: _redaction(*(given[str(each.name)] for each in parameters)))


def _redaction(what: frozenset[str], how: Any, salt: str | None) -> Any:
    if salt is not None and (how != "hash" or not salt):
        raise UsageError("--redact-salt is for --redact-as hash, and not empty")
    if not what:
        if how == "hash":
            raise UsageError("--redact-as hash needs --redact", hint="for example: --redact keys,hosts")
        return None
    from rmqtool.scan.redaction import Redaction

    return Redaction(what, how, secrets.token_bytes(_SALT_BYTES) if salt is None else salt.encode("utf-8", "replace"))


@parsed
def _limits(value: tuple[str, ...]) -> dict[Any, float]:
    """Values by what they limit; several may stand in one text, with commas between them."""
    limits: dict[str, float] = {}
    for text in (part.strip() for each in value for part in each.split(",") if part.strip()):
        name, _, number = text.rpartition("=")
        limits[name or "lag"] = _limit(name or "lag", number)
    return limits


def _limit(name: str, text: str) -> float:
    """The value that a limit has: a number, percent, or seconds of a duration."""
    if name == "age":
        return parse_duration(text) / 1000
    if name not in ("lag", "disk"):
        raise ValueError(f"no limit {name!r}: give lag=1000, disk=85% or age=15m")
    if not re.fullmatch(r"\d{1,18}(\.\d{1,6})?%?" if name == "disk" else r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a {'percentage' if name == 'disk' else 'number of messages'}")
    return float(text.removesuffix("%"))


def limits_option(name: str) -> Any:
    """``--warning`` or ``--critical`` of a plug-in: values by what they limit."""
    text = f"With --format nagios, {name.upper()} above lag=MESSAGES, disk=PERCENT, age=DURATION (last message)."
    return option(text, metavar="NAME=VALUE", multiple=True, callback=_limits)


def disk_rate_option() -> Any:
    """``--disk-rate``, for commands that say how long a start takes."""
    return rate_option(
        "How fast the store's disk reads, such as 200MiB, to compute how long a start takes. Default: verify measures "
        "it, status assumes that the log is in memory."
    )


def list_of(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values that are repeated, or written with commas between them."""
    return tuple(item.strip() for value in values for item in value.split(",") if item.strip())


def choices_of(*allowed: str) -> Any:
    """A callback for values of a list, each of which is one of those that are `allowed`."""

    @parsed
    def choices(values: tuple[str, ...]) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(list_of(values)))
        for value in chosen:
            if value not in allowed:
                raise ValueError(f"{value!r} is not one of {', '.join(allowed)}")
        return chosen

    return choices


def include_option() -> Any:
    """``--include KINDS``: names of `message_reader.INCLUDABLE`."""
    text = "Also messages that no consumer sees: prepared, rolled-back."
    return option(text, multiple=True, callback=choices_of("prepared", "rolled-back"), metavar="KINDS")


def memory_option() -> Any:
    """``--memory SIZE``: bytes, None without a limit."""
    text = "Use about this much memory at most, for all processes, such as 256MiB."
    return option(text, callback=size_of_at_least(1), metavar="SIZE")


_MOST_PROCESSES = 8


def processes_for(jobs: int | None, *stores: Path) -> int:
    """`jobs`, or as many processes as the logs are worth, up to a core each.

    One where somebody holds a store, or memory is short.
    """
    if jobs is not None:
        return jobs
    from rmqtool.base.limits import memory_is_short, usable_cores
    from rmqtool.store.commit_log import WORTH_A_PROCESS, log_bytes
    from rmqtool.store.lock import lock_holder

    usual = min(usable_cores(), _MOST_PROCESSES, sum(map(log_bytes, stores)) // WORTH_A_PROCESS)
    is_alone = memory_is_short() or any(map(lock_holder, stores))
    return usual if usual > 1 and not is_alone else 1


@contextmanager
def within_memory(style: Style, memory: int | None, jobs: int, need: MemoryNeed) -> Iterator[int]:
    """How many of `jobs` processes may work; what is begun in this block, and by them, holds no more than allowed.

    Raises UsageError, which names the least, where even one process takes more.
    """
    if memory is None:
        yield jobs
        return
    fitting, share = processes_within(memory, jobs, need)
    if fitting < jobs and not style.quiet:
        note(f"--memory: {fitting} of {jobs} processes work")
    with holding(share):
        yield fitting


_HINT = "copy the store to this machine first; inspect, verify, query and export read it in place"


class StorePath(click.Path):
    """A store or a place in one; a URI of another machine is refused with a sentence, unless `may_be_remote`.

    As an argument it may be a store's name, ``@orders-a``: options that are not given are then those of `rmqtool.toml`.
    """

    chooses_defaults = True

    def __init__(self, *, may_be_remote: bool = False) -> None:
        super().__init__(path_type=Path)
        self._may_be_remote = may_be_remote

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that an argument means."""
        if isinstance(param, click.Argument) and ctx and isinstance(value, str) and value.startswith("@"):
            value = _of_named_store(value, ctx)
        try:
            path = path_of(value)
        except RmqtoolError as error:
            self.fail(error.message, param, ctx)
        if not is_remote(path):
            return super().convert(path, param, ctx)
        if not self._may_be_remote:
            command = ctx.info_name if ctx else "this command"
            raise UsageError(f"{command} works on stores of this machine only", file=path, hint=_HINT)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files and directories, or the names of stores."""
        if isinstance(param, click.Argument) and incomplete.startswith("@"):
            from rmqtool.commands.named_stores import names

            return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        return super().shell_complete(ctx, param, incomplete)


_NAMED = re.compile(r"([^\s=@]+=)?(@\S+)")


class StoreWord(click.types.StringParamType):
    """A store as text, maybe with a name of its own before it: ``NAME=STORE``; ``@orders-a`` as in `StorePath`."""

    chooses_defaults = True

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text, with a path in place of a store's name."""
        found = _NAMED.fullmatch(value) if isinstance(value, str) and ctx else None
        return f"{found[1] or ''}{_of_named_store(found[2], ctx)}" if found and ctx else value


def _of_named_store(word: str, ctx: click.Context) -> str:
    """The path of a store's name; of several named ones the first decides about options that are not given."""
    from rmqtool.commands.named_stores import store_of

    entry, rest = store_of(word)
    ctx.default_map = {**entry.options, **(ctx.default_map or {})}
    return entry.path + rest


@dataclass(frozen=True, kw_only=True)
class OnStore(OnStores):
    """Options of every command on one store."""

    path: Path = argument("STORE", StorePath())

    @property
    def named(self) -> str | None:
        """The path of the store, as it was given."""
        return str(self.path)

    @property
    def opened(self) -> OpenedStore:
        """The store, as these options say."""
        return self.open(self.path)

    @cached_property
    def store(self) -> Store:
        """The store as it is when it is first asked for; a copy of these options sees it again."""
        return rmqtool.open(self.path, broker_conf=self._conf).snapshot.store


def tiered_path_option(store: str = "") -> Any:
    """``--tiered-path``, for commands that read the tier of a store, too; of several stores that of one."""
    of = f" of {store}" if store else ""
    text = f"Where tiered storage{of} is (tieredStoreFilePath), if broker.conf does not say."
    return option(text, type=StorePath(may_be_remote=True), metavar="DIRECTORY")


@dataclass(frozen=True, kw_only=True)
class OnTier(OnStore):
    """Options of commands that read the tier of a store, too."""

    tiered_path: Path | None = tiered_path_option()

    @property
    def _conf(self) -> BrokerConf:
        """The broker.conf, with the place of the tier."""
        from rmqtool.store.tiered import with_tier

        return with_tier(self.broker_conf, self.tiered_path)


OF_NEXT = ("broker_conf", "tiered_path", "broker_version", "limit_rate", "jobs", "memory")
"""The fields that the next commands on a store need, too."""


def yes_option() -> Any:
    """``--yes``, for every command that writes to a store."""
    return flag("Do not ask (for scripts).", "-y", "--yes")


def dry_run_option() -> Any:
    """``--dry-run``, for every command that writes to a store."""
    return flag("Show what would be done; change nothing.", "-n", "--dry-run")


NEW_STORE = "The new store: a new or empty directory."


def output_option(help_text: str, metavar: str, kind: click.ParamType[Any], **settings: Any) -> Any:
    """``--output``, where it is written to."""
    return option(help_text, "-o", "--output", type=kind, metavar=metavar, **settings)


def save_plan_option() -> Any:
    """``--save-plan``, for commands whose plans can be reviewed in between."""
    return option("Write the plan to FILE; implies --dry-run.", type=click.Path(path_type=Path), metavar="FILE")


def plan_option() -> Any:
    """``--plan``, for commands whose plans can be reviewed in between."""
    text = "Apply a saved plan, if it would still change the same files."
    return option(text, type=click.Path(path_type=Path), metavar="FILE")


def older_release_option() -> Any:
    """``--allow-older-release``, for commands whose result depends on the release."""
    return flag(
        "Write by the rules of --broker-version although the store was written by a newer release: after a downgrade."
    )
