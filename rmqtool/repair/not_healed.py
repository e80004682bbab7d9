"""What no change of ours heals: why, and which files have to come from a replica or a backup, by name and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rmqtool.broker.dispatched_record import index_of_another_log
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import Finding
from rmqtool.findings.report import UNREADABLE
from rmqtool.repair.change import Change, Resized, codes_of, name_in_store
from rmqtool.repair.log_files import NAME_CODES, empty_files, expected_size, is_resizable, resized
from rmqtool.repair.tiered import tiered_refusals
from rmqtool.rules.file_sizes import LOG_FILE_SIZE, queue_file_size
from rmqtool.store.missing import common_file_sizes, known_end, missing_files
from rmqtool.store.snapshot import Snapshot

_GAP, _SIZE, _EMPTY = "commitlog.gap", "commitlog.file-size", "commitlog.empty-file"
_END = frozenset({"commitlog.last-file-missing", "commitlog.end-missing", "commitlog.missing"})
_IN_THE_WAY = frozenset({"commitlog.stray", "commitlog.stray-directory", "consumequeue.stray", "store.wrong-kind"})


@dataclass(frozen=True)
class NotHealed:
    """Findings that no change heals: `why`, and the files that are `needed` from elsewhere, with their sizes.

    `moved` are entries in the way that no transaction reaches, so that a person moves them.
    """

    codes: frozenset[str]
    why: str
    needed: tuple[str, ...] = ()
    moved: tuple[Path, ...] = ()

    @property
    def is_a_step(self) -> bool:
        """Whether a step of the plan is about it."""
        return bool(self.moved or (self.needed and not self.codes & UNREADABLE))


def not_healed(snapshot: Snapshot, findings: Sequence[Finding], changes: Sequence[Change]) -> list[NotHealed]:
    """The findings about the store's files for which `changes`, those of `log_file_changes`, do nothing."""
    codes = codes_of(findings)
    if codes & UNREADABLE:
        return [*_unreadable(findings), *_out_of_reach(snapshot, findings)]
    left = codes - {code for change in changes for code in change.codes}
    return [
        *(_gaps(snapshot) if _GAP in left else ()),
        *_end(snapshot, codes & _END),
        *_wrong_conf(snapshot, codes),
        *(_sizes(snapshot) if codes & {_SIZE, _EMPTY} else ()),
        *_names(left & NAME_CODES - {_GAP}),
        *(NotHealed(frozenset({code}), why, needed) for code, why, needed in tiered_refusals(snapshot, findings)),
        *_out_of_reach(snapshot, findings),
    ]


def _gaps(snapshot: Snapshot) -> Iterator[NotHealed]:
    files = [file for file in snapshot.log.files if file.size]
    gaps = [(before.end_offset, after.start_offset) for before, after in pairwise(files)]
    needed = [name for start, end in gaps if start < end for name in missing_files(snapshot, start, end)]
    if needed:
        why = "files of the log are missing: nothing in the store has their messages, and a file of zeros in their "
        why += "place would be served as messages. Without them the gap remains, and consumers skip it"
        yield NotHealed(frozenset({_GAP}), why, tuple(needed))


def _end(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[NotHealed]:
    if not codes:
        return
    files_end, known = (
        snapshot.log.files[-1].end_offset if snapshot.log.files else 0,
        known_end(snapshot, index_of_another_log(snapshot)),
    )
    end = files_end if known > files_end else snapshot.log_range.max_offset
    why = "the end of the log is lost: restore it before the broker starts, and before the queues are rebuilt, "
    why += "which still point to the lost messages"
    if not snapshot.log.files:
        why = "the whole log is missing, or its disk is not mounted, or broker.conf names another directory"
    yield NotHealed(codes, why, missing_files(snapshot, end, known) if known > end else ())


def _wrong_conf(snapshot: Snapshot, codes: frozenset[str]) -> Iterator[NotHealed]:
    usual, configured = snapshot.right_log_file_size, snapshot.store.conf.size(*LOG_FILE_SIZE)
    if usual and configured and usual != configured:
        why = f"the log files have {usual} bytes, and broker.conf says {LOG_FILE_SIZE[0]}={configured}: put {usual} "
        why += "there; the files are not changed"
        yield NotHealed(frozenset({_SIZE, "start.refuses"} & codes), why)


def _sizes(snapshot: Snapshot) -> Iterator[NotHealed]:
    """Files whose size no change puts right."""
    size, empty = expected_size(snapshot), empty_files(snapshot.log)
    for file in snapshot.log.files if size else ():
        name = snapshot.store.relative(file.path)
        if size and file.size > size and not is_resizable(file, size):
            yield NotHealed(frozenset({_SIZE}), f"{name} has data after the {size} bytes that a file has")
        elif not file.size and file not in empty:
            why = f"{name} has 0 bytes, as all files of the log: no messages are left"
            yield NotHealed(frozenset({_EMPTY}), why, (f"{name} ({size} bytes)",))


def _names(codes: frozenset[str]) -> Iterator[NotHealed]:
    if codes - {"commitlog.physical-offset"}:
        why = "names and contents of log files contradict each other, and renaming cannot make the log contiguous: "
        why += "decide which file is right, and move the other out of the directory"
        yield NotHealed(codes, why)


def _unreadable(findings: Sequence[Finding]) -> Iterator[NotHealed]:
    files = tuple(dict.fromkeys(each.file for each in findings if each.code in UNREADABLE and each.file))
    if files:
        why = "cannot be read: run as the broker's user, or copy the disk with a tool that skips bad sectors, or "
        why += "restore these files"
        yield NotHealed(codes_of(findings) & UNREADABLE, why, files)


def moved_by_hand(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[Path, str]:
    """The entries in the way that a person must move, for no transaction reaches them; each with its code."""
    is_queue_missing = any(each.code == "consumequeue.missing-queue" for each in findings)
    moved = {}
    for each in findings:
        in_the_way = each.severity != "info" or (is_queue_missing and each.code == "consumequeue.stray")
        if in_the_way and each.file and each.code in _IN_THE_WAY | {_EMPTY, "commitlog.duplicate-file"}:
            path = snapshot.store.root / Path(each.file)
            if name_in_store(snapshot.store, path) is None:
                moved[path] = each.code
    return moved


def _out_of_reach(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[NotHealed]:
    moved = moved_by_hand(snapshot, findings)
    if moved:
        why = (
            "outside the store, in a linked directory, on another disk, or rmqtool's or the broker's own: move it away"
        )
        yield NotHealed(frozenset(moved.values()), why, moved=tuple(moved))


_WHY = (
    "the log has no message of these queues, so a rebuild does not change them: restore their files from a backup or a "
    "replica. Without one, set their groups to after the damage, once the broker runs (mqadmin resetOffsetByTime -g "
    "GROUP -t TOPIC -s now)"
)
_WHY_AHEAD = (
    "the log has no message of these queues, so a rebuild does not change them; a start cuts the entries that point "
    "past the end of the log"
)
_AHEAD = "consumequeue.ahead"
_OF_SIZE = frozenset({"consumequeue.file-size", "consumequeue.empty-file", "start.refuses"})
_OF_THE_STORE = frozenset({"store.abort-missing"})  # reported since units of some queue lead after the log
_MENDED = "consumequeue.row"  # a rebuild that writes the database again leaves such rows out


def split_kept(findings: Sequence[Finding], queues_in_log: Set[QueueName]) -> tuple[list[Finding], list[Finding]]:
    """Split `findings`, which a rebuild would treat: those about queues that it leaves as they are, and the others."""
    kept, rest = list[Finding](), list[Finding]()
    for each in findings:
        name = None if each.code == _MENDED else _queue_of(each)
        (rest if name is None or name in queues_in_log else kept).append(each)
    is_explained = any(each.code == _AHEAD for each in kept) and all(each.code in _OF_THE_STORE for each in rest)
    return ([*kept, *rest], []) if is_explained else (kept, rest)


def reasons_for(kept: Set[str], *, takes_abort: bool = False) -> Iterator[tuple[frozenset[str], str]]:
    """Why no repair fixes what is found of queues that a rebuild keeps, for each group of the codes.

    A rebuild that `takes_abort` away leaves entries past the end of the log without it.
    """
    ahead = kept & {_AHEAD, *_OF_THE_STORE}
    if takes_abort and _AHEAD in kept:
        ahead |= _OF_THE_STORE
    for codes, why in ((ahead, _WHY_AHEAD), (kept - ahead, _WHY)):
        if codes:
            yield frozenset(codes), why


def ends_behind_log(findings: Sequence[Finding], kept: Sequence[Finding]) -> bool:
    """Whether a rebuild cuts units that point after the log's end, as a start would: not those of `kept` queues."""
    if not any(finding.code == "commitlog.last-file-missing" for finding in findings):
        return False
    ahead = {each for each in findings if each.code == _AHEAD}
    return not ahead or not ahead.issubset(kept)


def resized_files(snapshot: Snapshot, kept: Sequence[Finding]) -> Iterator[Resized]:
    """The files of queues of `kept` findings that are short or empty, or have zeros after the size of all others."""
    names = {_queue_of(each) for each in kept if each.code in _OF_SIZE}
    usual = common_file_sizes(snapshot.queues) if names else {}
    for queue in snapshot.queues if names else ():
        size = queue_file_size(snapshot.store.conf, queue.kind) or usual.get(queue.kind)
        for file in queue.files.files if size and QueueName(queue.topic, queue.queue_id) in names else ():
            name = name_in_store(snapshot.store, file.path)
            if name and size and (not file.size or is_resizable(file, size)):
                yield resized(name, file, size, _OF_SIZE, queue.unit_size)


def _queue_of(finding: Finding) -> QueueName | None:
    """The queue that a finding names, or whose file a start is refused for."""
    if finding.topic is not None and finding.queue_id is not None:
        return QueueName(finding.topic, finding.queue_id)
    if finding.details.get("cause") == "queue-file":
        return QueueName(finding.details["topic"], finding.details["queue_id"])
    return None
