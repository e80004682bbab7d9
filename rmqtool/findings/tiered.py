"""Findings about tiered storage: what a start and the next dispatch destroy, and segments against each other."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_ALL = "5.1.0 and later"
_KEEP = (
    "Do not start the broker with messageStorePlugIn before: copy the tier elsewhere first. Without it a broker "
    "serves the local store and leaves the tier alone."
)

TIERED = (
    Entry(
        code="tiered.metadata", treatment="files",
        title="The metadata of the tier are missing, but segments exist",
        what="A broker knows segments only by config/tieredStoreMetadata.json, or its .bak. Without them it "
        "considers the tier empty.",
        how="The file was deleted, or cannot be decoded and its .bak neither; config/ comes from another store.",
        says={
            "": "no metadata can be read, and the tier has {segments:segment} of {queues:queue} in {bytes:byte}",
            "queue": "the metadata do not have this queue, and the tier has {segments:segment} of it in {bytes:byte}",
        },
        effect="the broker starts, and its uploads begin at segment 0: they overwrite the old segments from the "
        "first byte on",
        versions={_ALL: "the same; the numbers of topics begin again, by which index items find theirs."},
        repair="rmqtool repair writes the file again from the segments, with the numbers of topics that the index has. "
        f"{_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.destroyed", treatment="files",
        title="The tier ends before the local store begins",
        what="An upload continues where the tier ends. Where the local store no longer has that offset, the tier "
        "of the queue is started again, and all that it holds is deleted.",
        how="The upload was off, or late, for longer than messages are kept in the local store; the last segment of "
        "a consume queue is missing; older metadata.",
        says="it ends at queue offset {tiered_end}, the local queue begins at {local_begin}[: {missing:message} "
        "between them are in neither]",
        effect="the first dispatch, 20 seconds after a start, deletes all that the tier has of the queue",
        versions={"5.1.0 to 5.2.0": "then continues at the end of the local queue.",
                  "5.3.0 and later": "then continues at the messages of the last two minutes."},
        repair="Where the tier's log has messages up to the local queue, rmqtool repair writes their entries. Else "
        f"export what the tier has. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.broker-name", treatment="decide",
        title="The tier has no directory of this broker",
        what="The directories of a tier are named by cluster and broker. broker.conf gives names that are not there.",
        how="brokerName or brokerClusterName was changed, or tieredStoreFilePath; the store is a copy for another "
        "broker.",
        says="the tier has {found!n}, broker.conf means {expected}",
        effect="the broker starts, knows nothing of the tier, and begins a new one beside it",
        versions={_ALL: "the same."},
        repair="Correct the names in broker.conf; leave the directories as they are.",
    ),
    Entry(
        code="tiered.segment", treatment="files",
        title="Segments of the tier are inconsistent",
        what="The segments of a flat file follow each other without a gap, each has the size that the metadata have, "
        "and the last one may be longer: by one upload. In a consume queue sizes are whole entries.",
        how="A file was deleted or cut; a copy of the tier is not of one moment; older metadata.",
        says={
            "missing": "the metadata have a segment of {expected:byte} at {base}, whose file is missing",
            "all": "the metadata have {segments:segment}, and none of them is there",
            "unknown": "the metadata do not have the segment at {base}",
            "short": "{size:byte}, the metadata have {expected}",
            "long": "{size:byte}, the metadata have {expected}",
            "gap": "it begins at {base}, the segment before it ends at {end}",
            "torn": "{size:byte} are not whole entries of {unit}",
            "stray": "is not a segment",
        },
        effect="reads of the tier fail, or messages come under wrong queue offsets",
        versions={_ALL: "a start creates a missing file again, empty, and compares the size of the last segment "
        "alone."},
        repair="rmqtool repair writes entries again from the tier's log, and records from the commit log where it "
        "still has them; sizes and metadata follow. What is in neither has to be restored from a copy of the tier. "
        f"{_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.unit", treatment="files",
        title="Entries of the tier do not point to their messages",
        what="An entry of the tier's consume queue has offset, size and tag of the message with its queue offset in "
        "the tier's commit log.",
        how="A flipped bit, a segment that is missing, or was written again over what it held.",
        says="{units:entry|entries} of {total}, first that of queue offset {first}",
        effect="consumers get other messages in place of these, some twice, or none",
        versions={_ALL: "messages are numbered by their place in the answer: one that cannot be read shifts those "
                  "after it."},
        repair="rmqtool repair writes entries again from the tier's log, and records from the commit log where it "
        "still has them; sizes and metadata follow. What is in neither has to be restored from a copy of the tier. "
        f"{_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.record", treatment="files", treatment_by_cause={"differs": "decide"},
        title="A commit log of the tier is damaged",
        what="It holds whole records back to back, each with its own offset in the queue's log.",
        how="A flipped bit, a cut file, bytes that do not belong there. A local store that is an older copy, or was "
        "cut, has other messages under the queue offsets that the tier has.",
        says={
            "": "{bytes:byte} that are not a record: {why}",
            "body": "{messages:message} whose body does not have its CRC, first queue offset {first}",
            "differs": "{messages:message} other than those of the local queue under the same queue offsets, first "
            "{first}",
            "foreign": "{messages:message} of another topic or queue",
        },
        effect="consumers get these bytes as they are, or nothing",
        versions={_ALL: "nothing of a record is checked; tieredStoreCrcCheckEnable is read by nobody."},
        repair="rmqtool repair writes damaged records as the commit log has them, while it has them. Of messages that "
        f"differ it does not know which are right: restore the segment. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.index", severity="warning", treatment="none", treatment_by_cause={"missing": "files"},
        about="surroundings",
        title="An index segment of the tier is damaged, or does not point to messages",
        what="A segment of the index has a slot for each remainder of a hash, and items, one slot after another. "
        "An item points to a message of the tier, by its queue, offset and size.",
        how="A flipped bit, a cut file. Segments of 5.5.1 may lack items that their header counts: then it is a note.",
        says={
            "size": "{size:byte} are not the slots and {items:item} of its header",
            "fewer": "it has {items} of {counted} items that its header counts",
            "slot": "{items:item|items} in the slot of another hash, or out of place",
            "item": "{items:item|items} point to no message of that size",
            "key": "{items:item|items} point to a message without a key of that hash",
            "hash": "its keys have the hashes of another release than {release}: a broker finds half of them",
            "written": "{size:byte} are not the size of {slots} slots and {items} items, as broker.conf sets them, or "
            "its header is another",
            "missing": "the metadata have a segment at {base}, whose file is missing",
        },
        effect="messages are not found by key in the tier",
        versions={_ALL: "the same; 5.5.1 looks up half of the keys by another hash than older releases wrote."},
        repair="None: keys are found by rmqtool query --scan. New segments are not affected. A missing one is taken "
        "out of the metadata by rmqtool repair.",
    ),
    Entry(
        code="tiered.ahead", severity="warning", treatment="decide", about="surroundings",
        title="The tier has messages after the end of the local queue",
        what="The tier takes what the local store has: it cannot be ahead of it.",
        how="The local store is an older copy, or was cut by a start.",
        says="it ends at queue offset {tiered_end}, the local queue at {local_end}",
        effect="nothing is uploaded until the local queue is past that offset; the tier then keeps other messages than "
        "the local store under the same queue offsets",
        versions={_ALL: "the same."},
        repair="Find the newer local store. Else let the tier start again: move its directory of this queue away.",
    ),
)  # fmt: skip
