"""Findings about the store as a whole, its configuration, and the machine that it is on."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

STORE = (
    Entry(
        code="store.in-use",
        fault="F01",
        severity="error",
        treatment="stop",
        title="A broker runs on this store",
        what="A process holds the store's lock.",
        how="The broker is running, or a second one was started on the same directory.",
        says={
            "program": "{who} works on this store ({file}); what it writes now is not a fault",
            "": "a broker runs on this store ({file}); what it writes now is not a fault",
        },
        effect="a second broker recovers first, and deletes what it takes for damage, before it notices the lock",
        versions=(("all", "a second start cuts files under the running broker and then ends with `Lock failed`."),),
        repair="Never start a second broker. rmqtool reads a store in use, and refuses to write to it.",
    ),
    Entry(
        code="store.unreadable",
        severity="error",
        treatment="access",
        title="A part of the store cannot be read",
        what="A file or a directory gives an error instead of its bytes. The rest of the store is shown.",
        how="A permission, a link that leads nowhere, a disk that fails.",
        says={
            "hidden": "{why}: it is missing from what is shown[ ({hint})]",
            "partly": "{why}: not all of it is verified[ ({hint})]",
            "": "{why}: nothing of it is verified[ ({hint})]",
        },
        effect="does not start, or loses this part too, if the user that it runs as cannot read it either",
        versions=(("all", "read with the rights of the broker's user, and trip over the same bad sectors."),),
        repair="Run as the broker's user. Copy a failing disk with a tool that skips bad sectors; use the copy.",
    ),
    Entry(
        code="store.wrong-kind",
        severity="error",
        treatment="files",
        title="A file stands where a directory belongs, or a directory where a file belongs",
        what="What has the name of a part of the store is not of its kind, so there is nothing to read. The rest of "
        "the store is verified.",
        how="A restore or a script that made a directory for a file, or wrote a file in the place of a directory.",
        says={
            "index": "an index file should be here: move away what stands in its place; nothing of it is verified",
            "other": "{found} where a {expected} should be: move it away; nothing of it is verified",
        },
        effect="does not start, or cannot write that part",
        versions=(("all", "as the finding says of each part."),),
        repair="Move away what stands there, and restore the part from a backup, or rebuild it if it is a queue or an "
        "index.",
    ),
    Entry(
        code="store.unclean-stop",
        fault="F13",
        severity="warning",
        treatment="start",
        is_trace=True,
        title="The last broker did not stop properly",
        what="The file abort is there and no broker runs.",
        how="The broker was killed, crashed, or the machine went down.",
        says={
            "": "the last broker was killed or crashed: the file abort is there and no broker runs",
            "remote": "the file abort is there: a broker runs on the store, or the last one was killed or crashed",
        },
        effect="the next start recovers: it scans the end of the log and cuts what is torn",
        versions=(
            ("4.4.0 to 5.3", "scans from the file that the checkpoint's times choose; without a checkpoint all."),
            ("5.4.0", "the same, no more than the last ten files."),
            ("5.5.0 and later", "the same; the checkpoint's offset chooses the file."),
        ),
        repair="No repair is needed. Never make or remove abort to force one kind of start: verify says what the next "
        "start would do, and start.other-mode-data-loss when another kind of start would do worse.",
        remedy="rmqtool verify {store}",
    ),
    Entry(
        code="store.abort-missing",
        fault="F13",
        severity="warning",
        treatment="queues",
        title="The store looks like after a crash, but the file abort is missing",
        what="The log's end is torn, or queues are behind, and yet the last stop claims to have been clean.",
        how="The file was deleted or not copied; or a broker since 5.3.4 failed to load and removed it.",
        says={
            "crash": "torn or after as after a crash, but there is no file abort",
            "torn": "torn as after a crash, but there is no file abort",
        },
        effect="the next start takes the stop for clean: queues that are behind stay behind in most versions",
        versions=(
            ("before 5.3.4", "removes abort only at a clean stop."),
            ("5.3.4 and later", "also after a start that failed before it had loaded anything."),
        ),
        repair="Rebuild the consume queues that are behind.",
        remedy="rmqtool rebuild-cq {store} --dry-run",
    ),
    Entry(
        code="store.permission",
        fault="F06",
        severity="error",
        treatment="access",
        title="Files that the broker may not write",
        what="A file or directory of the store belongs to another user than the others, or its owner may not write it.",
        how="The store was restored or touched as root, or made read-only in part.",
        says={
            "owner": "owned by user {uid}, the others by {usual_uid}",
            "mode": "mode {mode:03o}: its owner may not write, as the broker has to",
        },
        effect="the broker refuses to start",
        versions=(("all", "refuses to start (FileNotFoundException, `load exception`)."),),
        repair="Give the files to the broker's user and let it write them: chown -R, chmod -R u+w.",
        not_detected="Which user the broker runs as is not known: when all files are another's, or none may be "
        "written, nothing is reported.",
    ),
    Entry(
        code="store.paths",
        fault="F07",
        severity="info",
        title="The commit log is in other directories",
        what="broker.conf names other or several directories for the commit log, or there is none in the store.",
        how="storePathCommitLog is set. In 4.4.0 its default is $HOME/store/commitlog whatever the root is.",
        says="{directories} directories hold the commit log",
        effect="none: the broker loads all of them",
        versions=(("before 4.9.2", "knows one path."), ("4.9.2 and later", "knows several, separated by commas.")),
        repair="Give --broker-conf, so that rmqtool looks there too.",
    ),
    Entry(
        code="store.version-ambiguous",
        severity="info",
        title="What a broker would say depends on its version",
        what="The store fits several versions, which answer differently. The newest one's answer is shown.",
        how="Most files look the same in all versions.",
        says={
            "minimum": "{count} expired queues: before 5.0 their minimum is 0, since then their maximum (shown)",
            "deletions": "a broker of {version} would delete {log_files:log file} with these settings, one of "
            "{shown_version} {shown_log_files} (shown)",
        },
        effect="none",
        versions=(("all", "each by its own rules: give --broker-version."),),
        repair="Give --broker-version.",
    ),
    Entry(
        code="store.rocksdb-queues",
        fault="F40",
        severity="info",
        title="Consume queues are kept in RocksDB",
        what="The directory of the consume queues is a RocksDB database.",
        how="storeType=defaultRocksDB, or queues written to both.",
        says={
            "": "consume queues are kept in RocksDB",
            "no-library": "consume queues are kept in RocksDB, which needs the package rocksdict (pip install "
            "'rmqtool[rocksdb]'): queues and lag below may be missing",
        },
        effect="none: the broker reads them",
        versions=(("before 5.2.0", "cannot read them."), ("5.2.0 and later", "reads them.")),
        repair="No repair is needed.",
        not_detected="Without the package rocksdict they are not read.",
    ),
    Entry(
        code="store.rocksdb-side-store",
        fault="F59",
        severity="info",
        title="A RocksDB database stands beside the log",
        what="The directory rocksdbstore, which every broker since 5.4.0 makes, is used: broker.conf keeps index, "
        "timers or transactions there, or tables are in it.",
        how="One of indexRocksDBEnable, timerRocksDBEnable and transRocksDBEnable is or was on.",
        says={
            "used": "{settings!l}: the broker keeps that in it",
            "tables": "{tables} tables are in it: index, timers or transactions were kept there",
        },
        effect="none, unless its features are on and log or database were restored from another time: then new "
        "messages are not indexed until the log has grown past the old end",
        versions=(("before 5.4.0", "does not know it."), ("5.4.0 and later", "makes it again when it is missing.")),
        repair="No repair is needed.",
        not_detected="Without the package rocksdict its rows are not read.",
    ),
    Entry(
        code="store.disk-full",
        fault="F53",
        severity="warning",
        treatment="running",
        about="surroundings",
        title="The disk is nearly full",
        what="The file system of the store is filled beyond the ratio at which the broker deletes by force, or nearly "
        "has no inodes left. Above information only where a broker runs and refuses messages: a copy may lie on a full "
        "disk.",
        how="More messages than the disk holds for the retention time.",
        says={
            "bytes": "the disk below {directory} is {used:.0%} full",
            "inodes": "{left} of {inodes} inodes are left on the disk below {directory}",
            "refused": "the disk is {used:g}% full, above {level:.0%}",
        },
        effect="above 75% expired files are deleted at any hour, above 85% any old file, above 90% producers are "
        "refused",
        versions=(("all", "with the default ratios."),),
        repair="Make room, or look at what the cleaner would delete.",
        remedy="rmqtool clean {store} --dry-run",
    ),
    Entry(
        code="store.retention-blocked",
        fault="F54",
        severity="warning",
        treatment="running",
        about="surroundings",
        title="Old files will not be deleted",
        what="The setting deleteWhen or a modification time in the future keeps the cleaner from deleting what has "
        "expired.",
        how="A deleteWhen with a blank or an hour that never comes, a clock that was wrong, touch.",
        says={
            "future": "modified {modified!t}, which is in the future",
            "delete-when": "deleteWhen {delete_when!r} is not hours separated by ; alone: the cleaner fails with an "
            "exception",
            "no-hour": "no hour of the day is deleteWhen {delete_when!r}: hours are 0 to 23",
        },
        effect="the disk fills up",
        versions=(("all", "looks at modification times, not at messages."),),
        repair="Correct the setting. `rmqtool clean --dry-run` says for each file why it is kept.",
        remedy="rmqtool clean {store} --dry-run",
        not_detected="verify sees settings and times only; a younger file in front (clean.blocked-by-older-file), a "
        "full disk from which nothing goes (clean.disk-full-nothing-deleted) and wrong times (clean.mtime-future) are "
        "reported by `rmqtool clean --dry-run`.",
    ),
    Entry(
        code="store.modification-times",
        fault="F55",
        severity="info",
        title="Modification times are not those of the messages",
        what="A log file was modified before its first message was stored, or all of them at once although their "
        "messages are hours apart.",
        how="The store was copied or restored without its times, or touched.",
        says={
            "before": "modified {modified!t}, before its first message: {store_timestamp!t}",
            "copied": "all {files} log files were modified at {modified!t}, as by a copy; their messages are "
            "{hours} h apart",
        },
        effect="files expire later than they should; up to 5.1.0 searches by time may answer wrongly",
        versions=(("all", "retention counts from the modification time."),),
        repair="If it matters, set each file's time to that of its last message: touch -d.",
        not_detected="`rmqtool clean --dry-run` compares each file with its last message, too (clean.mtime-later, "
        "clean.mtime-earlier).",
    ),
    Entry(
        code="store.mixed",
        fault="F57",
        severity="error",
        treatment="decide",
        title="Files of different brokers in one store",
        what="Log files name another broker in their first message than the file before, and queues do not fit the "
        "log. Where they fit it is only information, whatever the index has: a kill leaves it with units of messages "
        "that the log has lost.",
        how="Files were copied together; a disk of another broker was mounted; a switch of roles with an old "
        "directory.",
        says={
            "contradicted": "the log's files name {brokers} brokers: {first_hosts}; and queues do not fit "
            "({contradicted!l})",
            "alone": "the log's files name {brokers} brokers: {first_hosts}",
        },
        effect="starts and serves what it finds",
        versions=(("all", "does not check."),),
        repair="A person must decide which files belong together. A broker whose address changed looks the same.",
        not_detected="Of brokers with the same address nothing is seen; then a foreign log file shows as "
        "commitlog.physical-offset, foreign queues as consumequeue.wrong-record, a file that is there twice as "
        "commitlog.duplicate-file.",
    ),
)

CONFIG = (
    Entry(
        code="config.consumer-offset",
        fault="F48",
        severity="warning",
        treatment="config",
        title="The committed offsets cannot be read",
        what="consumerOffset.json is empty or not JSON.",
        how="A full disk or a power loss while it was written; an edit by hand.",
        says={
            "none": "consumer offsets cannot be read ({why}); none are shown",
            "backup": "consumer offsets cannot be read ({why}); shown: {shown}",
        },
        effect="the broker reads the .bak file instead",
        versions=(
            (
                "all",
                "reads the .bak; when that cannot be read either, refuses to start; when there is none, starts "
                "without any offset, and every group begins again by its own policy.",
            ),
        ),
        repair="`rmqtool repair` puts back the .bak, or the entries of the two that are whole. Never put an empty file "
        "there.",
    ),
    Entry(
        code="config.unreadable",
        fault="F48",
        severity="warning",
        treatment="config",
        title="A configuration file cannot be read",
        what="A JSON file in config/ is empty or not JSON.",
        how="A full disk or a power loss while it was written; an edit by hand.",
        says={
            "backup-read": "{why}; the broker reads {backup}",
            "no-backup": "{why}; there is no .bak",
            "both": "{why}; its .bak cannot be read either",
            "backup": "{why}: should the file be lost, there is no fallback",
        },
        effect="the broker reads the .bak file instead; when that cannot be read either it refuses to start",
        versions=(
            (
                "all",
                "main file and .bak bad: refuses to start. Main file empty or missing and no .bak: starts without "
                "any topic, group or offset.",
            ),
            ("5.3.4 and later", "deletes the bad main file after a start that was refused."),
        ),
        repair="`rmqtool repair` puts back the .bak, or the entries of the two that are whole. Never put an empty file "
        "there.",
    ),
    Entry(
        code="config.rocksdb",
        fault="F52",
        severity="info",
        title="Configuration is kept in RocksDB",
        what="A RocksDB database in config/ holds topics, groups or committed offsets.",
        how="storeType=defaultRocksDB since 5.1.4, configManagerVersion=v2 since 5.3.2.",
        says={
            "": "consumer offsets are kept in RocksDB",
            "no-library": "consumer offsets are kept in RocksDB, which needs the package rocksdict (pip install "
            "'rmqtool[rocksdb]'): consumers below may be missing or old",
        },
        effect="none: the broker reads them",
        versions=(("before 5.1.4", "reads JSON only."), ("5.1.4 and later", "takes the newer one of the two.")),
        repair="No repair is needed.",
        not_detected="Without the package rocksdict the JSON files count, which may be old, and no row is checked. "
        "Nothing shows that a single row is gone, unless the store has messages of its topic.",
    ),
    Entry(
        code="config.backup-differs",
        fault="F52",
        severity="warning",
        treatment="config",
        title="Two copies of the configuration disagree",
        what="The file topics.json or subscriptionGroup.json has the data version of its .bak, and an entry in both "
        "that differs.",
        how="An edit by hand while the broker ran, a restore of one of the two.",
        says="it and its .bak have data version {counter}, and differ in {shown}",
        effect="the main file counts",
        versions=(("all", "reads the main file, and the .bak only when the main file cannot be read."),),
        repair="Compare the two before a start; `rmqtool repair` makes the .bak a copy of the file.",
        not_detected="JSON files are not compared with RocksDB (config.rocksdb); committed offsets change without "
        "their data version, so that consumerOffset.json is not compared.",
    ),
    Entry(
        code="config.topic-queues",
        fault="F49",
        severity="info",
        title="A topic's configuration does not fit its queues",
        about="surroundings",
        treatment="none",
        what="The topic has queues with a number that its configuration does not allow to read, or it may not be read "
        "at all. A warning where a group has not consumed all of them, and says how many messages; otherwise "
        "information.",
        how="The number of queues was reduced, readQueueNums below writeQueueNums, or perm was changed.",
        says={
            "queues": "the topic has {read_queues:queue} to read and {write_queues} to write[; {messages:message of "
            "this queue reaches|messages of this queue reach} no consumer]",
            "perm": "perm {perm}: the topic may not be read[; {messages:message of this queue reaches|messages of "
            "this queue reach} no consumer]",
        },
        effect="messages in those queues are not consumed",
        versions=(("all", "serves queues below readQueueNums only, and topics whose perm has the bit 4."),),
        repair="Raise readQueueNums (mqadmin updateTopic), or give perm back, until the queues are consumed.",
    ),
    Entry(
        code="config.offset-out-of-range",
        fault="F50",
        severity="warning",
        treatment="config",
        about="surroundings",
        title="A group's committed offset lies outside its queue",
        what="The offset is below the queue's minimum or above its maximum. A warning when it is above and the log or "
        "the queue has lost its end: these messages were consumed and are gone. Otherwise information.",
        how="Messages expired unread, the log was cut, a topic was made again, files of different times.",
        says={
            "below": "group {group}: committed {committed}, below its minimum ({min_offset} to {end})",
            "beyond": "group {group}: committed {committed}, beyond its maximum ({min_offset} to {end})",
        },
        effect="below: the group begins at the minimum. Above: it skips new messages until the queue has grown that "
        "far",
        versions=(("all", "does not correct it at a start."),),
        repair="Reset the offset with mqadmin resetOffsetByTime once the broker runs, or correct it before: `rmqtool "
        "repair` moves it to the nearest offset of its queue.",
    ),
    Entry(
        code="config.delay-offset",
        fault="F51",
        severity="error",
        treatment="config",
        title="A delay level's offset is not where its deliveries ended",
        what="delayOffset.json is ahead of the end of SCHEDULE_TOPIC_XXXX, or of messages that have no copy in their "
        "topic, or, as a warning, after messages that have one.",
        how="The queue was cut or rebuilt, files of different times, an older copy of the file. The store is that of "
        "a slave, which takes the file over every ten seconds (4.x) or once a minute (5.x): what it would deliver "
        "again, made master, is information with its broker.conf (brokerRole=SLAVE).",
        says={
            "beyond-queue": "level {level}: delivered up to {offset}, its queue ends at {end}",
            "backup": "level {level}: delivered up to {offset}, its .bak, written earlier, has {earlier}",
            "repeated": "level {level}: delivered up to {offset}, and the log shows {messages:message} after it "
            "that were delivered",
            "skipped": "level {level}: delivered up to {offset}, and the log shows that {messages:message} before "
            "it never were",
        },
        effect="up to 4.9.1 delayed messages of this level wait until the queue has grown that far",
        versions=(
            ("4.4.0 to 4.9.1", "ahead of the end: the level is stuck."),
            ("4.9.2 and later", "ahead of the end: goes back to the queue's end, and never delivers what is before."),
        ),
        repair="Set the offset of the level to that of its first message without a copy, while no broker runs: "
        "`rmqtool repair` does so.",
        not_detected="Messages without a unique key, and copies that came much later than they were due.",
    ),
    Entry(
        code="config.delay-level",
        fault="F51",
        severity="error",
        treatment="decide",
        title="Delayed messages wait at a level that is not configured",
        what="A queue of SCHEDULE_TOPIC_XXXX holds messages that are not delivered yet, of a level above those that "
        "messageDelayLevel in broker.conf names.",
        how="messageDelayLevel was shortened, or left out of broker.conf, while messages waited.",
        says="messageDelayLevel has {configured_levels:level}, and {messages:message waits|messages wait} at {waiting}",
        parts={
            "waiting": "level {level} ({messages})",
        },
        effect="these messages are never delivered, unless messageDelayLevel names their level again",
        versions=(("all", "start no delivery of such a level, and leave its offset as it is."),),
        repair="Before the broker starts, name these levels in messageDelayLevel of its broker.conf again, each with "
        "the delay that it had: with a shorter one what is due later than that comes at once.",
        not_detected="Without --broker-conf: the levels that have queues are taken to be configured.",
    ),
)
