"""`rmqtool query STORE`: find messages, trace them, answer as the broker would."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import rmqtool
from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.shell import quote
from rmqtool.base.visible import visible
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, store_options
from rmqtool.commands.query_options import Question, one_queue, query_options, question_of
from rmqtool.commands.store_path import StorePath
from rmqtool.commands.verifying import progress_bar
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note, terminal_width, write_line, write_text
from rmqtool.show.pager import begin_paging

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.query.by_place import Message
    from rmqtool.query.lookup import By, Lookup
    from rmqtool.query.notes import Notes
    from rmqtool.store.snapshot import Snapshot

_EPILOG = examples_and_statuses(
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
        Exit.LOSSY: "found, but damage may hide more, or a body is wrong or not decoded",
        Exit.FAILED: "something cannot be read, or a layout is not supported",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("query", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=StorePath(may_be_remote=True))
@query_options
@store_options
@global_options
@click.pass_obj
def query(
    style: Style,
    /,
    *,
    path: Path,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
    **asked: Any,
) -> Exit:
    """Find a message: where it is, and who has read it.

    STORE is the directory that broker.conf calls storePathRootDir. Nothing in it is changed, and a broker may run on
    it. Answers are those of the broker on the same files.
    """
    from rmqtool.query.notes import Notes

    style.store = str(path)
    question = question_of(click.get_current_context())
    store = rmqtool.open(path, broker_conf=broker_conf, broker_version=broker_version, limit_rate=limit_rate)
    snapshot = store.snapshot
    notes = Notes()
    begin_paging(style)
    status = _decoded_answer(style, snapshot, question, asked, notes)
    if not style.quiet:
        for line in notes.lines:
            note(line)
    return Exit.LOSSY if status is Exit.OK and notes.lossy else status


def _decoded_answer(style: Style, snapshot: Snapshot, question: Question, asked: dict[str, Any], notes: Notes) -> Exit:
    """The answer, with bodies decoded where that is asked for."""
    decoder, body = asked["decoder"], asked["body"]
    if decoder is None:
        return _answer(style, snapshot, question, {**asked, "body_read": body}, notes)
    from rmqtool.scan.decoding import BodyDecoder

    with BodyDecoder(decoder, asked["redaction"], body) as decoding:
        asked = {**asked, "decoder": decoding, "body_read": "decompressed" if body == "none" else body}
        status = _answer(style, snapshot, question, asked, notes)
    for sentence in decoding.failures.sentences():
        notes.add(visible(sentence), lossy=True)
    return status


def _answer(style: Style, snapshot: Snapshot, question: Question, asked: dict[str, Any], notes: Notes) -> Exit:
    from rmqtool.commands import query_answers

    match question:
        case "pull":
            return query_answers.pull(style, snapshot, asked, notes)
        case "at":
            return query_answers.offsets_at(style, snapshot, asked, notes)
        case "group":
            return query_answers.group(style, snapshot, asked["group"], notes)
        case _:
            return _show_messages(style, snapshot, question, asked, notes)


def _lookup_of(question: Question, asked: dict[str, Any]) -> Lookup:
    """The question for messages that the command line asks."""
    from rmqtool.query.lookup import Lookup

    filters, conditions, contains = asked["filters"], asked["where"], asked["body_contains"]
    unique_key = asked["unique_key"] and asked["unique_key"].strip()
    if unique_key is not None and question in ("scan", "time"):
        from rmqtool.query.by_scan import Condition

        conditions += (Condition("UNIQ_KEY", "=", unique_key),)
    return Lookup(
        by=cast("By", question),
        number=asked[question.replace("-", "_")] if question in ("offset", "queue-offset", "time") else 0,
        text=asked["msg_id"].strip() if question == "msg-id" else unique_key or "",
        queue=one_queue(question, filters.topics, filters.queue_ids) if question == "queue-offset" else ("", 0),
        filters=filters,
        conditions=conditions,
        body_contains=None if contains is None else contains.encode(),
        limit=asked["limit"],
        hash_matches=asked["hash_matches"],
    )


def _messages(
    style: Style, snapshot: Snapshot, question: Question, asked: dict[str, Any], notes: Notes
) -> Iterator[Message]:
    """The messages that the command line asks for; a scan is done under a progress bar."""
    from rmqtool.query.lookup import look_up

    with progress_bar(style, "reading the commit log") as progress:
        yield from look_up(snapshot, _lookup_of(question, asked), asked["body_read"], notes, progress)


def _show_messages(style: Style, snapshot: Snapshot, question: Question, asked: dict[str, Any], notes: Notes) -> Exit:
    save_to = asked["save_body"]
    if save_to is not None and asked["redaction"] and asked["redaction"].hides("body"):
        raise UsageError("--save-body writes what --redact bodies leaves out")
    if save_to is not None:
        _refuse_inside(snapshot, save_to, asked["body"])
    last, count = None, 0
    for message in _messages(style, snapshot, question, asked, notes):
        count += 1
        if count > 1 and save_to is not None:
            raise UsageError("--save-body is for one message, but several are found", hint="add --limit 1 or --offset")
        notes.lossy |= not message["body_crc_ok"] or "body_error" in message
        last = message
        if asked["decoder"] is not None:
            asked["decoder"].add_to(message)
        _show_message(style, snapshot, message, asked)
    if last is None:
        return Exit.FINDINGS
    if save_to is not None:
        _save_body(last, save_to)
    if not style.quiet and not style.json:
        _note_next(snapshot, last, count, asked)
    return Exit.OK


def _show_message(style: Style, snapshot: Snapshot, message: Message, asked: dict[str, Any]) -> None:
    if asked["trace"]:
        from rmqtool.query.trace import trace_of

        message["places"] = trace_of(snapshot, message).as_json(snapshot)
    if asked["redaction"]:
        message = asked["redaction"].value(message)
    if style.json:
        write_line(style, message)
        return
    from rmqtool.show.message_text import object_text

    write_text(object_text(message, asked["body_format"], color=style.wants_color(), width=terminal_width()))
    if asked["trace"]:
        from rmqtool.show.trace_text import show_trace

        show_trace(style.console(), message)


def _refuse_inside(snapshot: Snapshot, save_to: Path, body: str) -> None:
    """Raise UsageError for a body to be saved inside the store, or no body."""
    if body == "none":
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


def _note_next(snapshot: Snapshot, message: Message, count: int, asked: dict[str, Any]) -> None:
    store = quote(str(snapshot.store.root))
    conf = f" --broker-conf {quote(snapshot.store.conf.path)}" if snapshot.store.conf.path else ""
    command = f"rmqtool query {store}{conf}"
    note("")
    if not asked["trace"]:
        which = "it" if count == 1 else "the last one"
        note(
            f"who has read {which}, and what has become of it: {command} --offset {message['physical_offset']} --trace"
        )
        return
    topic, queue_id = quote(message["topic"]), message["queue_id"]
    note(
        f"what a consumer gets from there: {command} --pull --topic {topic} --queue {queue_id} "
        f"--queue-offset {message['queue_offset']}"
    )
