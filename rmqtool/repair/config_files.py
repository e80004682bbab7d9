"""The files of `config/`, put back from their ``.bak``, from what of them can be read, or from what the store proves.

Whatever can be read stays as it is written: a broker that starts finds what it had.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import list_directory
from rmqtool.clients.losses import MovedGroup
from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.proven_entries import (
    NO_PROOF,
    DelayOffsets,
    Moved,
    SeenQueues,
    group_entry,
    group_topics,
    offsets_in,
    proven_topics,
    seen_queues,
    with_newer_offsets,
    with_real_offsets,
)
from rmqtool.rules.system_topics import BUILT_IN_GROUPS, RETRY_PREFIX
from rmqtool.rules.versions import MESSAGE_TYPES
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    DELAYS,
    FILE_TABLES,
    GROUPS,
    LMQ_TABLE,
    MAIN_TABLES,
    OFFSETS,
    TOPICS,
    config_database,
    lost_place,
    lost_table,
)
from rmqtool.store.config_text import (
    Draft,
    Member,
    bytes_of,
    counter_of,
    data_version,
    draft_of,
    edited,
    entries_of,
    file_text,
    has_entries,
    member_of,
    member_text,
    members,
    sound_text,
    table_in,
    text_of,
    whole_entries,
    with_members,
    with_values,
)
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG

_CONFIG_NAME = re.compile(r"\w+\.json|timermetrics")
REFUSES, TOPIC_MISSING, OLDER, KIND = (
    "start.refuses", "config.topic-missing", "config.older-copy", "consumequeue.kind",
)  # fmt: skip
_WRONG, _DELAY_OFFSET, _DIFFERS = "config.wrong-offset", "config.delay-offset", "config.backup-differs"
_BAD = frozenset({"config.unreadable", "config.missing", "config.consumer-offset", REFUSES})
OUT_OF_RANGE = "config.offset-out-of-range"
_OF_OFFSETS = frozenset({OUT_OF_RANGE, _WRONG})
_HEALED = _BAD | _OF_OFFSETS | {TOPIC_MISSING, _DELAY_OFFSET, _DIFFERS, KIND}
_NOT_SHOWN = "settings that no message shows: order, perm, queues never used, attributes such as message.type"
_SET_TYPE = "a topic whose message.type is not NORMAL needs mqadmin updateTopic -a +message.type=FIFO, or DELAY, ..."
_NAMES = ("queue.type", "+queue.type")  # a change that was stored as one keeps its sign
_ALL_OFFSETS = "all committed offsets: each group begins where its consumeFromWhere says"


def config_changes(snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> list[FileChange]:
    """What heals `findings` of `config/`; with `offsets` also committed and delay offsets that cannot be right."""
    return [*_ConfigRepair(snapshot, findings, offsets=offsets).changes()]


class _ConfigRepair:
    """The changes of one store's config files: offsets first, for they prove groups, and these before topics."""

    def __init__(self, snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> None:
        self._snapshot = snapshot
        self._releases = snapshot.releases
        self._findings = findings
        self._moves_offsets = offsets
        self._root = snapshot.store.root
        self._config = self._root / CONFIG
        self._groups: set[str] = set()
        self._consumed: set[tuple[str, int]] = set()  # queues with committed offsets

    def changes(self) -> Iterator[FileChange]:
        """The changes, by the names of the files: so come offsets before groups, and these before topics."""
        for name in self._names():
            codes, path = self._codes(name), self._config / name
            if any(text_of(self._root / each) is None for each in self._existing(name)):
                continue  # by others it may be read
            sound = sound_text(path, name, self._releases)
            draft = draft_of(path, self._releases) if codes & _BAD else Draft(name, sound, is_old=False)
            self._complete(draft, codes)
            self._move_offsets(draft, codes)
            yield from self._of_file(draft, codes)
            yield from self._of_backup(draft, sound, codes)

    def _names(self) -> list[str]:
        try:
            names = {entry.name.removesuffix(".bak") for entry in list_directory(self._config)}
        except RmqtoolError:  # which verify reports
            return []
        names.update((each.file or "").removeprefix(f"{CONFIG}/").removesuffix(".bak") for each in self._findings)
        return sorted(name for name in names if _CONFIG_NAME.fullmatch(name))

    def _codes(self, name: str) -> set[str]:
        """The codes of the findings that concern a file, its ``.bak`` not included; of offsets where there is one."""
        about = [each for each in self._findings if f"{CONFIG}/{name}" in _files(each) and each.code in _HEALED]
        return {each.code for each in about if (each.severity != "info" or each.code in _OF_OFFSETS)
                and (each.code != "config.consumer-offset" or self._existing(name))}  # fmt: skip

    def _existing(self, name: str) -> list[str]:
        """A file and its ``.bak``, relative to the store, as far as they are there."""
        both = f"{CONFIG}/{name}", f"{CONFIG}/{name}.bak"
        return [each for each in both if (self._root / each).exists()]

    def _move_offsets(self, draft: Draft, codes: set[str]) -> None:
        """Move offsets, where that is wanted; of `codes` only those stay whose findings are healed by it."""
        text = draft.text
        if draft.name == DELAYS and _DELAY_OFFSET in codes:
            if text is not None and self._moves_offsets and not draft.is_old:
                draft.text, lines = self.delays.corrected(text, self._wrong_levels)
                draft.add(f"{counted(len(lines), 'delay offset')} moved", lines)
                draft.lost += self.delays.lost(text)
            if draft.text is None or not self._are_right(draft.text):
                codes.discard(_DELAY_OFFSET)
        elif draft.name in OFFSETS and codes & _OF_OFFSETS:
            moved: list[Moved] = []
            if text is not None and self._moves_offsets:
                backup = sound_text(self._config / f"{draft.name}.bak", draft.name, self._releases)
                about = [each for each in self._findings if each.code in _OF_OFFSETS]
                topics = None if any(each.topic is None for each in about) else {each.topic or "" for each in about}
                draft.text, moved = with_real_offsets(text, self.queues, backup, topics)
            draft.add(f"{counted(len(moved), 'committed offset')} moved into range", [each.line for each in moved])
            if any(each.offset > each.to for each in moved):
                draft.lost.append(f"the positions of these groups; {NO_PROOF}")
            codes -= {code for code in _OF_OFFSETS if not self._are_moved(code, moved)}

    def _are_right(self, text: str) -> bool:
        """Whether the delay levels that findings are about are where they are known to be."""
        delays, levels = self.delays, self._wrong_levels
        return not delays.corrected(text, levels)[1] and levels.isdisjoint(delays.unproven)

    @property
    def _wrong_levels(self) -> set[int]:
        """The delay levels that findings are about."""
        return {(each.queue_id or 0) + 1 for each in self._findings if each.code == _DELAY_OFFSET}

    def _are_moved(self, code: str, moved: Sequence[Moved]) -> bool:
        """Whether all findings of a code are healed by what is moved; retries may contradict the beginning, too."""
        retried = {name.topic for name in self.queues if name.topic.startswith(RETRY_PREFIX)}
        places = {(each.topic, each.queue_id, each.offset) for each in moved
                  if code != _WRONG or each.offset > each.to or RETRY_PREFIX + each.group not in retried}  # fmt: skip
        return all((each.topic, each.queue_id, each.queue_offset) in places
                   for each in self._findings if each.code == code)  # fmt: skip

    def _of_file(self, draft: Draft, codes: set[str]) -> Iterator[FileChange]:
        if draft.text is None and self._moves_offsets and draft.name in OFFSETS and REFUSES in codes:
            for each in self._existing(draft.name):
                what = f"{each}: removed, because nothing in it can be read"
                heals = frozenset({REFUSES})
                yield FileChange(codes=heals, what=what, lost=_ALL_OFFSETS, name=each, content=None)
        if draft.text is None or not draft.what:
            return
        name = f"{CONFIG}/{draft.name}"
        healed = codes if draft.is_old else codes - _BAD | (codes & {REFUSES})
        yield FileChange(
            name=name,
            content=bytes_of(draft.text),
            codes=frozenset(healed - {_DIFFERS}),
            what=f"{name}: {'; '.join(draft.what)}",
            lost="; ".join(draft.lost) or None,
            details=tuple(draft.details),
        )

    def _of_backup(self, draft: Draft, before: str | None, codes: set[str]) -> Iterator[FileChange]:
        """The ``.bak`` as a broker writes it: the file before the change, if that was right; else as the file."""
        name, path = f"{CONFIG}/{draft.name}.bak", self._config / f"{draft.name}.bak"
        there = sound_text(path, draft.name, self._releases)
        is_good = there is not None and has_entries(draft.name, there)
        is_reported = any(each.code == "config.unreadable" and each.file == name for each in self._findings)
        new, why = there, ""
        if draft.text is None:
            return
        is_moved = draft.name == DELAYS and draft.what and self._moves_offsets  # the .bak would contradict it
        if is_reported or _DIFFERS in codes or (draft.what and not is_good and path.exists()) or (there and is_moved):
            new, why = draft.text, "a copy of the file"
        elif there is not None and draft.name in OFFSETS and draft.what and self._moves_offsets:
            new, moved = with_real_offsets(there, self.queues)
            why = f"{counted(len(moved), 'committed offset')} moved into range"
        elif draft.what and not draft.is_old and before is not None and is_good and OLDER not in codes:
            new, why = before, "the file before this change"
        if new is not None and new != there:
            heals = frozenset({"config.unreadable"} if is_reported else codes & {_DIFFERS})
            yield FileChange(codes=heals, what=f"{name}: {why}", name=name, content=bytes_of(new))

    def _complete(self, draft: Draft, codes: set[str]) -> None:
        """Add what the store proves, and make empty what may be; `codes` are those of findings about the file."""
        if draft.name in (TOPICS, GROUPS) and not draft.is_old:
            self._add_lost_lines(draft, codes)
        if draft.name == TOPICS:
            self._add_topics(draft, codes)
            self._set_queue_types(draft, codes)
        elif draft.name == GROUPS and draft.is_old:
            self._add_groups(draft, codes)
        elif draft.name == DELAYS and draft.is_old:
            self._add_levels(draft)
        elif draft.name in OFFSETS and draft.is_old and draft.text is not None:
            self._add_newer_offsets(draft)
        elif (table := FILE_TABLES.get(draft.name)) and table.if_empty and draft.text is None and draft.is_old:
            draft.text, draft.what, draft.lost = file_text({table.name: {}}), ["made empty"], [table.if_empty]
        self._note(draft)

    def _add_lost_lines(self, draft: Draft, codes: set[str]) -> None:
        """Add what the ``.bak`` has beyond what the changes that the data version counts can have taken away."""
        backup = sound_text(self._config / f"{draft.name}.bak", draft.name, self._releases)
        is_reported = any(each.code == OLDER and each.file == f"{CONFIG}/{draft.name}" for each in self._findings)
        if draft.text is None or backup is None or not is_reported:
            return
        if counter_of(draft.text)[1] < counter_of(backup)[1]:
            return
        lines = {each.name: backup[each.start : each.stop] for each in entries_of(backup, MAIN_TABLES[draft.name])}
        lost = {name: line for name, line in lines.items() if name not in draft.names}
        self._add(draft, lost, [f"{_noun(draft.name)} {name}: as it was" for name in lost], codes)
        codes.add(OLDER)

    @cached_property
    def _named_topics(self) -> set[str]:
        """Topics that findings call lost."""
        return {each.topic for each in self._findings if each.code == TOPIC_MISSING and each.topic
                and each.severity != "info"}  # fmt: skip

    @cached_property
    def queues(self) -> SeenQueues:
        """The queues; the log is read where queues do not hold all of it, or none is left of a lost topic."""
        incomplete = any(each.code.startswith("consumequeue.") and each.severity != "info" for each in self._findings)
        with_queues = {queue.topic for queue in self._snapshot.queues}
        return seen_queues(
            self._snapshot, in_log=incomplete or not self._named_topics <= with_queues or not with_queues
        )

    @cached_property
    def _proven_topics(self) -> dict[str, dict[str, Any]]:
        return proven_topics(self._snapshot.store, self.queues, self._groups, self._consumed)

    def _note(self, draft: Draft) -> None:
        """Keep the groups that a file names, and the queues that they consume."""
        if draft.name in OFFSETS and draft.text is not None:
            for group, topic, queue_id in offsets_in(draft.text):
                self._groups |= _own_groups({group})
                self._consumed.add((topic, queue_id))
        elif draft.name == GROUPS:
            self._groups |= _own_groups(draft.names)

    def _add_topics(self, draft: Draft, codes: set[str]) -> None:
        batch_refused = not draft.is_old and REFUSES in codes
        if not (draft.is_old or self._named_topics or batch_refused):
            return
        wanted = self._proven_topics
        if not draft.is_old:
            wanted = {topic: config for topic, config in wanted.items()
                      if topic in self._named_topics or (batch_refused and "attributes" in config)}  # fmt: skip
        kept = self._kept(draft, wanted)
        added, lines = {}, []
        for topic in sorted({*wanted, *kept} - draft.names):
            added[topic] = kept.get(topic) or member_text(topic, wanted[topic])
            shown = "as it was" if topic in kept else counted(wanted[topic]["readQueueNums"], "queue")
            lines.append(f"topic {topic}: {shown}")
        self._add(draft, added, lines, codes)
        if added.keys() - kept.keys():
            draft.lost.append(_NOT_SHOWN)
            draft.details += [_SET_TYPE] if self._snapshot.release >= MESSAGE_TYPES else []

    def _set_queue_types(self, draft: Draft, codes: set[str]) -> None:
        kinds: dict[str, set[bool]] = {}
        for name, queue in self.queues.items() if KIND in codes and draft.text is not None else ():
            kinds.setdefault(name.topic, set()).add(queue.is_batch)
        wrong = {each.topic for each in self._findings if each.code == KIND}
        types = {topic: batch for topic, (batch, *other) in kinds.items() if topic in wrong and not other}
        draft.text, lines = with_queue_types(draft.text or "", types) if types else (draft.text, [])
        draft.add(f"{counted(len(lines), 'queue type')} set", lines)
        if not wrong <= types.keys():
            codes.discard(KIND)  # queues of both kinds are there

    def _kept(self, draft: Draft, wanted: Collection[str]) -> dict[str, str]:
        """The whole entries of a file that is put back, or of the `wanted` ones in a file that stays."""
        kept = whole_entries(self._config / draft.name, MAIN_TABLES[draft.name], self._releases) or {}
        return kept if draft.is_old else {name: entry for name, entry in kept.items() if name in wanted}

    def _add_groups(self, draft: Draft, codes: set[str]) -> None:
        topics = {name.topic for name in self.queues} | self._snapshot.topics.by_name.keys()
        groups = self._groups | _own_groups({*group_topics(topics)})
        kept = self._kept(draft, groups)
        added = {group: kept.get(group) or member_text(group, group_entry(group))
                 for group in sorted({*groups, *kept} - draft.names)}  # fmt: skip
        shown = {group: "as it was" if group in kept else "default settings" for group in added}
        self._add(draft, added, [f"group {group}: {how}" for group, how in shown.items()], codes)
        if added.keys() - kept.keys():
            draft.lost.append("settings of these groups that differ from the default ones, and groups without offsets")

    def _add(self, draft: Draft, added: dict[str, str], lines: list[str], codes: set[str]) -> None:
        """Add entries to the main table; without any the file is only made when a start needs it."""
        table = MAIN_TABLES[draft.name]
        if draft.text is None and (added or REFUSES in codes):
            draft.text = file_text({**data_version(draft.name, self._releases), table: added})
            draft.what.append(f"written again with {counted(len(added), _noun(draft.name))} that the store proves")
        elif draft.text is not None and added:
            place = table_in(draft.text, table)
            draft.text = _next_version(with_members(draft.text, place, added)) if place else draft.text
            draft.what.append(f"{counted(len(added), _noun(draft.name))} added")
        draft.details += lines

    @cached_property
    def delays(self) -> DelayOffsets:
        """Where the delay levels go on."""
        return DelayOffsets(self._snapshot)

    def _add_levels(self, draft: Draft) -> None:
        if draft.text is None:
            if not self.delays.proven:
                return
            draft.text = file_text({**data_version(DELAYS, self._releases), MAIN_TABLES[DELAYS]: {}})
            draft.what.append("written again")
        draft.lost = self.delays.lost(draft.text)
        draft.text, lines = self.delays.corrected(draft.text)
        draft.add(f"{counted(len(lines), 'level')} set to the end of the deliveries that the log shows", lines)
        if self.delays.unproven:
            levels = ", ".join(map(str, self.delays.unproven))
            draft.lost.append(
                f"what levels {levels} have delivered: the log does not show it, they may deliver it again"
            )

    def _add_newer_offsets(self, draft: Draft) -> None:
        for table in (MAIN_TABLES[draft.name], LMQ_TABLE):
            entries = whole_entries(self._config / draft.name, table, self._releases, with_backup=False) or {}
            draft.text, lines = with_newer_offsets(draft.text or "", entries, self.queues)
            draft.add(f"with {counted(len(lines), 'newer offset')} of the damaged file", lines)


def with_queue_types(text: str, is_batch: Mapping[str, bool]) -> tuple[str, list[str]]:
    """The text of topics.json with the type of these topics' queues, and a line for each that changes."""
    lines = []
    for topic, batch in sorted(is_batch.items()):
        entries, kind = entries_of(text, MAIN_TABLES[TOPICS]), "BatchCQ" if batch else "SimpleCQ"
        entry = next((each for each in reversed(entries) if each.name == topic), None)
        changed = text if entry is None else _with_type(text, entry, f'"{kind}"')
        if changed != text:
            text = changed
            lines.append(f"topic {topic}: queue.type {kind}, as its queues are")
    return text, lines


def _with_type(text: str, entry: Member, value: str) -> str:
    attributes = member_of(text, entry.value, "attributes")
    if attributes is None or text[attributes.value] != "{":
        return _with_first(text, entry.value, f'"attributes":{{"queue.type":{value}}}')
    types = [each for each in members(text, attributes.value) if each.name in _NAMES]
    if not types:
        return _with_first(text, attributes.value, f'"queue.type":{value}')
    return with_values(text, [(each, value) for each in types])


def _with_first(text: str, opening: int, member: str) -> str:
    """The text with a member at the beginning of an object."""
    more = "," if next(members(text, opening), None) else ""
    return edited(text, [(opening + 1, opening + 1, f"{member}{more}")])


def _own_groups(groups: set[str]) -> set[str]:
    return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)}


def _noun(name: str) -> str:
    return "topic" if name == TOPICS else "group"


def _next_version(text: str) -> str:
    """The text with a counter that is one higher: name servers and slaves ask for it (`DataVersion#nextVersion`)."""
    place, counter = counter_of(text)
    return with_values(text, [(place, counter + 1)]) if place else text


_FROM_BACKUP = (
    "restore a backup of it, or the file of the slave (or master), a copy that is ten seconds (4.x) or a minute (5.x) "
    "old; slaves of 5.5.0 have no committed offsets"
)
_SET_GROUPS = (
    "start the broker while clients are stopped, and reset each group to its former position (mqadmin "
    "resetOffsetByTime -g GROUP -t TOPIC -s TIME); without that it begins where its consumeFromWhere says, and gets "
    "messages again or skips them"
)
_BEGIN_ANEW = f"nothing else in a store has committed offsets: {_FROM_BACKUP}. Without one, {_SET_GROUPS}"
_MADE_ANEW = {
    TOPICS: "start the broker while clients are stopped, and create the topics again (mqadmin updateTopic)",
    GROUPS: "start the broker: it creates groups again with default settings, and mqadmin updateSubGroup sets others",
    CONSUMER_OFFSET: _SET_GROUPS,
}
SKIPPED_HALVES = "config.half-messages-skipped"
_NO_ROWS = (
    "a repair adds no rows to databases: create the topic again with mqadmin updateTopic while clients are stopped; "
    "the broker itself creates a retry topic again"
)
_OFFSET_ROWS = (
    "a repair changes no rows of databases: start the consumers of the group before producers, and it continues at the "
    "end of the queue; or set it there once the broker runs (mqadmin resetOffsetByTime -g GROUP -t TOPIC -s now)"
)
_OF_ROWS = {TOPIC_MISSING: _NO_ROWS, OUT_OF_RANGE: _OFFSET_ROWS}
_KEPT_OFFSETS = "--keep-offsets does not change offsets"
_ASKED = {
    OUT_OF_RANGE: "the queue could not be read, or there is none",
    "config.wrong-offset": "the offset exists in its queue, but the .bak or the group's retries contradict it; only "
    "you know which is right: mqadmin"
    " resetOffsetByTime sets it, while the group is stopped",
    "config.delay-offset": "the log does not show where the deliveries of this level ended",
}
_OTHERS = {
    "config.missing": f"nothing else in the store shows its content: {_FROM_BACKUP}",
    "config.unreadable": f"nothing in it, in its .bak or in the store shows its content: {_FROM_BACKUP}",
    "config.topic-missing": "neither queues nor messages of the topic are left: create it with mqadmin updateTopic "
    "if it is still used",
    "config.topic-permission": "it may have been set on purpose: mqadmin updateTopicPerm -t TOPIC -p 6 sets it, once "
    "the broker runs",
    SKIPPED_HALVES: "the offset may have been set on purpose. If it was not, set "
    "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS in config/consumerOffset.json to the queue offset of the first waiting "
    "message, before the broker starts",
    "config.filters-ignored": "consumers send their filters again when they connect: restart them after the broker",
    "config.topic-queues": "it may have been set on purpose: mqadmin updateTopic -r sets readQueueNums, "
    "updateTopicPerm -p the permission, once the broker runs",
    "config.older-copy": "nothing shows whether the file was restored on purpose: compare it with its .bak and with "
    "backups, and keep the right one",
    KIND: "the topic has queues of both kinds: move away those that do not have its messages, and repair again",
    "config.rocksdb-damaged": "nothing else in the store shows the contents of the database: restore the whole "
    "directory "
    "from a backup from the same time. Without one move it away, create the topics again (mqadmin updateTopic) before "
    "clients connect, and reset each group to its former position (mqadmin resetOffsetByTime -g GROUP -t TOPIC -s "
    "TIME)",
    "config.delay-level": "the setting is not part of the store: name the levels in messageDelayLevel of broker.conf "
    "before the broker starts",
    "config.row": "nothing in the store shows the contents of the row: restore the whole directory from a backup from "
    "the "
    "same time",
    "config.backup-differs": "neither of the two can be decoded by all releases that fit",
}


def unhealed_config(
    findings: Sequence[Finding], changes: Sequence[Change], *, offsets: bool
) -> list[tuple[Finding, str]]:
    """The findings above information about `config/` that none of `changes` heals, each with the reason."""
    return [(each, _reason(each, offsets=offsets)) for each in _left(findings, changes)]


def why_past_ends(
    snapshot: Snapshot, moved: Iterable[MovedGroup], rebuilt: Container[tuple[str, int]], *, offsets: bool
) -> str | None:
    """Why committed offsets stay past the ends of the queues that are `rebuilt`; None where none does.

    `moved` are the groups that then continue elsewhere.
    """
    why = _OFFSET_ROWS if config_database(snapshot.store, CONSUMER_OFFSET) else None if offsets else _KEPT_OFFSETS
    if why is None:
        return None
    committed = {(each.group, each.topic, each.queue_id): each.offset for each in snapshot.committed.offsets}
    for each in moved:
        is_past = committed.get((each.group, each.topic, each.queue_id), 0) > (each.next_after or 0)
        if is_past and (each.topic, each.queue_id) in rebuilt:
            return why
    return None


def _left(findings: Sequence[Finding], changes: Sequence[Change]) -> Iterator[Finding]:
    for each in findings:
        of_start = each.code == REFUSES and each.details.get("cause") == "config"
        if each.severity == "info" or not (each.code.startswith("config.") or each.code == KIND or of_start):
            continue
        if each.code == "config.rocksdb-damaged" and "manifest" in each.details:
            continue  # a step of the plan heals it
        if not any(
            isinstance(change, FileChange) and each.code in change.codes and change.name in _files(each)
            for change in changes
        ):
            yield each


def _files(finding: Finding) -> set[str]:
    """The files that a finding is about, relative to the store."""
    if finding.code == REFUSES and finding.details.get("cause") != "queue-type":
        return {str(finding.details.get("file"))}
    if finding.code in (REFUSES, TOPIC_MISSING, KIND):
        return {f"{CONFIG}/{TOPICS}"}
    if finding.code == "config.consumer-offset" or finding.code in _OF_OFFSETS:
        return {f"{CONFIG}/{name}" for name in OFFSETS}
    file = finding.file or ""
    return {file, f"{file}.bak"} if finding.code == _DIFFERS else {file}


def _of_database(finding: Finding, name: str) -> str:
    """What to do about a table in RocksDB that is lost: where its database is there, that stays."""
    text = f"{lost_place(finding)}: nothing else in the store shows its content. "
    if "part" in finding.details and finding.details["lost"] != "gone":
        text += "Do not move the database away, because it also has other tables: a backup of the directory "
        text += "restores all of them as of its time. "
    else:
        text += "Restore the directory from a backup from the same time. "
    return f"{text}Without one, {_MADE_ANEW[name]}"


def _reason(finding: Finding, *, offsets: bool) -> str:
    name = lost_table(finding)
    if name:
        return _of_database(finding, name)
    if finding.code in _OF_ROWS and "database" in finding.details:
        return _OF_ROWS[finding.code]
    if finding.code in _ASKED:
        return _ASKED[finding.code] if offsets else _KEPT_OFFSETS
    if _files(finding) & {f"{CONFIG}/{name}" for name in OFFSETS} and finding.code != "config.older-copy":
        taken_out = "; without --keep-offsets the files are removed, so that the broker starts" * (not offsets)
        return _BEGIN_ANEW + (taken_out if finding.code == "start.refuses" else "")
    if f"{CONFIG}/{DELAYS}" in _files(finding) and finding.code in ("config.missing", "config.unreadable"):
        return f"the log does not show which messages were delivered, and they are delivered again: {_FROM_BACKUP}"
    return _OTHERS.get(finding.code, f"no change fixes it: {_FROM_BACKUP}")
