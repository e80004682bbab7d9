"""A comparison of two stores, by their files or by their messages, as JSON and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import visible
from rmqtool.diff.by_message import Alignment, MessageComparison, Surplus
from rmqtool.diff.comparison import EpochComparison, Following, SideEpochs, StoreComparison, next_steps
from rmqtool.diff.records import SIDES, Name, Place, Side, Tail
from rmqtool.diff.tiers import TierRange
from rmqtool.findings.finding import counted
from rmqtool.scan.block import REASON_MEANINGS
from rmqtool.scan.filters import Filters
from rmqtool.show.output import Style, terminal_width, write_text
from rmqtool.show.shapes import Error, FiltersGiven
from rmqtool.show.times import time_text
from rmqtool.show.wrapping import with_its_indent
from rmqtool.store.queue_units import QueueRange


def diff_json(comparison: StoreComparison) -> dict[str, Any]:
    """The `result` of ``diff A B``."""
    limit, parting = comparison.request.limit, comparison.parting
    has_overlap = comparison.start < comparison.end
    queues = sorted(comparison.queues, key=lambda queue: queue.is_explained)
    return {
        "verdict": comparison.verdict,
        "fast": comparison.request.fast,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "common": {"from_offset": comparison.start, "to_offset": comparison.end} if has_overlap else None,
        "in_order": _alignment(comparison.alignment),
        "diverged_at": parting.diverged.start if parting.diverged else None,
        "shares_beginning": comparison.shares_beginning,
        "differing_extents": parting.extents,
        "differences": [
            {"offset": each.offset, "damaged": list(each.damaged), "a": asdict(each.a), "b": asdict(each.b)}
            for each in parting.differences[:limit]
        ],
        "epochs": _epochs_json(comparison.epochs),
        "only_a": _tail(comparison.tails.get("a")),
        "only_b": _tail(comparison.tails.get("b")),
        "listed": comparison.listed,
        "queues": {
            "different": len(comparison.queues),
            "unexplained": len(comparison.own_queue_differences),
            "examples": [asdict(queue) for queue in queues[:limit]],
        },
        "tiers": {
            "different": len(comparison.tiers),
            "examples": [asdict(tier) for tier in comparison.tiers[:limit]],
        },
        "config": {
            "different": len(comparison.configs),
            "examples": [asdict(entry) for entry in comparison.configs[:limit]],
        },
        "not_compared": comparison.not_compared,
        "unread": [Error.of(error) for error in comparison.unread],
        "next": next_steps(comparison),
    }


def _side(side: Side) -> dict[str, Any]:
    log, node = side.snapshot.log, side.node
    last = asdict(node.last) if node and node.last else None
    return {
        "store": str(side.snapshot.store.root),
        "running": side.snapshot.holder is not None,
        "files": len(log.files),
        "file_size": log.file_size,
        "min_offset": side.start,
        "max_offset": side.end,
        "data_end": side.data_end,
        "node": node and {"name": node.name, "last_entry": last, "committed_index": node.committed},
    }


def _alignment(alignment: Alignment | None) -> dict[str, Any] | None:
    if alignment is None:
        return None
    starts, ends = alignment.starts, alignment.ends
    ranges: dict[str, Any] = {
        name: {"from_offset": starts[name], "to_offset": ends[name]} if starts else None for name in SIDES
    }
    return {"messages": alignment.messages, "before": alignment.before, **ranges}


def _tail(tail: Tail | None) -> dict[str, Any] | None:
    if tail is None:
        return None
    return {
        "from_offset": tail.start,
        "to_offset": tail.end,
        "messages": tail.messages,
        "topics": [{"topic": topic, "messages": count} for topic, count in tail.topics],
        "is_older": tail.is_older,
    }


def _epochs_json(epochs: EpochComparison | None) -> dict[str, Any] | None:
    if epochs is None:
        return None
    return {
        "a": _epochs_of(epochs.a),
        "b": _epochs_of(epochs.b),
        "a_follows_b": _following(epochs.a_follows),
        "b_follows_a": _following(epochs.b_follows),
    }


def _epochs_of(side: SideEpochs) -> dict[str, Any]:
    return {
        "entries": [asdict(epoch) for epoch in side.epochs.entries],
        "problem": side.epochs.problem,
        "stale": [asdict(epoch) for epoch in side.stale],
        "missing": side.missing,
    }


def _following(following: Following) -> dict[str, Any]:
    cut = _tail(following.cut)
    return {"consistent_point": following.point, "has_no_epochs": following.has_no_epochs, "cut": cut}


_TOPICS = 8  # topics of a count


def show_messages(comparison: MessageComparison, only: Name | None) -> None:
    """Print what was found; with `only` messages of that side alone are listed."""
    lines = [*_surplus_heads(comparison), "", _surplus_sentence(comparison)]
    for name in SIDES:
        surplus = comparison.only[name]
        if surplus.messages:
            lines += ["", *_surplus(name, surplus), *(_listed(surplus.listed) if only in (None, name) else ())]
    lines += ["", "Not compared", *_unread(comparison.unread)] if comparison.unread else []
    write_text("".join(f"{visible(line)}\n" for line in lines))


def _surplus_heads(comparison: MessageComparison) -> Iterator[str]:
    for name, side in zip(SIDES, (comparison.a, comparison.b), strict=True):
        counts = comparison.counts[name]
        damaged = f"; {byte_size(counts.damaged)} hold no message" if counts.damaged else ""
        yield f"{name.upper()}  {side.snapshot.store.root}"
        if not side.files:
            yield "   no commit log file"
            continue
        left_out = "" if counts.left_out is None else f", {counts.left_out} left out"
        yield f"   {counted(counts.messages, 'message')} compared{left_out}{damaged}"


def _surplus_sentence(comparison: MessageComparison) -> str:
    both = f"{counted(comparison.in_both, 'message')} in both"
    so_far = ", of what could be read" if comparison.unread else ""
    match comparison.verdict:
        case "same":
            return f"same: {both}, and none in one of them only"
        case "unproven":
            return f"unproven: {both}, and none in one of them only{so_far}"
        case "a-has-more":
            return f"A has more: {both}; B has none that is not in A{so_far}"
        case "b-has-more":
            return f"B has more: {both}; A has none that is not in B{so_far}"
        case "differs":
            return f"differs: {both}{so_far}"


def _surplus(name: Name, surplus: Surplus) -> Iterator[str]:
    other = "B" if name == "a" else "A"
    yield f"Only {name.upper()} has {counted(surplus.messages, 'message')} ({_topics(surplus.by_size)})"
    if surplus.repeated:
        yield f"  {surplus.repeated} of them {other} has too, but fewer times"
    if surplus.other_body:
        yield f"  for {surplus.other_body} of them {other} has the unique key with another body"


def messages_json(comparison: MessageComparison, filters: Filters, only: Name | None) -> dict[str, Any]:
    """The `result` of ``diff A B --by-message``."""
    sides = zip(SIDES, (comparison.a, comparison.b), strict=True)
    return {
        "by": "message",
        "verdict": comparison.verdict,
        "engine": comparison.engine,
        "filters": FiltersGiven.of(filters),
        **{
            name: {
                "store": str(side.snapshot.store.root),
                "running": side.snapshot.holder is not None,
                "messages": comparison.counts[name].messages,
                "left_out": comparison.counts[name].left_out,
                "damaged_bytes": comparison.counts[name].damaged,
            }
            for name, side in sides
        },
        "in_both": comparison.in_both,
        "only_a": _surplus_json(comparison.only["a"], is_listed=only != "b"),
        "only_b": _surplus_json(comparison.only["b"], is_listed=only != "a"),
        "unread": [Error.of(error) for error in comparison.unread],
    }


def _surplus_json(surplus: Surplus, *, is_listed: bool) -> dict[str, Any]:
    return {
        "messages": surplus.messages,
        "topics": [{"topic": topic, "messages": count} for topic, count in surplus.by_size],
        "repeated": surplus.repeated,
        "other_body": surplus.other_body,
        "listed": surplus.listed if is_listed else [],
    }


_WIDTH = 72  # columns of the picture
_LABEL = 3  # before it


def show_diff(comparison: StoreComparison, style: Style) -> None:
    """Print what was found."""
    picture = [] if comparison.alignment else list(_picture(comparison, min(_WIDTH, (terminal_width() or 80) - _LABEL)))
    lines = [*_heads(comparison), "", *picture, *_in_order(comparison), "", _sentence(comparison)]
    for section in (_differences, _epochs, _tails, _queues, _tiers, _configs):
        lines += section(comparison)
    left_out = [f"  {text}" for text in comparison.not_compared] + _unread(comparison.unread)
    lines += ["", "Not compared", *left_out] if left_out else []
    if not style.quiet and (steps := next_steps(comparison)):
        lines += ["", "What to do", *(f"  {step}" for step in steps)]
    shown = (line if line in picture else with_its_indent(visible(line), terminal_width()) for line in lines)
    write_text("".join(f"{line}\n" for line in shown))


def _heads(comparison: StoreComparison) -> Iterator[str]:
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        yield f"{name}  {side.snapshot.store.root}"
        if not side.files:
            yield "   no commit log file"
            continue
        files = f"{counted(len(side.files), 'file')} of {byte_size(max(file.size for file in side.files))}"
        running = "; a broker runs on it" if side.snapshot.holder else ""
        yield f"   commit log {side.start} to {side.end}, {files}{running}"
        if node := side.node:
            last = f"last entry {node.last.index} of term {node.last.term}" if node.last else "no entry"
            committed = "committed index not known"
            if node.committed is not None:
                committed = f"committed up to {node.committed}"
            after = f", {node.uncommitted} after it" if node.uncommitted else ""
            yield f"   {node.name}: {last}, {committed}{after}"
        for file in side.cut_files:
            yield f"   {file.path.name} has {file.size} bytes: no broker creates a log file of that size"
        if side.data_end > side.end:
            yield f"   {side.data_end - side.end} bytes after the last whole record: torn, damaged, or left over"


def _in_order(comparison: StoreComparison) -> Iterator[str]:
    """What is compared where offsets of one are not those of the other."""
    if comparison.alignment is None:
        return
    yield "One log is of DLedger: messages are compared in their order, without headers and physical offsets"
    yield f"{counted(comparison.alignment.messages, 'message')} in both"
    for name, count in comparison.alignment.before.items():
        if count and comparison.alignment.messages:
            yield f"{counted(count, 'message')} before them only in {name.upper()}"


def _picture(comparison: StoreComparison, width: int) -> Iterator[str]:
    """Both logs on one scale of so many columns: ``=`` the same, ``#`` different, ``>`` only here."""
    sides = [side for side in (comparison.a, comparison.b) if not side.is_empty]
    if not sides:
        return
    low, high = min(side.start for side in sides), max(side.end for side in sides)
    yield f"   {low:<{width // 2}}{high:>{width - width // 2}}"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        cells = [_cell(comparison, side, low + number * (high - low) // width) for number in range(width)]
        for difference in comparison.parting.differences:  # too small for the scale: each gets a cell
            if side.start <= difference.offset < side.end:
                cells[min(width - 1, (difference.offset - low) * width // max(1, high - low))] = "#"
        yield f"{name}  {''.join(cells)}".rstrip()
    yield "   = the same   # different   > only here"


def _cell(comparison: StoreComparison, side: Side, offset: int) -> str:
    if not side.start <= offset < side.end:
        return " "
    if not comparison.start <= offset < comparison.end:
        return ">"
    diverged = comparison.parting.diverged
    return "#" if diverged and offset >= diverged.start else "="


def _sentence(comparison: StoreComparison) -> str:
    a, b, verdict = comparison.a, comparison.b, comparison.verdict
    match verdict:
        case "same":
            return "same: no difference" + (" in what --fast compares" if comparison.request.fast else "")
        case "unproven":
            return "unproven: no difference in what could be read"
        case "differs":
            return f"differs: the logs are the same, {_what_differs(comparison)}"
        case "a-ahead" | "b-ahead":
            ahead, behind = ("A", "B") if verdict == "a-ahead" else ("B", "A")
            if comparison.alignment:
                name: Name = "a" if verdict == "a-ahead" else "b"
                count = counted(comparison.tails[name].messages, "message") if name in comparison.tails else "messages"
                return f"{ahead} is ahead of {behind} by {count}: up to there their messages are the same"
            size = byte_size(abs(a.end - b.end))
            return f"{ahead} is ahead of {behind} by {size}: up to {comparison.common_end} the logs are the same"
        case "damaged":
            sides = " and ".join(name.upper() for name in comparison.parting.damaged)
            verb = "are" if len(comparison.parting.damaged) > 1 else "is"
            what = f"{sides} {verb} damaged" if sides else "one of them was changed afterwards"
            return f"damaged: A and B are copies of one log, but {what}"
        case "no-overlap" if comparison.alignment:
            return "no overlap: the logs have no message in common"
        case "no-overlap":
            return "no overlap: the logs have no offset in common, and are not compared by offset"
    if not comparison.shares_beginning:
        return "diverged: from the first common offset on no message is the same: the logs are not copies of one log"
    before = "at or before" if comparison.request.fast else "at"
    return f"diverged {before} {comparison.common_end}: from there on no message is the same"


def _what_differs(comparison: StoreComparison) -> str:
    parts = [f"from {comparison.start} on"] if comparison.begin_differs else []
    parts += ["epochs differ"] if comparison.epochs and comparison.epochs.differ else []
    parts += ["log files have different sizes"] if comparison.file_sizes_differ else []
    parts += [_differ(len(comparison.queues), "queue", "queues")] if comparison.queues else []
    parts += [_differ(len(comparison.tiers), "queue in tiers", "queues in tiers")] if comparison.tiers else []
    parts += [_differ(len(comparison.configs), "config entry", "config entries")] if comparison.configs else []
    return ", ".join(parts)


def _differ(count: int, one: str, many: str) -> str:
    return f"1 {one} differs" if count == 1 else f"{count} {many} differ"


def _differences(comparison: StoreComparison) -> Iterator[str]:
    parting = comparison.parting
    if not parting.differences:
        return
    shown = parting.differences[: 1 if parting.diverged is parting.differences[0] else comparison.request.limit]
    yield from ("", "Where the logs differ")
    for difference in shown:
        sides = " and ".join(name.upper() for name in difference.damaged)
        offset = difference.start if difference is parting.diverged else difference.offset
        yield f"  at {offset}{f': damage of {sides}' if sides else ''}"
        yield f"    A  {_place(difference.a)}"
        yield f"    B  {_place(difference.b)}"
    if parting.extents > 1:
        yield f"  {parting.extents} ranges differ in all"


def _place(place: Place) -> str:
    if place.kind == "nothing":
        return "no message"
    if place.kind == "header":
        return f"{place.offset}, {place.size} bytes: the header of an entry"
    where = f"{place.offset}, {place.size} bytes"
    if place.message is None:
        meaning = next((text for reason, text in REASON_MEANINGS.items() if reason == place.reason), place.kind)
        return f"{where}: {meaning}"
    if place.is_inert:
        return f"{where}: a dummy record in place of what was lost"
    message = place.message
    queue = f"{message['topic']} queue {message['queue_id']} offset {message['queue_offset']}"
    wrong = "" if message["body_crc_ok"] else ", wrong body CRC"
    key = f", key {message['unique_key']}" if message["unique_key"] else ""
    return f"{where}: {queue}, stored {time_text(message['store_timestamp'])}{key}{wrong}"


def _epochs(comparison: StoreComparison) -> Iterator[str]:
    epochs = comparison.epochs
    if epochs is None:
        return
    yield from ("", "Epochs")
    for name, side in (("A", epochs.a), ("B", epochs.b)):
        entries = ", ".join(f"{epoch.number} from {epoch.start_offset}" for epoch in side.epochs.entries[-4:])
        more = "... " if len(side.epochs.entries) > 4 else ""
        yield f"  {name}: {more}{entries or 'none'}"
        if side.epochs.problem:
            yield f"    {side.epochs.problem}"
        for epoch in side.stale:
            yield f"    epoch {epoch.number} begins at {epoch.start_offset}, after the log's end: a stale entry"
        if side.missing is not None:
            yield f"    epoch {side.missing}, which topics.json was written in, has no entry"
    yield f"  A as slave of B {_follows(epochs.a_follows)}"
    yield f"  B as slave of A {_follows(epochs.b_follows)}"


def _follows(following: Following) -> str:
    if following.has_no_epochs:
        return "cuts nothing: without epochs it continues at its own end, even if the logs differ there"
    if following.point is None:
        return "never syncs: no epoch has the same beginning in both"
    if following.cut is None:
        return f"cuts nothing and continues at {following.point}"
    return f"cuts everything from {following.point} on: {_count(following.cut)}"


def _count(tail: Tail) -> str:
    topics = f" ({_topics(tail.topics)})" if tail.topics else ""
    return f"{counted(tail.messages, 'message')} in {byte_size(tail.size)}{topics}"


def _topics(counts: Sequence[tuple[str, int]]) -> str:
    shown = ", ".join(f"{topic} {count}" for topic, count in counts[:_TOPICS])
    return shown + (f" and {counted(len(counts) - _TOPICS, 'more topic')}" if len(counts) > _TOPICS else "")


def _tails(comparison: StoreComparison) -> Iterator[str]:
    for name in SIDES:
        if name in comparison.tails:
            tail = comparison.tails[name]
            yield from ("", f"Only {name.upper()} has {_count(tail)}, from {tail.start} on")
            if tail.is_older:
                yield "  stored before the last common message: left from before a cut, or a clock was set back"
    if comparison.listed:
        yield from ("", *_listed(comparison.listed))


def _listed(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        place = f"{message['topic']} {message['queue_id']} {message['queue_offset']}"
        yield f"  {message['physical_offset']}  {place}  {message['store_time']}  {message['unique_key'] or '-'}"


def _queues(comparison: StoreComparison) -> Iterator[str]:
    if not comparison.queues:
        return
    own, limit = comparison.own_queue_differences, comparison.request.limit
    yield from ("", "Queues")
    for queue in own[:limit]:
        unit = "" if queue.first_unit is None else f", first different entry {queue.first_unit}"
        yield f"  {queue.topic} queue {queue.queue_id}: A {_range(queue.a)}, B {_range(queue.b)}{unit}"
    explained = len(comparison.queues) - len(own)
    if len(own) > limit:
        yield f"  {len(own)} queues in all"
    if explained:
        yield f"  {_differ(explained, 'queue', 'queues')} as the logs do"


def _range(offsets: QueueRange | TierRange | None) -> str:
    return "missing" if offsets is None else f"{offsets.min_offset} to {offsets.max_offset}"


def _tiers(comparison: StoreComparison) -> Iterator[str]:
    if not comparison.tiers:
        return
    yield from ("", "Tiers")
    for tier in comparison.tiers[: comparison.request.limit]:
        yield f"  {tier.topic} queue {tier.queue_id}: A {_range(tier.a)}, B {_range(tier.b)}"
        for name, own in (("A", tier.only_a), ("B", tier.only_b)):
            if own.messages:
                first, more = own.ranges[0], f" and {len(own.ranges) - 1} more" if len(own.ranges) > 1 else ""
                where = f"from queue offset {first.min_offset} to {first.max_offset - 1}{more}"
                yield f"    only {name} has {counted(own.messages, 'message')}, {where}"
        if tier.different:
            yield f"    {counted(tier.different, 'message')} with other bytes, first at {tier.first_different}"
    if len(comparison.tiers) > comparison.request.limit:
        yield f"  {len(comparison.tiers)} queues in all"


def _configs(comparison: StoreComparison) -> Iterator[str]:
    if not comparison.configs:
        return
    counts, limit = Counter(entry.file for entry in comparison.configs), comparison.request.limit
    yield from ("", "Config")
    for file, count in counts.items():
        yield f"  {file}: {count} different"
        for entry in [entry for entry in comparison.configs if entry.file == file][:limit]:
            a, b = ("-" if value is None else value for value in (entry.a, entry.b))
            lag = f" ({b - a:+d})" if isinstance(a, int) and isinstance(b, int) else ""
            yield f"    {entry.entry}: A {a}, B {b}{lag}"


def _unread(errors: Sequence[RmqtoolError]) -> list[str]:
    return [f"  cannot be read: {error}{f'; {error.hint}' if error.hint else ''}" for error in errors]
