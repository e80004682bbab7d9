"""An overview of a store as JSON and for people, with the commands that go on from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import quote
from rmqtool.inspect.log_statistics import LogStatistics, LogTotals
from rmqtool.inspect.overview import Overview, bytes_per_hour, group_failures, out_of_range, waiting
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, LMQ_PREFIX
from rmqtool.show.output import Style, note, print_fact, show_apart, show_finding
from rmqtool.show.times import time_text

_MAX_LIGHT = 40  # light queues that have a row of their own


class TopicRow(NamedTuple):
    """The queues of one topic, or of several, together."""

    topics: int = 0
    queues: int = 0
    messages: int = 0
    files: int = 0


def topic_rows(overview: Overview) -> dict[str, TopicRow]:
    """The rows by name, in the order of the queues; each light queue is a topic, and there may be 200,000."""
    rows: dict[str, TopicRow] = {}
    for queue, offsets in overview.queues:
        _, queues, messages, files = rows.get(queue.topic, TopicRow())
        messages += offsets.max_offset - max(offsets.min_offset, 0)
        rows[queue.topic] = TopicRow(1, queues + 1, messages, files + len(queue.files.files))
    light = [topic for topic in rows if topic.startswith(LMQ_PREFIX)]
    if len(light) <= _MAX_LIGHT:
        return rows
    total = TopicRow(*map(sum, zip(*(rows.pop(topic) for topic in light), strict=True)))
    return {**rows, f"{LMQ_PREFIX}... ({len(light)} light queues, each with -v)": total}


_PICTURE_WIDTH = 32
_BARS = " ▁▂▃▄▅▆▇█"


def show_overview(overview: Overview, statistics: LogStatistics | None, style: Style) -> None:
    """Print an overview; verbose shows every queue and every committed offset instead of sums."""
    console = style.console()
    for label, text in _facts(overview, statistics):
        print_fact(console, label, text)
    _show_queues(console, overview, statistics, each=style.verbosity > 0)
    _show_topics_without_queue(console, overview, statistics)
    _show_index(console, overview)
    if overview.snapshot.committed.offsets:
        (_show_offsets if style.verbosity > 0 else _show_lags)(console, overview)
    _show_failures(console, overview)
    for finding in overview.findings:
        console.print()
        show_finding(console, finding)
    if not style.quiet:
        note_next(overview, is_scanned=statistics is not None)


def _facts(overview: Overview, statistics: LogStatistics | None) -> Iterator[tuple[str, str]]:
    signs = overview.signs
    newest = signs[-1] if signs else None
    written = f"written by {newest.since} or later ({newest.name})" if newest else "release of its broker not known"
    layout = "" if overview.snapshot.store.layout == "default" else f", {overview.snapshot.store.layout}"
    yield "store", f"{overview.snapshot.store.root}{layout}, {written}"
    yield "broker", _broker(overview)
    yield from _log_facts(overview)
    if statistics:
        yield from _scan_facts(statistics)
    if overview.checkpoint:
        moments = (("log", "physic"), ("queues", "logics"), ("index", "index"))
        for label, (name, field) in zip(("checkpoint", "", ""), moments, strict=True):
            stored = overview.checkpoint[f"{field}_message_timestamp"]
            never = "no index file has been full yet" if field == "index" else "never"
            yield label, f"{name:<6} {time_text(stored) if stored > 0 else never}"
    yield from _waiting_facts(overview)


def _broker(overview: Overview) -> str:
    holder = overview.snapshot.holder
    if holder and overview.snapshot.broker_runs:
        return f"running, process {holder.pid}" if holder.pid else "running"
    if holder:
        return f"not running; {holder.who} works on the store"
    if overview.snapshot.broker_runs is None:
        return f"not known whether it runs: locks stay on its machine; last stop {overview.last_exit}"
    why = {"clean": " (no file abort)", "unclean": " (the file abort is there)"}.get(overview.last_exit, "")
    return f"not running, last stop {overview.last_exit}{why}"


def _log_facts(overview: Overview) -> Iterator[tuple[str, str]]:
    log, log_range = overview.snapshot.current_log, overview.log_range
    if not log.files:
        yield "commit log", "no file"
        return
    files = f"{_count(len(log.files), 'file')} of {byte_size(log.file_size)}"
    if log_range is None:
        yield "commit log", f"{files}, offsets from {log.files[0].start_offset}; the end cannot be read"
        return
    yield "commit log", f"{files}, offsets {log_range.min_offset} to {log_range.max_offset}"
    if log_range.first_store_timestamp is not None:
        yield "", f"stored {time_text(log_range.first_store_timestamp)} to {time_text(log_range.last_store_timestamp)}"
    growth = bytes_per_hour(overview)
    if growth is not None:
        yield "", f"{byte_size(growth)} an hour on average"
    yield from _older_log_facts(overview)


def _older_log_facts(overview: Overview) -> Iterator[tuple[str, str]]:
    """The log from before a conversion to DLedger, which the broker still reads."""
    older, log_range = overview.snapshot.older_log, overview.older_range
    if older.files:
        where = overview.snapshot.store.relative(older.files[0].path.parent)
        end = log_range.max_offset if log_range else "an end that cannot be read"
        files = f"{_count(len(older.files), 'file')} of {byte_size(older.file_size)}"
        yield "", f"before DLedger in {where}: {files}, offsets {older.files[0].start_offset} to {end}"


def _scan_facts(statistics: LogStatistics) -> Iterator[tuple[str, str]]:
    total = statistics.total
    bodies = f"{byte_size(statistics.body_bytes)} of bodies"
    yield "scanned", f"{_count(total.messages, 'message')}, {byte_size(total.bytes)}, {bodies}"
    if total.messages:
        sizes = (statistics.smallest or 0, total.bytes // total.messages, statistics.largest or 0)
        yield "", "smallest {}, mean {}, largest {}".format(*map(byte_size, sizes))
        yield from _pictures(statistics)
    if statistics.wrong_bodies:
        shown = ", ".join(str(offset) for offset in statistics.wrong_body_offsets[:3])
        more = ", ..." if statistics.wrong_bodies > 3 else ""
        yield "wrong CRC", f"{_count(statistics.wrong_bodies, 'body')}, of the records at {shown}{more}"
    elif total.messages:
        yield "", "every body has its CRC; topics and properties have no checksum"
    damaged = statistics.damaged
    if damaged.messages:
        offsets = ", ".join(f"{damage.physical_offset} ({damage.reason})" for damage in statistics.damage[:3])
        more = ", ..." if damaged.messages > 3 else ""
        yield "damage", f"{_count(damaged.messages, 'range')}, {byte_size(damaged.bytes)}, at {offsets}{more}"


def _pictures(statistics: LogStatistics) -> Iterator[tuple[str, str]]:
    """Bar charts of sizes and times: a bar for each bin, as high as its number of messages."""
    sizes = statistics.sizes.bins()
    yield "sizes", f"{_bars([count for _, count in sizes])}  {byte_size(sizes[0][0])} to {byte_size(2 * sizes[-1][0])}"
    times = statistics.times.bins(_PICTURE_WIDTH)
    if len(times) > 1:
        yield "times", f"{_bars([count for _, count in times])}  from {time_text(times[0][0])}"


def _bars(counts: Sequence[int]) -> str:
    highest = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // highest)] for count in counts)


def _show_queues(console: Console, overview: Overview, statistics: LogStatistics | None, *, each: bool) -> None:
    if not overview.queues:
        return
    if each:
        show_apart(console, "Queues", *_queue_rows(overview, statistics))
        return
    rows = topic_rows(overview)
    topics = sum(row.topics for row in rows.values())
    columns = "Topic, Queues>, In queues>, Files>"
    shown: list[list[object]] = [[topic, row.queues, row.messages, row.files] for topic, row in rows.items()]
    if statistics:
        columns += ", In log>, Size>"
        totals = statistics.topics
        shown.sort(key=lambda cells: -totals.get(str(cells[0]), LogTotals()).bytes)
        shown = [[*cells, *_total_cells(totals.get(str(cells[0]), LogTotals()))] for cells in shown]
    show_apart(console, f"{_count(len(overview.queues), 'queue')} of {_count(topics, 'topic')}", columns, shown)


def _count(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _queue_rows(overview: Overview, statistics: LogStatistics | None) -> tuple[str, list[list[object]]]:
    """Columns and rows."""
    rows: list[list[object]] = []
    for queue, offsets in overview.queues:
        rows.append([queue.topic, queue.queue_id, offsets.min_offset, offsets.max_offset, len(queue.files.files)])
        if statistics:
            rows[-1] += _total_cells(statistics.queues.get((queue.topic, queue.queue_id), LogTotals()))
    return "Topic, Queue>, Min>, Max>, Files>" + (", In log>, Size>" if statistics else ""), rows


def _total_cells(totals: LogTotals) -> list[object]:
    return [totals.messages, byte_size(totals.bytes)]


def _show_topics_without_queue(console: Console, overview: Overview, statistics: LogStatistics | None) -> None:
    """Topics that only the log knows: their queues are gone, or they were never dispatched."""
    if not statistics:
        return
    known = {queue.topic for queue, _ in overview.queues}
    rows = [[topic, *_total_cells(totals)] for topic, totals in statistics.topics.items() if topic not in known]
    if rows:
        show_apart(console, "In the log without a queue", "Topic, In log>, Size>", rows)


def _show_index(console: Console, overview: Overview) -> None:
    rows = [
        [file.path.name, file.keys, _moment(file.begin_timestamp), _moment(file.end_timestamp)]
        for file, _ in overview.snapshot.index_geometries
    ]
    if rows:
        show_apart(console, "Index", "File, Keys>, From, To", rows)


def _waiting_facts(overview: Overview) -> Iterator[tuple[str, str]]:
    messages = waiting(overview)
    delayed = [level for level in messages.delayed if level.messages]
    facts = []
    if delayed:
        levels = ", ".join(f"{level.messages} of level {level.level}" for level in delayed)
        facts.append(f"{_count(sum(level.messages for level in delayed), 'delayed message')} ({levels})")
    if messages.timer_messages:
        facts.append(f"{_count(messages.timer_messages, 'message')} in the timer's topic")
    if messages.half_messages:
        halves = _count(messages.half_messages, "half message")
        facts.append(f"{halves} of transactions, {_count(messages.op_messages, 'op message')}")
    yield from zip(("waiting", *("" for _ in facts)), facts, strict=False)


def _show_failures(console: Console, overview: Overview) -> None:
    rows = [[one.group, one.retry_messages, one.dead_letter_messages] for one in group_failures(overview)]
    if rows:
        show_apart(console, "Retries and dead letters", "Group, To retry>, Dead letters>", rows)


def _show_offsets(console: Console, overview: Overview) -> None:
    rows = [
        [
            item.group,
            item.topic,
            item.queue_id,
            item.offset,
            _lag_cell(overview, overview.lag(item), overview.unreachable(item)),
        ]
        for item in overview.snapshot.committed.offsets
    ]
    show_apart(console, "Consumers", "Group, Topic, Queue>, Committed>, Lag>", rows)


def _show_lags(console: Console, overview: Overview) -> None:
    lags: dict[tuple[str, str], list[int | None]] = {}
    below: Counter[tuple[str, str]] = Counter()
    unreachable: Counter[tuple[str, str]] = Counter()
    for item in overview.snapshot.committed.offsets:
        lags.setdefault((item.group, item.topic), []).append(overview.lag(item))
        below[item.group, item.topic] += out_of_range(overview, item) == "below"
        unreachable[item.group, item.topic] += overview.unreachable(item)
    rows = [
        [*name, len(of_queues), _sum_cell(overview, of_queues, below[name], unreachable[name])]
        for name, of_queues in lags.items()
    ]
    show_apart(console, "Consumers", "Group, Topic, Queues>, Lag>", rows)


def _sum_cell(overview: Overview, lags: Sequence[int | None], below: int, unreachable: int) -> Text:
    """The sum of lags; an offset beyond its queue's end must not reduce the lag of another queue."""
    known = [lag for lag in lags if lag is not None]
    if not known:
        return _lag_cell(overview, None, unreachable)
    beyond = sum(lag < 0 for lag in known)
    text = Text(str(sum(lag for lag in known if lag > 0)))
    if beyond:
        text.append(f", {beyond} beyond the end", style="red")
    text = text.append(f", {below} below the minimum", style="yellow") if below else text
    return _with_unreachable(text, unreachable)


def _lag_cell(overview: Overview, lag: int | None, unreachable: int) -> Text:
    if lag is None:
        text = "not flushed" if overview.snapshot.hides_entries else "no queue"
        return _with_unreachable(Text(text, style="yellow"), unreachable)
    return _with_unreachable(Text(str(lag), style="red" if lag < 0 else ""), unreachable)


def _with_unreachable(text: Text, unreachable: int) -> Text:
    return text.append(f", {unreachable} out of reach", style="red") if unreachable else text


def _moment(timestamp: int) -> str:
    return time_text(timestamp) if timestamp > 0 else "never"


def note_next(overview: Overview, *, is_scanned: bool) -> None:
    """Print on stderr which commands to run next; findings name their own."""
    if not overview.snapshot.log.files:
        return
    store, conf = overview.snapshot.store, overview.snapshot.store.conf
    options = f" --broker-conf {quote(conf.path)}" if conf.path else ""
    note("")
    for label, command in _next_commands(overview):
        note(f"{label}: {command}{options}")
    note(f"messages one by one: rmqtool inspect {quote(str(store.commit_log_directories[0]))}{options} --limit 10")
    if not is_scanned:
        note(f"counts from every record: rmqtool inspect {quote(str(store.root))}{options} --scan")


def _next_commands(overview: Overview) -> Iterator[tuple[str, str]]:
    """Problems in the tables, each with the command that shows more about the first one."""
    store = overview.snapshot.store
    outside = [item.group for item in overview.snapshot.committed.offsets if out_of_range(overview, item)]
    if outside:
        query = f"rmqtool query {quote(str(store.root))} --group {quote(outside[0])}"
        yield f"offsets of {_count(len({*outside}), 'group')} out of range", query
    dead = [failures.group for failures in group_failures(overview) if failures.dead_letter_messages]
    if dead:
        topic = f"{DEAD_LETTER_PREFIX}{dead[0]}"
        log = quote(str(store.commit_log_directories[0]))
        yield f"dead letters of {_count(len({*dead}), 'group')}", f"rmqtool inspect {log} --topic {quote(topic)}"
