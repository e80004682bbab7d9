"""Answers of query besides messages, as text: pulls, queue offsets for a time, offsets of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from rmqtool.show.output import Columns, print_labelled, show_table, table
from rmqtool.show.times import time_text

_LABEL_WIDTH = 8
_STATUS_MEANINGS = {
    "FOUND": "messages are sent",
    "NO_MATCHED_MESSAGE": "none of the units read has a wanted tag; the consumer goes on at once",
    "MESSAGE_WAS_REMOVING": "the units lead to bytes that the log does not have; the consumer goes on at once",
    "OFFSET_FOUND_NULL": "no file of the queue holds this offset",
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
    _show(console, "pull", f"{where}, at most {answer['max']}")
    _show(console, "status", f"{answer['status']}: {_meaning(answer)}")
    messages = answer["messages"]
    dropped = sum(not message.get("tag_matches", True) for message in messages)
    left = f", {dropped} of which the client drops: equal hash, other tag" if dropped else ""
    _show(console, "", f"{len(messages)} sent{left}")
    _show(
        console,
        "next",
        f"{answer['next_begin_offset']}; {_range(answer['min_offset'], answer['max_offset'])}",
    )


def _meaning(answer: dict[str, Any]) -> str:
    """What the status means to a consumer."""
    hole = answer["hole"]
    if hole and hole["ends_queue"] and answer["status"] in _AT_END:
        return f"the queue ends at a hole: the consumer does not get {hole['unreachable']} of the log's messages"
    return _STATUS_MEANINGS[answer["status"]]


def _range(first: int, end: int) -> str:
    return f"the queue has offsets {first} to {end - 1}" if end > first else f"the queue is empty, at {end}"


def show_offsets(console: Console, answers: Sequence[dict[str, Any]]) -> None:
    """Print queue offsets for a time."""
    columns: Columns = [("Topic", "left"), ("Queue", "right"), ("Lower", "right"), ("Upper", "right")]
    columns += [("Broker", "right"), ("Min", "right"), ("Max", "right")]
    names = ("topic", "queue_id", "lower", "upper", "broker", "min_offset", "max_offset")
    rows = [[answer[name] for name in names] for answer in answers]
    show_table(console, table(f"Offsets for {time_text(answers[0]['timestamp'])}", columns, rows))


def show_consumers(console: Console, lines: Sequence[dict[str, Any]]) -> None:
    """Print the offsets of a group in all of its queues."""
    columns: Columns = [("Topic", "left"), ("Queue", "right"), ("Committed", "right"), ("Lag", "right")]
    unreachable = any(line["unreachable"] for line in lines)
    columns += [("Unreachable", "right")] if unreachable else []
    columns += [("Last consumed stored", "left"), ("State", "left")]
    rows = [
        [
            line["topic"],
            line["queue_id"],
            "-" if line["committed_offset"] is None else line["committed_offset"],
            "-" if line["lag"] is None else line["lag"],
            *([line["unreachable"] or "-"] if unreachable else []),
            time_text(line["last_consumed_timestamp"]),
            _state_cell(line),
        ]
        for line in lines
    ]
    show_table(console, table(f"Group {lines[0]['group']}", columns, rows))


def _state_cell(line: dict[str, Any]) -> Text:
    derived = line["after_next_start"]
    after = f", {derived} of the lag after the next start" if derived else ""
    return Text(line["state"] + after, style="" if line["state"] == "ok" else "yellow")


def _show(console: Console, label: str, text: str) -> None:
    print_labelled(console, Text(f"{label:<{_LABEL_WIDTH}} ", style="dim"), text)
