"""broker.conf: a Java properties file, of which the settings that decide where and how a store lies on disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqtool.errors import UsageError

_MULTI_PATH_SPLITTER = ","  # MixAll.MULTI_PATH_SPLITTER
_SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\n[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class BrokerConf:
    """The settings given, by the broker's own names; what is not given is left to the files of the store."""

    settings: Mapping[str, str] = field(default_factory=dict)

    def text(self, *names: str) -> str | None:
        """The first of `names` that is set, None without one; several spellings of one setting are several names."""
        return next((self.settings[name].strip() for name in names if self.settings.get(name, "").strip()), None)

    def size(self, *names: str) -> int | None:
        """A setting that must be a positive whole number; raise UsageError when it is none."""
        value = self.text(*names)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) == 0:
            raise UsageError(f"broker.conf: {names[0]} must be a positive whole number, found {value!r}")
        return int(value)

    @property
    def commit_log_paths(self) -> tuple[str, ...]:
        """`storePathCommitLog` and `readOnlyCommitLogStorePaths`, which counts only when the former has several."""
        paths = (self.text("storePathCommitLog") or "").split(_MULTI_PATH_SPLITTER)
        if len(paths) > 1:
            paths += (self.text("readOnlyCommitLogStorePaths") or "").split(_MULTI_PATH_SPLITTER)
        return tuple(dict.fromkeys(path for path in paths if path))

    @property
    def index_geometry(self) -> tuple[int, int] | None:
        """Hash slots and units of an index file, when both are set."""
        slots, units = self.size("maxHashSlotNum"), self.size("maxIndexNum")
        return (slots, units) if slots and units else None


def parse_broker_conf(text: str) -> BrokerConf:
    """Parse as `java.util.Properties` does: comments, continued lines, escapes; the last of equal names wins."""
    joined = _CONTINUED.sub(lambda found: found[0].split("\n")[0][:-1], text.replace("\r\n", "\n").replace("\r", "\n"))
    settings = {}
    for line in joined.split("\n"):
        stripped = line.lstrip()
        if stripped and stripped[0] not in "#!":
            name, value = (*_SEPARATOR.split(stripped, maxsplit=1), "")[:2]
            settings[_unescape(name)] = _unescape(value)
    return BrokerConf(settings)


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
