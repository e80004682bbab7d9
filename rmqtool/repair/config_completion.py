"""What a store proves of its config files, added to what of them can be read: topics, groups, levels, newer offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.config_source import (
    DELAYS,
    EMPTY,
    GROUPS,
    LMQ_TABLE,
    OFFSETS,
    Draft,
    data_version,
    sound_text,
    whole_entries,
)
from rmqtool.repair.config_text import (
    edited,
    file_text,
    member_of,
    member_text,
    members,
    table_in,
    value_of,
    with_members,
)
from rmqtool.repair.delay_offsets import DelayOffsets
from rmqtool.repair.offset_ranges import offsets_in, with_newer_offsets
from rmqtool.repair.proven_entries import group_entry, group_topics, proven_topics
from rmqtool.repair.queue_types import with_queue_types
from rmqtool.repair.seen_queues import SeenQueues, seen_queues
from rmqtool.rules.config_shapes import MAIN_TABLES
from rmqtool.rules.system_topics import BUILT_IN_GROUPS
from rmqtool.rules.versions import MESSAGE_TYPES
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS

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
