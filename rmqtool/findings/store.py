"""Findings about the store as a whole, and the machine that it is on."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

STORE = (
    Entry(
        code="store.in-use", fault="F01", treatment="stop",
        title="A broker runs on this store",
        what="A process holds the store's lock.",
        how="The broker is running, or a second one was started on the same directory.",
        says={
            "program": "{who} works on this store ({file}); what it writes now is not a fault",
            "": "a broker runs on this store ({file}); what it writes now is not a fault",
        },
        effect="a second broker recovers first, and deletes what it considers damage, before it notices the lock",
        versions={"all": "a second start cuts files under the running broker and then ends with `Lock failed`."},
        repair="Never start a second broker. rmqtool reads a store in use, and refuses to write to it.",
    ),
    Entry(
        code="store.unreadable", treatment="access",
        title="A part of the store cannot be read",
        what="A file or a directory gives an error instead of its bytes. The rest of the store is shown.",
        how="Missing permission, a dangling link, a failing disk.",
        says={
            "hidden": "{why}: it is not shown[ ({hint})]",
            "partly": "{why}: it is verified only in part[ ({hint})]",
            "": "{why}: it is not verified[ ({hint})]",
        },
        effect="does not start, or loses this part too, if its user cannot read it either",
        versions={"all": "read with the rights of the broker's user, and fail at the same bad sectors."},
        repair="Run as the broker's user. Copy a failing disk with a tool that skips bad sectors; use the copy.",
    ),
    Entry(
        code="store.wrong-kind", treatment="files",
        title="A file is where a directory belongs, or a directory where a file belongs",
        what="Something of another kind has the name of a part of the store, so nothing can be read. The rest of "
        "the store is verified.",
        how="A restore or a script that created a directory in place of a file, or a file in place of a directory.",
        says={
            "index": "expected an index file here: move away what is in its place; it is not verified",
            "other": "{found} where a {expected} should be: move it away; it is not verified",
        },
        effect="does not start, or cannot write that part",
        versions={"all": "as the finding says for each part."},
        repair="Move it away, and restore the part from a backup, or rebuild it if it is a queue or an index.",
    ),
    Entry(
        code="store.unclean-stop", fault="F13", severity="warning", treatment="start", is_trace=True,
        title="Unclean stop of the last broker",
        what="The file abort is there and no broker runs.",
        how="The broker was killed, crashed, or the machine went down.",
        says={
            "": "the last broker was killed or crashed: the file abort is there and no broker runs",
            "remote": "the file abort is there: a broker runs on the store, or the last one was killed or crashed",
        },
        effect="the next start recovers: it scans the end of the log and cuts the torn part",
        versions={
            "4.4.0 to 5.3": "scans from the file that the checkpoint's times select; without a checkpoint all files.",
            "5.4.0": "the same, no more than the last ten files.",
            "5.5.0 and later": "the same; the checkpoint's offset selects the file.",
        },
        repair="No repair is needed. Never create or remove abort to force one kind of start: verify shows what the "
               "next start would do, and reports start.other-mode-data-loss if another kind of start would be worse.",
        remedy="rmqtool verify {store}",
    ),
    Entry(
        code="store.abort-missing", fault="F13", severity="warning", treatment="queues",
        title="Signs of a crash, but the file abort is missing",
        what="The log's end is torn, or queues end before the log, although the last stop seems to have been clean.",
        how="The file was deleted or not copied; or a broker since 5.3.4 failed to load and removed it.",
        says={
            "crash": "the end of the log is torn or queues end before the log, as after a crash, but there is no file "
                     "abort",
            "torn": "the end of the log is torn, as after a crash, but there is no file abort",
        },
        effect="the next start considers the stop clean: in most versions queues that end before the log are not "
               "completed",
        versions={
            "before 5.3.4": "removes abort only at a clean stop.",
            "5.3.4 and later": "also after a start that failed before it had loaded anything.",
        },
        repair="Rebuild the consume queues that end before the log.",
        remedy="rmqtool rebuild-cq {store} --dry-run",
    ),
    Entry(
        code="store.permission", fault="F06", treatment="access",
        title="Files without write permission for the broker",
        what="A file or directory of the store belongs to another user than the others, or its owner may not write it.",
        how="The store was restored or touched as root, or made read-only in part.",
        says={
            "owner": "owned by user {uid}, the others by {usual_uid}",
            "mode": "mode {mode:03o}: its owner may not write, but the broker must",
        },
        effect="the broker refuses to start",
        versions={"all": "refuses to start (FileNotFoundException, `load exception`)."},
        repair="Give the files to the broker's user and let it write them: chown -R, chmod -R u+w.",
        not_detected="The broker's user is not known: if all files belong to another user, or none may be written, "
                     "nothing is reported.",
    ),
    Entry(
        code="store.paths", fault="F07", severity="info",
        title="The commit log is in other directories",
        what="broker.conf names other or several directories for the commit log, or there is none in the store.",
        how="storePathCommitLog is set. In 4.4.0 its default is $HOME/store/commitlog whatever the root is.",
        says="{directories} directories hold the commit log",
        effect="none: the broker loads all of them",
        versions={"before 4.9.2": "knows one path.", "4.9.2 and later": "knows several, separated by commas."},
        repair="Give --broker-conf, so that rmqtool looks there, too.",
    ),
    Entry(
        code="store.version-ambiguous", severity="info",
        title="The answer depends on the broker's version",
        what="Several versions fit the store and give different answers. That of the newest is shown.",
        how="Most files look the same in all versions.",
        says={
            "minimum": "{count} expired queues: before 5.0 their minimum is 0, since then their maximum (shown)",
            "deletions": "a broker of {version} would delete {log_files:log file} with these settings, one of "
            "{shown_version} {shown_log_files} (shown)",
        },
        effect="none",
        versions={"all": "each by its own rules: give --broker-version."},
        repair="Give --broker-version.",
    ),
    Entry(
        code="store.rocksdb-queues", fault="F40", severity="info",
        title="Consume queues are kept in RocksDB",
        what="The directory of the consume queues is a RocksDB database.",
        how="storeType=defaultRocksDB, or queues written to both.",
        says={
            "": "consume queues are kept in RocksDB",
            "no-library": "consume queues are kept in RocksDB, which needs the package rocksdict (pip install "
            "'rmqtool[rocksdb]'): queues and lag below may be missing",
        },
        effect="none: the broker reads them",
        versions={"before 5.2.0": "cannot read them.", "5.2.0 and later": "reads them."},
        repair="No repair is needed.",
        not_detected="Without the package rocksdict they are not read.",
    ),
    Entry(
        code="store.rocksdb-side-store", fault="F59", severity="info",
        title="There is a RocksDB database next to the log",
        what="The directory rocksdbstore, which every broker since 5.4.0 creates, is used: broker.conf keeps index, "
             "timers or transactions there, or it has tables.",
        how="One of indexRocksDBEnable, timerRocksDBEnable and transRocksDBEnable is or was on.",
        says={
            "used": "{settings!l}: the broker keeps these in it",
            "tables": "{tables} tables are in it: index, timers or transactions were kept there",
        },
        effect="none, unless its features are on and log or database were restored from another time: then new "
        "messages are not indexed until the log has grown past the old end",
        versions={"before 5.4.0": "does not know it.", "5.4.0 and later": "creates it again when it is missing."},
        repair="No repair is needed.",
        not_detected="Without the package rocksdict its rows are not read.",
    ),
    Entry(
        code="store.disk-full", fault="F53", severity="warning", treatment="running", about="surroundings",
        title="The disk is nearly full",
        what="The file system of the store is filled beyond the ratio at which the broker deletes by force, or has "
             "almost no inodes left. Above information only if a broker runs and refuses messages: a copy may be on a "
             "full disk.",
        how="More messages than fit on the disk for the retention time.",
        says={
            "bytes": "the disk below {directory} is {used:.0%} full",
            "inodes": "{left} of {inodes} inodes are left on the disk below {directory}",
            "refused": "the disk is {used:g}% full, above {level:.0%}",
        },
        effect="above 75% expired files are deleted at any hour, above 85% any old file, above 90% producers are "
        "refused",
        versions={"all": "with the default ratios."},
        repair="Free space, or see what the cleaner would delete.",
        remedy="rmqtool clean {store} --dry-run",
    ),
    Entry(
        code="store.retention-blocked", fault="F54", severity="warning", treatment="running", about="surroundings",
        title="Old files will not be deleted",
        what="The setting deleteWhen or a modification time in the future keeps the cleaner from deleting expired "
             "files.",
        how="A deleteWhen with a blank or an hour that never comes, a clock that was wrong, touch.",
        says={
            "future": "modified {modified!t}, which is in the future",
            "delete-when": "deleteWhen {delete_when!r} is not hours separated by ; alone: the cleaner fails with an "
            "exception",
            "no-hour": "no hour of the day is deleteWhen {delete_when!r}: hours are 0 to 23",
        },
        effect="the disk fills up",
        versions={"all": "looks at modification times, not at messages."},
        repair="Correct the setting. `rmqtool clean --dry-run` shows for each file why it is kept.",
        remedy="rmqtool clean {store} --dry-run",
        not_detected="verify checks only settings and times; a younger file before expired ones "
                     "(clean.blocked-by-older-file), a "
        "full disk from which nothing is deleted"
        " (clean.disk-full-nothing-deleted) and wrong times (clean.mtime-future) are "
        "reported by `rmqtool clean --dry-run`.",
    ),
    Entry(
        code="store.modification-times", fault="F55", severity="info",
        title="Modification times do not match the messages",
        what="A log file was modified before its first message was stored, or all of them at once although their "
        "messages are hours apart.",
        how="The store was copied or restored without its times, or touched.",
        says={
            "before": "modified {modified!t}, before its first message: {store_timestamp!t}",
            "copied": "all {files} log files were modified at {modified!t}, as by a copy; their messages are "
            "{hours} h apart",
        },
        effect="files expire later than they should; up to 5.1.0 searches by time may answer wrongly",
        versions={"all": "retention counts from the modification time."},
        repair="`rmqtool repair STORE --times` gives each file the time of its last message.",
        not_detected="`rmqtool clean --dry-run` compares each file with its last message, too (clean.mtime-later, "
        "clean.mtime-earlier).",
    ),
    Entry(
        code="store.mixed", fault="F57", treatment="decide",
        title="Files of different brokers in one store",
        what="Log files name another broker in their first message than the file before, and queues do not match the "
             "log. If they match, it is only information, whatever the index has: after a kill it may have entries of "
             "messages that the log has lost.",
        how="Files were mixed up in a copy; a disk of another broker was mounted; a switch of roles with an old "
            "directory.",
        says={
            "contradicted": "the log's files name {brokers} brokers: {first_hosts}; and queues do not fit "
            "({contradicted!l})",
            "alone": "the log's files name {brokers} brokers: {first_hosts}",
        },
        effect="starts and serves what it finds",
        versions={"all": "does not check."},
        repair="You must decide which files belong together. A broker whose address changed looks the same.",
        not_detected="Brokers with the same address; then a foreign log file shows as "
        "commitlog.physical-offset, foreign queues as consumequeue.wrong-record, a duplicate file as "
        "commitlog.duplicate-file.",
    ),
)  # fmt: skip
