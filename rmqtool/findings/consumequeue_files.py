"""Findings about the files of consume queues: their names, their sizes, and which are there."""

from __future__ import annotations

from rmqtool.findings.entry import Entry

_REBUILD = "rmqtool rebuild-cq {store} --topic {topic} --queue {queue_id} --dry-run"

CONSUME_QUEUE_FILES = (
    Entry(
        code="consumequeue.zero-file",
        fault="F35",
        severity="warning",
        treatment="queues",
        title="The last file of a queue holds only zeros",
        what="The file was made, and no unit was written to it.",
        how="A crash just after the file was made.",
        says="holds only zeros",
        effect="since 4.5.1 a start may count the zeros as one unit: the queue grows by a message that does not exist",
        versions=(
            ("4.4.0", "no harm in most cases."),
            (
                "4.5.1 and later",
                "one bogus unit (offset 0, size 0), and later messages one offset too high. In 4.5.1 to "
                "4.9.8, if all queues end so, two.",
            ),
            (
                "5.0.0 to 5.4.0",
                "the same; but when all queues end before the commit log does, so that nothing is cut, the broker "
                "refuses to start: `IllegalArgumentException: newPosition < 0`.",
            ),
        ),
        repair="Rebuild the consume queue before the broker starts.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.garbage-after-end",
        fault="F35",
        severity="warning",
        treatment="queues",
        title="A queue holds a unit that is not a message",
        what="A unit of zeros at the start of a file, and good units after it.",
        how="A broker was started on a queue whose last file held only zeros: see consumequeue.zero-file.",
        says="neither a unit nor zeros after the last unit{units:+unit}",
        effect="consumers skip it; a start may cut the queue here",
        versions=(("all", "if the file is one of the queue's last three, the next start cuts the queue before it."),),
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.gap",
        fault="F36",
        severity="error",
        treatment="queues",
        title="A consume queue file is missing in the middle",
        what="A file of the queue does not begin where the one before it ends.",
        how="Files were deleted by hand, or a restore was incomplete.",
        says="begins {distance} bytes past the end of the file before it",
        effect="starts silently; consumers skip the missing messages",
        versions=(("all", "does not check."),),
        repair="Rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.file-size",
        fault="F37",
        severity="error",
        treatment="queues",
        title="A consume queue file has another size than it should",
        what="All files of all queues have the size that mappedFileSizeConsumeQueue says (6,000,000 bytes by default).",
        how="An incomplete copy; or the setting was changed.",
        says={
            "others": "{size} bytes where the others have {expected}",
            "start": "begins at {start_offset}, which is not a multiple of {size}",
        },
        effect="most versions refuse to start; 4.4.0 and 4.9.2 ignore this file and all later ones of the queue",
        versions=(
            ("4.4.0, 4.9.2", "the queue ends before this file; a queue whose first file is short begins again at 0."),
            ("4.5.1 to 4.9.1, 4.9.3 and later", "refuses to start."),
        ),
        repair="If all queues have one other size, put the right mappedFileSizeConsumeQueue into broker.conf. Else "
        "rebuild the consume queue.",
        remedy=_REBUILD,
    ),
    Entry(
        code="consumequeue.empty-file",
        fault="F37",
        severity="warning",
        treatment="queues",
        is_trace=True,
        title="A consume queue file has 0 bytes",
        what="The file exists and holds nothing. An error when no release that may run here starts on it.",
        how="The broker was killed between creating the file and giving it its size, a full disk, or somebody's "
        "`touch`.",
        says={
            "earlier": "0 bytes, with files after it",
            "last": "0 bytes: the broker was killed after it had created the file and before it gave it its size",
            "some-refuse": "0 bytes: the broker was killed after it had created the file and before it gave it its "
            "size; {refusing} refuse to start on it",
        },
        effect="since 5.1.3 a start deletes it if it is the last of its queue; 4.5.1 to 4.9.1 and 4.9.3 to 5.1.2 "
        "refuse to start; 4.4.0 and 4.9.2 leave it out",
        versions=(
            ("4.4.0, 4.9.2", "leaves out this file and all later ones of the queue, and starts."),
            ("4.5.1 to 4.9.1, 4.9.3 to 5.1.2", "refuses to start."),
            ("5.1.3 and later", "deletes the file when it is the last of its queue; else refuses to start."),
        ),
        repair="When a release refuses, move the file out of the directory, or let the consume queue be rebuilt: the "
        "start after it derives what is missing from the commit log.",
    ),
    Entry(
        code="consumequeue.stray",
        fault="F04",
        severity="error",
        treatment="files",
        title="Something in a consume queue's directory is not a consume queue file",
        what="A name that is not 20 digits, a directory, or something that is neither file nor directory.",
        how="Backups of editors, copies made by hand.",
        says={
            "file": "not a consume queue file ({kind})",
            "directory": "not a directory of a topic or a queue: move it away",
        },
        effect="the broker refuses to start; a directory is skipped since 5.1.0",
        versions=(
            ("4.4.0, 4.9.2", "with another size: loads nothing of the queue that sorts after it."),
            ("4.5.1 and later", "refuses to start; since 5.1.0 a directory is skipped."),
        ),
        repair="Move it out of the directory.",
    ),
    Entry(
        code="consumequeue.database",
        fault="F40",
        severity="error",
        treatment="queues",
        title="The RocksDB database of the consume queues is damaged",
        what="RocksDB does not open the database, or meets a block of a table that is not as it was written; or it has "
        "a column family that brokers do not name when they open it.",
        how="A file of the database is missing or cut, a damaged disk, a copy of a running broker; another program has "
        "made a column family.",
        says="{why}[; {queues:queue} not compared: {queues!n}]",
        effect="the broker refuses to start, or consumers stop where the damage is; without the file CURRENT it makes "
        "an empty database, and all queues begin again",
        versions=(("5.2.0 and later", "stops with an exception of RocksDB, or answers pulls with errors."),),
        repair="Restore the directory from a backup or a replica, or have the queues written again from the commit "
        "log, which holds all that was in it.",
        not_detected="Rows in the damaged part are not compared, nor are the other rows of its queue.",
    ),
    Entry(
        code="consumequeue.row",
        fault="F40",
        severity="warning",
        treatment="queues",
        title="A row of the consume queues is neither a unit nor the end of a queue",
        what="A key or a value in the RocksDB database has another form than brokers write.",
        how="Another program wrote into the database, a fault of the memory.",
        says={
            "bad-row": "key {key}: {why}",
            "bad-unit": "key {key} among the units of a queue: its key or its value is too long or too short",
            "no-max-row": "rows without a max row, and no message in the log",
            "foreign": "{count:row is|rows are} left out, for the database is written again",
        },
        effect="none, for the broker asks for other keys; a value of another size stops the queue there",
        versions=(("5.2.0 and later", "does not look for it."),),
        repair="Have the queues written again from the commit log.",
    ),
    Entry(
        code="consumequeue.left-over-table",
        severity="info",
        title="Tables that the database of the consume queues does not name",
        what="Files of rows stand in the directory, and the MANIFEST of the RocksDB database does not name them.",
        how="The broker was killed while it wrote them; an older MANIFEST was restored.",
        says="{tables:table}, such as {names!l}",
        effect="the broker deletes them; what is missing then has findings of its own",
        versions=(("5.2.0 and later", "deletes them when it opens the database."),),
        repair="No repair is needed where no unit is missing. Else restore the whole directory.",
    ),
    Entry(
        code="consumequeue.orphan",
        fault="F39",
        severity="info",
        title="A queue that no topic is configured for",
        what="A directory of a topic that is not in topics.json, a number above the topic's queues, or a name that is "
        "no number.",
        how="The topic was deleted or got fewer queues.",
        says="{configured_in} has no such topic; {units:unit}",
        effect="loaded, and cleaned when its messages expire; a name that is not a number is ignored",
        versions=(("all", "loads every directory whose name is a number."),),
        repair="No repair is needed.",
    ),
    Entry(
        code="consumequeue.kind",
        fault="F40",
        severity="error",
        treatment="config",
        title="A topic's queues are of another kind than it is configured for",
        what="The topic's attribute says batch queues and simple ones are there, or the other way round; or file "
        "queues stand beside a RocksDB database.",
        how="The attribute queue.type or the setting storeType was changed.",
        says="a {kind} queue, but the topic is configured for {configured}",
        effect="the broker refuses to start; beside RocksDB the files are not read",
        versions=(
            ("before 5.0", "knows simple queues only."),
            ("5.0 and later", "refuses to start: `The queue type of topic: ... should be ..., but is ...`."),
        ),
        repair="Set the attribute back to what the directories are; `rmqtool repair` does so.",
        not_detected="Of queues in RocksDB the kind of the topic is not asked for.",
    ),
)
