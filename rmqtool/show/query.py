"""Answers of query for people: pulls, offsets, the trace of one message as a picture and its story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from rmqtool.show.output import print_fact, show_table, table, terminal_width
from rmqtool.show.times import time_text

if TYPE_CHECKING:
    from rich.console import Console

_STATUS_MEANINGS = {
    "FOUND": "messages are sent",
    "NO_MATCHED_MESSAGE": "none of the entries read has a requested tag; the consumer continues at once",
    "MESSAGE_WAS_REMOVING": "the entries point to bytes that the log does not have; the consumer continues at once",
    "OFFSET_FOUND_NULL": "no file of the queue has this offset",
    "OFFSET_OVERFLOW_BADLY": "beyond the queue's end: the consumer is set to the next offset",
    "OFFSET_OVERFLOW_ONE": "at the queue's end: the consumer waits for new messages",
    "OFFSET_TOO_SMALL": "below the queue's minimum: the consumer is set to the next offset",
    "NO_MATCHED_LOGIC_QUEUE": "there is no such queue",
    "NO_MESSAGE_IN_QUEUE": "the queue is empty or does not exist",
}

_AT_END = ("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE")


def show_pull(console: Console, answer: dict[str, Any]) -> None:
    """Print the answer to a pull, without its messages."""
    where = f"{answer['topic']} queue {answer['queue_id']} from offset {answer['queue_offset']}"
    show = partial(print_fact, console, width=8)
    show("pull", f"{where}, at most {answer['max']}")
    meaning, hole = _STATUS_MEANINGS[answer["status"]], answer["hole"]
    if hole and hole["ends_queue"] and answer["status"] in _AT_END:
        meaning = f"the queue ends at a hole: the consumer does not get {hole['unreachable']} of the log's messages"
    show("status", f"{answer['status']}: {meaning}")
    messages = answer["messages"]
    dropped = sum(not message.get("tag_matches", True) for message in messages)
    left = f", {dropped} of which the client drops: equal hash, other tag" if dropped else ""
    show("", f"{len(messages)} sent{left}")
    first, end = answer["min_offset"], answer["max_offset"]
    held = f"the queue has offsets {first} to {end - 1}" if end > first else f"the queue is empty, at {end}"
    show("next", f"{answer['next_begin_offset']}; {held}")


def show_offsets(console: Console, answers: Sequence[dict[str, Any]]) -> None:
    """Print queue offsets for a time."""
    names = ("topic", "queue_id", "lower", "upper", "broker", "min_offset", "max_offset")
    rows = [[answer[name] for name in names] for answer in answers]
    title = f"Offsets for {time_text(answers[0]['timestamp'])}"
    show_table(console, table(title, "Topic, Queue>, Lower>, Upper>, Broker>, Min>, Max>", rows))


def show_consumers(console: Console, lines: Sequence[dict[str, Any]]) -> None:
    """Print the offsets of a group in all of its queues."""
    from rich.text import Text

    unreachable = any(line["unreachable"] for line in lines)
    columns = f"Topic, Queue>, Committed>, Lag>{', Unreachable>' if unreachable else ''}, Last consumed stored, State"
    derived = (line["after_next_start"] for line in lines)
    after = (f", {count} of the lag after the next start" if count else "" for count in derived)
    rows = [
        [
            line["topic"],
            line["queue_id"],
            "-" if line["committed_offset"] is None else line["committed_offset"],
            "-" if line["lag"] is None else max(0, line["lag"]) if line["unreachable"] else line["lag"],
            *([line["unreachable"] or "-"] if unreachable else []),
            time_text(line["last_consumed_timestamp"]),
            Text(line["state"] + more, style="" if line["state"] == "ok" else "yellow"),
        ]
        for line, more in zip(lines, after, strict=True)
    ]
    show_table(console, table(f"Group {lines[0]['group']}", columns, rows))


Clock = Callable[[int], str]
"""Shows a time, epoch ms."""

_TOLD = {
    "sent": "sent",
    "stored": "stored in {place}",
    "half": "stored as a half message, invisible until its transaction ends",
    "committed": "its transaction is committed: stored in {place}",
    "rolled-back": "its transaction is rolled back",
    "delayed": "waits in {place} until {due}",
    "sent-back": "{group} failed on it (failure {times}), and gets it again at {due}",
    "retry": "redelivered to {group}: stored in {place}",
    "dead-letter": "given up by {group}: stored in {place}",
    "read": "read by {group} from {place}",
    "passed": "{group} has passed {place}",
    "not-passed": "{group} has not read {place} yet",
    "trace-send": "sent by producer group {group} at client {host}, took {cost} ms: {result}",
    "trace-consume-begin": "its consumption by {group} began at client {host} (retry {times})",
    "trace-consume-end": "its consumption by {group} ended at client {host} after {cost} ms: {result}",
    "trace-transaction-end": "producer group {group} ended its transaction at client {host}: {result}, {asked}",
    "trace-recall": "recalled by producer group {group} at client {host}: {result}",
    "trace-unreadable": "some traces of clients about it cannot be read",
}


PARTIAL = "there may be other records of the message: the index, which points to them, is damaged"


def is_partial(trace: dict[str, Any]) -> bool:
    """Whether the index does not lead to the message, and so may not lead to its other records."""
    return any(key["state"] != "ok" for key in trace["index"])


def story_lines(events: Sequence[dict[str, Any]], clock: Clock) -> Iterator[tuple[str, str]]:
    """When and what of each event, JSON objects of `query --trace`."""
    for event in events:
        due = event["due_timestamp"]
        told = _TOLD[event["event"]].format(
            place=_place(event),
            group=event["group"] or "an unknown group",
            host=event["client_host"],
            cost=event["cost_ms"],
            result=event["result"],
            asked="when the broker asked" if event["from_check"] else "before the broker asked",
            times=event["reconsume_times"],
            due="an unknown time" if due is None else clock(due),
        )
        yield _when(event, clock), f"{told} ({event['proof']})"


def _place(of: dict[str, Any]) -> str:
    return f"{of['topic']} queue {of['queue_id']} offset {of['queue_offset']}"


def _when(event: dict[str, Any], clock: Clock) -> str:
    first, last = event["timestamp"], event["until_timestamp"]
    if first is None:
        return "not yet"
    if first == last:
        return clock(first)
    return f"after {clock(first)}" if last is None else f"{clock(first)} to {clock(last)}"


_LABEL_WIDTH = 12
_WIDTH = 80  # of a picture with its label and its numbers, columns
_LEAST_BAR = 20
_MARK = "●"
_MAX_GROUPS = 20

Line = tuple[str, str]
"""A label, empty where it is that of the line before, and a text."""


def show_trace(console: Console, message: dict[str, Any]) -> None:
    """Print the trace of a message, its JSON object `places`."""
    trace = message["places"]
    for label, text in trace_lines(message, min(_WIDTH, terminal_width() or _WIDTH)):
        print_fact(console, label, text)
    for contradiction in trace["contradictions"]:
        print_fact(console, "WRONG", contradiction, label_style="bold red")


def trace_lines(message: dict[str, Any], width: int = _WIDTH) -> Iterator[Line]:
    """The labels and texts of a message with its trace; pictures are `width` columns wide."""
    trace = message["places"]
    for index, (when, told) in enumerate(story_lines(trace["story"], time_text)):
        yield "" if index else "history", f"{when}  {told}"
    if is_partial(trace):
        yield "", PARTIAL
    yield from _log_lines(trace["commit_log"], width)
    yield from _queue_lines("queue", trace["consume_queue"], trace["consumers"], message, width)
    for queue in trace["further_queues"]:
        yield from _queue_lines("light queue", queue, [], message, width)
    yield from _index_lines(trace["index"])
    parts = (("rocksdb_index", _row_lines), ("transaction", _transaction_lines), ("delay", _delay_lines),
             ("retry", _retry_lines))  # fmt: skip
    for name, lines_of in parts:
        yield from lines_of(trace[name]) if trace[name] is not None else ()
    for index, other in enumerate(trace["relatives"]):
        where, when = _place(other), time_text(other["store_timestamp"])
        yield "" if index else "same key", f"{other['relation']} at {other['physical_offset']}: {where}, {when}"
    yield from _retention_lines(trace["retention"])


def _log_lines(log: dict[str, Any], width: int) -> Iterator[Line]:
    offset = log["physical_offset"]
    yield "commit log", _bar(log["min_offset"], log["max_offset"], [(offset, _MARK)], width)
    yield "", f"offset {offset}, next {log['next_physical_offset']}; byte {log['position']} of {log['file']}"
    whole = {None: "no checksum of the whole record", True: "record CRC ok", False: "record CRC WRONG"}
    yield "", f"body CRC {'ok' if log['body_crc_ok'] else 'WRONG'}, {whole[log['record_crc_ok']]}"


def _bar(low: int, high: int, marks: Sequence[tuple[int, str]], width: int) -> str:
    """A line from `low` to `high` with its marks, `width` columns with its label; later marks cover earlier ones."""
    width = max(_LEAST_BAR, width - _LABEL_WIDTH - len(f" {low} ├┤ {high}"))
    line = ["─"] * width
    for position, mark in marks:
        share = (position - low) / (high - low) if high > low else 0.0
        line[min(max(int(share * width), 0), width - 1)] = mark
    return f"{low} ├{''.join(line)}┤ {high}"


def _queue_lines(
    label: str, queue: dict[str, Any] | None, consumers: list[dict[str, Any]], message: dict[str, Any], width: int
) -> Iterator[Line]:
    if queue is None:
        yield label, f"none: a message of transaction type {message['transaction']} has no entry"
        return
    groups = list(zip(ascii_lowercase, consumers[:_MAX_GROUPS], strict=False))
    if queue["max_offset"] is not None:
        marks = [(item["committed_offset"], letter) for letter, item in groups]
        low = max(queue["min_offset"], 0)
        yield label, _bar(low, queue["max_offset"], [*marks, (queue["queue_offset"], _MARK)], width)
        label = ""
    yield label, f"{_place(queue)}: {_state_of(queue)}"
    unit = queue["unit"]
    if unit is not None:
        batch = f", batch of {unit['batch_size']}" if unit["batch_size"] != 1 else ""
        yield "", f"tags code {_shown(unit['tags_code'])}{batch}; byte {unit['position']} of {unit['file']}"
    for letter, item in groups:
        yield "", _group_line(letter, item, queue["queue_offset"])
    if len(consumers) > _MAX_GROUPS:
        yield "", f"and {len(consumers) - _MAX_GROUPS} groups more: --json shows all"


def _state_of(queue: dict[str, Any]) -> str:
    """Where the queue entry of the message is, or why it is not there."""
    if queue["after_next_start"]:
        return "its queue entry does not exist yet: the next start derives it from the log"
    hole = queue["hole"]
    if hole and queue["queue_offset"] >= hole["queue_offset"] + hole["entries"]:
        return "its queue entry comes after a hole, where a start ends the queue"
    if hole:
        return "its queue entry is missing, although the message is in the log"
    return _STATES[queue["state"]]


_STATES = {
    "ok": "its entry exists",
    "expired": "its entry exists, but below the queue's minimum: no longer delivered",
    "deleted": "its entry has been deleted with its file",
    "behind": "the queue ends before it",
    "differs": "it is the entry of another message",
    "missing": "there is no entry",
    "no-queue": "the queue does not exist",
    "unread": "RocksDB does not show it: not flushed yet, damaged, or without the package rocksdict",
}


def _group_line(letter: str, item: dict[str, Any], queue_offset: int) -> str:
    distance = item["committed_offset"] - queue_offset
    if distance == 0:
        return f"{letter} {item['group']} gets it next"
    if not item["consumed"]:
        return f"{letter} {item['group']} has not passed it: at {item['committed_offset']}, {-distance} before it"
    after = f" after {time_text(item['passed_after_timestamp'])}" if item["passed_after_time"] else ""
    until = f"{after}, by {time_text(item['as_of_timestamp'])}" if item["as_of_time"] else after
    return f"{letter} {item['group']} has read it{until}: committed {item['committed_offset']}"


def _index_lines(keys: list[dict[str, Any]]) -> Iterator[Line]:
    if not keys:
        yield "index", "no key"
    for index, key in enumerate(keys):
        label = "index" if index == 0 else ""
        if key["state"] != "ok":
            yield label, f"{key['key']}: {_INDEX_STATES[key['state']]}"
            continue
        yield label, f"{key['key']}: entry {key['number']} of {key['file']}"
        order = f"{key['place_in_chain']} of {key['chain_length']} in the chain of slot {key['slot']}"
        yield "", f"    hash {_shown(key['key_hash'])}, {order}, newest first"


def _row_lines(rows: dict[str, Any]) -> Iterator[Line]:
    """The keys in the index in RocksDB."""
    lines = [f"{key['key']}: {_ROW_STATES[key['state']]}" for key in rows["keys"]]
    if rows["problem"]:
        lines = [f"not read: {rows['problem']}"]
    yield from (("" if number else "in RocksDB", line) for number, line in enumerate(lines))


_ROW_STATES = {
    "ok": "a row of rocksdbstore",
    "missing": "no row, although the index in RocksDB has passed the message",
    "not-indexed": "no row: the index in RocksDB begins later, or does not reach that far",
}

_INDEX_STATES = {
    "missing": "there is no entry where this key leads",
    "not-indexed": "not indexed: no index file covers this part of the log",
    "no-index": "there is no index file",
    "unknown": "not found, but an index file is damaged",
}


def _transaction_lines(transaction: dict[str, Any]) -> Iterator[Line]:
    part = transaction["part"]
    kind = {"half": "the half message", "prepared": "prepared, as before 4.3"}.get(part, part)
    yield "transaction", f"{kind}; {_TRANSACTION_STATES[transaction['state']]}"
    for name, text in (("half", "half message"), ("op", "op message that ends it"), ("commit", "committed copy")):
        offset = transaction[f"{name}_physical_offset"]
        if offset is not None:
            yield "", f"{text} at {offset}"
    if transaction["real_topic"]:
        yield "", f"for {transaction['real_topic']} queue {transaction['real_queue_id']}"


_TRANSACTION_STATES = {
    "pending": "no end found: the broker asks the producer, or it is undecided",
    "committed": "committed",
    "rolled-back": "rolled back: it has ended and no copy was stored",
    "ended": "it has ended; the result is not known without an index",
    "unknown": "its result is not known",
}


def _delay_lines(delay: dict[str, Any]) -> Iterator[Line]:
    timestamp = delay["due_timestamp"]
    due = "an unknown time" if timestamp is None else time_text(timestamp)
    level = f"level {delay['level']}" if delay["level"] else "timer"
    yield "delay", f"{level}, due {due}, for {delay['real_topic']} queue {delay['real_queue_id']}"
    copy = delay["delivered_physical_offset"]
    state = {True: "delivered", False: "not delivered yet", None: "whether it was delivered is not known"}
    yield "", state[delay["delivered"]] + (f", copy at {copy}" if copy is not None else "")


def _retry_lines(retry: dict[str, Any]) -> Iterator[Line]:
    kind = "dead letter" if retry["kind"] == "dead-letter" else f"retry {retry['reconsume_times']}"
    yield "retry", f"{kind} of group {retry['group']}, first sent to {retry['origin_topic'] or 'an unknown topic'}"
    way = {
        "found": f"the original is at {retry['origin_physical_offset']}",
        "deleted": "the original has been deleted",
        "other-store": "the original is in another store",
        "unknown": "the original cannot be found",
    }
    yield "", f"{way[retry['origin_state']]} (id {retry['origin_message_id'] or 'not known'})"


def _retention_lines(retention: dict[str, Any]) -> Iterator[Line]:
    if retention["is_last_file"]:
        yield "retention", "in the last file of the log, which is never deleted while it is the last"
        return
    until = time_text(retention["expires_timestamp"])
    yield "retention", f"kept {retention['reserved_hours']} h after its file was changed: until {until}"
    yield "", "from then on the cleaner deletes the file; earlier when a disk is full"


def _shown(number: int | None) -> str:
    """A hash, which is null where it is redacted."""
    return "redacted" if number is None else str(number)
