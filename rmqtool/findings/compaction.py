"""Findings about compacted queues: the files below ``compaction/``, from which consumers of their topics are served."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_REPAIR = "rmqtool repair {store}"
_ALL = "5.1.0 and later"
_OFF = (
    "Until then a broker with enableCompaction=false serves the plain queue: all values of a key that are still in the "
    "commit log."
)

COMPACTION = (
    Entry(
        code="compaction.files", treatment="files",
        title="Files of a compacted queue do not fit",
        what="Each file of a compacted log has a file of queue entries with the same name, of a size that broker.conf "
        "gives. Other entries may not be in the two directories of a queue.",
        how="A crash while a compaction replaced files leaves names that differ, or names that end in .delete; a copy "
        "without some files, a file that was cut.",
        says={
            "names": "the log has {log_files!n}, its queue has {unit_files!n}",
            "interrupted": "a compaction has been interrupted while it replaced files: the log has {log_files!n}, its "
            "queue has {unit_files!n}",
            "no-queue": "the directory of its entries is missing",
            "size": "{size:byte}, expected {expected}",
            "name": "the name is not a start offset",
            "queue-id": "the name of the directory is not a queue id",
        },
        effect="the broker does not start",
        versions={_ALL: "a start loads these files after the queues. An invalid name, or names that differ, abort it; "
                        "from a queue with a file of another size, or without a directory of entries, consumers get "
                        "nothing (NO_MATCHED_LOGIC_QUEUE)."},
        repair="The log is right: rmqtool repair finishes the interrupted compaction, removes files that do not "
               "belong there, and writes the files of queue entries again from the log. A short log file is filled "
               f"from the commit log; a missing one must come from a backup or a slave. {_OFF}",
        remedy=_REPAIR,
    ),
    Entry(
        code="compaction.unit", treatment="files",
        title="Entries of a compacted queue do not point to the records of its log",
        what="An entry has the offset, size, queue offset, store time and tag of one record of the compacted log, and "
        "each record has one. Consumers are served by these entries alone.",
        how="A flipped bit, a page that was not written before a crash, an older copy of one of the two files; a "
            "compaction that wrote into files left by an interrupted one.",
        says={
            "wrong": "{units:entry|entries} of {records} differ from the records[, first at queue offset {first}]",
            "cut": "{units:record} at the end of the last file without an entry, from queue offset {first} on",
            "stale": "{units:entry|entries} after those of the records: of an interrupted compaction",
        },
        effect="consumers get other bytes, or nothing, in place of these messages",
        versions={_ALL: "in the last three files a start cuts the entries from the first damaged one on, and then the "
                        "log after the last entry: after a clean stop these messages are not dispatched again."},
        repair="rmqtool repair writes the entries again from the log, as a broker would. Do so before a start.",
        remedy=_REPAIR,
    ),
    Entry(
        code="compaction.record", treatment="none", treatment_by_cause={"in-log": "files", "differs": "decide"},
        title="A record of a compacted log is damaged",
        what="The compacted log holds copies of messages of the commit log. One of them cannot be decoded, has a "
             "body CRC mismatch, or another queue offset, store time or tag than its queue entry, which is right, or "
             "other properties than in the commit log, whose keys the index has.",
        how="A flipped bit, a disk that fails.",
        says={
            "": "no message can be decoded: {why}[; after it in this file are {dropped:message}]",
            "differs": "{messages:message} other than in the commit log, first queue offset {first}",
            "body": "the body of queue offset {first} has a CRC mismatch",
            "fields": "{messages:message} with fields that their queue entries, or commit log and index, contradict, "
            "first queue offset {first}",
        },
        effect="the next compaction that reads this file drops every message after it there for good, and older "
        "values of their keys come back",
        versions={_ALL: "CompactionLog treats undecodable bytes as the end of a file. Bodies are not compared with "
                        "their CRCs: a damaged body is delivered, and kept."},
        repair="If the commit log still has the message, rmqtool repair replaces the damaged bytes with it. "
        "If nothing shows which of two is right, you must decide. Otherwise restore the file from a backup or a slave, "
        "or run the broker with enableCompaction=false, which also keeps compactions from this file.",
        remedy=_REPAIR,
    ),
    Entry(
        code="compaction.missing", treatment="none",
        title="Messages of a compacted topic are not in its compacted log",
        what="The commit log holds messages with a key, the newest of their keys, which the compacted log does not "
        "have. Consumers are served only from the compacted log.",
        how="Entries or a file of the compacted log were lost; a start has cut its end; a damaged record ended a "
            "compaction of its file early.",
        says="{messages:message}, the newest of their keys, from queue offset {first} on",
        effect="consumers never get these messages",
        versions={_ALL: "a missing message before an existing one is never dispatched again; after a crash messages "
                        "after the last one are, as far as recovery reads the commit log again."},
        repair=f"The messages are in the commit log: export them with rmqtool export, and send them again. {_OFF}",
    ),
    Entry(
        code="compaction.position", treatment="files",
        title="The position of compactions is past the compacted log",
        what="compaction/position-checkpoint has by queue the greatest queue offset that a compaction has read. "
        "It is greater than that of every message of the log.",
        how="The file comes from another copy of the store than the compacted log; an editor, a flipped bit.",
        says="{position}, but the newest message of the compacted log has queue offset {newest}",
        effect="files with smaller queue offsets are not compacted: the log grows, and old values of keys remain",
        versions={_ALL: "a compaction looks for keys only in files with messages after this position."},
        repair="rmqtool repair takes the entry out of the file; the next compaction looks at all files again.",
        remedy=_REPAIR,
    ),
    Entry(
        code="compaction.leftover", severity="info", treatment="none", about="surroundings",
        title="compaction/ has files that no broker reads",
        what="Directories in which a compaction or a new slave was writing, or queues of topics that are not "
        "compacted, or do not exist any more.",
        how="A crash in a compaction; the attribute cleanup.policy was removed; the topic was deleted, which leaves "
            "these files.",
        says={
            "working": "left by a compaction, or a copy from a master, that did not end: {bytes:byte}",
            "topic": "the topic is not a compacted one: {bytes:byte}",
        },
        effect="takes space; the next compaction writes into the remaining files",
        versions={_ALL: "never deletes them."},
        repair="Remove compacting/ and replicating/ before the broker is started, and directories of topics that will "
               "not come back.",
    ),
    Entry(
        code="compaction.minimum", severity="info", treatment="none",
        title="Messages of a compacted topic are before the minimum offset that a broker reports",
        what="The minimum of a queue that a broker reports is that of the plain queue, which moves on as files of the "
        "commit log are deleted. The compacted log still has messages before it.",
        how="This is normal in all releases, once the cleaner has deleted commit log files.",
        says="{messages:message} before the minimum {minimum}, from queue offset {first} on",
        effect="a consumer that begins at the minimum does not see them; one that pulls from 0 does",
        versions={_ALL: "getMinOffsetInQueue asks the plain queue."},
        repair="Set the group to offset 0 of the queue.",
    ),
)  # fmt: skip
