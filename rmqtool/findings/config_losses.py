"""Findings about configuration that the store proves to be lost, old or wrong."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

CONFIG_LOSSES = (
    Entry(
        code="config.missing",
        severity="error",
        treatment="config",
        title="Configuration that the store proves is gone",
        what="A file in config/ and its .bak are gone, or the file no longer has the table that it is there for, and "
        "topics, retries, deliveries or the other files show what was in it. Where topics, groups and offsets are kept "
        "in RocksDB: a database that is gone, or one that has lost all rows of a table; of config/metadata the finding "
        "names the column family. Information where the store may have been written without a broker, or is a copy of "
        "the log alone; a warning for groups, which brokers make again with default settings.",
        how="config/ or a file in it was deleted or not copied; a file was overwritten with another one, or emptied. "
        "The store is that of a slave of 5.5.0, which never takes over its master's committed offsets: it cannot read "
        "the pullOffsetTable among them, and made master has none (5.5.1 has fixed that).",
        says={
            "gone": "neither it nor its .bak is there, {proof}",
            "empty": "it is empty, {proof}",
            "without its table": "it is there without its table, {proof}",
            "backup-left": "it is not there; a start reads its .bak, which is older by at least one change",
            "table": "{what}, {proof}",
        },
        parts={
            "proof": {
                "topics": "and the store has messages of {shown:topic}: {shown!n}",
                "consumed": "and {shown:group} consumed: {shown!n}",
                "delays": "and {messages:message} of {levels:delay level} were delivered",
                "groups": "and the store knows {shown:group}: {shown!n}",
                "offsets-of-all": "which each release has",
                "groups-of-all": "though each release writes groups of its own into it",
            },
        },
        effect="the broker starts with an empty table, and says nothing",
        versions=(
            ("all", "take a missing file for an empty one, as at a first start, and write the empty table back."),
            ("5.3.4 and later", "also delete a main file that cannot be decoded, so that it is missing afterwards."),
        ),
        repair="Before any start put the file back: from a backup, or from a slave of this broker, which copies "
        "topics, groups, offsets and delay offsets every ten seconds (4.x) or once a minute (5.x). Without one, "
        "`rmqtool repair` writes topics and groups as the store shows them, with default settings, and "
        "delayOffset.json as the log shows it. Nothing in a store shows committed offsets: stop the clients, start "
        "the broker, and set each group to where it was with mqadmin resetOffsetByTime. In RocksDB nothing is "
        "repaired: put a database that is gone back from a backup. Do not move away one that has lost a table: other "
        "tables are in it, and a broker starts on it; stop the clients, and make topics again with mqadmin "
        "updateTopic.",
        not_detected="Groups that never had a retry, when config/ is gone as a whole, or when the table of offsets is "
        "there and empty: a broker on which nobody has consumed yet leaves it so. Which database it was, where none is "
        "left and broker.conf is not given: config/topics and the others of that kind are named then.",
    ),
    Entry(
        code="config.half-messages-skipped",
        severity="warning",
        treatment="config",
        title="Half messages wait that no broker looks at again",
        what="The committed offset of the group that reads half messages is past some that neither were committed nor "
        "rolled back, of which there is no later copy, and that were not given up.",
        how="consumerOffset.json was edited, or is of another time or another broker; somebody has set the offset of "
        "CID_RMQ_SYS_TRANS.",
        says="group CID_RMQ_SYS_TRANS: committed {committed}, and {half_messages:half message before that waits|half "
        "messages before that wait} for an answer, the first at {first_waiting}",
        effect="the broker asks no producer about them: they are neither delivered nor rolled back, for ever",
        versions=(("all", "look at half messages from the committed offset on."),),
        repair="While the broker is stopped, set the offset of RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS in "
        "consumerOffset.json to the queue offset of the first that waits, which the finding names: then the broker "
        "asks their producers again.",
        not_detected="Half messages farther back, once a piece of 4,096 before the committed offset holds none that "
        "waits.",
    ),
    Entry(
        code="config.filters-ignored",
        severity="warning",
        treatment="config",
        title="The broker ignores all filters in consumerFilter.json",
        what="The Bloom filter data of a filter is missing, or of another size than the broker's own: it then ignores "
        "the filters of all groups, and writes an empty file.",
        how="expectConsumerNumUseFilter or maxErrorRateOfBloomFilter was changed, the file is of another broker, or "
        "was edited by hand.",
        says={
            "other": "the filter of group {group} for topic {topic} has a Bloom filter of {found_bits} bits, "
            "{found_positions} positions, and the broker's has {expected_bits} bits, {expected_positions} positions: "
            "all {filters:filter} are ignored",
            "none": "the filter of group {group} for topic {topic} has no Bloom filter data, and the broker's has "
            "{expected_bits} bits, {expected_positions} positions: all {filters:filter} are ignored",
        },
        effect="consumers that filter by SQL92 are refused until they connect again and send their filters",
        versions=(("all", '"Bloom filter is changed! So ignore all filter data persisted" is all that is logged.'),),
        repair="Give the broker the settings with which the file was written, or put back the file; otherwise restart "
        "the consumers of these groups after the broker.",
    ),
    Entry(
        code="config.topic-missing",
        severity="warning",
        treatment="config",
        title="A topic has lost its configuration",
        what="topics.json does not name a topic, and the store proves that nobody deleted it: a message of it was "
        "stored after topics.json was changed last, or groups still have offsets in it. Information for a retry "
        "topic, which the broker makes again.",
        how="topics.json is older than the store, or was edited by hand. The store is that of a slave, which takes "
        "topics over every ten seconds (4.x) or once a minute (5.x); one of 5.3.2 or 5.3.3 takes over none that has "
        "attributes, such as message.type.",
        says={
            "retry": "{place} does not name it, and it has messages",
            "stored-since": "{place} does not name it and was changed last {changed!t}, but a message of it was "
            "stored {newest!t}",
            "consumed": "{place} does not name it, and group {group} has offsets in it, which go with a topic that "
            "is deleted",
        },
        effect="clients are refused, or the topic is made again with default queues, and what lies in others is not "
        "consumed",
        versions=(
            ("4.4.0 to 4.9", "leave a topic's offsets when it is deleted: only the times prove something."),
            ("5.0.0 and later", "delete a topic's offsets with it, and take no new ones."),
        ),
        repair="Put back the newer topics.json, or let `rmqtool repair` add the topic: as the .bak has it, or with the "
        "number of queues that its messages show. If its queues are gone, rebuild them: rmqtool rebuild-cq --topic.",
        not_detected="A topic whose last message is older than the last change of topics.json, in a store of 4.x: it "
        "looks like one that was deleted (commitlog.deleted-topic, consumequeue.orphan).",
    ),
    Entry(
        code="config.topic-permission",
        severity="warning",
        treatment="running",
        title="A topic that may not be read or written",
        what="The permission (perm) of a topic lacks reading or writing. A warning for a retry topic, for which nobody "
        "wants that; information for others, where it is a setting.",
        how="mqadmin updateTopicPerm, an edit by hand.",
        says="perm {perm}: it may not be {denied}",
        effect="consumers of the group do not get their retries, and cannot send back what they fail on",
        versions=(("all", "refuse to serve with NO_PERMISSION."),),
        repair="Set it with mqadmin updateTopicPerm -p 6 once the broker runs.",
    ),
    Entry(
        code="config.wrong-offset",
        severity="warning",
        treatment="config",
        title="A committed offset contradicts the store",
        what="The offset of a group is negative, more than 10,000 beyond the end of its queue, lower than in the .bak "
        "that was written before, or 0 or far behind although retries show that the group has consumed.",
        how="The file is an older copy or was edited; files of different times or brokers; a tool has set the offset.",
        says="group {group}: committed {committed_offset}, {reason}[, and {other_queues:other queue} like it]",
        parts={
            "reason": {
                "negative": "which no queue begins with",
                "beyond": "far beyond the end of its queue ({other_offset})",
                "backup": "its .bak, written earlier, has {other_offset}",
                "retries": "its retries show that it has consumed the message at {other_offset}",
            },
        },
        effect="the group consumes messages again, or skips some",
        versions=(
            ("4.4.0 to 4.9.3", "an offset beyond the end: set to the end, or to 0 where the queue begins there."),
            ("4.9.4 and later", "an offset beyond the end: set to the end. Too small ones are taken as they are."),
        ),
        repair="`rmqtool repair` moves an offset that its queue does not have to the nearest one that it has. For "
        "the others, compare the file with its .bak and with backups before a start, and keep the one whose offsets "
        "are right; or, once the broker runs and before the group connects, set them with mqadmin resetOffsetByTime. "
        "Offsets that were set back on purpose are right.",
        not_detected="Offsets that are too small by less than retries or the .bak show; a group without retries.",
    ),
    Entry(
        code="config.older-copy",
        severity="warning",
        treatment="config",
        title="A configuration file is older than the store",
        what="topics.json or subscriptionGroup.json has a lower data version than its .bak, or has lost more entries "
        "than its data version has grown by; or the committed offsets were written more than an hour before the newest "
        "message was stored.",
        how="A file was restored from a backup, or edited by hand.",
        says={
            "time": "written {written!t}, and the newest message was stored {newest!t}: a running broker writes "
            "it every five seconds",
            "version": "its data version is {counter}, that of its .bak {backup_counter}: the .bak is written from "
            "the file before",
            "entries": "its data version is {counter}, that of its .bak {backup_counter}, and it has lost {lost!l}",
        },
        effect="the broker starts with the older topics, groups or offsets",
        versions=(("all", "read the main file, whatever its .bak says."),),
        repair="Compare the file with its .bak and with backups before a start, and keep the newest. `rmqtool repair` "
        "adds lost entries from the .bak where the data version has grown by less.",
        not_detected="A copy that was restored together with its .bak and got the time of the restore.",
    ),
)
