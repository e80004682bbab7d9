"""Findings about databases beside the log: configuration, index, timers, half messages and POP records in RocksDB."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_DAMAGED = {
    "log": "{name} is damaged at byte {damaged_from}: what was written to the database after it is lost",
    "": "{why}",
    "empty": "the directory is empty: a broker makes it with a database",
    "offsets": "consumer offsets cannot be read ({why}); none are shown",
}

ROCKSDB = (
    Entry(
        code="config.rocksdb-damaged",
        fault="F52",
        severity="error",
        treatment="decide",
        title="A database of topics, groups or offsets is damaged",
        what="A table, the MANIFEST, CURRENT or the write-ahead log of a database in config/ is missing or damaged, or "
        "tables are there that the MANIFEST does not name; or it has a column family that no broker names when it "
        "opens the database; releases since 5.3.4 open all that are there. One that is gone or empty as a whole is "
        "config.missing.",
        how="A disk error, a copy of a running store, or a file that was deleted.",
        says=_DAMAGED,
        effect="the broker does not start on it, or starts without the rows that were lost",
        versions=(("5.1.4 and later", "keep topics, groups and offsets in RocksDB with storeType=defaultRocksDB."),),
        repair="Put the whole directory back from a backup or a copy of the same time. Without one move it away: the "
        "broker starts with empty tables, topics and groups are made again, and offsets are to be set while clients "
        "are stopped.",
    ),
    Entry(
        code="config.row",
        fault="F52",
        severity="error",
        treatment="decide",
        title="A row of topics, groups or offsets that no broker writes",
        what="A key or a value of another form than its table has: no JSON, a name other than its key, no number.",
        how="An edit by hand, a program other than the broker, or a disk error that no checksum covers.",
        says="{key!r}: {why}",
        effect="the broker refuses to start, or takes the row for another one",
        versions=(("5.1.4 and later", "decode every row at a start."),),
        repair="`rmqtool inspect STORE/config/NAME` shows the rows. Put the directory back from a backup, or carry the "
        "others over: `rmqtool rebuild-cq STORE --to files` once the row is fixed.",
    ),
    Entry(
        code="config.swapped-offset",
        severity="info",
        title="A committed offset with topic and group in each other's place",
        what="config/rdb holds an offset whose group is the name of a topic.",
        how="mqadmin resetOffsetByTime with configManagerVersion=v2: the broker commits with its arguments swapped.",
        says="topic {topic_name!r} and group {group!r} stand in each other's place, as a reset leaves them",
        effect="none: nobody asks for it",
        versions=(("5.3.2 and later", "do so with version 2."),),
        repair="No repair is needed.",
    ),
    Entry(
        code="store.rocksdb-damaged",
        fault="F59",
        severity="error",
        treatment="decide",
        title="The database of index, timers and half messages, or that of POP, is damaged",
        what="A table, the MANIFEST, CURRENT or the write-ahead log of rocksdbstore or kvStore is missing or damaged, "
        "or tables are there that the MANIFEST does not name; or it has a column family that no broker names when it "
        "opens the database.",
        how="A disk error, a copy of a running store, or a file that was deleted.",
        says=_DAMAGED,
        effect="the broker does not start on it, or timers are not delivered and half messages are not checked",
        versions=(("5.4.0 and later", "open rocksdbstore at every start."), ("5.3.2 and later", "may have kvStore.")),
        repair="Put the directory back from a backup of the same time. Without one move it away: the broker makes "
        "it again, and derives what the last files of the log hold (commitLogRecoverMaxNum).",
    ),
    Entry(
        code="store.half-row",
        fault="F59",
        severity="warning",
        treatment="none",
        title="A row of a half message leads to none",
        what="A row in the family trans of rocksdbstore is of another form, or leads to no half message of that size.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="the broker asks no producer for it",
        versions=(("5.4.0 and later", "keep half messages there with transRocksDBEnable."),),
        repair="`rmqtool pending` lists the half messages that have no answer.",
    ),
    Entry(
        code="store.pop-store-missing",
        severity="warning",
        treatment="none",
        title="What POP consumers hold is gone",
        what="By broker.conf the broker keeps in kvStore/ which messages POP consumers have taken and not "
        "acknowledged, and this database is not there, although groups have consumed messages.",
        how="kvStore/ was deleted or not copied. Or popConsumerKVServiceInit was switched on just now: then nothing is "
        "lost.",
        says="{setting}=true keeps in it what POP consumers hold, and it is not there",
        effect="the broker makes an empty one: what was taken and not acknowledged is never delivered again",
        versions=(
            (
                "5.3.2 and later",
                "make kvStore/ where popConsumerKVServiceInit is on, and use it where "
                "popConsumerKVServiceEnable is, too.",
            ),
        ),
        repair="Put kvStore/ back from a copy of the same time. Without one, set the groups back to before the first "
        "message that may have been in flight (mqadmin resetOffsetByTime): they get others again.",
        not_detected="Without broker.conf nothing in the store shows that there was one.",
    ),
    Entry(
        code="store.pop-row",
        fault="F59",
        severity="warning",
        treatment="none",
        title="A row of what a POP consumer holds leads nowhere",
        what="A row of kvStore is of another form, or names a queue offset past the end of its queue.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="the broker tries to deliver it again, and drops it",
        versions=(("5.3.2 and later", "keep them there with popConsumerKVServiceEnable."),),
        repair="No repair is needed: the message is delivered by its queue.",
    ),
)
