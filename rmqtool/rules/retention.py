"""The cleaner's settings: the value given, the value that the broker uses, and why (`MessageStoreConfig`, `MixAll`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rmqtool.formats.java import whole_number
from rmqtool.rules.versions import BATCH_MAX_CONFIGURED, DISK_LEVELS_CONFIGURED, NEWEST, TEXT_SETTINGS_TRIMMED, Version

T = TypeVar("T", bound=str | float)

_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?[dDfF]?", re.ASCII)
_BLANKS = " \t\n\r\f\v"
_DISK_MAX = (10, 95)  # MessageStoreConfig#getDiskMaxUsedSpaceRatio
_WARNING = (0.35, 0.90)  # CleanCommitLogService#getDiskSpaceWarningLevelRatio, since 5.0.0
_FORCIBLY = (0.30, 0.85)  # CleanCommitLogService#getDiskSpaceCleanForciblyRatio, since 5.0.0
_NODE_FULL, _NODE_FORCIBLY = 0.90, 0.85  # DLedgerConfig: dledger.disk.ratio.clean, and 0.05 more
_NODE_BATCH = 10  # MmapFileList.DELETE_FILES_BATCH_MAX
_WHY_OF_NODE = {"fileReservedTime": "a DLedger node keeps the files of its log one hour longer"}
_WHY_NOT_OF_NODE = "the cleaner of a DLedger node does not read it"


@dataclass(frozen=True)
class Setting:
    """One setting of the cleaner."""

    name: str  # The broker's own name.
    given: str | None  # Text of the option or of broker.conf; null if neither sets it.
    effective: str | float | bool  # The value that the broker uses; percent for a level of the disk.
    why: str | None = None  # Why the two differ.


@dataclass(frozen=True)
class RetentionSettings:
    """The cleaner's effective settings: hours, percent, files, ms; the two levels are fractions of a disk."""

    file_reserved_time: int
    delete_when: str
    disk_max_used_space_ratio: int
    warning_level: float
    forcibly_level: float
    clean_file_forcibly_enable: bool
    delete_file_batch_max: int
    clean_resource_interval: int
    replicas_per_disk_partition: int
    logical_threshold: float
    shown: tuple[Setting, ...]

    @property
    def reserved_ms(self) -> int:
        """How long a commit log file stays after it was last written to, ms."""
        return self.file_reserved_time * 3_600_000

    def expires(self, modified: int) -> int:
        """When the age of a commit log file allows to delete it, that was modified last at `modified`; epoch ms."""
        return modified + self.reserved_ms


def settings_of(conf: Mapping[str, str], options: Mapping[str, str], version: Version) -> RetentionSettings:
    """The effective settings of a broker of `version`; `options` override `conf`, the settings of broker.conf."""
    reader = _Reader(conf, options, version)
    values = (
        reader.whole("fileReservedTime", 72),
        reader.text("deleteWhen", "04"),
        reader.whole("diskMaxUsedSpaceRatio", 75, _clamped_percent),
        reader.level("diskSpaceWarningLevelRatio", 90, _WARNING),
        reader.level("diskSpaceCleanForciblyRatio", 85, _FORCIBLY),
        reader.flag("cleanFileForciblyEnable", default=True),
        reader.whole("deleteFileBatchMax", 10, _at_least_one, since=BATCH_MAX_CONFIGURED),
        reader.whole("cleanResourceInterval", 10_000),
        reader.whole("replicasPerDiskPartition", 1, since=DISK_LEVELS_CONFIGURED),
        reader.double("logicalDiskSpaceCleanForciblyThreshold", 0.8, since=DISK_LEVELS_CONFIGURED),
    )
    return RetentionSettings(*values, shown=tuple(reader.shown))


def settings_of_node(settings: RetentionSettings, version: Version) -> RetentionSettings:
    """The settings by which a DLedger node deletes files of its log (`DLedgerCommitLog#refreshConfig`).

    It has a cleaner of its own (`DLedgerMmapFileStore.CleanSpaceService`), the same since DLedger 0.3.1 (4.9.7). Since
    5.0.0 nobody calls that method, so that a full disk always counts.
    """
    forcibly = settings.clean_file_forcibly_enable or version >= BATCH_MAX_CONFIGURED
    hours = max(settings.file_reserved_time + 1, 1)
    own: dict[str, Any] = {
        "cleanFileForciblyEnable": forcibly,
        "fileReservedTime": hours,
        "diskSpaceWarningLevelRatio": _NODE_FULL * 100,
        "diskSpaceCleanForciblyRatio": _NODE_FORCIBLY * 100,
        "deleteFileBatchMax": _NODE_BATCH,
        "replicasPerDiskPartition": 1,
    }
    shown = (
        replace(each, effective=own[each.name], why=_WHY_OF_NODE.get(each.name, _WHY_NOT_OF_NODE))
        if each.name in own and each.effective != own[each.name]
        else each
        for each in settings.shown
    )
    return replace(
        settings,
        file_reserved_time=hours,
        warning_level=_NODE_FULL,
        forcibly_level=_NODE_FORCIBLY,
        clean_file_forcibly_enable=forcibly,
        delete_file_batch_max=_NODE_BATCH,
        replicas_per_disk_partition=1,
        shown=tuple(shown),
    )


class _Reader:
    """Reads settings as `MixAll#properties2Object` does: a value that cannot be parsed is ignored without a word."""

    def __init__(self, conf: Mapping[str, str], options: Mapping[str, str], version: Version) -> None:
        self._conf = conf
        self._options = options
        self._version = version
        self.shown: list[Setting] = []

    def whole(
        self,
        name: str,
        default: int,
        bounded: Callable[[int], tuple[int, str | None]] | None = None,
        since: Version | None = None,
    ) -> int:
        """A setting of type int."""
        given, ignored = self._given(name, since)
        value, why = default, ignored
        if given is not None and not ignored:
            value, why = _whole(given, default)
        if bounded:
            value, changed = bounded(value)
            why = why or changed
        return self._show(name, given, value, why)

    def double(self, name: str, default: float, since: Version) -> float:
        """A setting of type double."""
        given, why = self._given(name, since)
        value = default
        if given is not None and not why:
            text = given.strip(_BLANKS)
            if _DOUBLE.fullmatch(text):
                value = float(text.rstrip("dDfF"))
            else:
                why = _not_read(given, "number", default)
        return self._show(name, given, value, why)

    def flag(self, name: str, *, default: bool) -> bool:
        """A setting of type boolean: everything but ``true`` is false (`Boolean#parseBoolean`)."""
        given, _ = self._given(name, None)
        if given is None:
            return self._show(name, None, default, None)
        value = given.lower() == "true"
        odd = not value and given.lower() != "false"
        return self._show(name, given, value, f"{given!r} is not exactly true, so it counts as false" if odd else None)

    def text(self, name: str, default: str) -> str:
        """A setting of type String."""
        given, _ = self._given(name, None)
        if given is None:
            return self._show(name, None, default, None)
        value = given.strip(_BLANKS) if self._version >= TEXT_SETTINGS_TRIMMED else given
        return self._show(name, given, value, "blanks around it are trimmed since 5.2.0" if value != given else None)

    def level(self, name: str, default: int, bounds: tuple[float, float]) -> float:
        """A level of the disk, given in percent, as a fraction.

        Before 5.0.0 broker.conf does not set it, but a property of the JVM, which an option stands for.
        """
        if self._version < DISK_LEVELS_CONFIGURED:
            return self._level_of_jvm(name, default)
        given, _ = self._given(name, None)
        value, why = (default, None) if given is None else _whole(given, default)
        fraction = min(max(value / 100.0, bounds[0]), bounds[1])
        if fraction != value / 100.0:
            why = f"kept between {bounds[0]:.0%} and {bounds[1]:.0%}"
        self._show(name, given, _percent(fraction), why)
        return fraction

    def _level_of_jvm(self, name: str, default: int) -> float:
        given, why = self._options.get(name), None
        fraction = default / 100.0
        if given is not None and _DOUBLE.fullmatch(given.strip()):
            fraction = float(given) / 100.0
            why = f"as -Drocketmq.broker.{name}={fraction:g}: before 5.0.0 broker.conf does not set it"
        elif name in self._conf:
            given = self._conf[name]
            why = f"before 5.0.0 only the JVM's -Drocketmq.broker.{name} sets it"
        self._show(name, given, _percent(fraction), why)
        return fraction

    def _given(self, name: str, since: Version | None) -> tuple[str | None, str | None]:
        """The text given, and why this version ignores it (None: it does not)."""
        given = self._options.get(name, self._conf.get(name))
        if since and self._version < since and given is not None:
            return given, f"read since {since}"
        return given, None

    def _show(self, name: str, given: str | None, effective: T, why: str | None) -> T:
        self.shown.append(Setting(name, given, effective, why))
        return effective


def _whole(given: str, default: int) -> tuple[int, str | None]:
    """A number of type int, and why it is the default instead of what is given."""
    value = whole_number(given)
    return (default, _not_read(given, "whole number", default)) if value is None else (value, None)


def _not_read(given: str, kind: str, default: float) -> str:
    blank = ", because of a blank in it" if whole_number(given.strip(_BLANKS)) is not None else ""
    return f"{given!r} is not a {kind}{blank}: the broker silently ignores it and uses {default}"


def _clamped_percent(value: int) -> tuple[int, str | None]:
    low, high = _DISK_MAX
    clamped = min(max(value, low), high)
    return clamped, None if clamped == value else f"kept between {low} and {high}"


def _at_least_one(value: int) -> tuple[int, str | None]:
    return max(value, 1), None if value >= 1 else "the number is checked after a deletion, so one file is deleted"


def _percent(fraction: float) -> float:
    return round(fraction * 100, 6)


NAMES = tuple(setting.name for setting in settings_of({}, {}, NEWEST).shown)
"""The settings that decide what is deleted, by the broker's own names."""
