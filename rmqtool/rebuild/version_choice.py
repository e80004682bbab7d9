"""Whose rules count when nobody says which release wrote the store: the newest that fits, and what that decides."""

from __future__ import annotations

from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rules.releases import Releases
from rmqtool.rules.versions import INDEX_OF_TAGS
from rmqtool.store.store import Store


def version_findings(store: Store, releases: Releases, index: bool) -> list[Finding]:
    """A finding where the rules of the `index` are a choice, or were inferred."""
    if releases.is_named or not index:
        return []
    if releases.oldest >= INDEX_OF_TAGS:
        return []
    if releases.newest >= INDEX_OF_TAGS:
        message = (
            f"releases {releases} fit this store, and from {INDEX_OF_TAGS} on tags are keys of the index too: "
            f"the rules of {releases.newest} are taken; --broker-version names another"
        )
        return [finding("rebuild.version-assumed", message, store=store.root)]
    shown = ", ".join(releases.evidence)
    message = f"rules of {releases} ({shown}): tags are not indexed; --broker-version names another"
    return [finding("rebuild.version-assumed", message, store=store.root)]
