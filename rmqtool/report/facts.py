"""All that a report shows, gathered from the jobs that find it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.delete_when import next_start
from rmqtool.clean.forecast import Course, courses
from rmqtool.clean.losses import Losses, losses_of
from rmqtool.clean.plan import AsIf, CleanPlan, next_deletions
from rmqtool.clean.plan import plan as plan_of
from rmqtool.inspect.overview import Overview
from rmqtool.repair.plan import Plan
from rmqtool.report.positions import GroupPosition, positions_of
from rmqtool.report.timeline import Timeline
from rmqtool.verify.outcome import Outcome


@dataclass(frozen=True)
class Retention:
    """What the cleaner does next, who loses by it, and how the disk fares: as it grows now, and twice as fast.

    `plan` is of now, or of the next hour of deleteWhen when only that one deletes.
    """

    plan: CleanPlan
    losses: Losses
    courses: Sequence[Course]


@dataclass(frozen=True)
class Life:
    """The messages of an id, one of each unique key, with their traces in `places`: JSON objects of `query`.

    `notes` say why there is none.
    """

    name: str
    messages: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class StoreReport:
    """A store at `now`, epoch ms; times are shown in `zone`, None: this machine's.

    `retention` is None where `no_retention` says why.
    """

    now: int
    zone: tzinfo | None
    overview: Overview
    outcome: Outcome
    plan: Plan
    timeline: Timeline
    retention: Retention | None
    no_retention: str | None
    positions: Sequence[GroupPosition]
    lives: Sequence[Life] = ()


def gather(
    now: int, zone: tzinfo | None, overview: Overview, outcome: Outcome, plan: Plan, timeline: Timeline
) -> StoreReport:
    """What has been read already, with retention and groups."""
    retention, why = None, None
    snapshot = overview.snapshot
    try:
        retention = _retention(overview, now, zone)
    except RmqtoolError as error:
        why = str(error)
    ranges = (((queue.topic, queue.queue_id), offsets) for queue, offsets in overview.queues)
    positions = positions_of(snapshot, ranges, retention.losses.groups if retention else (), overview.views)
    return StoreReport(now, zone, overview, outcome, plan, timeline, retention, why, positions)


def _retention(overview: Overview, now: int, zone: tzinfo | None) -> Retention:
    snapshot = overview.snapshot
    first = next_deletions(snapshot.store, snapshot.version, now, AsIf(zone=zone))
    coming = _coming(first)
    return Retention(coming, losses_of(coming), courses(first))


def _coming(first: CleanPlan) -> CleanPlan:
    """The runs of now, or those of the next hour of deleteWhen when only they delete."""
    hour = next_start(first.rules.settings.delete_when, first.now, first.rules.zone)
    for at in (first.now, hour):
        coming = plan_of(first.facts, first.rules, at, all_runs=True) if at is not None else first
        if coming.deleted:
            return coming
    return first
