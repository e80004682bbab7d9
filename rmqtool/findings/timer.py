"""Findings about the timer of brokers since 5.0: wheel, log, check and the messages that wait."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

_RESET = "(cd {store} && mkdir timer && mv timerwheel timerlog config/timercheck timer)"
_RESET_TEXT = (
    "With the broker stopped, move timerwheel, timerlog and config/timercheck away together (mv reports missing "
    "ones): the next start reads the whole queue again, delivers waiting messages, and delivers earlier ones a second "
    "time. A message that the timer has postponed, such as one with a delay of more than two days, is in the queue "
    "several times, and delivered as often."
)
_BEFORE = {"before 5.0": "has no timer wheel."}

TIMER = (
    Entry(
        code="timer.wheel-size", fault="F47", treatment="files",
        title="The timer wheel has a wrong size",
        what="The file timerwheel has a fixed number of slots, 38,707,200 bytes, whatever timerPrecisionMs is.",
        how="The file was cut, or is from another program.",
        says="{size} bytes, expected {expected}",
        effect="the broker refuses to start: `Timer wheel length:... != expected:...`",
        versions={**_BEFORE, "5.0 and later": "refuses to start; an empty file is created again."},
        repair="Move timerwheel away: the slots are filled again from the timer log. This loses messages that wait in "
               "older files of the timer log (timer.lost); then move timerlog and config/timercheck away too.",
    ),
    Entry(
        code="timer.log", fault="F47", severity="warning", treatment="files",
        title="Timer log and timer check contradict each other",
        what="The file config/timercheck points after the timer log, the newest slot of the wheel points at no entry "
        "of the timer log, or the log's files do not follow each other.",
        how="Files from different times, a crash, a cut file.",
        says={
            "stray": "not a timer log file ({kind})",
            "size": "{size} bytes where the others have {expected}",
            "gap": "begins at {start_offset}, the file before ends at {end_offset}",
            "short": "{size} bytes are too few for its {expected}",
            "flushed": "flushed up to {flushed}, the timer log ends at {end_offset}",
            "unreadable": "{why}",
            "slot-behind": "a slot points at {position}, the timer log ends at {end_offset}",
            "slot": "a slot points at {position}, where there is no entry of the timer log",
        },
        effect="the broker continues in its queue after the newest entry of the timer log: timer messages may be "
        "delivered twice",
        versions={
            **_BEFORE,
            "5.0 and later": "reads the queue again from the newest entry of the timer log; if the log is missing or "
                             "has no entry, it does not (timer.lost). A timer log file of another size stops the "
                             "start.",
        },
        repair="No repair is needed, except for a file of another size: restore it. timer.lost and timer.again report "
               "what is lost or delivered twice.",
    ),
    Entry(
        code="timer.unit", fault="F47", treatment="files",
        title="Entries of the timer log point to no timer message",
        what="An entry of the timer log is not due yet and points past the end of the commit log, or to a message "
        "that is not a timer message"
        ".",
        how="The commit log has lost its end, by a power failure, a cut or a switch of the master, or a repair has "
            "put other records there; the timer log is not cut with it.",
        says={
            "behind-log": "{units:entry} not yet due: the first points to {physical_offset}, past the end of the "
            "commit log",
            "other": "{units:entry} not yet due: the first points to {physical_offset}, to no timer message",
        },
        effect="when such an entry is due and another message begins at its place, the timer retries it forever, and "
        "delivers nothing else",
        versions={
            **_BEFORE,
            "5.0 and later": "are stuck at a message without REAL_QID, unless timerSkipUnknownError is set; without a "
                             "message there, they skip the entry: `Fail to read msg from commitLog`.",
        },
        repair="`rmqtool repair` sets the message size in these entries to 0, and a broker skips them; messages that "
               "the timer has delivered are not delivered again. The messages themselves are lost with the end of the "
               "log.",
        remedy="rmqtool repair {store}",
        not_detected="Entries that point to another timer message: it is delivered at both times.",
    ),
    Entry(
        code="timer.ahead", fault="F47", treatment="files",
        title="The timer would continue past the end of its queue",
        what="According to config/timercheck the timer has read more messages than rmq_sys_wheel_timer has, once a "
             "start has cut "
        "the entries that point past the end of the commit log. A warning if a start corrects it: since 5.3.2, and if "
        "the newest entry of the timer log points to a message of the queue.",
        how="The commit log has lost its end, or timercheck is newer than the log.",
        says="has read up to {read} of {topic}, which ends at {end}",
        effect="new timer messages are never delivered, until the queue has reached that place",
        versions={
            **_BEFORE,
            "5.0.0 to 5.3.1": "continue where timercheck says, and never read earlier messages.",
            "5.3.2 and later": "continue at the end of the queue: `Timer currQueueOffset:... is larger than`.",
        },
        repair="`rmqtool repair` writes the end of the queue into timercheck; nothing is delivered again.",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="timer.too-large", fault="F47", treatment="decide",
        title="Timer messages are larger than the timer can read",
        what="A record of the queue rmq_sys_wheel_timer has more bytes than the timer's buffer, and the broker has not "
        "read it yet, or waits to deliver it, or has skipped it before it is due. Information if all skipped messages "
        "were due.",
        how="A body may be as large as maxMessageSize (4 MiB), but the buffer has only 100 bytes more for the rest of "
        "the record; or maxMessageSize was made smaller while messages waited.",
        says={
            "waiting": "{messages:message}, the first due at {first_due!t}: the timer's buffer holds {buffer_size} "
            "bytes[ {origin}], and the largest message has {largest_message}; maxMessageSize={needed_size} is enough",
            "passed": "{messages:message}, the first due at {first_due!t}: the timer's buffer holds {buffer_size} "
            "bytes[ {origin}], and the largest message has {largest_message}; it was skipped",
        },
        effect="the timer is stuck at it, and delivers nothing that was sent or is due after it (before 5.4.0), or "
        "never delivers it",
        versions={
            **_BEFORE,
            "5.0.0 to 5.3.4": "are stuck: `Unknown exception in enqueuing`, again and again; for a message in the "
                              "timer log when it is due, `Unknown exception`.",
            "5.4.0 to 5.5.0": "pass over it: `getMessage error`, three times.",
            "5.5.1 and later": "have a buffer of 64 KiB more than maxMessageSize.",
        },
        repair="Before the broker starts, set maxMessageSize in broker.conf to the value that the finding names, or "
        "take 5.5.1 or later: it continues, and delivers overdue messages at once. Then verify again with that "
        "broker.conf: timer.lost reports skipped messages.",
        not_detected="Timers in RocksDB (timerRocksDBEnable). Without --broker-conf the default maxMessageSize is "
        "assumed, unless a message shows that it was more.",
    ),
    Entry(
        code="timer.chain", fault="F47", treatment="files",
        title="The timer wheel does not reach all waiting messages",
        what="A slot of the wheel points to the newest entry of the timer log that is due then, and each entry to the "
        "one before it. A waiting entry is in no such chain, or a chain leads to an entry of another slot, or back to "
        "one of its own entries.",
        how="A disk error, or a wheel that is older than the timer log.",
        says={
            "delivered": "{units:entry} of slots that the timer has read already: not linked to the entry before",
            "": "the chain of {slots:slot} {chain}, the first due at {first_due!t}: {left_out}",
        },
        parts={
            "chain": {
                "loops": "has a loop, at which the timer is stuck",
                "broken": "is broken",
            },
            "left_out": {
                "messages": "{messages:message of the timer log is|messages of the timer log are} in none",
                "other-slots": "it points to other slots",
            },
        },
        effect="messages outside the chains are never delivered; those of another slot are delivered at a wrong time "
               "or again; at a chain with a loop the timer stops delivering",
        versions={
            **_BEFORE,
            "5.0 and later": "enter only the newest files of the timer log again, and do not check the chains.",
        },
        repair="`rmqtool repair` links the entries of these slots again, in the timer log and in the wheel; nothing is "
        "delivered a second time.",
        remedy="rmqtool repair {store}",
    ),
    Entry(
        code="timer.read-time", fault="F47", treatment="files",
        title="The timer wheel was not read as far as timercheck says",
        what="config/timercheck says that the wheel was read up to a time at which no broker was running, according "
             "to its modification time, the checkpoint and the newest message; a warning if no message waits in "
             "between. Or, as a warning, messages that are due after that time were already delivered.",
        how="The file was damaged, edited, or restored from another time; the clock was set back.",
        says={
            "ahead": "has read the wheel up to {read_until!t}, and no broker has run after {ran_until!t}: "
            "{messages:message} would be skipped",
            "delivered": "has read the wheel up to {read_until!t}, and {messages:message due after that was|messages "
            "due after that were} delivered",
        },
        effect="the broker skips messages that are due before that time, and never delivers them",
        versions={**_BEFORE, "5.0 and later": "continue in the wheel at the time of timercheck."},
        repair="`rmqtool repair` writes the time up to which a broker has read the wheel.",
        remedy="rmqtool repair {store}",
        not_detected="A wrong time if timercheck has no modification time, or is a slave's, which takes its master's "
        "time over (brokerRole=SLAVE; up to 5.1 its version is never changed).",
    ),
    Entry(
        code="timer.lost", fault="F47", treatment="files",
        title="Timer messages that no broker would deliver",
        what="A message of the queue rmq_sys_wheel_timer is not due yet, the broker has read it from the queue, as "
        "config/timercheck says, and no entry of the timer log that the wheel leads to points to it.",
        how="The directory timerlog/ or its files were deleted, zeroed or not restored, while config/timercheck was "
        "kept; the wheel was deleted, and the message waits in an older file of the timer log.",
        says="{messages:message} due from {first_due!t} on: read from the queue already, and not in the timer log",
        effect="these messages are never delivered, although they are in the commit log",
        versions={
            **_BEFORE,
            "5.0 and later": "reads the queue from where timercheck says, and enters only the newest file of the timer "
            "log into the wheel.",
        },
        repair=_RESET_TEXT, remedy=_RESET,
        not_detected="The oldest of more than 4,194,304 timer messages, and the oldest of more than 10,000 missing "
                     "ones; timers in RocksDB (timerRocksDBEnable).",
    ),
    Entry(
        code="timer.again", fault="F47", severity="warning", treatment="files",
        title="Timer messages would be delivered again",
        what="A start reads messages of the queue rmq_sys_wheel_timer that are in the timer log already, or that were "
        "delivered before. Information after an unclean stop that left config/timercheck, and if timerlog/ is "
        "missing, too.",
        how="The file config/timercheck was deleted or is older than the timer log; an older timer log was restored.",
        says="the queue is read again from {begin} on: {messages:message} of the timer log, and {delivered} "
        "more that were delivered",
        effect="consumers get these messages twice",
        versions={**_BEFORE, "5.0 and later": "uses 0 for every number of a missing timercheck."},
        repair="`rmqtool repair` writes a lost config/timercheck again if timer log, queue and log show how far each "
               "was read. Otherwise restore it as it was when the broker stopped. Without it: " + _RESET_TEXT,
        remedy=_RESET,
    ),
    Entry(
        code="timer.aged", fault=None, severity="info",
        title="Timer messages too old for a broker that starts now",
        what="Messages wait in the timer wheel that were due more than a week ago: the wheel covers two weeks. The "
             "losses of clients are counted as of the newest message, without these.",
        how="The broker has been stopped for more than a week, or the store is an old copy.",
        says="{messages:message} due from {first_due!t} on: a start now skips what was due more than a week ago",
        effect="these messages are never delivered, although they are in the commit log",
        versions={**_BEFORE, "5.0 and later": "skip what was due more than a week before "
                                              "(`TimerMessageStore#recover`)."},
        repair="No repair is needed for a copy. Before a start, move timerwheel, timerlog/ and config/timercheck away "
               "together: the broker then reads its queue from the beginning, and delivers at once what is due, "
               "including what it has delivered before.",
    ),
    Entry(
        code="timer.row", fault="F59", treatment="decide",
        title="A timer in RocksDB points to no message",
        what="A row of the family timer of rocksdbstore is of another form, or points to no message of the timer's "
        "topic with its unique key and size.",
        how="The log or the database was restored from another time, or a disk error.",
        says="{key!r}: {why}",
        effect="the message is not delivered",
        versions={"5.4.0 and later": "keep timers there with timerRocksDBEnable."},
        repair="`rmqtool query` finds the message; send it again once the broker runs.",
    ),
    Entry(
        code="timer.row-missing", fault="F59", treatment="decide",
        title="A waiting timer message has no row in RocksDB",
        what="The timeline in rocksdbstore has passed the message, which is not due yet and has no row.",
        how="A table of the database is lost, or the database was restored from another time.",
        says="{unique_key} has no row",
        effect="the message is never delivered",
        versions={"5.4.0 and later": "keep timers there with timerRocksDBEnable."},
        repair="`rmqtool query STORE --offset` shows the message; send it again once the broker runs.",
        not_detected="Messages that wait longer than a day, which may be at another time first.",
    ),
)  # fmt: skip
