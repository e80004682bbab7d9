"""Shapes that the decoders of the config files accept; another shape makes `ConfigManager#load` give up a file.

A file may be JSON and still not be decoded: fastjson casts each value to the type of its Java field, and one that it
cannot cast ends the whole file. Checked against the decoders of 4.4.0 to 5.5.1
(`tests/real_broker/test_config_files.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.rules.versions import FASTJSON_2, OLDEST, PULL_OFFSETS_KEPT, Version

_Check = Callable[[object, Version], "str | None"]

_FIVE = Version(5, 0, 0)
_GROUPS_WITH_VERSION = Version(5, 3, 0)  # SubscriptionGroupManager#decode takes the data version over
_INTS_CHECKED = Version(4, 7, 0)  # fastjson cut a number to 32 bits before
_CHANGES = (_INTS_CHECKED, _FIVE, _GROUPS_WITH_VERSION, FASTJSON_2, PULL_OFFSETS_KEPT)
_MAX_LONG = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1
_INTEGER_TEXT = re.compile(r"-?\d{1,19}", re.ASCII)
_TRUTHS = frozenset({"true", "false", "1", "0", "y", "n", "t", "f", "yes", "no", "on", "off", "null", ""})


@dataclass(frozen=True)
class _Table:
    """A member of a file; one that is not there is left as the manager has made it, unless it is `required`."""

    name: str
    check: _Check
    since: Version = OLDEST
    nullable: bool = False
    required: bool = False


def shape_rules(version: Version) -> tuple[bool, ...]:
    """What releases that decode alike have in common."""
    return tuple(version >= change for change in _CHANGES)


def shape_problem(name: str, content: Mapping[str, Any], version: Version = OLDEST) -> str | None:
    """Why `version` cannot decode the `content` of the config file `name`; None when it can."""
    for table in _FILES.get(name, ()):
        if version < table.since:
            continue
        if table.name not in content:
            if table.required:
                return f"{table.name} is missing"
            continue
        value = content[table.name]
        if value is None and table.nullable:
            continue
        problem = table.check(value, version)
        if problem is not None:
            return f"{table.name}: {problem}"
    return None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _whole(value: object, limit: int) -> str | None:
    """A value that fastjson casts to a whole number; it cuts fractions off."""
    if type(value) is int and -limit <= value <= limit:
        return None  # nearly all, and there may be millions
    if isinstance(value, str) and _INTEGER_TEXT.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"a number was expected, found {_kind(value)}"
    return f"{value} is too large" if abs(value) > limit else None


def _long(value: object, version: Version) -> str | None:
    return _whole(value, _MAX_LONG)


def _int_field(value: object, version: Version) -> str | None:
    return None if value is None else _whole(value, _MAX_INT if version >= _INTS_CHECKED else _MAX_LONG)


def _long_field(value: object, version: Version) -> str | None:
    return None if value is None else _long(value, version)


def _truth(value: object, version: Version) -> str | None:
    if isinstance(value, dict | list) or (isinstance(value, str) and value.lower() not in _TRUTHS):
        return f"true or false was expected, found {_kind(value)}"
    return None


def _group_topics(value: object, version: Version) -> str | None:
    """`ConsumerOffsetManager#getGroupTopicMap`: nothing uses it, but it is decoded."""
    if value is None and version >= FASTJSON_2:
        return None
    return _map(_names)(value, version)


def _names(value: object, version: Version) -> str | None:
    if isinstance(value, list) or (isinstance(value, str) and version >= FASTJSON_2):
        return None
    return f"a list was expected, found {_kind(value)}"


def _attributes(value: object, version: Version) -> str | None:
    return None if version < _FIVE or value is None else _object(value)


def _object(value: object) -> str | None:
    return None if isinstance(value, dict) else f"an object was expected, found {_kind(value)}"


def _map(of_value: _Check, *, whole_keys: bool = False) -> _Check:
    """A map whose values are checked; Java's ConcurrentHashMap takes no null."""

    def check(value: object, version: Version) -> str | None:
        if not isinstance(value, dict):
            return _object(value)
        for key, item in value.items():
            wrong_key = whole_keys and _whole(key, _MAX_INT) is not None
            problem = "the key is not a number" if wrong_key else of_value(item, version)
            if problem is not None:
                return f"{key}: {problem}"
        return None

    return check


def _bean(fields: Mapping[str, _Check]) -> _Check:
    """A Java bean; members that it does not have are ignored."""

    def check(value: object, version: Version) -> str | None:
        if not isinstance(value, dict):
            return _object(value)
        for name, of_field in fields.items():
            problem = of_field(value[name], version) if name in value else None
            if problem is not None:
                return f"{name}: {problem}"
        return None

    return check


_TOPIC = _bean(
    {
        **dict.fromkeys(("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"), _int_field),
        "order": _truth,
        "attributes": _attributes,
    }
)
_GROUP_SWITCHES = ("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "notifyConsumerIdsChangedEnable")
_GROUP = _bean(
    {
        **dict.fromkeys(_GROUP_SWITCHES, _truth),
        **dict.fromkeys(("brokerId", "whichBrokerWhenConsumeSlowly"), _long_field),
        **dict.fromkeys(("retryQueueNums", "retryMaxTimes"), _int_field),
        "attributes": _attributes,
    }
)
_VERSION = _bean({"counter": _long_field, "timestamp": _long_field, "stateVersion": _long_field})
_OBJECTS = _map(_map(lambda *_: None))
_OFFSETS = _map(_map(_long, whole_keys=True))
_OF_CONSUMERS = (
    _Table("offsetTable", _OFFSETS, nullable=True),
    _Table("pullOffsetTable", _OFFSETS, since=PULL_OFFSETS_KEPT, nullable=True),
    _Table("groupTopicMap", _group_topics, since=_FIVE),
    _Table("dataVersion", _VERSION, since=_FIVE, nullable=True),
)
_SEGMENT = _bean(
    {
        **dict.fromkeys(("type", "status"), _int_field),
        **dict.fromkeys(("baseOffset", "size", "beginTimestamp", "endTimestamp", "sealTimestamp"), _long_field),
    }
)
_TIERED_QUEUE = _bean(dict.fromkeys(("minOffset", "maxOffset", "updateTimestamp"), _long_field))
_TIERED_TOPIC = _bean({"topicId": _long_field, "status": _int_field, "reserveTime": _long_field})
_FILES: Mapping[str, tuple[_Table, ...]] = {
    "topics.json": (_Table("topicConfigTable", _map(_TOPIC)), _Table("dataVersion", _VERSION)),
    "consumerOffset.json": _OF_CONSUMERS,
    "lmqConsumerOffset.json": (*_OF_CONSUMERS, _Table("lmqOffsetTable", _map(_long), nullable=True)),
    "subscriptionGroup.json": (
        _Table("subscriptionGroupTable", _map(_GROUP)),
        _Table("forbiddenTable", _map(_map(_long)), since=_FIVE, nullable=True),
        _Table("dataVersion", _VERSION, since=_GROUPS_WITH_VERSION),
    ),
    "consumerFilter.json": (_Table("filterDataByTopic", _OBJECTS, nullable=True),),
    "delayOffset.json": (
        _Table("offsetTable", _map(_long, whole_keys=True)),
        _Table("dataVersion", _VERSION, since=_FIVE, nullable=True),
    ),
    "topicQueueMapping.json": (
        _Table("topicQueueMappingInfoMap", _OBJECTS, required=True),
        _Table("dataVersion", _VERSION),
    ),
    "consumerOrderInfo.json": (_Table("table", _map(_map(_bean({}), whole_keys=True)), nullable=True),),
    "tieredStoreMetadata.json": (
        _Table("topicSerialNumber", _long),
        _Table("topicMetadataTable", _map(_TIERED_TOPIC)),
        _Table("queueMetadataTable", _map(_map(_TIERED_QUEUE, whole_keys=True))),
        *(_Table(f"{each}FileSegmentTable", _map(_map(_SEGMENT))) for each in ("commitLog", "consumeQueue", "index")),
    ),
    "timermetrics": (_Table("timingCount", _OBJECTS), _Table("dataVersion", _VERSION)),
}
