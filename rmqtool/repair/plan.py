"""What to do about the findings of a verification: one short plan, in order, that treats all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmqtool.base.paths import is_remote
from rmqtool.base.visible import join, quote
from rmqtool.broker.start_findings import WHOLE_LOG
from rmqtool.clients.losses import ClientLosses, in_words
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding, Treatment, counted, first_of
from rmqtool.findings.report import UNREADABLE
from rmqtool.repair.change import Replaced, out_of_reach
from rmqtool.repair.config_files import SKIPPED_HALVES, unhealed_config
from rmqtool.repair.diagnosis import (
    BODY_CRC,
    CONF,
    NEWER_RECORDS,
    Diagnosis,
    Repairs,
    clients_after,
    judged_now,
    notes_on_the_rest,
    why_conf,
)
from rmqtool.repair.not_healed import NotHealed
from rmqtool.repair.proof import Difference
from rmqtool.repair.timer_files import lost_by_rebuilt_queue
from rmqtool.store.config_tables import CONSUMER_OFFSET, MISSING, OFFSETS, TOPICS, lost_table
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import COMMIT_LOG, CONFIG, Store, owners_of
from rmqtool.transaction.home import JOURNAL, STAGING, STATE, unfinished_deletion
from rmqtool.transaction.paths import HOME


@dataclass(frozen=True)
class PlanStep:
    """One step: what to do in a sentence, the command that does it, what that changes, and what stays lost.

    `is_repair` says that `rmqtool repair` does it. `clients` is what it does to what clients lose by the next start,
    None where that is not known, or nobody but people do it.
    """

    text: str
    command: str | None = None
    changes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    is_repair: bool = False
    clients: Difference | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        return {
            "text": self.text,
            "command": self.command,
            "changes": list(self.changes),
            "lost": list(self.lost),
            "clients": self.clients and self.clients.as_json(),
        }


_MAX_MOVED, _MAX_NAMED = 20, 3  # entries of one command, and in its sentence; the next verification has the rest
_STRAYS = ("commitlog.stray", "commitlog.stray-directory", "commitlog.empty-file", "commitlog.duplicate-file")
_MADE_ANEW_BY_A_NODE = {
    "store.dledger-index": "Move the index of the entries away: the node rebuilds it when it starts:",
    "store.dledger-checkpoint": "Move the node's checkpoint away, without which it starts:",
}
_WHERE = "outside the store, in a linked directory or on another disk, where a repair cannot replace files"


def log_by_hand(store: Store, found: Mapping[Treatment, Sequence[Finding]]) -> tuple[Path, ...]:
    """The directories of a log that is damaged and out of reach; strays are named one by one elsewhere."""
    treated = (*found.get("neutralise", ()), *found.get("files", ()))
    is_damaged = any(each.code.startswith(("commitlog.", "start.")) and each.code not in _STRAYS for each in treated)
    return out_of_reach(store, "neutralise") if is_damaged else ()


def steps_by_hand(diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]]) -> Iterator[PlanStep]:
    """A step for each part that should be repaired and is out of reach: people move it, or have it made elsewhere."""
    store = diagnosis.snapshot.store
    log = log_by_hand(store, found)
    if log:
        text = f"{_named(log)}. Move the log to {quote(str(store.root / COMMIT_LOG))} and verify again, or make a new "
        yield PlanStep(f"{text}store from the intact messages and start the broker on that:",
                       f"{diagnosis.command('salvage')} --output NEW")  # fmt: skip
    commands: dict[Replaced, str] = {"queues": "rebuild-cq", "index": "rebuild-index"}
    for treatment, command in commands.items():
        directories = out_of_reach(store, treatment)
        if treatment in found and directories:
            text = f"{_named(directories)}. Move it into the store and verify again, or build it elsewhere:"
            yield PlanStep(text, f"{diagnosis.command(command)} --output DIR")
    config = out_of_reach(store, "config")
    if "config" in found and config:
        yield PlanStep(f"{_named(config)}. Move it into the store, and verify again.")


def moving_step(notes: Iterable[NotHealed]) -> Iterator[PlanStep]:
    """The step that takes entries out of the way that no repair reaches: it comes first, for a start refuses them."""
    paths = [path for note in notes for path in note.moved]
    if paths:
        names = first_of([quote(str(path)) for path in paths], _MAX_NAMED)
        text = f"Move {names} out of the way, to a directory outside the store, and verify again; no repair "
        command = join(["mv", *map(str, paths[:_MAX_MOVED]), "DIRECTORY"])
        yield PlanStep(f"{text}reaches {'it' if len(paths) == 1 else 'them'}:", command)


def steps_of_node(findings: Iterable[Finding]) -> dict[str, PlanStep]:
    """A step for each code of what a DLedger node makes again when it is moved away."""
    found = {each.code: each.next_command for each in findings if each.code in _MADE_ANEW_BY_A_NODE}
    return {code: PlanStep(_MADE_ANEW_BY_A_NODE[code], str(command)) for code, command in found.items() if command}


def _named(directories: Sequence[Path]) -> str:
    names = ", ".join(quote(str(each)) for each in directories)
    return f"{names}: {_WHERE}"


_END = "Complete the interrupted run of rmqtool, and verify again"


def ending_step(diagnosis: Diagnosis, found: Sequence[Finding]) -> PlanStep:
    """End the run that `found` reports; a deletion cannot be taken back, and one without a journal cannot be ended."""
    root = diagnosis.snapshot.store.root
    broken = next((each.file for each in found if each.file and Path(each.file).name in (JOURNAL, STATE)), None)
    if broken is not None:
        run = root / Path(broken).parent
        command = None if is_remote(root) else join(["mv", str(run), f"{root.absolute()}-{run.name}"])
        text = f"Nothing shows how far {run.name} was, whose old/ has the replaced files. Move it out of the store, "
        text = f"{text}and verify again:"
        return PlanStep(text, command)
    deletion = unfinished_deletion(root)
    about = f". {deletion.text}; {deletion.to_keep_them}" if deletion else " (rmqtool undo takes it back)"
    return PlanStep(f"{_END}{about}:", diagnosis.command("repair"))


_START = "Start the broker."


def start_text(findings: Sequence[Finding]) -> str:
    """The step that starts the broker; `findings` are those about `config/` that a repair has not healed before."""
    tasks = []
    if any(lost_table(finding) == TOPICS for finding in findings):
        tasks.append("create the lost topics again")
    if any(map(_is_without_offsets, findings)):
        tasks.append("reset each group to its former position")
    if not tasks:
        is_early = any(finding.code == SKIPPED_HALVES for finding in findings)
        return (
            "Correct the offset of CID_RMQ_SYS_TRANS, unless it was set on purpose. Then start the broker."
            if is_early
            else _START
        )
    return f"Stop the clients, then start the broker, and {' and '.join(tasks)} (below) before they start."


def _is_without_offsets(finding: Finding) -> bool:
    """Whether groups begin again: committed offsets that cannot be read, or are no longer there."""
    is_missing = finding.code == MISSING and finding.file in {f"{CONFIG}/{name}" for name in OFFSETS}
    return is_missing or finding.code == "config.consumer-offset" or lost_table(finding) == CONSUMER_OFFSET


_CODE = "store.permission"


def permission_command(snapshot: Snapshot, finding: Finding) -> str | None:
    """The command that gives the whole store to the user of most of its files, or lets that user write it.

    None for another finding, and once the file is as the others are.
    """
    if finding.code != _CODE or finding.file is None:
        return None
    store, path = snapshot.store, snapshot.store.root / finding.file
    owners = owners_of(store, snapshot.log)
    outside = [each for each in store.commit_log_directories if store.root not in each.parents]
    places = " ".join(quote(str(place)) for place in (store.root, *outside))
    if path in dict(owners.of_others()):
        uid, gid = owners.usual
        return f"chown -R {uid}:{gid} {places}"
    return f"chmod -R u+w {places}" if path in dict(owners.not_writable()) else None


_STAGED = f"{HOME}/{STAGING}"  # of a run that had changed nothing yet
_NO_OBSTACLE: frozenset[Treatment] = frozenset(
    ("settings", "ignored", "running", "acknowledge", "config", "none", "lose")
)
_OF_DATABASES = ("config.rocksdb-damaged", "config.row", "store.rocksdb-damaged")
_CURRENT_ANEW = "Write CURRENT again, which names the only MANIFEST, and verify again:"
_MAX_TEXTS = 3  # files, findings or topics that a step names one by one


@dataclass(frozen=True)
class Plan:
    """The steps in their order, and what none of them heals.

    No broker may be started before step number `start_after`, counted from 1, is done; None: it may. `clients` is what
    clients do not get even after the plan and a start, None where that is not known.
    """

    steps: tuple[PlanStep, ...] = ()
    start_after: int | None = None
    remaining: tuple[str, ...] = ()
    clients: ClientLosses | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.steps or self.remaining)

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        return {
            "steps": [step.as_json() for step in self.steps],
            "start_after": self.start_after,
            "remaining": list(self.remaining),
            "clients": None if self.clients is None else self.clients.as_json(),
        }


def plan_of(diagnosis: Diagnosis, repairs: Repairs, *, keep_offsets: bool = False) -> Plan:
    """The plan for all findings, with its `repairs`; empty when there are none."""
    before, after = diagnosis.clients, clients_after(diagnosis, repairs, keep_offsets=keep_offsets)
    plan = _steps_of(diagnosis, repairs, after, keep_offsets=keep_offsets)
    if before is None or after is None:
        return replace(plan, clients=after)
    steps = [_with_clients(step, Difference(before, after)) if step.is_repair else step for step in plan.steps]
    return replace(plan, steps=tuple(steps), clients=after)


def _with_clients(step: PlanStep, clients: Difference) -> PlanStep:
    """A step and what it does for clients; what it takes from them is among what is lost."""
    taken = tuple(f"{in_words(kind, count)} because of this step" for kind, count in clients.takes.items())
    return replace(step, clients=clients, lost=(*step.lost, *taken))


def _steps_of(diagnosis: Diagnosis, repairs: Repairs, after: ClientLosses | None, *, keep_offsets: bool) -> Plan:
    found = diagnosis.by_treatment
    if not found:
        return Plan()
    if diagnosis.snapshot.holder is not None or "stop" in found:
        return Plan((_stopping_step(diagnosis),))
    interrupted = found.get("interrupted", ())
    ending = (ending_step(diagnosis, interrupted),) if interrupted else ()
    if any(each.file != _STAGED for each in interrupted):
        return Plan(ending, 1)  # what was found may be half old and half new: an error, whatever else is found
    if diagnosis.mended:
        steps = [_repair_step(diagnosis, repairs, keep_offsets=keep_offsets)] if repairs else [*ending]
        steps += _settings(found)
        if found.keys() - {"interrupted", "acknowledge", "running", "settings", "ignored"}:
            steps.append(PlanStep("Start the broker: its startup recovery fixes this without loss."))
        of_config = () if diagnosis.snapshot.store.dledger_directory else diagnosis.findings
        left = unhealed_config(of_config, repairs.changes, offsets=not keep_offsets)
        remaining = dict.fromkeys(f"{finding.code}: {why}" for finding, why in left)
        return Plan((*steps, *_ignored(found), *_acknowledgement(diagnosis)), remaining=(*remaining,))
    if diagnosis.snapshot.store.dledger_directory:
        return _plan_of_node(diagnosis, found)
    notes = notes_on_the_rest(diagnosis, repairs, after, keep_offsets=keep_offsets)
    found = diagnosis.treated(judged_now(diagnosis, repairs))
    steps = [*_steps_before(diagnosis, found, notes)]
    steps += (_repair_step(diagnosis, repairs, keep_offsets=keep_offsets),) if repairs else ending
    last = None if diagnosis.sound else len(steps) or None
    steps += _losing_steps(diagnosis, found, repairs)
    steps += _steps_after(diagnosis, found, repairs, notes)
    return Plan(tuple(steps), last, tuple(_remaining(diagnosis, found, repairs, notes)))


def _stopping_step(diagnosis: Diagnosis) -> PlanStep:
    """The step that ends whatever works on the store: a broker, or a run of ours, which may wait for an answer."""
    holder = diagnosis.snapshot.holder
    text = "Stop the broker that runs on the store, and verify it again:"
    if holder and holder.program:
        text = f"{holder.who} is working on the store. Let it finish, or answer its question, then verify again:"
    return PlanStep(text, diagnosis.command("verify"))


def _plan_of_node(diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]]) -> Plan:
    """The plan for a DLedger store, whose log only the node's group can fix."""
    of_log = [finding.code for finding in diagnosis.findings if finding.code.startswith("commitlog.")]
    moved = steps_of_node(diagnosis.findings)
    steps = [*moved.values()]
    if of_log:
        text = "Copy the node's log again from the leader of its group; if no other node has it, make a plain "
        text = f"{text}store from the intact messages in it and in the stores of other nodes, given after it:"
        steps.append(PlanStep(text, f"{diagnosis.command('salvage')} --output NEW"))
    elif "queues" in found and not diagnosis.is_unread:
        steps.append(_rebuild_step(diagnosis, "the consume queues", "rebuild-cq"))
    if "index" in found and not of_log and not diagnosis.is_unread:
        steps.append(_rebuild_step(diagnosis, "the index", "rebuild-index"))
    known = ("queues", "index", "acknowledge")
    rest = {finding.code for name, findings in found.items() if name not in known for finding in findings}
    remaining = tuple(f"{code}: {CATALOGUE[code].repair}" for code in sorted(rest - {*of_log, *moved}))
    return Plan((*steps, *_acknowledgement(diagnosis)), len(steps) or None, remaining)


def _rebuild_step(diagnosis: Diagnosis, what: str, command: str) -> PlanStep:
    is_index = command == "rebuild-index"
    why = why_conf(replace(diagnosis, keys_missing=False), Repairs(queues=not is_index, index=is_index))
    text = f"Rebuild {what}, {why}:" if why else f"Rebuild {what} (rmqtool undo takes it back):"
    return PlanStep(text, diagnosis.command(command, *(CONF if why else ())))


def _steps_before(
    diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]], notes: Sequence[NotHealed]
) -> Iterator[PlanStep]:
    """What people must do before a repair."""
    yield from moving_step(notes)
    for finding in found.get("access", ())[:1]:
        text = f"Let the broker's user read and write {_files(found['access'])}; copy a failing disk with a tool that "
        yield PlanStep(
            f"{text}skips bad sectors, and verify the copy.", permission_command(diagnosis.snapshot, finding)
        )
    needed = [note for note in notes if note.needed and not note.codes & UNREADABLE]
    if needed or "restore" in found:
        files = ", ".join(_some(tuple(file for note in needed for file in note.needed))) or "what is missing"
        elsewhere = "Mount the disk of the log, or name its directory (--broker-conf, storePathCommitLog), or r"
        beginning = elsewhere if _is_log_gone(found) else "R"
        yield PlanStep(
            f"{beginning}estore {files} from a backup or a replica, and verify again. If there is none, continue.",
            lost=_some(
                tuple(dict.fromkeys(CATALOGUE[finding.code].gist_of(finding) for finding in found.get("restore", ())))
            ),
        )
    yield from steps_by_hand(diagnosis, found)
    yield from _decisions(found.get("decide", ()))[:_MAX_TEXTS]
    if "release" in found and not _has_newer_records(found):
        text = "Find out the release of the broker (from the names in lib/), and give it: starts of releases that fit "
        yield PlanStep(f"{text}differ.", f"{diagnosis.command('verify')} --broker-version VERSION")
    if "whole-log" in found:
        messages = counted(sum(finding.count for finding in found["whole-log"]), "message")
        yield PlanStep(f"Put {WHOLE_LOG} into broker.conf before the broker starts: without it the queue entries of "
                       f"{messages} are lost.")  # fmt: skip


def _decisions(findings: Sequence[Finding]) -> list[PlanStep]:
    """What people decide: one step for each finding, and for each database, which they put back or move away."""
    together: dict[object, list[Finding]] = {}
    for finding in findings:
        database = _database_of(finding)
        together.setdefault((database, finding.code) if database else finding, []).append(finding)
    return list(dict.fromkeys(_decision(_database_of(alike[0]), alike) for alike in together.values()))


def _database_of(finding: Finding) -> str | None:
    """The database that a finding is about, for which people decide once."""
    name = (finding.file or "").removesuffix("/") if finding.code in _OF_DATABASES else ""
    return (name.rpartition("/")[0] if name.endswith(".log") else name) or None


def _decision(database: str | None, findings: Sequence[Finding]) -> PlanStep:
    """The step for what is found of one database, or for one finding."""
    texts = tuple(dict.fromkeys(finding.message for finding in findings))
    what = f"{f'{database}: ' if database else ''}{'; '.join(_some(texts))}"
    command = next((finding.next_command for finding in findings if database and finding.next_command), None)
    repair = _CURRENT_ANEW if command else CATALOGUE[findings[0].code].repair
    return PlanStep(f"{what}: {repair}", str(command) if command else None)


def _has_newer_records(found: Mapping[Treatment, Sequence[Finding]]) -> bool:
    return any(finding.code == NEWER_RECORDS for finding in found.get("decide", ()))


def _repair_step(diagnosis: Diagnosis, repairs: Repairs, *, keep_offsets: bool) -> PlanStep:
    why = why_conf(diagnosis, repairs)
    text = f"Repair the store, {why}:" if why else "Repair the store (rmqtool undo takes it back):"
    more = [*(["--keep-offsets"] if keep_offsets else []), *asked_for(diagnosis.lose), *(CONF if why else ())]
    changes, lost = _changes(diagnosis, repairs)
    if repairs.goes_on:
        changes.append("verifies again and repairs the rest")
    command = diagnosis.command("repair", *more)
    return PlanStep(text, command, tuple(changes), tuple(dict.fromkeys(lost)), is_repair=True)


def asked_for(lose: Iterable[str]) -> list[str]:
    """The option for each code of what may be taken from clients."""
    return [word for code in sorted(lose) for word in ("--lose", code)]


def _losing_steps(
    diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]], repairs: Repairs
) -> Iterator[PlanStep]:
    """The steps that take away what clients get, each of which is done only when it is asked for by name."""
    until = diagnosis.served_until(BODY_CRC)
    right = sum(each.name == "body_crc" and each.physical_offset < until for each in repairs.right_fields)
    codes = {each.code for each in found.get("lose", ())} & diagnosis.losable.keys()
    for code in () if out_of_reach(diagnosis.snapshot.store, "neutralise") else sorted(codes):
        count = diagnosis.losable[code].served - (right if code == BODY_CRC else 0)
        if count <= 0:
            continue
        why = why_conf(diagnosis, Repairs(queues=True, index=True))
        text = "If clients can do without the damaged messages that they get, put dummy records in their place, where "
        text = f"{text}a start after a crash may end the log{f', {why}' if why else ''} (rmqtool undo takes it back):"
        command = diagnosis.command("repair", *asked_for([code]), *(CONF if why else ()))
        yield PlanStep(text, command, ("put dummy records in place of damaged messages",), (_damaged(code, count),))


def _changes(diagnosis: Diagnosis, repairs: Repairs) -> tuple[list[str], list[str]]:
    """What a repair changes, and what it cannot bring back."""
    found = diagnosis.by_treatment
    changes = [change.what for change in repairs.changes]
    lost = [change.lost for change in repairs.changes if change.lost]
    if repairs.neutralise:
        changes.append(f"put dummy records in place of damage in the log ({_codes(found['neutralise'])})")
        for code, damaged in diagnosis.losable.items():
            is_taken = damaged.served and not diagnosis.served_until(code)
            lost += [_damaged(code, damaged.served)] if is_taken else []
            lost += [_damaged(code, damaged.others, "at which a start ends the log")] if damaged.others else []
    if repairs.queues:
        changes.append(f"rebuild the consume queues{_of(found.get('queues', ()))}")
        lost += lost_by_rebuilt_queue(diagnosis.snapshot, found.get("queues", ()))
    if repairs.index:
        changes.append(f"rebuild the index{_of(found.get('index', ()))}")
    if (repairs.queues or repairs.is_of_log) and not repairs.renames:
        lost += _in_damage(diagnosis, repairs)
    return changes, lost


def _in_damage(diagnosis: Diagnosis, repairs: Repairs) -> Iterator[str]:
    """What the damage of the log held, as far as queues and messages around it show, but for what is put right."""
    fields = repairs.right_fields
    right = Counter(name.topic for each in fields for name in each.queues if name == each.queues[0])
    messages_lost = Counter(diagnosis.lost) - right
    damaged_bytes = diagnosis.damaged_bytes - sum(each.damaged_bytes for each in fields if each.name != "body_crc")
    more = "; possibly more: the queues that would show it are missing or damaged" if diagnosis.lost_is_minimum else ""
    if messages_lost:
        messages = counted(messages_lost.total(), "message")
        topics = _some(tuple(f"{topic} {count}" for topic, count in messages_lost.most_common()))
        yield f"{'at least ' if more else ''}{messages} that cannot be read: {', '.join(topics)}{more}"
    elif damaged_bytes:
        damage = f"what {counted(damaged_bytes, 'byte')} of damage held"
        yield f"{damage}, which nothing counts{more}" if more else f"{damage}; no queue points to a message there"


def _damaged(code: str, count: int, what: str = "which consumers get until then") -> str:
    return f"{counted(count, 'message')} with {'a damaged body' if code == BODY_CRC else 'damaged properties'}, {what}"


def _is_log_unmended(note: NotHealed) -> bool:
    is_a_step = note.is_a_step or note.codes & UNREADABLE
    return not is_a_step and any(each.startswith("commitlog.") for each in note.codes)


def _steps_after(
    diagnosis: Diagnosis,
    found: Mapping[Treatment, Sequence[Finding]],
    repairs: Repairs,
    notes: Sequence[NotHealed],
) -> Iterator[PlanStep]:
    """What is left once the store is repaired."""
    yield from _settings(found)
    restored = found.get("restore", ())
    saving = next((finding.next_command for finding in restored if finding.code == "start.data-loss"), None)
    if _has_newer_records(found):
        yield PlanStep("Do not start a broker of the named release: it would destroy the records that it cannot read.")
    elif saving:
        text = "Do not start a broker: it would destroy the messages after the missing file. Save them first:"
        yield PlanStep(text, str(saving))
    elif "refused" in found and not repairs.is_of_log and any(map(_is_log_unmended, notes)):
        text = (
            "No repair lets a broker start on this log. Create a new store from its intact messages, and start the "
            "broker on that:"
        )
        yield PlanStep(text, f"{diagnosis.command('salvage')} --output NEW")
    elif not _waits_for_people(diagnosis, found) and (repairs or _may_start(found.keys())):
        unhealed = unhealed_config(found.get("config", ()), repairs.changes, offsets=True)
        yield PlanStep(start_text([each for each, _ in unhealed]))
    for finding in found.get("running", ()):
        command = finding.next_command
        then = str(command) if command else None
        if command and command.command == "clean":
            then = diagnosis.clean_command()
        yield PlanStep(f"Later: {finding.message}.", then)
    yield from _ignored(found)
    yield from _acknowledgement(diagnosis)


def _waits_for_people(diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]]) -> bool:
    """Whether a start loses messages, or is refused, until people have restored the log or moved it into reach."""
    if _is_log_gone(found):
        return True
    is_cut = any(finding.code == "start.data-loss" for finding in found.get("neutralise", ()))
    return (is_cut or "refused" in found) and bool(log_by_hand(diagnosis.snapshot.store, found))


def _is_log_gone(found: Mapping[Treatment, Sequence[Finding]]) -> bool:
    return any(finding.code == "commitlog.missing" for finding in found.get("restore", ()))


def _may_start(treatments: Set[Treatment]) -> bool:
    """Whether a start is next where nothing is repaired: it fixes something, or all else can wait for it."""
    if treatments & {"start", "restore", "whole-log"}:
        return "refused" not in treatments
    return treatments <= _NO_OBSTACLE and bool(treatments & {"running", "ignored", "acknowledge", "config", "lose"})


def _settings(found: Mapping[Treatment, Sequence[Finding]]) -> Iterator[PlanStep]:
    if "settings" in found:
        names = _to_be_changed(found)
        whose = f"starts: {', '.join(names)}" if names else "of the named release starts"
        yield PlanStep(f"Change broker.conf before a broker {whose} ({_codes(found['settings'])}).")


def _to_be_changed(found: Mapping[Treatment, Sequence[Finding]]) -> list[str]:
    """The settings that spoil a start, and with them all others whose values are not read as they look."""
    spoiling = [each.details["setting"] for each in found.get("settings", ()) if each.details.get("setting")]
    odd = [each.details["setting"] for each in found.get("ignored", ()) if "value" in each.details]
    return [*dict.fromkeys([*spoiling, *odd])] if spoiling else []


def _ignored(found: Mapping[Treatment, Sequence[Finding]]) -> Iterator[PlanStep]:
    """Settings that are not read, but for those that a step before has put right."""
    treated = _to_be_changed(found)
    left = [each for each in found.get("ignored", ()) if each.details["setting"] not in treated]
    names = ", ".join(dict.fromkeys(each.details["setting"] for each in left))
    who = "a broker" if any("value" in each.details for each in left) else "the named release"
    if left:
        yield PlanStep(f"Later: {who} does not read these settings of broker.conf: {names}.")


def _acknowledgement(diagnosis: Diagnosis) -> Iterator[PlanStep]:
    recorded = diagnosis.by_treatment.get("acknowledge")
    if recorded:
        lost = _some(tuple(finding.message for finding in recorded))
        command = diagnosis.command("repair", "--acknowledge")
        yield PlanStep("A loss is recorded; once everybody knows about it:", command, lost=lost)


def _remaining(
    diagnosis: Diagnosis,
    found: Mapping[Treatment, Sequence[Finding]],
    repairs: Repairs,
    notes: Sequence[NotHealed],
) -> Iterator[str]:
    """What no step heals, or needs none."""
    known = frozenset[str]().union(*(each.codes for each in repairs.changes), *(note.codes for note in notes))
    for note in notes:
        if note.is_a_step:
            continue
        yield f"{', '.join(sorted(note.codes))}: {note.why}"
    left = (*found.get("files", ()), *found.get("none", ()))
    for code in dict.fromkeys(finding.code for finding in left if finding.code not in known):
        yield f"{code}: {CATALOGUE[code].repair}"
    why = "the log has nothing from which a rebuild could fix it"
    if "access" in found:
        why = "it is fixed once the log, all queues and the index can be read: verify again then"
    if diagnosis.snapshot.leaves_queues_out:
        why = "the queues are in RocksDB, which needs the package rocksdict: pip install 'rmqtool[rocksdb]'"
    rebuilt: tuple[tuple[Replaced, bool], ...] = (
        ("neutralise", repairs.neutralise),
        ("queues", repairs.queues),
        ("index", repairs.index),
    )
    for treatment, is_done in rebuilt:
        by_hand = out_of_reach(diagnosis.snapshot.store, treatment)  # a step says so
        if treatment in found and not is_done and not repairs.goes_on and not by_hand:
            yield f"{_codes(found[treatment])}: {why}"
    if set(found) <= {"refused", "none"}:
        yield from (finding.message for finding in found.get("refused", ()))


def _of(findings: Sequence[Finding]) -> str:
    return f" ({_codes(findings)})" if findings else ""


def _codes(findings: Sequence[Finding]) -> str:
    """The codes with the number of findings: ``consumequeue.behind 28, consumequeue.hole``."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += finding.count
    return ", ".join(f"{code} {count}" if count > 1 else code for code, count in counts.most_common())


def _files(findings: Sequence[Finding]) -> str:
    return ", ".join(_some(tuple(dict.fromkeys(str(finding.file or "the store") for finding in findings))))


def _some(texts: tuple[str, ...]) -> tuple[str, ...]:
    more = len(texts) - _MAX_TEXTS
    return (*texts[:_MAX_TEXTS], f"and {more} more") if more > 0 else texts
