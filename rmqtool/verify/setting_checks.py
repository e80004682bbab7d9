"""Values of broker.conf that a broker does not take as they look (`Properties#load`, `MixAll#properties2Object`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from rmqtool.broker.other_paths import LOG_SETTING, ROOT_SETTING, other_log_opened, other_root_opened
from rmqtool.findings.report import Report
from rmqtool.rules.broker_settings import BrokerSetting, broker_settings
from rmqtool.rules.releases import Releases, release_before
from rmqtool.rules.versions import TEXT_SETTINGS_TRIMMED
from rmqtool.store.snapshot import Snapshot

_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NAMES = ("brokerRole", "flushDiskType")  # BrokerRole#valueOf, FlushDiskType#valueOf
_BLANK = "with the blank after it"


class _Odd(NamedTuple):
    """Why a value is not taken as it looks; `taken` is what the broker has instead, None where that depends."""

    why: str
    taken: str | None
    is_harmless: bool = False
    meaning: str | None = None  # what a broker makes of it


def check_values(snapshot: Snapshot, report: Report) -> None:
    """Report values that are no number, no ``true``, or have blanks around them."""
    conf, releases = snapshot.store.conf, snapshot.releases
    for name, value in conf.settings.items():
        setting = broker_settings().get(name)
        known = [release for release in releases.fitting if setting and setting.default(release) is not None]
        odd = _odd(snapshot, setting, value, releases) if setting and known and value.strip() else None
        if odd:
            details = {
                "problem": "value",
                "setting": name,
                "value": value,
                "why": odd.why,
                "taken": odd.taken,
                "has_blanks": value != value.strip(),
            }
            report.add("upgrade.setting", file=conf.path, effect=odd.meaning,
                       severity="info" if odd.is_harmless else None, details=details)  # fmt: skip


def _odd(snapshot: Snapshot, setting: BrokerSetting, value: str, releases: Releases) -> _Odd | None:
    has_blanks, meant = value != value.strip(), value.strip()
    default = setting.shown_default(releases.newest) if setting.default(releases.newest) is not None else None
    if setting.kind == "whole" and not _LONG.fullmatch(value):
        is_number = _LONG.fullmatch(meant)
        why = f"{_BLANK}, it is no number, and not read" if is_number else "it is no number, and not read"
        effect = None if default is None else f"the broker keeps its default, {default}"
        return _Odd(why, default, meaning=effect)
    if setting.kind == "flag" and has_blanks:
        is_false = meant.lower() != "true"
        return _Odd(f"{_BLANK}, it counts as false", "false", is_false, "the broker takes it for false")
    if setting.kind == "text" and has_blanks:
        return _odd_text(snapshot, setting.name, value, releases)
    return None


def _odd_text(snapshot: Snapshot, name: str, value: str, releases: Releases) -> _Odd:
    """Blanks around text, which brokers before 5.2.0 keep."""
    keeping = releases.where(lambda release: release < TEXT_SETTINGS_TRIMMED)
    if not keeping:
        why = f"the blanks around it are cut off since {TEXT_SETTINGS_TRIMMED}"
        return _Odd(why, value.strip(), is_harmless=True, meaning="none")
    until = release_before(TEXT_SETTINGS_TRIMMED)
    why = "the blanks around it are part of it" + ("" if releases.newest <= until else f" up to {until}")
    if name in _NAMES:
        default = broker_settings()[name].shown_default(releases.newest)
        return _Odd(
            why, default, is_harmless=value.strip() == default, meaning=f"the broker keeps its default, {default}"
        )
    if name in (ROOT_SETTING, LOG_SETTING):
        find = other_root_opened if name == ROOT_SETTING else other_log_opened
        if any(find(snapshot.store, release) for release in keeping):
            return _Odd(f"{why}: another directory", value, meaning="the broker opens another directory, and is empty")
    return _Odd(why, value)
