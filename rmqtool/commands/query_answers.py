"""Answers of `rmqtool query` besides messages: pulls, queue offsets for a time, consumer groups."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.shell import quote
from rmqtool.base.times import rfc3339
from rmqtool.base.visible import visible
from rmqtool.commands.query_options import one_queue
from rmqtool.findings.finding import counted
from rmqtool.rules.releases import release_before
from rmqtool.rules.versions import BEYOND_MAX_TO_MAX, PULL_BY_UNITS, TIME_BY_RECORDS, Version
from rmqtool.show.output import Style, note, terminal_width, write_line, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.broker.offset_by_time import QueueTimes
    from rmqtool.broker.pull import Answer, Subscription
    from rmqtool.clients.holes import QueueHole
    from rmqtool.clients.queue_view import QueueViews
    from rmqtool.query.by_place import Message
    from rmqtool.query.notes import Notes
    from rmqtool.rules.releases import Releases
    from rmqtool.store.queue_units import LoadedQueue
    from rmqtool.store.snapshot import Snapshot

_GOES_ON = ("ok", "hole", "never-consumed")  # states of an offset from which a group gets a message next


def pull(style: Style, snapshot: Snapshot, asked: dict[str, Any], notes: Notes) -> Exit:
    """Print the broker's answer to a pull, whatever its status."""
    from rmqtool.broker.pull import Subscription, puller_from
    from rmqtool.clients.holes import QueueView
    from rmqtool.clients.queue_view import QueueViews
    from rmqtool.query.by_place import why_no_queue
    from rmqtool.show.query_text import show_pull
    from rmqtool.store.topics import is_compacted

    filters = asked["filters"]
    topic, queue_id = one_queue("pull", filters.topics, filters.queue_ids)
    if asked["queue_offset"] is None:
        raise UsageError("--pull needs --queue-offset", hint="where the consumer stands: rmqtool query STORE --group G")
    views = QueueViews.of_snapshot(snapshot)
    puller = puller_from(snapshot, views.loaded(topic, queue_id))
    if puller.queue is None:
        notes.add(why_no_queue(snapshot, topic, queue_id))
    if is_compacted(snapshot.store, topic):
        notes.add(f"{topic} is compacted: a broker answers from compaction/, this is what the plain queue gives")
    subscription = Subscription(filters.tags)

    def answer_of(version: Version) -> Answer:
        return replace(puller, version=version).pull(asked["queue_offset"], asked["most"], subscription)

    answer = answer_of(puller.version)
    _note_other_releases(snapshot.releases, answer_of, answer, notes)
    view = QueueView() if answer.status == "FOUND" else views.of(topic, queue_id)
    hole = view.hole_at(asked["queue_offset"]) or view.hole_at(answer.next_begin_offset)
    if hole:
        notes.add(_hole_text(views, topic, queue_id, hole), lossy=True)
    if answer.passed_over:
        lost = counted(answer.passed_over, "message")
        notes.add(f"{lost} passed over: no log file holds what the units lead to; consumers go on behind", lossy=True)
    line = {
        "kind": "pull",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": asked["queue_offset"],
        "max": asked["most"],
        "tags": list(filters.tags),
        **{name: getattr(answer, name) for name in ("status", "next_begin_offset", "min_offset", "max_offset")},
        "hole": hole.as_json() if hole else None,
        "messages": [_sent(snapshot, unit, subscription, asked, notes) for unit in answer.units],
    }
    if asked["redaction"]:
        line = asked["redaction"].value(line)
    if style.json:
        write_line(style, line)
    else:
        show_pull(style.console(), line)
        _show_sent(style, line["messages"], asked["body_format"])
    return Exit.OK


def _note_other_releases(
    releases: Releases, answer_of: Callable[[Version], Answer], answer: Answer, notes: Notes
) -> None:
    """Note the answers of the other releases that fit, where they differ from `answer`."""
    for since in (BEYOND_MAX_TO_MAX, PULL_BY_UNITS):
        if not releases.oldest < since <= releases.newest:
            continue
        other = answer_of(release_before(since))
        if (other.status, other.next_begin_offset) != (answer.status, answer.next_begin_offset):
            notes.add(
                f"brokers before {since} answer {other.status}, next offset {other.next_begin_offset}: "
                "--broker-version names the release"
            )


def _sent(snapshot: Snapshot, unit: Any, subscription: Subscription, asked: dict[str, Any], notes: Notes) -> Message:
    """The message that is sent for a unit, or the damage where no such message is."""
    from rmqtool.query.by_place import message_at

    message = message_at(snapshot, unit.physical_offset, asked["body_read"])
    if message is None or message["message_size"] != unit.message_size:
        notes.add(f"the bytes at {unit.physical_offset} are sent, but are no message of that size", lossy=True)
        return {
            "kind": "damage",
            "physical_offset": unit.physical_offset,
            "size": unit.message_size,
            "reason": "physical-offset" if message is None else "lengths",
        }
    if asked["decoder"] is not None:
        asked["decoder"].add_to(message)
    return {**message, "tag_matches": subscription.takes(message["tags"])}


def _show_sent(style: Style, messages: list[Message], body_format: Any) -> None:
    from rmqtool.show.message_text import object_text

    for message in messages:
        write_text(object_text(message, body_format, color=style.wants_color(), width=terminal_width()))
        if not message.get("tag_matches", True):
            write_text("  the client drops it: its tag has the hash of one that is wanted\n")


def offsets_at(style: Style, snapshot: Snapshot, asked: dict[str, Any], notes: Notes) -> Exit:
    """Print the queue offset for a time, of one queue or of all queues of a topic."""
    from rmqtool.broker.offset_by_time import QueueTimes
    from rmqtool.query.by_place import why_no_queue
    from rmqtool.scan.topic_choice import is_pattern
    from rmqtool.show.query_text import show_offsets

    filters, timestamp = asked["filters"], asked["at"]
    if len(filters.topics) != 1 or is_pattern(filters.topics[0]):
        raise UsageError("--at needs one --topic", hint="such as: --at -2h --topic T --queue 0")
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
        notes.add(
            f"brokers before {TIME_BY_RECORDS} go by the modification times of queue files{answers}: a copy may differ"
        )
    _show(style, lines, show_offsets)
    return Exit.OK


def _offset_line(queue: LoadedQueue, times: QueueTimes, timestamp: int, answer: int) -> dict[str, Any]:
    return {
        "kind": "offset",
        "topic": queue.queue.topic,
        "queue_id": queue.queue.queue_id,
        "timestamp": timestamp,
        "time": rfc3339(timestamp),
        "lower": times.boundary(timestamp, "lower"),
        "upper": times.boundary(timestamp, "upper"),
        "broker": answer,
        "min_offset": queue.range.min_offset,
        "max_offset": queue.range.max_offset,
    }


def group(style: Style, snapshot: Snapshot, name: str, notes: Notes) -> Exit:
    """Print the committed offsets of a consumer group."""
    from rich.text import Text

    from rmqtool.clients.queue_view import QueueViews
    from rmqtool.query.groups import group_offsets, groups_of
    from rmqtool.show.query_text import show_consumers
    from rmqtool.store.rocksdb import is_readable
    from rmqtool.store.store import rocksdb_configs
    from rmqtool.store.why_nothing import instead_of

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
        instead = instead_of(name, groups) if groups else "; no other group has, either"
        notes.add(f"group {name} has committed no offset and has no retry queue here{instead}")
        return Exit.FINDINGS
    _show(style, lines, show_consumers)
    if not style.json:
        console, views = style.console(), QueueViews.of_snapshot(snapshot)
        for offset in found:
            if offset.hole:
                text = _hole_text(views, offset.topic, offset.queue_id, offset.hole)
                console.print(Text(visible(text)), soft_wrap=True)
        _note_next_message(style, snapshot, lines)
    return Exit.OK


def _note_next_message(style: Style, snapshot: Snapshot, lines: list[dict[str, Any]]) -> None:
    """Name the command that shows what the group gets next from the queue with its largest lag."""
    waiting = (line for line in lines if line["state"] in _GOES_ON and (line["lag"] or 0) > 0)
    behind = max(waiting, key=itemgetter("lag"), default=None)
    if behind is None or style.quiet:
        return
    conf = _conf_option(snapshot)
    offset = behind["min_offset"] if behind["committed_offset"] is None else behind["committed_offset"]
    note(
        f"the message that it gets next from the queue with the largest lag: rmqtool query "
        f"{quote(str(snapshot.store.root))}{conf} --topic {quote(behind['topic'])} --queue {behind['queue_id']} "
        f"--queue-offset {offset} --trace"
    )


def _hole_text(views: QueueViews, topic: str, queue_id: int, hole: QueueHole) -> str:
    """A hole, what is out of reach because of it, and the command that makes the queue whole."""
    return f"{topic} queue {queue_id}: {hole.told}; repair: {views.repair_of(topic, queue_id)}"


def _conf_option(snapshot: Snapshot) -> str:
    return f" --broker-conf {quote(snapshot.store.conf.path)}" if snapshot.store.conf.path else ""


def _show(style: Style, lines: list[dict[str, Any]], show: Any) -> None:
    if style.json:
        for line in lines:
            write_line(style, line)
    else:
        show(style.console(), lines)
