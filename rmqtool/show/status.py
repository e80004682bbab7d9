"""The status of a store: five lines for people, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import click

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import Count, byte_size
from rmqtool.base.times import Moment
from rmqtool.base.visible import join, repeated_options, visible
from rmqtool.broker.start_duration import WORTH_SAYING
from rmqtool.findings.finding import counted, first_of
from rmqtool.report.status import DiskStatus, GroupLag, Status, Waiting
from rmqtool.show.output import Style, document_text, terminal_width, write_text
from rmqtool.show.shapes import Shape, at, by
from rmqtool.show.times import duration, time_text
from rmqtool.store.snapshot import HIDDEN_ENTRIES

_LABEL_WIDTH = 9
_SHOWN_CODES = 3
_COLORS = {"dirty": "yellow", "corrupt": "red"}
_ABOVE, _CLEAR_BELOW = "\x1b[{}A", "\x1b[J"  # the cursor so many lines up; clear from there on
_SECOND_MS = 1000


def exit_of(status: Status) -> Exit:
    """FINDINGS for what is above information, LOSSY where there was no time for something."""
    if status.has_problems:
        return Exit.FINDINGS
    return Exit.LOSSY if status.out_of_time else Exit.OK


def show_status(status: Status, style: Style, *, again: bool | None = None) -> None:
    """Print the five lines, or the document; `again` says whether it is not the first, None that it is the only one."""
    if style.json:
        result, in_one_line = StatusResult.of(status), again is not None
        write_text(document_text(style, "status", result, status.findings, exit_of(status), in_one_line=in_one_line))
        return
    width = None if again is None else terminal_width()
    lines = [visible(f"{label:<{_LABEL_WIDTH}}{text}") for label, text in _lines(status)]
    if width is not None:
        lines.append(f"{'at':<{_LABEL_WIDTH}}{time_text(status.now)}; Ctrl-C ends")
    shown = [line if width is None else line[:width] for line in lines]  # each must stay one line to be replaced
    if style.wants_color():
        shown[1] = click.style(shown[1], fg=_COLORS.get(status.verdict))
    before = _ABOVE.format(len(lines)) + _CLEAR_BELOW if again and width is not None else "\n" if again else ""
    write_text(before + "".join(f"{line}\n" for line in shown))


def _lines(status: Status) -> Iterator[tuple[str, str]]:
    yield "broker", _broker(status)
    yield "checks", _checks(status)
    yield "disk", _disk(status)
    yield "lag", _lag(status)
    yield "waiting", _waiting(status.waiting, is_whole="what waits" not in status.not_looked_at)


def _broker(status: Status) -> str:
    holder, last = status.snapshot.holder, status.last_message
    if holder and holder.program:
        text = f"not running; {holder.who} works on the store"
    elif holder:
        text = f"running, process {holder.pid}" if holder.pid else "running"
    else:
        text = f"not running, last stop {status.last_exit}"
    start = status.start
    if start and start.high >= WORTH_SAYING:
        text += f", a start takes {start.low:.0f} to {start.high:.0f} s"
    if last is None:
        return f"{text}; no message found"
    ago = status.now - last
    since = f"{max(0, ago) // _SECOND_MS} s" if ago < 60 * _SECOND_MS else duration(ago)
    return f"{text}; last message {since} ago"


def _checks(status: Status) -> str:
    store = status.snapshot.store
    root = join([str(store.root), *repeated_options(store.conf.path, None)])
    codes = dict.fromkeys(each.code for each in status.findings if each.severity != "info")
    left_out = "".join(f"; {each} not read" for each in status.not_looked_at if each.startswith("files"))
    if not codes:
        return f"not verified; names and sizes show no problem{left_out}; next: rmqtool verify {root}"
    return f"{status.verdict}: {first_of(list(codes), _SHOWN_CODES)}{left_out}; next: rmqtool verify {root}"


def _disk(status: Status) -> str:
    disk = status.disk
    if disk is None:
        return "size not known"
    used = f"{disk.used_ratio:.0%} of {byte_size(disk.total)} used, {byte_size(disk.usable)} left"
    return f"{used}; {_when_full(disk, status.now)}"


def _when_full(disk: DiskStatus, now: int) -> str:
    """When a broker refuses messages, which it does before the disk has no room."""
    level = f"{disk.refuses_from:.0%}"
    if disk.refuses_at is not None and disk.refuses_at <= now:
        return f"full: above {level} a broker refuses messages"
    if disk.log_bytes_per_hour is None:
        return "growth not known"
    growth = f"{byte_size(disk.log_bytes_per_hour)} an hour"
    if disk.refuses_at is None:
        return f"stays below {level} at {growth}"
    return f"full ({level}) in {duration(disk.refuses_at - now)} at {growth}"


def _lag(status: Status) -> str:
    if status.snapshot.hides_entries:
        return f"not known: {HIDDEN_ENTRIES}"
    lags, is_whole = status.lags, "lags" not in status.not_looked_at
    if not lags and status.snapshot.committed.file.problem:
        return "committed offsets cannot be read"
    if not lags:
        return "no committed offsets" if is_whole else "not read: too many committed offsets"
    groups, total = len({each.group for each in lags}), sum(each.messages for each in lags)
    at_least = "" if is_whole else "at least "
    text = f"{at_least}{counted(total, 'message')} of {counted(groups, 'group')}"
    largest = lags[0]
    return f"{largest.group} {largest.messages} on {largest.topic}; {text}" if largest.messages else f"none; {text}"


def _waiting(waiting: Waiting, *, is_whole: bool) -> str:
    kinds = ((waiting.delayed, "delayed"), (waiting.timers, "in the timer's topic"), (waiting.retries, "to retry"),
             (waiting.halves, "half messages"), (waiting.dead_letters, "dead letters"))  # fmt: skip
    texts = [f"{count} {what.removesuffix('s') if count == 1 else what}" for count, what in kinds if count]
    return ", ".join(texts + ([] if is_whole else ["more was not read"])) or "nothing"


class BrokerShown(Shape):
    """Who has the store."""

    running: bool = at("snapshot.broker_runs")  # Whether a broker holds the store's lock.
    # Process id of what holds the store's lock, where the system says it.
    pid: Count | None = by(lambda status, _: status.snapshot.holder.pid if status.snapshot.holder else None)
    last_exit: Literal["clean", "unclean", "unknown"]  # How the last broker ended; unknown while one runs.


class ChecksShown(Shape):
    """What names, sizes and small files show."""

    # unproven: nothing is wrong in them; dirty: what an unclean stop leaves; corrupt: anything else.
    verdict: Literal["unproven", "dirty", "corrupt"]
    errors: Count = by(lambda status, _: _count(status, "error"))  # How many findings are errors.
    warnings: Count = by(lambda status, _: _count(status, "warning"))  # How many are warnings.


class DiskShown(Shape):
    """The fullest disk of the log."""

    total_bytes: Count = at("total")  # Its size, bytes.
    free_bytes: Count = at("usable")  # What brokers can still write, bytes.
    used_ratio: float  # The used part, as a broker computes it: 0 to 1.
    log_bytes_per_hour: Count | None  # How fast the log grows, bytes; null where its times do not show it.
    refuses_from_ratio: float = at("refuses_from")  # Above this used part a broker refuses messages.
    # When that is if the log grows as it did; null where the cleaner keeps it below, or no growth is known.
    refuses: Moment = at("refuses_at")


class LagShown(Shape):
    """What groups have not consumed, by the entries that queues have now."""

    largest: GroupLag | None = by(lambda status, _: next(iter(status.lags), None))  # The largest; null without groups.
    messages: Count = by(lambda status, _: sum(each.messages for each in status.lags))  # All of them together.
    groups: Count = by(lambda status, _: len({each.group for each in status.lags}))  # Groups with committed offsets.


class StatusResult(Shape):
    """What an operator asks first."""

    broker: BrokerShown = by(lambda status, _: status)
    checks: ChecksShown = by(lambda status, _: status)
    disk: DiskShown | None  # null where its size is not known.
    # How long the next start takes, the least and the most, seconds; null while a broker runs, or without a log.
    start_seconds: list[float] | None = by(
        lambda status, _: [round(status.start.low, 3), round(status.start.high, 3)] if status.start else None
    )
    last_message: Moment  # When the last message of the log was stored; null where none was found.
    lag: LagShown = by(lambda status, _: status)
    waiting: Waiting
    # What would have taken too long, or is in the memory of a running broker: "files in config/", "lags", "what waits".
    not_looked_at: list[str]


def _count(status: Any, severity: str) -> int:
    return sum(each.count for each in status.findings if each.severity == severity)
