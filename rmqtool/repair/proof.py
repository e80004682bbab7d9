"""What a plan does for clients, step by step, and whether a repair has done it, from the files that it has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rmqtool.clients.losses import ClientLosses, in_words


@dataclass(frozen=True)
class Difference:
    """What a step of a plan does to what clients lose by a start `before` and `after` it: how much of each kind."""

    before: ClientLosses
    after: ClientLosses

    @property
    def takes(self) -> dict[str, int]:
        """What clients lose by the step; of groups each one that it moves."""
        taken = _more(self.after.counts(), self.before.counts())
        before = {(each.group, each.topic, each.queue_id) for each in self.before.groups}
        moved = sum((each.group, each.topic, each.queue_id) not in before for each in self.after.groups)
        return taken | ({"groups": moved} if moved else {})

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        before, after = self.before.counts(), self.after.counts()
        leaves = {kind: min(count, after[kind]) for kind, count in before.items() if min(count, after[kind])}
        return {"brings_back": _more(before, after), "leaves": leaves, "takes": self.takes}


def _more(counts: dict[str, int], others: dict[str, int]) -> dict[str, int]:
    return {kind: count - others[kind] for kind, count in counts.items() if count > others[kind]}


@dataclass(frozen=True)
class MoreLost:
    """A kind of loss of which a start of the repaired store leaves more than was planned: queue entries by queue."""

    kind: str
    planned: int
    found: int
    topic: str | None = None
    queue_id: int | None = None

    def __str__(self) -> str:
        """What is lost, and how much of it the plan said."""
        if self.kind == "refuses":
            return "no broker starts"
        where = f"{self.topic} queue {self.queue_id}: " if self.topic is not None else ""
        return f"{where}{in_words(self.kind, self.found)}; the plan said {self.planned}"


@dataclass(frozen=True)
class Proof:
    """What clients lose by a start of the repaired store, by its files, and what of that the plan did not say.

    `clients` is None where that is not known, as where no start is predicted.
    """

    clients: ClientLosses | None
    more_lost: tuple[MoreLost, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        clients = None if self.clients is None else self.clients.as_json()
        return {"clients": clients, "more_lost": [asdict(each) for each in self.more_lost]}


def proof_of(planned: Difference | None, after: ClientLosses | None) -> Proof:
    """Hold a start of the repaired store, `after`, against what was planned; without a plan of clients nothing is."""
    if planned is None or after is None:
        return Proof(after)
    return Proof(after, tuple(_more_lost(planned, after)))


def _more_lost(planned: Difference, after: ClientLosses) -> Iterator[MoreLost]:
    """What is not served any more counts as lost, also where nothing in the repaired store shows it any more."""
    if after.refuses:
        if not planned.after.refuses:
            yield MoreLost("refuses", 0, 1)
        return
    said = {(each.topic, each.queue_id): each.messages for each in planned.after.unreachable.queues}
    left = {(each.topic, each.queue_id): each.messages for each in after.unreachable.queues}
    had = planned.before.had
    for name, messages in sorted(had.entries.items()):
        found = messages - after.had.entries.get(name, 0) + left.get(name, 0)
        if found > said.get(name, 0):
            yield MoreLost("unreachable", said.get(name, 0), found, *name)
    keys = had.keys - after.had.keys + after.keys_not_found
    for kind, count in (after.counts() | {"keys_not_found": keys}).items():
        if kind != "unreachable" and count > planned.after.counts()[kind]:
            yield MoreLost(kind, planned.after.counts()[kind], count)
