"""broker.conf, a Java properties file: the settings that decide where and how a store lies on disk.

Values are those that a broker takes (`MixAll#properties2Object`): one that it cannot parse leaves its default as it is,
without a word. A number with a blank at its end is such a value in each release, ``true`` with one counts as false, and
text keeps its blanks before 5.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from rmqtool.base.errors import UsageError
from rmqtool.base.files import read_all
from rmqtool.formats.java import whole_number
from rmqtool.rules.versions import TEXT_SETTINGS_TRIMMED, Version, parse_version

TABLE = Path(__file__).with_name("broker_settings.tsv")
BY_MACHINE = "~"
"""In place of a default that depends on the machine's processors, name or directories."""

UNUSED = "?"
"""In place of the default of a setting that nothing reads."""

Kind = Literal["whole", "decimal", "flag", "text"]
"""The type of a setting: int or long, float or double, boolean, String."""

_TEXT_IN_DIGITS = frozenset({"deleteWhen", "timerCheckMetricsWhen"})
_WHOLE, _DECIMAL = re.compile(r"-?[0-9]+"), re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")
_PROPERTIES = frozenset({"rmqAddressServerDomain", "rmqAddressServerSubGroup"})  # BrokerStartup#properties2SystemEnv


@dataclass(frozen=True)
class BrokerSetting:
    """One setting; `changes` are its defaults, each from a release on, and None from where it is no longer known."""

    name: str
    changes: tuple[tuple[Version, str | None], ...]

    def default(self, version: Version) -> str | None:
        """The default of a release, None where it does not know the setting."""
        return next((value for since, value in reversed(self.changes) if since <= version), None)

    @property
    def kind(self) -> Kind:
        """Its type, by its defaults."""
        defaults = [value for _, value in self.changes if value not in (None, UNUSED, BY_MACHINE)]
        if any(value in ("true", "false") for value in defaults):
            return "flag"
        if self.name not in _TEXT_IN_DIGITS and any(_WHOLE.fullmatch(value or "") for value in defaults):
            return "whole"
        return "decimal" if any(_DECIMAL.fullmatch(value or "") for value in defaults) else "text"

    @property
    def since(self) -> Version:
        """The first release that knows it."""
        return self.changes[0][0]

    def shown_default(self, version: Version) -> str:
        """The default of a release that knows the setting, as people read it."""
        return {BY_MACHINE: "by the machine", "": "empty"}.get(value := self.default(version) or "", value)

    def changed(self, version: Version) -> Version:
        """The release that brought what is so in `version`, which is not older than the setting."""
        return next(since for since, _ in reversed(self.changes) if since <= version)


@cache
def broker_settings() -> Mapping[str, BrokerSetting]:
    """All settings by name."""
    rows = (line.split("\t") for line in TABLE.read_text("utf-8").splitlines())
    return MappingProxyType({name: BrokerSetting(name, tuple(map(_change, changes))) for name, *changes in rows})


def is_known(name: str, version: Version) -> bool:
    """Whether a release reads a setting."""
    setting = broker_settings().get(name)
    return name in _PROPERTIES or (setting is not None and setting.default(version) is not None)


def nearest(name: str, version: Version) -> str | None:
    """The setting of a release that is spelled like this one but for one letter; None without exactly one.

    A name that merely sounds alike is another setting.
    """
    known = [known for known in broker_settings() if is_known(known, version)]
    spelled = [each for each in known if each.lower() == name.lower()] or [
        each for each in known if _is_one_slip(each.lower(), name.lower())
    ]
    return spelled[0] if len(spelled) == 1 else None


def _is_one_slip(name: str, other: str) -> bool:
    """Whether two names differ in one letter, which one of them may lack, or in two neighbours in turned order."""
    same = next((at for at, pair in enumerate(zip(name, other, strict=False)) if pair[0] != pair[1]), None)
    if same is None:  # one is the beginning of the other
        return abs(len(name) - len(other)) == 1
    rest, there = name[same:], other[same:]
    is_turned = rest[:2] == there[:2][::-1] and rest[2:] == there[2:]
    return is_turned or rest[1:] in (there, there[1:]) or rest == there[1:]


def _change(text: str) -> tuple[Version, str | None]:
    release, given, value = text.partition("=")
    return parse_version(release), value if given else None


_LOG_PATHS = ("storePathCommitLog", "storePathDLedgerCommitLog", "readOnlyCommitLogStorePaths")
_MULTI_PATH_SPLITTER = ","  # MixAll.MULTI_PATH_SPLITTER
_MAX_SIZE = 1 << 20
_BLANKS = " \t\f"
_PAIR = re.compile(r"((?:[^\\ \t\f=:]|\\.?)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_MAX_INT = (1 << 31) - 1
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class BrokerConf:
    """The settings given, by the broker's own names; a setting that is missing is derived from the store's files.

    `release` is the one whose reading counts, where it is known.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    path: str | None = field(default=None, compare=False)  # of the file, as the user gave it
    release: Version | None = field(default=None, compare=False)

    def for_release(self, release: Version) -> BrokerConf:
        """The same as a broker of a release reads it: names that it does not know are not set.

        Without a release each spelling of a name counts, and blanks around text do not.
        """
        return self if self.release == release else replace(self, release=release)

    def given(self, name: str) -> str | None:
        """A value as the file has it; None where it is not set, or of a name that the release does not know."""
        value = self.settings.get(name)
        return None if value is None or (self.release and not is_known(name, self.release)) else value

    def text(self, *names: str) -> str | None:
        """The first of `names` that is set, None without one; several spellings of one setting are several names."""
        values = (value for name in names if (value := self.given(name)) and value.strip())
        return next(map(self._trimmed, values), None)

    def _trimmed(self, value: str) -> str:
        return value if self.release and self.release < TEXT_SETTINGS_TRIMMED else value.strip()

    def number(self, *names: str) -> int | None:
        """The first of `names` that is a Java int; None without one."""
        values = (whole_number(value) for name in names if (value := self.given(name)) is not None)
        return next((value for value in values if value is not None), None)

    def size(self, *names: str) -> int | None:
        """A setting that must be positive; None where it is not set or no number. Raise UsageError for 0 and less."""
        value = self.number(*names)
        if value is not None and value <= 0:
            raise UsageError(f"broker.conf: {names[0]} must be a whole number from 1 to {_MAX_INT}, found '{value}'")
        return value

    def size_or_default(self, names: Sequence[str], default: int) -> int | None:
        """A size; the broker's default where the file gives one that the broker does not read, None without any."""
        size = self.size(*names)
        return default if size is None and any(self.settings.get(name, "").strip() for name in names) else size

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """Whether a setting is on; `default` where it is not set.

        As the broker takes it (`MixAll#properties2Object`, `Boolean#parseBoolean`): only ``true`` is, in any case.
        Blanks after it, which `Properties` keeps, make it false, as an empty value does.
        """
        value = self.given(name)
        return default if value is None else value.lower() == "true"

    def decides(self, name: str) -> bool:
        """Whether a setting is known: it is given, or there is a broker.conf, which leaves it at its default."""
        return name in self.settings or self.path is not None

    @property
    def is_slave(self) -> bool:
        """Whether it is that of a slave, which takes over what its master has (`BrokerRole#valueOf`)."""
        return self.text("brokerRole") == "SLAVE"

    @property
    def commit_log_paths(self) -> tuple[str, ...]:
        """`storePathCommitLog` and `readOnlyCommitLogStorePaths`, which counts only when the former has several."""
        return self._paths("storePathCommitLog")

    @property
    def dledger_log_paths(self) -> tuple[str, ...]:
        """`storePathDLedgerCommitLog`, with `readOnlyCommitLogStorePaths` as above."""
        return self._paths("storePathDLedgerCommitLog")

    def _paths(self, name: str) -> tuple[str, ...]:
        paths = (self.text(name) or "").split(_MULTI_PATH_SPLITTER)
        if len(paths) > 1:
            paths += (self.text("readOnlyCommitLogStorePaths") or "").split(_MULTI_PATH_SPLITTER)
        return tuple(dict.fromkeys(path for path in paths if path))

    def without_log_paths(self) -> BrokerConf:
        """The other settings."""
        return replace(self, settings={name: value for name, value in self.settings.items() if name not in _LOG_PATHS})

    @property
    def index_geometry(self) -> tuple[int, int] | None:
        """Hash slots and units of an index file, when one of them is set; the other is then the default."""
        from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS  # numpy, which a start does not need

        slots = self.size_or_default(("maxHashSlotNum",), DEFAULT_SLOTS)
        units = self.size_or_default(("maxIndexNum",), DEFAULT_UNITS)
        return (slots or DEFAULT_SLOTS, units or DEFAULT_UNITS) if slots or units else None


def index_switched_off(conf: BrokerConf) -> str | None:
    """The setting with which a broker writes no index files; None where it writes them."""
    names = ("messageIndexEnable", "indexFileWriteEnable")  # the second since 5.4.0
    return next((name for name in names if (conf.text(name) or "true").lower() == "false"), None)


def read_broker_conf(path: Path) -> BrokerConf:
    """The settings in a file; raises UnreadableError, and UsageError for what Java does not parse, or is no text.

    A broker takes bytes of zeros, as a crash may leave them, for a name, and goes on with defaults without a word.
    """
    data = read_all(path, _MAX_SIZE)
    if b"\0" in data:
        raise UsageError("not a broker.conf, which is text: it holds bytes of zeros", file=path,
                         hint="give the file that the broker is started with (mqbroker -c)")  # fmt: skip
    # Latin-1, as the broker reads it: Properties#load(InputStream).
    return replace(parse_broker_conf(data.decode("latin-1")), path=str(path))


def parse_broker_conf(text: str) -> BrokerConf:
    """Parse as `java.util.Properties` does: comments, continued lines, escapes; the last of equal names wins."""
    settings = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match:
            settings[_unescape(match[1])] = _unescape(match[2])
    return BrokerConf(settings)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, empty lines and leading blanks, each with those that continue it."""
    begun = ""
    for line in re.split(r"\r\n?|\n", text):
        stripped = line.lstrip(_BLANKS)
        if not begun and stripped.startswith(("#", "!")):
            continue
        begun += stripped
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            begun = begun[:-1]
        elif begun:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise UsageError(
                "broker.conf: \\u must be followed by four hexadecimal digits, or no broker reads the file"
            )
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _CONTROL.get(escaped, escaped)

    units = _ESCAPE.sub(plain, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "replace")  # two \u escapes may be one character


DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # MessageStoreConfig.messageDelayLevel
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class DelayLevels:
    """Delays in ms; that of level n, from 1 on, is ``delays[n - 1]``."""

    delays: tuple[int, ...]

    @cached_property
    def highest(self) -> int:
        """The highest level; levels above it count as this one."""
        return len(self.delays)

    def delivery_time(self, level: int, store_timestamp: int) -> int | None:
        """When a message is due, epoch ms; None for a level that means no delay."""
        level = min(level, self.highest)
        return store_timestamp + self.delays[level - 1] if level > 0 else None


def parse_delay_levels(text: str) -> DelayLevels:
    """Parse the setting `messageDelayLevel`; raise UsageError where a broker would not start."""
    try:
        return DelayLevels(tuple(int(item[:-1]) * _UNITS[item[-1]] for item in text.strip().split(" ")))
    except (ValueError, KeyError, IndexError) as error:
        message = f"broker.conf: messageDelayLevel must look like '1s 5s 10m 2h', found {text!r}"
        raise UsageError(message) from error


def delay_levels_of(conf: BrokerConf) -> DelayLevels:
    """The levels that broker.conf sets, or the default ones."""
    return parse_delay_levels(conf.text("messageDelayLevel") or DEFAULT_LEVELS)


def known_levels(conf: BrokerConf) -> DelayLevels | None:
    """The levels that a broker with this broker.conf delivers; None where there is none that would show it."""
    return delay_levels_of(conf) if conf.decides("messageDelayLevel") else None
