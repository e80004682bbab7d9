"""What brokers and clients print, and where it leads: the pages, and the command that looks at the store.

Each text is one of RocketMQ's own, as it stands in the class that prints it; a test holds them against the jars.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Symptom:
    """Something that is printed, by which Java classes, and what the store has to do with it.

    `texts` are pieces of string constants of `classes`, in the words of any release; `response` is the name and number
    of a response code; `spoken` is what people write instead. `command` is the next one, with STORE to be filled in;
    `codes` are the findings to read about.
    """

    texts: tuple[str, ...]
    classes: tuple[str, ...]
    what: str
    command: str
    codes: tuple[str, ...] = ()
    response: tuple[str, int] | None = None
    spoken: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """What is printed, in one line."""
        shown = f"CODE: {self.response[1]} ({self.response[0]})" if self.response else ""
        text = self.texts[0].strip(" ,:=]") if self.texts else ""
        return ", ".join(filter(None, (shown, "" if shown and text in shown else text)))


_VERIFY = "rmqtool verify STORE"
_CLEAN = "rmqtool clean STORE --dry-run"
_GROUP = "rmqtool query STORE --group GROUP"
_KEY = "rmqtool query STORE --key KEY --topic TOPIC"
_PULL = "rmqtool query STORE --topic TOPIC --queue QUEUE --queue-offset OFFSET --pull"
_PENDING = "rmqtool pending STORE"

SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        ("service not available now", "maybe disk full", "the broker's disk is full"),
        ("SendMessageProcessor", "ReplyMessageProcessor"),
        "The broker refuses messages: its disk is above diskSpaceWarningLevelRatio, it is a slave, it shuts down, "
        "or it could not write queues or index. `rmqtool clean --dry-run` shows how full the disk is and why files "
        "are kept.",
        _CLEAN,
        ("store.disk-full", "clean.disk-full-nothing-deleted", "store.retention-blocked", "clean.mtime-future"),
        ("SERVICE_NOT_AVAILABLE", 14),
        ("disk full", "no space left on device", "disk is full"),
    ),
    Symptom(
        ("the message store is not writable",),
        ("DefaultMessageStore",),
        "The broker has stopped writing: the disk is full, or it could not write a queue or an index file.",
        _CLEAN,
        ("store.disk-full", "store.permission", "clean.disk-full-nothing-deleted"),
    ),
    Symptom(
        ("disk space will be full soon, but delete file failed.",),
        ("DefaultMessageStore$CleanCommitLogService",),
        "The cleaner should delete files, but cannot: the log has only its last file, or an older file before the "
        "others keeps them.",
        _CLEAN,
        ("clean.disk-full-nothing-deleted", "clean.blocked-by-older-file", "clean.mtime-future"),
    ),
    Symptom(
        ("so mark disk full", "physic disk maybe full soon", "logics disk maybe full soon"),
        ("DefaultMessageStore$CleanCommitLogService",),
        "The disk is above the level from which on messages are refused or files are deleted before they expire.",
        _CLEAN,
        ("store.disk-full", "clean.disk-full-nothing-deleted"),
    ),
    Symptom(
        ("Lock failed,MQ already started", "Lock failed, MQ already started, lock status: "),
        ("DefaultMessageStore",),
        "Another process holds the lock of the store: a broker runs on it, or rmqtool is changing it. No file is "
        "wrong.",
        "rmqtool status STORE",
        ("store.in-use", "store.interrupted-run"),
        spoken=("lock failed", "already started"),
    ),
    Symptom(
        ("length not matched message store config value", "Timer wheel length:"),
        ("MappedFileQueue", "TimerWheel"),
        "A file does not have the size that all files of its kind must have: it was cut, or mappedFileSizeCommitLog "
        "or another size in broker.conf was changed, or there is another file in the directory. The broker exits "
        "(-3); 4.4.0 and 4.9.2 ignore this file and all later ones.",
        _VERIFY,
        ("start.refuses", "commitlog.file-size", "consumequeue.file-size", "timer.wheel-size", "commitlog.stray"),
        spoken=("length not matched", "initialize failed", "exit -3", "exit(-3)", "exit code -3", "load() failed"),
    ),
    Symptom(
        ("Offset not matched. Request offset:",),
        ("MappedFileQueue",),
        "The broker reads an offset of a log or a queue that is in no file: files were deleted by hand or are missing "
        "between others, or a queue entry or an offset points outside the log.",
        _VERIFY,
        ("commitlog.gap", "consumequeue.gap", "consumequeue.wrong-record", "config.offset-out-of-range"),
        spoken=("Offset for ... not matched",),
    ),
    Symptom(
        ("findMappedFileByOffset Exception",),
        ("MappedFileQueue",),
        "A file of the log or of a queue is not where its offset says: files are missing or have other names.",
        _VERIFY,
        ("commitlog.gap", "commitlog.misaligned-file", "consumequeue.gap"),
    ),
    Symptom(
        ("found a illegal magic code 0x", "Recover old commitlog found a illegal magic code="),
        ("CommitLog", "DLedgerCommitLog"),
        "There is no record where one should begin. A start treats the first such place as the end of the log, and "
        "deletes everything after it: verify before the next start.",
        _VERIFY,
        ("start.data-loss", "commitlog.magic-code", "commitlog.zeroed", "commitlog.torn"),
        spoken=("illegal magic code",),
    ),
    Symptom(
        ("CRC check failed. bodyCRC=",),
        ("CommitLog",),
        "The body CRC of a message does not match. A start that reads it treats it as the end of the log.",
        _VERIFY,
        ("commitlog.body-crc", "start.data-loss"),
        spoken=("crc check failed",),
    ),
    Symptom(
        ("CommitLog#checkAndDispatchMessage: failed to check message CRC",),
        ("CommitLog",),
        "Topic, properties or header of a message are damaged: its __CRC32# does not match.",
        _VERIFY,
        ("commitlog.property-crc", "start.data-loss"),
    ),
    Symptom(
        ("Msg crc is error!",),
        ("MessageDecoder",),
        "A client got a message with a damaged body, and cannot decode the pulled messages.",
        _VERIFY,
        ("commitlog.body-crc", "commitlog.property-crc"),
    ),
    Symptom(
        ("[BUG]read total count not equals msg total size.",),
        ("DefaultMessageStore$ReputMessageService",),
        "The lengths in a record are inconsistent: the broker makes no more queue entries of messages stored after it.",
        _VERIFY,
        ("commitlog.lengths", "commitlog.field", "consumequeue.behind"),
    ),
    Symptom(
        ("[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: ", "[BUG]logic queue order maybe wrong"),
        ("DefaultMessageStore$ReputMessageService", "ConsumeQueue"),
        "The broker found a record that it cannot read, or a queue entry at an unexpected offset: queues do not match "
        "the log.",
        _VERIFY,
        ("consumequeue.shifted", "consumequeue.hole", "commitlog.queue-offset-gap", "commitlog.lengths"),
    ),
    Symptom(
        ("this usually indicate that the dispatch behind too much and the commitlog has expired.",),
        ("DefaultMessageStore$ReputMessageService",),
        "Queue entries should be built for messages whose log files are missing.",
        _VERIFY,
        ("commitlog.head-missing", "consumequeue.behind", "consumequeue.missing-unit"),
    ),
    Symptom(
        ("The commitlog files are deleted, and delete the consume queue files",),
        ("CommitLog",),
        "The broker has started without any commit log file, and has emptied the queues. Is the disk mounted, and "
        "does broker.conf name the right directory?",
        _VERIFY,
        ("commitlog.missing", "start.other-directory", "store.paths"),
    ),
    Symptom(
        ("load exception",),
        ("DefaultMessageStore",),
        "The broker could not load its store, and exits: a file where a directory belongs, a file without rights, "
        "or a damaged checkpoint or index file.",
        _VERIFY,
        ("start.refuses", "store.wrong-kind", "store.permission", "store.unreadable"),
    ),
    Symptom(
        (", but access logic queue failed.",),
        ("DefaultMessageStore",),
        "The offset is inside the queue, but no file has its entry: files of the queue are missing or "
        "cut.",
        _PULL,
        ("consumequeue.gap", "consumequeue.hole", "consumequeue.missing-queue"),
    ),
    Symptom(
        ("PULL_OFFSET_MOVED:correction offset.", "fix the pull request offset, ", "OFFSET_MOVED_EVENT"),
        ("PullMessageProcessor", "DefaultMQPushConsumerImpl$1$1"),
        "A group requested an offset that its queue does not have: messages expired before they were consumed, or "
        "the queue is shorter than it was. The group jumps to the next existing offset.",
        _GROUP,
        ("config.offset-out-of-range", "consumequeue.hole", "start.queue-loss"),
        ("PULL_OFFSET_MOVED", 21),
    ),
    Symptom(
        ("OFFSET_ILLEGAL", "The pull request offset illegal, "),
        ("PullStatus", "DefaultLitePullConsumerImpl$PullTaskImpl"),
        "A client requested an offset that its queue does not have.",
        _GROUP,
        ("config.offset-out-of-range", "consumequeue.hole"),
    ),
    Symptom(
        ("OFFSET_FOUND_NULL",),
        ("GetMessageStatus",),
        "The queue has no entry at the offset: a hole, at which a group is stuck or jumps.",
        _PULL,
        ("consumequeue.hole", "consumequeue.gap", "consumequeue.missing-unit"),
    ),
    Symptom(
        ("OFFSET_OVERFLOW_BADLY", "OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL"),
        ("GetMessageStatus",),
        "The offset is beyond the end of the queue, or below its first entry.",
        _GROUP,
        ("config.offset-out-of-range", "consumequeue.behind"),
    ),
    Symptom(
        ("NO_MATCHED_LOGIC_QUEUE",),
        ("GetMessageStatus",),
        "The requested queue does not exist on this broker.",
        _VERIFY,
        ("consumequeue.missing-queue", "config.topic-queues", "config.topic-missing"),
    ),
    Symptom(
        (),
        (),
        "There is no message at the offset yet, or none with the requested tags: usually nothing is wrong. --pull "
        "shows why.",
        _PULL,
        ("consumequeue.hole", "consumequeue.tags-code"),
        ("PULL_NOT_FOUND", 19),
    ),
    Symptom(
        (),
        (),
        "The broker skipped messages that do not match, or entries without a message: the client pulls again.",
        _PULL,
        ("consumequeue.hole", "consumequeue.tags-code", "consumequeue.wrong-record"),
        ("PULL_RETRY_IMMEDIATELY", 20),
    ),
    Symptom(
        ("can not find message, maybe time range not correct", "query message by key finished, but no message."),
        ("QueryMessageProcessor", "MQAdminImpl"),
        "The index has no entry for the key in this time range. It may be damaged or begin later than the log; --scan "
        "looks at every message.",
        _KEY,
        ("index.missing", "index.slot", "index.header", "start.keys-lost"),
        ("QUERY_NOT_FOUND", 22),
    ),
    Symptom(
        ("can not find message by the offset, ",),
        ("QueryMessageProcessor",),
        "No message begins at the physical offset of the message id: it has expired, or the log is damaged there.",
        "rmqtool query STORE --id ID",
        ("commitlog.head-missing", "commitlog.gap", "commitlog.zeroed"),
    ),
    Symptom(
        ("topic[%s] not exist, apply first please!", "] not exist, apply first please!"),
        ("PeekMessageProcessor", "AbstractSendMessageProcessor"),
        "The broker does not know the topic: it was never created there, or config/topics.json was lost.",
        _VERIFY,
        ("config.topic-missing", "config.missing", "config.unreadable"),
        ("TOPIC_NOT_EXIST", 17),
        ("topic not exist",),
    ),
    Symptom(
        ("No topic route info in name server for the topic: ", "No route info of this topic"),
        ("ClientRequestProcessor", "DefaultMQProducerImpl"),
        "No broker has registered the topic: it was never created, its broker does not run, or its config/topics.json "
        "was lost.",
        _VERIFY,
        ("config.topic-missing", "config.missing"),
    ),
    Symptom(
        ("the consumer's group info not exist", "subscription group not exist"),
        ("PullMessageProcessor", "SendMessageProcessor"),
        "The broker does not know the consumer group: autoCreateSubscriptionGroup is off and it was never created, or "
        "config/subscriptionGroup.json was lost.",
        _VERIFY,
        ("config.missing", "config.unreadable"),
        ("SUBSCRIPTION_GROUP_NOT_EXIST", 26),
    ),
    Symptom(
        ("The message is illegal, maybe msg body or properties length not matched.",),
        ("EndTransactionProcessor",),
        "The message is larger than the broker accepts (maxMessageSize), or its topic or properties are too long. The "
        "store is not the cause.",
        "rmqtool inspect STORE --scan",
        (),
        ("MESSAGE_ILLEGAL", 13),
    ),
    Symptom(
        ("FLUSH_DISK_TIMEOUT",),
        ("SendStatus", "PutMessageStatus"),
        "The broker did not get the message onto its disk in time. It may be stored anyway: search for it, and check "
        "how full and how slow the disk is.",
        "rmqtool query STORE --unique-key KEY",
        ("store.disk-full",),
        ("FLUSH_DISK_TIMEOUT", 10),
    ),
    Symptom(
        ("SLAVE_NOT_AVAILABLE",),
        ("SendStatus", "PutMessageStatus"),
        "The master has stored the message, but no slave is close enough to replicate it. Compare both stores to see "
        "what is missing on the slave.",
        "rmqtool diff MASTER SLAVE",
        (),
        ("SLAVE_NOT_AVAILABLE", 11),
    ),
    Symptom(
        ("FLUSH_SLAVE_TIMEOUT",),
        ("SendStatus", "PutMessageStatus"),
        "The master has stored the message. The slave did not replicate the message in time: compare both stores.",
        "rmqtool diff MASTER SLAVE",
        (),
        ("FLUSH_SLAVE_TIMEOUT", 12),
    ),
    Symptom(
        ("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while", "[TIMEOUT_CLEAN_QUEUE]broker busy",
         "[PC_SYNCHRONIZED]broker busy", "[REJECTREQUEST]system busy"),
        ("BrokerFastFailure", "SendMessageProcessor", "NettyRemotingAbstract"),
        "The broker is overloaded: page cache, disk or threads. This damages no file; a nearly full disk makes it "
        "worse.",
        "rmqtool status STORE",
        ("store.disk-full",),
        ("SYSTEM_BUSY", 2),
    ),
    Symptom(
        ("create mapped file failed, server is busy or broken.", "Create mapped file failed."),
        ("SendMessageProcessor", "EndTransactionProcessor"),
        "The broker could not create its next log file: no space, no inodes, no permission, or the name is in use.",
        _VERIFY,
        ("store.disk-full", "store.permission", "store.wrong-kind", "commitlog.stray-directory"),
    ),
    Symptom(
        (" failed, and try to load backup file",),
        ("ConfigManager",),
        "A file in config/ could not be read, and the broker uses its older .bak instead.",
        _VERIFY,
        ("config.unreadable", "config.backup-differs", "config.missing"),
    ),
    Symptom(
        ("Over index file capacity: index count = ", "Mark index file cannot build flag"),
        ("IndexFile", "IndexService"),
        "The broker could not write keys to the index; queries by key do not find messages of that time.",
        _VERIFY,
        ("index.missing", "index.geometry", "index.header"),
    ),
    Symptom(
        ("ScheduleMessageService, messageTimeup execute error", "ScheduleMessageService, executeOnTimeup exception",
         "ScheduleMessageService, executeOnTimeUp exception", "ScheduleMessageService, messageTimeUp execute error"),
        ("ScheduleMessageService$DeliverDelayedMessageTimerTask",),
        "A delayed message could not be delivered when it was due.",
        _PENDING,
        ("config.delay-offset", "config.delay-level", "consumequeue.wrong-record"),
    ),
    Symptom(
        ("Timer currQueueOffset:{} is smaller than minOffsetInQueue:{}", "Recover timerLog error",
         "Fail to read msg from commitLog offsetPy:{} sizePy:{}"),
        ("TimerMessageStore",),
        "The timer has lost its position, or points to missing messages: timer messages may never be "
        "delivered.",
        _VERIFY,
        ("timer.lost", "timer.read-time", "timer.unit", "timer.ahead"),
    ),
    Symptom(
        ("find RocksDBConsumeQueue in original/separate path, maybe incompatible config.",),
        ("RocksDBConsumeQueueStore",),
        "The queues are in RocksDB in another directory than broker.conf says.",
        _VERIFY,
        ("consumequeue.database", "store.rocksdb-queues"),
    ),
)  # fmt: skip

_VALUE = r"\.{3,}|…|\{\}|%[sd]"
_GAP, _GAP_OR_NUMBER = re.compile(_VALUE), re.compile(rf"{_VALUE}|\d+")
_CODE = re.compile(r"^\s*(\d{1,3})\s*$|\b(?:response)?code\b\W{0,3}(\d{1,3})\b", re.IGNORECASE)
_LEAST = 8  # characters of a text that is looked for in what is printed


def symptoms_of(text: str) -> list[Symptom]:
    """The symptoms that a number of a response code, its name, or a line of a log or an exception shows.

    What stands for values, such as ``...``, ``{}`` or a number, matches anything; those that say most come first.
    """
    by_number = [each for each in SYMPTOMS if each.response and _number(text) == each.response[1]]
    if by_number:
        return by_number
    weights = {number: weight for number, each in enumerate(SYMPTOMS) if (weight := _weight(each, text))}
    most = max(weights.values(), default=0)
    return [SYMPTOMS[number] for number, weight in weights.items() if weight == most]


def _number(text: str) -> int | None:
    found = _CODE.search(text)
    return int(found[1] or found[2]) if found else None


def _weight(symptom: Symptom, text: str) -> int:
    """Twice as many as the characters that both have, one more where all that is printed is in `text`; 0 for none."""
    weights, pieces = [0], _pieces(_GAP_OR_NUMBER, text)
    for printed in _printed(symptom):
        if _stand_in(text, _pieces(_GAP, printed)):
            weights.append(2 * len(printed) + 1)
        elif sum(map(len, pieces)) >= _LEAST and _stand_in(printed, pieces):
            weights.append(2 * len(text))
    return max(weights)


def _printed(symptom: Symptom) -> Iterator[str]:
    yield from (*symptom.texts, *symptom.spoken)
    if symptom.response:
        yield symptom.response[0]


def _pieces(gap: re.Pattern[str], text: str) -> list[str]:
    """What stands between values."""
    return [piece for each in gap.split(_folded(text)) if (piece := each.strip())]


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _stand_in(text: str, pieces: list[str]) -> bool:
    """Whether the pieces stand in `text`, in their order."""
    found, place = _folded(text), 0
    for piece in pieces:
        place = found.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return bool(pieces)
