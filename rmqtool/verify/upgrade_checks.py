"""The store and its broker.conf before an upgrade to the release that is named."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rmqtool.broker.load import LOG_SETTING, ROOT_SETTING, other_log_opened, other_root_opened
from rmqtool.broker.upgrade import changed_defaults, changes, refusals, switches
from rmqtool.findings.report import Report
from rmqtool.formats.java import whole_number
from rmqtool.rules.broker_conf import UNUSED, BrokerConf, BrokerSetting, broker_settings, is_known, nearest
from rmqtool.rules.versions import TEXT_SETTINGS_TRIMMED, Releases, Version, release_before, release_of
from rmqtool.store.snapshot import Snapshot

_NAMES = ("brokerRole", "flushDiskType")  # BrokerRole#valueOf, FlushDiskType#valueOf


class _Odd(NamedTuple):
    """Why a value is not taken as it looks; `taken` is what the broker has instead, None where that depends.

    Blanks are cut off since a release, or kept `until` one.
    """

    why: Literal["no-number", "blank-no-number", "blank-false", "blanks-cut", "blanks-kept", "blanks-kept-elsewhere"]
    taken: str | None
    is_harmless: bool = False
    meaning: str | None = None  # what a broker makes of it
    since: str | None = None
    until: str | None = None


def check_values(snapshot: Snapshot, report: Report) -> None:
    """Report values that are no number, no ``true``, or have blanks around them."""
    conf, releases = snapshot.store.conf, snapshot.releases
    for name, value in conf.settings.items():
        setting = broker_settings().get(name)
        known = [release for release in releases.fitting if setting and setting.default(release) is not None]
        odd = _odd(snapshot, setting, value, releases) if setting and known and value.strip() else None
        if odd:
            limits = {name: release for name in ("since", "until") if (release := getattr(odd, name))}
            details = {"problem": "value", "setting": name, "value": value, "why": odd.why, "taken": odd.taken,
                       **limits, "has_blanks": value != value.strip()}  # fmt: skip
            report.add("upgrade.setting", file=conf.path, effect=odd.meaning,
                       severity="info" if odd.is_harmless else None, details=details)  # fmt: skip


def _odd(snapshot: Snapshot, setting: BrokerSetting, value: str, releases: Releases) -> _Odd | None:
    has_blanks, meant = value != value.strip(), value.strip()
    default = setting.shown_default(releases.newest) if setting.default(releases.newest) is not None else None
    if setting.kind == "whole" and whole_number(value, 64) is None:
        effect = None if default is None else f"the broker keeps its default, {default}"
        return _Odd("no-number" if whole_number(meant, 64) is None else "blank-no-number", default, meaning=effect)
    if setting.kind == "flag" and has_blanks:
        is_false = meant.lower() != "true"
        return _Odd("blank-false", "false", is_false, "the broker reads it as false")
    if setting.kind == "text" and has_blanks:
        return _odd_text(snapshot, setting.name, value, releases)
    return None


def _odd_text(snapshot: Snapshot, name: str, value: str, releases: Releases) -> _Odd:
    """Blanks around text, which brokers before 5.2.0 keep."""
    keeping = releases.where(lambda release: release < TEXT_SETTINGS_TRIMMED)
    if not keeping:
        return _Odd("blanks-cut", value.strip(), is_harmless=True, meaning="none", since=str(TEXT_SETTINGS_TRIMMED))
    last = release_before(TEXT_SETTINGS_TRIMMED)
    until = None if releases.newest <= last else str(last)
    if name in _NAMES:
        default = broker_settings()[name].shown_default(releases.newest)
        meaning = f"the broker keeps its default, {default}"
        return _Odd("blanks-kept", default, value.strip() == default, meaning, until=until)
    if name in (ROOT_SETTING, LOG_SETTING):
        find = other_root_opened if name == ROOT_SETTING else other_log_opened
        if any(find(snapshot.store, release) for release in keeping):
            meaning = "the broker opens another directory, and is empty"
            return _Odd("blanks-kept-elsewhere", value, meaning=meaning, until=until)
    return _Odd("blanks-kept", value, until=until)


def check_upgrade(snapshot: Snapshot, report: Report) -> None:
    """Report what the named release refuses or ignores, and what it changes when the store is of an older one."""
    version, conf = snapshot.version, snapshot.store.conf
    if not report.selection.wants_any("upgrade."):
        return
    check_values(snapshot, report)
    if version is None:
        return
    report.check("upgrade.refused", len(conf.settings))
    for refusal in refusals(snapshot, version):
        facts = {"version": str(version), "why": refusal.why}
        report.add("upgrade.refused", effect=refusal.instead, details=facts)
    report.check("upgrade.setting", len(conf.settings))
    for name in conf.settings:
        unread = _unread(conf, name, version)
        if unread:
            details = {"setting": name, "version": str(version), **unread}
            report.add("upgrade.setting", file=conf.path, details=details)
    report.check("upgrade.changed")
    for switch in switches(snapshot, version):
        report.add("upgrade.changed", details={"problem": "switch", "version": str(version), "what": switch})
    if release_of(version) > snapshot.releases_by_evidence.newest:
        _report_changes(snapshot, version, report)


def _report_changes(snapshot: Snapshot, version: Version, report: Report) -> None:
    """What changed since the newest release that fits, and, as information, what may have changed before."""
    oldest, newest = snapshot.releases_by_evidence.oldest, snapshot.releases_by_evidence.newest
    for change in changes(snapshot, version):
        if change.since > oldest:
            severity = "warning" if change.since > newest else "info"
            facts = {"problem": "change", "since": str(change.since), "what": change.what}
            report.add("upgrade.changed", severity=severity, details=facts)
    defaults = [f"{change.what} ({change.since})" for change in
                changed_defaults(snapshot.store.conf, oldest, version)]  # fmt: skip
    if defaults:
        facts = {"problem": "defaults", "since": str(oldest), "what": ", ".join(defaults)}
        report.add("upgrade.changed", severity="info", details=facts)


def _unread(conf: BrokerConf, name: str, version: Version) -> dict[str, str] | None:
    """Why a release does not read a setting of broker.conf; None when it does, or has it under its other name, too."""
    setting = broker_settings().get(name)
    if is_known(name, version):
        if setting is None or setting.default(version) != UNUSED:
            return None
        return {"problem": "no-effect", "since": str(setting.changed(version))}
    if setting is None:
        why = {"problem": "unknown"}
    elif setting.since > version:
        why = {"problem": "later", "since": str(setting.since)}
    else:
        why = {"problem": "earlier", "until": str(release_before(setting.changed(version)))}
    meant = nearest(name, version)
    if meant and conf.settings.get(meant) == conf.settings[name]:
        return None
    return why | ({"instead": meant} if meant else {})
