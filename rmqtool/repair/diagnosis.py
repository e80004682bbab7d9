"""A verification as a repair sees it: the findings by what becomes of them, and what a repair does about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_args

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.visible import join
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.losses import ClientLosses, Due, topics_of
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding, Treatment
from rmqtool.findings.report import UNREADABLE
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.repair.change import Change, FileChange, Replaced, TakenOut, once, out_of_reach
from rmqtool.repair.config_files import OUT_OF_RANGE, config_changes, unhealed_config, why_past_ends
from rmqtool.repair.fields import RightField, RightFields
from rmqtool.repair.log_files import (
    BEFORE_REBUILDS,
    FILE_SIZE,
    NewCheckpoint,
    Renamed,
    log_file_changes,
    proves_more,
)
from rmqtool.repair.not_healed import (
    NotHealed,
    ends_behind_log,
    moved_by_hand,
    not_healed,
    reasons_for,
    resized_files,
    split_kept,
)
from rmqtool.repair.tiered_queues import RewrittenUnits
from rmqtool.repair.timer_files import timer_changes
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.config_json import parse_fastjson
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    DELAYS,
    OFFSETS,
    TOPICS,
    counting_file,
    offsets_by_level,
    offsets_in,
)
from rmqtool.store.lock import has_abort
from rmqtool.store.missing import Sized, unknown_sizes
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, Store

_TOPICS = f"{CONFIG}/{TOPICS}"
_WITHOUT_MEMORY = ("salvage",)  # commands without the option
_WITH_TIER = ("verify", "repair")
_OF_BROKER = ("--broker-conf", "--broker-version")
NEWER_RECORDS = "commitlog.magic-code-v2"
BODY_CRC = "commitlog.body-crc"
PROPERTIES = "commitlog.properties"
_LOST_TABLES = frozenset({"config.missing", "config.unreadable"})
_AFTER_A_CRASH = "start.other-mode-data-loss"
_CUTS_QUEUES = frozenset({"commitlog.last-file-missing", "commitlog.end-missing"})
_OF_ANY_TOPIC = frozenset({"commitlog.torn", "commitlog.last-file-missing", "commitlog.queue-offset-restart",
                           "commitlog.gap"})  # fmt: skip
_OF_QUEUES = (OUT_OF_RANGE, "config.wrong-offset", "config.delay-offset")


@dataclass(frozen=True)
class DamagedMessages:
    """Messages with some damage: so many of them clients get even after the next start, `others` end its scan.

    The `served` ones are those before the physical offset `until`, but for those at `unproven` ones, to which no queue
    entry leads.
    """

    until: int = 0
    served: int = 0
    others: int = 0
    unproven: Set[int] = frozenset()

    def serves(self, physical_offset: int) -> bool:
        """Whether clients get the message at an offset."""
        return physical_offset < self.until and physical_offset not in self.unproven


@dataclass(frozen=True)
class Diagnosis:
    """A verification as a plan sees it: findings above information, and messages by topic that cannot be read.

    `mended` says that the next start fixes all of it without loss, `sound` that a broker may start as it is. `options`
    are the words that each command of the plan needs, such as ``--broker-conf FILE``. `damaged_bytes` of the log are
    not as stored; `lost_is_minimum` says that they may have held more messages than those that are counted.
    `queues_in_log` are those of which the log holds messages, None where not all of it could be read; `keys_missing`
    says that the index lacks keys, also where the next start would put them. `clients` is what clients lose by the next
    start, None where that is not known; `cuts_log` says that it ends the log before readable messages; `damage`
    is where it begins and ends in the log. What clients get of damaged `bodies` and `properties` is taken
    away for codes in `lose` only.
    """

    snapshot: Snapshot
    findings: Sequence[Finding]
    lost: Mapping[str, int] = field(default_factory=dict)
    mended: bool = False
    options: tuple[str, ...] = ()
    damaged_bytes: int = 0
    lost_is_minimum: bool = False
    queues_in_log: Set[QueueName] | None = None
    clients: ClientLosses | None = None
    cuts_log: bool = False
    sound: bool = False
    keys_missing: bool = False
    bodies: DamagedMessages = DamagedMessages()
    properties: DamagedMessages = DamagedMessages()
    damage: Sequence[tuple[int, int]] = ()
    lose: Set[str] = frozenset()

    @property
    def losable(self) -> Mapping[str, DamagedMessages]:
        """The damaged messages of which clients get some, by code; each code is one that a repair may be asked for."""
        return {BODY_CRC: self.bodies, PROPERTIES: self.properties}

    def served_until(self, code: str) -> int:
        """The physical offset before which messages with some damage are left to the clients, which get them."""
        return 0 if code in self.lose else self.losable[code].until

    @property
    def by_treatment(self) -> dict[Treatment, list[Finding]]:
        """The findings, each under its treatment."""
        return self.treated(self.findings)

    def treated(self, findings: Sequence[Finding]) -> dict[Treatment, list[Finding]]:
        """Some of the findings, each under its treatment.

        A start that loses records which its release cannot read is fixed by another release, not by dummy records.
        """
        is_moved = bool(moved_by_hand(self.snapshot, self.findings))  # that may be why: it is judged again after it
        is_older = any(finding.code == NEWER_RECORDS for finding in findings)
        found: dict[Treatment, list[Finding]] = defaultdict(list)
        for each in findings:
            if not _is_refusal(each, of_any=is_moved):
                is_of_release = is_older and each.code.startswith("start.")
                found["release" if is_of_release else CATALOGUE[each.code].treatment_of(each)].append(each)
        if self.queues_in_log is not None:
            kept, rebuilt = split_kept(found.pop("queues", []), self.queues_in_log)
            found |= {"queues": rebuilt} if rebuilt else {}
            found |= {"kept": kept} if kept else {}
        is_served = any(self.served_until(code) and each.served for code, each in self.losable.items())
        return self._without_served(found) if is_served else found

    def _is_served(self, finding: Finding) -> bool:
        """Whether it is about a message that clients get, and that nobody has asked to take away."""
        damaged = None if finding.code in self.lose else self.losable.get(finding.code)
        return damaged is not None and damaged.serves(finding.offset or 0)

    def _without_served(self, found: dict[Treatment, list[Finding]]) -> dict[Treatment, list[Finding]]:
        """The same, without what would take away damaged messages that clients get."""
        damage = found.pop("neutralise", [])
        served = [each for each in damage if self._is_served(each)]
        others = [each for each in damage if each not in served]
        is_rest = any(each.others or each.unproven for each in self.losable.values())
        if all(each.code == _AFTER_A_CRASH for each in others) and not is_rest:
            served, others = damage, []
        found |= {"lose": served} if served else {}
        return found | ({"neutralise": others} if others else {})

    @property
    def has_no_log(self) -> bool:
        """Whether no message is in the log."""
        return self.queues_in_log is not None and not self.queues_in_log

    @property
    def is_unread(self) -> bool:
        """Whether part of the log, of queues or of the index cannot be read: a rebuild ends there."""
        return any(map(_keeps_from_rebuilds, self.findings))

    def command(self, name: str, *more: str) -> str:
        """A command line on the store that can be pasted."""

        def takes(option: str) -> bool:
            is_of_tier = option == "--tiered-path" and name not in _WITH_TIER
            return not is_of_tier and not (option == "--memory" and name in _WITHOUT_MEMORY)

        words = self._words(takes)
        return join(["rmqtool", name, str(self.snapshot.store.root), *words, *more])

    def clean_command(self) -> str:
        """A command line that shows what the cleaner of the same broker would delete."""
        words = self._words(_OF_BROKER.__contains__)
        return join(["rmqtool", "clean", str(self.snapshot.store.root), *words, "--dry-run"])

    def _words(self, takes: Callable[[str], bool]) -> Iterator[str]:
        """Those of the options that a command takes, each with its value."""
        given = zip(self.options[::2], self.options[1::2], strict=True)
        return (word for option, value in given if takes(option) for word in (option, value))


@dataclass(frozen=True)
class Repairs:
    """What one repair does: changes of its own, and whether queues and index are rebuilt and damage neutralised.

    With `goes_on` more is known to be wrong, which is judged again after it. Before the physical offset `served_until`
    messages with a damaged body are left alone, and before `readable_until` those with damaged properties.
    """

    changes: tuple[Change, ...] = ()
    queues: bool = False
    index: bool = False
    neutralise: bool = False
    goes_on: bool = False
    served_until: int = 0
    readable_until: int = 0

    @property
    def is_of_log(self) -> bool:
        """Whether files of the log are put right, after which all is judged again."""
        return any(change.codes & BEFORE_REBUILDS for change in self.changes)

    @property
    def renames(self) -> bool:
        """Whether files of the log get other names, so that nothing may be missing after it."""
        return any(isinstance(change, Renamed) for change in self.changes)

    @property
    def brings_topics(self) -> bool:
        """Whether topics are put back, whose queues are then missing ones, not deleted ones."""
        return self.goes_on and any("config.topic-missing" in change.codes for change in self.changes)

    @property
    def right_fields(self) -> list[RightField]:
        """The fields of records that are put right."""
        return [each for change in self.changes if isinstance(change, RightFields) for each in change.fields]

    def __bool__(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.changes or self.queues or self.index or self.neutralise)


def clients_after(diagnosis: Diagnosis, repairs: Repairs, *, keep_offsets: bool = False) -> ClientLosses | None:
    """What clients do not get even after the `repairs`, and those that follow them, and a start."""
    clients = diagnosis.clients
    if _shows_only_later(diagnosis, repairs):
        return None
    later = diagnosis.by_treatment if repairs.goes_on else {}
    neutralises = repairs.neutralise or "neutralise" in later
    if clients is None or (diagnosis.cuts_log and not neutralises):
        return clients
    is_gone = diagnosis.has_no_log and not repairs.renames  # and nothing of it comes back
    if is_gone and clients.refuses and repairs:
        return None
    if repairs and not _stays_refused(diagnosis, repairs, keep_offsets=keep_offsets):
        clients = replace(clients, refuses=None)  # as it is healed, or people heal it first
    by_offsets = clients.by_offsets.kept() if keep_offsets and clients.by_offsets else clients.by_offsets
    clients = replace(clients, by_offsets=None if is_gone else by_offsets)
    try:
        clients = clients.healed(
            queues=not is_gone and (repairs.queues or neutralises or "queues" in later or repairs.brings_topics),
            index=not is_gone and (repairs.index or neutralises or "index" in later),
        )
        if repairs.renames:
            keeps_never = any(each.code == "config.delay-level" for each in diagnosis.findings)
            clients = _with_renamed(clients, keeps_never=keeps_never)
        clients = _with_whole(clients, [_Whole.of(each, clients) for each in repairs.right_fields])
        if repairs and clients.by_offsets and _loses_of_any_topic(diagnosis, repairs, clients, neutralises=neutralises):
            clients = replace(clients, groups=clients.by_offsets.groups(lost=None))
        is_of_timers = repairs.goes_on and not is_gone  # which no later verification finds without a log
        timers = [each for each in diagnosis.findings if is_of_timers and each.code.startswith("timer.")]
        for change in (*repairs.changes, *(timer_changes(diagnosis.snapshot, timers) if timers else ())):
            clients = _changed(clients, change, diagnosis.snapshot.store)
        of_delays = [each for each in diagnosis.findings if _is_of_delay_offsets(each, are_moved=not keep_offsets)]
        if of_delays and repairs.goes_on and not repairs.renames and clients.by_offsets:
            clients = replace(clients, delayed=clients.by_offsets.delayed(are_proven=True))
    except RmqtoolError:
        return None
    return clients


def _stays_refused(diagnosis: Diagnosis, repairs: Repairs, *, keep_offsets: bool) -> bool:
    """Whether a start is refused even after the repairs: also by a file of offsets that is to stay as it is."""
    if keep_offsets and not repairs.is_of_log:
        files = {f"{CONFIG}/{name}" for name in OFFSETS}
        left = unhealed_config(diagnosis.findings, repairs.changes, offsets=False)
        if any(each.code == "start.refuses" and each.details.get("file") in files for each, _ in left):
            return True
    kept = diagnosis.by_treatment.get("kept", ())
    return not repairs.goes_on and any(each.code == "start.refuses" for each in kept)


def _loses_of_any_topic(diagnosis: Diagnosis, repairs: Repairs, left: ClientLosses, *, neutralises: bool) -> bool:
    """Whether a loss is known after the repairs of which nothing shows the topics: groups of all are judged by it."""
    if repairs.renames:
        return False  # files of the log are found again
    codes = {each.code for each in diagnosis.findings}
    missing = any(isinstance(each, TakenOut) and each.missing for each in repairs.changes)
    if missing or not codes.isdisjoint(_OF_ANY_TOPIC) or proves_more(diagnosis.snapshot, codes):
        return True
    right = sum(each.damaged_bytes for each in repairs.right_fields if each.name != "body_crc")
    return neutralises and diagnosis.damaged_bytes > right and not topics_of(left.unreachable)


def _shows_only_later(diagnosis: Diagnosis, repairs: Repairs) -> bool:
    """Whether what clients get shows only in the verification after a step."""
    if moved_by_hand(diagnosis.snapshot, diagnosis.findings):
        return True
    if any(each.code.startswith("start.") and each.details.get("setting") for each in diagnosis.findings):
        return True  # a broker starts with another broker.conf
    if any(map(_is_refusal, diagnosis.findings)) or _shows_what_log_had(diagnosis, repairs.changes):
        return True  # the same, with another database; or once the offsets are back
    if _rebuilds_queues(diagnosis, repairs) and _lacks_delays(diagnosis):
        return True  # the delays are in broker.conf, which is not given
    timers = diagnosis.clients.timers_with_queue if diagnosis.clients else None
    if timers and timers != Due(again=timers.again) and _rebuilds_queues(diagnosis, repairs):
        return True  # the timer's other files are held against its queue once that is made
    is_resized = any(FILE_SIZE in change.codes for change in repairs.changes)
    if is_resized and any(each.code in _CUTS_QUEUES for each in diagnosis.findings):
        return True  # where the log ends is known once a file that was cut is filled up
    back = [pair for each in repairs.changes if isinstance(each, Renamed) for pair in each.brings_back]
    is_back = back and all(any(at <= start and end <= stop for at, stop in back) for start, end in diagnosis.damage)
    return repairs.renames and not is_back  # more is damaged


def _shows_what_log_had(diagnosis: Diagnosis, changes: Iterable[Change]) -> bool:
    """Whether committed offsets come back that alone show that a store without a message has lost any."""
    if not diagnosis.has_no_log or any(each.code == "commitlog.missing" for each in diagnosis.findings):
        return False
    back = {change.name for change in changes if isinstance(change, FileChange) and change.codes & _LOST_TABLES}
    return any(f"{CONFIG}/{name}" in back for name in OFFSETS)


def _with_renamed(clients: ClientLosses, *, keeps_never: bool) -> ClientLosses:
    """What clients lose once all damage of the log was that of files with wrong names, and these are right."""
    queues = [(each.topic, each.queue_id) for each in clients.unreachable.queues for _ in range(each.in_damage)]
    never = clients.delayed.never if keeps_never else 0
    whole = [_Whole(queues, clients.keys_in_damage)]
    return replace(_with_whole(clients, whole), delayed=Due(never=never), keys_found_in_damage=0)


class _Whole(NamedTuple):
    """Messages that are whole again: queues and keys by which clients did not get them, and how they were damaged.

    Queries may have found `keys_found` of the keys, and consumers of their tag have missed so many.
    """

    queues: Sequence[tuple[str, int]]
    keys: int
    was_damage: bool = True
    keys_found: int = 0
    missed_by_tag: int = 0

    @classmethod
    def of(cls, field: RightField, clients: ClientLosses) -> _Whole:
        """The message whose field is put right; what clients get of it already is left out."""
        served = clients.served_of(field.physical_offset)
        led = {entry[:2] for entry in served.entries}
        queues = [name for name in field.queues if tuple(name) not in led]
        keys = max(0, field.keys - served.keys)
        return cls(queues, keys, field.damaged_bytes > 0, min(field.keys_found, keys), served.missed_by_tag)


def _with_whole(clients: ClientLosses, whole: Sequence[_Whole]) -> ClientLosses:
    """What clients lose once messages are whole again: all at once, for groups and delays are computed again."""
    for each in whole:
        clients = clients.with_whole(
            each.queues,
            each.keys,
            was_damage=each.was_damage,
            keys_found=each.keys_found,
            missed_by_tag=each.missed_by_tag,
        )
    if not whole or clients.by_offsets is None:
        return clients
    by_offsets = clients.by_offsets.with_whole([name for each in whole for name in each.queues])
    groups = by_offsets.groups(lost=topics_of(clients.unreachable))
    return replace(clients, by_offsets=by_offsets, groups=groups, delayed=by_offsets.delayed())


def _changed(clients: ClientLosses, change: Change, store: Store) -> ClientLosses:
    """What clients lose after a change, by the file that it writes, and what it writes into it."""
    names = change.details if isinstance(change, TakenOut) else (getattr(change, "name", ""),)
    by_offsets, beside = clients.by_offsets, clients.beside_log
    if isinstance(change, NewCheckpoint) and change.raises_index_time:  # the start keeps the index
        return clients.healed(queues=False, index=True)
    if isinstance(change, FileChange) and by_offsets:
        if change.name == f"{CONFIG}/{counting_file(store) or CONSUMER_OFFSET}":
            return replace(clients, groups=by_offsets.groups(offsets_in(_json_of(change))))
        if change.name == f"{CONFIG}/{DELAYS}":
            return replace(clients, delayed=by_offsets.delayed(offsets_by_level(_json_of(change))))
    if any(code.startswith("compaction.") for code in change.codes):
        return replace(clients, beside_log=replace(beside, compacted=beside.compacted_left))
    if any(code.startswith("tiered.") for code in change.codes):
        left = max(0, beside.tiered_left - change.saved)
        beside = replace(beside, tiered=min(beside.tiered, left), tiered_left=left)
        if isinstance(change, RewrittenUnits):
            beside = beside.with_units(change.queue.topic, change.queue.queue_id)
        return replace(clients, beside_log=beside)
    if any(_is_of_timer(name) for name in names):
        reads_again = isinstance(change, TakenOut) and change.lost
        without = clients.timers_without_files
        timers = without if reads_again else Due(never=min(without.never, clients.timers.never))
        return replace(clients, timers=timers, pop_lost=clients.pop_lost - clients.pops_in_timer, pops_in_timer=0)
    return clients


def _json_of(change: FileChange) -> Any:
    """What is written into a file of JSON, which not all files of `config/` are."""
    return parse_fastjson(change.content.decode()) if change.content else {}


def _is_of_timer(name: str) -> bool:
    return name == f"{CONFIG}/{TIMER_CHECK}" or name.partition("/")[0] == TIMER_LOG or is_wheel_name(name)


def _is_of_delay_offsets(finding: Finding, *, are_moved: bool) -> bool:
    is_moved = are_moved and finding.code == "config.delay-offset" and finding.severity != "info"
    return is_moved or finding.details.get("proof") == "delays"


def repairs_of(diagnosis: Diagnosis, *, keep_offsets: bool = False, is_rebuilt: bool = False) -> Repairs:
    """What the next transaction of `rmqtool repair` does; with `keep_offsets` it leaves committed offsets alone.

    `is_rebuilt` says that queues and index are as a rebuild makes them, whatever findings they still have.

    Files of the log come first. Offsets, timers and checkpoint are held against the queues: they wait until these are
    rebuilt, for what was wrong with them may be right then.
    """
    found, snapshot, findings = diagnosis.by_treatment, diagnosis.snapshot, diagnosis.findings
    if not findings or snapshot.holder is not None:
        return Repairs()
    if diagnosis.mended:  # but for config/
        is_left = "config" not in found or out_of_reach(snapshot.store, "config") or snapshot.store.dledger_directory
        return Repairs(() if is_left else tuple(config_changes(snapshot, findings, offsets=not keep_offsets)))
    files = log_file_changes(snapshot, findings)
    kept = found.get("kept", ())
    first = (*(each for each in files if each.codes & BEFORE_REBUILDS), *resized_files(snapshot, kept))
    if first:
        return Repairs(first, goes_on=True)
    is_unread = diagnosis.is_unread
    is_rebuilt |= is_unread
    is_rebuilt |= snapshot.leaves_queues_out  # which then cannot be rebuilt, and lead to what is damaged
    # Without a log, queues and index are all that shows what is lost.
    is_rebuilt |= any(finding.code == "commitlog.missing" for finding in findings)
    left = {each for each in get_args(Replaced) if out_of_reach(snapshot.store, each)}  # to people
    is_damaged = "neutralise" in found and not is_rebuilt and "neutralise" not in left
    queues = not is_rebuilt and ("queues" in found or is_damaged or ends_behind_log(findings, kept))
    queues = queues and "queues" not in left
    index = ("index" in found and not is_rebuilt) or (queues and _index_must_follow(snapshot, is_damaged=is_damaged))
    index = index and "index" not in left
    offsets = not (keep_offsets or queues or (is_unread and "queues" in found))
    now = [each for each in findings if not (queues and _is_held_against_queues(each))]
    config = config_changes(snapshot, now, offsets=offsets) if "config" not in left else []
    if queues and any(change.name == _TOPICS for change in config):
        return Repairs(tuple(config), goes_on=True)  # topics.json says which queues are batch queues
    is_later = len(now) < len(findings) or (queues and any(each.code in _CUTS_QUEUES for each in findings))
    if queues or index:  # which also write the checkpoint
        until, readable = map(diagnosis.served_until, (BODY_CRC, PROPERTIES))
        return Repairs(tuple(config), queues, index, is_damaged, goes_on=bool(files) or is_later,
                       served_until=until, readable_until=readable)  # fmt: skip
    brought = {each.topic for each in findings if each.code == "config.topic-missing"} if config else set()
    lost = diagnosis.clients.unreachable.queues if diagnosis.clients else ()
    is_later = any(each.topic in brought for each in lost)  # whose queues then are missing
    is_later |= _shows_what_log_had(diagnosis, config)
    return Repairs(tuple(once([*files, *config])), goes_on=is_later)


def notes_on_the_rest(
    diagnosis: Diagnosis, repairs: Repairs, after: ClientLosses | None = None, *, keep_offsets: bool = False
) -> list[NotHealed]:
    """The findings about files and configuration that the repairs do not heal, each with the reason.

    What is judged again after the repairs is left out. `after` is what clients lose after them.
    """
    findings = judged_now(diagnosis, repairs)
    by_reason: dict[str, set[str]] = defaultdict(set)
    unhealed = unhealed_config(findings, repairs.changes, offsets=not keep_offsets)
    for finding, why in () if out_of_reach(diagnosis.snapshot.store, "config") else unhealed:
        by_reason[why].add(finding.code)
    moved, in_log = after.groups if after and repairs.queues else (), diagnosis.queues_in_log or ()
    past_ends = why_past_ends(diagnosis.snapshot, moved, in_log, offsets=not keep_offsets)
    if past_ends:
        by_reason[past_ends].add(OUT_OF_RANGE)
    changed = {code for change in repairs.changes for code in change.codes}
    kept = {each.code for each in diagnosis.treated(findings).get("kept", ())} - changed
    kept |= {"consumequeue.wrong-record"} if repairs.neutralise and _are_left_in_damage(diagnosis) else set()
    takes_abort = repairs.queues and has_abort(diagnosis.snapshot.store.root)
    kept_because = () if repairs.is_of_log else reasons_for(kept, takes_abort=takes_abort)
    return [
        *(NotHealed(codes, why) for codes, why in kept_because),
        *not_healed(diagnosis.snapshot, findings, repairs.changes),
        *(NotHealed(frozenset(codes), why) for why, codes in by_reason.items()),
    ]


def _are_left_in_damage(diagnosis: Diagnosis) -> bool:
    """Whether all messages of a queue are in damage: a rebuild keeps its units, which lead into dummy records then."""
    clients, in_log = diagnosis.clients, diagnosis.queues_in_log
    if clients is None or in_log is None:
        return False
    ahead = {(each.topic, each.queue_id) for each in diagnosis.findings if each.code == "consumequeue.ahead"}
    damaged = {(each.topic, each.queue_id): each.in_damage for each in clients.unreachable.queues if each.in_damage}
    had = clients.had.entries
    return any(name not in in_log or had.get(name) == damaged[name] for name in damaged.keys() - ahead)


def judged_now(diagnosis: Diagnosis, repairs: Repairs) -> list[Finding]:
    """The findings but for those that are judged again after the repairs, since what causes them may be fixed."""

    def is_later(finding: Finding) -> bool:
        if repairs.is_of_log:
            treatment = CATALOGUE[finding.code].treatment_of(finding)
            return treatment == "config" or _is_done_last(finding) or (treatment == "restore" and repairs.renames)
        return repairs.goes_on and (_is_held_against_queues(finding) or _is_done_last(finding))

    return [each for each in diagnosis.findings if not is_later(each)]


def _keeps_from_rebuilds(finding: Finding) -> bool:
    top = (finding.file or "").partition("/")[0]
    is_read = top in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, COMMIT_LOG)
    return finding.code == "commitlog.unreadable" or (finding.code in UNREADABLE and is_read)


def _is_refusal(finding: Finding, *, of_any: bool = False) -> bool:
    """Whether it says that a start is refused for a database of config/, which people put back; or for anything."""
    return finding.code == "start.refuses" and (of_any or finding.details.get("cause") == "database")


def _is_done_last(finding: Finding) -> bool:
    return finding.code.startswith(("timer.", "checkpoint."))


def _is_held_against_queues(finding: Finding) -> bool:
    return finding.code.startswith("timer.") or finding.code in _OF_QUEUES or finding.details.get("proof") == "delays"


def _index_must_follow(snapshot: Snapshot, *, is_damaged: bool) -> bool:
    """Whether an index must be complete, too: its keys lead to damage, or no start completes it without `abort`."""
    has_index = bool(snapshot.index_files) or snapshot.store.conf.path is not None
    return has_index and (is_damaged or has_abort(snapshot.store.root))


CONF = ("--broker-conf", "BROKER_CONF")
_SIZES = {"simple": "a queue file", "batch": "a batch queue file", "index": "an index file"}


def why_conf(diagnosis: Diagnosis, repairs: Repairs) -> str | None:
    """Why broker.conf has to go with a repair, whichever of its transactions needs it; None where it need not."""
    if _rebuilds_queues(diagnosis, repairs) and _lacks_delays(diagnosis):
        return "with its broker.conf: the times of delayed messages follow from messageDelayLevel"
    unknown = sorted(needed_sizes(diagnosis, repairs))
    if not unknown:
        return None
    names = " and ".join(_SIZES[kind] for kind in unknown)
    return f"with its broker.conf, because no file shows the size of {names}"


def needed_sizes(diagnosis: Diagnosis, repairs: Repairs) -> frozenset[Sized]:
    """The kinds of files whose size a repair needs in one of its transactions, and which only broker.conf knows.

    The last whole file of a kind may be the one that it takes away first. Once the queues are rebuilt no start puts the
    keys any more that are missing after a crash, so that the index follows.
    """
    snapshot = diagnosis.snapshot
    queues = _rebuilds_queues(diagnosis, repairs) and (snapshot.store.layout != "rocksdb" or snapshot.has_queues_twice)
    is_later = "index" in diagnosis.by_treatment if repairs.goes_on else False
    follows = diagnosis.keys_missing and (repairs.queues or repairs.goes_on)
    wanted = {
        "simple": queues,
        "batch": queues and _is_of_batch_queue(diagnosis),
        "index": repairs.index or is_later or follows,
    }
    return frozenset(kind for kind in unknown_sizes(snapshot) if wanted[kind])


def _rebuilds_queues(diagnosis: Diagnosis, repairs: Repairs) -> bool:
    return repairs.queues or (repairs.goes_on and "queues" in diagnosis.by_treatment)


def _is_of_batch_queue(diagnosis: Diagnosis) -> bool:
    """Whether a finding is about a batch queue: one that is there, or that its topic is configured to have."""
    snapshot = diagnosis.snapshot
    topics = {queue.topic for queue in snapshot.queues if queue.kind == "batch"}
    topics |= snapshot.topics.with_batch_queues or frozenset()
    return any(each.topic in topics for each in diagnosis.findings if each.code.startswith("consumequeue."))


def _lacks_delays(diagnosis: Diagnosis) -> bool:
    """Whether only broker.conf may know the delays of messages whose units are gone.

    Of rows `RebuildPlan.require_release` demands it; files get the default delays without it.
    """
    store = diagnosis.snapshot.store
    return store.conf.path is None and any(
        (each.code == "consumequeue.database" and store.layout == "rocksdb")
        or (each.code == "consumequeue.missing-queue" and each.topic == SCHEDULE_TOPIC)
        for each in diagnosis.findings
    )
