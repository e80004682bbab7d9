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
    verification = outcome.verification
    start = verification.start
    return {
        "verdict": outcome.verdict,
        "complete": verification.complete,
        "messages": outcome.totals.messages,
        "bytes": outcome.totals.bytes,
        "commit_log": {
            "files": len(verification.log.files),
            "min_offset": verification.log_start,
            "max_offset": verification.log_end,
        },
        "bad_extents": [
            {"physical_offset": offset, "size": size, "reason": reason}
            for offset, size, reason in outcome.extents
            if reason != UNREAD
        ],
        "map": [
            {"physical_offset": extent.physical_offset, "size": extent.size, "state": extent.state}
            for extent in islice(outcome.log_map, _MAX_EXTENTS)
        ],
        "messages_lost": [{"topic": topic, "messages": count} for topic, count in sorted(verification.lost.items())],
        "releases": {
            "oldest": str(verification.releases.oldest),
            "newest": str(verification.releases.newest),
            "named": verification.releases.is_named,
            "evidence": list(verification.releases.evidence),
        },
        "start": start.as_json() if start else None,
        "starts": [
            {"releases": label(prediction.versions), "start": prediction.start.as_json()}
            for prediction in verification.starts
        ],
        "start_not_predicted": outcome.start_not_predicted,
        "checks": outcome.checks,
        "unproven": outcome.unproven,
        "not_checked": [{"what": gap.what, "why": gap.why, "codes": list(gap.codes)} for gap in outcome.gaps],
    }
