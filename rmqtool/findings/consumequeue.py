"""Findings about consume queues: their files and their units."""

from __future__ import annotations

from rmqtool.findings.finding import CleanStart, Entry

_REBUILD = "rmqtool rebuild-cq {store} --topic {topic} --queue {queue_id} --dry-run"

CONSUME_QUEUE_FILES = (
    Entry(
        code="consumequeue.zero-file", fault="F35", severity="warning", treatment="queues",
        title="The last file of a queue holds only zeros",
        what="The file was created, and no entry was written to it.",
        how="A crash just after the file was created.",
        says="holds only zeros",
        effect="since 4.5.1 a start may count the zeros as one entry: the queue grows by a message that does not exist",
        versions={
            "4.4.0": "no harm in most cases.",
            "4.5.1 and later": "one bogus entry (offset 0, size 0), and later messages get offsets that are one too "
                               "high. In 4.5.1 to 4.9.8, if all queues end like this, two.",
            "5.0.0 to 5.4.0": "the same; but when all queues end before the commit log does, so that nothing is cut, "
            "the broker refuses to start: `IllegalArgumentException: newPosition < 0`.",
        },
        repair="Rebuild the consume queue before the broker starts.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.garbage-after-end", fault="F35", severity="warning", treatment="queues",
        title="A queue holds an entry that is not a message",
        what="An entry of zeros at the start of a file, and good entries after it.",
        how="A broker was started on a queue whose last file held only zeros: see consumequeue.zero-file.",
        says="neither an entry nor zeros after the last entry{units:+entry}",
        effect="consumers skip it; a start may cut the queue here",
        versions={"all": "if the file is one of the queue's last three, the next start cuts the queue before it."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.gap", fault="F36", treatment="queues",
        title="A consume queue file is missing in the middle",
        what="A file of the queue does not begin where the one before it ends.",
        how="Files were deleted by hand, or a restore was incomplete.",
        says="begins {distance} bytes past the end of the file before it",
        effect="starts silently; consumers skip the missing messages",
        versions={"all": "does not check."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.file-size", fault="F37", treatment="queues",
        title="A consume queue file has another size than it should",
        what="All files of all queues have the size that mappedFileSizeConsumeQueue says (6,000,000 bytes by default).",
        how="An incomplete copy; or the setting was changed.",
        says={
            "others": "{size} bytes where the others have {expected}",
            "start": "begins at {start_offset}, which is not a multiple of {size}",
        },
        effect="most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones of the queue",
        versions={
            "4.4.0, 4.9.2": "the queue ends before this file; a queue whose first file is short begins again at 0.",
            "4.5.1 to 4.9.1, 4.9.3 and later": "refuses to start.",
        },
        repair="If all queues have one other size, put the right mappedFileSizeConsumeQueue into broker.conf. "
               "Otherwise rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.empty-file", fault="F37", severity="warning", treatment="queues", is_trace=True,
        title="A consume queue file has 0 bytes",
        what="The file exists and is empty. An error when no release that may run here starts on it.",
        how="The broker was killed between creating the file and giving it its size, a full disk, or somebody's "
        "`touch`.",
        says={
            "earlier": "0 bytes, with files after it",
            "last": "0 bytes: the broker was killed after it had created the file and before it gave it its size",
            "some-refuse": "0 bytes: the broker was killed after it had created the file and before it gave it its "
            "size; {refusing} refuse to start on it",
        },
        effect="since 5.1.3 a start deletes it if it is the last of its queue; 4.5.1 to 4.9.1 and 4.9.3 to 5.1.2 "
               "refuse to start; 4.4.0 and 4.9.2 ignore it",
        versions={
            "4.4.0, 4.9.2": "ignores this file and all later ones of the queue, and starts.",
            "4.5.1 to 4.9.1, 4.9.3 to 5.1.2": "refuses to start.",
            "5.1.3 and later": "deletes the file when it is the last of its queue; else refuses to start.",
        },
        repair="When a release refuses, move the file out of the directory, or let the consume queue be rebuilt: the "
               "next start derives the missing entries from the commit log.",
    ),
    Entry(
        code="consumequeue.stray", fault="F04", treatment="files",
        title="Something in a consume queue's directory is not a consume queue file",
        what="A name that is not 20 digits, a directory, or something that is neither file nor directory.",
        how="Backups of editors, copies made by hand.",
        says={
            "file": "not a consume queue file ({kind})",
            "directory": "not a directory of a topic or a queue: move it away",
        },
        effect="the broker refuses to start; a directory is skipped since 5.1.0",
        versions={
            "4.4.0, 4.9.2": "with another size: loads nothing of the queue that sorts after it.",
            "4.5.1 and later": "refuses to start; since 5.1.0 a directory is skipped.",
        },
        repair="Move it out of the directory.",
    ),
    Entry(
        code="consumequeue.database", fault="F40", treatment="queues",
        title="The RocksDB database of the consume queues is damaged",
        what="RocksDB does not open the database, or finds a damaged block in a table; or it has "
        "a column family that brokers do not name when they open it.",
        how="A file of the database is missing or cut, a damaged disk, a copy of a running broker; another program has "
        "made a column family.",
        says="{why}[; {queues:queue} not compared: {queues!n}]",
        effect="the broker refuses to start, or consumers stop at the damage; without the file CURRENT it "
        "creates an empty database, and all queues begin again",
        versions={"5.2.0 and later": "stops with an exception of RocksDB, or answers pulls with errors."},
        repair="Restore the directory from a backup or a replica, or rebuild the queues from the commit log, which "
               "has everything that was in it.",
        not_detected="Rows in the damaged part are not compared, nor are the other rows of its queue.",
    ),
    Entry(
        code="consumequeue.row", fault="F40", severity="warning", treatment="queues",
        title="A row of the consume queues is neither an entry nor the end of a queue",
        what="A key or a value in the RocksDB database has another form than brokers write.",
        how="Another program wrote into the database; faulty memory.",
        says={
            "bad-row": "key {key}: {why}",
            "bad-unit": "key {key} among the entries of a queue: its key or its value is too long or too short",
            "no-max-row": "rows without a max row, and no message in the log",
            "foreign": "{count:row is|rows are} dropped, because the database is written again",
        },
        effect="none: the broker reads other keys; a value of another size stops the queue there",
        versions={"5.2.0 and later": "does not look for it."},
        repair="Rebuild the queues from the commit log.",
    ),
    Entry(
        code="consumequeue.left-over-table", severity="info",
        title="Tables that the database of the consume queues does not name",
        what="The directory has files of rows that the MANIFEST of the RocksDB database does not name.",
        how="The broker was killed while it wrote them; an older MANIFEST was restored.",
        says="{tables:table}, such as {names!l}",
        effect="the broker deletes them; entries that are then missing have their own findings",
        versions={"5.2.0 and later": "deletes them when it opens the database."},
        repair="No repair is needed if no entry is missing. Otherwise restore the whole directory.",
    ),
    Entry(
        code="consumequeue.orphan", fault="F39", severity="info",
        title="A queue that no topic is configured for",
        what="A directory of a topic that is not in topics.json, a number above the topic's queues, or a name that is "
        "not a number.",
        how="The topic got fewer queues. Or it was deleted, and its queues, which go with it, were derived again when "
        "the broker started after a crash; a slave keeps them. Or its line was lost: with entries that nothing "
        "explains the verdict is unproven.",
        says="{configured_in} has no such topic; {units:entry}",
        effect="loaded, and cleaned when its messages expire; a name that is not a number is ignored",
        versions={"all": "loads every directory whose name is a number."},
        repair="No repair is needed, if the topic was deleted. Otherwise create it again (mqadmin updateTopic): its "
        "consumers then get what the queues hold.",
    ),
    Entry(
        code="consumequeue.kind", fault="F40", treatment="config",
        title="A topic's queues are of another kind than it is configured for",
        what="The topic is configured for batch queues, but has simple ones, or the other way round; or there are "
        "file queues as well as a RocksDB database.",
        how="The attribute queue.type or the setting storeType was changed.",
        says="a {kind} queue, but the topic is configured for {configured}",
        effect="the broker refuses to start; with RocksDB the files are not read",
        versions={
            "before 5.0": "knows simple queues only.",
            "5.0 and later": "refuses to start: `The queue type of topic: ... should be ..., but is ...`.",
        },
        repair="Set the attribute to the kind of the directories; `rmqtool repair` does so.",
        not_detected="Queues in RocksDB, which are not compared with the topic's kind.",
    ),
)  # fmt: skip


CONSUME_QUEUES = (
    Entry(
        code="consumequeue.behind", fault="F30", severity="warning", treatment="queues", is_trace=True,
        title="The queue ends before the commit log does",
        what="The last records of the queue in the commit log have no entries yet.",
        how="The broker was killed: the log is flushed more often than the queues.",
        says="{messages:message} without an entry, the first at physical offset {physical_offset}",
        effect="a start after a crash derives the missing entries again; after a clean stop most versions do not",
        versions={"all, with the file abort": "derives the entries again, from the file that the checkpoint selects."},
        clean_starts=(
            CleanStart(
                "4.4.0 to 4.5.0, 5.0.0 to 5.3.1",
                "nothing",
                "nothing: the messages are never consumed, and new messages get their queue offsets.",
            ),
            CleanStart(
                "4.5.1 to 4.9.8",
                "behind-the-farthest",
                "derives them, unless another queue reaches farther: the farthest queue decides.",
            ),
            CleanStart(
                "5.3.2 and later",
                "behind-the-farthest-but-one",
                "derives them except the first of all, unless another queue reaches farther: a queue misses one "
                "message, and its later ones get offsets that are one too low.",
            ),
        ),
        repair="Rebuild the consume queue before the broker starts.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.missing-unit", fault="F30", treatment="queues",
        title="A message has no entry in its queue",
        what="A record that the broker dispatches is in the commit log, and later messages have entries, but it has "
             "none.",
        how="A queue was short when the broker was started after a clean stop; a restore from different times.",
        says={
            "": "{messages:message} without an entry, the first at physical offset {physical_offset}",
            "unreachable": "{topic}, queue {queue_id}: {why}",
        },
        effect="the message is never consumed, and no start fixes it",
        versions={"all": "only a start after a crash derives entries again, and only if the queue has none yet."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.missing-queue", fault="F30", treatment="queues", is_trace=True,
        title="A queue has messages but no consume queue",
        what="The commit log holds messages of a queue whose directory does not exist.",
        how="The directory was deleted or not restored.",
        says={
            "": "{messages:message} without an entry, the first at physical offset {physical_offset}",
            "unreachable": "{topic}, queue {queue_id}: {why}",
        },
        effect="unless a start derives its entries again, its messages are never consumed, and the next one gets queue "
        "offset 0",
        versions={"all, with the file abort": "derives its entries, from the file that the checkpoint selects."},
        clean_starts=(
            CleanStart("4.4.0 to 4.5.0, 5.0.0 to 5.3.1", "nothing", "does not derive them."),
            CleanStart(
                "4.5.1 to 4.9.8",
                "behind-the-farthest",
                "derives those after the farthest entry of all queues: all if no queue is left, few or none if "
                "another queue reaches as far.",
            ),
            CleanStart(
                "5.3.2 and later",
                "behind-the-farthest-but-one",
                "derives those after the farthest entry of all queues, except the first record there: all if no queue "
                "is left, few or none if another queue reaches as far.",
            ),
        ),
        repair="Rebuild the consume queue before the broker starts.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.ahead", fault="F31", severity="warning", treatment="queues", is_trace=True,
        title="The queue points past the end of the commit log",
        what="The last entries of the queue point to messages that are not in the commit log.",
        how="After a power loss the queue's pages may be on the disk and the log's not; or the last commit log file is "
        "missing.",
        says="points past the end of the commit log, {log_end}{units:+entry}",
        effect="a start cuts these entries",
        versions={
            "all": "cuts the entries that point past the end. Entries between good ones are not cut one by one: "
            "the queue ends at the first of them in its last file.",
        },
        repair="No repair is needed after a crash. If commit log files are missing, restore them before any start.",
    ),
    Entry(
        code="consumequeue.hole", fault="F32", treatment="queues",
        title="An invalid entry (zeros or garbage) inside a queue",
        what="An entry without a size comes before entries in use.",
        how="A page was not flushed before a power loss; a damaged disk.",
        says={
            "no-unit": "{messages:message} without an entry, the first at physical offset {physical_offset}",
            "no-file": "in no file, before entries of messages{units:+entry}",
            "no-row": "no row, before rows of messages{units:+entry}",
            "unwritten": "zeros or garbage before entries of messages{units:+entry}",
            "unreachable": "{topic}, queue {queue_id}: {why}",
        },
        effect="a start cuts the queue here for good and deletes its later files, if this is one of its last three",
        versions={
            "all": "the queue ends before this entry; its next message gets this queue offset. In older files of "
            "the queue it is not noticed, and consumers skip the entry.",
        },
        repair="Rebuild the consume queue before the broker starts.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.wrong-record", fault="F33", treatment="queues",
        title="An entry does not point to its message",
        what="No record is where the entry points, or one of another topic, queue, queue offset or size.",
        how="Commit log and queues from different times or brokers; a flipped bit in an entry.",
        says={
            "size": "size {found}, the record has {expected}",
            "other-target": "points to physical offset {found}, its message is at {expected}",
            "no-record": "no record begins at physical offset {found}{units:+entry}",
            "other-queue": "points to a record of {topic_of_record}, queue {queue_id_of_record}, at "
            "{found}{units:+entry}",
        },
        effect="consumers get what it points to: neither broker nor client compares topic or queue",
        versions={"all": "does not notice at a start, unless it points past the end of the log."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.wrong-end", fault="F33", treatment="queues",
        title="A queue in RocksDB does not begin or end with its entries",
        what="The max row, by which a broker knows the end of a queue, names another entry than the last one, or an "
             "entry of another message; or rows have no max row. Or the min row, by which it knows the beginning, "
             "comes after entries of messages in the log.",
        how="Rows were changed by another program; a bug in the broker.",
        says={
            "no-unit": "{messages:message} without an entry, the first at physical offset {physical_offset}",
            "no-last-row": "the max row ends it with an entry of {expected}, and there is none{units:+entry}",
            "other-last-row": "the max row ends it with an entry of {expected}, and there is one of "
            "{found}{units:+entry}",
            "min-row": "the min row begins it at {begins_at}, after {units:entry} of messages in the log",
        },
        effect="messages past that end, or before that beginning, are not consumed, and new ones get queue offsets "
               "from that end on; if it is too high, consumers wait for entries that do not exist",
        versions={"5.2.0 and later": "trusts the row."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.copies-differ", fault="F33", treatment="queues",
        title="A queue in files and its copy in RocksDB differ",
        what="The broker writes each entry twice, into queue files and into RocksDB, and one of them differs or is "
        "missing.",
        how="One of them was restored from another time, or is damaged.",
        says={
            "other-row": "the file's entry points to {in_file}, in RocksDB is {in_rocksdb}",
            "no-row": "the file's entry points to {in_file}, in RocksDB there is no row",
        },
        effect="a broker that reads the wrong one serves other messages: combineCQPreferCQType says which it reads, "
        "the files by default",
        versions={"5.3.1 and later": "compares only their ends."},
        repair="The files are compared with the commit log: without another finding for the queue they are right, and "
               "the rows must be written again.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.stale-row", severity="info",
        title="Rows past the end of a queue in RocksDB",
        what="Rows of messages that are not in the commit log are past the end of the queue.",
        how="A start has cut the commit log after a crash: it moves the ends of queues back, but does not delete the "
            "rows.",
        says="{units:row} after its end, of messages past the end of the commit log{units:+entry}",
        effect="none: the next messages of the queue overwrite them",
        versions={"5.2.0 and later": "does not read them."},
        repair="No repair is needed.",
    ),
    Entry(
        code="consumequeue.unread-batches", severity="info", treatment="none", about="surroundings",
        title="Batches whose queue is read from RocksDB, where consumers do not get them",
        what="In RocksDB a batch has one row, at its first queue offset; in files each of its offsets points to it. A "
        "broker searches for the minimum of the queue as if each offset had a row, so that the minimum may be after "
        "some batches, and it reads only up to the first offset without a row. Log and rows are intact. It is a "
        "warning if the queue is also in files, from which a broker serves all batches.",
        how="storeType=defaultRocksDB with topics of queue.type=BatchCQ. A queue that was written twice "
        "(rocksdbCQDoubleWriteEnable) is read from its files before.",
        says={
            "all-rows": "consumers get {read} of {batches} batches: they begin at {min_offset}",
            "no-row": "consumers get {read} of {batches} batches: they begin at {min_offset}, and there is no row "
            "at {missing_row}",
        },
        effect="consumers do not get these batches, and are stuck at a missing row",
        versions={
            "5.2.0 to 5.4.0": "send a consumer back to offset 0 where there is no row: it gets the same again.",
            "5.5.0": "fails there with a NullPointerException.",
        },
        repair="Keep storeType=default if the queues are also in files. Otherwise `rmqtool replay STORE` sends the "
               "messages of the batches one by one to a broker that keeps queues in files.",
    ),
    Entry(
        code="consumequeue.store-timestamp", fault="F33", severity="warning", treatment="queues",
        title="An entry's store time is not that of its message",
        what="Entries in RocksDB and batch entries have the time at which the broker stored the message; it differs "
        "from the record's.",
        how="A flipped bit.",
        says="store time {found}, the record has {expected}",
        effect="a search by time may find another offset; messages and their order are not affected",
        versions={"5.2.0 and later": "trusts the entry."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.shifted", fault="F24", severity="warning", treatment="none",
        title="Entries are at other offsets than their messages say",
        what="The number of an entry in its queue differs from the queue offset in its record.",
        how="A broker rebuilt the queue around lost records, or lost an entry and continued.",
        says="{units:entry is|entries are} {distance} {side} the queue offset",
        effect="messages are consumed; their queue offset in the client differs from the one the broker counts",
        versions={"all": "does not compare."},
        repair="A rebuild as the broker does it keeps the shift. Committed offsets match the present queue.",
    ),
    Entry(
        code="consumequeue.duplicate-unit", fault="F33", severity="warning", treatment="queues",
        title="Two entries of a queue point to the same message",
        what="A message is in its queue twice.",
        how="A start that derived the same record twice, a repair that filled a hole with a copy of its neighbour.",
        says="points to {found} as another entry does{units:+entry}",
        effect="the message is consumed twice",
        versions={"all": "does not notice."},
        repair="Rebuild the consume queue if consumers cannot handle duplicates; the later offsets then change.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.neutral-unit", severity="info",
        title="A queue entry is a placeholder for a lost message",
        what="It points to the next message of the queue, which has its own entry after it.",
        how="`rmqtool rebuild-cq` keeps the queue offsets of the messages after one that is lost.",
        says="points to {found} as another entry does{units:+entry}",
        effect="the next message is consumed more than once, each time with its own queue offset",
        versions={"all": "does not notice."},
        repair="No repair is needed.",
    ),
    Entry(
        code="consumequeue.tags-code", fault="F34", severity="warning", treatment="queues",
        title="An entry's tags code is not that of its message",
        what="The hash of the tag, or the delivery time of a delayed message, differs from what the record gives.",
        how="4.9.2 to 4.9.8 write hashes instead of delivery times when a recovery rebuilds SCHEDULE_TOPIC_XXXX; "
        "or a flipped bit.",
        says={
            "other": "tags code {found}, the record gives {expected}",
            "high-bits": "tags code {found}, the record gives {expected}; the low 32 bits are the same, and brokers "
            "compare only these",
            "ext-unit": "its ext unit has the tags code {found}, the record gives {expected}",
            "recovered-as-tags": "tags code {found}, the record gives {expected}: a delayed message, dispatched by the "
            "recovery of a broker 4.9.2 to 4.9.8",
        },
        effect="consumers that filter by tag miss the message or get one too many; a delayed message is delivered at "
        "once",
        versions={"all": "trusts the entry."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.pre-blank", fault="F38", severity="warning", treatment="queues",
        title="Filler entries where none belong",
        what="Filler entries (offset 0, size 2147483647) are not at the head of the queue's first file.",
        how="An incomplete rebuild, a missing first file.",
        says="filler after entries of messages{units:+entry}",
        effect="consumers skip them, and may skip good messages after them; the queue's minimum may be wrong",
        versions={"all": "treats them as entries of expired messages."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.lmq-mismatch", fault="F41", severity="warning", treatment="queues",
        title="A light queue does not match its messages",
        what="The queues or offsets in INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET differ from the entries.",
        how="enableLmq or enableMultiDispatch was switched on or off meanwhile; a flipped bit.",
        says="points to a record of {topic_of_record}, queue {queue_id_of_record}, at {found}{units:+entry}",
        effect="consumers of the light queue miss messages or get others",
        versions={"before 4.9": "knows no light queues.", "4.9 and later": "trusts the entries."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.batch-unit", fault="F42", treatment="queues",
        title="An entry of a batch queue is not valid",
        what="A negative offset, a size or count of 0, or a base that does not follow the entry before.",
        how="As consumequeue.hole.",
        says={
            "no-file": "in no file, before entries of messages{units:+entry}",
            "unwritten": "zeros or garbage before entries of messages{units:+entry}",
            "other-fields": "other times, offsets or counts than the record gives",
        },
        effect="a start cuts the queue before the first invalid entry",
        versions={"before 5.0": "knows no batch queues.", "5.0 and later": "cuts the queue there."},
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.ext-address", fault="F43", severity="warning", treatment="queues",
        title="Entries refer to missing ext units",
        what="The tags code of an entry is an address in consumequeue_ext/, but there is no ext unit.",
        how="consumequeue_ext/, or a file in it, was deleted or damaged; or a flipped bit.",
        says="{found} is an address in consumequeue_ext/, but there is no ext unit",
        effect="brokers send the message for any tag, and clients drop those of others; later the broker may put the "
        "ext unit of another message there, and consumers that filter by tag miss this one",
        versions={"all": "sends the message to consumers of all tags: without the ext unit none is known."},
        repair="Restore the files and enable them, or rebuild the consume queue with plain tags codes.",
        remedy=_REBUILD,
    ),
)  # fmt: skip
