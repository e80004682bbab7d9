"""Limits that the broker's settings put on a rebuild, with a finding for each."""

from __future__ import annotations

from dataclasses import replace

from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rules.versions import INDEX_OF_TAGS
from rmqtool.store.store import CONSUME_QUEUE_EXT, Store


def apply_conf(store: Store, options: RebuildOptions) -> tuple[RebuildOptions, list[Finding]]:
    """The options without the parts that this broker does not write, and findings for the differences."""
    findings = []
    switched_off = _index_switched_off(store, options) if "index" in options.parts else None
    if switched_off:
        options = replace(options, parts=options.parts - {"index"})
        findings.append(finding("rebuild.index-disabled", file=store.conf.path, details={"setting": switched_off}))
    if "queues" in options.parts and _uses_ext_units(store):
        findings.append(finding("rebuild.ext-units"))
    return options, findings


def _index_switched_off(store: Store, options: RebuildOptions) -> str | None:
    """The setting that switches the index off, or None (`CommitLogDispatcherBuildIndex#dispatch`)."""
    names = ["messageIndexEnable"]
    if options.version is None or options.version >= INDEX_OF_TAGS:  # 5.4.0 brought both
        names.append("indexFileWriteEnable")
    return next((name for name in names if (store.conf.text(name) or "true").lower() == "false"), None)


def _uses_ext_units(store: Store) -> bool:
    directory = store.root / CONSUME_QUEUE_EXT
    is_on = store.conf.is_on("enableConsumeQueueExt")
    return is_on or (directory.is_dir() and any(directory.iterdir()))
