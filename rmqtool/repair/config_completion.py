"""What a store proves of its config files, added to what of them can be read: topics, groups, levels, newer offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.config_source import (
    DELAYS,
    EMPTY,
    GROUPS,
    LMQ_TABLE,
    OFFSETS,
    Draft,
    Member,
    data_version,
    edited,
    file_text,
    member_of,
    member_text,
    members,
    sound_text,
    table_in,
    value_of,
    whole_entries,
    with_members,
)
from rmqtool.repair.proven_entries import SeenQueue, SeenQueues, group_entry, group_topics, proven_topics, seen_queues
from rmqtool.rules.config_shapes import MAIN_TABLES
from rmqtool.rules.system_topics import BUILT_IN_GROUPS, SCHEDULE_TOPIC
from rmqtool.rules.versions import MESSAGE_TYPES
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.single_messages import LEVELS, Deliveries, SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS
from rmqtool.transaction.losses import chosen_until

_NAMES = ("queue.type", "+queue.type")  # a change that was stored as one keeps its sign
_TYPES = {True: "BatchCQ", False: "SimpleCQ"}


def with_queue_types(text: str, is_batch: Mapping[str, bool]) -> tuple[str, list[str]]:
    """The text of topics.json with the type of these topics' queues, and a line for each that changes."""
    lines = []
    for topic, batch in sorted(is_batch.items()):
        table = table_in(text, "topicConfigTable")
        entry = member_of(text, table.value, topic) if table else None
        changed = text if entry is None else _with_type(text, entry, f'"{_TYPES[batch]}"')
        if changed != text:
            text = changed
            lines.append(f"topic {topic}: queue.type {_TYPES[batch]}, as its queues are")
    return text, lines


def _with_type(text: str, entry: Member, value: str) -> str:
    attributes = member_of(text, entry.value, "attributes")
    if attributes is None or text[attributes.value] != "{":
        return _with_first(text, entry.value, f'"attributes":{{"queue.type":{value}}}')
    types = [each for each in members(text, attributes.value) if each.name in _NAMES]
    if not types:
        return _with_first(text, attributes.value, f'"queue.type":{value}')
    return edited(text, [(each.value, each.stop, value) for each in types])


def _with_first(text: str, opening: int, member: str) -> str:
    """The text with a member at the beginning of an object."""
    more = "," if next(members(text, opening), None) else ""
    return edited(text, [(opening + 1, opening + 1, f"{member}{more}")])


_FAR = 10_000  # from 0: of a queue without any message; a smaller offset may be that of messages that have expired
_LMQ_QUEUE_ID = "0"  # MixAll.LMQ_QUEUE_ID


NO_PROOF = "offsets past the ends of queues may be all that proves that the log has lost its end"
"""What no one can know any more when they are brought to those ends."""


class Moved(NamedTuple):
    """An offset that is brought to another one, and why to that one; `backup` is one that its queue has, too."""

    group: str
    topic: str
    queue_id: int
    offset: int
    to: int
    why: str
    backup: int | None = None

    @property
    def line(self) -> str:
        """The line that shows it."""
        why = self.why if self.backup is None else f"{self.why}; its .bak has {self.backup}"
        return f"group {self.group}, {self.topic} queue {self.queue_id}: {self.offset} -> {self.to} ({why})"


def with_real_offsets(text: str, queues: SeenQueues, backup: str | None = None) -> tuple[str, list[Moved]]:
    """The text of a file of committed offsets with each in the range of its queue, and those that are moved.

    Where the text of its ``.bak`` has another one in that range, somebody may prefer it: the group was there.
    """
    edits, moved = [], []
    older = {(group, topic, number.name): value_of(backup, number)
             for group, topic, number in offsets_in(backup)} if backup else {}  # fmt: skip
    for group, topic, number in offsets_in(text):
        offset = value_of(text, number)
        if type(offset) is not int or not number.name.isdecimal():
            continue
        queue_id = int(number.name)
        queue = queues.get(QueueName(topic, queue_id))
        nearest, why = _nearest(queue, offset)
        if nearest != offset:
            edits.append((number.value, number.stop, str(nearest)))
            backup_offset = _plausible(queue, older.get((group, topic, number.name)), nearest)
            moved.append(Moved(group, topic, queue_id, offset, nearest, why, backup_offset))
    return edited(text, edits), moved


def with_newer_offsets(text: str, entries: Mapping[str, str], queues: SeenQueues) -> tuple[str, list[str]]:
    """The text of a ``.bak`` with the offsets that the damaged file has whole in `entries`, and a line for each.

    Offsets grow: one that is less, or that its queue does not have, is not taken over.
    """
    newer = {(group, topic, number.name): value_of(entry, number)
             for entry in (f'{{"offsetTable":{{{each}}}}}' for each in entries.values())
             for group, topic, number in offsets_in(entry)}  # fmt: skip
    edits, lines = [], []
    for group, topic, number in offsets_in(text):
        before, after = value_of(text, number), newer.get((group, topic, number.name))
        queue = queues.get(QueueName(topic, int(number.name))) if number.name.isdecimal() else None
        if queue is not None and type(before) is type(after) is int and before < after <= queue.max_offset:
            edits.append((number.value, number.stop, str(after)))
            lines.append(f"group {group}, {topic} queue {number.name}: {after} (its .bak has {before})")
    return edited(text, edits), lines


def offsets_in(text: str) -> Iterator[tuple[str, str, Member]]:
    """Group, topic, and the number of each queue, which is named by its queue id."""
    for name in ("offsetTable", LMQ_TABLE):
        table = table_in(text, name)
        for entry in members(text, table.value) if table else ():
            topic, _, group = entry.name.partition("@")
            if text[entry.value] == "{":
                yield from ((group, topic, number) for number in members(text, entry.value))
            else:
                yield group, topic, entry._replace(name=_LMQ_QUEUE_ID)


def _plausible(queue: SeenQueue | None, offset: Any, nearest: int) -> int | None:
    """The offset of a ``.bak`` if its queue has it, and it is not the nearest one anyhow."""
    if queue is None or type(offset) is not int or offset == nearest:
        return None
    return offset if queue.min_offset <= offset <= queue.max_offset else None


def _nearest(queue: SeenQueue | None, offset: int) -> tuple[int, str]:
    if queue is None:
        return (0 if offset < 0 or offset >= _FAR else offset), "its queue has no message"
    nearest = min(max(offset, queue.min_offset), queue.max_offset)
    return nearest, "the end" if nearest == queue.max_offset else "the beginning"


class DelayOffsets:
    """The offsets of the levels that have messages."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def proven(self) -> dict[int, int]:
        """By level, the offset after its last delivery, where the log proves it."""
        snapshot, newest = self._snapshot, self._snapshot.log_range.last_store_timestamp
        if newest is None:
            return {}
        messages = SingleMessages(snapshot)
        deliveries = Deliveries(messages, newest, newest + 1, chosen_until(snapshot.store.root))
        ends = {level: deliveries.end_of(level) for level in range(1, LEVELS + 1)}
        return {level: end for level, end in ends.items() if end is not None}

    @cached_property
    def unproven(self) -> list[int]:
        """Levels that have messages, of which the log does not show which were delivered."""
        with_messages = {level for level, each in self._ranges.items() if each.max_offset > each.min_offset}
        return sorted(with_messages - self.proven.keys())

    @cached_property
    def _ranges(self) -> dict[int, QueueRange]:
        """The ranges of the levels' queues."""
        queues = {queue_id + 1: self._snapshot.queue(SCHEDULE_TOPIC, queue_id)
                  for queue_id in self._snapshot.queue_ids(SCHEDULE_TOPIC)}  # fmt: skip
        return {level: queue.range for level, queue in queues.items() if queue is not None}

    def completed(self, text: str) -> tuple[str, list[str]]:
        """A file's text with the levels that it lacks, as far as they are proven, and a line for each."""
        table = table_in(text, "offsetTable")
        there = {member.name for member in members(text, table.value)} if table else set()
        new = {level: offset for level, offset in self.proven.items() if str(level) not in there}
        if table is None or not new:
            return text, []
        lines = [f"delay level {level}: {offset} (where its deliveries end)" for level, offset in new.items()]
        return with_members(text, table, {str(level): f"{level}:{offset}" for level, offset in new.items()}), lines

    def lost(self, text: str) -> list[str]:
        """What goes with the levels of a file's text that are past the ends of their queues."""
        table = table_in(text, "offsetTable")
        is_behind = any(
            type(offset := value_of(text, member)) is int and offset > self._ranges[int(member.name)].max_offset
            for member in (members(text, table.value) if table else ())
            if member.name.isdecimal() and int(member.name) in self._ranges
        )
        return [f"where these levels were; {NO_PROOF}"] if is_behind else []

    def corrected(self, text: str, levels: Collection[int] | None = None) -> tuple[str, list[str]]:
        """A text with `levels` (or all) where they are proven, else in the range of their queue; and the lines."""
        table = table_in(text, "offsetTable")
        edits, lines = [], []
        for member in members(text, table.value) if table else ():
            offset = value_of(text, member)
            if type(offset) is not int or not member.name.isdecimal():
                continue
            level = int(member.name)
            if levels is not None and level not in levels:
                continue
            end = self._ranges[level].max_offset if level in self._ranges else offset
            right = self.proven.get(level, min(max(offset, 0), end))
            if right != offset:
                edits.append((member.value, member.stop, str(right)))
                place = "where its deliveries end" if level in self.proven else "the end of its queue"
                lines.append(f"delay level {level}: {offset} -> {right} ({place})")
        return edited(text, edits), lines


REFUSES, TOPIC_MISSING, OLDER, KIND = (
    "start.refuses", "config.topic-missing", "config.older-copy", "consumequeue.kind",
)  # fmt: skip
_NOT_SHOWN = "settings that no message shows: order, perm, queues never used, attributes such as message.type"
_SET_TYPE = "a topic whose message.type is not NORMAL needs mqadmin updateTopic -a +message.type=FIFO, or DELAY, ..."


class Completion:
    """Completes the drafts of one store: offsets first, for they prove groups, and these before topics."""

    def __init__(self, snapshot: Snapshot, findings: Sequence[Finding]) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self._config = snapshot.store.root / CONFIG
        self._groups: set[str] = set()
        self._consumed: set[tuple[str, int]] = set()  # queues with committed offsets

    def complete(self, draft: Draft, codes: set[str]) -> None:
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
        elif draft.name in EMPTY and draft.text is None and draft.is_old:
            table, lost = EMPTY[draft.name]
            draft.text, draft.what, draft.lost = file_text({table: {}}), ["made empty"], [lost]
        self._note(draft)

    def _add_lost_lines(self, draft: Draft, codes: set[str]) -> None:
        """Add what the ``.bak`` has beyond what the changes that the data version counts can have taken away."""
        path = self._config / f"{draft.name}.bak"
        backup = sound_text(path, draft.name, self._snapshot.releases)
        is_reported = any(each.code == OLDER and each.file == f"{CONFIG}/{draft.name}" for each in self._findings)
        if draft.text is None or backup is None or not is_reported or _counter(draft.text) < _counter(backup):
            return
        table = table_in(backup, MAIN_TABLES[draft.name])
        lines = {each.name: backup[each.start : each.stop] for each in members(backup, table.value)} if table else {}
        lost = {name: line for name, line in lines.items() if name not in _entry_names(draft)}
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
            for group, topic, number in offsets_in(draft.text):
                self._groups |= _own_groups({group})
                self._consumed |= {(topic, int(number.name))} if number.name.isdecimal() else set()
        elif draft.name == GROUPS:
            self._groups |= _own_groups(_entry_names(draft))

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
        for topic in sorted({*wanted, *kept} - _entry_names(draft)):
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
        kept = whole_entries(self._config / draft.name, MAIN_TABLES[draft.name], self._snapshot.releases) or {}
        return kept if draft.is_old else {name: entry for name, entry in kept.items() if name in wanted}

    def _add_groups(self, draft: Draft, codes: set[str]) -> None:
        topics = {name.topic for name in self.queues} | self._snapshot.topics.by_name.keys()
        groups = self._groups | _own_groups({*group_topics(topics)})
        kept, there = self._kept(draft, groups), _entry_names(draft)
        added = {group: kept.get(group) or member_text(group, group_entry(group))
                 for group in sorted({*groups, *kept} - there)}  # fmt: skip
        shown = {group: "as it was" if group in kept else "default settings" for group in added}
        self._add(draft, added, [f"group {group}: {how}" for group, how in shown.items()], codes)
        if added.keys() - kept.keys():
            draft.lost.append("settings of these groups that differ from the default ones, and groups without offsets")

    def _add(self, draft: Draft, added: dict[str, str], lines: list[str], codes: set[str]) -> None:
        """Add entries to the main table; without any the file is only made when a start needs it."""
        table = MAIN_TABLES[draft.name]
        if draft.text is None and (added or REFUSES in codes):
            draft.text = file_text({**data_version(draft.name, self._snapshot.releases), table: added})
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
        if draft.text is None and not self.delays.proven:
            return
        if draft.text is None:
            draft.text = file_text({**data_version(DELAYS, self._snapshot.releases), MAIN_TABLES[DELAYS]: {}})
            draft.what.append("written again")
        draft.lost = self.delays.lost(draft.text)
        text, moved = self.delays.corrected(draft.text)
        draft.text, added = self.delays.completed(text)
        lines = [*moved, *added]
        draft.add(f"{counted(len(lines), 'level')} set to the end of the deliveries that the log shows", lines)
        if self.delays.unproven:
            levels = ", ".join(map(str, self.delays.unproven))
            draft.lost.append(
                f"what levels {levels} have delivered: the log does not show it, they may deliver it again"
            )

    def _add_newer_offsets(self, draft: Draft) -> None:
        for table in (MAIN_TABLES[draft.name], LMQ_TABLE):
            path, releases = self._config / draft.name, self._snapshot.releases
            entries = whole_entries(path, table, releases, with_backup=False) or {}
            draft.text, lines = with_newer_offsets(draft.text or "", entries, self.queues)
            draft.add(f"with {counted(len(lines), 'newer offset')} of the damaged file", lines)


def _entry_names(draft: Draft) -> set[str]:
    table = table_in(draft.text, MAIN_TABLES[draft.name]) if draft.text is not None else None
    return {each.name for each in members(draft.text or "", table.value)} if table else set()


def _own_groups(groups: set[str]) -> set[str]:
    return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)}


def _noun(name: str) -> str:
    return "topic" if name == TOPICS else "group"


def _counter(text: str) -> int:
    version = table_in(text, "dataVersion")
    counter = member_of(text, version.value, "counter") if version else None
    value = value_of(text, counter) if counter else None
    return value if type(value) is int else 0


def _next_version(text: str) -> str:
    """The text with a counter that is one higher: name servers and slaves ask for it (`DataVersion#nextVersion`)."""
    version = table_in(text, "dataVersion")
    counter = member_of(text, version.value, "counter") if version else None
    value = value_of(text, counter) if counter else None
    if counter is None or type(value) is not int:
        return text
    return edited(text, [(counter.value, counter.stop, str(value + 1))])
