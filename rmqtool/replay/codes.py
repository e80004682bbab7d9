"""Requests that are sent, and what answers mean (`RequestCode`, `ResponseCode`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rmqtool.replay.connection import RefusedError, Response

QUERY_MESSAGE = 12
GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_ROUTEINFO_BY_TOPIC = 105
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

SUCCESS = 0
SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
MESSAGE_ILLEGAL = 13
SERVICE_NOT_AVAILABLE = 14
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22
FLOW_CONTROL = 215

STORED_ALL_THE_SAME: Mapping[int, str] = {
    10: "flush-disk-timeout",
    11: "slave-not-available",
    12: "flush-slave-timeout",
}
"""Answers to a send that say that it is stored, but not as safely as the broker is configured (`SendStatus`)."""

_MEANINGS: Mapping[int, str] = {
    SYSTEM_ERROR: "an error in the broker",
    SYSTEM_BUSY: "the broker is too busy",
    3: "the broker does not know this request",
    MESSAGE_ILLEGAL: "the message is not allowed: too large, or its properties or its topic are",
    SERVICE_NOT_AVAILABLE: "the broker cannot store messages now",
    15: "the broker does not support this",
    NO_PERMISSION: "it is not permitted",
    TOPIC_NOT_EXIST: "the broker does not have this topic",
    26: "the broker does not have this consumer group",
    FLOW_CONTROL: "the broker limits how much may be sent",
}
_NOT_SIGNED = re.compile(
    r"AclException|signature|accessKey|access key|whitelist|SecretKey|username cannot be null|^User:\S+ is not found"
)
_SIGN = "name a file with accessKey and secretKey that may write: --acl-file tools.yml"
_MAY_NOT_READ = "let the key also read the topic (SUB, mqadmin updateAcl), or send without looking up: --no-look-up"
_HINTS: Mapping[int, str] = {
    SYSTEM_BUSY: "send more slowly: --rate 100/s",
    MESSAGE_ILLEGAL: "raise maxMessageSize of the broker, or leave the message out",
    SERVICE_NOT_AVAILABLE: "its disk is full (CL, CQ: how full), or it is a slave or shuts down: see its store.log",
    NO_PERMISSION: "the topic or the broker may be read only (mqadmin updateTopicPerm), "
    "or the key may not write (mqadmin updateAcl)",
    TOPIC_NOT_EXIST: "make the topic on the target first (mqadmin updateTopic)",
    26: "make the group on the target first (mqadmin updateSubGroup)",
}
_LONGEST_REMARK = 300  # characters: remarks of old brokers are whole stack traces


def refusal(response: Response, what: str) -> RefusedError:
    """The error for an answer that is not SUCCESS; `what` was asked of whom, such as ``broker-a: a message``."""
    remark = " ".join(response.remark.split())
    remark = remark if len(remark) <= _LONGEST_REMARK else f"{remark[:_LONGEST_REMARK]}..."
    meaning = _MEANINGS.get(response.code, "it is refused")
    hint = _HINTS.get(response.code)
    if _NOT_SIGNED.search(remark):
        meaning, hint = "the access key or its signature is not accepted", _SIGN
    said = f": {remark}" if remark else ""
    return RefusedError(f"{what}: {meaning} (code {response.code}{said})", response.code, response.remark, hint=hint)


def look_up_refusal(response: Response, what: str) -> RefusedError:
    """The error for a look-up that is refused: it takes another permission than a message that is sent."""
    error = refusal(response, what)
    if response.code == NO_PERMISSION and error.hint == _HINTS[NO_PERMISSION]:
        error.hint = _MAY_NOT_READ
    return error
