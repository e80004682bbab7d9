"""Findings about what records say: offsets, times, topics, properties."""

from __future__ import annotations

from rmqtool.findings.entry import Entry

MESSAGES = (
    Entry(
        code="commitlog.deleted-topic",
        fault="F22",
        severity="info",
        title="Messages of a topic that is not configured",
        what="The commit log holds messages of topics that topics.json does not list.",
        how="The topic was deleted. Its messages stay in the log until the files expire.",
        says="{messages:message} without a unit, the first at physical offset {physical_offset}",
        effect="none; but a rebuild of all queues brings the topic's queues back",
        versions=(("all", "ignores the messages."),),
        repair="No repair is needed. Leave the topic out of a rebuild if its queues should stay away.",
    ),
    Entry(
        code="commitlog.queue-offset-restart",
        fault="F23",
        severity="warning",
        treatment="none",
        title="Queue offsets begin again",
        what="Within one queue a later record has a smaller queue offset, or the same one twice.",
        how="The topic was deleted and made again; a broker started without its consume queues; a role change.",
        says="queue offset {found} where {expected} was expected",
        effect="the consume queue holds only one message for each offset; a rebuild by the broker drops others",
        versions=(
            ("all", "a rebuild keeps offset 0 always, drops offsets below the end of the queue, appends the rest."),
        ),
        repair="None is automatic: messages that no unit points to can still be found by `inspect`, `query` and "
        "`export`.",
    ),
    Entry(
        code="commitlog.queue-offset-gap",
        fault="F24",
        severity="warning",
        treatment="none",
        title="Queue offsets are missing",
        what="Within one queue the queue offsets of two neighbouring records are more than one apart.",
        how="Records between them were lost, or an append failed after its offset was given away.",
        says="no record of {queue_offsets:queue offset} from {first} on",
        effect="after a rebuild by the broker all later messages of the queue stand at smaller offsets: consumers skip "
        "or repeat messages",
        versions=(("all", "a rebuild appends without a hole and logs `[BUG]logic queue order maybe wrong`."),),
        repair="No repair is needed as long as the present consume queue is sound.",
    ),
    Entry(
        code="commitlog.properties",
        fault="F25",
        severity="error",
        treatment="neutralise",
        title="A record's properties cannot be read as the broker needs them",
        what="A property that the broker itself uses is not a number, or lists that belong together differ in length.",
        how="A flipped bit: no CRC covers properties. Or a client that sets reserved properties.",
        says="DELAY, INNER_BASE or INNER_NUM is not a number that the broker takes",
        effect="a DELAY that is not a number makes the whole record unreadable: the end of the log for a recovery scan",
        versions=(
            ("all", "DELAY in SCHEDULE_TOPIC_XXXX: the record is taken for the end of the log."),
            ("4.9 and later", "INNER_MULTI_QUEUE_OFFSET: dispatch of the light queues fails."),
            ("5.0 and later", "INNER_BASE or INNER_NUM: the batch queue gets no unit."),
        ),
        repair="Restore the bytes from a replica or a backup.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.magic-code-v2",
        fault="F26",
        severity="error",
        treatment="decide",
        title="Records that the broker's version cannot read",
        what="The log holds records of the second format (topics longer than 127 bytes), which 5.1.0 introduced, and "
        "the broker is older.",
        how="A downgrade.",
        says="version 2 of a record, which {version} cannot read",
        effect="brokers before 5.1.0 take the first such record for the end of the log and delete everything after it",
        versions=(
            ("before 5.1.0", "a recovery scan that reaches such a record cuts the log there."),
            ("5.1.0 and later", "reads them."),
        ),
        repair="Go back to 5.1.0 or later.",
    ),
    Entry(
        code="commitlog.sys-flag",
        fault="F27",
        severity="warning",
        treatment="none",
        title="A record's flags cannot be right",
        what="Bits of the sys flag that no version sets, or that contradict the rest of the record.",
        how="A flipped bit, or files of different brokers.",
        says="sys flag {sys_flag:#x}: {why}",
        effect="the broker may read the record's end at the wrong place, and then takes it for the end of the log",
        versions=(("all", "reads the record as its flags say."),),
        repair="Restore the bytes from a replica or a backup. A repair leaves the record as it is: its lengths add up.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.field",
        fault="F27",
        severity="warning",
        treatment="none",
        title="A field of a record is damaged",
        what="A field that no CRC covers (topic, queue id, queue offset, flags, tags, keys) differs from what the "
        "record's queue entry or its index units prove; body and position of the record are right.",
        how="A flipped bit on the disk or in memory.",
        says="{field} is {found!v}[, was {expected!v}][; the index has the hash {hash}, which none of its keys gives]: "
        "shown by {witnesses}",
        parts={
            "witnesses": {
                "consume-queue": "its queue entry",
                "index": "the index",
                "property-crc": "its __CRC32#",
            },
        },
        effect="consumers get the message through its queue entry, with the damaged field in it; a broker that builds "
        "queues or index from the log again puts it elsewhere or nowhere",
        versions=(("all", "reads the record as it is; neither broker nor client compares it with the queue."),),
        repair="Queue entry and index unit stay, since they are right: every repair keeps them. Restore the bytes from "
        "a replica or a backup.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="Fields that neither queue nor index have: hosts, born time, reconsume times.",
    ),
    Entry(
        code="commitlog.body-compression",
        fault="F27",
        severity="error",
        treatment="none",
        treatment_by_cause={"flag": "files"},
        title="A body is not compressed as its flags say",
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
        versions=(
            ("clients in Java", "`MessageDecoder#decode` gives nothing for the message, and `decodes` ends there."),
            ("brokers", "do not look at bodies, except a broker that splits inner batches."),
        ),
        repair="Where body and CRC prove that one bit of the flags is wrong, `rmqtool repair` puts it right. Else "
        "restore the bytes from a replica or a backup. A pull with a smaller batch size loses fewer messages.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="A compressed body that begins right and breaks later, and whose CRC is right.",
    ),
    Entry(
        code="commitlog.time-order",
        fault="F28",
        severity="info",
        title="Store timestamps go backwards",
        what="A record has an earlier store timestamp than the one before it, by more than a moment.",
        how="The broker's clock was set back.",
        says="stored {seconds:.0f} s before a message that stands in front of it",
        effect="searches by time may find the wrong offset; which file a recovery begins with may change",
        versions=(("all", "assumes that store timestamps ascend."),),
        repair="No repair is needed.",
    ),
    Entry(
        code="commitlog.future-timestamp",
        fault="F58",
        severity="warning",
        treatment="running",
        title="Messages were stored in the future",
        what="A record's store timestamp is later than now.",
        how="The broker's clock was ahead, or the clock of this machine is behind.",
        says="stored at {store_timestamp!t}, which is in the future",
        effect="searches by time, and the choice of the file where a recovery begins, are wrong until that time has "
        "come",
        versions=(("all", "retention goes by the files' modification times and is not touched."),),
        repair="Check both clocks.",
    ),
)
