"""Findings about a commit log that once held more than it does, as other files of the store prove."""

from __future__ import annotations

from rmqtool.findings.entry import Entry
from rmqtool.findings.sentence import Says

_WITNESSES: dict[str, Says] = {
    "witnesses": {
        "time": "{file} knows a message of {timestamp!t}",
        "offset": "{file} has {name} {physical_offset}",
        "index": "{file} knows a message of {timestamp!t} at {physical_offset}",
        "epoch": "{file} has epoch {epoch} begin at {physical_offset}",
        "rocksdb": "the queues in RocksDB know of messages up to {end}",
        "beyond": "groups have consumed more than their queues hold: {groups}[ and {more:more offset}]",
        "consumed": "groups have consumed messages: {groups}[ and {more:more offset}]",
        "delivered": "{file} has delivered {levels!l}",
        "timers-read": "{file} has read {messages:timer message}",
        "readable-part": "groups have consumed messages, as the readable part of {file} shows",
        "timer-log": "{file} has units of timer messages",
        "timer-wheel": "{file} has {slots:second} with timer messages",
    },
    "groups": "{group} {offset} of {topic}, queue {queue_id}[, which ends at {end}]",
}

LOG_LOSSES = (
    Entry(
        code="commitlog.missing",
        fault="F10",
        severity="error",
        treatment="restore",
        title="The commit log is gone, or in another place",
        what="The log holds no message, and checkpoint, index, epochs, committed offsets, delay offsets or the "
        "timer's files prove that it did. No cleaner deletes the newest file of a log.",
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
        versions=(("all", "starts as on an empty directory, deletes the queues, and keeps all committed offsets."),),
        repair="Do not start a broker on it. Mount the disk, or give --broker-conf with storePathCommitLog, and "
        "verify again. If the log is lost, restore the store from a backup or from a replica. To start over without "
        "messages, use an empty directory with topics.json and subscriptionGroup.json, without checkpoint and offsets.",
    ),
    Entry(
        code="commitlog.end-missing",
        fault="F10",
        severity="error",
        treatment="restore",
        title="The commit log once held newer messages",
        what="After a clean stop, the checkpoint, an index file or the epochs know a newer message than the newest one "
        "in the log. After a crash, only what lies past the last file counts: the rest may be what a power loss "
        "took.",
        how="The last log file was deleted, zeroed or not restored, perhaps before a rebuild of queues and index; "
        "files of different times lie together.",
        says="the newest message is of {newest_timestamp!t}, the log ends at {log_end}, but {witnesses}",
        parts=_WITNESSES,
        gist="what followed the newest message, of {newest_timestamp!t} (the log ends at {log_end})",
        effect="new messages get offsets that were in use: groups that have consumed beyond the end of a queue skip as "
        "many new messages",
        versions=(("all", "does not compare them. The next message that is stored sets the checkpoint right."),),
        repair="Restore the missing file before the broker starts; then rebuild the queues. Without it the messages "
        "are lost: reset the groups that are named to the end of their queues before producers send again.",
        not_detected="Committed offsets alone prove nothing, for a tool may set any (config.offset-out-of-range).",
    ),
    Entry(
        code="commitlog.head-missing",
        fault="F09",
        severity="warning",
        treatment="restore",
        title="The first commit log files were not deleted by the cleaner",
        what="The log does not begin at 0, and queues or index files still hold files of deleted messages only. Or "
        "the log's directory was last changed before the deleted files can have expired, and no queue has lost its "
        "first file.",
        how="Somebody deleted log files by hand, or left them out of a copy; or the broker deleted them because the "
        "disk was full.",
        says="the log begins at {log_start}; {signs}",
        parts={
            "signs": {
                "left": "{queues:queue} and {index_files:index file} still begin with files of messages before that, "
                "which the cleaner takes along",
                "early": "its first message is of {stored!t}, and {directory}/ was changed last {minutes:minute} "
                "later: what was before it had not expired",
            },
        },
        gist="the log begins at {log_start}",
        effect="the messages before are gone; groups that had not consumed them go on after them",
        versions=(("all", "takes the first file for the beginning, and the next start deletes what is left over."),),
        repair="Restore the files before the broker starts, if they were deleted by mistake. Give --broker-conf, so "
        "that fileReservedTime counts; without it only what was deleted within an hour is seen by its time.",
        not_detected="Files that were deleted by hand later than they could have expired, or whose queues and index "
        "files were deleted with them.",
    ),
)
