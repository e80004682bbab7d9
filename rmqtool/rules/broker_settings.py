"""The settings that broker.conf may hold: which release knows which, with which default.

The table was made from the classes that `BrokerStartup` fills (`BrokerConfig`, `MessageStoreConfig`,
`NettyServerConfig`, `NettyClientConfig`, `AuthConfig`) and from that of the tiered store's plug-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from rmqtool.rules.versions import Version, parse_version

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
