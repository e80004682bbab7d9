"""Checks of tiered storage: what a start and a dispatch would destroy, segments, and units against records."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.broker.copied_records import differing_in_run
from rmqtool.broker.damaged_tags import damaged_tags
from rmqtool.clients.losses import BesideLog
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import UNIT_SIZE, lead_to_same
from rmqtool.rules.versions import TIER_REWRITTEN
from rmqtool.scan.block import REASON_MEANINGS, Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import (
    LEVEL_SETTING,
    METADATA,
    SEGMENT_KINDS,
    SegmentKind,
    Tier,
    TieredQueue,
    Unreadable,
    are_of,
    built_units,
    tier_of,
    units_at,
)
from rmqtool.store.unit_files import UnitFiles, units_of
from rmqtool.verify.tiered_index import check_tiered_index
from rmqtool.verify.tiered_losses import TieredLosses

CODES = (
    "tiered.metadata", "tiered.destroyed", "tiered.broker-name", "tiered.segment", "tiered.unit", "tiered.record",
    "tiered.index", "tiered.ahead", "tiered.hidden",
)  # fmt: skip


def check_tier(snapshot: Snapshot, report: Report) -> None:
    """Check the tier of a stopped broker, where its segments are files that can be read."""
    tier = tier_of(snapshot.store)
    if tier is None or isinstance(tier, Unreadable) or snapshot.holder is not None:
        return
    for code in CODES:
        report.check(code, len(tier.queues) or 1)
    if tier.directory is None or (tier.directories and tier.directory not in tier.directories):
        _report_names(tier, report)
        return
    files = [file for queue in tier.queues for kind in SEGMENT_KINDS for file in queue.files[kind].files]
    if tier.is_unknown and files:
        facts: dict[str, Any] = {"problem": "", "segments": len(files), "queues": len(tier.queues), "cause": "all"}
        report.add("tiered.metadata", file=METADATA, details=facts | {"bytes": sum(file.size for file in files)})
    there = {(queue.topic, queue.queue_id) for queue in (*tier.queues, *([tier.index] if tier.index else ()))}
    for (topic, queue_id), count in tier.named.items():
        if count and (topic, queue_id) not in there:
            report.add("tiered.segment", topic=topic, queue_id=queue_id, details={"problem": "all", "segments": count})
    for queue in tier.queues:
        _QueueCheck(snapshot, tier, queue, report).check()
    check_tiered_index(snapshot, tier, report)


def _report_names(tier: Tier, report: Report) -> None:
    found = [str(each.relative_to(tier.path)) for each in tier.directories]
    expected = str(tier.directory.relative_to(tier.path)) if tier.directory else "one of them, and does not say which"
    report.add("tiered.broker-name", details={"found": found, "expected": expected})


@dataclass
class _QueueCheck:
    """The flat files of one queue; `is_damaged` when anything is found that is more than information."""

    snapshot: Snapshot
    tier: Tier
    queue: TieredQueue
    report: Report
    is_damaged: bool = False

    def _add(self, code: str, details: dict[str, Any], **given: Any) -> None:
        self.is_damaged = True
        self.report.add(code, details=details, topic=self.queue.topic, queue_id=self.queue.queue_id, **given)

    def check(self) -> None:
        """Check segments first: units are compared where they are whole."""
        misfits = set[SegmentKind]()
        is_named = any(self.tier.rows(self.queue, kind) for kind in SEGMENT_KINDS)
        if not self.tier.is_unknown and not (is_named and self.tier.is_known(self.queue, self.snapshot.release)):
            files = [file for kind in SEGMENT_KINDS for file in self.queue.files[kind].files]
            facts = {"problem": "queue", "segments": len(files), "bytes": sum(file.size for file in files)}
            self._add("tiered.metadata", facts, file=METADATA)
        else:
            for kind in SEGMENT_KINDS:
                for name, facts in self._misfits(kind):
                    misfits.add(kind)
                    self._add("tiered.segment", facts, file=name)
        is_deleted = self._check_range()
        losses = TieredLosses(self.snapshot, self.tier, self.queue)
        self._check_records(misfits, losses)
        hidden = losses.hidden(is_deleted=is_deleted)
        if hidden:
            self._add("tiered.hidden", {"setting": LEVEL_SETTING, "messages": hidden}, count=hidden)
        if self.is_damaged or self.tier.is_unknown:
            self._lose(*losses.count(is_lost=is_deleted or self.tier.is_unknown), hidden)

    def _lose(self, count: int, missed_by_tag: int, hidden: int) -> None:
        """Count messages that consumers do not get; metadata that are written again bring them all back."""
        lost = self.snapshot.kept.setdefault(BesideLog, BesideLog())
        if self.tier.is_unknown:
            lost.tiered += count - hidden
        else:
            lost.lose_tiered(self.queue.topic, self.queue.queue_id, count - hidden)
        lost.hide(self.queue.topic, self.queue.queue_id, hidden)
        lost.missed_by_queue[self.queue.topic, self.queue.queue_id] = missed_by_tag

    def _shown(self, path: Path) -> str:
        return self.snapshot.store.relative(path)

    def _misfits(self, kind: SegmentKind) -> Iterator[tuple[str, dict[str, Any]]]:
        """Segments against the metadata both ways, and against each other."""
        rows, files = self.tier.rows(self.queue, kind), self.queue.files[kind].files
        for stray in self.queue.files[kind].strays:
            yield self._shown(stray.path), {"problem": "stray"}
        sizes = {file.start_offset: file.size for file in files}
        for base in sorted(rows.keys() - sizes.keys()) if not self.tier.is_unknown else ():
            yield (
                self._shown(self.queue.directory / kind),
                {"problem": "missing", "base": base, "expected": rows[base].size},
            )
        for number, file in enumerate(files):
            name, row, is_last = self._shown(file.path), rows.get(file.start_offset), number == len(files) - 1
            is_named = row is not None and not (row.is_elsewhere and self.snapshot.release >= TIER_REWRITTEN)
            if not is_named and not self.tier.is_unknown:
                yield name, {"problem": "unknown", "base": file.start_offset}
            elif row and file.size != row.size and not (is_last and file.size > row.size):
                problem = "short" if file.size < row.size else "long"
                yield name, {"problem": problem, "size": file.size, "expected": row.size}
            if row and self.snapshot.release < TIER_REWRITTEN and self.tier.is_wrongly_deleted(self.queue, row):
                yield name, {"problem": "deleted", "size": file.size}
            if kind == "CONSUME_QUEUE" and file.size % UNIT_SIZE:
                yield name, {"problem": "torn", "size": file.size, "unit": UNIT_SIZE}
        for before, after in pairwise(files):
            if before.end_offset != after.start_offset and kind != "INDEX":
                facts = {"problem": "gap", "base": after.start_offset, "end": before.end_offset}
                yield self._shown(after.path), facts

    def _check_range(self) -> bool:
        """Whether a dispatch deletes the queue, by where tier and local queue begin (`MessageStoreDispatcherImpl`)."""
        local = self.snapshot.queue(self.queue.topic, self.queue.queue_id)
        if local is None or not self.queue.units:
            return False
        rows = self.tier.rows(self.queue, "CONSUME_QUEUE")
        last = self.queue.units[-1]
        is_last_there = not rows or max(rows) <= last.start_offset
        end = self.queue.max_offset if is_last_there else max(rows) // UNIT_SIZE  # which is made again, empty
        if end < local.range.min_offset:
            held = self.queue.max_offset - self.queue.min_offset
            facts = {"tiered_end": end, "local_begin": local.range.min_offset, "messages": held}
            facts["missing"] = local.range.min_offset - self.queue.max_offset
            effect = f"the first dispatch, 20 seconds after a start, deletes {held} messages that only the tier has"
            self._add("tiered.destroyed", facts, count=max(1, held), effect=effect)
            return True
        return False

    def _check_records(self, misfits: Set[SegmentKind], losses: TieredLosses) -> None:
        """Walk the log: its records, and the unit that each of them has."""
        first = self.queue.first_unit
        held = sum(file.size for file in self.queue.units) // UNIT_SIZE
        is_row = self.queue.max_offset - first <= held  # else segments are missing, which is told
        is_judged = (is_row and "CONSUME_QUEUE" not in misfits) or self.tier.is_unknown
        seen = np.zeros(held if is_judged else 0, np.bool_)
        wrong_bodies = foreign = 0
        differing, wrong_fields, wrong_tags = list[int](), list[int](), list[int]()
        of_other_tags = list[int]()
        first_wrong = -1
        with closing(OpenFiles(self.snapshot.reading)) as open_files:
            units = units_of(self.queue.queue, open_files)
            for event in scan_files(self.queue.log, reading=self.snapshot.reading):
                if isinstance(event, Damage) and event.reason != "missing":
                    self._report_damage(event)
                if not isinstance(event, RecordRun):
                    continue
                wrong = np.flatnonzero(event.wrong_bodies)
                if len(wrong):
                    wrong_bodies += len(wrong)
                    queue_offsets = event.headers.field("queue_offset")
                    first_wrong = first_wrong if first_wrong >= 0 else int(queue_offsets[wrong[0]])
                is_own = are_of(event, self.queue.topic, self.queue.queue_id)
                losses.note(event, is_own & ~event.wrong_bodies)
                foreign += int(np.count_nonzero(~is_own))
                damaged, untagged = _note_units(event, is_own, units, first, seen)
                of_other_tags += untagged.tolist()
                numbers = event.headers.field("queue_offset").astype(np.int64)
                wrong_tags += np.setdiff1d(damaged, numbers[wrong]).tolist()
                compared = np.flatnonzero(is_own & ~event.wrong_bodies & ~np.isin(numbers, damaged))
                others = differing_in_run(self.snapshot, self.queue.topic, self.queue.queue_id, event, compared)
                wrong_fields += numbers[others.here].tolist()
                differing += numbers[others.undecided].tolist()
        if wrong_bodies:
            facts = {"problem": "body", "messages": wrong_bodies, "first": first_wrong}
            self._add("tiered.record", facts, count=wrong_bodies)
        if foreign:
            self._add("tiered.record", {"problem": "foreign", "messages": foreign}, count=foreign)
        for problem, numbers_of in (("tags", wrong_tags), ("fields", wrong_fields)):
            if numbers_of:
                facts = {"problem": problem, "messages": len(numbers_of), "first": min(numbers_of)}
                self._add("tiered.record", facts, count=len(numbers_of), queue_offset=min(numbers_of),
                          severity="warning")  # fmt: skip
        losses.note_damaged([*wrong_tags, *wrong_fields])
        losses.note_wrong_tags(of_other_tags)
        if differing:
            facts = {"problem": "differs", "messages": len(differing), "first": min(differing), "cause": "differs"}
            self._add("tiered.record", facts, count=len(differing), queue_offset=min(differing))
        self._report_units(seen, misfits)

    def _report_units(self, seen: NDArray[np.bool_], misfits: Set[SegmentKind]) -> None:
        """Units that lead to no record of theirs: by `seen` those that do, from the first unit on."""
        first = self.queue.first_unit
        if not self._is_front_missing:
            seen[: self.queue.min_offset - first] = True  # of messages that have expired: the log does so by itself
        self._check_end(seen, first)
        lacking = np.flatnonzero(~seen)
        if len(lacking) and not misfits:
            facts = {"units": len(lacking), "total": len(seen), "first": first + int(lacking[0])}
            self._add("tiered.unit", facts, count=len(lacking), queue_offset=first + int(lacking[0]))

    @property
    def _is_front_missing(self) -> bool:
        """Whether the metadata have a segment of the log before the first that is there."""
        rows = self.tier.rows(self.queue, "COMMIT_LOG")
        return bool(rows and self.queue.log) and min(rows) < self.queue.log[0].start_offset

    def _check_end(self, seen: NDArray[np.bool_], first: int) -> None:
        """Messages after the end of the local queue; units after it that lead nowhere are damage."""
        local = self.snapshot.queue(self.queue.topic, self.queue.queue_id)
        beyond = max(0, local.range.max_offset - first) if local else len(seen)
        after = np.flatnonzero(seen[beyond:])
        if local and len(after):
            end = max(first, local.range.max_offset) + int(after[-1]) + 1
            self._add("tiered.ahead", {"tiered_end": end, "local_end": local.range.max_offset})

    def _report_damage(self, damage: Damage) -> None:
        file = next((each for each in self.queue.log if each.holds(damage.physical_offset)), None)
        facts = {"problem": "", "bytes": damage.size, "why": REASON_MEANINGS[damage.reason]}
        self._add("tiered.record", facts, file=self._shown(file.path) if file else None,
                  offset=damage.physical_offset - file.start_offset if file else None)  # fmt: skip


def _note_units(
    run: RecordRun, is_own: NDArray[np.bool_], units: UnitFiles, first: int, seen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Note in `seen`, from queue offset `first` on, which units lead to the records of a run.

    A record may be there twice, after an upload that failed: its unit leads to the last copy. The result are the queue
    offsets of records whose tags are damaged, not those of their units, and of units that have other tags than these.
    """
    numbers, built = built_units(run, np.flatnonzero(is_own))
    rows = np.flatnonzero((numbers >= first) & (numbers < first + len(seen)))
    numbers, built = numbers[rows], built[rows]
    stored = units_at(units, numbers)
    is_damaged = damaged_tags(run, numbers, built, stored, units)
    seen[numbers[(stored == built) | is_damaged] - first] = True
    own, low = built["tags_code"], stored["tags_code"].astype(np.int32)  # brokers compare the low 32 bits
    return numbers[is_damaged], numbers[lead_to_same(stored, built) & ~is_damaged & (own != 0) & (own != low)]
