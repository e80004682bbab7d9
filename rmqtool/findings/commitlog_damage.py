"""Findings about what is in the commit log: records, blanks and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rmqtool.findings.entry import Entry

DamageReason = Literal[
    "zeroed", "magic-code", "physical-offset", "lengths", "truncated", "missing", "torn", "leftover",
]  # fmt: skip
"""Why an extent holds no message."""

DAMAGE_MEANINGS: Mapping[DamageReason, str] = {
    "zeroed": "zero bytes where a record should begin",
    "magic-code": "neither a message nor a blank begins here",
    "physical-offset": "a record that gives another position as its own",
    "lengths": "inconsistent record lengths, or a blank that does not cover the rest of its file",
    "truncated": "the file ends inside a record",
    "missing": "no file holds these bytes",
    "torn": "the last record was not written to its end, as an unclean stop leaves it",
    "leftover": "old bytes after the last record, up to the end of the page",
}
"""The sentence for each reason."""

_SCAN_ENDS_HERE = (
    "not noticed while messages are served; but a recovery scan that reaches it takes it for the end of the log, "
    "and deletes everything after it"
)
_SCAN_VERSIONS = (
    ("4.4.0 to 5.3.1", "a clean start scans the last three files; a start after a crash scans from the file that the "
     "checkpoint chooses, without a checkpoint all. The log is cut here and later files are deleted."),
    ("5.3.2 and later", "the same, but a clean start scans from the file that the newest consume queue unit points "
     "into; without consume queues all of the log."),
    ("5.4.0 and later", "reads only the last ten files (commitLogRecoverMaxNum)."),
)  # fmt: skip
_SCAN_REPAIR = (
    "Do not start a broker before you know what its start would cut: `rmqtool verify` says so. Restore the bytes from "
    "a replica or a backup. Export what can be read first."
)

RECORDS = (
    Entry(
        code="commitlog.torn",
        fault="F15",
        severity="warning",
        treatment="start",
        is_trace=True,
        title="The last record was not written to its end",
        what="The last record of the log is cut, or its end is zeros, and nothing but zeros follows.",
        how="The broker was killed or the machine lost power while it appended.",
        says={
            "record": f"the log ends here: {DAMAGE_MEANINGS['torn']} ({{bytes}} bytes)",
            "properties": "the last record's properties end in zero bytes: it was not written to its end",
        },
        effect="a start cuts the log before this record; its producer was never told that it was stored",
        versions=(
            ("4.4.0 to 4.9", "cuts the log there."),
            ("5.0 and later", "cuts the log there and logs `found a half message`."),
        ),
        repair="No repair is needed: the next start does it.",
    ),
    Entry(
        code="commitlog.stale-bytes",
        fault="F29",
        severity="info",
        treatment="start",
        is_trace=True,
        title="Old bytes after the last record",
        what="After the last record, up to the end of the page, are bytes that are no record.",
        how="Brokers that write without mmap write whole pages, and what was in the buffer before stays behind the "
        "end.",
        says=f"{DAMAGE_MEANINGS['leftover']} ({{bytes}} bytes)",
        effect="a start takes the log to end before them",
        versions=(("all", "new messages overwrite them."),),
        repair="No repair is needed.",
    ),
    Entry(
        code="commitlog.stale-records",
        fault="F29",
        severity="info",
        treatment="start",
        is_trace=True,
        title="Old records past the end of the log",
        what="After the logical end of the log stand records that were cut from it.",
        how="A start cuts the log without zeroing what follows the cut.",
        says="old records past the end of the log",
        effect="none, until a new record ends exactly where an old one begins: then a later recovery brings the old "
        "ones back",
        versions=(("all", "ignores them as long as they do not join the log."),),
        repair="No repair is needed.",
        not_detected="A scan that goes on after damage cannot tell cut records from records after a bad one: such "
        "records are counted as good.",
    ),
    Entry(
        code="commitlog.body-crc",
        fault="F16",
        severity="error",
        treatment="neutralise",
        title="A message's body is not what was stored",
        what="The CRC-32 of the body differs from the one in the record.",
        how="A flipped bit on the disk or in memory, a page of another time after a power loss.",
        says={
            "": "body of {body_size} bytes: CRC {found:#010x}, stored {expected:#010x}",
            "kept": "a body is not what was stored, its CRC differs; without --neutralise the message keeps its place",
        },
        effect="consumers get the damaged body; a recovery scan that reaches it takes it for the end of the log, and "
        "deletes everything after it",
        versions=_SCAN_VERSIONS,
        repair=f"{_SCAN_REPAIR} Without a copy of the message the choice is yours: as it is, consumers get the "
        "damaged body.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
        not_detected="A CRC covers the body only. A body of no bytes has none. Topic, properties and numbers are "
        "covered only in records with the property __CRC32#.",
    ),
    Entry(
        code="commitlog.property-crc",
        fault="F16",
        severity="error",
        treatment="none",
        title="A record is not what its __CRC32# property says",
        what="Since 5.2.0, with enabledAppendPropCRC, a record ends with a CRC-32 over all of it. It differs.",
        how="As commitlog.body-crc, but anywhere in the record.",
        says={
            "other": "{message_size} bytes: CRC {computed:#010x}, __CRC32# has {stored:#010x}",
            "unreadable": "{message_size} bytes: CRC {computed:#010x}, __CRC32# has nothing that can be read",
        },
        effect="noticed only with forceVerifyPropCRC: then a recovery scan that reaches it takes it for the end of the "
        "log",
        versions=(
            ("before 5.2.0", "does not know the property."),
            ("5.2.0 and later", "with forceVerifyPropCRC as commitlog.body-crc; else does not look at it."),
        ),
        repair="Restore the bytes from a replica or a backup. A repair leaves the record as it is: brokers "
        "without forceVerifyPropCRC serve it.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.lengths",
        fault="F17",
        severity="error",
        treatment="neutralise",
        title="The lengths in a record do not add up",
        what="Body, topic and properties together do not give the record's size.",
        how="A flipped bit in one of the lengths, or something else was written over the record.",
        says=f"{DAMAGE_MEANINGS['lengths']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE,
        versions=_SCAN_VERSIONS,
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.truncated",
        fault="F17",
        severity="error",
        treatment="neutralise",
        title="A file ends inside a record",
        what="A record's size leads past the end of its file.",
        how="A flipped bit in the size, or the file was cut.",
        says=f"{DAMAGE_MEANINGS['truncated']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE,
        versions=_SCAN_VERSIONS,
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.magic-code",
        fault="F18",
        severity="error",
        treatment="neutralise",
        title="Neither a message nor a blank begins where one should",
        what="The four bytes that give the kind of record are none that RocketMQ writes.",
        how="A flipped bit, a page of something else, or a wrong size in the record before.",
        says=f"{DAMAGE_MEANINGS['magic-code']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE,
        versions=_SCAN_VERSIONS,
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.zeroed",
        fault="F18",
        severity="error",
        treatment="neutralise",
        title="Zero bytes inside the commit log",
        what="Zeros where a record should begin, and good records after them.",
        how="A page was not on the disk when the power went; a disk or RAID lost blocks; a sparse copy went wrong.",
        says=f"{DAMAGE_MEANINGS['zeroed']} ({{bytes}} bytes)",
        effect=_SCAN_ENDS_HERE,
        versions=_SCAN_VERSIONS,
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.physical-offset",
        fault="F19",
        severity="error",
        treatment="neutralise",
        title="A record gives another position than its own",
        what="The physical offset stored in the record is not where the record stands.",
        how="The file was copied from another broker or renamed; a flipped bit.",
        says=f"{DAMAGE_MEANINGS['physical-offset']} ({{bytes}} bytes)",
        effect="a recovery scan goes on, but derives a consume queue unit that points to the wrong place; the queue "
        "may then refuse later messages until the log has grown past it",
        versions=(
            ("4.4.0 to 5.4", "a rebuilt queue gets a wrong unit, and may be stuck after it."),
            (
                "5.5.0 and later",
                "the same; with checkCommitLogOffsetOnRecover a start after a crash cuts the log here.",
            ),
        ),
        repair="Give a renamed file the name that its first record gives. Else restore the bytes from a replica or a "
        "backup. Then rebuild the consume queue.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.entry-header",
        severity="error",
        treatment="neutralise",
        title="The header of a DLedger entry does not fit",
        what="Before each message of a DLedger log stands a header of 48 bytes. It gives another position or size than "
        "the entry has, a Raft index that is not the next one, or a lower Raft term than the entry before.",
        how="A flipped bit; a file of another node.",
        says={
            "position": "the entry gives the position {found}, and stands at {expected}",
            "size": "the entry gives its message {found} bytes, and that has {expected}",
            "index": "the entry has the Raft index {found} after {before}",
            "term": "the entry has the Raft term {found} after {before}",
        },
        effect="messages are served; but a start that reaches it takes it for the end of the log, and cuts everything "
        "after it",
        versions=(
            (
                "DLedger 0.2 and later",
                "every start reads the last three files, or more where the index does not lead to their first "
                "entries. More than a file before the beginning of the last one, the node does not start. Further "
                "back the entry is not read, but followers that lack it do not get it.",
            ),
        ),
        repair="Start no node on it. Give it its log again from the leader of its group, or make an ordinary store: "
        "`rmqtool salvage` needs no header.",
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.blank",
        fault="F20",
        severity="error",
        treatment="neutralise",
        title="The end of a commit log file is not as it should be",
        what="A file that is not the last must end with a blank of the right length. It is missing, zeroed, or has "
        "another length.",
        how="The file size was changed, a crash, an incomplete copy.",
        says={
            "none": "the last record ends exactly at the file's end, so that no blank follows",
            "size": "a blank of {found} bytes where {left} are left in its file",
            "inside": "a blank inside its file, with records after it ({bytes} bytes)",
            "zeros": "zeros up to the end of the file, where a blank should be ({bytes} bytes)",
        },
        effect="a missing, zeroed or too long blank is the end of the log for a recovery scan: later files are deleted",
        versions=(
            ("4.4.0 to 5.3.1", "a missing or zeroed blank ends the log; a wrong length is ignored."),
            ("5.3.2 and later", "a blank that is too long ends the log too; one too short is ignored."),
            ("5.5.1 and later", "one of negative size ends it, too."),
        ),
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
    Entry(
        code="commitlog.huge-size",
        fault="F21",
        severity="error",
        treatment="neutralise",
        title="A record claims a size that none can have",
        what="The kind of record is right, the size is larger than any broker accepts.",
        how="A flipped bit in the size.",
        says="claims {claimed} bytes, more than its file has left ({bytes} bytes)",
        effect="a recovery scan that reaches it dies of OutOfMemoryError before 5.3.2; later it takes it for the end "
        "of the log",
        versions=(
            ("4.4.0 to 5.3.1", "the broker cannot start: OutOfMemoryError, in every attempt."),
            ("5.3.2 and later", "the log is cut here and later files are deleted."),
        ),
        repair=_SCAN_REPAIR,
        remedy="rmqtool inspect {store}/commitlog --from-offset {offset} --limit 1",
    ),
)
