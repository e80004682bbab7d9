"""The store and its broker.conf before an upgrade to the release that is named."""

from __future__ import annotations

from rmqtool.broker.upgrade import changed_defaults, changes, refusals, switches
from rmqtool.findings.report import Report
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.broker_settings import UNUSED, broker_settings, is_known, nearest
from rmqtool.rules.releases import release_before, release_of
from rmqtool.rules.versions import Version
from rmqtool.store.snapshot import Snapshot
from rmqtool.verify.setting_checks import check_values


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
