"""Sends messages: in rounds of one batch for each queue, so that a queue's messages keep their order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from rmqtool.replay import connection as codes
from rmqtool.replay.cluster import Cluster, Copy, TargetQueue, Targets
from rmqtool.replay.connection import PeerError, RefusedError, Response
from rmqtool.replay.journal import Done, Journal, LeftOut, Ready, Receipt
from rmqtool.replay.planning import Count, Place, Preparation, ReplayPlan, look_up, other_copy, own_copy
from rmqtool.replay.requests import MAX_BATCH_BYTES, Rewriting, batch_size, can_share, send_request
from rmqtool.replay.sources import MessageSource

_BUSY_S, _SHUTTING_DOWN_S = 3600.0, 5.0


@dataclass(frozen=True)
class Answer:
    """What became of a batch: all of it is stored, with these `receipts`, or none, for the `error`.

    A broker that has `patience`, s, is busy: when it says so for longer, it refuses.
    """

    receipts: Sequence[Receipt] = ()
    error: RefusedError | None = None
    patience: float = 0.0


def read_answer(response: Response, batch: Sequence[Ready]) -> Answer:
    """What became of a batch; raises PeerError for an answer that says that it is stored, but not where."""
    first = batch[0]
    if response.code == codes.SUCCESS or response.code in codes.STORED_ALL_THE_SAME:
        return Answer(_receipts(response, first.broker, len(batch)))
    error = codes.refusal(response, f"{first.broker}, topic {first.message.topic}, queue {first.queue_id}")
    if response.code in (codes.SYSTEM_BUSY, codes.FLOW_CONTROL) or "broker busy" in response.remark:
        return Answer(error=error, patience=_BUSY_S)
    if response.code == codes.SERVICE_NOT_AVAILABLE:  # a broker that shuts down says so, and one whose disk is full
        return Answer(error=error, patience=_SHUTTING_DOWN_S)
    return Answer(error=error)


def _receipts(response: Response, broker: str, count: int) -> list[Receipt]:
    offset = codes.whole_number(response.fields.get("queueOffset"))
    if offset is None:
        raise PeerError(f"{broker}: its answer to a send has no queue offset")
    ids = response.fields.get("msgId", "").split(",")  # of a batch one for each message; of an inner batch only one
    status = codes.STORED_ALL_THE_SAME.get(response.code)
    return [
        Receipt((ids[number] if len(ids) == count else ids[0]) or None, offset + number, status)
        for number in range(count)
    ]


SETTLE_S = 3.0
"""How long a request that had no answer may still wait in a broker that answers again: only then it is looked up."""

_INDEX_PATIENCE_S = 30.0
_MAX_PAUSE_S = 5.0
_FIRST_PAUSE_S = 0.2
_BURST_S = 0.1  # at a rate, a batch is not more than what may be sent in that time
_DIVISIBLE = (codes.MESSAGE_ILLEGAL, codes.SYSTEM_ERROR)

Batch = list[Ready]
Waiting = dict[tuple[str, TargetQueue], deque[Ready]]


@dataclass(frozen=True)
class SendOptions:
    """How messages are sent: `rate` is messages a second, `patience` how long a cluster may be away, s."""

    batch: int = 64
    rate: float | None = None
    patience: float = 60.0
    loose_born_time: bool = False
    looks_up: bool = True
    send_again: bool = False
    keeps_going: bool = False


@dataclass
class SendResult:
    """What became of the messages of this run; `first_refusal` is the sentence about the first that was refused."""

    sent: int = 0
    found: int = 0
    there: int = 0
    refused: int = 0
    less_safe: dict[str, int] = field(default_factory=dict)
    first_refusal: PeerError | None = None
    unproven: int = 0


class Stopped(Exception):  # noqa: N818 - an end that was asked for
    """A message was refused, and the replay ends with it."""


class Sender:
    """Sends the messages of a plan; `plan` takes those that turn out not to be sendable."""

    def __init__(self, cluster: Cluster, journal: Journal, plan: ReplayPlan, options: SendOptions) -> None:
        self._cluster = cluster
        self._journal = journal
        self._plan = plan
        self._options = options
        rate = options.rate
        self._most = options.batch if rate is None else max(1, min(options.batch, int(rate * _BURST_S)))
        self._unknown = set(journal.before.unknown)
        self._is_settled = False
        self._next_send = time.monotonic()
        self._busy_since: float | None = None
        self._failing_since: float | None = None
        self.result = SendResult()

    def send(self, ready: Sequence[Ready]) -> None:
        """Send messages that follow each other in the source; raises Stopped, PeerError or UnwritableError.

        All have an outcome in the journal afterwards, unless it raises.
        """
        waiting: Waiting = {}
        for one in self._patiently(partial(self._not_there, ready)):
            key = one.message.topic, TargetQueue(one.queue_id, one.broker)
            waiting.setdefault(key, deque()).append(one)
        while waiting:
            batches = [self._next_batch(queue) for queue in waiting.values()]
            self._round(batches, waiting)
            waiting = {key: queue for key, queue in waiting.items() if queue}

    def _not_there(self, ready: Sequence[Ready]) -> list[Ready]:
        """Those that must be sent; receipts for the others."""
        asked = [*ready] if self._options.looks_up else [one for one in ready if self._is_unknown(one)]
        if not asked:
            return [*ready]
        if any(map(self._is_unknown, asked)):
            self._settle({one.message.topic for one in asked})
        copies = {id(one): found for one, found in zip(asked, look_up(self._cluster, asked), strict=True)}
        missing = []
        for one in ready:
            of_this = copies.get(id(one), [])
            other = other_copy(one, of_this) if self._options.looks_up and not self._options.send_again else None
            if self._is_found(one, of_this):
                continue
            if other is None:
                missing.append(one)
                continue
            self._journal.there(one, other.message_id, _now())
            self._plan.omit(LeftOut(one.message.origin, "already-there"))
            self.result.there += 1
            self._unknown.discard(one.message.origin.identity)
        return missing

    def _is_found(self, one: Ready, copies: Sequence[Copy]) -> bool:
        """Whether one of the copies is what was sent of a message before, which then has its receipt."""
        own = own_copy(one, copies)
        if own is not None:
            found = Ready(one.message, own.broker, own.queue_id)
            self._journal.sent(found, Receipt(own.message_id, own.queue_offset, how="found"), _now())
            self._unknown.discard(one.message.origin.identity)
            self.result.found += 1
        return own is not None

    def _is_unknown(self, one: Ready) -> bool:
        return one.message.origin.identity in self._unknown

    def _settle(self, topics: set[str]) -> None:
        """Wait until what was sent without an answer can be found, if it was stored.

        A broker that was away, or stood still, first answers; what was waiting for it is carried out at that moment.
        """
        names = sorted(topics)
        is_complete = self._cluster.wait_until_indexed(names, _INDEX_PATIENCE_S)
        if not self._is_settled:
            time.sleep(SETTLE_S)
            is_complete = self._cluster.wait_until_indexed(names, _INDEX_PATIENCE_S)
            self._is_settled = True
        self.result.unproven += not is_complete

    def _next_batch(self, queue: deque[Ready]) -> Batch:
        """Take what is sent together from the front of a queue."""
        batch = [queue.popleft()]
        size = batch_size(batch[0].message)
        facts = self._plan.brokers.get(batch[0].broker)
        limit = min(MAX_BATCH_BYTES, facts.max_message_size) if facts else MAX_BATCH_BYTES
        while queue and len(batch) < self._most:
            following = queue[0].message
            size += batch_size(following)
            if size > limit or not can_share(
                batch[0].message, following, loose_born_time=self._options.loose_born_time
            ):
                break
            batch.append(queue.popleft())
        return batch

    def _round(self, batches: list[Batch], waiting: Waiting) -> None:
        """Send one batch of each queue and wait for all answers; what is not done goes back to its queue's front."""
        self._pace(sum(map(len, batches)))
        self._journal.sending(batches, _now())
        left = self._outcomes(batches)
        for batch in left:
            one = batch[0]
            queue = waiting[one.message.topic, TargetQueue(one.queue_id, one.broker)]
            queue.extendleft(reversed(batch))
        if self.result.refused and not self._options.keeps_going:
            raise Stopped

    def _outcomes(self, batches: list[Batch]) -> list[Batch]:
        """Send batches until each has an outcome; those that are still to be sent."""
        try:
            answers = self._exchange(batches)
        except PeerError as error:
            return self._after_failure(batches, error)
        self._failing_since = None
        if any(answer.error is None for answer in answers):
            self._busy_since = None
        left, busy = [], []
        for batch, answer in zip(batches, answers, strict=True):
            if answer.error is None:
                self._note_sent(batch, answer.receipts)
            elif answer.patience:
                busy.append((batch, answer.error, answer.patience))
            elif len(batch) > 1 and answer.error.code in _DIVISIBLE:
                left += self._one_by_one(batch)
            else:
                self._note_refused(batch, answer.error)
        return left + self._when_less_busy(busy)

    def _exchange(self, batches: Sequence[Batch]) -> list[Answer]:
        """Send all, and read all answers; raises PeerError, after which the outcome of none is known."""
        under_way: dict[str, list[tuple[int, int]]] = {}
        for place, batch in enumerate(batches):
            route = self._cluster.route(batch[0].message.topic)
            address = route.masters.get(batch[0].broker) if route else None
            if address is None:
                raise PeerError(f"{batch[0].broker}: the name server knows no master of it")
            request = send_request([one.message for one in batch], batch[0].broker, batch[0].queue_id)
            (number,) = self._cluster.connection(address).send([request])
            under_way.setdefault(address, []).append((place, number))
        answers: dict[int, Answer] = {}
        for address, sent in under_way.items():
            responses = self._cluster.connection(address).answers([number for _, number in sent])
            for (place, _), response in zip(sent, responses, strict=True):
                answers[place] = read_answer(response, batches[place])
        return [answers[place] for place in range(len(batches))]

    def _one_by_one(self, batch: Batch) -> list[Batch]:
        """Send a batch that was refused as single messages, so that the others get through."""
        missing = self._patiently(partial(self._look_for, batch))
        for number, one in enumerate(missing):
            left = self._outcomes([[one]])
            if left:
                return [[*(each for few in left for each in few), *missing[number + 1 :]]]
            if self.result.refused and not self._options.keeps_going:
                break
        return []

    def _when_less_busy(self, busy: Sequence[tuple[Batch, RefusedError, float]]) -> list[Batch]:
        """Batches that a broker has not taken for now, after a pause; refused where it has not for too long."""
        if not busy:
            self._busy_since = None
            return []
        now = time.monotonic()
        self._busy_since = self._busy_since or now
        waited = now - self._busy_since
        left = []
        for batch, error, patience in busy:
            if waited > min(self._options.patience, patience):
                self._note_refused(batch, error)
            else:
                left.append(batch)
        time.sleep(min(_MAX_PAUSE_S, max(_FIRST_PAUSE_S, waited / 2)) if left else 0.0)
        return left

    def _after_failure(self, batches: list[Batch], error: PeerError) -> list[Batch]:
        """Find out which messages are on the target after a connection failed; the others are left."""
        self._failing_since = self._failing_since or time.monotonic()
        if time.monotonic() - self._failing_since > self._options.patience:
            raise error
        self._cluster.forget()
        self._unknown.update(one.message.origin.identity for batch in batches for one in batch)
        self._is_settled = False
        found = [self._patiently(partial(self._look_for, batch)) for batch in batches]
        return [missing for missing in found if missing]

    def _look_for(self, batch: Batch) -> Batch:
        """The messages of a batch that are not on the target; receipts for the others."""
        self._settle({batch[0].message.topic})
        found = zip(batch, look_up(self._cluster, batch), strict=True)
        return [one for one, copies in found if not self._is_found(one, copies)]

    def _patiently(self, ask: Callable[[], Batch]) -> Batch:
        """The answer of `ask`, which is called again while the cluster is away; raises PeerError after `patience`."""
        deadline = time.monotonic() + self._options.patience
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except PeerError as error:
                if isinstance(error, RefusedError) or time.monotonic() + pause > deadline:
                    raise
            self._cluster.forget()
            time.sleep(pause)
            pause = min(_MAX_PAUSE_S, 2 * pause)

    def _note_sent(self, batch: Batch, receipts: Sequence[Receipt]) -> None:
        now = _now()
        for one, receipt in zip(batch, receipts, strict=True):
            self._journal.sent(one, receipt, now)
            self._unknown.discard(one.message.origin.identity)
            self.result.sent += 1
            if receipt.status is not None:
                self.result.less_safe[receipt.status] = self.result.less_safe.get(receipt.status, 0) + 1

    def _note_refused(self, batch: Batch, error: RefusedError) -> None:
        now = _now()
        for one in batch:
            self._journal.refused(one, error.code, str(error), now)
        self.result.refused += len(batch)
        self.result.first_refusal = self.result.first_refusal or error

    def _pace(self, count: int) -> None:
        """Wait until `count` more messages may be sent."""
        if self._options.rate is None:
            return
        now = time.monotonic()
        time.sleep(max(0.0, self._next_send - now))
        self._next_send = max(self._next_send, now) + count / self._options.rate


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Selection:
    """Messages and how they are rewritten."""

    source: MessageSource
    rewriting: Rewriting


@dataclass(frozen=True)
class Replay:
    """What is sent, to which cluster; `limit` is the most messages of one run."""

    selections: Sequence[Selection]
    cluster: Cluster
    options: SendOptions = field(default_factory=SendOptions)
    limit: int | None = None

    @property
    def size(self) -> int:
        """Bytes that are read, for a progress."""
        return sum(selection.source.size for selection in self.selections)

    def header(self) -> dict[str, Any]:
        """What the journal remembers of it."""
        first = self.selections[0]
        names = {"*": first.rewriting.only_topic} if first.rewriting.only_topic else dict(first.rewriting.topics)
        return {
            "source": first.source.name,
            **({"name_servers": sorted(self.cluster.name_servers)} if self.cluster.is_known else {}),
            "topics": names,
            "to_retry_topics": first.rewriting.to_group,
        }

    def plan(self, before: Done, progress: Callable[[int], None], *, looks_up: bool) -> ReplayPlan:
        """Count what would be sent; with `looks_up` what is there already is left out.

        Raises PeerError and UnreadableError.
        """
        plan, done, left = ReplayPlan(looked_up=looks_up), 0, self.limit
        for source, preparation in self._prepared:
            for rows, read in source.rows(plan.reading):
                ready = plan.still_to_send(preparation.ready(rows), before)
                kept = self._without_copies(ready, plan) if looks_up else ready
                for one in kept[:left]:
                    message = one.message
                    place = Place(message.source_topic, message.topic, one.broker, one.queue_id)
                    plan.places.setdefault(place, Count()).add(message)
                progress(done + read)
                left = None if left is None else max(0, left - len(kept))
                if left == 0:
                    break
            done += source.size
            plan.brokers |= preparation.brokers
            plan.unwritable |= preparation.unwritable
        return plan

    def _without_copies(self, ready: Sequence[Ready], plan: ReplayPlan) -> list[Ready]:
        kept = []
        for one, copies in zip(ready, look_up(self.cluster, ready), strict=True):
            if own_copy(one, copies) or (other_copy(one, copies) and not self.options.send_again):
                plan.omit(LeftOut(one.message.origin, "already-there"))
            else:
                kept.append(one)
        return kept

    def send(self, journal: Journal, progress: Callable[[int], None]) -> Sent:
        """Send all that is not done yet, up to the first refusal unless it keeps going.

        An error ends it, and is part of what it returns: the journal says what was done.
        """
        outcome = ReplayPlan()
        sender = Sender(self.cluster, journal, outcome, self.options)
        sent = Sent(outcome, sender.result)
        try:
            self._send(sender, journal.before, outcome, progress)
        except Stopped:
            sent.is_stopped = True
        except PeerError as error:
            sent.error = error
        return sent

    def _send(self, sender: Sender, before: Done, outcome: ReplayPlan, progress: Callable[[int], None]) -> None:
        done, left = 0, self.limit
        for source, preparation in self._prepared:
            outcome.brokers = preparation.brokers
            outcome.unwritable = preparation.unwritable
            for rows, read in source.rows(outcome.reading):
                ready = outcome.still_to_send(preparation.ready(rows), before)
                sender.send(ready[:left])
                progress(done + read)
                left = None if left is None else max(0, left - len(ready))
                if left == 0:
                    return
            done += source.size

    @cached_property
    def _prepared(self) -> list[tuple[MessageSource, Preparation]]:
        return [
            (
                selection.source,
                Preparation(self.cluster, selection.rewriting, Targets(selection.source.queue_count), _now),
            )
            for selection in self.selections
        ]


@dataclass
class Sent:
    """What became of a replay: `outcome` counts what was left out, `error` has ended it."""

    outcome: ReplayPlan
    result: SendResult
    is_stopped: bool = False
    error: PeerError | None = None
