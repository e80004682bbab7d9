"""Findings about the next start: what it would destroy, refuse or leave undone, and what a newer release changes."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_INERT = (
    "Otherwise rmqtool repair puts dummy records in place of the damage, and a start reads on after it: only what "
    "cannot be read is lost, and rmqtool undo takes it back. For this step alone, use rmqtool rebuild-cq "
    "--neutralise. A whole missing file cannot be replaced: export the messages after it."
)
_REPAIR = "rmqtool repair {store}"

STARTS = (
    Entry(
        code="start.data-loss", treatment="neutralise",
        treatment_by_cause={"missing-file": "restore", "log-elsewhere": "restore"},
        title="A start would destroy good messages",
        what="The next start of a broker would end the commit log at a bad place and delete readable messages after "
        "it.",
        how="A recovery scan treats the first thing that it cannot read as the end of the log. One flipped bit in an "
        "old record can cost all later files.",
        says={
            "out-of-reach": "{messages:readable message} after it would be out of reach",
            "cut": "a start of {version} ends the commit log at offset {end_offset} ({why}): {messages:readable "
            "message} after it would be lost[, {files:commit log file} deleted]",
            "now": "as the store is now, a start of {version} ends the log at offset {end_offset}: "
            "{messages:readable message} in {bytes:byte}; after this rebuild it no longer does",
            "still": "as the store is now, a start of {version} ends the log at offset {end_offset}: "
            "{messages:readable message} in {bytes:byte}; after this rebuild it still loses {messages_after:readable "
            "message} in {bytes_after:byte}",
            "after": "after this rebuild a start of {version} ends the log at offset {end_offset}: "
            "{messages:readable message} in {bytes:byte}",
        },
        effect="the broker starts, without an error, with the rest of the log: later files are deleted from disk",
        versions={
            "4.4.0 to 5.3.1": "a clean start scans the last three files; after a crash from the file that the "
                              "checkpoint selects, without one all files.",
            "5.3.2, 5.3.3": "a clean start scans from the file that the farthest queue entry points into.",
            "5.3.4": "a clean start scans from the newest file whose first record is intact and has an entry.",
            "5.4.0 and later": "the same, no farther back than the last ten files.",
        },
        repair="Do not start a broker on this store before it is repaired. If a replica or a backup has the damaged "
               "bytes, or a missing file, restore them. "
        f"{_INERT}",
        remedy=_REPAIR,
    ),
    Entry(
        code="start.other-mode-data-loss", severity="warning", treatment="neutralise",
        treatment_by_cause={"missing-file": "restore", "log-elsewhere": "restore"},
        title="Another kind of start would destroy good messages",
        what="The next start is harmless. But with the file abort (after a kill), or without the checkpoint, it would "
        "end the log at a bad place.",
        how="There is a bad record in a part of the log that the next start does not read.",
        says={
            "memory": "{when} a start would fail: OutOfMemoryError, for {why}",
            "cut": "{when} a start would end the commit log at offset {end_offset} ({why}) and lose "
            "{messages:readable message}",
        },
        effect="nothing now; after the next crash later files may be deleted from disk",
        versions={"all": "which part is read depends on abort, checkpoint and consume queues."},
        repair="Never delete consumequeue/ or checkpoint, and never create abort, in this store. Restore the damaged "
               "bytes "
        f"from a replica or a backup while there is time. {_INERT}",
        remedy=_REPAIR,
    ),
    Entry(
        code="start.depends-on-release", severity="warning", treatment="release", is_trace=True,
        title="What a start does depends on the release",
        what="Nothing in the store shows which of several releases the broker has, and their starts would differ: "
             "some refuse to start, or lose messages or queue entries, and others do not.",
        how="--broker-version was not given.",
        says="{starts}",
        parts={
            "starts": {
                "hangs": "{releases}: never ready",
                "refuses": "{releases}: refuses to start: {refuses}",
                "": "{releases}: ends the log at {max_offset_after}, {messages_lost:message} lost[, {also!l}]",
            }
        },
        effect="depends on the release, as the message says",
        versions={"all": "each as the finding says; the pages of the other start findings explain the differences."},
        repair="Give --broker-version with the release of the broker that is going to start.",
        remedy="rmqtool verify {store} --broker-version VERSION",
    ),
    Entry(
        code="start.other-directory", treatment="settings",
        title="The broker would open another directory",
        what="With these settings a start would open another directory, which is empty, instead of that of the store "
             "or its log.",
        how="An invisible blank at the end of a path in broker.conf: Java keeps it, and so do brokers before 5.2.0.",
        says="a start of {version}: {end}, by {setting} in broker.conf: {messages:message} would be out of reach",
        effect="the broker starts without the messages of the store; without a log it deletes the consume queues, too",
        versions={"before 5.2.0": "blanks around a path are part of it.", "5.2.0 and later": "they are trimmed."},
        repair="Remove the blanks at the end of the value in broker.conf, before a broker starts with it.",
    ),
    Entry(
        code="start.refuses", treatment="refused",
        treatment_by_cause={"queue-file": "queues", "queue-end": "queues", "index": "index", "setting": "settings"},
        title="The broker would not start",
        what="Loading the store would fail: the broker ends with an exception or the exit status -3.",
        how="A file of the wrong size, a stray file, a configuration that cannot be read, a record of an impossible "
        "size.",
        says="{why}",
        effect="the broker exits at startup; no data is lost",
        versions={
            "5.3.4 and later": "a start that failed may remove the file abort: the next one then believes that "
            "the last stop was clean.",
        },
        repair="Correct the problem in the message, then verify again.",
    ),
    Entry(
        code="start.hangs", treatment="queues",
        title="The broker would hang at startup",
        what="The start would never end: it waits for a dispatch that stops.",
        how="4.5.1 to 4.9.8 wait until all messages after the queues are dispatched; a missing file in the middle of "
        "the log stops the dispatch.",
        says="{why}",
        effect="the process runs, but never serves clients",
        versions={"4.5.1 to 4.9.8": "hangs.", "others": "do not wait."},
        repair="Restore the missing files, or rebuild the consume queues with rmqtool, so that nothing is left to "
        "dispatch.",
        remedy="rmqtool rebuild-cq {store} --dry-run",
    ),
    Entry(
        code="start.queue-loss", treatment="queues",
        title="A start would cut or shift a consume queue",
        what="After a start the queue has fewer entries than messages, or entries at other offsets, although the "
             "messages are in the log.",
        how="An invalid entry ends a queue; a queue that ends before the log is not completed after a clean stop.",
        says={
            "short": "would end at offset {max_offset}, {messages:message} before its last one",
            "shifted": "from offset {first_offset} on {messages:message} would be {shift:queue offset} before their own"
            ", and the queue would end at offset {max_offset}",
        },
        effect="these messages are not consumed, and new messages get their queue offsets",
        versions={"all": "see consumequeue.hole, consumequeue.after and consumequeue.zero-file."},
        repair="Rebuild the consume queue before the broker starts.",
        remedy="rmqtool rebuild-cq {store} --topic {topic} --queue {queue_id} --dry-run",
    ),
    Entry(
        code="start.delay-times", fault=None, treatment="decide", treatment_by_cause={"derived": "queues"},
        title="After a start delayed messages would be delivered at another time",
        what="The queue entry of a delayed message has its delivery time. The start derives it again with another "
        "time, or ignores it.",
        how="messageDelayLevel was changed while messages waited; or queues of SCHEDULE_TOPIC_XXXX are missing or "
            "cut, and the start derives them without their delay, or late.",
        says={
            "derived": "a start of {version} derives entries with other times: {early:delayed message} come early, "
            "{late} late, {again} again",
            "levels": "by messageDelayLevel in broker.conf {early:delayed message} come early, {late} late",
        },
        effect="consumers get these messages earlier or later than requested",
        versions={
            "4.9.2 to 4.9.8": "derive in a recovery after a crash the hash of the tag in place of the time; a clean "
            "start moves the offset of a level to the end of its queue before it derives the rest, and delivers that "
            "again.",
            "all": "deliver messages at once that are due later than the delay of their level from now on.",
        },
        repair="Rebuild the consume queues before the broker starts: that keeps the times. If messageDelayLevel was "
               "changed, set these levels to their former delays until the messages are delivered.",
        remedy="rmqtool rebuild-cq {store} --dry-run",
    ),
    Entry(
        code="start.keys-lost", treatment="files",
        title="A start would delete index files and rebuild only some of their keys",
        what="Queries by these keys find their messages now, but not after the start. The messages themselves are "
        "intact, and consumers get them.",
        how="After a kill a start deletes the index files that are newer than the index time of the checkpoint, which "
        "moves only when an index file is full. It adds keys again only for the part of the log that it scans.",
        says="{keys:key} of {index_files_deleted:index file} that the start deletes; it adds {again}",
        parts={
            "again": {
                "none": "none of their keys again",
                "some": "keys again from physical offset {put_again_from} on only",
            }
        },
        effect="the broker starts, and queries by key or by unique key do not find these messages any more",
        versions={"all": "an index in RocksDB is not affected."},
        repair="Before the start, set the index time of the checkpoint to that of the newest index file; rmqtool "
        "repair does so if the index is intact. After the start, rmqtool rebuild-index adds all keys again.",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="start.rows-lost", treatment="whole-log",
        title="A start would never add some queue entries in RocksDB",
        what="The broker was killed before it had flushed the rows of these messages, and the next start looks for "
        "them in the newest commit log files only. The messages are in older files.",
        how="Rows stay in memory until there are 128 MiB of them, about 1.4 million messages, without a write-ahead "
            "log. If that many messages fill more than ten commit log files, a kill loses the rows of those before "
            "the tenth last file.",
        says={
            "begins-later": "RocksDB would begin at offset {max_offset}, where the files end: {messages:message} "
            "before it would have no row that is read, unless `rmqtool rebuild-cq` makes the rows first",
            "": "{messages:message} after its last row would never get one: {reason}",
        },
        parts={
            "reason": {
                "files-decide": "the start writes only rows of the log files that queues in files need, whatever is "
                                "in RocksDB",
                "few-files": "the start scans only a few log files, and with {setting} in all",
                "limit": "the start reads the last {read} of {files:commit log file}, and with {setting} all",
                "clean-stop": "after a clean stop a start does not look for them",
            }
        },
        effect="the broker starts silently, and these messages are never consumed: their offsets have no entry",
        versions={
            "5.2.0 to 5.3.4": "after a crash builds them again from where they end, however far back.",
            "5.4.0 and later": "reads the last commitLogRecoverMaxNum files, 10 by default.",
            "with rocksdbCQDoubleWriteEnable": "begins where queues in files need it; 5.3.4 and later at most "
            "combineCQMaxExtraSearchCommitLogFiles log files earlier, 3 by default. Consumers read the files.",
        },
        repair="Before the broker starts, set commitLogRecoverMaxNum=1000000 in broker.conf, and, if queues are "
               "written twice, combineCQMaxExtraSearchCommitLogFiles=1000000: the start then builds all of them "
               "again. After a "
        "start without it they are missing (consumequeue.missing-entry) until the queues are rebuilt from the log.",
    ),
)  # fmt: skip

UPGRADES = (
    Entry(
        code="upgrade.refused", treatment="settings", about="surroundings",
        title="The named release does not start with this broker.conf",
        what="A broker of the release that --broker-version names would exit at startup: its settings contradict each "
             "other, or do not match the store. This does not change the verdict on the store.",
        how="A setting that an older release accepted is no longer sufficient, or has another spelling.",
        says="{version}: {why}",
        effect="does not start",
        versions={
            "4.5.2 and later": "mapedFileSizeCommitLog and mapedFileSizeConsumeQueue are not read, their names have "
            "two p: on files of another size than the default it does not start; 4.9.2 starts, and overwrites them.",
            "5.1.1 and later": "enableControllerMode and enableDLegerCommitLog exclude each other.",
            "5.3.4 and later": "rocksdbCQDoubleWriteEnable cannot be combined with batch queues.",
            "5.5.0 and later": "rocksdbCQDoubleWriteEnable needs combineCQUseRocksdbForLmq; RocksDB queues must be "
            "where useSeparateStorePathForRocksdbCQ says; after a crash enableAcceleratedRecovery needs an offset that "
            "only 5.5.0 puts into the checkpoint.",
        },
        repair="Change broker.conf as the finding says, before you start the new release. After a crash of the old "
               "broker, start and stop the old release once more.",
    ),
    Entry(
        code="upgrade.changed", severity="warning", treatment="none", about="surroundings",
        title="The named release behaves differently",
        what="The release that --broker-version names is newer than all releases that may have written the store, and "
             "treats it differently; or a setting makes it look in another place. As information: changes that the "
             "last broker may already have, and settings with another default that broker.conf does not set.",
        how="An upgrade, or a changed broker.conf.",
        says={
            "switch": "{version}: {what}",
            "change": "since {since} {what}",
            "defaults": "other defaults than in {since}: {what}",
        },
        effect="starts, and behaves as described",
        versions={
            "4.9.2 and later": "the disk is measured like df, including the space reserved for root.",
            "4.9.3 and later": "enableLmq=true moves all committed offsets, not only those of light queues, from "
            "consumerOffset.json to lmqConsumerOffset.json; neither file is read in place of the other.",
            "4.9.3": "enableLmq=true reads no committed offsets at a start: each group begins again.",
            "5.1.1 and later": "light queues get no entries of retry topics, and since 5.1.3 none of schedule topics.",
            "5.2.0 and later": "storeType=defaultRocksDB keeps queues in RocksDB; 5.1.4 only configuration.",
            "5.3.2 and later": "configManagerVersion=v2 does not import topics, groups and offsets: consumers begin "
                               "again.",
            "5.4.0 and later": "tags are keys of the index; after a crash only the last ten log files are read.",
            "5.5.0 and later": "light queues get no entries of dead letter topics.",
        },
        repair="Decide for each whether it matters, and set in broker.conf what should not change. Stop the old "
               "broker cleanly before the upgrade.",
    ),
    Entry(
        code="upgrade.setting", severity="warning", treatment="ignored", about="surroundings",
        title="A setting of broker.conf is ignored or misread",
        what="broker.conf has a setting that the release of --broker-version does not have, or ignores. Or, in any "
        "release, a value that a broker reads differently: a number with a blank or a letter in it, true with a blank "
        "after it. The prediction of the next start takes it into account.",
        how="It was removed or renamed, belongs to a newer release, or is misspelled. Blanks at the end of a line, "
        "or a comment after a value, belong to the value. Plug-ins other than the tiered store may have settings that "
        "rmqtool does not know.",
        says={
            "value": "{setting} is {value!r}: {why}",
            "no-effect": "{setting} has no effect since {since}",
            "unknown": "{setting} is read by no release[; {version} reads {instead}]",
            "later": "{setting} is read since {since}, not by {version}[; {version} reads {instead}]",
            "earlier": "{setting} is read up to {until}, not by {version}[; {version} reads {instead}]",
        },
        parts={
            "why": {
                "no-number": "it is not a number, and not read",
                "blank-no-number": "not a number because of the blank after it, and not read",
                "blank-false": "with the blank after it, it counts as false",
                "blanks-cut": "the blanks around it are trimmed since {since}",
                "blanks-kept": "the blanks around it are part of it[ up to {until}]",
                "blanks-kept-elsewhere": "the blanks around it are part of it[ up to {until}]: another directory",
            }
        },
        effect="the broker silently ignores it, and uses its default",
        versions={
            "4.5.2 and later": "mapedFileSizeCommitLog is mappedFileSizeCommitLog, and so for consume queues.",
            "before 5.2.0": "blanks around text are part of it: a path with one is another directory.",
            "5.3.3 and later": "aclEnable has no effect: authenticationEnabled and authorizationEnabled decide.",
            "all": "names are compared letter by letter, upper and lower case too; with a blank after it a number is "
            "not read, and true counts as false.",
        },
        repair="If the finding gives the name that the release reads, write that name; remove blanks at the end of "
               "a value. Otherwise you can keep the setting: a start does not depend on it.",
    ),
)  # fmt: skip
