"""What users have lost: a broker's facts of a store before and after (see Survey.java), and a verdict held to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification

Facts = dict[str, Any]
"""As Survey.java gives them."""

_TABLES = ("topics", "groups", "committed", "delays")
_SHOWN = 3


def lost(before: Facts, after: Facts) -> dict[str, str]:
    """By area, in what the facts differ; nothing when the users of the broker have all that they had."""
    if after["refuses"] != before["refuses"]:
        return {"start": f"refused: {after['refuses']}"[:120]}
    before = _without_idle_levels(before, after)
    found = {area: _differing(before[area], after[area]) for area in _TABLES}
    found["messages"] = _messages(before["queues"], after["queues"])
    found["maximum"] = _differing(_maxima(before["queues"]), _maxima(after["queues"]))
    found["keys"] = _keys(before["keys"], after["keys"])
    found["timers"] = _timers(before["timers"], after["timers"])
    return {area: text for area, text in found.items() if text}


def _without_idle_levels(before: Facts, after: Facts) -> Facts:
    """`before` without delay queues that hold no message, and that are gone in `after` with their levels' offsets.

    The next message of such a level begins a queue at 0, as the level's offset does.
    """
    names = {str(level): f"{SCHEDULE_TOPIC}/{level - 1}" for level, _ in _levels(before)}
    idle = {
        level: name
        for level, name in names.items()
        if name not in after["queues"]
        and not after["delays"].get(level)
        and not before["queues"].get(name, {}).get("messages")
    }
    return {
        **before,
        "delays": {level: offset for level, offset in before["delays"].items() if level not in idle},
        "queues": {name: queue for name, queue in before["queues"].items() if name not in idle.values()},
    }


def _levels(facts: Facts) -> list[tuple[int, int]]:
    return [(int(level), offset) for level, offset in facts["delays"].items()]


def _differing(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    shown = ", ".join(f"{name} {_short(before.get(name))}->{_short(after.get(name))}" for name in names[:_SHOWN])
    return f"{len(names)} of {len(before)} ({shown})" if names else ""


def _keys(before: dict[str, list[int]], after: dict[str, list[int]]) -> str:
    fewer = sum(not set(offsets) <= set(after.get(key, [])) for key, offsets in before.items())
    more = sum(not set(offsets) <= set(before.get(key, [])) for key, offsets in after.items())
    return f"{fewer} of {len(before)} find less, {more} find more" if fewer or more else ""


def _short(value: object) -> str:
    return "-" if value is None else str(value)[:24]


def _maxima(queues: dict[str, Any]) -> dict[str, int]:
    return {name: queue["max_offset"] for name, queue in queues.items()}


def _messages(before: dict[str, Any], after: dict[str, Any]) -> str:
    had, has = readable(before), readable(after)
    gone, new = sum((had - has).values()), sum((has - had).values())
    return f"{gone} of {had.total()} unreadable, {new} others" if gone or new else ""


def readable(queues: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """Each message that can be read, with its queue, and how often."""
    return Counter((name, *message) for name, queue in queues.items() for message in queue["messages"])


def _timers(before: list[int], after: list[int]) -> str:
    had, has = Counter(before), Counter(after)
    missed, again = (had - has).total(), (has - had).total()
    return f"{missed} of {had.total()} not delivered, {again} delivered again" if missed or again else ""


def judged(store: Path) -> tuple[str, list[str]]:
    """The verdict without a version, and the codes of the findings above information; an error is named."""
    try:
        verification = Verification(open_store(store), VerifyRequest())
        verification.run(lambda size: None)
        outcome = outcome_of(verification)
    except RmqtoolError as error:
        return f"error {type(error).__name__}", []
    return outcome.verdict, sorted({finding.code for finding in outcome.findings if finding.severity != "info"})


def wrong(verdict: str, differences: dict[str, str]) -> bool:
    """Whether a verdict says that nothing is lost although something is."""
    return bool(differences) and verdict in ("clean", "dirty")


def keys_of(records: list[dict[str, Any]]) -> Iterator[str]:
    """The lines "TOPIC tab KEY" for a survey, of the records of an oracle."""
    for record in records:
        for key in (record["unique_key"], *(record["keys"] or "").split(" ")):
            if key and "\n" not in key and "\t" not in key:
                yield f"{record['topic']}\t{key}"
