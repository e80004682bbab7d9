"""The files of `config/`, put back from their ``.bak``, from what of them can be read, or from what the store proves.

Whatever can be read stays as it is written: a broker that starts finds what it had.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from rmqtool.base.files import list_directory
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.change import FileChange
from rmqtool.repair.config_source import (
    DELAYS,
    EMPTY,
    GROUPS,
    LMQ_TABLE,
    OFFSETS,
    Draft,
    data_version,
    draft_of,
    has_entries,
    sound_text,
    whole_entries,
)
from rmqtool.repair.config_text import (
    bytes_of,
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
from rmqtool.repair.offset_ranges import Moved, with_newer_offsets, with_real_offsets
from rmqtool.repair.proven_entries import group_entry, group_topics, proven_topics
from rmqtool.repair.seen_queues import SeenQueues, seen_queues
from rmqtool.rules.config_shapes import MAIN_TABLES
from rmqtool.rules.system_topics import BUILT_IN_GROUPS, RETRY_PREFIX
from rmqtool.rules.versions import Version
from rmqtool.store.config_json import load_config
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS

_CONFIG_NAME = re.compile(r"\w+\.json|timermetrics")
_REFUSES, _WRONG = "start.refuses", "config.wrong-offset"
_TOPIC_MISSING, _DELAY_OFFSET, _DIFFERS = "config.topic-missing", "config.delay-offset", "config.backup-differs"
_OLDER = "config.older-copy"
_BAD = frozenset({"config.unreadable", "config.missing", "config.consumer-offset", _REFUSES})
_OF_OFFSETS = frozenset({"config.offset-out-of-range", _WRONG})
_HEALED = _BAD | _OF_OFFSETS | {_TOPIC_MISSING, _DELAY_OFFSET, _DIFFERS}
_NOT_SHOWN = "settings that no message shows: order, perm, queues never used, attributes such as message.type"
_SET_TYPE = "a topic whose message.type is not NORMAL needs mqadmin updateTopic -a +message.type=FIFO, or DELAY, ..."
_MESSAGE_TYPES = Version(5, 0, 0)  # TopicAttributes#TOPIC_MESSAGE_TYPE_ATTRIBUTE
_ALL_OFFSETS = "all committed offsets: each group begins where its consumeFromWhere says"


def config_changes(snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> list[FileChange]:
    """What heals `findings` of `config/`; with `offsets` also committed and delay offsets that cannot be right."""
    return [*ConfigRepair(snapshot, findings, offsets=offsets).changes()]


class ConfigRepair:
    """The changes of one store's config files."""

    def __init__(self, snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self._moves_offsets = offsets
        self._config = snapshot.store.root / CONFIG

    def changes(self) -> Iterator[FileChange]:
        """The changes, by the names of the files."""
        for name in self._names():
            codes = self._codes(name)
            path = self._config / name
            sound = sound_text(path, name, self._snapshot.releases)
            draft = draft_of(path, self._snapshot.releases) if codes & _BAD else Draft(name, sound, is_old=False)
            self._complete(draft, codes)
            if self._moves_offsets:
                self._move_offsets(draft, codes)
            yield from self._of_file(draft, codes)
            yield from self._of_backup(draft, sound, codes)

    def _names(self) -> list[str]:
        names: set[str] = set()
        with skip_wrong_type():
            names.update(entry.name.removesuffix(".bak") for entry in list_directory(self._config))
        names.update((each.file or "").removeprefix(f"{CONFIG}/").removesuffix(".bak") for each in self._findings)
        return sorted(name for name in names if _CONFIG_NAME.fullmatch(name))

    def _codes(self, name: str) -> set[str]:
        """The codes of the findings that concern a file, its ``.bak`` not included."""
        codes = set()
        for each in self._findings:
            about = each.file == f"{CONFIG}/{name}" or (each.code == "config.consumer-offset" and name in OFFSETS)
            if each.code == _REFUSES:
                about = each.message.startswith(f"{CONFIG}/{name}:") or (name == TOPICS and TOPICS in each.message)
            about = about or (name == TOPICS and each.code == _TOPIC_MISSING)
            about = about or (name in OFFSETS and each.code in _OF_OFFSETS)
            if about and each.code in _HEALED and (each.severity != "info" or each.code in _OF_OFFSETS):
                codes.add(each.code)
        return codes

    def _complete(self, draft: Draft, codes: set[str]) -> None:
        """Add what the store proves, and make empty what may be."""
        if draft.name in (TOPICS, GROUPS) and not draft.is_old:
            self._add_lost_lines(draft, codes)
        if draft.name == TOPICS:
            self._add_topics(draft, codes)
        elif draft.name == GROUPS and draft.is_old:
            self._add_groups(draft, codes)
        elif draft.name == DELAYS and draft.is_old:
            self._add_levels(draft)
        elif draft.name in OFFSETS and draft.is_old and draft.text is not None:
            self._add_newer_offsets(draft)
        elif draft.name in EMPTY and draft.text is None and codes & _BAD:
            table, lost = EMPTY[draft.name]
            draft.text, draft.what, draft.lost = file_text({table: {}}), ["made empty"], [lost]

    def _add_lost_lines(self, draft: Draft, codes: set[str]) -> None:
        """Add what the ``.bak`` has beyond what the changes that the data version counts can have taken away."""
        path = self._config / f"{draft.name}.bak"
        backup = sound_text(path, draft.name, self._snapshot.releases)
        is_reported = any(each.code == _OLDER and each.file == f"{CONFIG}/{draft.name}" for each in self._findings)
        if draft.text is None or backup is None or not is_reported or _counter(draft.text) < _counter(backup):
            return
        table = table_in(backup, MAIN_TABLES[draft.name])
        lines = {each.name: backup[each.start : each.stop] for each in members(backup, table.value)} if table else {}
        lost = {name: line for name, line in lines.items() if name not in _entry_names(draft)}
        self._add(draft, lost, [f"{_noun(draft.name)} {name}: as it was" for name in lost], codes)
        codes.add(_OLDER)

    @cached_property
    def _named_topics(self) -> set[str]:
        """Topics that findings call lost."""
        return {each.topic for each in self._findings if each.code == _TOPIC_MISSING and each.topic
                and each.severity != "info"}  # fmt: skip

    @cached_property
    def _queues(self) -> SeenQueues:
        """The queues; the log is read where queues do not hold all of it, or none is left of a lost topic."""
        incomplete = any(each.code.startswith("consumequeue.") and each.severity != "info" for each in self._findings)
        with_queues = {queue.topic for queue in self._snapshot.queues}
        return seen_queues(
            self._snapshot, in_log=incomplete or not self._named_topics <= with_queues or not with_queues
        )

    @cached_property
    def _proven_topics(self) -> dict[str, dict[str, Any]]:
        configured = load_config(self._config / GROUPS).content.get(MAIN_TABLES[GROUPS])
        groups = {*(configured if isinstance(configured, dict) else ()), *self._committing_groups}
        return proven_topics(self._snapshot, self._queues, _own_groups(groups))

    @cached_property
    def _committing_groups(self) -> set[str]:
        return {each.group for each in self._snapshot.committed.offsets}

    def _add_topics(self, draft: Draft, codes: set[str]) -> None:
        batch_refused = not draft.is_old and _REFUSES in codes
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
            draft.details += [_SET_TYPE] if self._snapshot.release >= _MESSAGE_TYPES else []

    def _kept(self, draft: Draft, wanted: Collection[str]) -> dict[str, str]:
        """The whole entries of a file that is put back, or of the `wanted` ones in a file that stays."""
        kept = whole_entries(self._config / draft.name, MAIN_TABLES[draft.name], self._snapshot.releases) or {}
        return kept if draft.is_old else {name: entry for name, entry in kept.items() if name in wanted}

    def _add_groups(self, draft: Draft, codes: set[str]) -> None:
        topics = {name.topic for name in self._queues} | self._snapshot.topics.by_name.keys()
        groups = {*group_topics(topics), *self._committing_groups}
        groups = _own_groups(groups)
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
        if draft.text is None and (added or _REFUSES in codes):
            draft.text = file_text({**data_version(draft.name, self._snapshot.releases), table: added})
            draft.what.append(f"written anew with {counted(len(added), _noun(draft.name))} that the store proves")
        elif draft.text is not None and added:
            place = table_in(draft.text, table)
            draft.text = _next_version(with_members(draft.text, place, added)) if place else draft.text
            draft.what.append(f"{counted(len(added), _noun(draft.name))} added")
        draft.details += lines

    @cached_property
    def _delays(self) -> DelayOffsets:
        return DelayOffsets(self._snapshot)

    def _add_levels(self, draft: Draft) -> None:
        if draft.text is None and not self._delays.proven:
            return
        if draft.text is None:
            draft.text = file_text({**data_version(DELAYS, self._snapshot.releases), MAIN_TABLES[DELAYS]: {}})
            draft.what.append("written anew")
        text, moved = self._delays.corrected(draft.text)
        draft.text, added = self._delays.completed(text)
        if moved or added:
            draft.what.append(
                f"{counted(len(moved + added), 'level')} set to where the log shows its deliveries to end"
            )
            draft.details += moved + added
        draft.lost = []
        if self._delays.unproven:
            levels = ", ".join(map(str, self._delays.unproven))
            draft.lost.append(
                f"what levels {levels} have delivered: the log does not show it, they may deliver it again"
            )

    def _add_newer_offsets(self, draft: Draft) -> None:
        for table in (MAIN_TABLES[draft.name], LMQ_TABLE):
            path, releases = self._config / draft.name, self._snapshot.releases
            entries = whole_entries(path, table, releases, with_backup=False) or {}
            draft.text, lines = with_newer_offsets(draft.text or "", entries, self._queues)
            if lines:
                draft.what.append(f"with {counted(len(lines), 'newer offset')} of the damaged file")
                draft.details += lines

    def _move_offsets(self, draft: Draft, codes: set[str]) -> None:
        if draft.text is None:
            return
        if draft.name == DELAYS and _DELAY_OFFSET in codes and not draft.is_old:
            draft.text, lines = self._delays.corrected(draft.text)
            draft.what += [f"{counted(len(lines), 'delay offset')} moved"] if lines else []
            draft.details += lines
        elif draft.name in OFFSETS and codes & _OF_OFFSETS:
            draft.text, moved = with_real_offsets(draft.text, self._queues)
            draft.what += [f"{counted(len(moved), 'committed offset')} moved into range"] if moved else []
            draft.details += [each.line for each in moved]
            codes -= {code for code in _OF_OFFSETS if not self._are_moved(code, moved)}

    def _are_moved(self, code: str, moved: Sequence[Moved]) -> bool:
        """Whether all findings of a code are healed by what is moved; retries may contradict the beginning, too."""
        retried = {name.topic for name in self._queues if name.topic.startswith(RETRY_PREFIX)}
        places = {(each.topic, each.queue_id, each.offset) for each in moved
                  if code != _WRONG or each.offset > each.to or RETRY_PREFIX + each.group not in retried}  # fmt: skip
        return all((each.topic, each.queue_id, each.queue_offset) in places
                   for each in self._findings if each.code == code)  # fmt: skip

    def _of_file(self, draft: Draft, codes: set[str]) -> Iterator[FileChange]:
        name = f"{CONFIG}/{draft.name}"
        if draft.text is None and self._moves_offsets and draft.name in OFFSETS and _REFUSES in codes:
            for each in (name, f"{name}.bak"):
                yield FileChange(each, None, frozenset({_REFUSES}), f"{each}: taken out, for nothing in it can be read",
                                 _ALL_OFFSETS)  # fmt: skip
        if draft.text is None or not draft.what:
            return
        healed = codes if draft.is_old else codes - _BAD | (codes & {_REFUSES})
        yield FileChange(name, bytes_of(draft.text), frozenset(healed - {_DIFFERS}), f"{name}: {'; '.join(draft.what)}",
                         "; ".join(draft.lost) or None, tuple(draft.details))  # fmt: skip

    def _of_backup(self, draft: Draft, before: str | None, codes: set[str]) -> Iterator[FileChange]:
        """The ``.bak`` as a broker writes it: the file before the change, if that was sound; else as the file."""
        name, path = f"{CONFIG}/{draft.name}.bak", self._config / f"{draft.name}.bak"
        there = sound_text(path, draft.name, self._snapshot.releases)
        is_good = there is not None and has_entries(draft.name, there)
        new, why = there, ""
        if draft.text is None:
            return
        if self._is_bad_backup(name) or _DIFFERS in codes or (draft.what and not is_good and path.exists()):
            new, why = draft.text, "a copy of the file"
        elif there is not None and draft.name in OFFSETS and draft.what and self._moves_offsets:
            new, moved = with_real_offsets(there, self._queues)
            why = f"{counted(len(moved), 'committed offset')} moved into range"
        elif draft.what and not draft.is_old and before is not None and is_good:
            new, why = before, "the file before this change"
        if new is not None and new != there:
            heals = frozenset({"config.unreadable"} if self._is_bad_backup(name) else codes & {_DIFFERS})
            yield FileChange(name, bytes_of(new), heals, f"{name}: {why}")

    def _is_bad_backup(self, name: str) -> bool:
        return any(each.code == "config.unreadable" and each.file == name for each in self._findings)


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
