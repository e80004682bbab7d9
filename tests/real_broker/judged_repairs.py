"""A repair of a damaged store, and what is wrong with it by what the real broker says of the store before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_broker.harness import Harness
from tests.real_broker.loss_stores import Source
from tests.repair.checked_repair import GOES_ON, Repair
from tests.verify.losses_facts import Facts, lost, readable


@dataclass(frozen=True)
class Case:
    """A damaged store, as it is and repaired, and what the repair said."""

    name: str
    what: str
    source: Source
    damaged: Path
    repaired: Path
    repair: Repair


def judge(case: Case, undamaged_facts: Facts, before: Facts, after: Facts) -> list[str]:
    """What is wrong with a repair."""
    problems = list(case.repair.problems)
    result = case.repair.result
    if result is None:
        return problems
    first, planned = case.repair.said[0]["result"], case.repair.planned
    told = [*_told(planned), *_told(result["plan"]), *(change["lost"] for change in first["changes"])]
    if after["refuses"] is not None:
        if before["refuses"] is None or not any(told):
            problems.append(f"refuses: {after['refuses'][:200]}")
        elif any(step["text"].startswith("Start the broker") for step in result["plan"]["steps"]):
            problems.append(f"the plan says to start the broker, which refuses: {after['refuses'][:200]}")
        return problems
    gone = _places(before) & _places(undamaged_facts) - _places(after)
    if sound := (_served(before) & _served(undamaged_facts)) - _served(after):
        problems.append(f"{len(sound)} messages were readable before: {sorted(sound)[:2]}")
    elif gone and not _told(planned) and GOES_ON not in str(planned):
        problems.append(f"the plan does not say that damaged messages go: {sorted(gone)[:2]}")
    differences = lost(undamaged_facts, after)
    if any(each["code"] == "consumequeue.orphan" for each in case.repair.said[-1]["findings"]):
        differences.pop("topics", None)  # that a topic with an empty queue is in no table is told as information
    if differences and result["verdict"] == "clean" and not any(told):
        problems.append(f"clean, but lost: {differences}")
    return problems


def _served(facts: Facts) -> set[tuple[Any, ...]]:
    """The messages of each queue, whatever their offsets there, and however often."""
    if facts["refuses"] is not None:
        return set()
    return {(queue, *message) for queue, _, *message in readable(facts["queues"])}


def _places(facts: Facts) -> set[int]:
    """The physical offsets of all messages that are served, sound or not, from any queue.

    Of a unit that points into the middle of a record, what a broker takes for one may be any number.
    """
    return {physical_offset for _, physical_offset, _ in _served(facts)}


def _told(plan: dict[str, Any]) -> list[str]:
    return [*plan["remaining"], *(text for step in plan["steps"] for text in step["lost"])]


def survey(version: str, source: Source, roots: Sequence[Path]) -> list[Facts]:
    """What the users of each store have."""
    return Harness(version).survey_copies([(root, source.keys) for root in roots], dict(source.settings))


def became(before: Facts, after: Facts) -> str:
    if before["refuses"] is not None:
        return "starts now" if after["refuses"] is None else "refuses as before"
    if after["refuses"] is not None:
        return "REFUSES NOW"
    more = (readable(after["queues"]) - readable(before["queues"])).total()
    return "reads more" if more else "reads the same"
