"""A comparison of two stores as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rmqtool.diff.advice import next_steps
from rmqtool.diff.comparison import StoreComparison
from rmqtool.diff.epochs import EpochComparison, Following, SideEpochs
from rmqtool.diff.in_order import Alignment
from rmqtool.diff.records import Difference
from rmqtool.diff.side import SIDES, Node, Side
from rmqtool.diff.tails import Tail
from rmqtool.show.output import Style, error_json, write_document


def write_diff(comparison: StoreComparison, style: Style) -> None:
    """Print the one document."""
    write_document(style, "diff", style.store, diff_json(comparison), status=comparison.status)


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
        "differences": [_difference(difference) for difference in parting.differences[:limit]],
        "epochs": _epochs(comparison.epochs),
        "only_a": _tail(comparison.tails.get("a")),
        "only_b": _tail(comparison.tails.get("b")),
        "listed": comparison.listed,
        "queues": {
            "different": len(comparison.queues),
            "unexplained": len(comparison.own_queue_differences),
            "examples": [asdict(queue) for queue in queues[:limit]],
        },
        "config": {
            "different": len(comparison.configs),
            "examples": [asdict(entry) for entry in comparison.configs[:limit]],
        },
        "not_compared": comparison.not_compared,
        "unread": [error_json(error) for error in comparison.unread],
        "next": next_steps(comparison),
    }


def _side(side: Side) -> dict[str, Any]:
    log = side.snapshot.log
    return {
        "store": str(side.snapshot.store.root),
        "running": side.snapshot.holder is not None,
        "files": len(log.files),
        "file_size": log.file_size,
        "min_offset": side.start,
        "max_offset": side.end,
        "data_end": side.data_end,
        "node": _node(side.node),
    }


def _node(node: Node | None) -> dict[str, Any] | None:
    if node is None:
        return None
    last = asdict(node.last) if node.last else None
    return {"name": node.name, "last_entry": last, "committed_index": node.committed}


def _alignment(alignment: Alignment | None) -> dict[str, Any] | None:
    if alignment is None:
        return None
    starts, ends = alignment.starts, alignment.ends
    found: dict[str, Any] = {"messages": alignment.messages, "before": alignment.before}
    for name in SIDES:
        found[name] = {"from_offset": starts[name], "to_offset": ends[name]} if starts else None
    return found


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "offset": difference.offset,
        "damaged": list(difference.damaged),
        "a": asdict(difference.a),
        "b": asdict(difference.b),
    }


def _tail(tail: Tail | None) -> dict[str, Any] | None:
    if tail is None:
        return None
    topics = [{"topic": topic, "messages": count} for topic, count in tail.topics]
    return {
        "from_offset": tail.start,
        "to_offset": tail.end,
        "messages": tail.messages,
        "topics": topics,
        "is_older": tail.is_older,
    }


def _epochs(epochs: EpochComparison | None) -> dict[str, Any] | None:
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
    return {
        "consistent_point": following.point,
        "has_no_epochs": following.has_no_epochs,
        "cut": _tail(following.cut),
    }
