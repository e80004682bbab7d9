"""Findings about tiered storage: what a start and the next dispatch destroy, and segments against each other."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_ALL = "5.1.0 and later"
_KEEP = (
    "Before that, do not start the broker with messageStorePlugIn: first copy the tier elsewhere. Without this "
    "setting a broker serves the local store and does not touch the tier."
)

TIERED = (
    Entry(
        code="tiered.metadata", treatment="files",
        title="The metadata of the tier are missing, but segments exist",
        what="A broker finds segments only through config/tieredStoreMetadata.json, or its .bak. Without them it "
        "considers the tier empty.",
        how="The file was deleted, or neither it nor its .bak can be decoded; config/ comes from another store.",
        says={
            "": "no metadata can be read, and the tier has {segments:segment} of {queues:queue} in {bytes:byte}",
            "queue": "the metadata do not have this queue, and the tier has {segments:segment} of it in {bytes:byte}",
        },
        effect="the broker starts, and its uploads begin at segment 0: they overwrite the old segments from the "
        "first byte on",
        versions={_ALL: "the same; the topic numbers in index items begin again."},
        repair="rmqtool repair writes the file again from the segments, with the topic numbers in the index. "
        f"{_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.destroyed", treatment="files",
        title="The tier ends before the local store begins",
        what="An upload continues where the tier ends. If the local store no longer has that offset, the tier of the "
             "queue starts again, and everything in it is deleted.",
        how="The upload was off, or late, for longer than messages are kept in the local store; the last segment of "
        "a consume queue is missing; older metadata.",
        says="it ends at queue offset {tiered_end}, the local queue begins at {local_begin}[: {missing:message} "
        "between them are in neither]",
        effect="the first dispatch, 20 seconds after a start, deletes everything that the tier has of the queue",
        versions={"5.1.0 to 5.2.0": "then continues at the end of the local queue.",
                  "5.3.0 and later": "then continues at the messages of the last two minutes."},
        repair="If the tier's log has messages up to the local queue, rmqtool repair writes their entries. "
               f"Otherwise export the messages of the tier. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.broker-name", treatment="decide",
        title="The tier has no directory of this broker",
        what="The directories of a tier are named by cluster and broker. There is no directory for the names in "
             "broker.conf.",
        how="brokerName or brokerClusterName was changed, or tieredStoreFilePath; the store is a copy for another "
        "broker.",
        says="the tier has {found!n}, broker.conf means {expected}",
        effect="the broker starts, does not find the tier, and begins a new one next to it",
        versions={_ALL: "the same."},
        repair="Correct the names in broker.conf; do not change the directories.",
    ),
    Entry(
        code="tiered.segment", treatment="files",
        title="Segments of the tier are inconsistent",
        what="The segments of a flat file follow each other without a gap, each has the size given in the metadata, "
             "and the last one may be longer by one upload. In a consume queue sizes are whole entries.",
        how="A file was deleted or cut; a copy of the tier mixes different times; older metadata.",
        says={
            "missing": "the metadata have a segment of {expected:byte} at {base}, whose file is missing",
            "all": "the metadata have {segments:segment}, and all of them are missing",
            "unknown": "the metadata do not have the segment at {base}",
            "short": "{size:byte}, the metadata have {expected}",
            "long": "{size:byte}, the metadata have {expected}",
            "deleted": "{size:byte}, which the metadata call deleted (status 2) although they had not expired",
            "gap": "it begins at {base}, the segment before it ends at {end}",
            "torn": "{size:byte} are not whole entries of {unit}",
            "stray": "is not a segment",
        },
        effect="reads of the tier fail, or messages get wrong queue offsets",
        versions={_ALL: "a start creates a missing file again, empty, and compares only the size of the last segment."},
        repair="rmqtool repair writes entries again from the tier's log, and records from the commit log if it still "
               "has them; sizes and metadata follow. Messages that are in neither log must be restored from a copy of "
        f"the tier. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.unit", treatment="files",
        title="Entries of the tier do not point to their messages",
        what="An entry of the tier's consume queue has offset, size and tag of the message with its queue offset in "
        "the tier's commit log.",
        how="A flipped bit, a segment that is missing, or was overwritten.",
        says="{units:entry|entries} of {total}, first that of queue offset {first}",
        effect="consumers get other messages in place of these, some twice, or none",
        versions={_ALL: "messages are numbered by their position in the answer: an unreadable one shifts the later "
                        "ones."},
        repair="rmqtool repair writes entries again from the tier's log, and records from the commit log if it still "
               "has them; sizes and metadata follow. Messages that are in neither log must be restored from a copy of "
        f"the tier. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.record", treatment="files", treatment_by_cause={"differs": "decide"},
        title="A commit log of the tier is damaged",
        what="It holds whole records back to back, each with its own offset in the queue's log. No CRC covers tags: if "
        "a queue entry has the hash of other tags, and the messages around it or a changed byte explain these, the "
        "record is damaged. If the commit log has the message with other properties, the one is right whose keys are "
        "in the index of the local store, or whose tag the local queue entry has.",
        how="A flipped bit, a cut file, bytes that do not belong there. A local store that is an older copy, or was "
        "cut, has other messages at the queue offsets of the tier.",
        says={
            "": "{bytes:byte} that are not a record: {why}",
            "body": "{messages:message} with a body CRC mismatch, first queue offset {first}",
            "differs": "{messages:message} other than those of the local queue under the same queue offsets, first "
            "{first}",
            "foreign": "{messages:message} of another topic or queue",
            "tags": "{messages:message} with other tags than their queue entries, first {first}",
            "fields": "{messages:message} with properties that the commit log and its index contradict, first queue "
            "offset {first}",
        },
        effect="consumers get these damaged bytes, or nothing",
        versions={_ALL: "records are not checked; tieredStoreCrcCheckEnable has no effect."},
        repair="rmqtool repair copies damaged records from the commit log, if it still has them, and keeps their queue "
               f"entries. If nothing shows which of two messages is right, restore the segment. {_KEEP}",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="tiered.index", severity="warning", treatment="none", treatment_by_cause={"missing": "files"},
        about="surroundings",
        title="An index segment of the tier is damaged, or does not point to messages",
        what="A segment of the index has a slot for each remainder of a hash, and items, one slot after another. "
        "An item points to a message of the tier, by its queue, offset and size.",
        how="A flipped bit, a cut file. Segments of 5.5.1 may have fewer items than their header counts: then it is "
            "information.",
        says={
            "size": "{size:byte} are not the slots and {items:item} of its header",
            "fewer": "it has {items} of {counted} items that its header counts",
            "slot": "{items:item|items} in the slot of another hash, or out of place",
            "item": "{items:item|items} point to no message of that size",
            "key": "{items:item|items} point to a message without a key of that hash",
            "hash": "its keys have the hashes of a release other than {release}: a broker finds half of them",
            "written": "{size:byte} are not the size of {slots} slots and {items} items, as broker.conf sets them, or "
            "its header is another",
            "missing": "the metadata have a segment at {base}, whose file is missing",
        },
        effect="messages are not found by key in the tier",
        versions={_ALL: "the same; 5.5.1 looks up half of the keys with another hash than older releases wrote."},
        repair="None: rmqtool query --scan finds the keys. New segments are not affected. rmqtool repair removes a "
               "missing segment from the metadata.",
    ),
    Entry(
        code="tiered.ahead", severity="warning", treatment="decide", about="surroundings",
        title="The tier has messages after the end of the local queue",
        what="The tier is filled from the local store, so it cannot be ahead of it.",
        how="The local store is an older copy, or was cut by a start.",
        says="it ends at queue offset {tiered_end}, the local queue at {local_end}",
        effect="nothing is uploaded until the local queue is past that offset; the tier then has other messages than "
               "the local store at the same queue offsets",
        versions={_ALL: "the same."},
        repair="Find the newer local store. Otherwise make the tier start again: move its directory of this queue "
               "away.",
    ),
    Entry(
        code="tiered.hidden", severity="warning", treatment="settings",
        title="FORCE hides messages of the local store",
        what="With tieredStorageLevel=FORCE a broker looks for messages of a queue that has a tier only there. The "
        "local queue has messages before the first one of the tier.",
        how="Tiered storage was switched on later than the first of these messages was stored: a broker uploads only "
        "the last two minutes before. Or the tier keeps messages for a shorter time than the local store, or the next "
        "dispatch deletes the tier of this queue.",
        says="{messages:message} of the local queue before those of the tier: {setting}=FORCE",
        effect="consumers do not get these messages: a broker moves them to the first message of the tier",
        versions={_ALL: "queues without a tier are served from the local store until the tier has their first message; "
                        "after the tier's last message consumers wait for the next upload."},
        repair="Remove tieredStorageLevel from broker.conf, or set NOT_IN_DISK: a broker then reads from the tier what "
               "the local store no longer has.",
    ),
)  # fmt: skip
