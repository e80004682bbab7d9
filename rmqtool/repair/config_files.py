"""The files of `config/`, put back from their ``.bak``, from what of them can be read, or from what the store proves.

Whatever can be read stays as it is written: a broker that starts finds what it had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import list_directory
from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.config_completion import (
    KIND,
    NO_PROOF,
    OLDER,
    REFUSES,
    TOPIC_MISSING,
    Completion,
    Moved,
    with_real_offsets,
)
from rmqtool.repair.config_source import (
    DELAYS,
    GROUPS,
    OFFSETS,
    Draft,
    bytes_of,
    can_be_read,
    draft_of,
    has_entries,
    sound_text,
)
from rmqtool.rules.system_topics import RETRY_PREFIX
from rmqtool.store.consumer_groups import CONSUMER_OFFSET
from rmqtool.store.rocksdb_config import is_database_left, lost_place, lost_table
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS

_CONFIG_NAME = re.compile(r"\w+\.json|timermetrics")
_WRONG, _DELAY_OFFSET, _DIFFERS = "config.wrong-offset", "config.delay-offset", "config.backup-differs"
_BAD = frozenset({"config.unreadable", "config.missing", "config.consumer-offset", REFUSES})
_OF_OFFSETS = frozenset({"config.offset-out-of-range", _WRONG})
_HEALED = _BAD | _OF_OFFSETS | {TOPIC_MISSING, _DELAY_OFFSET, _DIFFERS, KIND}
_ALL_OFFSETS = "all committed offsets: each group begins where its consumeFromWhere says"


def config_changes(snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> list[FileChange]:
    """What heals `findings` of `config/`; with `offsets` also committed and delay offsets that cannot be right."""
    return [*_ConfigRepair(snapshot, findings, offsets=offsets).changes()]


class _ConfigRepair:
    """The changes of one store's config files."""

    def __init__(self, snapshot: Snapshot, findings: Sequence[Finding], *, offsets: bool) -> None:
        self._releases = snapshot.releases
        self._findings = findings
        self._moves_offsets = offsets
        self._root = snapshot.store.root
        self._completion = Completion(snapshot, findings)

    def changes(self) -> Iterator[FileChange]:
        """The changes, by the names of the files: so come offsets before groups, and these before topics."""
        for name in self._names():
            codes, path = self._codes(name), self._root / CONFIG / name
            if not all(can_be_read(self._root / each) for each in self._existing(name)):
                continue  # by others it may be read
            sound = sound_text(path, name, self._releases)
            draft = draft_of(path, self._releases) if codes & _BAD else Draft(name, sound, is_old=False)
            self._completion.complete(draft, codes)
            self._move_offsets(draft, codes)
            yield from self._of_file(draft, codes)
            yield from self._of_backup(draft, sound, codes)

    def _names(self) -> list[str]:
        try:
            names = {entry.name.removesuffix(".bak") for entry in list_directory(self._root / CONFIG)}
        except RmqtoolError:  # which verify reports
            return []
        names.update((each.file or "").removeprefix(f"{CONFIG}/").removesuffix(".bak") for each in self._findings)
        return sorted(name for name in names if _CONFIG_NAME.fullmatch(name))

    def _codes(self, name: str) -> set[str]:
        """The codes of the findings that concern a file, its ``.bak`` not included."""
        codes = set()
        for each in self._findings:
            about = each.file == f"{CONFIG}/{name}"
            if each.code == "config.consumer-offset":  # of the file that there is
                about = name in OFFSETS and bool(self._existing(name))
            elif each.code == REFUSES:
                of_kind = name == TOPICS and each.details.get("cause") == "queue-type"
                about = of_kind or each.details.get("file") == f"{CONFIG}/{name}"
            about = about or (name == TOPICS and each.code in (TOPIC_MISSING, KIND))
            about = about or (name in OFFSETS and each.code in _OF_OFFSETS)
            if about and each.code in _HEALED and (each.severity != "info" or each.code in _OF_OFFSETS):
                codes.add(each.code)
        return codes

    def _existing(self, name: str) -> list[str]:
        """A file and its ``.bak``, relative to the store, as far as they are there."""
        both = f"{CONFIG}/{name}", f"{CONFIG}/{name}.bak"
        return [each for each in both if (self._root / each).exists()]

    def _move_offsets(self, draft: Draft, codes: set[str]) -> None:
        """Move offsets, where that is wanted; of `codes` only those stay whose findings are healed by it."""
        text, completion = draft.text, self._completion
        if draft.name == DELAYS and _DELAY_OFFSET in codes:
            if text is not None and self._moves_offsets and not draft.is_old:
                draft.text, lines = completion.delays.corrected(text, self._wrong_levels)
                draft.add(f"{counted(len(lines), 'delay offset')} moved", lines)
                draft.lost += completion.delays.lost(text)
            if draft.text is None or not self._are_right(draft.text):
                codes.discard(_DELAY_OFFSET)
        elif draft.name in OFFSETS and codes & _OF_OFFSETS:
            moved: list[Moved] = []
            if text is not None and self._moves_offsets:
                backup = sound_text(self._root / CONFIG / f"{draft.name}.bak", draft.name, self._releases)
                draft.text, moved = with_real_offsets(text, completion.queues, backup)
            draft.add(f"{counted(len(moved), 'committed offset')} moved into range", [each.line for each in moved])
            if any(each.offset > each.to for each in moved):
                draft.lost.append(f"where these groups were; {NO_PROOF}")
            codes -= {code for code in _OF_OFFSETS if not self._are_moved(code, moved)}

    def _are_right(self, text: str) -> bool:
        """Whether the delay levels that findings are about are where they are known to be."""
        delays, levels = self._completion.delays, self._wrong_levels
        return not delays.corrected(text, levels)[1] and levels.isdisjoint(delays.unproven)

    @property
    def _wrong_levels(self) -> set[int]:
        """The delay levels that findings are about."""
        return {(each.queue_id or 0) + 1 for each in self._findings if each.code == _DELAY_OFFSET}

    def _are_moved(self, code: str, moved: Sequence[Moved]) -> bool:
        """Whether all findings of a code are healed by what is moved; retries may contradict the beginning, too."""
        retried = {name.topic for name in self._completion.queues if name.topic.startswith(RETRY_PREFIX)}
        places = {(each.topic, each.queue_id, each.offset) for each in moved
                  if code != _WRONG or each.offset > each.to or RETRY_PREFIX + each.group not in retried}  # fmt: skip
        return all((each.topic, each.queue_id, each.queue_offset) in places
                   for each in self._findings if each.code == code)  # fmt: skip

    def _of_file(self, draft: Draft, codes: set[str]) -> Iterator[FileChange]:
        if draft.text is None and self._moves_offsets and draft.name in OFFSETS and REFUSES in codes:
            for each in self._existing(draft.name):
                what = f"{each}: taken out, for nothing in it can be read"
                yield FileChange(each, None, frozenset({REFUSES}), what, _ALL_OFFSETS)
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
        name, path = f"{CONFIG}/{draft.name}.bak", self._root / CONFIG / f"{draft.name}.bak"
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
            new, moved = with_real_offsets(there, self._completion.queues)
            why = f"{counted(len(moved), 'committed offset')} moved into range"
        elif draft.what and not draft.is_old and before is not None and is_good and OLDER not in codes:
            new, why = before, "the file before this change"
        if new is not None and new != there:
            heals = frozenset({"config.unreadable"} if is_reported else codes & {_DIFFERS})
            yield FileChange(name, bytes_of(new), heals, f"{name}: {why}")


_FROM_BACKUP = (
    "put back a backup of it, or the file of the slave (or master), which is a copy of ten seconds (4.x) or a minute "
    "(5.x) ago; slaves of 5.5.0 have no committed offsets"
)
_SET_GROUPS = (
    "start the broker while clients are stopped, and set each group to where it was (mqadmin resetOffsetByTime -g "
    "GROUP -t TOPIC -s TIME); without that it begins where its consumeFromWhere says, and gets messages again or skips "
    "them"
)
_BEGIN_ANEW = f"nothing else in a store holds committed offsets: {_FROM_BACKUP}. Without one, {_SET_GROUPS}"
_MADE_ANEW = {
    TOPICS: "start the broker while clients are stopped, and make the topics again (mqadmin updateTopic)",
    GROUPS: "start the broker: it makes groups again with default settings, and mqadmin updateSubGroup sets others",
    CONSUMER_OFFSET: _SET_GROUPS,
}
_NO_ROWS = (
    "a repair adds no rows to databases: make the topic again with mqadmin updateTopic while clients are stopped; a "
    "retry topic the broker makes again"
)
_KIND = "consumequeue.kind"
_ASKED = {
    "config.offset-out-of-range": "the queue could not be read, or there is none",
    "config.wrong-offset": "the offset exists in its queue, but the .bak or the group's retries contradict it; only "
    "people know which is right: mqadmin resetOffsetByTime sets it, while the group is stopped",
    "config.delay-offset": "the log does not show where the deliveries of this level ended",
}
_OTHERS = {
    "config.missing": f"nothing else in the store shows its content: {_FROM_BACKUP}",
    "config.unreadable": f"nothing in it, in its .bak or in the store shows its content: {_FROM_BACKUP}",
    "config.topic-missing": "neither queues nor messages of the topic are left: make it with mqadmin updateTopic if it "
    "is still used",
    "config.topic-permission": "it may have been set on purpose: mqadmin updateTopicPerm -t TOPIC -p 6 sets it, once "
    "the broker runs",
    "config.half-messages-skipped": "the offset is one of its queue, and may have been set on purpose: set it to the "
    "first that waits in consumerOffset.json, while the broker is stopped",
    "config.filters-ignored": "consumers send their filters again when they connect: restart them after the broker",
    "config.topic-queues": "it may have been set on purpose: mqadmin updateTopic -r sets readQueueNums, "
    "updateTopicPerm -p the permission, once the broker runs",
    "config.older-copy": "nothing shows whether the file was put back on purpose: compare it with its .bak and with "
    "backups, and keep the right one",
    _KIND: "the topic has queues of both kinds: move those away that its messages are not in, and repair again",
    "config.rocksdb-damaged": "nothing else in the store shows what was in the database: put the whole directory back "
    "from a backup of the same time. Without one move it away, make the topics again (mqadmin updateTopic) before "
    "clients connect, and set each group to where it was (mqadmin resetOffsetByTime -g GROUP -t TOPIC -s TIME)",
    "config.delay-level": "the setting is not part of the store: name the levels in messageDelayLevel of broker.conf "
    "before the broker starts",
    "config.row": "nothing in the store shows what the row was: put the whole directory back from a backup of the same "
    "time",
    "config.backup-differs": "neither of the two can be decoded by all releases that fit",
}


def unhealed_config(
    findings: Sequence[Finding], changes: Sequence[Change], *, offsets: bool
) -> list[tuple[Finding, str]]:
    """The findings above information about `config/` that none of `changes` heals, each with the reason."""
    return [(each, _reason(each, offsets=offsets)) for each in _left(findings, changes)]


def _left(findings: Sequence[Finding], changes: Sequence[Change]) -> Iterator[Finding]:
    for each in findings:
        of_start = each.code == "start.refuses" and each.details.get("cause") == "config"
        if each.severity == "info" or not (each.code.startswith("config.") or each.code == _KIND or of_start):
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
    if finding.code == "start.refuses":
        return {str(finding.details.get("file"))}
    if finding.code in ("config.topic-missing", _KIND):
        return {f"{CONFIG}/{TOPICS}"}
    if finding.code in ("config.consumer-offset", "config.offset-out-of-range", "config.wrong-offset"):
        return {f"{CONFIG}/{name}" for name in OFFSETS}
    file = finding.file or ""
    return {file, f"{file}.bak"} if finding.code == "config.backup-differs" else {file}


def _of_database(finding: Finding, name: str) -> str:
    """What to do about a table in RocksDB that is lost: where its database is there, that stays."""
    text = f"{lost_place(finding)}: nothing else in the store shows its content. "
    if is_database_left(finding):
        text += "Leave the database where it is, for other tables are in it, too: a backup of the directory brings all "
        text += "of them back as they were then. "
    else:
        text += "Put back a backup of the directory, of the same time. "
    return f"{text}Without one, {_MADE_ANEW[name]}"


def _is_topic_of_database(finding: Finding) -> bool:
    """Whether a topic lacks its row in a database."""
    return finding.code == "config.topic-missing" and "database" in finding.details


def _reason(finding: Finding, *, offsets: bool) -> str:
    name = lost_table(finding)
    if name:
        return _of_database(finding, name)
    if _is_topic_of_database(finding):
        return _NO_ROWS
    if finding.code in _ASKED:
        return _ASKED[finding.code] if offsets else "--keep-offsets leaves offsets as they are"
    if _files(finding) & {f"{CONFIG}/{name}" for name in OFFSETS} and finding.code != "config.older-copy":
        taken_out = "; without --keep-offsets the files are taken out, so that the broker starts" * (not offsets)
        return _BEGIN_ANEW + (taken_out if finding.code == "start.refuses" else "")
    if f"{CONFIG}/{DELAYS}" in _files(finding) and finding.code in ("config.missing", "config.unreadable"):
        return f"the log does not show what was delivered, and it comes again: {_FROM_BACKUP}"
    return _OTHERS.get(finding.code, f"no change heals it: {_FROM_BACKUP}")
