"""Findings of the rebuilds, and of `export --check`."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_VERIFY = "rmqtool verify {store}"
_AS_IT_IS = {"all": "uses the written files like its own."}

REBUILDS = (
    Entry(
        code="rebuild.file-size-assumed", severity="info",
        title="The size of new files is the default one",
        what="No file of that kind is there, and broker.conf was not given or does not set it.",
        how="A whole directory was deleted, or nothing was ever stored.",
        says={
            "queues": "the store has no file that shows the size of {kind}: the default, {bytes} bytes, is used. If "
                      "broker.conf sets {setting}, give it with --broker-conf",
            "index": "the store has no file that shows the size of {kind}: the default, {slots} slots and {units} "
            "entries, is used. If broker.conf sets {setting}, give it with --broker-conf",
        },
        effect="with another size set a broker refuses to start on these files, or reads an index at wrong places",
        versions={"all": "expects the sizes of its configuration, which are the default ones unless set."},
        repair="Give the broker's broker.conf with --broker-conf; unset values are the defaults. Queue files of "
               "unknown size can be planned (--dry-run) and written elsewhere (--output), but not into a store.",
    ),
    Entry(
        code="rebuild.file-size-differs", severity="warning",
        title="broker.conf and the files give different sizes",
        what="Most queue files have another size than broker.conf sets; that of broker.conf is written.",
        how="The setting was changed, or the file is that of another broker.",
        says="{setting} gives {configured} bytes, but most files of the queues have {found}: those of broker.conf "
        "are written",
        effect="a broker refuses to start on files whose size is not that of its configuration",
        versions={"all": "refuses to start; 4.4.0 and 4.9.2 ignore the files of another size."},
        repair="Give the broker.conf with which the broker runs.",
    ),
    Entry(
        code="rebuild.version-assumed", severity="info",
        title="The rules for the index were assumed",
        what="From 5.4.0 on tags are keys too, before 4.7.1 a header counts every put; no version was given.",
        how="--broker-version was not given.",
        says={
            "newest": "releases {releases} fit this store, and from {since} on tags are keys of the index too: the "
            "rules of {taken} are used; --broker-version names another",
            "shown": "rules of {releases} ({evidence!l}): tags are not indexed; --broker-version names another",
        },
        effect="brokers before 5.4.0 never look for tags; from 5.4.0 on a query by tag needs them",
        versions=_AS_IT_IS,
        repair="Give --broker-version.",
    ),
    Entry(
        code="rebuild.rocksdb-unreadable", severity="warning",
        title="Part of the database of the consume queues cannot be read",
        what="A table, the MANIFEST or CURRENT is missing or damaged; unreadable rows count as missing.",
        how="A disk error, a copy of a running store, or a file that was deleted.",
        says="{why}",
        effect="a broker does not start on the database, or its queues end where the damage begins",
        versions={"5.2.0 and later": "keeps consume queues in RocksDB with storeType=defaultRocksDB."},
        repair="`rmqtool rebuild-cq STORE` writes it again from the log. For queues whose messages have expired, it "
               "keeps the ends that can be read.",
    ),
    Entry(
        code="rebuild.not-carried", severity="warning",
        title="A conversion leaves something out",
        what="Configuration that the broker keeps in JSON files, but cannot keep in RocksDB.",
        how="rmqtool rebuild-cq --to rocksdb, for a release before 5.3.1 or for configManagerVersion=v2.",
        says="{count:group} may not read some topics (forbiddenTable), which this broker does not keep in RocksDB",
        effect="starts without it",
        versions={"5.1.4 to 5.3.0, and v2": "keep forbiddenTable in memory only."},
        repair="Set it again once the broker runs, or convert for a newer release. `rmqtool undo STORE` brings the "
        "file back.",
    ),
    Entry(
        code="rebuild.version-needed", severity="warning",
        title="What is rebuilt depends on a release that is not known",
        what="Releases differ in entries or keys that are missing, and nothing in the store shows which one wrote "
        "them: which records with INNER_MULTI_DISPATCH go to light queues, and whether a property whose value has the "
        "byte 0x01 counts (since 4.9.1).",
        how="--broker-version was not given.",
        says={
            "units": "{count:entry} of {queues:queue} ({topic}, queue {queue_id}[ and {more:more}]) depend on the "
            "release that wrote them, one of {releases}",
            "index": "releases before 4.9.1 leave out keys with the byte 0x01, and it was one of {releases}",
        },
        effect="with the wrong rules a light queue misses messages, or gets some that were never in it",
        versions={
            "4.9.3 to 4.9.8": "every record.",
            "5.0.0 and later": "not those of retry and system topics.",
            "5.5.0 and later": "not those of dead letter topics.",
        },
        repair="Give --broker-version with the release that wrote these messages. Without it nothing is written.",
    ),
    Entry(
        code="rebuild.index-disabled", severity="info",
        title="The broker keeps no index",
        what="broker.conf sets messageIndexEnable=false, or from 5.4.0 on indexFileWriteEnable=false.",
        how="The setting; existing index files are older than it.",
        says="{setting}=false: this broker puts nothing into an index, and none is built",
        effect="adds no keys to an index; queries by key find only the keys in older files",
        versions={"all": "honours messageIndexEnable.", "5.4.0 and later": "also honours indexFileWriteEnable."},
        repair="To build an index anyway, leave out --broker-conf.",
    ),
    Entry(
        code="rebuild.ext-units", severity="info",
        title="Entries of consumequeue_ext/ are not rebuilt",
        what="Entries that a rebuild writes have the plain tags code, not an address in consumequeue_ext/.",
        how="enableConsumeQueueExt=true: an ext unit adds the filter bits of SQL subscriptions, which are in no log.",
        says="written entries have the plain tags code, without filter bits in consumequeue_ext/",
        effect="filters these messages by their tags code, and for SQL subscriptions by the message itself",
        versions={"all": "accepts both kinds of entry."},
        repair="Nothing: correct entries with an address are kept if their whole file is correct.",
    ),
    Entry(
        code="rebuild.topic-name",
        title="The log names a queue that no directory can have",
        what="A topic that would lead out of its directory, is too long, or a queue number below 0: not written.",
        how="A flipped bit that no CRC covers, or a hand-made message.",
        says="not rebuilt, the log names a queue that is refused ({why}): {count:entry}",
        effect="a broker fails to write such a queue, or writes it outside of its directory",
        versions={"all": "uses the unchanged topic as a path."},
        repair="Look at the records: rmqtool inspect lists them.",
    ),
    Entry(
        code="rebuild.queue-offset-jump",
        title="Stored queue offsets jump",
        what="More messages are missing between two messages of a queue than the lost bytes of the log can have "
             "contained.",
        how="A flipped bit in several offsets, or a queue that was written by several brokers in turn.",
        says="not rebuilt: stored queue offsets jump from {start} to {end}, more than the lost bytes of the log can "
             "have contained; --append-order closes the jump",
        effect="a broker that derives the queue closes the jump: later messages get smaller offsets",
        versions={"all": "appends the entry where the queue ends, and logs that the order may be wrong."},
        repair="Nothing is written for the queue. --append-order closes the jump as a broker does.",
    ),
    Entry(
        code="rebuild.neutral-units", severity="warning",
        title="Placeholders for lost messages",
        what="The log has lost messages of a queue; placeholders preserve the offsets of the others.",
        how="Damage to the commit log, or a file of it that is missing.",
        says="{count:message is|messages are} lost: placeholders preserve the other offsets",
        effect="a pull skips them, or delivers the next message again with its own offset",
        versions=_AS_IT_IS,
        repair="Nothing needs to be done. --append-order closes such gaps, and moves committed offsets accordingly.",
    ),
    Entry(
        code="rebuild.no-messages-in-log", severity="warning",
        title="A queue or the index is not changed: the log has no message of it",
        what="Entries of the queue point into the log or past its end, but no message in the log belongs to this "
             "queue; or "
        "there is an index, and no message at all.",
        how="The end of the log is lost, a file of it is missing, or the queue is of another store.",
        says={
            "index": "the index is not changed: the log has no message",
            "queue": "not changed: the log has no message of it, but its entries point into the log or past its end",
        },
        effect="cuts off entries that point past the end of the log, and serves no message of the others",
        versions=_AS_IT_IS,
        repair="Look for missing files of the log first. If they cannot be restored, move the directory away.",
    ),
    Entry(
        code="rebuild.superseded", severity="info",
        title="A queue began again at a lower offset",
        what="The stored queue offsets go back; from there on, the entries are those of the later messages.",
        how="The queue ended before the log at an unclean stop, or the topic was deleted and created again.",
        says="{count:entry is|entries are} left out: the queue began again at a lower offset",
        effect="serves the later messages too",
        versions=_AS_IT_IS,
        repair="Nothing needs to be done.",
    ),
    Entry(
        code="rebuild.queue-offset", severity="warning",
        title="A stored queue offset contradicts the messages around it",
        what="Exactly one offset is free between its neighbours, but its stored offset differs: it gets the free one.",
        how="A flipped bit: no CRC covers the stored offset.",
        says="{count:stored queue offset is|stored queue offsets are} contradicted by the neighbouring messages",
        effect="delivers the message with the stored offset, which clients use as its place",
        versions=_AS_IT_IS,
        repair="Nothing needs to be done.",
    ),
    Entry(
        code="rebuild.stranger", severity="warning",
        title="Messages without a queue: their queue offset does not fit anywhere",
        what="The queue that a record names continues as if the record were not there: its topic, queue id or queue "
        "offset is damaged, and no queue entry shows its queue.",
        how="A flipped bit: no CRC covers these fields.",
        says="{count:message is|messages are} left out: the queue continues as if they were not there",
        effect="consumers do not get the message; all others keep their places",
        versions={"all": "puts the message at the place given by its fields, and drops others of that queue."},
        repair="Find the message with `rmqtool inspect`, or restore the bytes from a replica or a backup.",
    ),
    Entry(
        code="rebuild.shifted", severity="warning",
        title="Entries are at other offsets than stored, as a broker puts them",
        what="With --append-order entries are numbered in the order in which a broker appends them.",
        how="Gaps or repeated offsets in the log.",
        says="{count:entry is|entries are} put at another offset than stored, as a broker does",
        effect="delivers them; committed offsets may mean other messages",
        versions={"all": "derives the same from this log."},
        repair="Without --append-order the stored offsets are kept.",
    ),
    Entry(
        code="rebuild.repeated", severity="info",
        title="Duplicate entries are dropped",
        what="Their offsets are below the end of the queue, or their record has its entry already.",
        how="A topic that was deleted and created again; a queue that a record names twice.",
        says="{count:entry is|entries are} dropped as duplicates, as a broker does",
        effect="does not deliver them",
        versions={"all": "drops them too."},
        repair="Without --append-order the later messages count.",
    ),
    Entry(
        code="commitlog.skipped", severity="warning",
        title="Bytes of the log were skipped",
        what="They have no record; what follows them is still derived.",
        how="Damage of any kind: verify reports each.",
        says="{bytes:byte of the commit log holds|bytes of the commit log hold} no record ({reasons!l}): skipped, the "
             "rest is rebuilt",
        effect="a start that scans this part of the log ends the log there and deletes what follows",
        versions={"all": "ends the log at the first record that it cannot read."},
        repair="Look for start.data-loss before you start the broker; rmqtool repair fixes the log.",
        remedy=_VERIFY,
    ),
    Entry(
        code="commitlog.neutralised", severity="info",
        title="Damage is replaced by dummy records",
        what="Rolled-back messages of the topic %RMQTOOL%LOST, or a blank, replace the unreadable bytes.",
        how="rmqtool rebuild-cq --neutralise.",
        says={
            "": "{bytes} bytes are a dummy record in place of damage",
            "done": "{bytes:byte in|bytes in} {count:place is replaced by dummy records|places are replaced by dummy "
            "records}; the bytes are kept until undo",
        },
        effect="scans past them; a slave or replica with the original bytes differs from then on",
        versions={"all": "derives nothing from a rolled back message."},
        repair="rmqtool undo restores the bytes.",
    ),
    Entry(
        code="commitlog.not-neutralised",
        title="Damage is too small for a dummy record",
        what="A record takes at least 92 bytes: smaller damage is not changed.",
        how="Damage between two adjacent intact records.",
        says="{bytes:byte is|bytes are} too few for a dummy record: nothing is done",
        effect="a start that scans this part of the log ends the log there",
        versions={"all": "ends the log at the first record that it cannot read."},
        repair="Rebuild queues and index, and keep the broker from scanning that part: a clean stop, no file abort.",
    ),
)  # fmt: skip


_EFFECT = "none: the store is not affected"
_VERSIONS = {"all": "do not use exports."}
_REPAIR = "Export again to another directory, check it, and replace this one with it."

EXPORTS = (
    Entry(
        code="export.file",
        title="An exported file has changed",
        what="It is missing, damaged, has another size or number of rows, or is in no manifest.",
        how="It was deleted, cut by a copy, written by another program; or two exports went to one directory.",
        says={
            "unreadable": "cannot be read: {why}",
            "size": "{rows} rows in {bytes} bytes, where the manifest has {expected_rows} rows in {expected_bytes} "
            "bytes",
            "crc": "the CRC-32 of its bytes is {crc}, where the manifest has {expected_crc}",
            "extra": "not in the manifest, but readers of the directory read it",
        },
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
    Entry(
        code="export.sums",
        title="The manifest does not match the log",
        what="A queue has another number of rows, or other first or last offsets, than the log; or a total is wrong.",
        how="The log was changed since the export, or the manifest was.",
        says={
            "total": "{found} {name} in all, where the files in it have {expected}",
            "queue": "{differences}",
            "no-queue": "{rows:message} in the log, none in the manifest",
        },
        parts={"differences": "{name} {expected}, in the log {found}"},
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
    Entry(
        code="export.missing",
        title="Messages are missing in the export",
        what="The log has messages without an exported row.",
        how="The files or the log were changed since the export, or files of several exports are mixed.",
        says="{count:message of the log is|messages of the log are} not in the export; physical offsets {offsets!l}[ "
        "and {more} more]",
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
    Entry(
        code="export.extra",
        title="Rows of the export are not in the log",
        what="The log has no message at the offsets of these rows.",
        how="The files or the log were changed since the export, or files of several exports are mixed.",
        says="{count:row is|rows are} in the export and not in the log; physical offsets {offsets!l}[ and {more} more]",
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
    Entry(
        code="export.doubled",
        title="Duplicate messages in the export",
        what="Several rows have one physical offset.",
        how="The files or the log were changed since the export, or files of several exports are mixed.",
        says="{count:message is|messages are} in the export more than once; physical offsets {offsets!l}[ and {more} "
        "more]",
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
    Entry(
        code="export.differs",
        title="Rows differ from the log",
        what="A column has another value than the log gives.",
        how="The files or the log were changed since the export, or files of several exports are mixed.",
        says="{count:row has|rows have} another {column} than the log; physical offsets {offsets!l}[ and {more} more]",
        effect=_EFFECT, versions=_VERSIONS, repair=_REPAIR,
    ),
)  # fmt: skip
