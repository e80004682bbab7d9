"""`rmqtool replay STORE|PARQUET --nameserver H:P`: messages to a live cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rmqtool.base.errors import Exit, NotAStoreError, UsageError
from rmqtool.base.numbers import byte_size
from rmqtool.commands.options import argument, command, flag, option, parsed, time_or_clock
from rmqtool.commands.shared_options import (
    OnStore,
    StorePath,
    dry_run_option,
    filter_options,
    limit_option,
    yes_option,
)
from rmqtool.commands.writing import confirm
from rmqtool.findings.finding import first_of
from rmqtool.show.output import Style, note
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.replay.connection import Security
    from rmqtool.replay.requests import Rewriting
    from rmqtool.replay.sending import Replay, Selection
    from rmqtool.scan.filters import Filters
    from rmqtool.store.snapshot import Snapshot

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?", re.ASCII)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_PATH = click.Path(path_type=Path)


@parsed
def _name_servers(value: str) -> tuple[str, ...]:
    from rmqtool.replay.connection import parse_address

    addresses = tuple(each.strip() for each in re.split("[;,]", value) if each.strip())
    for address in addresses:
        parse_address(address)
    if not addresses:
        raise ValueError("no address is given")
    return addresses


@parsed
def _topics(values: tuple[str, ...]) -> dict[str, str]:
    """New names by old ones; that of all is under the empty name."""
    names: dict[str, str] = {}
    for value in values:
        old, separator, new = value.rpartition("=")
        if not new or (separator and not old) or old in names or (names and "" in {old, *names}):
            raise ValueError(f"{value!r} is not one TOPIC, or OLD=NEW, once for each OLD")
        names[old] = new
    return names


@parsed
def _rate(value: str) -> float:
    match = _RATE.fullmatch(value.strip())
    rate = float(match[1]) if match else 0.0
    if rate <= 0:
        raise ValueError(f"{value!r} is not a rate; example: 200/s (messages a second)")
    return rate


@parsed
def _seconds(value: str) -> float:
    match = _SECONDS.fullmatch(value.strip())
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if not 0 < seconds <= 86_400:
        raise ValueError(f"{value!r} is not a duration; examples: 10s, 2m")
    return seconds


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(OnStore):
    """What was asked for."""

    path: Path = argument("STORE|PARQUET", StorePath())
    name_servers: tuple[str, ...] | None = option(
        "Name server of the target; separate several with ';'. Not needed for --dry-run.",
        "--nameserver", callback=_name_servers, metavar="HOST:PORT",
    )  # fmt: skip
    unconsumed_by: str | None = option(
        "Only what this consumer group has not consumed, by its committed offsets.", metavar="GROUP"
    )
    dead_letters_of: str | None = option(
        "The dead letters of this consumer group; --topic is then their original topic.", metavar="GROUP"
    )
    delays: Literal["leave-out", "keep", "now"] = option(
        "What to do with delayed messages that still wait: skip them, keep their time, or send them now.",
        type=click.Choice(["leave-out", "keep", "now"]), default="leave-out",
    )  # fmt: skip
    include_replays: bool = flag("Also send messages that an earlier replay has put into this store.")
    to_topics: dict[str, str] = option(
        "Send to this topic, or messages of OLD to NEW. Repeatable.",
        "--to-topic", multiple=True, callback=_topics, metavar="[OLD=]NEW",
    )  # fmt: skip
    to_retry_topic: bool = flag("Send retries and dead letters to %RETRY%GROUP, which only their group consumes.")
    keep_dispatch: bool = flag("Also keep the properties that put a message into light queues.")
    empty_bodies: Literal["refuse", "blank"] = option(
        "Messages without a body, which brokers refuse: skip them, or send them with one blank.",
        type=click.Choice(["refuse", "blank"]), default="refuse",
    )  # fmt: skip
    look_up: bool = option(
        "Look for each message on the target by its unique key before it is sent.",
        "--look-up/--no-look-up", default=True,
    )  # fmt: skip
    send_again: bool = flag(
        "Also send messages whose key the target has from elsewhere: for a replay into the same cluster."
    )
    send: bool = flag("Send the messages; without it they are only counted.")
    journal: Path | None = option(
        "File with a receipt for each message sent. Default: next to the source.", type=_PATH, metavar="FILE"
    )
    rate: float | None = option("Send at most this many messages a second.", callback=_rate, metavar="N/s")
    batch: int = option(
        "Send up to N messages of a queue together, where possible.",
        type=click.IntRange(1, 4096), default=64, metavar="N",
    )  # fmt: skip
    loose_born_time: bool = flag("Allow batches of messages with different born times: all get that of the first.")
    keep_going: bool = flag("Continue after a message was refused.")
    timeout: float = option(
        "How long to wait for a connection, and for each answer.", callback=_seconds, default="10s", metavar="TIME"
    )
    patience: float = option("How long to retry unreachable brokers.", callback=_seconds, default="1m", metavar="TIME")
    acl_file: Path | None = option("File with accessKey and secretKey, such as tools.yml.", type=_PATH, metavar="FILE")
    tls: bool = flag("Connect with TLS.")
    tls_ca: Path | None = option(
        "CA certificates for the target, instead of the system's; implies --tls.",
        type=_PATH, metavar="FILE",
    )  # fmt: skip
    tls_cert: Path | None = option(
        "Client certificate, with or without its key; implies --tls.", type=_PATH, metavar="FILE"
    )
    tls_key: Path | None = option("Private key of the client certificate.", type=_PATH, metavar="FILE")
    tls_no_verify: bool = flag("Accept any certificate; implies --tls.")
    filters: Filters = filter_options()
    limit: int | None = limit_option()
    dry_run: bool = dry_run_option()
    yes: bool = yes_option()

    def require_consistent(self) -> None:
        """Raise UsageError for options that do not fit each other."""
        if self.send and self.dry_run:
            raise UsageError("give either --send or --dry-run")
        if self.unconsumed_by and self.dead_letters_of:
            raise UsageError("give either --unconsumed-by or --dead-letters-of")
        if self.yes and not self.send:
            raise UsageError("--yes answers the question of --send, which is missing")

    @property
    def security(self) -> Security:
        """How to connect; raises UsageError."""
        from rmqtool.replay.connection import Security, read_credentials, tls_context

        if self.tls_key is not None and self.tls_cert is None:
            raise UsageError("--tls-key is the key of a certificate: name it with --tls-cert")
        tls = None
        if self.tls or self.tls_no_verify or self.tls_ca or self.tls_cert:
            files = (None if path is None else str(path) for path in (self.tls_ca, self.tls_cert, self.tls_key))
            tls = tls_context(*files, verifies=not self.tls_no_verify)
        return Security(self.timeout, tls, None if self.acl_file is None else read_credentials(self.acl_file))

    @property
    def sends_delayed(self) -> bool:
        """Whether messages that wait are sent."""
        return self.delays != "leave-out"


_EXPECTED = "neither a store (a directory with commitlog/) nor an export (its directory or a Parquet file)"
_NAMES_FOUND = 4  # of a directory, that are shown
_MOST_DELAYED = 1_000_000  # messages that wait, whose times are kept in memory


def selections_of(given: ReplayOptions) -> list[Selection]:
    """The messages; raises UsageError, NotAStoreError or UnreadableError."""
    from rmqtool.replay.sending import Selection
    from rmqtool.replay.sources import ParquetSource, is_parquet
    from rmqtool.store.store import COMMIT_LOG

    rewriting = _rewriting(given)
    if not (given.path / COMMIT_LOG).exists() and is_parquet(given.path):
        if given.unconsumed_by or given.sends_delayed:
            option = "--unconsumed-by" if given.unconsumed_by else "--delays"
            raise UsageError(f"{option} needs the store: it is not in an export", file=given.path)
        filters, rewriting = _dead_letters(given, rewriting)
        source = ParquetSource(given.path, filters)
        if not source.files:
            raise UsageError("it has no Parquet files", file=given.path)
        return [Selection(source, rewriting)]
    return [*_of_store(given, rewriting)]


def _of_store(given: ReplayOptions, rewriting: Rewriting) -> Iterator[Selection]:
    from rmqtool.replay.requests import DELAYED_TOPICS
    from rmqtool.replay.sending import Selection
    from rmqtool.replay.sources import StoreSource, Unconsumed
    from rmqtool.scan.filters import TopicChoice
    from rmqtool.store.splits import find_source
    from rmqtool.store.store import NamedStore

    try:
        snapshot = given.opened.snapshot
    except NotAStoreError as error:
        raise NotAStoreError(f"{_EXPECTED}; found: {_found(given.path)}", file=given.path, hint=error.hint) from error
    store, rate = snapshot.store, snapshot.bytes_per_second
    filters, unconsumed = given.filters, None
    log = find_source(NamedStore("", store), filters.start, filters.stop)
    choice = filters.topic_choice
    if given.unconsumed_by:
        unconsumed = Unconsumed.of_group(snapshot, given.unconsumed_by)
        topics = tuple(topic for topic in unconsumed.topics if topic in choice)
        if not topics:
            groups = sorted({each.group for each in snapshot.committed.offsets})
            hint = f"groups that have: {', '.join(groups[:8])}" if groups else None
            raise UsageError(f"the group {given.unconsumed_by} has committed no offset of such a topic", hint=hint)
        if queues := unconsumed.queues_without(snapshot):
            shown = ", ".join(f"{topic} {queue_id}" for topic, queue_id in queues[:5])
            without = f"the group has committed no offset of {len(queues)} queues ({shown})"
            note(f"{without}: all of them counts as not consumed")
        filters = replace(filters, topics=topics, excluded_topics=())
        rewriting = replace(rewriting, named=TopicChoice(topics))
    elif given.dead_letters_of:
        _require_group(snapshot, given.dead_letters_of)
        filters, rewriting = _dead_letters(given, rewriting)
    if given.sends_delayed:
        filters = replace(filters, excluded_topics=(*filters.excluded_topics, *DELAYED_TOPICS))
    yield Selection(StoreSource(snapshot, log, filters, unconsumed, rate), rewriting)
    if given.sends_delayed:
        delayed = replace(given.filters, topics=DELAYED_TOPICS, excluded_topics=(), queue_ids=())
        chosen = replace(rewriting, due=_due(snapshot), keeps_due=given.delays == "keep", choice=choice,
                         queue_ids=frozenset(given.filters.queue_ids))  # fmt: skip
        yield Selection(StoreSource(snapshot, log, delayed, None, rate), chosen)


def _rewriting(given: ReplayOptions) -> Rewriting:
    from rmqtool.replay.requests import Rewriting

    names = dict(given.to_topics)
    return Rewriting(
        named=given.filters.topic_choice,
        only_topic=names.pop("", None),
        topics=names,
        to_group=given.to_retry_topic,
        include_replays=given.include_replays,
        keep_dispatch=given.keep_dispatch,
        blank_for_empty=given.empty_bodies == "blank",
    )


def _dead_letters(given: ReplayOptions, rewriting: Rewriting) -> tuple[Filters, Rewriting]:
    """Filters for the dead letters of a group, if they are asked for: topics are then those that they came from."""
    from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX
    from rmqtool.scan.filters import TopicChoice

    group = given.dead_letters_of
    if not group:
        return given.filters, rewriting
    topics = (f"{DEAD_LETTER_PREFIX}{group}",)
    filters = replace(given.filters, topics=topics, excluded_topics=())
    return filters, replace(rewriting, named=TopicChoice(topics), choice=given.filters.topic_choice)


def _due(snapshot: Snapshot) -> dict[int, int]:
    """When each message that waits for a delay level or the timer is due, epoch ms, by its physical offset."""
    from rmqtool.base.tolerant import ReadErrors
    from rmqtool.pending.work import PendingRequest, pending_work

    now = time_or_clock(None)
    request = PendingRequest(now, kinds=("delay", "lost-delay", "timer", "lost-timer"), limit=_MOST_DELAYED)
    work = pending_work(snapshot, ReadErrors(), request, lambda _: None)
    for unread in (*work.unread, *work.notes.unread):
        note(f"delayed messages may be missing: {unread}")
    rows = zip(*(work.messages.column(name).to_pylist() for name in ("physical_offset", "due_timestamp")), strict=True)
    due = {offset: time_due or now for offset, time_due in rows}
    if len(due) >= _MOST_DELAYED:
        raise UsageError(f"more than {_MOST_DELAYED} messages wait: send those of fewer topics at once")
    return due


def _found(path: Path) -> str:
    """What a path is that is neither store nor export."""
    from rmqtool.base.files import list_directory
    from rmqtool.inspect.locate import detect_kind, name_of

    if path.is_dir():
        names = [entry.name for entry in list_directory(path)]
        return f"a directory with {first_of(names, _NAMES_FOUND)}" if names else "an empty directory"
    if not path.is_file():
        return "neither a file nor a directory"
    kind = detect_kind(path)
    return name_of(kind) if kind else f"a file of {byte_size(path.stat().st_size)} that is not a Parquet file"


def _require_group(snapshot: Snapshot, group: str) -> None:
    """Raise UsageError for a group of which the store shows nothing, where it shows others."""
    from rmqtool.query.groups import groups_of
    from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
    from rmqtool.store.config_tables import GROUPS, load_table, main_table

    table = main_table(GROUPS, load_table(snapshot.store, GROUPS).content)
    known = {*groups_of(snapshot), *(table or ())}
    retries, letters = (
        {topic.removeprefix(prefix) for topic in snapshot.topic_names if topic.startswith(prefix)}
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX)
    )
    known |= retries | letters
    if known and group not in known:
        with_letters = sorted(letters)
        shown = f"groups with dead letters: {', '.join(with_letters[:8])}" if with_letters else None
        raise UsageError(f"the store has no group {group}", hint=shown)


@command(
    "replay",
    ReplayOptions,
    (
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876",
        "rmqtool replay /data/rocketmq/store --dead-letters-of billing --dry-run",
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876 --send",
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876 \\\n"
        "    --dead-letters-of billing --send --rate 100/s",
        "rmqtool replay /lake/orders --nameserver localhost:9876 --to-topic test",
    ),
    {
        Exit.OK: "done; or everything selected can be sent",
        Exit.FINDINGS: "nothing was selected; or, counted only, some cannot be sent",
        Exit.USAGE: "the command line is wrong, or the journal is of another replay",
        Exit.LOSSY: "some messages were refused, left out, or are damaged in the source",
        Exit.FAILED: "the target cannot be reached, or was unreachable too long: run it again",
        Exit.NOT_A_STORE: "neither a store nor an export",
    },
)
def replay(style: Style, given: ReplayOptions) -> Exit:
    """Send messages of a store to a live cluster.

    The messages come from a store, or from the Parquet files of an export. Without --send nothing is sent: rmqtool
    counts messages, and shows where they would go, which of them the target refuses, and which it already has. With
    --send each message gets a receipt in a journal; after an interruption the same command continues and avoids
    duplicates that it can detect. Nothing in the source is changed.
    """
    from rmqtool.replay.cluster import Cluster
    from rmqtool.replay.sending import Replay, SendOptions

    given.require_consistent()
    security = given.security
    selections = selections_of(given)
    journal = given.journal or Path(f"{given.path.resolve()}.replay.ndjson")
    _check_journal(journal, given.path)
    if not (given.name_servers or given.dry_run):
        raise UsageError("no target: give --nameserver HOST:PORT", hint="--dry-run counts without it")
    options = SendOptions(batch=given.batch, rate=given.rate, patience=given.patience,
                          loose_born_time=given.loose_born_time, looks_up=given.look_up,
                          send_again=given.send_again, keeps_going=given.keep_going)  # fmt: skip
    with Cluster(given.name_servers or (), security) as cluster:
        job = Replay(selections, cluster, options, given.limit)
        if given.send:
            return _send(style, job, journal, yes=given.yes)
        return _plan(style, job, journal)


def _plan(style: Style, job: Replay, journal: Path) -> Exit:
    """Count, and show what was counted."""
    from rmqtool.replay.journal import read_done
    from rmqtool.show.replay import show_plan, write_plan

    before = read_done(journal, job.header())
    with byte_progress("counting", job.size, style=style) as progress:
        plan = job.plan(before, progress.update, looks_up=job.options.looks_up and job.cluster.is_known)
    status = Exit.FINDINGS if plan.unsendable or not (plan.total.messages or plan.done_before) else Exit.OK
    status = Exit.LOSSY if plan.reading.damaged_extents else status
    if style.json:
        write_plan(plan, job, journal, style, status)
        return status
    show_plan(plan, job, style)
    if not style.quiet:
        note("nothing was sent" + ("; to send it, add --send" if plan.total.messages else ""))
    return status


def _send(style: Style, job: Replay, path: Path, *, yes: bool) -> Exit:
    """Count, ask, send, and show what was sent."""
    from rmqtool.replay.journal import Journal, read_done
    from rmqtool.show.replay import question, show_plan, show_sent, write_sent

    with byte_progress("counting", job.size, style=style) as progress:
        plan = job.plan(read_done(path, job.header()), progress.update, looks_up=False)
    if not style.json and not (yes and style.quiet):
        show_plan(plan, job, style)
    if plan.total.messages:
        confirm(question(plan, job), yes=yes)
    with Journal(path, job.header()) as journal, byte_progress("sending", job.size, style=style) as progress:
        sent = job.send(journal, progress.update)
    if not style.json:
        show_sent(plan, sent, path, style)
    if sent.error is not None:
        sent.error.hint = sent.error.hint or "the same command continues where it stopped"
        raise sent.error
    is_lossy = sent.result.refused or sent.outcome.unsendable or sent.outcome.reading.damaged_extents
    is_empty = not (plan.total.messages or plan.done_before)
    status = Exit.LOSSY if is_lossy else Exit.FINDINGS if is_empty else Exit.OK
    if style.json:
        write_sent(plan, sent, job, path, style, status)
    return status


def _check_journal(journal: Path, source: Path) -> None:
    """Raise UsageError for a journal that would be a file of the source."""
    if source.is_dir() and journal.resolve().is_relative_to(source.resolve()):
        raise UsageError("the journal would be a file of the source: give a path outside of it", file=journal)
    if journal.resolve() == source.resolve() or (journal.exists() and not journal.is_file()):
        raise UsageError("the journal must be a file of its own", file=journal)
