"""`rmqtool query STORE`: find messages, trace them, answer as the broker would."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.numbers import OFFSETS
from rmqtool.base.times import with_times
from rmqtool.base.visible import quote, visible
from rmqtool.commands import shared_options as shared
from rmqtool.commands.completion import complete_group
from rmqtool.commands.options import argument, command, flag, is_given, option, parsed, time_of
from rmqtool.findings.finding import counted
from rmqtool.rules.versions import (
    BEYOND_MAX_TO_MAX,
    PULL_BY_UNITS,
    TIER_REWRITTEN,
    TIME_BY_RECORDS,
    Version,
    release_before,
)
from rmqtool.show.output import Style, note, print_lines, terminal_width, write_line, write_text
from rmqtool.show.pager import begin_paging
from rmqtool.show.progress import job_progress

if TYPE_CHECKING:
    from rmqtool.base.decoders import Decoder
    from rmqtool.broker.offset_by_time import QueueTimes
    from rmqtool.broker.pull import Answer, Subscription
    from rmqtool.clients.queue_view import QueueHole, QueueViews
    from rmqtool.query.by_place import Message, Notes
    from rmqtool.query.lookup import By, Condition, Lookup
    from rmqtool.rules.versions import Releases
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import BodyChoice, BodyDecoder
    from rmqtool.scan.redaction import Redaction
    from rmqtool.show.messages import BodyFormat
    from rmqtool.store.queue_units import LoadedQueue
    from rmqtool.store.snapshot import Snapshot

Question = Literal[
    "pull", "at", "group", "time", "scan", "offset", "msg-id", "unique-key", "key", "queue-offset",
]  # fmt: skip
"""A question, named as its option."""

_REDACT = {"redact", "redact-as", "redact-salt"}
_SHOWING = {"body", "body-format", "columns", "decoder", "save-body", "trace"} | _REDACT
_FILTERS = {
    "topic", "exclude-topic", "queue", "tag", "key", "unique-key", "transaction", "from", "to", "from-offset",
    "to-offset", "limit",
}  # fmt: skip
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


@parsed
def _conditions(values: tuple[str, ...]) -> tuple[Condition, ...]:
    if not values:
        return ()
    from rmqtool.query.lookup import parse_condition

    return tuple(map(parse_condition, values))


@parsed
def _columns(value: str) -> tuple[str, ...]:
    from rmqtool.show.messages import chosen_fields

    return chosen_fields(value)


_OFFSET = click.IntRange(*OFFSETS)


@dataclass(frozen=True, kw_only=True)
class QueryOptions(shared.OnTier):
    """What was asked for."""

    path: Path = argument("STORE", shared.StorePath(may_be_remote=True))
    unique_key: str | None = option("By the unique key, which clients print as the message id.", metavar="KEY")
    msg_id: str | None = option(
        "By a message id as printed by a client or broker: offset message id or unique key.",
        "--id",
        "--msg-id",
        metavar="ID",
    )
    offset: int | None = option("By the physical offset in the commit log.", type=_OFFSET, metavar="BYTES")
    queue_offset: int | None = option("By the offset in --topic and --queue.", type=_OFFSET, metavar="N")
    time: int | None = option("By store time: 10 messages from then on.", callback=time_of, metavar="TIME")
    scan: bool = flag("Read every message of the log, without index and queues.")
    where: tuple[Condition, ...] = option(
        "Scan for a property: NAME=TEXT, NAME!=TEXT, NAME~TEXT (contains). Repeatable.",
        multiple=True, callback=_conditions, metavar="NAME=TEXT",
    )  # fmt: skip
    body_contains: str | None = option("Scan for a text in the decompressed body.", metavar="TEXT")
    hash_matches: bool = flag("With a key: one message for each index entry with its hash.")
    trace: bool = flag("Where each message is stored, who has read it, what happened to it.")
    pull: bool = flag("What a pull at --queue-offset returns.")
    most: int = option(
        "With --pull, how many messages to ask for.", "--max", type=click.IntRange(1, 1 << 20), default=32, metavar="N"
    )
    at: int | None = option(
        "The queue offset for a time, as resetOffsetByTime finds it.", callback=time_of, metavar="TIME"
    )
    group: str | None = option(
        "Show what a consumer group has consumed.", metavar="GROUP", shell_complete=complete_group
    )
    filters: Filters = shared.filter_options()
    limit: int | None = shared.limit_option()
    columns: tuple[str, ...] = option(
        "Show only these fields, separated by commas.", callback=_columns, metavar="NAMES", show_default=False
    )
    body: BodyChoice = shared.body_option()
    body_format: BodyFormat = shared.body_format_option()
    save_body: Path | None = option(
        "Write the body of the message found to a new file.",
        type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    )  # fmt: skip
    redaction: Redaction | None = shared.redact_options()
    decoder: Decoder | None = shared.decoder_option()
    decoding: BodyDecoder | None = None  # the decoder as it runs

    @property
    def body_read(self) -> BodyChoice:
        """The form of the body that is read, which a decoder needs."""
        return "decompressed" if self.decoder and self.body == "none" else self.body


def question_of() -> Question:
    """The question of the command line; raises UsageError without one, or for options that do not go together."""
    given = {name for name in _ALL if is_given({"max": "most"}.get(name, name.replace("-", "_")))}
    asked = next((question for question in _FITTING if question in given), None)
    if given & _CONTENT and asked not in ("time", "scan"):
        given.add("scan")
        asked = "scan" if asked not in ("pull", "at", "group") else asked
    if asked is None:
        raise UsageError(
            "name a message: --key, --unique-key, --msg-id, --offset, --queue-offset, --time or --scan",
            hint="--scan reads all messages that match the filters"
            if given & _FILTERS
            else "or use --pull, --at or --group; rmqtool query --help has examples",
        )
    unfit = sorted(given - _FITTING[asked] - {asked})
    if unfit:
        raise UsageError(f"--{asked} does not go with {', '.join(f'--{name}' for name in unfit)}")
    if {"trace", "columns"} <= given:
        raise UsageError("--trace does not go with --columns")
    return asked


def one_queue(question: Question, topics: tuple[str, ...], queue_ids: tuple[int, ...]) -> tuple[str, int]:
    """The one topic and queue that a question needs; raises UsageError."""
    from rmqtool.scan.filters import is_pattern

    if len(topics) != 1 or is_pattern(topics[0]) or len(queue_ids) != 1:
        example = _EXAMPLES.get(question, "--topic T --queue 0 --queue-offset 42")
        raise UsageError(f"--{question} needs one --topic and one --queue", hint=f"for example: {example}")
    return topics[0], queue_ids[0]


@command(
    "query",
    QueryOptions,
    (
        "rmqtool query /data/rocketmq/store --key order-42 --topic orders",
        "rmqtool query /data/rocketmq/store --offset 42594 --trace",
        "rmqtool query /data/rocketmq/store --body-contains 4711 --from -2h",
        "rmqtool query /data/rocketmq/store --offset 42594 --decoder zcat",
        "rmqtool query /data/rocketmq/store --at -2h --topic orders",
        "rmqtool query /data/rocketmq/store --group billing --json",
        "rmqtool query s3://backups/store --key ORD-1010 --topic payments",
    ),
    {
        Exit.OK: "found",
        Exit.FINDINGS: "not found; nothing on standard output",
        Exit.LOSSY: "found, but damage may hide more, or a body is damaged or not decoded",
        Exit.FAILED: "something cannot be read, or a layout is not supported",
    },
    {
        "Find messages": (
            *("key", "unique-key", "msg-id", "offset", "queue-offset", "time", "scan", "where", "body-contains"),
            *("hash-matches", "trace"),
        ),
        "Or ask as a consumer": ("group", "pull", "max", "at"),
    },
)
def query(style: Style, given: QueryOptions) -> Exit:
    """Find a message: where it is and who has read it.

    STORE is the directory that broker.conf calls storePathRootDir. Nothing in it is changed, and a broker may be
    running on it. The answers are those that a broker would give from the same files.
    """
    from rmqtool.query.by_place import Notes
    from rmqtool.store.snapshot import HIDDEN_ENTRIES

    question = question_of()
    snapshot = given.opened.snapshot
    notes = Notes()
    begin_paging(style)
    if given.decoder is None:
        status = _answer(style, snapshot, question, given, notes)
    else:
        from rmqtool.scan.message_rows import BodyDecoder

        with BodyDecoder(given.decoder, given.redaction, given.body) as decoding:
            status = _answer(style, snapshot, question, replace(given, decoding=decoding), notes)
        for sentence in decoding.failures.sentences():
            notes.add(visible(sentence), lossy=True)
    if snapshot.hides_entries and (given.trace or question in ("pull", "at", "group", "queue-offset")):
        notes.add(f"{HIDDEN_ENTRIES}: this is as of the last flush")
    if not style.quiet:
        for line in notes.lines:
            note(line)
    return Exit.LOSSY if status is Exit.OK and notes.lossy else status


def _answer(style: Style, snapshot: Snapshot, question: Question, given: QueryOptions, notes: Notes) -> Exit:
    match question:
        case "pull":
            return pull(style, snapshot, given, notes)
        case "at":
            return offsets_at(style, snapshot, given, notes)
        case "group":
            return group(style, snapshot, str(given.group), notes)
        case _:
            return _show_messages(style, snapshot, question, given, notes)


def _lookup_of(question: Question, given: QueryOptions) -> Lookup:
    """The question for messages that the command line asks."""
    from rmqtool.query.lookup import Lookup

    filters, conditions, contains = given.filters, given.where, given.body_contains
    unique_key = given.unique_key and given.unique_key.strip()
    if unique_key is not None and question in ("scan", "time"):
        from rmqtool.query.lookup import Condition

        conditions += (Condition("UNIQ_KEY", "=", unique_key),)
    return Lookup(
        by=cast("By", question),
        number=getattr(given, question.replace("-", "_")) if question in ("offset", "queue-offset", "time") else 0,
        text=(given.msg_id or "").strip() if question == "msg-id" else unique_key or "",
        queue=one_queue(question, filters.topics, filters.queue_ids) if question == "queue-offset" else ("", 0),
        filters=filters,
        conditions=conditions,
        body_contains=None if contains is None else contains.encode(),
        limit=given.limit,
        hash_matches=given.hash_matches,
    )


def _show_messages(style: Style, snapshot: Snapshot, question: Question, given: QueryOptions, notes: Notes) -> Exit:
    """Show the messages that the command line asks for; a scan is done under a progress bar."""
    from rmqtool.query.lookup import look_up
    from rmqtool.show.messages import MessageTable

    save_to = given.save_body
    if save_to is not None:
        _refuse_saving(snapshot, save_to, given)
    last, count = None, 0
    table = MessageTable(style, given.columns) if given.columns else None
    with job_progress(style, "reading the commit log") as progress:
        lookup = _lookup_of(question, given)
        for count, message in enumerate(look_up(snapshot, lookup, given.body_read, notes, progress), 1):
            if count > 1 and save_to is not None:
                hint = "add --limit 1 or --offset"
                raise UsageError("--save-body is for one message, but several are found", hint=hint)
            notes.lossy |= not message["body_crc_ok"] or "body_error" in message
            last = message
            if given.decoding is not None:
                given.decoding.add_to(message)
            if table is None:
                _show_message(style, snapshot, message, given)
            else:
                table.add(given.redaction.value(message) if given.redaction else message)
    if table is not None:
        table.end()
    if last is None:
        return Exit.FINDINGS
    if save_to is not None:
        _save_body(last, save_to)
    if not style.quiet and not style.json and "place" not in last:
        _note_next(snapshot, last, count, given)
    return Exit.OK


def _show_message(style: Style, snapshot: Snapshot, message: Message, given: QueryOptions) -> None:
    if given.trace and "place" not in message:
        from rmqtool.query.trace import trace_of

        message["places"] = trace_of(snapshot, message).as_json(snapshot)
    if given.redaction:
        message = given.redaction.value(message)
    if style.json:
        write_line(style, message)
        return
    from rmqtool.show.messages import object_text

    write_text(object_text(message, given.body_format, color=style.wants_color(), width=terminal_width()))
    if given.trace and "place" not in message:
        from rmqtool.show.query import show_trace

        show_trace(style.console(), message)


def _refuse_saving(snapshot: Snapshot, save_to: Path, given: QueryOptions) -> None:
    """Raise UsageError for a body to be saved inside the store, one that is redacted, or none."""
    if given.redaction and given.redaction.hides("body"):
        raise UsageError("--save-body would write what --redact bodies hides")
    if given.body == "none":
        raise UsageError("--save-body needs a body: not --body none")
    if save_to.resolve().is_relative_to(snapshot.store.root.resolve()):
        raise UsageError(f"{save_to} is inside the store, where nothing is written")


def _save_body(message: Message, save_to: Path) -> None:
    data = base64.b64decode(message["body_base64"]) if message["body"] is None else message["body"].encode()
    try:
        with save_to.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(f"{save_to} exists already", hint="--save-body writes a new file only") from None


def _note_next(snapshot: Snapshot, message: Message, count: int, given: QueryOptions) -> None:
    command = _command_on(snapshot)
    note("")
    if not given.trace:
        what = f"who has read {'it' if count == 1 else 'the last one'}, and what happened to it"
        note(f"{what}: {command} --offset {message['physical_offset']} --trace")
        return
    place = f"--topic {quote(message['topic'])} --queue {message['queue_id']} --queue-offset {message['queue_offset']}"
    note(f"what a consumer gets from there: {command} --pull {place}")


def _command_on(snapshot: Snapshot) -> str:
    """How a command line begins that asks the same store."""
    conf = f" --broker-conf {quote(snapshot.store.conf.path)}" if snapshot.store.conf.path else ""
    return f"rmqtool query {quote(str(snapshot.store.root))}{conf}"


_GOES_ON = ("ok", "hole", "never-consumed")  # states of an offset from which a group gets a message next


def pull(style: Style, snapshot: Snapshot, given: QueryOptions, notes: Notes) -> Exit:
    """Print the broker's answer to a pull, whatever its status."""
    from rmqtool.broker.pull import Subscription, compacted_puller, puller_from
    from rmqtool.clients.queue_view import QueueView, QueueViews
    from rmqtool.query.by_place import COMPACTED, Elsewhere, why_no_queue
    from rmqtool.query.tiered import pull_tiered, tiered_view

    filters = given.filters
    topic, queue_id = one_queue("pull", filters.topics, filters.queue_ids)
    start = given.queue_offset
    if start is None:
        raise UsageError("--pull needs --queue-offset", hint="how far the consumer is: rmqtool query STORE --group G")
    views = QueueViews.of_snapshot(snapshot)
    compacted = compacted_puller(snapshot, topic, queue_id)
    elsewhere = Elsewhere(COMPACTED, compacted.files) if compacted else None
    tiered = tiered_view(snapshot, topic, queue_id, notes)
    puller = compacted or puller_from(snapshot, views.loaded(topic, queue_id))
    if puller.queue is None:
        notes.add(f"{topic} queue {queue_id} is compacted, and a broker loads no compacted log of it" if compacted else
                  why_no_queue(snapshot, topic, queue_id))  # fmt: skip
    subscription = Subscription(filters.tags)

    def of_tier(version: Version) -> Answer | None:
        return pull_tiered(snapshot, tiered, start, given.most, subscription, version) if tiered else None

    def answer_of(version: Version) -> Answer:
        return of_tier(version) or replace(puller, version=version).pull(start, given.most, subscription)

    if tiered and (answer := of_tier(puller.version)):
        elsewhere = tiered.elsewhere
    else:
        answer = answer_of(puller.version)
    _note_other_releases(snapshot.releases, answer_of, answer, notes)
    view = QueueView() if answer.status == "FOUND" or elsewhere else views.of(topic, queue_id)
    hole = view.hole_at(start) or view.hole_at(answer.next_begin_offset)
    if hole:
        notes.add(_hole_text(views, topic, queue_id, hole), lossy=True)
    if answer.passed_over:
        lost = counted(answer.passed_over, "message")
        notes.add(
            f"{lost} skipped: no log file has the messages that they point to; consumers continue after them",
            lossy=True,
        )
    line = {
        "kind": "pull",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": start,
        "max": given.most,
        "tags": list(filters.tags),
        **{name: getattr(answer, name) for name in ("status", "next_begin_offset", "min_offset", "max_offset")},
        "hole": hole.as_json() if hole else None,
        "messages": [_sent(snapshot, unit, subscription, given, notes, elsewhere) for unit in answer.units],
    }
    _show_pull(style, given.redaction.value(line) if given.redaction else line, given.body_format)
    return Exit.OK


def _show_pull(style: Style, line: dict[str, Any], body_format: BodyFormat) -> None:
    from rmqtool.show.messages import object_text
    from rmqtool.show.query import show_pull

    if style.json:
        write_line(style, line)
        return
    show_pull(style.console(), line)
    for message in line["messages"]:
        write_text(object_text(message, body_format, color=style.wants_color(), width=terminal_width()))
        if not message.get("tag_matches", True):
            write_text("  the client drops it: its tag only has the same hash as a wanted one\n")


def _note_other_releases(
    releases: Releases, answer_of: Callable[[Version], Answer], answer: Answer, notes: Notes
) -> None:
    """Note the answers of the other releases that fit, where they differ from `answer`."""
    for since in (BEYOND_MAX_TO_MAX, PULL_BY_UNITS, TIER_REWRITTEN):
        if not releases.oldest < since <= releases.newest:
            continue
        other = answer_of(release_before(since))
        if (other.status, other.next_begin_offset) != (answer.status, answer.next_begin_offset):
            answers = f"brokers before {since} answer {other.status}, next offset {other.next_begin_offset}"
            notes.add(f"{answers}: --broker-version names the release")


def _sent(
    snapshot: Snapshot, unit: Any, subscription: Subscription, given: QueryOptions, notes: Notes, elsewhere: Any
) -> Message:
    """The message that is sent for a unit, or the damage where no such message is."""
    from rmqtool.query.by_place import message_at

    message = message_at(snapshot, unit.physical_offset, given.body_read, elsewhere)
    if message is None or message["message_size"] != unit.message_size:
        notes.add(f"the bytes at {unit.physical_offset} are sent, but are not a message of that size", lossy=True)
        reason = "physical-offset" if message is None else "lengths"
        return {"kind": "damage", "physical_offset": unit.physical_offset, "size": unit.message_size, "reason": reason}
    if given.decoding is not None:
        given.decoding.add_to(message)
    return {**message, "tag_matches": subscription.takes(message["tags"])}


def offsets_at(style: Style, snapshot: Snapshot, given: QueryOptions, notes: Notes) -> Exit:
    """Print the queue offset for a time, of one queue or of all queues of a topic."""
    from rmqtool.broker.offset_by_time import QueueTimes
    from rmqtool.query.by_place import why_no_queue
    from rmqtool.scan.filters import is_pattern
    from rmqtool.show.query import show_offsets

    filters, timestamp = given.filters, given.at or 0
    if len(filters.topics) != 1 or is_pattern(filters.topics[0]):
        raise UsageError("--at needs one --topic", hint="for example: --at -2h --topic T --queue 0")
    topic = filters.topics[0]
    lines, others = [], []
    for queue_id in filters.queue_ids or snapshot.queue_ids(topic):
        queue = snapshot.queue(topic, queue_id)
        if queue is None:
            notes.add(why_no_queue(snapshot, topic, queue_id))
            continue
        times = QueueTimes(queue, snapshot.log_bytes)
        answer, older = times.broker(timestamp, snapshot.release), times.broker(timestamp, snapshot.releases.oldest)
        if older != answer:
            others.append(f"{older} for queue {queue_id}")
        lines.append(_offset_line(queue, times, timestamp, answer))
    if not lines:
        notes.add(why_no_queue(snapshot, topic, filters.queue_ids[0] if filters.queue_ids else 0))
        return Exit.FINDINGS
    if snapshot.release < TIME_BY_RECORDS or others:
        answers = f", and answer {', '.join(others)}" if others else ""
        before = f"brokers before {TIME_BY_RECORDS} use the modification times of queue files"
        notes.add(f"{before}{answers}: a copy may differ")
    _show(style, lines, show_offsets)
    return Exit.OK


def _offset_line(queue: LoadedQueue, times: QueueTimes, timestamp: int, answer: int) -> dict[str, Any]:
    asked = {"kind": "offset", "topic": queue.queue.topic, "queue_id": queue.queue.queue_id, "timestamp": timestamp}
    bounds = {name: times.boundary(timestamp, name) for name in ("lower", "upper")}
    offsets = {"min_offset": queue.range.min_offset, "max_offset": queue.range.max_offset}
    return with_times({**asked, **bounds, "broker": answer, **offsets})


def group(style: Style, snapshot: Snapshot, name: str, notes: Notes) -> Exit:
    """Print the committed offsets of a consumer group."""
    from rmqtool.clients.queue_view import QueueViews
    from rmqtool.query.groups import group_offsets, groups_of
    from rmqtool.show.query import show_consumers
    from rmqtool.store.missing import instead_of
    from rmqtool.store.rocksdb import is_readable
    from rmqtool.store.store import rocksdb_configs

    found = [*group_offsets(snapshot, name)]
    lines = [offset.as_json() for offset in found]
    if rocksdb_configs(snapshot.store) and not is_readable():
        notes.add("consumer offsets are kept in RocksDB, which needs the package rocksdict", lossy=True)
    if snapshot.leaves_queues_out:
        notes.add("consume queues are kept in RocksDB, which needs the package rocksdict", lossy=True)
    if snapshot.committed.file.problem:
        notes.add(f"consumer offsets: {snapshot.committed.file.problem}", lossy=True)
    if not lines and snapshot.committed.file.problem:
        notes.add(f"whether group {name} has committed an offset is not known")
        return Exit.FINDINGS
    if not lines:
        groups = groups_of(snapshot)
        instead = instead_of(name, groups) if groups else "; nor has any other group"
        notes.add(f"group {name} has committed no offset and has no retry queue here{instead}")
        return Exit.FINDINGS
    _show(style, lines, show_consumers)
    if not style.json:
        views = QueueViews.of_snapshot(snapshot)
        holes = ((each, each.hole) for each in found if each.hole)
        told = (_hole_text(views, each.topic, each.queue_id, hole) for each, hole in holes)
        print_lines(style.console(), *told)
        _note_next_message(style, snapshot, lines)
    return Exit.OK


def _note_next_message(style: Style, snapshot: Snapshot, lines: list[dict[str, Any]]) -> None:
    """Name the command that shows what the group gets next from the queue with its largest lag."""
    waiting = (line for line in lines if line["state"] in _GOES_ON and (line["lag"] or 0) > 0)
    behind = max(waiting, key=itemgetter("lag"), default=None)
    if behind is None or style.quiet:
        return
    offset = behind["min_offset"] if behind["committed_offset"] is None else behind["committed_offset"]
    place = f"--topic {quote(behind['topic'])} --queue {behind['queue_id']} --queue-offset {offset}"
    what = "next message for this group"
    note(f"{what}: {_command_on(snapshot)} {place} --trace")


def _hole_text(views: QueueViews, topic: str, queue_id: int, hole: QueueHole) -> str:
    """A hole, what is out of reach because of it, and the command that makes the queue whole."""
    return f"{topic} queue {queue_id}: {hole.told}; repair: {views.repair_of(topic, queue_id)}"


def _show(style: Style, lines: list[dict[str, Any]], show: Any) -> None:
    if style.json:
        for line in lines:
            write_line(style, line)
    else:
        show(style.console(), lines)
