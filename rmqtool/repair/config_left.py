"""Findings about `config/` that no change heals, and why: what nothing in a store shows is not invented."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtool.findings.finding import Finding
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.config_source import DELAYS, GROUPS, OFFSETS
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET
from rmqtool.store.lost_tables import is_database_left, lost_place, lost_table
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS

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
