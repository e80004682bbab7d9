"""Findings about the files of the commit log, and about the other logs of a store."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

LOG_FILES = (
    Entry(
        code="commitlog.file-size", fault="F02", treatment="files",
        title="A commit log file has another size than it should",
        what="All files of a commit log have the size that mappedFileSizeCommitLog says, 1 GiB by default. This one "
        "does not.",
        how="An incomplete copy or restore, a disk that filled up while the file was made, a tool that cuts trailing "
        "zeros; or mappedFileSizeCommitLog was changed, and then all older files differ.",
        says={
            "others": "{size} bytes where the others have {expected}",
            "entries": "{size} bytes where the others have {expected}; broker.conf has mappedFileSizeCommitLog for "
            "them, too",
            "configured": "{size} bytes, and broker.conf says mappedFileSizeCommitLog={expected}",
            "cut": "{size} bytes, where a record is cut, and broker.conf says mappedFileSizeCommitLog={expected}",
        },
        effect="most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones",
        versions={
            "4.4.0, 4.9.2": "starts without this file and all later ones. When the first file is the short one the "
            "store starts empty and new messages overwrite it; when the last is, queues are cut to the rest of the "
            "log.",
            "4.5.1 to 4.9.1, 4.9.3 and later": "refuses to start and exits with -3: `length not matched message "
            "store config value, please check it manually`.",
        },
        repair="If all files have one other size, broker.conf is wrong: put the right mappedFileSizeCommitLog there "
        "and touch no file. If only the last file is short, fill a copy of it up with zeros to the full size "
        "(`truncate -s SIZE FILE`). A short file in the middle has lost data: restore it from a replica or a backup.",
        remedy="rmqtool inspect {store} --scan",
    ),
    Entry(
        code="commitlog.empty-file", fault="F03", severity="warning", treatment="files", is_trace=True,
        title="A commit log file has 0 bytes",
        what="The file exists and is empty.",
        how="A crash between making the file and giving it its size, a full disk, or somebody's `touch`.",
        says={
            "earlier": "0 bytes, with files after it",
            "last": "0 bytes: the broker was killed after it had created the file and before it gave it its size",
            "some-refuse": "0 bytes: the broker was killed after it had created the file and before it gave it its "
            "size; {refusing} refuse to start on it",
            "entries": "0 bytes",
        },
        effect="since 5.1.3 a start deletes it if it is the last; others refuse to start, 4.4.0 and 4.9.2 ignore it "
        "and all later files",
        versions={
            "4.4.0, 4.9.2": "ignores this file and all later ones, and starts.",
            "4.5.1 to 4.9.1, 4.9.3 to 5.1.2": "refuses to start.",
            "5.1.3 and later": "deletes the file when it is the last one; else refuses to start.",
        },
        repair="When it is the last file, move it out of the directory. In the middle of the log it is a missing file: "
        "see commitlog.gap.",
    ),
    Entry(
        code="commitlog.unreadable", treatment="access",
        title="A commit log file cannot be read",
        what="A commit log file gives an error instead of its bytes, from some byte on. The files before and after it "
             "are verified; queues and index cannot be compared with messages in it.",
        how="Missing permission, a failing disk, an unreachable network file system.",
        says="{why}; {unread_bytes:byte was|bytes were} not read[: {hint}]",
        effect="does not start, or fails where it must read these messages, if its user cannot read them either",
        versions={"all": "map the file with the rights of the broker's user, and fail at the same bad sectors."},
        repair="Run as the broker's user. Copy a failing disk with a tool that skips bad sectors, and verify the copy.",
    ),
    Entry(
        code="commitlog.stray", fault="F04", treatment="files",
        title="Something in the commit log directory is not a commit log file",
        what="A name that is not 20 digits, or something that is neither file nor directory.",
        how="Backups of editors, nohup.out, a copy such as 00000000000000000000.bak, a named pipe.",
        says="not a commit log file ({kind})",
        effect="the broker refuses to start; 4.4.0 and 4.9.2 may ignore it together with all files after it: "
        "move it out of the directory, do not delete it",
        versions={
            "4.4.0, 4.9.2": "with another size than a commit log file: loads nothing that sorts after it. With "
            "the right size: refuses to start (NumberFormatException).",
            "4.5.1 to 4.9.1, 4.9.3 and later": "refuses to start.",
        },
        repair="Move it out of the directory. Do not delete it: it may be the only copy of something.",
    ),
    Entry(
        code="commitlog.stray-directory", fault="F05", severity="warning", treatment="files",
        title="A directory is among the commit log files",
        what="A directory inside commitlog/.",
        how="A backup folder.",
        says="not a commit log file ({kind})",
        effect="before 5.1.0 most versions refuse to start; later ones skip it: move it out of the directory",
        versions={
            "4.4.0, 4.9.2": "loads nothing that sorts after it; after the digits it does no harm.",
            "4.5.1 to 4.9.1, 4.9.3 to 5.0": "refuses to start.",
            "5.1.0 and later": "skips it.",
        },
        repair="Move it out of the directory.",
    ),
    Entry(
        code="commitlog.gap", fault="F08", treatment="restore",
        title="A commit log file is missing in the middle",
        what="The file before this one ends before this one begins: bytes of the log are in no file.",
        how="Files were deleted by hand to free space, a disk of a log with several paths is not mounted, or a restore "
        "was incomplete.",
        says={
            "no-file": "{bytes} bytes of the commit log before this file are in no file.",
            "no-paths": "{bytes} bytes of the commit log before this file are in no file. If the log has several "
            "paths, give --broker-conf.",
        },
        effect="starts, and skips the missing messages when they are read; a rebuild of the consume queues by the "
               "broker "
        "hangs or shifts offsets. Restore the missing files; do not let a broker rebuild",
        versions={
            "4.4.0 to 4.9": "starts silently. When the consume queues are gone too, 4.5.1 to 4.9.8 hang in start().",
            "5.0 and later": "starts and logs `[BUG]The mappedFile queue's data is damaged`. A rebuild of the queues "
            "by the broker shifts the offsets after the gap.",
        },
        repair="Restore the missing files. Without them do not touch the gap: consumers skip exactly the missing "
               "messages. If the log has several paths, give --broker-conf: the files may be in another directory. "
               "Never "
        "delete consumequeue/ of such a store.",
        remedy="rmqtool inspect {store} --scan",
    ),
    Entry(
        code="commitlog.no-first-file", fault="F09", severity="info",
        title="The commit log does not begin at offset 0",
        what="The first file has a start offset above 0: earlier messages have been deleted.",
        how="Retention: the broker deletes old files. Manual deletion looks the same.",
        says="begins at {offset}: older files were deleted",
        effect="none: this is how every store looks after its first cleaning",
        versions={"all": "takes the first file's start offset as the minimum of the log."},
        repair="No repair is needed.",
        not_detected="Who deleted the files is often not recorded; see "
        "commitlog.head-missing.",
    ),
    Entry(
        code="commitlog.last-file-missing", fault="F10", treatment="restore",
        title="The end of the commit log is missing",
        what="Consume queue entries or index files point past the end of the commit log.",
        how="The last file was deleted or not restored. After a power loss the queues may be ahead a little; that is "
        "consumequeue.ahead.",
        says="{messages:message} after the last file, to which queue entries point",
        effect="a start cuts the queues to the rest of the log, and new messages get offsets that were in use: "
        "restore the file before any start",
        versions={
            "all": "cuts commit log and queues after the last record of the last file that is there, and then "
            "writes new messages at offsets that old queue entries and groups still use.",
        },
        repair="Restore the missing file before the broker starts. Once it has started, the messages are lost, and "
        "committed offsets may point past the end of their queues.",
    ),
    Entry(
        code="commitlog.overlap", fault="F11", treatment="files",
        title="Two commit log files overlap",
        what="A file begins before the one before it ends.",
        how="A file was renamed or copied from elsewhere; mappedFileSizeCommitLog was changed.",
        says="begins {bytes} bytes before the file before it ends",
        effect="accepted, but offsets are looked up in the wrong file, which may have been renamed or copied",
        versions={
            "4.4.0 to 4.9": "starts; messages are read from the wrong file.",
            "5.0 and later": "the same, and logs `[BUG]The mappedFile queue's data is damaged`.",
        },
        repair="The first record of a file gives its own position: rename the file to that offset, in 20 digits. If "
        "two files claim the same offsets, decide which is the right one and move the other out of the store.",
    ),
    Entry(
        code="commitlog.misaligned-file", fault="F11", treatment="files",
        title="A commit log file's name does not match its contents",
        what="The records in the file give positions that differ from those that the file's name gives them.",
        how="The file was renamed, or copied from another broker.",
        says="its name does not fit those of the other files and their size",
        effect="accepted, but its messages are not found, and a recovery scan puts wrong offsets into the queues",
        versions={
            "all": "starts. Entries that a recovery derives from the file point to the positions that its records "
            "give, not to where they are stored.",
        },
        repair="Rename the file to the position that its first record gives, in 20 digits, while no broker runs.",
    ),
    Entry(
        code="commitlog.duplicate-file", fault="F07", treatment="files",
        title="Two directories of the commit log hold a file of the same offset",
        what="storePathCommitLog names several directories, and two of them have a file with the same name.",
        how="A file was copied from one disk to another and the original left in place.",
        says="{other_file} begins at the same offset",
        effect="the broker loads both, and which one it reads is undefined",
        versions={"4.9.2 and later": "loads both.", "before 4.9.2": "does not know several paths."},
        repair="Compare the two (`cmp`), keep the right one, move the other out.",
    ),
    Entry(
        code="commitlog.preallocated", fault="F12", severity="info", treatment="start", is_trace=True,
        title="Empty commit log files past the end",
        what="The last files hold only zeros: the broker creates the next file in advance.",
        how="Every running broker has one. After a crash they remain.",
        says="holds only zeros",
        effect="a start deletes those that it does not need",
        versions={
            "4.4.0 to 5.3.1": "deletes them. With three or more of them after a clean stop the log continues in the "
            "first empty file although the one before has no blank at its end: a later full scan ends there.",
            "5.3.2 and later": "deletes them.",
        },
        repair="No repair is needed. Three or more may be moved out of the directory while no broker runs.",
    ),
    Entry(
        code="commitlog.sparse", fault="F56", severity="info",
        title="Commit log files have holes",
        what="The file system has given the files fewer blocks than their size, and has less free than is missing.",
        how="The broker makes files without writing to all of them; copies by rsync -S or tar -S keep it so.",
        says="{bytes} bytes of the log files are not allocated on the disk yet, which has {usable} left",
        effect="none, unless the disk fills up: then a write into the file kills the broker (SIGBUS)",
        versions={"all": "does not notice."},
        repair="Keep enough free space for the rest of the last file.",
        not_detected="Holes for which the disk has space are not reported: every store that was never full has them.",
    ),
)  # fmt: skip


OTHER_LOGS = (
    Entry(
        code="store.dledger-index", severity="warning", treatment="none", is_trace=True,
        title="The index of DLedger's entries is missing, or does not point to them",
        what="A node of a DLedger group has an index next to its log, with 32 bytes for each entry. It is checked for "
             "the first entry of each data file that a start reads, for the last entry, and for all entries before "
             "them.",
        how="Files in dledger-ID/index/ were deleted or cut, or come from another copy than those in data/; a page "
        "that was lost, a flipped bit.",
        says={
            "gap": "the file before {name} is missing, or has another size",
            "none": "there is no file of the index",
            "units": "no index entry points to {missing} of {entries} entries that are looked up",
            "unit": "the index entry of the Raft index {index} does not point to its entry",
        },
        effect="the node rebuilds the index when it starts, from the log: a long start",
        versions={
            "DLedger 0.2 and later": "goes back from the third last data file to one whose first entry is in the "
                                     "index, and builds the index again from there. If a file between two others is "
                                     "missing, it does not start. Earlier index entries are not changed: consumers "
                                     "are served without them, but as leader the node cannot send a log entry with a "
                                     "wrong index entry, and a new or lagging node never gets past it.",
        },
        repair="If a file between two others is missing, or an index entry that no start builds again is wrong (an "
               "error), move the directory of the index away first. Otherwise no repair is needed: the node does it.",
    ),
    Entry(
        code="store.compacted-log", treatment="none",
        title="The compacted log of a queue is missing",
        what="Consumers of a topic with cleanup.policy=COMPACTION get its messages only from "
             "compaction/compactionLog/ and compaction/compactionCq/. According to compaction/position-checkpoint a "
             "compaction has processed this queue, but it has no file there.",
        how="A backup or a move without compaction/, a deleted directory.",
        says="it has no file",
        effect="consumers get none of the messages that the queue has; only new ones are written there",
        versions={
            "before 5.1.0": "have no compacted topics: the plain queue is read.",
            "5.1.0 and later": "create an empty log after half a minute; a slave copies that of its master.",
        },
        repair="Restore compaction/ from a backup or from the slave. Without one, a broker with enableCompaction=false "
        "serves the messages that are still in the commit log from the plain queue.",
    ),
    Entry(
        code="store.dledger-checkpoint", treatment="files",
        title="The checkpoint of a DLedger node has no number",
        what="dledger-ID/checkpoint gives the Raft index up to which entries were committed, as committedIndex=NUMBER. "
        "It is not a number.",
        how="A flipped bit, a disk that fails, an editor.",
        says="committedIndex={found} is not a number",
        effect="the node does not start: NumberFormatException",
        versions={"DLedger 0.2 and later": "the same."},
        repair="Move the file away: a node starts without it, and gets the committed index from its group.",
    ),
)  # fmt: skip
"""Of DLedger and compaction."""
