"""Message properties: ``name 0x01 value 0x02 ...`` (`MessageDecoder#string2messageProperties`)."""

from __future__ import annotations

from collections.abc import Mapping

from .java import decode_text, string_hash

NAME_VALUE_SEPARATOR = 0x01
PROPERTY_SEPARATOR = 0x02
KEY_SEPARATOR = " "  # between the keys of one KEYS property, MessageConst.KEY_SEPARATOR

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TIMER_DUE = "TIMER_OUT_MS"  # epoch ms
TIMER_DELETES = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"  # how often the timer has put a message off
PRODUCER_GROUP = "PGROUP"
HALF_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"  # queue offset of the half message that this one is a copy of
ENDED_HALF = "TRANS_OFFSET"  # physical offset of the half message that an op message of RocksDB ends
CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"  # how often a producer was asked for its half message
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode as 4.9.1 and later do: a property needs a name and a value, the last of duplicates wins.

    A value may hold 0x01 (the first one separates); the last 0x02 may be missing. Order is that of the first
    occurrence of a name.
    """
    properties: dict[str, str] = {}
    for piece in data.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        if separator and name and value:
            properties[decode_text(name)] = decode_text(value)
    return properties


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> bytes:
    """Encode in the mapping's order; 4.9.1 to 5.1.4 leave out the last 0x02 (`messageProperties2String`)."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return (text if trailing_separator else text[:-1]).encode()


def split_keys(keys: str | None) -> list[str]:
    """The keys of a KEYS property, as `IndexService#buildIndex` takes them."""
    return [key for key in keys.split(KEY_SEPARATOR) if key] if keys else []


def tags_code(tags: str | None) -> int:
    """Hash of the whole TAGS text, 0 without tags (`MessageExtBrokerInner#tagsString2tagsCode`)."""
    return string_hash(tags) if tags else 0
