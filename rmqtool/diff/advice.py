"""What to do after a comparison: what is worth saving, and which store is set up again."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.base.shell import quote
from rmqtool.diff.comparison import StoreComparison
from rmqtool.diff.side import SIDES, Name, Side


def next_steps(comparison: StoreComparison) -> list[str]:
    """Sentences and commands, in the order in which to follow them."""
    return list(_steps(comparison))


def _steps(comparison: StoreComparison) -> Iterator[str]:
    match comparison.verdict:
        case "no-overlap":
            what = "message" if comparison.alignment else "offset"
            yield f"the logs have no {what} in common: set one up again from the other, or compare their messages:"
            yield f"{_diff(comparison)} --by-message"
        case "diverged":
            yield from _parted(comparison)
        case "damaged":
            for name in comparison.parting.damaged or SIDES:
                yield f"see what is damaged: rmqtool verify {_path(_side(comparison, name))}"
            yield from _set_up(comparison) if not comparison.alignment else _save_all(comparison)
        case "a-ahead" | "b-ahead" if comparison.alignment:
            yield from _save_all(comparison)
        case "a-ahead" | "b-ahead":
            yield from _set_up(comparison)
        case "differs":
            yield from _derived(comparison)
        case "unproven":
            yield "make readable what could not be read, and compare again"


def _parted(comparison: StoreComparison) -> Iterator[str]:
    """Two logs that were written apart: one of them is given up, after what only it has was saved."""
    if comparison.request.fast:
        yield f"without --fast it is found where they part: {_diff(comparison)}"
    elif not comparison.shares_beginning:
        yield "they are not copies of one log; their messages are compared, wherever they stand, by:"
        yield f"{_diff(comparison)} --by-message"
    else:
        yield from _save_all(comparison)
        if comparison.alignment:
            return
        if comparison.a.node and comparison.b.node:
            yield "then start the nodes: the log of a follower is cut where it parts from that of its leader"
        else:
            yield "then set one of them up again from the other: the one whose messages count is the master"


def _save_all(comparison: StoreComparison) -> Iterator[str]:
    for name in SIDES:
        yield from _save(comparison, name)


def _save(comparison: StoreComparison, name: Name) -> Iterator[str]:
    """How to save what only one side has, before it is cut."""
    tail = comparison.tails.get(name)
    if tail and tail.messages:
        side = _side(comparison, name)
        yield f"list what only {name.upper()} has: {_diff(comparison)} --only {name}"
        yield f"save it: rmqtool export {_path(side)} --from-offset {tail.start} --output DIR"


def _set_up(comparison: StoreComparison) -> Iterator[str]:
    """Which store follows the other."""
    damaged = comparison.parting.damaged
    if damaged == ("a", "b"):
        yield "both are damaged: neither can be set up from the other as it is"
    elif damaged:
        good, bad = ("B", "A") if damaged == ("a",) else ("A", "B")
        if comparison.parting.both_lost:
            yield f"{good} has dummy records where {bad} is damaged, as a repair or a salvage makes them"
            yield "what was there is in neither of them: a third copy may have it"
        else:
            yield f"{bad} can be set up again from {good}, whose messages are whole where {bad} is damaged"
        yield from _save(comparison, "a" if bad == "A" else "b")
    elif comparison.a.end != comparison.b.end:
        ahead, behind = ("A", "B") if comparison.a.end > comparison.b.end else ("B", "A")
        if _side(comparison, "b" if behind == "B" else "a").cut_files:
            yield f"set {behind} up again from {ahead}: no broker starts with a log file of a wrong size"
        elif _is_older(comparison, ahead):
            yield f"do not make {ahead} a master: a start takes what is older for new messages; it may follow {behind}"
        else:
            role = "node of the same group as" if comparison.a.node else "slave of"
            yield f"{behind} catches up as a {role} {ahead}, or can be set up again from {ahead}"
        if not comparison.request.fast:
            yield f"before {ahead} is ever cut to follow {behind}:"
            yield from _save(comparison, "a" if ahead == "A" else "b")
    yield from _derived(comparison)


def _is_older(comparison: StoreComparison, ahead: str) -> bool:
    """Whether what only one side has was stored before what both have: it had been cut there."""
    tail = comparison.tails.get("a" if ahead == "A" else "b")
    return tail is not None and tail.is_older


def _derived(comparison: StoreComparison) -> Iterator[str]:
    if comparison.own_queue_differences:
        more = "too" if comparison.parting.damaged else "though the logs do not"
        yield f"queues differ, {more}; which of them is right is found by:"
        yield from (f"rmqtool verify {_path(side)}" for side in (comparison.a, comparison.b))


def _side(comparison: StoreComparison, name: Name) -> Side:
    return comparison.a if name == "a" else comparison.b


def _diff(comparison: StoreComparison) -> str:
    return f"rmqtool diff {_path(comparison.a)} {_path(comparison.b)}"


def _path(side: Side) -> str:
    return quote(str(side.snapshot.store.root))
