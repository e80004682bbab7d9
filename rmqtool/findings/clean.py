"""Findings of `rmqtool clean`: what keeps the broker's cleaner from its work, or makes it do more than expected."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_DRY_RUN = "rmqtool clean {store} --dry-run"

CLEANING = (
    Entry(
        code="clean.delete-when", fault="F54",
        title="deleteWhen cannot be parsed, or never comes",
        what="A part of deleteWhen is not a number, or no part is an hour of the day.",
        how="A blank after the semicolon, a comma, an empty part, 24.",
        says={
            "always": "deleteWhen {delete_when!r} is not hours separated by ; alone: each run of the cleaner ends "
            "with a NumberFormatException",
            "sometimes": "deleteWhen {delete_when!r} is not hours separated by ; alone: in {hours} of 24 hours each "
            "run of the cleaner ends with a NumberFormatException",
            "never": "no hour of the day is deleteWhen {delete_when!r}: hours are 0 to 23",
        },
        effect="deletes nothing in the hours in which a run fails, not even when the disk is full",
        versions={
            "all": "parses each hour until one is the present hour; a NumberFormatException ends the run. Its log "
            "says `CleanCommitLogService service has exception`.",
            "5.2.0 and later": "trims the whole setting, not each hour.",
        },
        repair="Write hours from 0 to 23, separated by semicolons alone: 04 or 04;16.",
    ),
    Entry(
        code="clean.blocked-by-older-file", fault="F54", severity="warning",
        title="Expired files wait after a younger one",
        what="A file was changed later than files after it, which have expired.",
        how="It was copied or touched; its modification time is in the future.",
        says="{count:newer file has|newer files have} expired ({bytes} bytes) and wait for this one, which expires "
        "{expires!t}",
        effect="deletes no file after one that has not expired, unless the disk is too full",
        versions={"all": "checks the files oldest first, and stops at the first that has not expired."},
        repair="Set the younger file's time to that of its last message: touch -d.",
    ),
    Entry(
        code="clean.disk-full-nothing-deleted", fault="F54", severity="warning",
        title="The disk is too full, but no log file is deleted",
        what="The disk is above diskMaxUsedSpaceRatio, and the next run deletes no log file.",
        how="No file has expired and the disk is not full enough to ignore that; cleanFileForciblyEnable=false; or the "
        "log has one file only.",
        says="the disk is {used:g}% full, but no log file is deleted: {reason}",
        parts={
            "reason": {
                "before-dledger": "this release never deletes the last log file from before DLedger, and keeps all "
                "of DLedger's log with it",
                "one-file": "the log has one file, and the last file is never deleted",
                "in-use": "the first file is still being read",
                "not-forced": "the oldest has not expired, and cleanFileForciblyEnable=false keeps unexpired files",
                "not-expired": "the oldest expires {expires!t}, and only above {level:.0%} are files deleted that "
                "have not expired",
            }
        },
        effect="logs `disk space will be full soon, but delete file failed` with every run",
        versions={
            "before 5.0.0": "between 85% and a higher diskMaxUsedSpaceRatio it deletes nothing at all.",
            "5.0.0 and later": "above 85% it deletes whatever diskMaxUsedSpaceRatio says.",
        },
        repair="Shorten fileReservedTime, or free space.",
        remedy=_DRY_RUN + " --file-reserved-time 24",
    ),
    Entry(
        code="clean.mtime-future", fault="F54", severity="warning",
        title="A file's modification time is in the future",
        what="A commit log file was changed later than now.",
        how="A clock that was wrong, a restore, touch.",
        says="modified {modified!t}, which is in the future[; so are {others:more file}]",
        effect="the file and all newer ones are kept longer than their messages need",
        versions={"all": "counts the age from the modification time."},
        repair="Set the file's time to that of its last message: touch -d.",
    ),
    Entry(
        code="clean.mtime-later", fault="F55", severity="warning",
        title="A file's modification time is later than its messages",
        what="A commit log file was changed more than an hour after its last message.",
        how="It was restored with cp, rsync or tar without its times, or touched.",
        says="modified {modified!t}, but its last message is of {written!t}: copied or touched later[; so are "
        "{others:more file}]",
        effect="the file is kept longer than its messages need",
        versions={"all": "counts the age from the modification time, and never looks at the messages."},
        repair="If it matters, set each file's time to that of its last message: touch -d.",
    ),
    Entry(
        code="clean.mtime-earlier", fault="F55", severity="warning",
        title="A file's modification time is earlier than its messages",
        what="A commit log file was last changed more than an hour before its first message.",
        how="A clock that was wrong, touch.",
        says="modified {modified!t}, but its first message is of {written!t}[; so are {others:more file}]",
        effect="the file is deleted before its messages expire",
        versions={"all": "counts the age from the modification time, and never looks at the messages."},
        repair="Set the file's time to that of its last message: touch -d.",
    ),
    Entry(
        code="clean.overdue", severity="info",
        title="An expired file was not deleted",
        what="The first file has expired, and an hour of deleteWhen has passed since.",
        how="No broker was running; it has other settings than those given; or the file is still being read.",
        says={
            "no-broker": "expired {expires!t}, but was not deleted at the last hour of deleteWhen: no broker runs on "
            "the store",
            "broker": "expired {expires!t}, but was not deleted at the last hour of deleteWhen: the running broker "
            "has other settings than these, or the file is still being read",
        },
        effect="none, or `destroy mapped file[REF` in its log when the file is still being read",
        versions={"all": "deletes a file that is still being read 120 s after the first attempt."},
        repair="Give --broker-conf and --time-zone as the broker has them.",
        remedy=_DRY_RUN,
    ),
    Entry(
        code="clean.setting", severity="warning",
        title="The broker uses another value for a setting of the cleaner",
        what="The broker ignores or changes the value, or reads another one.",
        how="A blank after a number, a value out of bounds, a setting that the release does not have.",
        says="{setting}={given}: {why}",
        effect="works with a value other than the given one",
        versions={
            "before 5.0.0": "the disk's two levels are properties of the JVM, and deleteFileBatchMax is 10.",
            "5.0.0 and later": "keeps the levels between 35 and 90, and between 30 and 85 percent.",
        },
        repair="Correct broker.conf.",
    ),
    Entry(
        code="clean.file-size", fault="F02",
        title="broker.conf gives other file sizes than the store has",
        what="Files of the log, a queue or the index have another size than broker.conf says, or its defaults.",
        how="The broker.conf of another broker; a size that was changed.",
        says="by broker.conf ({setting}) these files have {configured_size} bytes, but here they have {size}",
        effect="a start refuses the store, and 4.4.0 and 4.9.2 leave these files out and continue without them",
        versions={
            "4.4.0 and 4.9.2": "ignore files of another size.",
            "other": "refuse to start; an index of another geometry is not noticed, and read at wrong places.",
        },
        repair="Start with the broker.conf that the store was written with. `rmqtool clean` refuses to delete.",
    ),
    Entry(
        code="clean.topic-rows-dropped", severity="warning",
        title="A running broker deletes the queue entries of a topic that it does not have",
        what="Queues of the topic are in RocksDB, and the configuration does not name it.",
        how="topics.json or config/topics was lost, or comes from another time. With configManagerVersion=v2 topics "
        "that were created on demand, including retry and dead letter topics, are not stored.",
        says="the topic {topic} is not configured, and RocksDB holds {rows:row} of {queues:queue}",
        effect="ten minutes after a start, and then every cleanRocksDBDirtyCQIntervalMin minutes (60), the broker "
        "deletes the rows of such topics: the messages stay in the log, but consumers do not get them",
        versions={
            "5.2.0 and later": "delete them, if queues are only in RocksDB or written twice; light queues are spared."
        },
        repair="Create the topic before the broker has run for ten minutes: `mqadmin updateTopic` with the number of "
        "queues that it had, or bring its configuration back. `rmqtool rebuild-cq` writes missing rows again.",
    ),
)  # fmt: skip

OWN_RUNS = (
    Entry(
        code="store.interrupted-run", severity="warning", treatment="interrupted", is_trace=True,
        title="A run of rmqtool that writes was interrupted",
        what="The directory .rmqtool has a run that did not end.",
        how="rmqtool was killed, or the machine went down.",
        says={
            "unknown": "a run of rmqtool that writes was interrupted, or its files were removed in part, and its "
                       "progress is unknown",
            "deletion": "a run of rmqtool that writes was interrupted: {deletion}",
            "run": "a run of rmqtool that writes was interrupted",
        },
        effect="none: it can start on every intermediate state",
        versions={"all": "does not look at .rmqtool."},
        repair="The next command that writes ends the run first: `rmqtool repair`, or `rmqtool undo`, which also takes "
        "a repair back. Files that `clean` has deleted cannot be restored; the message says how much it would still "
        "delete. To keep that, move the run's directory, or the rest of it, out of the store first.",
        remedy="rmqtool undo {store} --dry-run",
    ),
    Entry(
        code="store.recorded-loss", severity="warning", treatment="acknowledge", about="surroundings",
        title="Messages were lost before the store was rebuilt",
        what="A rebuild or a repair replaced what proved a loss (queues or an index that pointed past the end of the "
        "log, a newer checkpoint, damaged bytes of the log), or a salvage made the store without the lost messages. "
        "The record is in .rmqtool.",
        how="The log had lost its end, a file, or bytes when rmqtool rebuilt queues or index from it.",
        says={"loss": "{loss}", "unreadable": "has no record of a loss that this version can read"},
        effect="none: it serves the remaining messages. Groups that had consumed beyond the new end of a queue skip "
               "new messages "
        "until it has grown that far",
        versions={"all": "do not look at .rmqtool."},
        repair="With the missing files from a replica or a backup: undo the rebuild, restore them, and verify again. "
        "Once the loss is known and accepted, acknowledge the record. An unreadable record is reported, too.",
        remedy="rmqtool repair {store} --acknowledge",
    ),
    Entry(
        code="store.selection", severity="info",
        title="The store was made from selected messages of another store",
        what="`rmqtool salvage` made it with filters: all other messages of its sources were left out on purpose. Its "
        "log begins past the end of the old one, so that ids and physical offsets of the old store point to nothing "
        "here.",
        how="Part of a store was wanted.",
        says={
            "keep": "{command} of {time!t} chose {messages:message} of {of} by {filters}",
            "new": "{command} of {time!t} chose {messages:message} of {of} by {filters}; queue offsets are counted "
            "from 0 again",
        },
        effect="none: it serves the selected messages",
        versions={"all": "do not look at .rmqtool."},
        repair="Nothing needs to be done. The record is `.rmqtool/selection/selection.json`; if queue offsets were "
               "counted again, `queue-offsets.csv` next to it maps the old ones.",
        remedy=None,
    ),
)  # fmt: skip
