"""Findings about the configuration, in files or RocksDB, and about the databases of index, timers, halves and POP."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_DAMAGED = {
    "log": "{name} is damaged at byte {damaged_from}: later writes to the database are lost",
    "": "{why}",
    "empty": "the directory is empty: a broker creates it with a database",
    "offsets": "consumer offsets cannot be read ({why}); none are shown",
}

CONFIG = (
    Entry(
        code="config.consumer-offset", fault="F48", severity="warning", treatment="config",
        title="The committed offsets cannot be read",
        what="consumerOffset.json is empty or not JSON.",
        how="A full disk or a power loss while it was written; an edit by hand.",
        says={
            "none": "consumer offsets cannot be read ({why}); none are shown",
            "backup": "consumer offsets cannot be read ({why}); shown: {shown}",
        },
        effect="the broker reads the .bak file instead",
        versions={
            "all": "reads the .bak; when that cannot be read either, refuses to start; when there is none, starts "
            "without any offset, and every group begins again by its own policy.",
        },
        repair="`rmqtool repair` restores the .bak, or the intact entries of the two. Never put an empty file "
        "there.",
    ),
    Entry(
        code="config.unreadable", fault="F48", severity="warning", treatment="config",
        title="A configuration file cannot be read",
        what="A JSON file in config/ is empty or not JSON, or names in it are damaged: they contain zeros, control "
             "characters or invalid UTF-8, or a topic or group has another name inside than its key.",
        how="A full disk or a power loss while it was written; bad sectors; an edit by hand.",
        says={
            "backup-read": "{why}; the broker reads {backup}",
            "no-backup": "{why}; there is no .bak",
            "both": "{why}; its .bak cannot be read either",
            "backup": "{why}: if the file is lost, there is no fallback",
            "names": "{names:name} in it in a form that no broker writes: {shown}",
        },
        effect="the broker reads the .bak file instead; when that cannot be read either it refuses to start",
        versions={
            "all": "main file and .bak bad: refuses to start. Main file empty or missing and no .bak: starts without "
            "any topic, group or offset. A damaged name: treats it as another topic, group or field.",
            "5.3.4 and later": "deletes the bad main file after a start that was refused.",
        },
        repair="`rmqtool repair` restores the .bak, or the intact entries of the two. Never put an empty file "
        "there.",
    ),
    Entry(
        code="config.rocksdb", fault="F52", severity="info",
        title="Configuration is kept in RocksDB",
        what="A RocksDB database in config/ holds topics, groups or committed offsets.",
        how="storeType=defaultRocksDB since 5.1.4, configManagerVersion=v2 since 5.3.2.",
        says={
            "": "consumer offsets are kept in RocksDB",
            "no-library": "consumer offsets are kept in RocksDB, which needs the package rocksdict (pip install "
            "'rmqtool[rocksdb]'): consumers below may be missing or old",
        },
        effect="none: the broker reads them",
        versions={"before 5.1.4": "reads JSON only.", "5.1.4 and later": "takes the newer one of the two."},
        repair="No repair is needed.",
        not_detected="Without the package rocksdict the JSON files are used, which may be old, and no row is checked. "
        "Nothing shows that a single row is missing, unless the store has messages of its topic.",
    ),
    Entry(
        code="config.backup-differs", fault="F52", severity="warning", treatment="config",
        title="Two copies of the configuration disagree",
        what="The file topics.json or subscriptionGroup.json has the data version of its .bak, and an entry in both "
        "that differs.",
        how="An edit by hand while the broker ran, a restore of one of the two.",
        says="it and its .bak have data version {counter}, and differ in {shown}",
        effect="the broker uses the main file",
        versions={"all": "reads the main file, and the .bak only when the main file cannot be read."},
        repair="Compare the two before a start; `rmqtool repair` makes the .bak a copy of the file.",
        not_detected="JSON files are not compared with RocksDB (config.rocksdb); committed offsets change without "
        "their data version, so that consumerOffset.json is not compared.",
    ),
    Entry(
        code="config.topic-queues", fault="F49", severity="info",
        title="A topic's configuration does not match its queues",
        about="surroundings",
        treatment="none",
        what="The topic has queues with a number that its configuration does not allow to read, or it may not be read "
        "at all. A warning if a group has not consumed all messages in them, with their number; otherwise information.",
        how="The number of queues was reduced, readQueueNums below writeQueueNums, or perm was changed.",
        says={
            "queues": "the topic has {read_queues:queue} to read and {write_queues} to write[; {messages:message of "
            "this queue reaches|messages of this queue reach} no consumer]",
            "perm": "perm {perm}: the topic may not be read[; {messages:message of this queue reaches|messages of "
            "this queue reach} no consumer]",
        },
        effect="messages in those queues are not consumed",
        versions={"all": "serves queues below readQueueNums only, and topics whose perm has the bit 4."},
        repair="Raise readQueueNums (mqadmin updateTopic), or restore perm, until the queues are consumed.",
    ),
    Entry(
        code="config.offset-out-of-range", fault="F50", severity="warning", treatment="config", about="surroundings",
        title="A group's committed offset is outside its queue",
        what="The offset is below the queue's minimum or above its maximum. A warning when it is above and the log or "
        "the queue has lost its end: consumed messages are lost then. Otherwise, or on a slave, information.",
        how="Messages expired unread, the log was cut, a topic was created again, files from different times.",
        says={
            "below": "group {group}: committed {committed}, below its minimum ({min_offset} to {end})",
            "beyond": "group {group}: committed {committed}, beyond its maximum ({min_offset} to {end})",
        },
        effect="below: the group begins at the minimum. Above: it skips new messages until the queue has grown that "
        "far",
        versions={"all": "does not correct it at a start."},
        repair="Reset the offset with mqadmin resetOffsetByTime once the broker runs, or correct it before: `rmqtool "
        "repair` moves it to the nearest offset of its queue, except in a database, whose rows it does not change.",
    ),
    Entry(
        code="config.delay-offset", fault="F51", treatment="config",
        title="A delay level's offset does not match its deliveries",
        what="delayOffset.json is ahead of the end of SCHEDULE_TOPIC_XXXX, or of messages that have no copy in their "
        "topic, or, as a warning, after messages that have one.",
        how="The queue was cut or rebuilt, files from different times, an older copy of the file. The store is that of "
        "a slave, which copies the file every ten seconds (4.x) or once a minute (5.x): messages that it would "
        "deliver again as master are information with its broker.conf (brokerRole=SLAVE).",
        says={
            "beyond-queue": "level {level}: delivered up to {offset}, its queue ends at {end}",
            "backup": "level {level}: delivered up to {offset}, its .bak, written earlier, has {earlier}",
            "repeated": "level {level}: delivered up to {offset}, and the log shows {messages:message} after it "
            "that were delivered",
            "run": "level {level}: delivered up to {offset}, and {messages:message} after it in the same run: the "
            "release notes only the first of a run",
            "skipped": "level {level}: delivered up to {offset}, and the log shows that {messages:message} before "
            "it never were",
        },
        effect="up to 4.9.1 delayed messages of this level wait until the queue has grown that far",
        versions={
            "4.4.0 to 4.9.1": "ahead of the end: the level is stuck.",
            "4.9.2 and later": "ahead of the end: is set back to the queue's end, and never delivers earlier messages.",
            "4.9.3": "notes only the first of the messages that it delivers in one run, and delivers the others again "
            "after each start: information, with --broker-version 4.9.3.",
        },
        repair="Set the offset of the level to that of its first message without a copy, while no broker runs: "
        "`rmqtool repair` does so.",
        not_detected="Messages without a unique key, and copies delivered much too late.",
    ),
    Entry(
        code="config.delay-level", fault="F51", treatment="decide",
        title="Delayed messages wait at a level that is not configured",
        what="A queue of SCHEDULE_TOPIC_XXXX holds messages that are not delivered yet, of a level above those that "
        "messageDelayLevel in broker.conf names.",
        how="messageDelayLevel was shortened, or left out of broker.conf, while messages waited.",
        says="messageDelayLevel has {configured_levels:level}, and {messages:message waits|messages wait} at {waiting}",
        parts={"waiting": "level {level} ({messages})"},
        effect="these messages are never delivered, unless messageDelayLevel names their level again",
        versions={"all": "do not deliver such a level, and do not change its offset."},
        repair="Before the broker starts, name these levels in messageDelayLevel of its broker.conf again, each with "
        "the delay that it had: with a shorter one, messages that are due later than that are delivered at once.",
        not_detected="Without --broker-conf, the levels that have queues are assumed to be configured.",
    ),
    Entry(
        code="config.missing", treatment="config",
        title="Lost configuration",
        what="A file in config/ and its .bak are missing, or the file no longer has its table, and topics, retries, "
             "deliveries or the other files show what was in it. If topics, groups and offsets are kept in RocksDB: a "
             "database that is missing, or one that has lost all rows of a table; for config/metadata the "
        "finding names the column family. Information if the store may have been written without a broker, or is a "
        "copy of only the log, and for delay offsets that a broker may not have written yet (every ten seconds, and "
        "when it stops since 4.9.3); a warning for groups, which brokers create again with default settings.",
        how="config/ or a file in it was deleted or not copied; a file was overwritten with another one, or emptied. "
        "The store is that of a slave of 5.5.0, which never copies its master's committed offsets: it cannot read the "
        "pullOffsetTable among them, and has none if it becomes master (fixed in 5.5.1).",
        says={
            "gone": "neither it nor its .bak exists, {proof}",
            "empty": "it is empty, {proof}",
            "without its table": "it exists without its table, {proof}",
            "backup-left": "it does not exist; a start reads its .bak, which is older by at least one change",
            "table": "{what}, {proof}",
        },
        parts={
            "proof": {
                "topics": "and the store has messages of {shown:topic}: {shown!n}",
                "consumed": "and {shown:group} consumed: {shown!n}",
                "delays": "and {messages:message} of {levels:delay level} were delivered",
                "delays-unwritten": "and {messages:message} of {levels:delay level} were delivered: the broker may not "
                "have written it before it ended",
                "groups": "and the store has {shown:group}: {shown!n}",
                "offsets-of-all": "which each release has",
                "groups-of-all": "although each release writes its own groups into it",
            }
        },
        effect="the broker starts with an empty table, without an error",
        versions={
            "all": "treat a missing file as an empty one, as at a first start, and write the empty table back.",
            "5.3.4 and later": "also delete a main file that cannot be decoded, so that it is missing afterwards.",
        },
        repair="Before any start restore the file: from a backup, or from a slave of this broker, which copies "
        "topics, groups, offsets and delay offsets every ten seconds (4.x) or once a minute (5.x). Without one, "
        "`rmqtool repair` writes topics and groups as the store shows them, with default settings, and "
        "delayOffset.json as the log shows it. Nothing else in a store shows committed offsets: stop the clients, "
        "start the broker, and reset each group to its former position with mqadmin resetOffsetByTime. RocksDB "
        "databases are not repaired: restore a missing database from a backup. Do not move away a database that has "
        "lost a table: it has other tables, and a broker starts on it; stop the clients, and create topics again with "
        "mqadmin updateTopic.",
        not_detected="Groups that never had a retry, if all of config/ is missing, or if the table of offsets is "
                     "empty: a broker without any consumption leaves it empty. Which database it was, if none is left "
                     "and broker.conf is not given: config/topics and similar ones are then named.",
    ),
    Entry(
        code="config.half-messages-skipped", severity="warning", treatment="config",
        title="Half messages that no broker checks again",
        what="The committed offset of the group that reads half messages is past half messages that were neither "
             "committed nor rolled back nor given up, and that have no later copy.",
        how="consumerOffset.json was edited, or is from another time or another broker; someone set the offset of "
        "CID_RMQ_SYS_TRANS.",
        says="group CID_RMQ_SYS_TRANS: committed {committed}, and {half_messages:half message before that waits|half "
        "messages before that wait} for an answer, the first at {first_waiting}",
        effect="the broker asks no producer about them: they are never delivered or rolled back",
        versions={"all": "look at half messages from the committed offset on."},
        repair="While the broker is stopped, set the offset of RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS in "
        "consumerOffset.json to the queue offset of the first waiting one, which the finding names: then the broker "
        "asks their producers again.",
        not_detected="Half messages farther back, once a block of 4,096 before the committed offset has no waiting "
                     "one.",
    ),
    Entry(
        code="config.filters-ignored", severity="warning", treatment="config",
        title="The broker ignores all filters in consumerFilter.json",
        what="The Bloom filter data of a filter is missing, or of another size than the broker's own: it then ignores "
        "the filters of all groups, and writes an empty file. Or filters are under an unknown key.",
        how="expectConsumerNumUseFilter or maxErrorRateOfBloomFilter was changed, the file is of another broker, or "
        "was edited by hand; a byte of it has changed.",
        says={
            "other": "the filter of group {group} for topic {topic} has a Bloom filter of {found_bits} bits, "
            "{found_positions} positions, and the broker's has {expected_bits} bits, {expected_positions} positions: "
            "all {filters:filter} are ignored",
            "none": "the filter of group {group} for topic {topic} has no Bloom filter data, and the broker's has "
            "{expected_bits} bits, {expected_positions} positions: all {filters:filter} are ignored",
            "key": "{contradicting:filter is|filters are} below a key that no broker reads, such as a damaged "
            "filterDataByTopic or groupFilterData",
        },
        effect="consumers that filter by SQL92 are refused until they connect again and send their filters",
        versions={"all": '"Bloom filter is changed! So ignore all filter data persisted" is all that is logged.'},
        repair="Start the broker with the settings with which the file was written, or restore the file; otherwise "
               "restart the consumers of these groups after the broker.",
    ),
    Entry(
        code="config.topic-missing", severity="warning", treatment="config",
        title="A topic is missing in the configuration",
        what="topics.json does not name a topic, and the store proves that nobody deleted it: a message of it was "
        "stored after topics.json was changed last, or groups still have offsets in it. Information for a retry "
        "topic, which the broker creates again.",
        how="topics.json is older than the store, or was edited by hand. The store is that of a slave, which copies "
            "topics every ten seconds (4.x) or once a minute (5.x); a slave of 5.3.2 or 5.3.3 does not copy topics "
            "with attributes, such as message.type.",
        says={
            "retry": "{place} does not name it, and it has messages",
            "stored-since": "{place} does not name it and was changed last {changed!t}, but a message of it was "
            "stored {newest!t}",
            "consumed": "{place} does not name it, and group {group} has offsets in it, which are deleted together "
                        "with a topic",
        },
        effect="clients are refused, or the topic is created again with default queues, and messages in its other "
               "queues are not consumed",
        versions={
            "4.4.0 to 4.9": "leave a topic's offsets when it is deleted: only the times prove something.",
            "5.0.0 and later": "delete a topic's offsets with it, and accept no new ones.",
        },
        repair="Restore the newer topics.json, or let `rmqtool repair` add the topic: as in the .bak, or with the "
               "number of queues that its messages show. If its queues are missing, rebuild them: rmqtool rebuild-cq "
               "--topic.",
        not_detected="A topic whose last message is older than the last change of topics.json, in a store of 4.x: it "
                     "looks like a deleted topic (commitlog.deleted-topic); with entries in its queues the store is "
                     "unproven (consumequeue.orphan).",
    ),
    Entry(
        code="config.topic-permission", severity="warning", treatment="running",
        title="A topic without read or write permission",
        what="The permission (perm) of a topic does not include reading or writing. A warning for a retry topic, "
             "where nobody wants that; information for others, where it may be intended.",
        how="mqadmin updateTopicPerm, an edit by hand.",
        says="perm {perm}: it may not be {denied}",
        effect="consumers of the group do not get their retries, and cannot send failed messages back",
        versions={"all": "refuse to serve with NO_PERMISSION."},
        repair="Set it with mqadmin updateTopicPerm -p 6 once the broker runs.",
    ),
    Entry(
        code="config.wrong-offset", severity="warning", treatment="config",
        title="A committed offset contradicts the store",
        what="The offset of a group is negative, more than 10,000 beyond the end of its queue, lower than in the .bak "
        "that was written before, or 0 or far too low although retries show that the group has consumed.",
        how="The file is an older copy or was edited; files from different times or brokers; a tool has set the "
        "offset.",
        says="group {group}: committed {committed_offset}, {reason}[, and {other_queues:other queue} like it]",
        parts={
            "reason": {
                "negative": "which no queue begins with",
                "beyond": "far beyond the end of its queue ({other_offset})",
                "backup": "its .bak, written earlier, has {other_offset}",
                "retries": "its retries show that it has consumed the message at {other_offset}",
            }
        },
        effect="the group consumes messages again, or skips some",
        versions={
            "4.4.0 to 4.9.3": "an offset beyond the end: set to the end, or to 0 if the queue begins there.",
            "4.9.4 and later": "an offset beyond the end: set to the end. Offsets that are too low are not changed.",
        },
        repair="`rmqtool repair` moves an offset outside its queue to the nearest offset in it. For "
        "the others, compare the file with its .bak and with backups before a start, and keep the one whose offsets "
        "are right; or, once the broker runs and before the group connects, set them with mqadmin resetOffsetByTime. "
        "Offsets that were set back on purpose are right.",
        not_detected="Offsets that are too low, but not lower than retries or the .bak show; a group without retries.",
    ),
    Entry(
        code="config.older-copy", severity="warning", treatment="config",
        title="A configuration file is older than the store",
        what="topics.json or subscriptionGroup.json has a lower data version than its .bak, or has lost more entries "
        "than its data version has grown by; or the committed offsets were written more than an hour before the newest "
        "message was stored.",
        how="A file was restored from a backup, or edited by hand.",
        says={
            "time": "written {written!t}, and the newest message was stored {newest!t}: a running broker writes "
            "it every five seconds",
            "version": "its data version is {counter}, that of its .bak {backup_counter}: the .bak is written from "
                       "the previous file",
            "entries": "its data version is {counter}, that of its .bak {backup_counter}, and it has lost {lost!l}",
        },
        effect="the broker starts with the older topics, groups or offsets",
        versions={"all": "read the main file, whatever its .bak says."},
        repair="Compare the file with its .bak and with backups before a start, and keep the newest. `rmqtool repair` "
        "adds lost entries from the .bak if the data version has grown by less.",
        not_detected="A copy that was restored together with its .bak and got the time of the restore.",
    ),
    Entry(
        code="config.rocksdb-damaged", fault="F52", treatment="decide",
        title="A database of topics, groups or offsets is damaged",
        what="A table, the MANIFEST, CURRENT or the write-ahead log of a database in config/ is missing or damaged, "
             "or there are tables that the MANIFEST does not name; or it has a column family that no broker names "
             "when it opens the database; releases since 5.3.4 open all existing ones. A database that is missing or "
             "completely empty is config.missing.",
        how="A disk error, a copy of a running store, or a file that was deleted.",
        says=_DAMAGED,
        effect="the broker does not start on it, or starts without the rows that were lost",
        versions={"5.1.4 and later": "keep topics, groups and offsets in RocksDB with storeType=defaultRocksDB."},
        repair="Restore the whole directory from a backup or a copy from the same time. Without one move it away: the "
        "broker starts with empty tables, topics and groups are created again, and offsets must be set while clients "
        "are stopped.",
    ),
    Entry(
        code="config.row", fault="F52", treatment="decide",
        title="A row of topics, groups or offsets that no broker writes",
        what="A key or a value of another form than its table has: no JSON, a name other than its key, no number.",
        how="An edit by hand, a program other than the broker, or a disk error that no checksum covers.",
        says="{key!r}: {why}",
        effect="the broker refuses to start, or treats the row as another one",
        versions={"5.1.4 and later": "decode every row at a start."},
        repair="`rmqtool inspect STORE/config/NAME` shows the rows. Restore the directory from a backup, or convert "
               "the other rows: `rmqtool rebuild-cq STORE --to files` once the row is fixed.",
    ),
    Entry(
        code="config.swapped-offset", severity="info",
        title="A committed offset with topic and group swapped",
        what="config/rdb holds an offset whose group is the name of a topic.",
        how="mqadmin resetOffsetByTime with configManagerVersion=v2: the broker commits with its arguments swapped.",
        says="topic {topic_name!r} and group {group!r} are swapped, as a reset leaves them",
        effect="none: it is never read",
        versions={"5.3.2 and later": "do so with version 2."},
        repair="No repair is needed.",
    ),
    Entry(
        code="store.rocksdb-damaged", fault="F59", treatment="decide",
        title="The database of index, timers and half messages, or of POP, is damaged",
        what="A table, the MANIFEST, CURRENT or the write-ahead log of rocksdbstore or kvStore is missing or damaged, "
        "or there are tables that the MANIFEST does not name; or it has a column family that no broker names when it "
        "opens the database.",
        how="A disk error, a copy of a running store, or a file that was deleted.",
        says=_DAMAGED,
        effect="the broker does not start on it, or timers are not delivered and half messages are not checked",
        versions={"5.4.0 and later": "open rocksdbstore at every start.", "5.3.2 and later": "may have kvStore."},
        repair="Restore the directory from a backup from the same time. Without one move it away: the broker creates "
               "it again without the rows of half messages, which `rmqtool copy` writes, but cannot restore kvStore.",
    ),
    Entry(
        code="store.half-row", fault="F59", severity="warning", treatment="none",
        title="A row of a half message points to no half message",
        what="A row in the family trans of rocksdbstore is of another form, or points to no half message of that size.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="the broker asks no producer for it",
        versions={"5.4.0 and later": "keep half messages there with transRocksDBEnable."},
        repair="`rmqtool pending` lists the half messages that have no answer.",
    ),
    Entry(
        code="store.half-rows-missing", fault="F59", treatment="none",
        title="The rows of half messages are missing",
        what="There are half messages without an answer in the topic RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, and there is "
        "nothing about half messages in rocksdbstore.",
        how="The directory was deleted, or the store was copied from a running broker with other tools.",
        says="{half_messages:half message} without an answer, the first at queue offset {first_waiting}, and no row of "
        "any in rocksdbstore",
        effect="the broker asks no producer for them",
        versions={"5.4.0 and later": "make rows from lastOffsetPy on, and none where there is no such row."},
        repair="`rmqtool copy` to a new directory writes the rows: start the broker there.",
    ),
    Entry(
        code="store.pop-store-missing", severity="warning", treatment="none",
        title="The store of in-flight POP messages is missing",
        what="By broker.conf the broker keeps in kvStore/ which messages POP consumers have taken and not "
        "acknowledged, and this database is not there, although groups have consumed messages.",
        how="kvStore/ was deleted or not copied. Or popConsumerKVServiceInit was switched on just now: then nothing is "
        "lost.",
        says="with {setting}=true it holds in-flight POP messages, but it is missing",
        effect="the broker creates an empty one: messages that were taken and not acknowledged are never delivered "
               "again",
        versions={
            "5.3.2 and later": "create kvStore/ if popConsumerKVServiceInit is on, and use it if "
                               "popConsumerKVServiceEnable is on, too.",
        },
        repair="Restore kvStore/ from a copy from the same time. Without one, set the groups back to before the first "
        "message that may have been in flight (mqadmin resetOffsetByTime): they get some others again.",
        not_detected="Without broker.conf nothing in the store shows that it existed.",
    ),
    Entry(
        code="store.pop-row", fault="F59", severity="warning", treatment="none",
        title="A row of an in-flight POP message points nowhere",
        what="A row of kvStore is of another form, or names a queue offset past the end of its queue.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="the broker tries to deliver it again, then drops it",
        versions={"5.3.2 and later": "keep them there with popConsumerKVServiceEnable."},
        repair="No repair is needed: the message is delivered by its queue.",
    ),
)  # fmt: skip
