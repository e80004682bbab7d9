"""A replay as a whole: what is read, where it goes, and sending it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rmqtool.replay.cluster import Cluster, Targets
from rmqtool.replay.connection import PeerError
from rmqtool.replay.journal import Done, Journal
from rmqtool.replay.planning import Preparation, ReplayPlan, make_plan
from rmqtool.replay.rewriting import Rewriting
from rmqtool.replay.sending import Sender, SendOptions, SendResult, Stopped
from rmqtool.replay.sources import MessageSource


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
        """Count what would be sent; raises PeerError and UnreadableError."""
        return make_plan(
            self._prepared,
            before,
            looks_up=looks_up,
            send_again=self.options.send_again,
            progress=progress,
            limit=self.limit,
        )

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


def _now() -> int:
    return time.time_ns() // 1_000_000
