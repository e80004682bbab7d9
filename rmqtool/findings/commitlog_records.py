"""Findings about what is in the commit log: records, what they say, what lies between them, and what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rmqtool.findings.finding import Entry, Says

DamageReason = Literal[
    "zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover",
]  # fmt: skip
"""Why an extent holds no message."""

DAMAGE_MEANINGS: Mapping[DamageReason, str] = {
    "zeroed": "zero bytes where a record should begin",
    "magic-code": "neither a message nor a blank begins here",
    "physical-offset": "a record with a wrong physical offset",
    "lengths": "inconsistent record lengths, or a blank that does not cover the rest of its file",
    "truncated": "the file ends inside a record",
    "missing": "these bytes are in no file",
    "torn": "the last record was not written to its end, as an unclean stop leaves it",
    "leftover": "old bytes after the last record, up to the end of the page",
}
"""The sentence for each reason."""

_SCAN_ENDS_HERE = (
    "not noticed while messages are served; but a recovery scan that reaches it treats it as the end of the log, "
    "and deletes everything after it"
)
_SCAN_VERSIONS = {
    "4.4.0 to 5.3.1": "a clean start scans the last three files; a start after a crash scans from the file that the "
    "checkpoint chooses, without a checkpoint all. The log is cut here and later files are deleted.",
    "5.3.2 and later": "the same, but a clean start scans from the file that the newest queue entry points "
    "into; without consume queues all of the log.",
    "5.4.0 and later": "reads only the last ten files (commitLogRecoverMaxNum).",
}
_SCAN_REPAIR = (
    "Do not start a broker before you know what its start would cut: `rmqtool verify` says so. Restore the bytes from "
    "a replica or a backup. Export what can be read first."
)

RECORDS = (
    Entry(
        code="commitlog.torn", fault="F15", severity="warning", treatment="start", is_trace=True,
        title="The last record was not written to its end",
        what="The last record of the log is cut, or its end is zeros, and nothing but zeros follows.",
        how="The broker was killed or the machine lost power while it appended.",
        says={
            "record": f"the log ends here: {DAMAGE_MEANINGS['torn']} ({{bytes}} bytes)",
            "properties": "the last record's properties end in zero bytes: it was not written to its end",
        },
        effect="a start cuts the log before this record; its producer was never told that it was stored",
        versions={
            "4.4.0 to 4.9": "cuts the log there.",
            "5.0 and later": "cuts the log there and logs `found a half message`.",
        },
        repair="No repair is needed: the next start does it.",
    ),
    Entry(
        code="commitlog.stale-bytes", fault="F29", severity="info", treatment="start", is_trace=True,
        title="Old bytes after the last record",
        what="After the last record, up to the end of the page, are bytes that are not a record.",
        how="Brokers that write without mmap write whole pages, so old bytes of the buffer remain after the end.",
        says=f"{DAMAGE_MEANINGS['leftover']} ({{bytes}} bytes)",
        effect="a start ends the log before them",
        versions={"all": "new messages overwrite them."},
        repair="No repair is needed.",
    ),
    Entry(
        code="commitlog.stale-records", fault="F29", severity="info", treatment="start", is_trace=True,
        title="Old records past the end of the log",
        what="After the logical end of the log are records that were cut from it.",
        how="A start cuts the log without zeroing what follows the cut.",
        says="old records past the end of the log",
        effect="none, until a new record ends exactly where an old one begins: then a later recovery brings the old "
        "ones back",
        versions={"all": "ignores them as long as they do not join the log."},
        repair="No repair is needed.",
        not_detected="A scan that continues after damage cannot tell cut records from records after a bad one: such "
        "records are counted as good.",
    ),
    Entry(
        code="commitlog.body-crc", fault="F16", treatment="neutralise",
        title="A message's body is damaged: CRC mismatch",
        what="The CRC-32 of the body differs from the one in the record.",
        how="A flipped bit on disk or in memory, an old page after a power loss.",
        says={
            "": "body of {body_size} bytes: CRC {found:#010x}, stored {expected:#010x}",
            "kept": "body CRC mismatch; without --neutralise the message keeps its place",
        },
        effect="consumers get the damaged body; a recovery scan that reaches it treats it as the end of the log, and "
        "deletes everything after it",
        versions=_SCAN_VERSIONS,
        repair=f"{_SCAN_REPAIR} Without a copy of the message you must decide: otherwise consumers get the damaged "
               "body.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="A CRC covers the body only. A body of no bytes has none. Topic, properties and numbers are "
        "covered only in records with the property __CRC32#.",
    ),
    Entry(
        code="commitlog.property-crc", fault="F16", treatment="none",
        title="A record does not match its __CRC32# property",
        what="Since 5.2.0, with enabledAppendPropCRC, a record ends with a CRC-32 over the whole record. It does not "
             "match.",
        how="As commitlog.body-crc, but anywhere in the record.",
        says={
            "other": "{message_size} bytes: CRC {computed:#010x}, __CRC32# has {stored:#010x}",
            "unreadable": "{message_size} bytes: CRC {computed:#010x}, __CRC32# has nothing that can be read",
        },
        effect="noticed only with forceVerifyPropCRC: then a recovery scan that reaches it treats it as the end of "
        "the log",
        versions={
            "before 5.2.0": "does not know the property.",
            "5.2.0 and later": "with forceVerifyPropCRC as commitlog.body-crc; else does not look at it.",
        },
        repair="Restore the bytes from a replica or a backup. A repair does not change the record: brokers "
        "without forceVerifyPropCRC serve it.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.lengths", fault="F17", treatment="neutralise",
        title="Inconsistent lengths in a record",
        what="Body, topic and properties together do not give the record's size.",
        how="A flipped bit in one of the lengths, or something else was written over the record.",
        says=f"{DAMAGE_MEANINGS['lengths']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE, versions=_SCAN_VERSIONS, repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.truncated", fault="F17", treatment="neutralise",
        title="A file ends inside a record",
        what="A record's size points past the end of its file.",
        how="A flipped bit in the size, or the file was cut.",
        says=f"{DAMAGE_MEANINGS['truncated']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE, versions=_SCAN_VERSIONS, repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.magic-code", fault="F18", treatment="neutralise",
        title="Neither a message nor a blank begins where one should",
        what="RocketMQ does not write this magic code.",
        how="A flipped bit, a page of something else, or a wrong size in the record before.",
        says=f"{DAMAGE_MEANINGS['magic-code']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE, versions=_SCAN_VERSIONS, repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.zeroed", fault="F18", treatment="neutralise",
        title="Zero bytes inside the commit log",
        what="Zeros where a record should begin, and good records after them.",
        how="A page was not flushed before a power loss; a disk or RAID lost blocks; a sparse copy failed.",
        says=f"{DAMAGE_MEANINGS['zeroed']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE, versions=_SCAN_VERSIONS, repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.physical-offset", fault="F19", treatment="neutralise",
        title="A record has a wrong physical offset",
        what="The physical offset stored in the record is not the record's own.",
        how="The file was copied from another broker or renamed; a flipped bit.",
        says=f"{DAMAGE_MEANINGS['physical-offset']} ({{bytes}} bytes)",
        effect="a recovery scan continues, but derives a queue entry that points to the wrong place; the queue "
        "may then refuse later messages until the log has grown past it",
        versions={
            "4.4.0 to 5.4": "a rebuilt queue gets a wrong entry, and may be stuck after it.",
            "5.5.0 and later": "the same; with checkCommitLogOffsetOnRecover a start after a crash cuts the log here.",
        },
        repair="Give a renamed file the name that its first record gives. Otherwise restore the bytes from a replica "
               "or a "
        "backup. Then rebuild the consume queue.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.entry-header", treatment="neutralise",
        title="The header of a DLedger entry is wrong",
        what="Each message of a DLedger log is preceded by a header of 48 bytes. It has a wrong position or size, a "
             "Raft index that is not the next one, or a lower Raft term than the entry before.",
        how="A flipped bit; a file of another node.",
        says={
            "position": "the entry gives the position {found}, and is at {expected}",
            "size": "the entry gives its message {found} bytes, and that has {expected}",
            "index": "the entry has the Raft index {found} after {before}",
            "term": "the entry has the Raft term {found} after {before}",
        },
        effect="messages are served; but a start that reaches it treats it as the end of the log, and cuts everything "
        "after it",
        versions={
            "DLedger 0.2 and later": "every start reads the last three files, or more if the index does not point to "
                                     "their first entries. If the error is more than a file before the beginning of "
                                     "the last one, the node "
            "does not start. Earlier entries are not read, but followers that need them do not get them.",
        },
        repair="Do not start the node. Copy its log again from the leader of its group, or make a plain store: "
        "`rmqtool salvage` needs no header.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.blank", fault="F20", treatment="neutralise",
        title="A commit log file does not end with a correct blank",
        what="A file that is not the last must end with a blank of the right length. It is missing, zeroed, or has "
        "another length.",
        how="The file size was changed, a crash, an incomplete copy.",
        says={
            "none": "the last record ends exactly at the file's end, so that no blank follows",
            "size": "a blank of {found} bytes where {left} are left in its file",
            "inside": "a blank inside its file, with records after it ({bytes} bytes)",
            "zeros": "zeros up to the end of the file, where a blank should be ({bytes} bytes)",
        },
        effect="a missing, zeroed or too long blank is the end of the log for a recovery scan: later files are deleted",
        versions={
            "4.4.0 to 5.3.1": "a missing or zeroed blank ends the log; a wrong length is ignored.",
            "5.3.2 and later": "a blank that is too long ends the log too; one too short is ignored.",
            "5.5.1 and later": "one of negative size ends it, too.",
        },
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.huge-size", fault="F21", treatment="neutralise",
        title="A record with an impossible size",
        what="The magic code is right, the size is larger than any broker accepts.",
        how="A flipped bit in the size.",
        says="claims {claimed} bytes, more than its file has left ({bytes} bytes)",
        effect="a recovery scan that reaches it fails with OutOfMemoryError before 5.3.2; later it treats it as the "
        "end of the log",
        versions={
            "4.4.0 to 5.3.1": "the broker cannot start: OutOfMemoryError, in every attempt.",
            "5.3.2 and later": "the log is cut here and later files are deleted.",
        },
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
)  # fmt: skip


_WITNESSES: dict[str, Says] = {
    "witnesses": {
        "time": "{file} knows a message of {timestamp!t}",
        "offset": "{file} has {name} {physical_offset}",
        "index": "{file} knows a message of {timestamp!t} at {physical_offset}",
        "epoch": "{file} has epoch {epoch} begin at {physical_offset}",
        "rocksdb": "the queues in RocksDB know of messages up to {end}",
        "beyond": "groups have consumed more than their queues have: {groups}[ and {more:more offset}]",
        "consumed": "groups have consumed messages: {groups}[ and {more:more offset}]",
        "delivered": "{file} has delivered {levels!l}",
        "timers-read": "{file} has read {messages:timer message}",
        "readable-part": "groups have consumed messages, as the readable part of {file} shows",
        "timer-log": "{file} has entries of timer messages",
        "timer-wheel": "{file} has {slots:second} with timer messages",
    },
    "groups": "{group} {offset} of {topic}, queue {queue_id}[, which ends at {end}]",
}

LOG_LOSSES = (
    Entry(
        code="commitlog.missing", fault="F10", treatment="restore",
        title="The commit log is missing, or in another place",
        what="The log has no message, but checkpoint, index, epochs, committed offsets, delay offsets or the timer's "
             "files prove that it had. No cleaner deletes the newest file of a log.",
        how="A disk that is not mounted; storePathCommitLog in broker.conf points to another directory; the directory "
        "commitlog/ was deleted, moved or left out of a copy.",
        says={
            "no-message": "no message is in {directories!l}, but {witnesses}",
            "no-file": "no log file is in {directories!l}, but {witnesses}",
        },
        parts=_WITNESSES,
        gist="no message is in {directories!l}",
        effect="the broker starts with an empty log and gives new messages offsets from 0 on, which groups have "
        "consumed already: they skip these messages",
        versions={"all": "starts as on an empty directory, deletes the queues, and keeps all committed offsets."},
        repair="Do not start a broker on it. Mount the disk, or give --broker-conf with storePathCommitLog, and "
        "verify again. If the log is lost, restore the store from a backup or from a replica. To start over without "
        "messages, use an empty directory with topics.json and subscriptionGroup.json, without checkpoint and offsets.",
    ),
    Entry(
        code="commitlog.end-missing", fault="F10", treatment="restore",
        title="The commit log once held newer messages",
        what="After a clean stop, the checkpoint, an index file or the epochs know a newer message than the newest one "
        "in the log. After a crash, only messages past the last file count: the others may have been lost by a power "
        "loss.",
        how="The last log file was deleted, zeroed or not restored, perhaps before a rebuild of queues and index; "
        "files are from different times.",
        says="the newest message is of {newest_timestamp!t}, the log ends at {log_end}, but {witnesses}",
        parts=_WITNESSES,
        gist="what followed the newest message, of {newest_timestamp!t} (the log ends at {log_end})",
        effect="new messages get offsets that were in use: groups that have consumed beyond the end of a queue skip as "
        "many new messages",
        versions={"all": "does not compare them. The next stored message corrects the checkpoint."},
        repair="Restore the missing file before the broker starts; then rebuild the queues. Without it the messages "
        "are lost: reset the named groups to the end of their queues before producers send again.",
        not_detected="Committed offsets alone prove nothing, because a tool may set any (config.offset-out-of-range).",
    ),
    Entry(
        code="commitlog.head-missing", fault="F09", severity="warning", treatment="restore",
        title="The first commit log files were not deleted by the cleaner",
        what="The log does not begin at 0, and queues or index still have files with only deleted messages. Or "
        "the log's directory was last changed before the deleted files can have expired, and no queue has lost its "
        "first file.",
        how="Log files were deleted by hand, or left out of a copy; or the broker deleted them because the "
        "disk was full.",
        says="the log begins at {log_start}; {signs}",
        parts={
            "signs": {
                "left": "{queues:queue} and {index_files:index file} still begin with files of earlier messages, "
                        "which the cleaner would have deleted",
                "early": "its first message is of {stored!t}, and {directory}/ was changed last {minutes:minute} "
                "later: earlier messages had not expired",
            }
        },
        gist="the log begins at {log_start}",
        effect="earlier messages are lost; groups that had not consumed them continue after them",
        versions={"all": "treats the first file as the beginning, and the next start deletes the rest."},
        repair="Restore the files before the broker starts, if they were deleted by mistake. Give --broker-conf, so "
        "that fileReservedTime counts; without it only files that were deleted within an hour are detected by time.",
        not_detected="Files that were deleted by hand later than they could have expired, or whose queues and index "
        "files were deleted with them.",
    ),
)  # fmt: skip


MESSAGES = (
    Entry(
        code="commitlog.deleted-topic", fault="F22", severity="info",
        title="Messages of a topic that is not configured",
        what="The commit log has messages of topics that are not in topics.json.",
        how="The topic was deleted. Its messages stay in the log until the files expire.",
        says="{messages:message} without an entry, the first at physical offset {physical_offset}",
        effect="none; but a rebuild of all queues brings the topic's queues back",
        versions={"all": "ignores the messages."},
        repair="No repair is needed. Leave the topic out of a rebuild if you do not want its queues.",
    ),
    Entry(
        code="commitlog.queue-offset-restart", fault="F23", severity="warning", treatment="none",
        title="Queue offsets begin again",
        what="Within one queue a later record has a smaller queue offset, or the same one twice.",
        how="The topic was deleted and created again; a broker started without its consume queues; a role change. A "
        "light queue that 4.9.3, 4.9.4 or 5.0.0 has filled after a second start: information, since they write it so.",
        says={
            "": "queue offset {found} where {expected} was expected",
            "light": "as 4.9.3, 4.9.4 and 5.0.0 write it: the offsets of the light queue begin again at each start, "
                     "and {messages:message} got no queue entry",
        },
        effect="the consume queue holds only one message for each offset; a rebuild by the broker drops others",
        versions={
            "all": "a rebuild keeps offset 0 always, drops offsets below the end of the queue, appends the rest.",
            "4.9.3, 4.9.4, 5.0.0": "number the messages of a light queue from 0 again after each start, and give only "
                                   "the first an entry until the offset reaches the end of the queue.",
        },
        repair="There is no automatic one. Messages without a queue entry can still be found by `inspect`, `query` and "
        "`export`.",
    ),
    Entry(
        code="commitlog.queue-offset-gap", fault="F24", severity="warning", treatment="none",
        title="Queue offsets are missing",
        what="Within one queue the queue offsets of two neighbouring records are more than one apart.",
        how="Records between them were lost, or an append failed after it was given its offset.",
        says="no record of {queue_offsets:queue offset} from {first} on",
        effect="after a rebuild by the broker all later messages of the queue get smaller offsets: consumers skip "
        "or repeat messages",
        versions={"all": "a rebuild appends without a hole and logs `[BUG]logic queue order maybe wrong`."},
        repair="No repair is needed as long as the present consume queue is sound.",
    ),
    Entry(
        code="commitlog.properties", fault="F25", treatment="neutralise",
        title="The broker cannot parse a record's properties",
        what="A property that the broker itself uses is not a number, or related lists differ in length.",
        how="A flipped bit: no CRC covers properties. Or a client that sets reserved properties.",
        says="DELAY, INNER_BASE or INNER_NUM is not a valid number",
        effect="a DELAY that is not a number makes the whole record unreadable: the end of the log for a recovery scan",
        versions={
            "all": "DELAY in SCHEDULE_TOPIC_XXXX: the record is treated as the end of the log.",
            "4.9 and later": "INNER_MULTI_QUEUE_OFFSET: dispatch of the light queues fails.",
            "5.0 and later": "INNER_BASE or INNER_NUM: the batch queue gets no entry.",
        },
        repair="Restore the bytes from a replica or a backup.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.magic-code-v2", fault="F26", treatment="decide",
        title="Records that the broker's version cannot read",
        what="The log has records of the second format (topics longer than 127 bytes), which 5.1.0 introduced, and "
        "the broker is older.",
        how="A downgrade.",
        says="version 2 of a record, which {version} cannot read",
        effect="brokers before 5.1.0 treat the first such record as the end of the log and delete everything after it",
        versions={
            "before 5.1.0": "a recovery scan that reaches such a record cuts the log there.",
            "5.1.0 and later": "reads them.",
        },
        repair="Go back to 5.1.0 or later.",
    ),
    Entry(
        code="commitlog.sys-flag", fault="F27", severity="warning", treatment="none",
        title="A record's sys flag is invalid",
        what="Bits of the sys flag that no version sets, or that contradict the record.",
        how="A flipped bit, or files of different brokers.",
        says="sys flag {sys_flag:#x}: {why}",
        effect="the broker may read the record's end at the wrong place, and then treats it as the end of the log",
        versions={"all": "reads the record as its flags say."},
        repair="Restore the bytes from a replica or a backup. A repair does not change the record: its lengths add up.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.field", fault="F27", severity="warning", treatment="none",
        title="A field of a record is damaged",
        what="A field that no CRC covers (topic, queue id, queue offset, flags, tags, keys) differs from what the "
        "record's queue entry or its index entries prove; body and position of the record are right.",
        how="A flipped bit on the disk or in memory.",
        says={
            "": "{field} is {found!v}[, was {expected!v}][; the index has the hash {hash}, which none of its keys "
            "gives]: shown by {witnesses}",
            "properties": "none of its properties is left[; the index has the hash {hash} of a key]: shown by "
            "{witnesses}",
        },
        parts={"witnesses": {"consume-queue": "its queue entry", "index": "the index", "property-crc": "its __CRC32#"}},
        effect="consumers get the message through its queue entry, with the damaged field in it; a broker that builds "
        "queues or index from the log again puts it elsewhere or nowhere",
        versions={"all": "reads the record as it is; neither broker nor client compares it with the queue."},
        repair="Queue entry and index entry are right, and every repair keeps them. Restore the bytes "
        "from a replica or a backup.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="Fields that neither queue nor index have: hosts, born time, reconsume times.",
    ),
    Entry(
        code="commitlog.destination", severity="warning", treatment="none",
        title="A delayed message has lost its destination",
        what="REAL_TOPIC and REAL_QID, properties of a delayed message or a timer message, name the queue to which the "
        "broker delivers it when it is due. One of them is missing, or REAL_QID is no number.",
        how="Damaged bytes in the properties, which no CRC covers.",
        says={
            "level": "the broker cannot deliver the message at queue offset {queue_offset} of delay queue {queue_id}",
            "timer": "the broker cannot deliver the timer message at queue offset {queue_offset}",
        },
        effect="no consumer gets the message, unless it has been delivered before; a timer delivers nothing more once "
        "it is due, also none of the messages that are sent later",
        versions={
            "4.9.3 to 4.9.8": "deliver nothing more of the level, which stays at the message; others drop it.",
            "since 5.0.0": "a timer stops at the message, since 5.2.0 unless timerSkipUnknownError=true.",
        },
        repair="Restore the bytes from a replica or a backup. A level that stays at the message continues once "
        "the broker is stopped and the level's offset in config/delayOffset.json is set to the next message; a timer "
        "continues, since 5.2.0, with timerSkipUnknownError=true in broker.conf.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.body-compression", fault="F27", treatment="none", treatment_by_cause={"flag": "files"},
        title="A body is not compressed as its sys flag says",
        what="The sys flag calls a body compressed that does not decompress, or the other way round; its CRC is right.",
        how="A flipped bit in the flags, which no CRC covers; or a producer that sets the flag without compressing.",
        says={
            "plain": "the body of {body_size} bytes is not compressed, its flags say {compression}: {why}",
            "other": "the body of {body_size} bytes is {found}, its flags say {compression}: {why}",
            "not-flagged": "the body is a whole {found} stream, and the flags do not say so, as those of other "
            "messages do",
        },
        effect="a client that pulls the message fails to decompress it and drops the rest of that pull: consumers "
        "lose the messages after it, too",
        versions={
            "clients in Java": "`MessageDecoder#decode` gives nothing for the message, and `decodes` ends there.",
            "brokers": "do not look at bodies, except a broker that splits inner batches.",
        },
        repair="If body and CRC prove that one bit of the flags is wrong, `rmqtool repair` corrects it. Otherwise "
               "restore the bytes from a replica or a backup. A pull with a smaller batch size loses fewer messages.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="A compressed body with a correct start and CRC that cannot be decompressed to its end.",
    ),
    Entry(
        code="commitlog.time-order", fault="F28", severity="info",
        title="Store timestamps go backwards",
        what="A record has an earlier store timestamp than the one before it, by more than a moment.",
        how="The broker's clock was set back.",
        says="stored {seconds:.0f} s before an earlier message",
        effect="searches by time may find the wrong offset, and recovery may begin at another file",
        versions={"all": "assumes that store timestamps ascend."},
        repair="No repair is needed.",
    ),
    Entry(
        code="commitlog.future-timestamp", fault="F58", severity="warning", treatment="running",
        title="Messages were stored in the future",
        what="A record's store timestamp is later than now.",
        how="The broker's clock was ahead, or the clock of this machine is slow.",
        says="stored at {store_timestamp!t}, which is in the future",
        effect="until then searches by time, and the file at which recovery begins, are wrong",
        versions={"all": "retention uses the files' modification times and is not affected."},
        repair="Check both clocks.",
    ),
)  # fmt: skip
