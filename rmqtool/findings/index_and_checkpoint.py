"""Findings about what the broker derives and keeps beside the log: index and checkpoint."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_REBUILD = "rmqtool rebuild-index {store} --dry-run"
_INDEX_TRUSTED = {"all": "does not check index files at all."}
_INDEX_REPAIR = (
    "Rebuild the index. Or delete the directory index/ while no broker runs: messages are kept, keys are lost."
)

DERIVED = (
    Entry(
        code="index.geometry", fault="F44", severity="warning", treatment="index",
        title="An index file has a wrong size",
        what="It is not the size of the configured geometry, or of the other files; or no number of hash slots fits.",
        how="maxHashSlotNum or maxIndexNum was changed; an incomplete copy.",
        says={
            "no-slots": "its header says {keys:key}, but no number of hash slots fits its size and entries; "
            "--broker-conf with maxHashSlotNum and maxIndexNum settles it",
            "size": "it has {size:byte}, brokers map {expected}: {units} of its {keys:key} are there",
            "changing": "the running broker changes it faster than its geometry can be read: not verified",
        },
        effect="the broker does not notice: queries by key miss messages or find none",
        versions={"all": "maps the file with the configured size, whatever its contents."},
        repair="Give --broker-conf with maxHashSlotNum and maxIndexNum. " + _INDEX_REPAIR,
        remedy=_REBUILD,
    ),
    Entry(
        code="index.header", fault="F44", severity="warning", treatment="index",
        title="An index file's header is invalid",
        what="It counts more entries than fit, or its times or offsets run backwards. A number of used "
        "hash slots that no release would have counted is only information: no broker reads it.",
        how="A crash, a flipped bit.",
        says={
            "too-many-units": "{keys:entry}, more than fit in: {room}",
            "end-timestamp": "end timestamp {found}",
            "timestamp": "{field} timestamp {found}, its message was stored at {expected}",
            "physical-offset": "{field} physical offset {found}, that of entry {unit} is {expected}",
            "used-slots": "its header counts {found:used hash slot}; it has {least}, and {most:entry}",
            "empty": "the file is empty",
            "negative-counts": "it counts {index_count} entries and {hash_slot_count} used hash slots",
            "no-units": "its header counts no entry, and there are some after it",
        },
        effect="the broker does not notice: queries by key miss messages",
        versions=_INDEX_TRUSTED, repair=_INDEX_REPAIR, remedy=_REBUILD,
    ),
    Entry(
        code="index.slot", fault="F44", severity="warning", treatment="index",
        title="A hash slot does not point to one of its entries",
        what="A slot's number is larger than the number of entries, or the entry there belongs to another slot.",
        how="A page was not flushed before a power loss; a flipped bit.",
        says={
            "link": "entry {unit}: links to entry {found}, expected {expected}",
            "slot": "hash slot {slot}: points to entry {found}, expected {expected}",
        },
        effect="queries for keys of this slot find nothing",
        versions=_INDEX_TRUSTED, repair=_INDEX_REPAIR, remedy=_REBUILD,
    ),
    Entry(
        code="index.chain", fault="F44", treatment="index",
        title="A loop in a chain of index entries",
        what="An entry's predecessor is itself or a newer one.",
        how="A flipped bit, a torn page.",
        says="entry {unit}: links to entry {found}, which is not older",
        effect="a query by key for this slot may never end and block a thread of the broker",
        versions=_INDEX_TRUSTED, repair=_INDEX_REPAIR, remedy=_REBUILD,
    ),
    Entry(
        code="index.unit", fault="F44", severity="warning", treatment="index",
        title="An index entry does not point to its message",
        what="No record is where it points, or one without the key of the entry.",
        how="Index and commit log from different times; a flipped bit; a log that was cut.",
        says={
            "seconds": "entry {unit}: {found} s after the file's begin, the message was stored {expected} s after it",
            "no-record": "entry {unit}: no record begins at physical offset {physical_offset}",
            "other-key": "entry {unit}: hash {found} is that of no key of the message at {physical_offset}",
            "negative-hash": "entry {unit}: a hash below 0: {found}",
        },
        effect="queries by key find nothing for it, or a message with another key",
        versions=_INDEX_TRUSTED, repair=_INDEX_REPAIR, remedy=_REBUILD,
    ),
    Entry(
        code="index.ahead", fault="F44", severity="warning", treatment="index", is_trace=True,
        title="The index points past the end of the commit log",
        what="The newest index entries are of messages that are not in the commit log.",
        how="A power loss that kept the index and lost the end of the log; a commit log file that is missing at the "
        "end; an index from another time.",
        says="entry {unit}: points past the end of the commit log[ (and {others:more entry})]",
        effect="queries by key find nothing for these entries; a start after a crash deletes the file, after a clean "
        "stop new messages are not indexed until the log has grown past them",
        versions=_INDEX_TRUSTED, repair=_INDEX_REPAIR, remedy=_REBUILD,
    ),
    Entry(
        code="index.missing", fault="F45", severity="warning", treatment="index",
        title="Messages have keys that are not in the index",
        what="A record has keys, and no index entry points to it. Information after an unclean stop for keys that the "
             "next start adds again, for tags, which only brokers since 5.4.0 add, and if broker.conf has "
             "messageIndexEnable=false or indexFileWriteEnable=false.",
        how="The directory index/ or one of its files was deleted, emptied or not restored. Or a start after a crash: "
        "it deletes the newest index file, and builds only the newest part again.",
        says={
            "keys": "{keys:key} of messages from physical offset {physical_offset} on",
            "no-file": "{keys:key} of messages from physical offset {physical_offset} on; there is no index file",
            "unknown-units": "{keys:key} of messages from physical offset {physical_offset} on; the index files do not "
            "show where their entries are",
        },
        effect="queries by key do not find these messages",
        versions={"all": "a clean start never builds an index; a start after a crash does so for the part that it "
                         "scans."},
        repair="Rebuild the index. If the broker should not keep one, give --broker-conf with "
               "messageIndexEnable=false.",
        remedy=_REBUILD,
    ),
    Entry(
        code="index.duplicate-unit", fault="F45", severity="info",
        title="Duplicate index entries",
        what="The same key of the same message has more than one entry.",
        how="The broker indexes the last record again after a start.",
        says={
            "repeated": "entry {unit}: exists already[ (and {others:more entry})]",
            "out-of-order": "entry {unit}: out of order: points to physical offset {physical_offset}",
        },
        effect="none: clients see one message",
        versions={"all": "indexes the record at the end of the index again."},
        repair="No repair is needed. A rebuild of the index drops them.",
    ),
    Entry(
        code="index.row", fault="F59", severity="warning", treatment="none",
        title="A row of the index in RocksDB points to no message with its key",
        what="A row of rocksdbstore is of another form, or its message is gone, is from another time, or has no such "
        "key.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="a query by the key finds nothing, or another message",
        versions={"5.4.0 and later": "keep an index there with indexRocksDBEnable."},
        repair="`rmqtool rebuild-index` writes index files, which a broker without indexRocksDBReadEnable reads.",
    ),
    Entry(
        code="index.row-missing", fault="F59", severity="warning", treatment="none",
        title="A message has a key without a row in RocksDB",
        what="The index in rocksdbstore has rows of older and of newer messages, but none of this message's key.",
        how="A broker was killed: rows reach the disk late, and a start reads only the last files of the log.",
        says="{key} has no row",
        effect="a query by the key does not find the message",
        versions={"5.4.0 and later": "keep an index there with indexRocksDBEnable."},
        repair="`rmqtool rebuild-index` writes index files, which a broker without indexRocksDBReadEnable reads.",
    ),
    Entry(
        code="index.name", fault="F46", severity="warning", treatment="index",
        title="Index file names are not in the order of their messages",
        what="A name is the creation time: the later file must have the later messages.",
        how="The broker's clock was set back; files were copied or swapped by hand.",
        says="sorts after {other_file}, but has older messages",
        effect="queries by key with a start time find nothing in files that sort before a file with older messages",
        remedy=_REBUILD,
        versions={
            "all": "reads files from the last name to the first, up to one that begins before the query does.",
            "4.x": "stops loading index files at a directory whose name is a number.",
            "5.0 and later": "refuses to start at a directory whose name is a number.",
        },
        repair="Rebuild the index. Move other files out of the directory.",
    ),
    Entry(
        code="checkpoint.missing", fault="F14", severity="warning", treatment="files",
        title="There is no checkpoint",
        what="The file checkpoint does not exist, or is shorter than its numbers.",
        how="It was not copied, or the broker never stopped properly.",
        says="the file is not there",
        effect="a start after a crash scans the whole log (since 5.4.0 the last ten files) and cuts it at the first "
        "bad record",
        versions={
            "4.4.0 to 5.3": "a missing number is 0: every start after a crash begins at the first file.",
            "5.4.0 and later": "the same with the last ten files.",
        },
        repair="No repair is needed while the log is intact. While it is damaged, do not start a broker with abort "
               "present.",
    ),
    Entry(
        code="checkpoint.future", fault="F14", severity="warning", treatment="start", is_trace=True,
        title="The checkpoint is newer than the commit log",
        what="A time in the checkpoint is later than the newest record.",
        how="A power failure: the checkpoint was on disk and the end of the log was not. Or the clock was set back, or "
        "log and checkpoint were restored from different times.",
        says="{fields}: {time!t}, the newest message is of {newest!t}",
        effect="a start after a crash scans the last file only, so that queues without entries of older messages are "
               "not completed (start.queue-loss shows whether there are any); the next message corrects it",
        versions={
            "all": "trusts the checkpoint after a crash, and does not read it after a clean stop.",
            "5.5.0 and later": "the same, but its offset comes before its times (checkpoint.logics-offset).",
        },
        repair="No repair is needed, unless start.queue-loss or consumequeue.hole is reported as well: then rebuild "
        "the queues.",
    ),
    Entry(
        code="checkpoint.behind", fault="F14", severity="info",
        title="The checkpoint is much older than the commit log",
        what="The checkpoint's times are 0 or much older than the newest record.",
        how="Normal after a crash; or the checkpoint is older than the log.",
        says="a timestamp is 0",
        effect="a start after a crash scans from that time on",
        versions={"all": "scans from the last file whose first record is not newer than the checkpoint."},
        repair="No repair is needed.",
    ),
    Entry(
        code="checkpoint.logics-offset", fault="F14", severity="warning", treatment="files", is_trace=True,
        title="The checkpoint's offset is not the start of a record",
        what="Bytes 40 to 47, which 5.5.0 uses, point after the log or between two records.",
        how="A power failure lost the end of the log; or the log was cut or restored, but not the checkpoint. An error "
        "when broker.conf has enableAcceleratedRecovery=true.",
        says="no record begins at {physical_offset}",
        effect="5.5.0 with enableAcceleratedRecovery refuses to start or cuts the log there; without it, the offset "
               "only selects the file where a start after a crash begins",
        versions={"before 5.5.0": "does not read it.", "5.5.0 and later": "as above."},
        repair="Switch enableAcceleratedRecovery off for the next start.",
    ),
)  # fmt: skip
