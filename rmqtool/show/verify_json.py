"""The outcome of a verification as JSON."""

from __future__ import annotations

from itertools import islice
from typing import Any

from rmqtool.broker.starts_by_release import label
from rmqtool.verify.bad_extents import UNREAD
from rmqtool.verify.outcome import Outcome

_MAX_EXTENTS = 10_000


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The `result` of ``verify STORE``."""
    start, clients = outcome.start, outcome.clients
    return {
        "note": outcome.note,
        "verdict": outcome.verdict,
        "complete": outcome.complete,
        "messages": outcome.total.totals.messages,
        "bytes": outcome.total.totals.bytes,
        "commit_log": {
            "files": len(outcome.snapshot.log.files),
            "min_offset": outcome.log_start,
            "max_offset": outcome.log_end,
        },
        "bad_extents": [
            {"physical_offset": offset, "size": size, "reason": reason}
            for offset, size, reason in outcome.total.extents
            if reason != UNREAD
        ],
        "map": [
            {"physical_offset": extent.physical_offset, "size": extent.size, "state": extent.state}
            for extent in islice(outcome.log_map, _MAX_EXTENTS)
        ],
        "messages_lost": [{"topic": topic, "messages": count} for topic, count in sorted(outcome.lost.items())],
        "releases": {
            "oldest": str(outcome.snapshot.releases.oldest),
            "newest": str(outcome.snapshot.releases.newest),
            "named": outcome.snapshot.releases.is_named,
            "evidence": list(outcome.snapshot.releases.evidence),
        },
        "start": {**start.as_json(), "clients": None if clients is None else clients.as_json()} if start else None,
        "starts": [
            {"releases": label(prediction.versions), "start": prediction.start.as_json()}
            for prediction in outcome.starts
        ],
        "start_not_predicted": outcome.start_not_predicted,
        "checks": outcome.checks,
        "unproven": outcome.unproven,
        "not_checked": [{"what": gap.what, "why": gap.why, "codes": list(gap.codes)} for gap in outcome.gaps],
    }
